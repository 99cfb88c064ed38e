"""The port of the shared state: first servers of devices (SPEC B2) and sign-outs (SPEC B6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol as Port


class SharedState(Port):
    """Nothing here raises for a store that is away: sign-ins and requests go on with what this process knows.

    Times are seconds since 1970.
    """

    async def first_server(self, key: str, choose: str, now: float, servers: Sequence[str] = ()) -> str:
        """The server of a device: `choose` if none is remembered, and that is remembered then.

        Two front ends that ask at once get the same answer. One that is remembered but not among `servers`, the
        candidates, is replaced by `choose`. While the store is away all front ends answer alike too: by a hash of `key`
        over `servers`, or `choose` where none are given.
        """
        ...

    def known_server(self, key: str) -> str | None:
        """The server of a device, at once; None when none is remembered, or none is known here."""
        ...

    async def move_server(self, key: str, server: str, now: float) -> None:
        """Remember another server for a device: its own is unavailable (SPEC B2)."""
        ...

    async def sign_out(self, session_id: str, until: float) -> bool:
        """The session is over. `until`: when its last cookie expires and this may be forgotten.

        Known here at once, and to every other front end within a second. False: it could not be stored in time, and
        the others learn it when it can be.
        """
        ...

    def is_signed_out(self, session_id: str) -> bool:
        """Whether the session was signed out; from memory."""
        ...
