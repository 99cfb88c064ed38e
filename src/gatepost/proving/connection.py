"""Connections of clients that prove something: lines by TLS, every wait with an end, a read that can wait."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass

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


class Connection:
    """Lines, both ways."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer
        self._reading: asyncio.Task[bytes] | None = None

    @classmethod
    async def open(cls, address: Address, tls: ssl.SSLContext) -> Connection:
        """Raises OSError, TimeoutError."""
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(
                address.host,
                address.port,
                ssl=tls,
                server_hostname=address.host,
                local_addr=(address.source, 0),
                limit=LINE_BYTES,
                ssl_handshake_timeout=ANSWER_SECONDS,
            )
        return cls(reader, writer)

    def send(self, data: bytes) -> None:
        """Send. A connection that has ended says so at the next read."""
        with suppress(OSError, RuntimeError):
            self._writer.write(data)

    async def line(self) -> bytes:
        """The next line without its end. Raises `Ended` at the end, TimeoutError."""
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._line()

    async def _line(self) -> bytes:
        if self._reading is None:
            self._reading = asyncio.ensure_future(self.reader.readline())
        try:
            line = await asyncio.shield(self._reading)
        except (OSError, ValueError, asyncio.IncompleteReadError) as fault:
            self._reading = None
            raise Ended(type(fault).__name__) from fault
        self._reading = None
        if not line.endswith(b"\n"):
            raise Ended("end of the connection")
        return line.rstrip(b"\r\n")

    async def line_or(self, event: asyncio.Event) -> bytes | None:
        """The next line, or None once `event` is set; waits for ever. Raises `Ended`."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self.reader.readline())
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({self._reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return await self._line() if self._reading.done() else None

    def close(self) -> None:
        """Close at once."""
        if self._reading is not None:
            self._reading.cancel()
        with suppress(OSError, RuntimeError):
            self._writer.transport.abort()
