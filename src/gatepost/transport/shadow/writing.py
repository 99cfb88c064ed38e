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
        self._octets = 0
        """Of `_out`."""
        self._flushing = False
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is this one from now on."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        if not transport.is_closing():
            self._transport.set_write_buffer_limits(HIGH_WATER)

    def say(self, *pieces: bytes) -> None:
        """Send these, with all that is said in this turn. Much goes at once, so that `paused` is true in time."""
        self._out += pieces
        self._octets += sum(map(len, pieces))
        if self._octets >= HIGH_WATER:
            self.flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._turn_ends)

    def pause_writing(self) -> None:
        """The other side reads slowly."""
        self.paused = True

    def resume_writing(self) -> None:
        """It has read."""
        self.paused = False

    def _turn_ends(self) -> None:
        self._flushing = False
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        self._octets = 0
        out, transport = self._out, self._transport
        self._out = []
        if out and transport is not None and not transport.is_closing():
            transport.write(b"".join(out))
