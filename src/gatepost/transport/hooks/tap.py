"""Lets a hook read a message while it still comes in: what the client sends is written here as well as to the spool."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

HIGH = 512 * 1024
"""Octets that wait for the hook before the client is to wait too."""


class ContentAborted(Exception):
    """The client went away before the end of its message."""


class MessageTap:
    """A bounded pipe from a receive connection to a hook. Belongs to one event loop; read once."""

    def __init__(self) -> None:
        self._blocks: deque[bytes] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False
        self._aborted = False
        self._dropped = False

    def write(self, block: bytes) -> None:
        """The next piece. Once the hook reads no more, it goes nowhere."""
        if self._dropped or not block:
            return
        self._blocks.append(block)
        self._waiting += len(block)
        if self._waiting > HIGH:
            self._room.clear()
        self._changed.set()

    @property
    def full(self) -> bool:
        """The hook is behind: stop reading from the client until `drain`."""
        return not self._room.is_set()

    async def drain(self) -> None:
        """Until there is room again, or the hook reads no more."""
        await self._room.wait()

    def end(self) -> None:
        """The message is whole."""
        self._ended = True
        self._changed.set()

    def abort(self) -> None:
        """It will never be whole: the hook's reading raises `ContentAborted`. Safe at any moment."""
        self._aborted = True
        self._changed.set()

    def drop(self) -> None:
        """The hook has answered: what still comes is not kept. To be called after every check; safe at any moment."""
        self._dropped = True
        self._blocks.clear()
        self._waiting = 0
        self._room.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces as they come. Raises `ContentAborted`."""
        try:
            while True:
                while self._blocks:
                    block = self._blocks.popleft()
                    self._waiting -= len(block)
                    if self._waiting <= HIGH // 2:
                        self._room.set()
                    yield block
                if self._aborted:
                    raise ContentAborted
                if self._ended:
                    return
                self._changed.clear()
                await self._changed.wait()
        finally:
            self.drop()
