"""Sign-ins and requests between two homes of their database: real Dovecots, real workers (SPEC A3, A4, B4)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from doors import ACCOUNTS, Servers
from two_homes import MOVES, A, B, Homes, Imap, homes, http, webs

from gatepost.activemanager.port import MANAGER, Move
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.lab.servers.process import free_ports
from gatepost.lab.toml_text import Table

pytestmark = pytest.mark.integration

CROWD = 500
AT_ONCE = 4
"""Sign-ins of one worker at one server; there are two workers."""
SLOW_SECONDS = 0.05


class EpochHomes(Homes):
    """Both servers are told the epoch, as far as their protocols go."""

    def change(self, front_end: Table, organization: Table) -> None:
        super().change(front_end, organization)
        for name in (A, B):
            organization["servers"][name]["sign_in"]["send_epoch"] = True


@pytest.fixture
async def home(servers: Servers) -> AsyncIterator[Homes]:
    """A door before two servers that share a database's mail."""
    with homes(servers, EpochHomes, registry_age_seconds=1.0) as made:
        yield made
        while Imap.everyone:
            Imap.everyone.pop().close()
        await asyncio.sleep(0)


@pytest.fixture
def registry(home: Homes) -> Iterator[SqliteRegistry]:
    """The registry of that door."""
    opened = SqliteRegistry(home.door.front_end["registry"])
    yield opened
    opened.close()


async def pop3(home: Homes, user: str) -> bytes:
    """A sign-in by POP3; the answer to the password."""
    client = Imap(*await asyncio.open_connection(*home.door.addresses["pop3"]))
    await client.line()
    client.writer.write(f"USER {user}\r\n".encode())
    await client.line()
    client.writer.write(f"PASS {ACCOUNTS[user]}\r\n".encode())
    return await client.line()


async def imap(home: Homes, user: str) -> bytes:
    """A sign-in by IMAP; its answer, and what the mailbox is then good for."""
    client = Imap(*await asyncio.open_connection(*home.door.addresses["imap"]))
    await client.line()
    answer = await client.ask(f"LOGIN {user} {ACCOUNTS[user]}")
    return answer + (await client.ask("SELECT INBOX") if b" OK" in answer else b"")


async def until_connecting(home: Homes, number: int) -> None:
    """Until so many sign-ins wait between the front end and a mailbox server."""
    async with asyncio.timeout(20):
        while True:
            found = await home.sessions("--db", MOVES)
            if sum(entry["phase"] == "connecting" for entry in found["sessions"]) == number:
                return
            await asyncio.sleep(0.05)


async def signed_in_at(home: Homes) -> set[str]:
    """Where the mail sessions of the database are now."""
    return {
        entry["server"] for entry in (await home.sessions("--db", MOVES))["sessions"] if entry["phase"] == "relaying"
    }


async def test_who_comes_during_a_move_waits_and_is_at_the_new_server(home: Homes, registry: SqliteRegistry) -> None:
    """From `begin_move` to `activate`; nobody sees an error, and the old server sees nobody."""
    async with webs(home) as web:
        registry.begin_move(Move(MOVES, A, B, registry.view().active[MOVES].epoch, 0.0))
        await asyncio.sleep(0.5)  # so that every worker knows
        before = len(home.servers[A].sign_ins())
        mail = [asyncio.create_task(imap(home, user)) for user in ("alice", "carol") * 5]
        mail += [asyncio.create_task(pop3(home, user)) for user in ("alice", "carol")]
        answer = await http(home.door, "/owa/x", "alice", body=b"text")
        await until_connecting(home, len(mail))
        assert web[A].heard == web[B].heard == []
        registry.activate(MOVES, B)
        assert all(b"OK" in answer for answer in await asyncio.gather(*mail))
        assert b"MBX-B" in await asyncio.wait_for(answer.reader.readuntil(b"MBX-B"), 10)
        assert await signed_in_at(home) == {B}
        assert len(home.servers[A].sign_ins()) == before
        assert web[A].heard == []
        assert home.door.process.events("imap.refused") == []


async def test_a_move_that_comes_to_nothing_lets_them_in_where_it_was(home: Homes, registry: SqliteRegistry) -> None:
    registry.begin_move(Move(MOVES, A, B, registry.view().active[MOVES].epoch, 0.0))
    await asyncio.sleep(0.5)
    answer = asyncio.create_task(imap(home, "alice"))
    await until_connecting(home, 1)
    registry.end_move(MOVES)
    assert b"OK" in await answer
    assert await signed_in_at(home) == {A}


async def test_a_killed_server_costs_nobody_an_error(home: Homes, registry: SqliteRegistry) -> None:
    """kill -9 of the active server, and a manager that takes some time to make the other copy the active one."""
    async with webs(home) as web:
        assert b"OK" in await imap(home, "alice")
        poll = await http(home.door, "/owa/pending", "alice")
        post = await http(home.door, "/owa/pending", "alice", body=b"send")
        async with asyncio.timeout(10):
            while len(web[A].heard) < 2:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.02)
        assert registry.take_lease(MANAGER, "somebody", 60.0) is not None
        await asyncio.sleep(0.5)  # so that every worker knows
        os.killpg(home.servers[A].pid, signal.SIGKILL)
        await web[A].die()
        mail = [asyncio.create_task(imap(home, user)) for user in ("alice", "carol") * 5]
        mail.append(asyncio.create_task(pop3(home, "carol")))
        new = await http(home.door, "/owa/x", "carol")
        await until_connecting(home, len(mail))
        await asyncio.sleep(1.5)
        registry.activate(MOVES, B)
        assert all(b"OK" in answer for answer in await asyncio.gather(*mail))
        for client in (poll, new):
            answer = await asyncio.wait_for(client.reader.read(4096), 10)
            assert answer.endswith(b"MBX-B"), answer
        head = await asyncio.wait_for(post.reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 503")  # it may have run
        assert b"Retry-After" in head
        assert [line for line in web[B].heard if "POST" in line] == []
        assert home.door.process.events("imap.refused") == home.door.process.events("pop3.refused") == []


async def test_dovecot_takes_the_epoch_and_a_referral_of_it_is_not_mine(home: Homes) -> None:
    """Told by ID, it still believes the client's address. What it refers to (`nologin`, `host`) is not followed; the
    client hears of a temporary fault. When the registry says where the database is, all is well."""
    assert b"OK" in await imap(home, "alice")
    assert b"OK" in await pop3(home, "alice")
    async with asyncio.timeout(10):
        while len(home.servers[A].sign_ins()) < 2:  # noqa: ASYNC110 - its log is written when it has time
            await asyncio.sleep(0.05)
    assert {told["rip"] for told in home.servers[A].sign_ins()} == {"127.0.0.1"}
    accounts = home.servers[A].directory / "users"
    text = accounts.read_text()
    accounts.write_text(text.replace("::::::", "::::::nologin host=127.0.0.99"))
    await asyncio.sleep(1.1)  # it looks at the file once a second
    before = len(home.servers[A].sign_ins())
    answer = await imap(home, "carol")
    assert b" NO [UNAVAILABLE] " in answer
    assert b"REFERRAL" not in answer
    line = home.door.process.wait_for_event("imap.refused")
    assert "REFERRAL" in line["reason"]
    assert len(line["attempts"]) == 2
    assert len(home.servers[A].sign_ins()) == before
    await asyncio.to_thread(home.move)
    await asyncio.sleep(0.5)
    assert b"OK" in await imap(home, "carol")


class SlowWay:
    """Lets connections through to a server after a moment; counts those that are not signed in yet."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._running: set[asyncio.Task[None]] = set()
        self.now = self.most = self.all = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._pass(reader, writer)
        finally:
            self._running.discard(task)
            writer.transport.abort()

    async def end(self) -> None:
        """Close every connection; the loop may be closed after that."""
        for task in (running := list(self._running)):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.all += 1
        self.now += 1
        self.most = max(self.most, self.now)
        waiting = True
        try:
            await asyncio.sleep(SLOW_SECONDS)
            inner_reader, inner_writer = await asyncio.open_connection(*self._server)
            back = asyncio.create_task(self._copy(reader, inner_writer))
            try:
                with contextlib.suppress(ConnectionError):
                    while data := await inner_reader.read(65536):
                        if waiting and b"Logged in" in data:
                            waiting = False
                            self.now -= 1
                        writer.write(data)
                    await writer.drain()
            finally:
                back.cancel()
                inner_writer.transport.abort()
        finally:
            self.now -= waiting

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()


class SlowHomes(Homes):
    """Server A is reached by a slow way."""

    way: SlowWay
    place: tuple[str, int]

    def change(self, front_end: Table, organization: Table) -> None:
        super().change(front_end, organization)
        server = self.servers[A]
        self.place = (server.address, free_ports(server.address, 1)[0])
        self.way = SlowWay(server.address, server.ports.imap)
        organization["servers"][A]["endpoints"]["imap"]["port"] = self.place[1]


LIMITS: dict[str, Any] = {
    "sign_ins_per_server": AT_ONCE,
    "unauthenticated_per_address": 2 * CROWD,
    "password_checks": CROWD,
    "password_checks_per_address": CROWD,
}


async def test_a_crowd_at_a_slow_server_stays_bounded_and_all_come_in(servers: Servers) -> None:
    """500 sign-ins at once; each worker has four under way. Nobody is refused, and one user's do not hold up all."""
    with homes(servers, SlowHomes, **LIMITS) as home:
        assert isinstance(home, SlowHomes)
        running = await asyncio.start_server(home.way.serve, *home.place)
        try:
            loop = asyncio.get_running_loop()

            async def one(user: str) -> tuple[bytes, float]:
                client = Imap(*await asyncio.open_connection(*home.door.addresses["imap"]))
                await client.line()
                async with asyncio.timeout(55):
                    client.writer.write(f"a LOGIN {user} {ACCOUNTS[user]}\r\n".encode())
                    answer = await client.reader.readline()
                done = loop.time()
                client.close()
                return answer, done

            began = loop.time()
            crowd = [asyncio.create_task(one("alice")) for _ in range(CROWD)]
            while home.way.all < 2 * AT_ONCE:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
            late = loop.time()
            answer, done = await one("carol")
            assert b" OK" in answer
            answers = await asyncio.gather(*crowd)
            whole = max(moment for _, moment in answers) - began
            assert [answer for answer, _ in answers if b" OK" not in answer] == []
            assert home.way.most <= 2 * AT_ONCE
            assert done - late < whole / 2
        finally:
            running.close()
            while Imap.everyone:
                Imap.everyone.pop().close()
            await home.way.end()


def _names(path: Path) -> list[tuple[Path, Path]]:
    return [(Path(f"{path}{suffix}"), Path(f"{path}{suffix}.away")) for suffix in ("", "-wal", "-shm")]


def take_away(path: Path) -> None:
    """Nobody can read the registry, nor make a new one."""
    for file, hidden in _names(path):
        if file.exists():
            file.rename(hidden)
    path.mkdir()


def bring_back(path: Path) -> None:
    path.rmdir()
    for file, hidden in _names(path):
        if hidden.exists():
            hidden.rename(file)


async def test_cut_off_from_the_registry_only_what_is_there_goes_on(home: Homes) -> None:
    """Past the stated age: no new sessions, a 503 health page, one line of each worker; then as before."""
    address = home.door.addresses["http"]

    async def health() -> bytes:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /owa/healthcheck.htm HTTP/1.1\r\nHost: mail.contoso.com\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer

    organization = home.door.organization
    organization["virtual_directories"].append({"server": "CAS-01", "service": "owa", "path": "/owa"})
    async with webs(home):
        there = await Imap.sign_in(home.door, "alice")
        path = Path(home.door.front_end["registry"])
        take_away(path)
        home.door.process.wait_for_event("registry.cut_off", 20)
        assert b"[UNAVAILABLE]" in await imap(home, "alice")
        assert b"[SYS/TEMP]" in await pop3(home, "alice")
        refused = await http(home.door, "/owa/x", "alice")
        assert (await asyncio.wait_for(refused.reader.readline(), 10)).startswith(b"HTTP/1.1 503")
        assert b"OK" in await there.ask("NOOP")
        assert (await health()).startswith(b"HTTP/1.1 503")
        bring_back(path)
        home.door.process.wait_for_event("registry.heard_again", 20)
        async with asyncio.timeout(20):
            while b"OK" not in await imap(home, "alice"):  # noqa: ASYNC110 - the other worker
                await asyncio.sleep(0.1)
        assert 1 <= len(home.door.process.events("registry.cut_off")) <= 2
