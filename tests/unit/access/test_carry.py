"""Idle IMAP sessions that go on at another mailbox server: the door with real sockets and two scripted servers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from imap_mailbox import Mailbox, ServerSession
from stage import LIMITS, Client, MailboxServer, Stage, stage, until

from gatepost.access import carry
from gatepost.access.carry import CarryOver, without_compression
from gatepost.access.leaving import CARRIES, MailLeaver
from gatepost.access.mail_client import MailClientLeg
from gatepost.access.moves import Outcome
from gatepost.organization.model import SignIn, SignInForm
from gatepost.relay.relay import HIGH_WATER, MAX_KEPT
from gatepost.routing.outcome import Serve, Target
from gatepost.wire.imap_tracker import Boundary

MASTER = SignIn(SignInForm.MASTER_NAME, "gatepost", "master-secret")


class ImapServer(MailboxServer):
    """A mailbox server with a mailbox; `gate` holds a connection up at commands that begin with `stops_at`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.mailbox = Mailbox()
        for n in range(3):
            self.mailbox.add(*([b"\\Seen"] if n == 1 else []))
        self.sessions: list[tuple[ServerSession, asyncio.StreamWriter]] = []
        self.stops_at: tuple[bytes, ...] = ()
        self.stopped = asyncio.Event()
        self.gate = asyncio.Event()
        self.closed = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        session = ServerSession(self.mailbox)
        self.sessions.append((session, writer))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            assert self.greeting is not None
            writer.write(self.greeting)
            while line := await reader.readline():
                self.lines.append(line)
                tag, _, rest = line.partition(b" ")
                if self.stops_at and rest.startswith(self.stops_at):
                    self.stopped.set()
                    await self.gate.wait()
                if rest.startswith((b"LOGIN", b"AUTHENTICATE")):
                    writer.write(self.login_answer % tag)
                elif b"APPEND" in line:
                    continue  # its literal is never sent here
                elif writer.transport.is_closing():
                    break
                elif session.idling or rest.startswith((b"NOOP", b"UID FETCH 1:*", b"SELECT", b"ENABLE", b"IDLE")):
                    writer.write(session.take(line))
                else:
                    writer.write(b"%s OK done by %s\r\n" % (tag, self.name.encode()))
        self.closed += 1
        writer.close()

    def push(self) -> None:
        """Tell idling sessions what is new."""
        for session, writer in self.sessions:
            if session.idling:
                writer.write(session.news())


@contextlib.asynccontextmanager
async def two_servers(how: SignIn = MASTER, *, on: bool = True) -> AsyncIterator[Stage]:
    """A stage whose servers hold the same mailbox."""
    opened = Stage(LIMITS, how, *stage_defaults())
    opened.servers = {name: ImapServer(name) for name in opened.servers}
    for server in opened.servers.values():
        server.login_answer = b"%s OK [CAPABILITY IMAP4rev1 IDLE COMPRESS=DEFLATE] in\r\n"
    await opened.open()
    configuration = opened.configuration
    switched = replace(configuration, front_end=replace(configuration.front_end, carry_over_idle=on))
    opened.door.reload(switched, opened.door.client_contexts)
    try:
        yield opened
    finally:
        for server in opened.servers.values():
            server.gate.set()  # type: ignore[attr-defined]
        await opened.close()


def stage_defaults() -> tuple[Any, Any]:
    parameters = stage.__wrapped__.__defaults__  # type: ignore[attr-defined]
    return parameters[2], parameters[3]


def server(s: Stage, name: str) -> ImapServer:
    found = s.servers[name]
    assert isinstance(found, ImapServer)
    return found


async def signed_in(s: Stage, port: int | None = None, **kwargs: Any) -> tuple[Client, MailClientLeg]:
    """A client whose session is relayed to MBX-01."""
    before = set(s.door.relaying)
    client = await s.connect(port, **kwargs)
    await client.line()
    assert (await client.tagged(b"a LOGIN alice secret-apw\r\n")).startswith(b"a OK")
    await until(lambda: s.door.relaying - before)
    (leg,) = s.door.relaying - before
    return client, leg


async def idling(s: Stage, port: int | None = None, **kwargs: Any) -> tuple[Client, MailClientLeg]:
    """A client that has selected INBOX and idles."""
    client, leg = await signed_in(s, port, **kwargs)
    assert (await client.tagged(b"b SELECT INBOX\r\n")).startswith(b"b OK")
    assert (await client.say(b"c IDLE\r\n")).startswith(b"+ ")
    return client, leg


def to(s: Stage, name: str = "MBX-02") -> Serve:
    """The decision after a move."""
    endpoint = s.door.configuration.organization.servers[name].endpoints[0]
    return Serve(Target(name, endpoint), epoch=2)


async def test_an_idle_session_goes_on_at_the_other_server() -> None:
    """DONE gets its own tagged answer; news of the new server reach the idling client; the log names both."""
    async with two_servers() as s:
        client, leg = await idling(s)
        assert await leg.carry(to(s))
        server(s, "MBX-02").mailbox.add()
        server(s, "MBX-02").push()
        assert await client.line() == b"* 4 EXISTS\r\n"
        assert await client.say(b"DONE\r\n") == b"c OK Idle completed.\r\n"
        assert await client.say(b"d STORE 1 FLAGS x\r\n") == b"d OK done by MBX-02\r\n"
        assert leg.describe()["server"] == "MBX-02"
        await until(lambda: server(s, "MBX-01").closed)
        client.close()
        await until(lambda: s.log_lines("imap.session"))
        (line,) = s.log_lines("imap.session")
        assert (line["server"], line["carried_from"]) == ("MBX-02", ["MBX-01"])
        assert leg.carry_over is None


async def test_a_session_is_carried_there_and_back_again() -> None:
    """Between commands and with what happened meanwhile told; the tracker knows where it is."""
    async with two_servers() as s:
        client, leg = await signed_in(s)
        await client.tagged(b"b SELECT INBOX\r\n")
        server(s, "MBX-02").mailbox.add()
        assert await leg.carry(to(s))
        assert [await client.line(), await client.line()] == [b"* 4 EXISTS\r\n", b"* 0 RECENT\r\n"]
        server(s, "MBX-01").mailbox = server(s, "MBX-02").mailbox.copy()
        assert await leg.carry(to(s, "MBX-01"))
        assert await client.say(b"d STORE 1 FLAGS x\r\n") == b"d OK done by MBX-01\r\n"
        client.close()
        await until(lambda: s.log_lines("imap.session"))
        assert s.log_lines("imap.session")[0]["carried_from"] == ["MBX-01", "MBX-02"]


async def test_what_the_client_says_meanwhile_goes_to_the_new_server_once_and_in_order() -> None:
    """Its DONE among it."""
    async with two_servers() as s:
        client, leg = await idling(s)
        new = server(s, "MBX-02")
        new.stops_at = (b"SELECT",)
        carrying = asyncio.ensure_future(leg.carry(to(s)))
        await new.stopped.wait()
        client.writer.write(b"DONE\r\nd STORE 1 FLAGS x\r\ne APPEND INBOX {3+}\r\n")
        await client.writer.drain()
        await until(lambda: leg.relay is not None and leg.relay.parted is not None and leg.relay.parted.kept)
        new.gate.set()
        assert await carrying
        assert await client.line() == b"c OK Idle completed.\r\n"
        assert await client.line() == b"d OK done by MBX-02\r\n"
        assert leg.carry_over is not None
        assert leg.carry_over.tracker.boundary is Boundary.BUSY
        assert [line for line in new.lines if b"STORE" in line] == [b"d STORE 1 FLAGS x\r\n"]
        assert not any(b"STORE" in line for line in server(s, "MBX-01").lines)


async def test_a_client_that_floods_meanwhile_is_held_up_and_loses_nothing() -> None:
    async with two_servers() as s:
        client, leg = await idling(s)
        new = server(s, "MBX-02")
        new.stops_at = (b"SELECT",)
        carrying = asyncio.ensure_future(leg.carry(to(s)))
        await new.stopped.wait()
        count = 120_000
        client.writer.write(b"DONE\r\n" + b"".join(b"t%d X\r\n" % n for n in range(count)))
        assert leg.relay is not None
        relay = leg.relay
        await until(lambda: relay.parted is not None and len(relay.parted.kept) > MAX_KEPT)
        await asyncio.sleep(0.05)
        assert relay.parted is not None
        assert len(relay.parted.kept) < MAX_KEPT + 512 * 1024
        new.gate.set()
        assert await carrying
        assert await client.line() == b"c OK Idle completed.\r\n"
        for n in range(count):
            assert (await client.reader.readline()).startswith(b"t%d OK" % n)


@pytest.mark.parametrize(
    "command", [b"b STORE 1 FLAGS x\r\n", b"b APPEND x {5+}\r\nab", b"b ST", b"i IDLE\r\nDONE\r\n"]
)
async def test_a_busy_session_is_left_as_it_is(command: bytes) -> None:
    async with two_servers() as s:
        client, leg = await signed_in(s)
        old = server(s, "MBX-01")
        old.stops_at = (b"STORE", b"IDLE")
        before = leg.bytes_seen
        client.writer.write(command)
        await until(lambda: leg.bytes_seen > before)
        assert not await leg.carry(to(s))
        assert leg.carry_over is not None
        assert leg.carry_over.reason == "a command is under way"
        assert server(s, "MBX-02").connections == 0
        old.gate.set()
        if b"STORE" in command:
            assert await client.line() == b"b OK done by MBX-01\r\n"


async def test_a_session_that_became_busy_during_the_sign_in_and_stays_so_stays_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carry, "BOUNDARY_SECONDS", 0.05)
    async with two_servers() as s:
        client, leg = await idling(s)
        new = server(s, "MBX-02")
        new.stops_at = (b"LOGIN",)
        carrying = asyncio.ensure_future(leg.carry(to(s)))
        await new.stopped.wait()
        assert await client.say(b"DONE\r\n") == b"c OK Idle completed.\r\n"
        server(s, "MBX-01").stops_at = (b"STORE",)
        client.writer.write(b"d STORE 1 FLAGS x\r\n")
        await server(s, "MBX-01").stopped.wait()
        new.gate.set()
        assert not await carrying
        server(s, "MBX-01").gate.set()
        assert await client.line() == b"d OK done by MBX-01\r\n"
        await until(lambda: new.closed)


async def test_a_client_that_spoke_during_the_sign_in_is_carried_after_its_command() -> None:
    """The new server is signed in to once, however slow it is."""
    async with two_servers() as s:
        client, leg = await idling(s)
        old, new = server(s, "MBX-01"), server(s, "MBX-02")
        new.stops_at, old.stops_at = (b"LOGIN",), (b"STORE",)
        carrying = asyncio.ensure_future(leg.carry(to(s)))
        await new.stopped.wait()
        client.writer.write(b"DONE\r\nd STORE 1 FLAGS x\r\n")
        await old.stopped.wait()
        new.gate.set()
        await asyncio.sleep(5 * carry.LOOK_SECONDS)
        assert not carrying.done()
        old.gate.set()
        assert await carrying
        assert await client.line() == b"c OK Idle completed.\r\n"
        assert await client.line() == b"d OK done by MBX-01\r\n"
        assert await client.say(b"e STORE 1 FLAGS x\r\n") == b"e OK done by MBX-02\r\n"
        assert new.connections == 1


async def test_waiting_for_others_is_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was busy when it was their turn may wait for further ones, and cost the new server nothing."""
    async with two_servers() as s:
        client, leg = await idling(s)
        old, new = server(s, "MBX-01"), server(s, "MBX-02")
        s.router.set_view(s.view("MBX-02", 2))
        s.door.carrying = asyncio.Semaphore(0)
        leaver = MailLeaver(leg, "moved", "moved", moved=True)
        for number in range(CARRIES + 2):
            assert not leaver.leave()
            old.stops_at = (b"STORE",)
            client.writer.write((b"DONE\r\n" if number == 0 else b"") + b"d STORE 1 FLAGS x\r\n")
            await old.stopped.wait()
            s.door.carrying.release()
            await until(lambda: not leaver._carrying)
            await s.door.carrying.acquire()
            old.gate.set()
            while not (await client.line()).startswith(b"d OK"):
                pass
            old.gate.clear()
            old.stopped.clear()
        assert (new.connections, leg.carry_over.reason) == (0, carry.BUSY)  # type: ignore[union-attr]
        s.door.carrying.release()
        assert not leaver.leave()
        await until(lambda: leaver.outcome is Outcome.STAYED)


async def test_a_session_that_must_go_is_carried_at_its_next_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client spoke during the first attempt: it stays until it is quiet again, and then goes on elsewhere."""
    monkeypatch.setattr(carry, "BOUNDARY_SECONDS", 0.05)
    async with two_servers() as s:
        client, leg = await idling(s)
        old, new = server(s, "MBX-01"), server(s, "MBX-02")
        s.router.set_view(s.view("MBX-02", 2))
        leaver = MailLeaver(leg, "moved", "moved", moved=True)
        new.stops_at, old.stops_at = (b"LOGIN",), (b"STORE",)
        assert not leaver.leave()
        await new.stopped.wait()
        client.writer.write(b"DONE\r\nd STORE 1 FLAGS x\r\n")
        await old.stopped.wait()
        new.gate.set()
        await until(lambda: new.closed)
        assert not leaver.leave()
        old.gate.set()
        assert await client.line() == b"c OK Idle completed.\r\n"
        assert await client.line() == b"d OK done by MBX-01\r\n"
        assert not leaver.leave()
        await until(lambda: leaver.outcome is Outcome.STAYED)
        assert await client.say(b"e STORE 1 FLAGS x\r\n") == b"e OK done by MBX-02\r\n"
        assert leg.epoch == 2


@pytest.mark.parametrize("why", ["dead", "another mailbox", "down"])
async def test_a_session_that_must_go_and_cannot_be_carried_hears_bye(why: str) -> None:
    async with two_servers() as s:
        client, leg = await idling(s)
        s.router.set_view(s.view("MBX-02", 2))
        new = server(s, "MBX-02")
        if why == "another mailbox":
            new.mailbox.uid_validity = 9
        elif why == "down":
            new.greeting = b"* BYE down\r\n"
        leaver = MailLeaver(leg, "moved", "moved", moved=True, dead=why == "dead")
        left = leaver.leave()
        assert left is (why == "dead")
        if not left:
            await until(leaver.leave)
        assert (await client.line()).startswith(b"* BYE [UNAVAILABLE] ")
        assert await client.rest() == b""
        client.close()
        await until(lambda: leaver.outcome is Outcome.CLOSED)
        assert new.connections == (0 if why == "dead" else 1)


@pytest.mark.parametrize("wrong", ["refuses", "down", "lacks"])
async def test_a_new_server_that_does_not_take_the_sign_in_leaves_the_session_where_it_is(wrong: str) -> None:
    async with two_servers() as s:
        client, leg = await idling(s)
        new = server(s, "MBX-02")
        if wrong == "refuses":
            new.login_answer = b"%s NO no\r\n"
        elif wrong == "down":
            new.greeting = b"* BYE down\r\n"
        else:
            new.login_answer = b"%s OK [CAPABILITY IMAP4rev1] in\r\n"
        assert not await leg.carry(to(s))
        assert leg.carry_over is not None
        assert "MBX-02" in leg.carry_over.reason
        assert await client.say(b"DONE\r\n") == b"c OK Idle completed.\r\n"


def lose_old(s: Stage) -> None:
    server(s, "MBX-01").writers[0].transport.abort()


@pytest.mark.parametrize(
    ("stops", "then"),
    [
        ("", lambda s: setattr(server(s, "MBX-02").mailbox, "uid_validity", 9)),
        ("MBX-01 NOOP", lose_old),
        ("MBX-01 NOOP", lambda s: server(s, "MBX-02").writers[0].transport.abort()),
        ("MBX-02 SELECT", lambda s: server(s, "MBX-02").writers[0].transport.abort()),
        ("MBX-02 SELECT", lambda s: None),
        ("MBX-01 NOOP", lambda s: None),
    ],
)
async def test_whatever_goes_wrong_on_the_way_ends_the_session_with_bye(
    stops: str, then: Callable[[Stage], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another mailbox, a server that dies, a server that hangs: and nothing stays open."""
    monkeypatch.setattr(carry, "CARRY_SECONDS", 0.3)
    async with two_servers() as s:
        client, leg = await idling(s)
        name, _, command = stops.partition(" ")
        if not stops:
            then(s)
        else:
            server(s, name).stops_at = (command.encode(),)
        carrying = asyncio.ensure_future(leg.carry(to(s)))
        if stops:
            await server(s, name).stopped.wait()
            then(s)
        assert not await carrying
        assert await client.rest() == b"* BYE " + carry.FAREWELL.encode() + b"\r\n"
        for each in s.servers:
            server(s, each).gate.set()
        client.close()
        await until(lambda: server(s, "MBX-01").closed and server(s, "MBX-02").closed)
        await until(lambda: s.log_lines("imap.session"))
        assert s.log_lines("imap.session")[0]["reason"].startswith("moved, not carried over")


async def test_the_old_servers_end_is_no_harm_once_it_has_said_what_the_client_knows() -> None:
    async with two_servers() as s:
        client, leg = await idling(s)
        new = server(s, "MBX-02")
        new.stops_at = (b"SELECT",)
        carrying = asyncio.ensure_future(leg.carry(to(s)))
        await new.stopped.wait()
        lose_old(s)
        await until(lambda: leg.relay is not None and leg.relay._server.lost)
        new.gate.set()
        assert await carrying
        assert await client.say(b"DONE\r\n") == b"c OK Idle completed.\r\n"


@pytest.mark.parametrize("where", ["idling", "between", "busy"])
async def test_a_server_that_is_gone_is_told_of_where_sessions_are_watched_too(where: str) -> None:
    """Killed: the client hears BYE and UNAVAILABLE, as it does without carrying over (field case 14)."""
    async with two_servers() as s:
        client, _ = await (idling(s) if where == "idling" else signed_in(s))
        if where == "busy":
            server(s, "MBX-01").stops_at = (b"NOOP",)
            client.writer.write(b"b NOOP\r\n")
            await server(s, "MBX-01").stopped.wait()
        server(s, "MBX-01").writers[0].transport.abort()
        assert await client.rest() == b"* BYE [UNAVAILABLE] the mailbox server has gone, please connect again\r\n"


async def test_a_client_that_leaves_meanwhile_leaves_nothing_behind() -> None:
    async with two_servers() as s:
        client, leg = await idling(s)
        new = server(s, "MBX-02")
        new.stops_at = (b"SELECT",)
        carrying = asyncio.ensure_future(leg.carry(to(s)))
        await new.stopped.wait()
        client.writer.transport.abort()
        assert not await carrying
        new.gate.set()
        await until(lambda: server(s, "MBX-01").closed and new.closed)
        await until(lambda: s.log_lines("imap.session"))
        assert not s.door.relaying


async def test_a_cancelled_carrying_ends_the_session() -> None:
    async with two_servers() as s:
        client, leg = await idling(s)
        new = server(s, "MBX-02")
        new.stops_at = (b"SELECT",)
        carrying = asyncio.ensure_future(leg.carry(to(s)))
        await new.stopped.wait()
        carrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await carrying
        assert (await client.rest()).startswith(b"* BYE ")


@pytest.mark.parametrize(("how", "kept"), [(MASTER, False), (SignIn(SignInForm.USER), True)])
async def test_a_password_is_kept_only_where_a_server_wants_it_and_never_shown(how: SignIn, *, kept: bool) -> None:
    async with two_servers(how) as s:
        client, leg = await idling(s)
        carry_over = leg.carry_over
        assert isinstance(carry_over, CarryOver)
        assert (carry_over._credentials.password == "secret-apw") is kept
        assert "secret" not in repr(carry_over) + repr(carry_over._credentials) + repr(leg.describe())
        assert await leg.carry(to(s))
        assert any(b"LOGIN" in line and (b"secret-apw" in line) is kept for line in server(s, "MBX-02").lines)
        client.close()
        await until(lambda: s.log_lines("imap.session"))
        assert leg.carry_over is None
        assert "secret" not in repr(s.capture.calls)


async def test_compression_is_hidden_from_clients_whose_bytes_are_looked_at() -> None:
    assert without_compression(b"IMAP4rev1 compress=DEFLATE IDLE") == b"IMAP4rev1 IDLE"
    for on in (True, False):
        async with two_servers(on=on) as s:
            client = await s.connect()
            await client.line()
            assert (b"COMPRESS" in await client.tagged(b"a LOGIN alice secret-apw\r\n")) is not on


async def test_where_it_is_off_nobody_looks_and_nobody_is_carried() -> None:
    async with two_servers(on=False) as s:
        client, leg = await idling(s)
        assert leg.carry_over is None
        assert not await leg.carry(to(s))
        assert await client.say(b"DONE\r\n") == b"c OK Idle completed.\r\n"


async def test_bytes_are_counted_as_the_client_saw_them() -> None:
    """What the servers said to us alone is not the client's."""
    async with two_servers() as s:
        client, leg = await idling(s)
        before = leg.bytes_seen
        server(s, "MBX-02").mailbox.add()
        assert await leg.carry(to(s))
        told = await client.line() + await client.line()
        assert leg.bytes_seen - before == len(told)


async def test_a_client_that_is_told_a_lot_and_reads_slowly_holds_the_new_server_up() -> None:
    async with two_servers() as s:
        for name in s.servers:
            for _ in range(15_000):
                server(s, name).mailbox.add()
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.setblocking(False)
        await s.door.loop.sock_connect(small, ("127.0.0.1", await s.listen()))
        client, leg = await idling(s, sock=small)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        box = server(s, "MBX-02").mailbox
        for n in range(len(box.messages)):
            box.flag(n, b"a-rather-long-keyword-that-fills-the-buffers-of-the-kernel" * 4)
        assert await leg.carry(to(s))
        assert leg.relay is not None
        waiting = leg.relay._client.transport.get_write_buffer_size()
        assert waiting > HIGH_WATER
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        client.writer.write(b"DONE\r\n")
        lines = 0
        while not (await client.line()).startswith(b"c OK"):
            lines += 1
        assert lines == len(box.messages)
        assert await client.say(b"d STORE 1 FLAGS x\r\n") == b"d OK done by MBX-02\r\n"


async def test_two_hundred_idle_sessions_at_once() -> None:
    """All of them, and no more at the same time than are allowed."""
    async with two_servers() as s:
        port = await s.listen()
        sessions = [await idling(s, port) for _ in range(200)]
        carried = await asyncio.gather(*(leg.carry(to(s)) for _, leg in sessions))
        assert all(carried)
        for client, _ in sessions:
            assert await client.say(b"DONE\r\n") == b"c OK Idle completed.\r\n"
        assert server(s, "MBX-02").connections == 200
        await until(lambda: server(s, "MBX-01").closed == 200)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nothing is left of what was before, and circles stay."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_a_session_that_was_carried_leaves_no_circle_of_references() -> None:
    def left() -> list[object]:
        return [o for o in gc.get_objects() if isinstance(o, CarryOver)]

    async with two_servers() as s:
        client, leg = await idling(s)
        assert await leg.carry(to(s))
        client.close()
        await until(lambda: s.log_lines("imap.session"))
        del client, leg
        s._clients.clear()
        await until(lambda: not left())
