"""What operators ask of the transport: about queues, messages, unhealthy servers.

    operator ── TransportRequest ──► supervisor ── the same ──► transport
    operator ◄── TransportReply ── supervisor ◄── the same ── transport

`request` tells answers apart on one connection; it comes back as it was.
"""

from __future__ import annotations

from typing import Any

import msgspec

ANSWER_SECONDS = 60.0
"""For the transport's answer: a queue of a million messages may have to be gone through."""


class TransportRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks for `verb` (see `transport.operating`) with its arguments by name."""

    verb: str
    arguments: dict[str, Any] = {}
    request: int = 0


class TransportReply(msgspec.Struct, frozen=True, tag=True):
    """The answer: what the verb gives, or an `error` and nothing was done."""

    answer: Any = None
    error: str = ""
    server: str = ""
    request: int = 0
