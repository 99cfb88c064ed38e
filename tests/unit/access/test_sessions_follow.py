"""IMAP sessions after a move of their database, over real sockets: what the client hears, and when (SPEC B5)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from stage import LIMITS, Client, MailboxServer, Stage, stage, until

from gatepost.access.moves import Changed, Leaver, Outcome, Round
from gatepost.access.sessions import SessionFilter

BYE = b"* BYE [UNAVAILABLE] the mailbox has moved to another server, please connect again\r\n"
HERE, THERE = "MBX-01", "MBX-02"


async def signed_in(s: Stage, name: bytes = b"alice") -> Client:
    """A client of the session that was handed over."""
    client = await s.connect()
    await client.line()
    answer = await client.tagged(b"a1 LOGIN " + name + b" secret-apw\r\n")
    assert answer.startswith(b"a1 OK"), answer
    return client


class Moving:
    """A move of DB01 to MBX-02."""

    def __init__(self, s: Stage, *, window: float = 0.0, forced: float = 5.0, dead: bool = False) -> None:
        self.stage = s
        s.router.set_view(s.view(THERE, 2))
        services = frozenset({(HERE, "imap")} if dead else ())
        self.leavers: list[Leaver] = s.door.move([Changed("DB01", HERE, 2)], services)
        self.outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        Round(loop, self.leavers, window=window, forced=forced, done=self.outcomes.set_result)


async def test_an_idle_session_is_told_and_closed_and_comes_back_to_the_new_server() -> None:
    """BYE with UNAVAILABLE (RFC 5530) between two commands; whoever signs in now is at the new server."""
    async with stage() as s:
        client = await signed_in(s)
        assert s.door.sessions()[0] | {"client": "", "since": 0, "seconds": 0, "session": ""} == {
            "session": "", "protocol": "imap", "phase": "relaying", "client": "", "user": "alice@contoso.com",
            "database": "DB01", "server": HERE, "epoch": 1, "since": 0, "seconds": 0,
        }  # fmt: skip
        moving = Moving(s)
        assert await client.rest() == BYE
        client.close()
        assert await moving.outcomes == [Outcome.CLOSED]
        assert (await (await signed_in(s)).tagged(b"a2 NOOP\r\n")).endswith(b"done by MBX-02\r\n")
        assert [(entry["server"], entry["epoch"]) for entry in s.door.sessions()] == [(THERE, 2)]
        assert s.log_lines("imap.session")[0]["reason"] == "the database has moved"


async def test_the_old_server_gets_nothing_more() -> None:
    """What the client still sends after the farewell goes nowhere."""
    async with stage() as s:
        client = await signed_in(s)
        moving = Moving(s)
        assert await client.line() == BYE
        with contextlib.suppress(ConnectionError):
            client.writer.write(b"a2 STORE 1 +FLAGS (\\Deleted)\r\n")
            await client.writer.drain()
        await moving.outcomes
        assert not [line for line in s.servers[HERE].lines if b"STORE" in line]


@pytest.mark.parametrize("sent", [b"a", b"a2", b"a2 NO", b"a2 NOOP", b"a2 NOOP\r", b"a2 APPEND x {5}\r\nab"])
async def test_a_half_sent_command_is_waited_for(sent: bytes) -> None:
    """Nothing of it is cut: it is finished and answered; then the session ends."""
    rest = b"a2 NOOP\r\n"[len(sent) :] if b"{" not in sent else b"cde\r\n"
    async with stage() as s:
        client = await signed_in(s)
        client.writer.write(sent)
        await until(lambda: s.door.relaying and next(iter(s.door.relaying)).bytes_seen >= len(sent))
        moving = Moving(s, forced=1.0)
        await asyncio.sleep(0.3)
        assert s.door.sessions()[0]["phase"] == "relaying"
        assert not moving.outcomes.done()
        client.writer.write(rest)
        assert (await client.line()).startswith(b"a2 OK done by MBX-01")
        got = await client.rest()
        assert got.endswith(BYE) or b"{" in sent  # the scripted server answers the literal's line too
        client.close()
        assert await moving.outcomes == [Outcome.CLOSED]


async def test_an_unanswered_command_is_waited_for_until_the_deadline() -> None:
    """A long SEARCH, or an APPEND that is being stored: not cut, so not done twice. At the deadline it is."""
    async with stage() as s:
        client = await signed_in(s)
        s.servers[HERE].login_answer = b"%.0s"
        client.writer.write(b"a2 LOGIN never answered\r\n")
        await until(lambda: b"a2 LOGIN never answered\r\n" in s.servers[HERE].lines)
        began = asyncio.get_running_loop().time()
        moving = Moving(s, forced=0.6)
        await client.rest()
        assert asyncio.get_running_loop().time() - began >= 0.59  # the clock of the loop has milliseconds
        client.close()
        assert await moving.outcomes == [Outcome.CLOSED]


async def test_a_server_known_to_be_dead_is_not_waited_for() -> None:
    """The manager has seen that it does not answer: a command that it has is lost, and the client need not wait."""
    async with stage() as s:
        client = await signed_in(s)
        s.servers[HERE].login_answer = b"%.0s"
        client.writer.write(b"a2 LOGIN never answered\r\n")
        await until(lambda: b"a2 LOGIN never answered\r\n" in s.servers[HERE].lines)
        Moving(s, dead=True)
        async with asyncio.timeout(2):
            await client.rest()


async def test_a_half_sent_command_is_cut_at_the_deadline() -> None:
    """Who never finishes cannot stay at the old copy for ever."""
    async with stage() as s:
        client = await signed_in(s)
        client.writer.write(b"a2 NO")
        await until(lambda: next(iter(s.door.relaying)).bytes_seen)
        moving = Moving(s, forced=0.5)
        assert await client.rest() == BYE
        assert await moving.outcomes == [Outcome.CLOSED]


async def test_sessions_of_the_new_epoch_stay() -> None:
    """Two moves one after the other, there and back: who signed in after the last one is not touched."""
    async with stage() as s:
        first = await signed_in(s)
        Moving(s)
        second = await signed_in(s)
        s.router.set_view(s.view(THERE, 2))
        assert s.door.move([Changed("DB01", HERE, 2)], frozenset()) != []  # the first is on its way still
        assert await first.rest() == BYE
        assert (await second.tagged(b"a2 NOOP\r\n")).endswith(b"MBX-02\r\n")
        assert s.door.move([Changed("DB09", HERE, 2)], frozenset()) == []


@contextlib.asynccontextmanager
async def _signing_in(s: Stage, server: MailboxServer, until_step: bytes) -> AsyncIterator[Client]:
    """A client whose sign-in stands still at `server`."""
    client = await s.connect()
    await client.line()
    client.writer.write(b"a1 LOGIN alice secret-apw\r\n")
    if until_step:
        await until(lambda: any(until_step in line.upper() for line in server.lines))
    else:
        await until(lambda: server.connections == 1)
    yield client


@pytest.mark.parametrize("step", ["greeting", "login", "unreachable"])
async def test_a_sign_in_under_way_goes_to_the_new_server(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connected but not handed over yet, or connecting to a server that does not answer: it does not wait for that."""
    limits = replace(LIMITS, server_step_seconds=20.0, connect_seconds=20.0)
    async with stage(limits) as s:
        old = s.servers[HERE]
        if step == "greeting":
            old.greeting = None
        elif step == "login":
            old.login_answer = b"%.0s"
        else:
            real = asyncio.get_running_loop().create_connection
            monkeypatch.setattr(s.door, "is_current", s.door.is_current)
            calls: list[int] = []

            async def hangs(factory: Any, host: str, port: int, **rest: Any) -> Any:
                if port == old.port:
                    calls.append(port)
                    old.connections += 1
                    await asyncio.sleep(60)
                return await real(factory, host, port, **rest)

            from gatepost.access import mail_server

            class Loop:
                def __getattr__(self, name: str) -> Any:
                    return hangs if name == "create_connection" else getattr(loop, name)

            loop = asyncio.get_running_loop()
            monkeypatch.setattr(mail_server.asyncio, "get_running_loop", Loop)
        async with _signing_in(s, old, b"LOGIN" if step == "login" else b"") as client:
            assert s.door.sessions()[0]["phase"] == "connecting"
            Moving(s)
            async with asyncio.timeout(3):
                line = await client.line()
            assert line.startswith(b"a1 OK")
            assert b"MBX-02" in line
            assert s.door.sessions()[0]["epoch"] == 2


async def test_an_answer_that_comes_after_the_move_is_not_taken() -> None:
    """The old server lets the user in, but the epoch has changed meanwhile: nobody is handed over to it."""
    async with stage() as s:
        old = s.servers[HERE]
        old.login_answer = b"%.0s"
        async with _signing_in(s, old, b"LOGIN") as client:
            s.router.set_view(s.view(THERE, 2))  # nobody has told the session
            old.writers[0].write(_tag_of(old) + b" OK [CAPABILITY IMAP4rev1] in\r\n")
            line = await client.line()
            assert line.startswith(b"a1 OK")
            assert b"MBX-02" in line


def _tag_of(server: MailboxServer) -> bytes:
    return next(line for line in reversed(server.lines) if b"LOGIN" in line.upper()).split()[0]


# --- a server that goes without a word


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_server_that_is_gone_is_told_of(how: str) -> None:
    """Killed, or its machine lost: the client hears BYE and UNAVAILABLE, not the bare end (field case 14)."""
    async with stage() as s:
        client = await signed_in(s)
        assert (await client.tagged(b"a2 NOOP\r\n")).startswith(b"a2 OK")
        getattr(s.servers[HERE].writers[0].transport, how)()
        assert await client.rest() == b"* BYE [UNAVAILABLE] the mailbox server has gone, please connect again\r\n"


async def test_the_end_that_a_client_asked_for_is_left_as_it_is() -> None:
    """LOGOUT, or the client's own close: no second goodbye."""
    async with stage() as s:
        client = await signed_in(s)
        client.writer.write(b"a2 LOGOUT\r\n")
        assert await client.rest() == b"a2 OK done by MBX-01\r\n"
        other = await signed_in(s)
        other.writer.write_eof()
        assert await other.rest() == b""


async def test_within_an_answer_nothing_is_said() -> None:
    """BYE would be read as a part of the message."""
    async with stage() as s:
        client = await signed_in(s)
        client.writer.write(b"a2 LOGIN x y\r\n")
        s.servers[HERE].login_answer = b"* 1 FETCH (BODY[] {1000}\r\nhalf of %s"
        assert await client.line() == b"* 1 FETCH (BODY[] {1000}\r\n"
        s.servers[HERE].writers[0].transport.abort()
        assert await client.rest() == b"half of a2"


# --- ended by an operator


async def kicked(s: Stage, wanted: SessionFilter, seconds: float = 5.0) -> dict[str, Outcome]:
    """What came of it, by session."""
    found = s.door.leavers(wanted, "by the test")
    outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    leavers = [leaver for _, leaver in found]
    Round(asyncio.get_running_loop(), leavers, window=0.0, forced=seconds, done=outcomes.set_result)
    return dict(zip([session for session, _ in found], await outcomes, strict=True))


async def test_a_kick_counts_when_the_client_is_gone() -> None:
    """Field case 1: "closed" is said after the client's end of the connection is at its end."""
    async with stage() as s:
        client = await signed_in(s)
        heard = asyncio.ensure_future(client.rest())
        outcomes = await kicked(s, SessionFilter(user="alice@contoso.com"))
        assert list(outcomes.values()) == [Outcome.CLOSED]
        assert heard.done() or await asyncio.wait_for(heard, 0.5) is not None
        assert heard.result() == b"* BYE [UNAVAILABLE] ended by the operator\r\n"
        assert s.door.sessions() == []


async def test_who_has_not_signed_in_can_be_ended_too() -> None:
    """By address or id: a kick depends on no server (field case 5)."""
    async with stage() as s:
        for server in s.servers.values():
            server.greeting = None
        waiting = await s.connect()
        await waiting.line()
        waiting.writer.write(b"a1 LOGIN alice secret-apw\r\n")
        greeted = await s.connect()
        await greeted.line()
        await until(lambda: {"connecting", "dialogue"} == {entry["phase"] for entry in s.door.sessions()})
        outcomes = await kicked(s, SessionFilter(address="127.0.0.0/8"))
        assert list(outcomes.values()) == [Outcome.CLOSED] * 2
        assert (await greeted.rest()).startswith(b"* BYE")
        assert s.door.sessions() == []


async def test_a_client_that_reads_nothing_is_closed_by_force() -> None:
    """Its buffers are full and it is stopped: no farewell can reach it, and it goes all the same."""
    async with stage() as s:
        client = await signed_in(s)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        server = s.servers[HERE].writers[0]
        server.write(b"* OK " + b"x" * (32 << 20) + b"\r\n")
        leg = next(iter(s.door.relaying))
        await until(lambda: leg.relay is not None and leg.relay.unsent > 0)
        outcomes = await kicked(s, SessionFilter(session=leg.session), seconds=0.3)
        assert outcomes == {leg.session: Outcome.CLOSED}
        assert s.door.sessions() == []


async def test_a_tls_client_that_is_stopped_is_closed_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS waits for the other side's goodbye; ours does not wait long."""
    import socket

    monkeypatch.setattr("gatepost.access.moves.GOODBYE_SECONDS", 0.3)
    async with stage() as s:
        port = await s.listen(implicit=True)
        from stage import AUTHORITY

        context = __import__("ssl").create_default_context()
        AUTHORITY.configure_trust(context)

        def blocking() -> socket.socket:
            raw = socket.create_connection(("127.0.0.1", port))
            tls = context.wrap_socket(raw, server_hostname="front.contoso.com")
            tls.recv(1000)
            tls.sendall(b"a1 LOGIN alice secret-apw\r\n")
            tls.recv(1000)
            return tls

        stopped = await asyncio.get_running_loop().run_in_executor(None, blocking)
        began = asyncio.get_running_loop().time()
        outcomes = await kicked(s, SessionFilter(protocol="imap"))
        assert list(outcomes.values()) == [Outcome.CLOSED]
        assert asyncio.get_running_loop().time() - began < 2
        stopped.close()


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        ({}, True),
        ({"user": "12345"}, False),  # field case 3: not an address, not a session
        ({"user": "ALICE@contoso.com"}, True),
        ({"address": "192.0.2.7"}, True),
        ({"address": "192.0.2.0/24"}, True),
        ({"address": "192.0.3.0/24"}, False),
        ({"address": "::/0"}, False),
        ({"database": "db01"}, True),
        ({"server": "MBX-01"}, True),
        ({"server": "MBX-0"}, False),
        ({"protocol": "imap", "session": "ab-1"}, True),
        ({"protocol": "pop3", "session": "ab-1"}, False),
    ],
)
def test_filters_are_typed(words: dict[str, str], matches: bool) -> None:
    """All words that are said must hold, each for its own kind of thing."""
    entry = {
        "user": "alice@contoso.com", "client": "192.0.2.7", "database": "DB01", "server": "MBX-01", "protocol": "imap",
        "session": "ab-1",
    }  # fmt: skip
    assert SessionFilter(**words).matches(entry) is matches
    assert SessionFilter(**words).is_empty is (not words)


def test_a_filter_of_several_users_and_addresses() -> None:
    """An HTTP connection belongs to each of its users; an IPv4 client behind an IPv6 listener is an IPv4 client."""
    entry = {"user": "", "users": ["alice", "bob"], "client": "::ffff:192.0.2.7"}
    assert SessionFilter(user="bob", address="192.0.2.7").matches(entry)
    assert not SessionFilter(address="192.0.2.7").matches({"client": "not an address"})
    with pytest.raises(ValueError, match="does not appear to be"):
        SessionFilter(address="12345x")


async def test_a_drain_waits_for_a_half_sent_command_too() -> None:
    """A front end that goes down ends sessions at the same places: at boundaries, until its time is over."""
    async with stage() as s:
        client = await signed_in(s)
        client.writer.write(b"a2 NO")
        await until(lambda: next(iter(s.door.relaying)).bytes_seen)
        draining = asyncio.ensure_future(s.door.drain(1.2))
        await asyncio.sleep(1.0)
        client.writer.write(b"OP\r\n")
        assert await client.line() == b"a2 OK done by MBX-01\r\n"
        await draining
        assert await client.rest() in {b"", b"* BYE [UNAVAILABLE] this server is going down\r\n"}
