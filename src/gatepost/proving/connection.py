"""Connections of clients that prove something: lines by TLS, every wait with an end, a read that can wait.

Thousands of them share a processor with the servers that are looked at, so that they are protocols of their own, and a
line that is waited for costs a future and a timer, no task.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

ANSWER_SECONDS = 45.0
"""For any answer: more than a sign-in may be parked."""
LINE_BYTES = 1 << 20


class Ended(Exception):
    """The server has ended the connection; the text is its last word."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect to, and from which address of our own."""

    host: str
    port: int
    source: str


class Signal:
    """What one client waits for beside its connection: `asyncio.Event` without tasks, for one that waits at a time."""

    __slots__ = ("_set", "wake")

    def __init__(self) -> None:
        self._set = False
        self.wake: Callable[[], None] | None = None
        """Called when it is set."""

    def set(self) -> None:
        """It has happened."""
        self._set = True
        if self.wake is not None:
            self.wake()

    def clear(self) -> None:
        """It has not, any more."""
        self._set = False

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._set

    async def wait(self, seconds: float) -> bool:
        """Wait until it has happened, at most so long; whether it has."""
        if not self._set and seconds > 0:
            await _Wait(seconds, self).until()
        return self._set


class _Wait:
    """Over when something has come (`end`), a signal is set, or the time has passed."""

    __slots__ = ("_over", "_signal", "_timer")

    def __init__(self, seconds: float | None, signal: Signal | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        self._timer = loop.call_later(seconds, self.end) if seconds is not None else None
        self._signal = signal
        if signal is not None:
            signal.wake = self.end

    def end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def until(self) -> None:
        try:
            await self._over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._signal is not None:
                self._signal.wake = None


class Connection(asyncio.Protocol):
    """Lines, both ways."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: _Wait | None = None
        self._lost = ""
        """How the connection ended."""
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, address: Address, tls: ssl.SSLContext) -> Connection:
        """Raises OSError, TimeoutError."""
        async with asyncio.timeout(ANSWER_SECONDS):
            _, made = await asyncio.get_running_loop().create_connection(
                cls,
                address.host,
                address.port,
                ssl=tls,
                server_hostname=address.host,
                local_addr=(address.source, 0),
                ssl_handshake_timeout=ANSWER_SECONDS,
            )
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._buffer += data
        if len(self._buffer) > LINE_BYTES:
            self._lost = "too much was said"
            self.close()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._lost = self._lost or (type(exc).__name__ if exc is not None else "end of the connection")
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.end()

    def send(self, data: bytes) -> None:
        """Send. A connection that has ended says so at the next read."""
        if self._transport is not None:
            with suppress(OSError, RuntimeError):
                self._transport.write(data)

    async def line(self, seconds: float = ANSWER_SECONDS) -> bytes:
        """The next line without its end. Raises `Ended` at the end, TimeoutError."""
        line = await self.line_or(None, seconds)
        if line is None:
            raise TimeoutError
        return line

    async def line_or(self, signal: Signal | None, seconds: float | None = None) -> bytes | None:
        """The next line; None once `signal` is set or `seconds` are over. Raises `Ended`."""
        if (line := self._taken()) is not None:
            return line
        clock = asyncio.get_running_loop().time
        deadline = None if seconds is None else clock() + seconds
        left = seconds
        while (signal is None or not signal.is_set()) and (left is None or left > 0):
            await self._something(left, signal)
            if (line := self._taken()) is not None:
                return line
            left = None if deadline is None else deadline - clock()
        return None

    async def octets(self, count: int, seconds: float) -> bytes:
        """So many bytes. Raises `Ended`, TimeoutError."""
        deadline = asyncio.get_running_loop().time() + seconds
        while len(self._buffer) < count:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise TimeoutError
            self._still_there()
            await self._something(left, None)
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _something(self, seconds: float | None, signal: Signal | None) -> None:
        self._waiting = _Wait(seconds, signal)
        try:
            await self._waiting.until()
        finally:
            self._waiting = None

    def _taken(self) -> bytes | None:
        """A line that is there. Raises `Ended` when none will come."""
        end = self._buffer.find(b"\n")
        if end < 0:
            self._still_there()
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line.rstrip(b"\r")

    def _still_there(self) -> None:
        if self._lost:
            raise Ended(self._lost)

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            with suppress(OSError, RuntimeError):
                self._transport.abort()
