"""Questions by HTTP to a look-up service: POST over connections that are kept, one callback for each answer.

A sign-in that the directory must be asked for costs little more than one that it need not: a client for all purposes
takes several times as long for a question as all the rest of a sign-in does.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

PORTS = {"http": 80, "https": 443}
IDLE_SECONDS = 30.0
"""A connection that nobody has used for longer is closed instead of used."""
MAX_ANSWER_BYTES = 64 * 1024
"""A user is some hundred octets."""
MAX_HEAD_BYTES = 16 * 1024
_OK = 200
_FINAL = 200
"""Answers with a status below are followed by another one."""


class NoAnswer(OSError):
    """No answer, or not what one looks like. The message is for the log."""


class Place(NamedTuple):
    """Where a URL leads. Requests to the same `origin` share connections."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> tuple[Place, str, str]:
        """The place, the `Host` field and the target of a URL that the configuration has accepted."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        written = f"[{host}]" if ":" in host else host if host.isascii() else host.encode("idna").decode()
        port = parts.port or PORTS[parts.scheme]
        named = written if port == PORTS[parts.scheme] else f"{written}:{port}"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(host, port, parts.scheme == "https"), named, target


class Posts:
    """Connections to the servers of one service. Belongs to the loop it is used in. `fields`: of every request."""

    def __init__(self, fields: dict[str, str], context: ssl.SSLContext) -> None:
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._lines = len(fields)
        self._context = context
        self._idle: dict[Place, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._known: dict[str, tuple[Place, bytes]] = {}

    async def post(self, url: str, content: bytes) -> bytes:
        """What `url` answers with status 200. Raises `NoAnswer`, and what connecting raises: OSError, `ssl.SSLError`.

        The caller bounds time and number. A connection that was kept may be at its end: then a new one is tried.
        """
        known = self._known.get(url)
        if known is None:
            known = self._known[url] = self._begin(url)
        place, head = known
        question = b"%b%d\r\n\r\n%b" % (head, len(content), content)
        kept = self._kept(place)
        if kept is not None:
            try:
                return await self._ask(place, kept, question)
            except NoAnswer:
                if kept.answered:
                    raise
        return await self._ask(place, await self._connect(place), question)

    async def close(self) -> None:
        """End all connections."""
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop lets go of them

    def _begin(self, url: str) -> tuple[Place, bytes]:
        """The place, and a request's head up to its length. Raises `NoAnswer`."""
        if self._fields.count("\n") != self._lines:
            raise NoAnswer("the token is more than one line")
        place, host, target = Place.of(url)
        return place, f"POST {target} HTTP/1.1\r\nHost: {host}\r\n{self._fields}Content-Length: ".encode()

    def _kept(self, place: Place) -> _Connection | None:
        kept = self._idle.get(place)
        now = asyncio.get_running_loop().time()
        while kept:
            connection = kept.pop()
            if connection.usable and now - connection.idle_since <= IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self, place: Place) -> _Connection:
        loop = asyncio.get_running_loop()
        context = self._context if place.tls else None
        name = place.host if place.tls else None
        _, connection = await loop.create_connection(
            lambda: _Connection(self._open), place.host, place.port, ssl=context, server_hostname=name
        )
        return connection

    async def _ask(self, place: Place, connection: _Connection, question: bytes) -> bytes:
        whole = False
        try:
            answer = await connection.ask(question)
            whole = True
        finally:
            if whole and connection.usable:
                connection.idle_since = asyncio.get_running_loop().time()
                self._idle.setdefault(place, []).append(connection)
            else:
                connection.abort()
        return answer


class _Connection(asyncio.Protocol):
    """One connection, which has one question at a time."""

    def __init__(self, everybody: set[_Connection]) -> None:
        self._everybody = everybody
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[bytes] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._delimited = False
        """Whether the answer says where it ends; else the connection's end is its end."""
        self.answered = False
        """Whether anything has come since the question."""
        self.usable = False
        self.idle_since = 0.0

    def ask(self, question: bytes) -> asyncio.Future[bytes]:
        """The body of the answer to `question`. Fails with `NoAnswer`."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._parts.clear()
        self._size, self._delimited, self.answered = 0, False, False
        if self._transport is None or self._transport.is_closing():
            self._fail("the connection has ended")
        else:
            self._transport.write(question)
        return self._waiting

    def abort(self) -> None:
        """End it at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio`."""
        self._transport = cast(asyncio.Transport, transport)
        self._everybody.add(self)
        self.usable = True

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio`."""
        self._everybody.discard(self)
        self.usable = False
        if exc is None and self._parts and not self._delimited and self._parser.get_status_code() == _OK:
            self._done()
        self._fail(str(exc or "") or "the server has closed the connection")

    def data_received(self, data: bytes) -> None:
        """See `asyncio`."""
        if self._waiting is None or self._waiting.done():
            self.abort()  # an answer to no question
            return
        self.answered = True
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES + MAX_HEAD_BYTES:
            self._fail("a longer answer than any user needs")
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as fault:
            self._fail(f"no HTTP: {fault}")
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002
        """See `httptools`."""
        self._delimited |= name.lower() in {b"content-length", b"transfer-encoding"}

    def on_body(self, body: bytes) -> None:
        """See `httptools`."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """See `httptools`."""
        status = self._parser.get_status_code()
        if status < _FINAL:
            self._delimited = False
            return
        self.usable = self._parser.should_keep_alive() and self._delimited
        if status == _OK:
            self._done()
        else:
            self._fail(f"status {status}")

    def _done(self) -> None:
        body = b"".join(self._parts)
        if len(body) > MAX_ANSWER_BYTES:
            self._fail("a longer answer than any user needs")
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(body)

    def _fail(self, reason: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(NoAnswer(reason))
