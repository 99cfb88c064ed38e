"""What the parts of a `DiskSpool` share; it belongs to that."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, Protocol

from gatepost.transport.spool.changes import Change
from gatepost.transport.spool.reading import Readers
from gatepost.transport.spool.recent import Recent


class Asking(Protocol):
    """Whoever asks the thread that writes."""

    _loop: asyncio.AbstractEventLoop
    _readers: Readers
    _recent: Recent
    _updating: dict[int, bytes]
    """Envelopes that are not on disk yet."""
    _removing: set[int]
    """Messages whose removal is not on disk yet."""

    @abstractmethod
    def _ask(self, change: Change) -> asyncio.Future[Any]:
        """Have it written. The future ends when it is on disk."""
