"""Submission sessions through the door, with real sockets and a scripted submission server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from stage import AUTHORITY, LIMITS, Client, Stage, stage, until

from gatepost.access.leaving import MailLeaver
from gatepost.access.mail_client import MailClientLeg
from gatepost.access.moves import Changed, Outcome, Round
from gatepost.configuration.settings import Limits
from gatepost.directory.port import Verdict
from gatepost.organization.model import ClientAddress, Protocol, SignIn, SignInForm, TlsMode
from gatepost.relay.relay import Relay

SIGN_IN = b"AUTH PLAIN " + base64.b64encode(b"\0alice\0secret-apw") + b"\r\n"
WORDS = b"XCLIENT ADDR PORT NAME LOGIN SESSION TTL"


class SubmissionServer:
    """Takes everybody and every message; `offers` are further lines of its answer to EHLO, `messages` what it took."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[bytes] = []
        self.offers: list[bytes] = []
        self.messages: list[bytes] = []
        self.greeting = b"220 ready\r\n"
        self.auth_answer = b"235 2.7.0 in\r\n"
        self.keeps_xclient = False
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self) -> asyncio.Server:
        """Listen on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        offers = list(self.offers)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(self.greeting)
            while line := await reader.readline():
                self.lines.append(line)
                word = line.split()[0].upper()
                if word == b"EHLO":
                    lines = [self.name.encode(), b"SIZE", b"PIPELINING", b"8BITMIME", b"ENHANCEDSTATUSCODES", *offers]
                    writer.write(b"".join(b"250-%b\r\n" % offer for offer in lines) + b"250 AUTH PLAIN\r\n")
                elif word == b"XCLIENT":
                    offers = offers if self.keeps_xclient else [o for o in offers if not o.startswith(b"XCLIENT")]
                    writer.write(self.greeting)
                elif word == b"AUTH":
                    writer.write(self.auth_answer)
                elif word == b"DATA":
                    writer.write(b"354 go\r\n")
                    self.messages.append(await reader.readuntil(b"\r\n.\r\n"))
                    writer.write(b"250 2.0.0 taken by %b\r\n" % self.name.encode())
                elif word == b"QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                else:
                    writer.write(b"250 2.0.0 %b by %b\r\n" % (word, self.name.encode()))
        writer.close()


@asynccontextmanager
async def submission(
    limits: Limits = LIMITS,
    sign_in: SignIn = SignIn(),  # noqa: B008 - a frozen value
    client_address: ClientAddress = ClientAddress.NONE,
    tls: TlsMode = TlsMode.CLEAR,
) -> AsyncIterator[Stage]:
    """The stage for submission."""
    async with stage(limits, sign_in, client_address, tls, Protocol.SUBMISSION, SubmissionServer) as made:
        yield made


async def reply(client: Client, line: bytes) -> bytes:
    """Send a line; the last line of the reply."""
    answer = await client.say(line)
    while answer[3:4] == b"-":
        answer = await client.line()
    return answer


async def signed_in(s: Stage, **kwargs: Any) -> Client:
    """A client behind its sign-in."""
    client = await s.connect(**kwargs)
    await client.line()
    await reply(client, b"EHLO laptop.fabrikam.com\r\n")
    assert await reply(client, SIGN_IN) == b"235 2.7.0 Authentication successful\r\n"
    return client


async def test_a_sign_in_is_relayed_to_the_active_copy() -> None:
    """The server hears the client's name at EHLO, the user's password, EHLO again; then what the client says."""
    async with submission() as s:
        client = await signed_in(s)
        assert await client.say(b"MAIL FROM:<a@b>\r\n") == b"250 2.0.0 MAIL by MBX-01\r\n"
        helo = b"EHLO laptop.fabrikam.com\r\n"
        assert s.servers["MBX-01"].lines == [helo, SIGN_IN, helo, b"MAIL FROM:<a@b>\r\n"]
        client.close()
        await until(lambda: s.log_lines("submission.session"))
        line = s.log_lines("submission.session")[0]
        assert (line["outcome"], line["server"], line["user"]) == ("signed in", "MBX-01", "alice@contoso.com")


async def test_bytes_behind_the_sign_in_arrive_once() -> None:
    """Field case 35."""
    async with submission() as s:
        client = await s.connect()
        await client.line()
        client.writer.write(b"EHLO x\r\n" + SIGN_IN + b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\n")
        while not (await client.line()).startswith(b"235 "):
            pass
        assert [await client.line(), await client.line()] == [
            b"250 2.0.0 MAIL by MBX-01\r\n",
            b"250 2.0.0 RCPT by MBX-01\r\n",
        ]
        assert s.servers["MBX-01"].lines[-2:] == [b"MAIL FROM:<a@b>\r\n", b"RCPT TO:<c@d>\r\n"]


async def test_xclient_tells_the_client_and_the_session() -> None:
    """And by `xclient-login` the user, with no password behind it."""
    async with submission(client_address=ClientAddress.XCLIENT) as s:
        s.servers["MBX-01"].offers = [WORDS]
        await signed_in(s)
        line = s.servers["MBX-01"].lines[1]
        assert line.startswith(b"XCLIENT ADDR=127.0.0.1 PORT=")
        assert b" NAME=[UNAVAILABLE] SESSION=" in line
        assert SIGN_IN in s.servers["MBX-01"].lines
    async with submission(client_address=ClientAddress.XCLIENT_LOGIN) as s:
        s.servers["MBX-01"].offers = [WORDS]
        await signed_in(s)
        assert s.servers["MBX-01"].lines[1].startswith(b"XCLIENT LOGIN=alice ADDR=127.0.0.1 ")
        assert not any(line.startswith(b"AUTH") for line in s.servers["MBX-01"].lines)


async def test_a_master_user_signs_in() -> None:
    """As authorization identity."""
    how = SignIn(SignInForm.MASTER_AUTHZID, "gatepost", "mpw")
    async with submission(sign_in=how) as s:
        await signed_in(s)
        assert base64.b64decode(s.servers["MBX-01"].lines[1].split()[2]) == b"alice\0gatepost\0mpw"


@pytest.mark.parametrize("tls", [TlsMode.STARTTLS, TlsMode.IMPLICIT])
async def test_clients_with_tls(tls: TlsMode) -> None:
    """By both ways; the server by implicit TLS."""
    async with submission(tls=TlsMode.IMPLICIT) as s:
        port = await s.listen(implicit=tls is TlsMode.IMPLICIT)
        context = ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())
        if tls is TlsMode.IMPLICIT:
            client = await signed_in(s, port=port, ssl=context, server_hostname="front.contoso.com")
        else:
            client = await s.connect(port)
            await client.line()
            await reply(client, b"EHLO x\r\n")
            assert (await reply(client, b"STARTTLS\r\n")).startswith(b"220 ")
            await client.writer.start_tls(context, server_hostname="front.contoso.com")
            await reply(client, b"EHLO y\r\n")
            assert (await reply(client, SIGN_IN)).startswith(b"235 ")
            assert s.servers["MBX-01"].lines[0] == b"EHLO y\r\n"
        assert await client.say(b"NOOP\r\n") == b"250 2.0.0 NOOP by MBX-01\r\n"


async def test_wrong_credentials_are_535_and_the_dialogue_goes_on() -> None:
    """The same for whom the cache does not know."""
    async with submission() as s:
        client = await s.connect()
        await client.line()
        await reply(client, b"EHLO x\r\n")
        wrong = [b"AUTH PLAIN " + base64.b64encode(b"\0%b\0wrong" % name) + b"\r\n" for name in (b"alice", b"nobody")]
        answers = [await reply(client, line) for line in wrong]
        assert answers == [b"535 5.7.8 Authentication credentials invalid\r\n"] * 2
        assert (await reply(client, SIGN_IN)).startswith(b"235 ")


@pytest.mark.parametrize("verdict", [Verdict.UNAVAILABLE, Verdict.BUSY])
async def test_a_directory_that_is_down_is_454(verdict: Verdict) -> None:
    """Field case 112."""
    async with submission() as s:
        s.sign_in.verdict = verdict
        client = await s.connect()
        await client.line()
        await reply(client, b"EHLO x\r\n")
        assert (await reply(client, SIGN_IN)).startswith(b"454 4.7.0 ")


@pytest.mark.parametrize("fault", ["gone", "refuses", "auth", "xclient", "lacks"])
async def test_a_fault_of_the_server_is_454_with_a_line_in_the_log(fault: str) -> None:
    """Never 535 (field cases 76 and 112)."""
    async with submission() as s:
        server = s.servers["MBX-01"]
        if fault == "gone":
            s.servers["MBX-01"].greeting = b""
        elif fault == "refuses":
            server.greeting = b"554 5.3.2 no\r\n"
        elif fault == "auth":
            server.auth_answer = b"535 5.7.8 wrong\r\n"
        elif fault == "xclient":
            server.offers, server.keeps_xclient = [WORDS], True
        else:
            front_end = replace(s.door.configuration.front_end, submission_extensions=("SIZE", "SMTPUTF8"))
            s.door.reload(replace(s.door.configuration, front_end=front_end), s.door.client_contexts)
        client = await s.connect()
        await client.line()
        await reply(client, b"EHLO x\r\n")
        assert (await reply(client, SIGN_IN)).startswith(b"454 4.7.0 ")
        words = {"gone": "no answer", "refuses": "554 5.3.2", "auth": "535", "xclient": "XCLIENT", "lacks": "SMTPUTF8"}
        assert words[fault] in s.log_lines("submission.refused")[0]["reason"]


async def test_on_a_move_sessions_end_between_transactions() -> None:
    """`421 4.3.2`; one within a message first gets its answer, and its message is not cut (B5)."""
    async with submission() as s:
        idle, busy = await signed_in(s), await signed_in(s)
        for line in (b"MAIL FROM:<a@b>\r\n", b"RCPT TO:<c@d>\r\n", b"DATA\r\n"):
            await busy.say(line)
        busy.writer.write(b"half a mess")
        await until(lambda: any(leg.ends is not None and not leg.ends.command_is_whole for leg in s.door.relaying))
        s.router.set_view(s.view("MBX-02", 2))
        leavers = s.door.move([Changed("DB01", "MBX-01", 2)], frozenset())
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        Round(s.door.loop, leavers, window=0.0, forced=10.0, done=done.set_result)
        farewell = b"421 4.3.2 the mailbox has moved to another server, please connect again\r\n"
        assert await idle.rest() == farewell
        await asyncio.sleep(0.4)  # asked again and again meanwhile
        assert len(s.door.relaying) == 1
        assert await busy.say(b"age\r\n.\r\n") == b"250 2.0.0 taken by MBX-01\r\n"
        assert await busy.rest() == farewell
        assert await done == [Outcome.CLOSED, Outcome.CLOSED]
        assert s.servers["MBX-01"].messages == [b"half a message\r\n.\r\n"]
        again = await signed_in(s)
        assert await again.say(b"NOOP\r\n") == b"250 2.0.0 NOOP by MBX-02\r\n"


async def test_a_message_that_does_not_end_is_cut_at_the_deadline() -> None:
    """The client takes 421 for the answer to its message, and sends it again."""
    async with submission() as s:
        client = await signed_in(s)
        await client.say(b"MAIL FROM:<a@b>\r\n")
        await client.say(b"DATA\r\n")
        client.writer.write(b"half")
        (leg,) = s.door.relaying
        await until(lambda: leg.ends is not None and not leg.ends.command_is_whole)
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        Round(s.door.loop, [MailLeaver(leg, "kick", "bye")], window=0.0, forced=0.3, done=done.set_result)
        assert await client.rest() == b"421 4.3.2 bye\r\n"
        assert await done == [Outcome.CLOSED]
        assert s.servers["MBX-01"].messages == []


async def test_a_server_that_dies_is_told_as_421() -> None:
    """Between commands and within a message; after a goodbye of its own nothing is added."""
    async with submission() as s:
        client = await signed_in(s)
        s.servers["MBX-01"].writers[0].transport.abort()
        assert await client.rest() == b"421 4.3.2 the mailbox server has gone, please connect again\r\n"
        client = await signed_in(s)
        assert await client.say(b"QUIT\r\n") == b"221 bye\r\n"
        assert await client.rest() == b""


async def test_drained_sessions_end_at_their_boundary() -> None:
    """The service stops."""
    async with submission() as s:
        client = await signed_in(s)
        draining = asyncio.ensure_future(s.door.drain(0.5))
        assert await client.rest() == b"421 4.3.2 this server is going down\r\n"
        await draining


async def test_too_many_strangers_are_421() -> None:
    """Per address."""
    async with submission(replace(LIMITS, unauthenticated_per_address=1)) as s:
        port = await s.listen()
        first = await s.connect(port)
        await first.line()
        second = await s.connect(port)
        assert (await second.rest()).startswith(b"421 4.3.2 ")


async def test_a_list_names_the_protocol() -> None:
    """For operators."""
    async with submission() as s:
        await signed_in(s)
        (entry,) = s.door.sessions()
        assert (entry["protocol"], entry["user"], entry["database"]) == ("submission", "alice@contoso.com", "DB01")


async def test_nothing_of_a_session_is_left() -> None:
    """No circle of references waits for the garbage collector."""
    async with submission() as s:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                client = await signed_in(s)
                await reply(client, b"QUIT\r\n")
                assert await client.rest() == b""
                client.close()
            await until(lambda: not s.door.relaying)
            await until(lambda: not [o for o in gc.get_objects() if isinstance(o, MailClientLeg | Relay)], seconds=5.0)
        finally:
            gc.enable()
