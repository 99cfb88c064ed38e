"""Tokens: what two hubs call a copy, unique for ever (SPEC S1).

    <identity of the queue database>-<number of the message>-<running number>     of a message that is on disk
    <identity of the queue database>-f<random>-<running number>                   of one that is not yet

No counter is kept: an identity is never given twice, nor a message's number within it, and a start of the hub draws a
number that no message can have. What is not unique within that is the caller's to number.
"""

from __future__ import annotations

import itertools
import secrets

from gatepost.wire.shadow_words import is_token


class Tokens:
    """Tokens of one run of the hub with the queue database `identity` (UUID or hexadecimal digits)."""

    def __init__(self, identity: str) -> None:
        """Raises ValueError for an identity that no token can carry."""
        self._identity = identity.lower()
        # Messages are numbered below 2^63; this is above.
        self._run = f"f{secrets.token_hex(7)}f"
        self._order = itertools.count(1)
        if not is_token(f"{self._identity}-{self._run}-{0xFFFFFF:x}"):
            raise ValueError("an identity of another form")

    def fresh(self) -> str:
        """For a copy of a message that has no number yet, or of any other."""
        return f"{self._identity}-{self._run}-{next(self._order):x}"

    def of(self, number: int, running: int) -> str:
        """For a copy of the message with this number; `running` tells its copies apart, for ever."""
        return f"{self._identity}-{number:x}-{running:x}"
