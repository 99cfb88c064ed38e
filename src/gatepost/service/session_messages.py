"""Messages about sessions: listing them and ending them.

    operator ── SessionsRequest, Kick ──► supervisor ── the same ──► every worker, draining ones too
    operator ◄── SessionsReply, Kicked ── supervisor ◄── the same ── workers

`request` tells answers apart on one connection; it comes back as it was.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gatepost.access.sessions import SessionFilter


class SessionsRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks for the sessions that match, at most `limit` of them as entries."""

    wanted: SessionFilter
    limit: int
    request: int = 0


class SessionsReply(msgspec.Struct, frozen=True, tag=True):
    """The answer: `total` sessions match, so many by each protocol.

    An entry has `session`, `protocol`, `phase`, `client`, `user`, `database`, `server`, `epoch`, `since` and `seconds`,
    from the supervisor also `worker`, a process id. `missing` are workers that did not answer.
    """

    sessions: list[dict[str, Any]]
    total: int
    protocols: dict[str, int]
    server: str = ""
    missing: list[int] = []
    request: int = 0


class Kick(msgspec.Struct, frozen=True, tag=True):
    """Ends the sessions that match: at a boundary, or after `seconds` by force. All of them only with `everything`."""

    wanted: SessionFilter
    reason: str
    seconds: float
    everything: bool = False
    request: int = 0


class Kicked(msgspec.Struct, frozen=True, tag=True):
    """What came of it, session by session: "closed" only if the client's connection is closed, else "timed out".

    `missing` are workers that did not answer in time: of their sessions nothing is known. `error`: nothing was done.
    """

    outcomes: list[tuple[str, str]]
    server: str = ""
    missing: list[int] = []
    error: str = ""
    request: int = 0
