"""The content hook with a real rspamd: GTUBE is refused, other mail is taken, and what happens when it is down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from doors import Servers, missing

from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.servers.rspamd import GTUBE, Rspamd
from gatepost.transport.headers.edits import edited
from gatepost.transport.hooks.hook import HookAction, OnFailure, Question, Verdict
from gatepost.transport.hooks.rspamd import RspamdHook, RspamdSettings
from gatepost.transport.message import Envelope, Recipient, Source

HEADER = b"From: Alice <alice@contoso.com>\r\nTo: bob@x.example\r\nSubject: Figures\r\nX-Spam: No\r\n"


@pytest.fixture(scope="module")
def rspamd(servers: Servers) -> Iterator[Rspamd]:
    address = servers.address()
    try:
        server = Rspamd(servers.scratch / "rspamd", address, free_ports(address, 1)[0])
    except ServerMissing as error:
        missing(error)
    with server:
        yield server


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), 4096):
        yield content[at : at + 4096]


async def check(url: str, body: str, *, known_size: bool = True, on_failure: OnFailure = OnFailure.DEFER) -> Verdict:
    content = HEADER + b"\r\n" + body.encode() + b"\r\n"
    envelope = Envelope(
        sender="alice@contoso.com",
        recipients=[Recipient("bob@x.example"), Recipient("carol@x.example")],
        received=0,
        expires=0,
        source=Source(address="192.0.2.1", name="mail.contoso.com"),
    )
    hook = RspamdHook(RspamdSettings(url, seconds=20.0, on_failure=on_failure))
    try:
        return await hook.check(Question("4XYZ", envelope, len(content) if known_size else None), pieces(content))
    finally:
        await hook.close()


@pytest.mark.parametrize("known_size", [True, False])
async def test_gtube_is_refused(rspamd: Rspamd, known_size: bool) -> None:
    verdict = await check(rspamd.url, GTUBE["reject"], known_size=known_size)
    assert verdict.action is HookAction.REJECT
    assert str(verdict.reply) == "550 5.7.1 Gtube pattern"


async def test_other_mail_is_taken_also_when_it_is_large(rspamd: Rspamd) -> None:
    for body in ("Figures of the third quarter.", "line of text\r\n" * 200_000):
        verdict = await check(rspamd.url, body)
        assert (verdict.action, verdict.asked, verdict.before) == (HookAction.ACCEPT, True, b"")


async def test_add_header_marks_the_message_and_takes_the_senders_own_mark_out(rspamd: Rspamd) -> None:
    verdict = await check(rspamd.url, GTUBE["add header"])
    assert verdict.action is HookAction.ACCEPT
    content = [block async for block in edited(pieces(HEADER + b"\r\nx\r\n"), verdict.before, verdict.without)]
    assert b"".join(content) == b"X-Spam: Yes\r\n" + HEADER.replace(b"X-Spam: No\r\n", b"") + b"\r\nx\r\n"


async def test_rewrite_subject(rspamd: Rspamd) -> None:
    verdict = await check(rspamd.url, GTUBE["rewrite subject"])
    assert verdict.action is HookAction.ACCEPT
    assert verdict.before.startswith(b"Subject: ")
    assert b"Figures" in verdict.before
    assert b"subject" in verdict.without


async def test_rspamd_is_told_of_the_envelope(rspamd: Rspamd) -> None:
    await check(rspamd.url, "Who is asked about is in its log.")
    log = rspamd.output.read_text()
    assert "ip: 192.0.2.1" in log
    assert "from: <alice@contoso.com>" in log
    assert "rcpts: <bob@x.example,carol@x.example>" in log


async def test_when_it_is_down_the_setting_decides(servers: Servers) -> None:
    address = servers.address()
    url = f"http://{address}:{free_ports(address, 1)[0]}"
    verdict = await check(url, "x")
    assert (verdict.action, verdict.asked) == (HookAction.DEFER, False)
    assert verdict.reply is not None
    assert verdict.reply.code == 451
    assert (await check(url, "x", on_failure=OnFailure.ACCEPT)).action is HookAction.ACCEPT
