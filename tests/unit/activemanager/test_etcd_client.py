"""Calls of etcd's gateway: which member is asked, which answers are tried again, how a stream is read, signing in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from gatepost.activemanager.etcd import client as module
from gatepost.activemanager.etcd.client import EtcdClient, EtcdFault
from gatepost.activemanager.port import RegistryUnavailable
from gatepost.configuration.settings import EtcdSettings

Answer = Callable[[httpx2.Request], httpx2.Response]
URLS = ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3")
OK = {"header": {"revision": "7"}}


class Members:
    """Three members whose answers a test says; the requests that they got, in order."""

    def __init__(self, *answers: Answer, user: str = "") -> None:
        self.answers = answers
        self.asked: list[tuple[int, str, str]] = []
        """Port, path, token."""
        settings = EtcdSettings(URLS, "/gatepost/contoso", user, "s3cret" if user else "")
        self.client = EtcdClient(settings, httpx2.MockTransport(self.handle))

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        port = request.url.port or 0
        self.asked.append((port, request.url.path.removeprefix("/v3/"), request.headers.get("authorization", "")))
        return self.answers[min(len(self.asked), len(self.answers)) - 1](request)


def says(value: object, status: int = 200) -> Answer:
    return lambda _: httpx2.Response(status, content=value if isinstance(value, bytes) else json.dumps(value).encode())


def fails(fault: Exception) -> Answer:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise fault

    return answer


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.001)


@pytest.mark.parametrize(
    "first",
    [
        fails(httpx2.ConnectError("refused")),
        fails(httpx2.ReadTimeout("")),
        fails(OSError("no route")),
        says({"error": "etcdserver: no leader", "code": 14}, 503),
        says({"error": "etcdserver: request timed out", "code": 14}, 503),
        says({"error": "context canceled", "code": 1}, 408),
        says(b"<html>a proxy</html>", 502),
        says(b"<html>a proxy</html>"),
        says([1]),
        says({"error": {"grpc_code": 14, "message": "stream: no leader"}}),
    ],
)
async def test_what_one_member_cannot_answer_another_is_asked(first: Answer) -> None:
    """And it is asked from then on."""
    members = Members(first, says(OK))
    assert await members.client.call("kv/range", {}) == OK
    assert await members.client.call("kv/range", {}) == OK
    assert [port for port, _, _ in members.asked] == [1, 2, 2]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (says({"error": "etcdserver: permission denied", "code": 7}, 403), "permission denied"),
        (says({"message": "etcdserver: user name is empty", "code": 3}, 400), "user name is empty"),
        (says(b"CommonName of client sending a request", 400), "CommonName"),
        (says(b"404 page not found", 404), "404"),
    ],
)
async def test_a_refusal_is_not_asked_again(answer: Answer, words: str) -> None:
    members = Members(answer)
    with pytest.raises(EtcdFault, match=words):
        await members.client.call("kv/range", {})
    assert len(members.asked) == 1


async def test_all_members_are_asked_until_the_time_is_over() -> None:
    """The message has the last reason of each, and no password."""
    members = Members(fails(httpx2.ConnectError("refused")), user="gatepost")
    with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1:1: refused; .*:2: refused; .*:3: refused") as caught:
        await members.client.call("kv/range", {}, 0.05)
    assert {port for port, _, _ in members.asked} == {1, 2, 3}
    assert "s3cret" not in str(caught.value)


class TestSigningIn:
    async def test_it_is_done_once_and_before_the_first_call(self) -> None:
        members = Members(says({"token": "t1"}), says(OK), user="gatepost")
        for _ in range(2):
            assert await members.client.call("kv/range", {}) == OK
        paths = [(path, token) for _, path, token in members.asked]
        assert paths == [("auth/authenticate", ""), ("kv/range", "t1"), ("kv/range", "t1")]

    @pytest.mark.parametrize(
        "refusal",
        [
            says({"error": "etcdserver: invalid auth token", "code": 16}, 401),
            says({"error": "etcdserver: revision of auth store is old", "code": 3}, 400),
        ],
    )
    async def test_it_is_done_anew_when_it_is_over(self, refusal: Answer) -> None:
        members = Members(says({"token": "t1"}), refusal, says({"token": "t2"}), says(OK), user="gatepost")
        assert await members.client.call("kv/range", {}) == OK
        assert [token for _, path, token in members.asked if path == "kv/range"] == ["t1", "t2"]

    async def test_a_second_refusal_is_the_answer(self) -> None:
        """Not a loop that checks a password for ever."""
        refusal = says({"error": "etcdserver: invalid auth token", "code": 16}, 401)
        members = Members(says({"token": "t1"}), refusal, says({"token": "t2"}), refusal, user="gatepost")
        with pytest.raises(EtcdFault, match="invalid auth token"):
            await members.client.call("kv/range", {})
        assert len(members.asked) == 4

    async def test_without_a_token_there_is_none(self) -> None:
        members = Members(says({}), user="gatepost")
        with pytest.raises(EtcdFault, match="no token"):
            await members.client.call("kv/range", {})


class Pieces(httpx2.AsyncByteStream):
    """A body in pieces."""

    def __init__(self, pieces: list[bytes], fault: Exception | None = None) -> None:
        self.pieces = pieces
        self.fault = fault

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.fault is not None:
            raise self.fault


async def read(pieces: list[bytes], fault: Exception | None = None) -> list[Any]:
    members = Members(lambda _: httpx2.Response(200, stream=Pieces(pieces, fault)))
    found: list[Any] = []
    async with members.client.stream("watch", {}) as messages:
        async for message in messages:
            found.append(message)  # noqa: PERF401 - what came before a fault counts
    return found


MESSAGES = [{"created": True}, {"events": [{"kv": {"key": "ü\n"}}]}, {"header": {"revision": "9"}}]
TEXT = b"".join(json.dumps({"result": message}, ensure_ascii=False).encode() + b"\n" for message in MESSAGES)


class TestStream:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
    async def test_every_split_gives_the_same_messages(self, size: int) -> None:
        pieces = [TEXT[begin : begin + size] for begin in range(0, len(TEXT), size)]
        assert await read(pieces) == MESSAGES

    async def test_a_message_without_an_end_is_none(self) -> None:
        assert await read([TEXT[:-1]]) == MESSAGES[:-1]

    @pytest.mark.parametrize(
        "pieces", [[b"<html>\n"], [b"[]\n"], [b'{"error": {"grpc_code": 14, "message": "no leader"}}\n']]
    )
    async def test_what_is_no_message_ends_it(self, pieces: list[bytes]) -> None:
        with pytest.raises(RegistryUnavailable):
            await read(pieces)

    async def test_a_refusal_in_it_is_one(self) -> None:
        with pytest.raises(EtcdFault, match="permission denied"):
            await read([b'{"error": {"grpc_code": 7, "message": "etcdserver: permission denied"}}\n'])

    async def test_a_broken_connection_ends_it(self) -> None:
        with pytest.raises(RegistryUnavailable, match="reset"):
            await read([TEXT], httpx2.ReadError("reset"))

    async def test_a_message_that_never_ends_is_not_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LINE_BYTES", 1000)
        with pytest.raises(RegistryUnavailable, match="more than 1000 bytes"):
            await read([b"x" * 600, b"x" * 600])


async def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is asked by way of somebody else's machine would be that machine's."""
    asked = asyncio.Event()

    async def proxy(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    client = EtcdClient(EtcdSettings(URLS[:1], "/x"))
    with pytest.raises(RegistryUnavailable):
        await client.call("kv/range", {}, 0.1)
    assert not asked.is_set()
    await client.close()
    server.close()
