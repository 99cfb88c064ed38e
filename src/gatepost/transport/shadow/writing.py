"""What both ends of a shadow channel do with their transport: frames of one turn of the loop go out as one piece."""

from __future__ import annotations

import asyncio
from typing import cast

HIGH_WATER = 256 * 1024
"""Octets that wait for a slow reader before nothing more is written."""


class FrameWriter(asyncio.Protocol):
    """A protocol with a way out. `paused`: the other side does not read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._flushing = False
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is this one from now on."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        if not transport.is_closing():
            self._transport.set_write_buffer_limits(HIGH_WATER)

    def say(self, *pieces: bytes) -> None:
        """Send these, with all that is said in this turn."""
        self._out += pieces
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def pause_writing(self) -> None:
        """The other side reads slowly."""
        self.paused = True

    def resume_writing(self) -> None:
        """It has read."""
        self.paused = False

    def flush(self) -> None:
        """Send what waits."""
        self._flushing = False
        out, transport = self._out, self._transport
        self._out = []
        if out and transport is not None and not transport.is_closing():
            transport.write(b"".join(out))
