"""The rules of a primary (SPEC S1 to S3): who keeps shadows of our messages, and what they hear of us. Pure.

    accept ─ opened ─► unsure ── held ──► held ── another identity ──► gone ─► unprotected: protect anew
                         ▲  │ asked: HELD ─┘│
    start ─── load ──────┘  ├ OPEN ─► Follow│  settled ─► discard events ─ ask ─► acknowledged
    takeover ─ took_over ───┘ DONE ─► Drop  ▼

A message that was loaded at the start waits until all its watchers have answered, or `shadow_fence_time` is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gatepost.organization.transport import TransportConfig
from gatepost.transport.message import Watcher
from gatepost.transport.shadow.decisions import Note, PrimaryStep, Question
from gatepost.wire.shadow_messages import Discarded, Status

Busy = Callable[[int], bool]
"""Whether a message is being sent just now."""


class Primary:
    """One for a hub. `name` is the hub's. A watcher's `token` with its `server` names one copy of one message.

    `moment`s order what was seen on different connections: take one when a connection is begun or a question is sent,
    and hand it back with what came of it.
    """

    def __init__(self, name: str, settings: TransportConfig, now: float) -> None: ...

    def configure(self, settings: TransportConfig, servers: Iterable[str]) -> None:
        """Other settings, and the hubs that the organization has now. Copies at others are gone, and their events."""

    def moment(self) -> int:
        """See above."""
        ...

    # Start

    def load(self, number: int, watchers: Sequence[Watcher]) -> None:
        """A message of the spool with open recipients. Until `loaded` what we do not know is answered `OPEN`."""

    def load_events(self, events: Mapping[str, Sequence[Discarded]]) -> None:
        """The discard events on disk."""

    def loaded(self, now: float) -> None:
        """All of the spool is known: the time of fencing begins."""

    def waits(self, number: int) -> bool:
        """Whether the message must not be sent yet."""
        ...

    # A message's way

    def opened(self, number: int, watchers: Sequence[Watcher], *, held: bool) -> None:
        """A new message. `held`: its watchers have the copy (who sent it keeps it); else they may get it."""

    def offered(self, number: int, watchers: Sequence[Watcher]) -> None:
        """A copy is being offered to the last of `watchers`, which are all; they are in the envelope on disk."""

    def held(self, number: int, server: str, identity: str, token: str, moment: int) -> list[PrimaryStep]:
        """The copy is on that hub's disk; other watchers are not needed any more and are released."""
        ...

    def not_held(self, number: int, server: str, token: str) -> None:
        """That hub has said that it does not keep the copy."""

    def settled(
        self,
        number: int,
        watchers: Sequence[Watcher],
        places: Sequence[int],
        *,
        whole: bool,
        at: float,
        databases: Sequence[str] = (),
    ) -> list[Note]:
        """Recipients are delivered, failed and reported, dropped, or handed on with a shadow kept here. `whole`: none
        is open any more, and the message is forgotten here."""
        ...

    def left(self, number: int, watchers: Sequence[Watcher], token: str, at: float) -> list[Note]:
        """`Follow` or `Drop` is on disk: the message is none of ours, its other watchers are released."""
        ...

    def took_over(self, number: int, watchers: Sequence[Watcher], token: str) -> None:
        """`TakeOver` is on disk: the message is ours, and who was responsible for it (`token`) is to be told."""

    def unprotected(self, limit: int) -> list[int]:
        """Messages that no other hub keeps a shadow of; each is handed out once, until `still_unprotected`."""
        ...

    def still_unprotected(self, number: int) -> None:
        """No copy could be made now."""

    # Other hubs

    def heard(self, server: str, identity: str, moment: int, now: float) -> None:
        """It has answered or asked. `moment`: of the question, or of the beginning of the connection."""

    def ask(self, server: str, acknowledged: Sequence[str], limit: int) -> tuple[list[Discarded], list[str]]:
        """Discard events for that hub, oldest first, at most `limit`; and the tokens that may be forgotten on disk."""
        ...

    def status(self, server: str, token: str) -> Status:
        """`OPEN`, `DONE` or `UNKNOWN`; the hub puts the keeper's `HELD` before `UNKNOWN`."""
        ...

    def told(self, server: str, identity: str, tokens: Sequence[str], busy: Busy) -> list[PrimaryStep]:
        """`TookOver`: carry the steps out, then answer each token's status."""
        ...

    def finished(self, server: str, token: str, busy: Busy) -> list[PrimaryStep]:
        """A discard event for a token that the keeper has not: it may be of a message that we took over."""
        ...

    def wanted(self) -> list[str]:
        """Hubs that are to be contacted, since something is to be asked or told."""
        ...

    def questions(self, server: str, limit: int) -> Question | None:
        """What is to be asked or told now; one question at a time to each hub."""
        ...

    def answered(self, question: Question, identity: str, statuses: Sequence[int], busy: Busy) -> list[PrimaryStep]:
        """What its answer means."""
        ...

    def unanswered(self, question: Question) -> None:
        """The channel was lost: it is asked again."""

    def tick(self, now: float) -> tuple[list[int], list[tuple[str, str]]]:
        """Every second. Messages that need not wait any longer, and events (server, token) that are too old."""
        ...
