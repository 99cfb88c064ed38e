"""The hook for rspamd, against answers as its documentation has them, and against servers that fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest

from gatepost.transport.hooks.hook import MAX_ANSWER, HookAction, HookFault, OnFailure, Question, Verdict
from gatepost.transport.hooks.rspamd import RspamdHook, RspamdSettings, verdict
from gatepost.transport.message import Envelope, Recipient, Source

ENVELOPE = Envelope(
    sender="alice@contoso.com",
    recipients=[Recipient("bob@x.example"), Recipient("größe@x.example")],
    received=0,
    expires=0,
    source=Source(address="192.0.2.1", name="mail\r\nEvil: yes", user="alice", tls="TLSv1.3 AES"),
)
CONTENT = b"From: a@b\r\n\r\n" + b"Body\r\n" * 1000


def answer(action: str, **more: object) -> bytes:
    return json.dumps(
        {
            "is_skipped": False, "score": 5.2, "required_score": 7.0, "action": action, "symbols": {},
            "messages": {}, "message-id": "1@b", "time_real": 0.1, **more,
        }
    ).encode()  # fmt: skip


async def pieces(content: bytes = CONTENT) -> AsyncIterator[bytes]:
    for at in range(0, len(content), 1000):
        yield content[at : at + 1000]


async def check(
    handler: Callable[[httpx2.Request], Awaitable[httpx2.Response]],
    question: Question | None = None,
    **settings: object,
) -> Verdict:
    hook = RspamdHook(
        RspamdSettings("http://127.0.0.1:11333/", **settings),  # type: ignore[arg-type]
        httpx2.MockTransport(handler),
    )
    try:
        return await hook.check(question or Question("4XYZ", ENVELOPE, len(CONTENT)), pieces())
    finally:
        await hook.close()


async def test_what_rspamd_is_asked() -> None:
    seen: list[httpx2.Request] = []

    async def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        assert await request.aread() == CONTENT
        return httpx2.Response(200, content=answer("no action"))

    result = await check(handler, mta_name="hub-01.contoso.com", password="secret")
    assert result.action is HookAction.ACCEPT
    assert result.note == "rspamd: no action 5.20/7.00"
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", "http://127.0.0.1:11333/checkv2")
    sent = [(name.decode(), value.decode()) for name, value in request.headers.raw]
    told = {"Queue-Id", "IP", "Helo", "From", "User", "MTA-Name", "TLS-Version", "TLS-Cipher", "Password", "Rcpt"}
    assert [(name, value) for name, value in sent if name in told] == [
        ("Queue-Id", "4XYZ"), ("IP", "192.0.2.1"), ("Helo", "mail Evil: yes"), ("From", "alice@contoso.com"),
        ("User", "alice"), ("MTA-Name", "hub-01.contoso.com"), ("TLS-Version", "TLSv1.3"), ("TLS-Cipher", "AES"),
        ("Password", "secret"), ("Rcpt", "bob@x.example"), ("Rcpt", "größe@x.example"),
    ]  # fmt: skip
    assert ("Content-Length", str(len(CONTENT))) in sent
    assert "transfer-encoding" not in request.headers


async def test_a_message_of_unknown_size_is_sent_in_chunks() -> None:
    async def handler(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["transfer-encoding"] == "chunked"
        return httpx2.Response(200, content=answer("no action"))

    assert (await check(handler, Question("1", ENVELOPE))).action is HookAction.ACCEPT


def test_no_action_takes_the_message_without_anybody_elses_word_on_spam() -> None:
    assert verdict(answer("no action")) == Verdict(
        HookAction.ACCEPT, without=frozenset({b"x-spam"}), note="rspamd: no action 5.20/7.00"
    )


def test_add_header() -> None:
    assert verdict(answer("add header")).before == b"X-Spam: Yes\r\n"


def test_rewrite_subject() -> None:
    result = verdict(answer("rewrite subject", subject="*** SPAM *** Grüße\r\nBcc: x@y"))
    assert result.action is HookAction.ACCEPT
    assert result.before.startswith(b"Subject: =?utf-8?B?")
    assert b"Bcc" not in result.before
    assert b"subject" in result.without


@pytest.mark.parametrize("action", ["greylist", "soft reject"])
def test_greylist_and_soft_reject_are_refusals_for_the_moment(action: str) -> None:
    result = verdict(answer(action, messages={"smtp_message": "Try again\r\nlater"}))
    assert result.action is HookAction.DEFER
    assert str(result.reply) == "451 4.7.1 Try again later"
    assert str(verdict(answer(action)).reply) == "451 4.7.1 Try again later"


@pytest.mark.parametrize("action", ["reject", "discard"])
def test_reject_and_discard_refuse_for_good(action: str) -> None:
    result = verdict(answer(action, messages={"smtp_message": "Gtube pattern"}))
    assert result.action is HookAction.REJECT
    assert str(result.reply) == "550 5.7.1 Gtube pattern"
    assert str(verdict(answer(action, messages=[])).reply) == "550 5.7.1 Message refused as spam"


def test_an_action_of_a_later_version_takes_the_message() -> None:
    assert verdict(answer("quarantine")).action is HookAction.ACCEPT


def test_fields_that_rspamd_adds_and_removes() -> None:
    milter = {
        "add_headers": {
            "X-A": "1", "X-B": {"value": "2\r\nBcc: x", "order": 1}, "X-C": [{"value": "3", "order": 0}, "4"],
            "bad name": "5", "X-D": 6, "X-E": {"no": "value"},
        },
        "remove_headers": {"X-Old": 0, "X-Older": 1, "bad name": 0},
    }  # fmt: skip
    result = verdict(answer("no action", milter=milter))
    assert result.before == b"X-A: 1\r\nX-B: 2 Bcc: x\r\nX-C: 3\r\nX-C: 4\r\n"
    assert result.without == {b"x-spam", b"x-old", b"x-older"}


@pytest.mark.parametrize(
    "octets", [b"", b"{}", b"[]", b'{"action": 5}', b"\xff", b"<html>", b'{"action":"no action","milter":[]}']
)
def test_an_answer_that_is_none(octets: bytes) -> None:
    with pytest.raises(HookFault):
        verdict(octets)


async def _status(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(503)


async def _long(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, content=answer("no action") + b" " * MAX_ANSWER)


async def _nonsense(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, content=b"nonsense")


async def _refused(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused")


async def _silent(request: httpx2.Request) -> httpx2.Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("handler", [_status, _long, _nonsense, _refused, _silent])
async def test_when_it_cannot_be_asked_the_setting_decides(
    handler: Callable[[httpx2.Request], Awaitable[httpx2.Response]],
) -> None:
    seconds = 0.1 if handler is _silent else 20.0
    result = await check(handler, seconds=seconds)
    assert (result.action, result.asked) == (HookAction.DEFER, False)
    assert result.reply is not None
    assert result.reply.code == 451
    assert result.note.startswith("rspamd: ")
    result = await check(handler, seconds=seconds, on_failure=OnFailure.ACCEPT)
    assert (result.action, result.reply, result.asked) == (HookAction.ACCEPT, None, False)


async def test_over_a_real_connection_that_is_used_again() -> None:
    bodies: list[bytes] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
            assert f"Content-Length: {len(CONTENT)}".encode() in head
            bodies.append(await reader.readexactly(len(CONTENT)))
            said = answer("reject", messages={"smtp_message": "Gtube pattern"})
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))
            if len(bodies) == 2:
                break
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hook = RspamdHook(RspamdSettings(f"http://127.0.0.1:{port}"))
    for _ in range(2):
        result = await hook.check(Question("1", ENVELOPE, len(CONTENT)), pieces())
        assert result.action is HookAction.REJECT
    assert bodies == [CONTENT, CONTENT]
    assert connections == 1
    await hook.close()
    server.close()
    await server.wait_closed()


async def test_a_fault_of_our_own_disk_is_no_fault_of_the_hook() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise OSError(5, "Input/output error")

    async def handler(request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        raise AssertionError

    hook = RspamdHook(
        RspamdSettings("http://127.0.0.1:11333", on_failure=OnFailure.ACCEPT), httpx2.MockTransport(handler)
    )
    with pytest.raises(OSError, match="Input/output"):
        await hook.check(Question("1", ENVELOPE), broken())
    await hook.close()
