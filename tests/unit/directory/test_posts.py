"""Questions by HTTP: answers however they are cut and delimited, connections that are kept, and what is no answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest

from gatepost.directory import http_look_up
from gatepost.directory.http_look_up import HttpEngine
from gatepost.directory.port import DirectoryBusy
from gatepost.directory.posts import MAX_ANSWER_BYTES, NoAnswer, Place, Posts
from gatepost.directory.settings import HttpLookUpSettings

PATIENCE_SECONDS = 20.0
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Service:
    """Answers each question with the next of `answers`; an empty one ends the connection."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.pieces = 1 << 20
        self.connections = 0
        self.asked: list[bytes] = []
        self.heard = asyncio.Event()
        self.going = asyncio.Event()
        self.going.set()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/look-up"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.asked.append(head + await reader.readexactly(size))
                self.heard.set()
                await self.going.wait()
                answer = self.answers.pop(0)
                for begin in range(0, len(answer), self.pieces):
                    writer.write(answer[begin : begin + self.pieces])
                    await asyncio.sleep(0)
                if not answer or b"close" in answer.lower() or b"content-length" not in answer.lower():
                    writer.close()
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
async def posts() -> AsyncIterator[Posts]:
    posts = Posts({"Accept": "application/json"}, ssl.create_default_context())
    yield posts
    await posts.close()


@pytest.mark.parametrize("pieces", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 102 Processing\r\n\r\n" + WHOLE,
    ],
    ids=["length", "chunked", "end", "after 102"],
)
async def test_an_answer_however_it_comes(service: Service, posts: Posts, answer: bytes, pieces: int) -> None:
    service.answers, service.pieces = [answer], pieces
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await posts.post(service.url, b"{}") == b"hello"
    assert service.asked[0].startswith(b"POST /look-up HTTP/1.1\r\nHost: 127.0.0.1:")
    assert service.asked[0].endswith(b"Accept: application/json\r\nContent-Length: 2\r\n\r\n{}")


async def test_a_connection_is_kept(service: Service, posts: Posts) -> None:
    service.answers = [WHOLE] * 3
    for _ in range(3):
        await posts.post(service.url, b"{}")
    assert service.connections == 1


async def test_a_kept_connection_at_its_end_costs_no_answer(service: Service, posts: Posts) -> None:
    """The server ends it when the question comes: the question is put again, once."""
    service.answers = [WHOLE, b"", WHOLE]
    assert await posts.post(service.url, b"{}") == b"hello"
    assert await posts.post(service.url, b"{}") == b"hello"
    assert service.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * (MAX_ANSWER_BYTES + 20_000) + b"\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b" " * 70_000,
    ],
    ids=["nothing", "404", "204", "302", "no HTTP", "cut short", "long head", "long body"],
)
async def test_what_is_no_answer(service: Service, posts: Posts, answer: bytes) -> None:
    service.answers = [answer]
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(NoAnswer):
            await posts.post(service.url, b"{}")
    service.answers = [WHOLE]
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await posts.post(service.url, b"{}") == b"hello"


async def test_who_gives_up_takes_the_connection_along(service: Service, posts: Posts) -> None:
    """The answer that comes too late is nobody else's."""
    service.going.clear()
    service.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate", WHOLE]
    question = asyncio.ensure_future(posts.post(service.url, b"{}"))
    await asyncio.wait_for(service.heard.wait(), PATIENCE_SECONDS)
    question.cancel()
    await asyncio.wait([question])
    service.going.set()
    assert await posts.post(service.url, b"{}") == b"hello"
    assert service.connections == 2


async def test_a_token_of_two_lines_is_sent_to_nobody(service: Service) -> None:
    posts = Posts({"Authorization": "Bearer a\r\nX: y"}, ssl.create_default_context())
    with pytest.raises(NoAnswer, match="more than one line"):
        await posts.post(service.url, b"{}")
    assert service.connections == 0


def test_places() -> None:
    assert Place.of("https://users.contoso.com/a?b=c") == (
        Place("users.contoso.com", 443, True),
        "users.contoso.com",
        "/a?b=c",
    )
    assert Place.of("http://[::1]:8080") == (Place("::1", 8080, False), "[::1]:8080", "/")


async def test_more_questions_than_may_wait_are_no_outage(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may come back; whoever has a connection gets their answer, and the server is as good as before."""
    monkeypatch.setattr(http_look_up, "WAITING_FOR_EACH", 0)
    engine = HttpEngine("web", HttpLookUpSettings((service.url,), connections=1, seconds=PATIENCE_SECONDS))
    service.going.clear()
    service.answers = [WHOLE.replace(b"5", b"14").replace(b"hello", b'{"user": null}')] * 2
    first = asyncio.ensure_future(engine.find("anna@contoso.com"))
    await asyncio.wait_for(service.heard.wait(), PATIENCE_SECONDS)
    with pytest.raises(DirectoryBusy):
        await engine.find("otto@contoso.com")
    service.going.set()
    assert await first is None
    assert await engine.find("otto@contoso.com") is None
    await engine.close()
