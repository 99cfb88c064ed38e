"""Sessions follow their database between two real Dovecots, and operators see and end them (SPEC B5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from doors import FrontDoor, Servers
from two_homes import MOVES, PHONES, STAYS, A, B, Homes, Imap, homes, http, webs

from gatepost.lab.servers.gatepost import run_gatepost
from gatepost.lab.toml_text import Table

pytestmark = pytest.mark.integration

WINDOW, FORCED = 2.0, 10.0
"""The limits' defaults."""
SLACK = 4.0
"""For a machine that runs other tests as well."""
MEGABYTE = 1 << 20


@pytest.fixture
async def home(servers: Servers) -> AsyncIterator[Homes]:
    """A door before two servers that share a database's mail."""
    with homes(servers) as made:
        yield made
        while Imap.everyone:
            Imap.everyone.pop().close()
        await asyncio.sleep(0)


class Carrying(Homes):
    """Homes whose front door carries idle sessions over."""

    def change(self, front_end: Table, organization: Table) -> None:
        super().change(front_end, organization)
        front_end["carry_over_idle"] = True


@pytest.fixture
async def carrying(servers: Servers) -> AsyncIterator[Homes]:
    """The same, where idle sessions are carried over."""
    with homes(servers, Carrying) as made:
        yield made
        while Imap.everyone:
            Imap.everyone.pop().close()
        await asyncio.sleep(0)


async def sign_in_all(home: Homes, user: str, number: int) -> list[Imap]:
    """So many sessions of a user, made some at a time."""
    made: list[Imap] = []
    while len(made) < number:
        group = min(20, number - len(made))
        made += await asyncio.gather(*(Imap.sign_in(home.door, user) for _ in range(group)))
    return made


def message(number: int, size: int) -> bytes:
    """A message of that size, with a subject of its own."""
    return f"Subject: number {number}\r\n\r\n".encode() + (b"x" * 70 + b"\r\n") * (size // 72)


async def append_slowly(client: Imap, text: bytes, pieces: int, pause: float) -> tuple[bytes, list[bytes]]:
    """APPEND with pauses; its answer, and what came after that until the end."""
    tag = client.say(f"APPEND INBOX {{{len(text)}}}")
    assert (await client.line()).startswith(b"+")
    step = len(text) // pieces + 1
    for begin in range(0, len(text), step):
        client.writer.write(text[begin : begin + step])
        await client.writer.drain()
        await asyncio.sleep(pause)
    client.writer.write(b"\r\n")
    return await client.answer(tag), await client.last_words()


async def busy(client: Imap) -> tuple[bytes, int]:
    """Commands one after the other until BYE; that line, and how many were answered."""
    done = 0
    while True:
        line = await client.ask("STATUS INBOX (MESSAGES UIDNEXT)")
        if not line or line.startswith(b"* BYE"):
            return line, done
        assert b" OK" in line, line
        done += 1
        await asyncio.sleep(0.05)


async def test_three_hundred_sessions_follow_their_database(home: Homes) -> None:
    """Idle, between commands, busy, in the middle of an APPEND: all are told in their words, none is left, none cut."""
    idle = await sign_in_all(home, "alice", 180)
    await asyncio.gather(*(client.idle() for client in idle[:100]))
    working = await sign_in_all(home, "carol", 60)
    others = await sign_in_all(home, "bob", 56)
    writers = await sign_in_all(home, "carol", 4)
    at_work = [asyncio.create_task(busy(client)) for client in working]
    appends = [
        asyncio.create_task(append_slowly(client, message(n, 4 * MEGABYTE), 30, 0.15))
        for n, client in enumerate(writers)
    ]
    last_words = [asyncio.create_task(client.last_words()) for client in idle]
    before = await home.sessions()
    assert before["total"] == 300
    assert {entry["database"] for entry in before["sessions"]} == {MOVES, STAYS}
    assert (await home.sessions("--db", MOVES, "--server", A))["total"] == 244

    moved = await asyncio.to_thread(home.move)
    heard = await asyncio.gather(*last_words)
    assert time.monotonic() - moved < WINDOW + SLACK
    byes = {words[-1] for words in heard}
    assert byes == {b"* BYE [UNAVAILABLE] the mailbox has moved to another server, please connect again\r\n"}
    for line, answered in await asyncio.gather(*at_work):
        assert line.startswith(b"* BYE [UNAVAILABLE]")
        assert answered > 0
    stored = await asyncio.gather(*appends)
    assert time.monotonic() - moved < FORCED + SLACK
    assert all(b" OK" in answer for answer, _ in stored), stored  # finished, not cut
    assert all(after[-1].startswith(b"* BYE [UNAVAILABLE]") for _, after in stored)

    after = await home.sessions("--db", MOVES)
    assert after["sessions"] == []
    again = await Imap.sign_in(home.door, "carol")
    assert b"OK" in await again.ask("SELECT INBOX")
    for number in range(4):
        tag = again.say(f'SEARCH SUBJECT "number {number}"')
        assert len((await again.line()).split()) == 3, "stored once, not twice"
        await again.answer(tag)
    assert [entry["server"] for entry in (await home.sessions("--user", "carol"))["sessions"]] == [B]
    # Nobody else has noticed anything: the same connections, the same server.
    for client in others:
        assert b"OK" in await client.ask("NOOP")
    assert (await home.sessions("--db", STAYS))["total"] == 56
    log = home.door.process.wait_for_event("sessions.moved", databases=[MOVES])
    assert log.get("timed out", 0) == 0
    for client in (*others, again):
        client.close()


async def test_idle_sessions_are_carried_over_and_the_others_follow(carrying: Homes) -> None:
    """With `carry_over_idle` an idle client notices nothing; one within a command is waited for and carried as well."""
    home = carrying
    idle = await sign_in_all(home, "alice", 40)
    await asyncio.gather(*(client.idle() for client in idle))
    between = await sign_in_all(home, "alice", 10)
    writer = await Imap.sign_in(home.door, "carol")
    append = asyncio.create_task(append_slowly(writer, message(7, MEGABYTE), 10, 0.15))
    moved = await asyncio.to_thread(home.move)
    async with asyncio.timeout(FORCED + SLACK):
        while (await home.sessions("--server", A))["total"]:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.1)
    assert time.monotonic() - moved < FORCED + SLACK
    for client in between:
        assert b"OK" in await client.ask("NOOP")
    for client in idle:
        client.writer.write(b"DONE\r\n")
        assert b"OK" in await client.answer(b"t3 ")
    found = await home.sessions("--user", "alice")
    assert [(entry["server"], entry["epoch"]) for entry in found["sessions"]] == [(B, 2)] * 50
    writer.close()
    answer, _ = await append
    assert b" OK" in answer


async def test_a_compressed_session_hears_bye_and_the_end_of_its_stream(home: Homes) -> None:
    """Field case 51: a client under COMPRESS=DEFLATE (RFC 4978) inflates BYE and sees a stream that is complete."""
    client = await Imap.sign_in(home.door, "alice")
    assert b"OK" in await client.ask("COMPRESS DEFLATE")
    deflate, inflate = zlib.compressobj(wbits=-15), zlib.decompressobj(wbits=-15)
    fresh = await Imap.sign_in(home.door, "alice")
    assert b"OK" in await fresh.ask("COMPRESS DEFLATE")  # and nothing after it

    async def say(command: bytes) -> bytes:
        client.writer.write(deflate.compress(command) + deflate.flush(zlib.Z_SYNC_FLUSH))
        got = b""
        while not got.endswith(b"\r\n"):
            got += inflate.decompress(await asyncio.wait_for(client.reader.read(65536), 10))
        return got

    assert b"c1 OK" in await say(b"c1 SELECT INBOX\r\n")
    assert (await say(b"c2 IDLE\r\n")).startswith(b"+")
    began = await asyncio.to_thread(home.move)
    for reader, stream in ((client.reader, inflate), (fresh.reader, zlib.decompressobj(wbits=-15))):
        words = stream.decompress(await asyncio.wait_for(reader.read(), 10))
        assert words.startswith(b"* BYE [UNAVAILABLE]")
        assert words.endswith(b"\r\n")
        assert stream.eof
    assert time.monotonic() - began < WINDOW + SLACK


async def test_pop3_ends_in_silence_and_deletions_are_not_lost(home: Homes) -> None:
    """An idle session is closed without a word; one that has deleted is let say QUIT, so that it is done."""
    address = home.door.addresses["pop3"]

    async def sign_in() -> Imap:
        client = Imap(*await asyncio.open_connection(*address))
        await client.line()
        for word in ("USER alice", "PASS apw"):
            client.writer.write(word.encode() + b"\r\n")
            assert (await client.line()).startswith(b"+OK"), word
        return client

    async def quit_session(deletes: bool) -> Imap:
        client = await sign_in()
        if deletes:
            client.writer.write(b"DELE 1\r\n")
            assert (await client.line()).startswith(b"+OK")
        return client

    deleting = await quit_session(deletes=True)
    began = await asyncio.to_thread(home.move)
    await asyncio.sleep(WINDOW + 1)
    deleting.writer.write(b"QUIT\r\n")
    assert (await deleting.line()).startswith(b"+OK")
    assert await deleting.last_words() == []
    assert time.monotonic() - began < FORCED
    plain = await quit_session(deletes=False)
    plain.writer.write(b"STAT\r\n")
    assert (await plain.line()).startswith(b"+OK 0 ")  # at the new server, and really gone
    await asyncio.to_thread(home.move, A)
    assert await plain.last_words() == []
    assert home.door.process.wait_for_event("pop3.session", reason="the database has moved")["server"] == B


async def test_polls_and_websockets_go_to_the_new_server(home: Homes) -> None:
    """A phone's Ping gets 503 and a moment to wait, a GET its answer from the new server, a WebSocket close 1012."""
    async with webs(home) as web:
        ping = await http(home.door, f"{PHONES}?Cmd=Ping&User=alice&DeviceId=1&DeviceType=x", "alice", body=b"\x03")
        poll = await http(home.door, "/owa/pending", "alice")
        upgrade = ("Connection: Upgrade", "Upgrade: websocket")
        socket = await http(home.door, "/owa/ws", "alice", *upgrade)
        other = await http(home.door, f"{PHONES}?Cmd=Ping&User=bob&DeviceId=2&DeviceType=x", "bob", body=b"\x03")
        assert b"hello" in await socket.reader.readuntil(b"hello")
        await asyncio.sleep(5.5)  # from then on a request that waits is a long poll
        assert {entry["phase"] for entry in (await home.sessions("--db", MOVES))["sessions"]} == {"busy", "relaying"}
        assert (await home.sessions("--protocol", "http", "--server", A))["total"] == 3
        began = await asyncio.to_thread(home.move)
        answer = await asyncio.wait_for(ping.reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 1\r\n" in answer or b"Retry-After: 2\r\n" in answer
        assert b"MBX-B" in await asyncio.wait_for(poll.reader.readuntil(b"MBX-B"), 10)
        frame = await asyncio.wait_for(socket.reader.read(), 10)
        assert frame[:1] == b"\x88"
        assert int.from_bytes(frame[2:4], "big") == 1012
        assert time.monotonic() - began < WINDOW + SLACK
        async with asyncio.timeout(5):
            while web[A].gone < 3:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.05)
        assert web[B].gone == 0
        assert (await home.sessions("--db", STAYS))["total"] == 1
        for client in (ping, poll, socket, other):
            client.close()


async def test_a_worker_that_is_killed_leaves_nobody_at_the_old_server(home: Homes) -> None:
    """Its clients are gone with it; those of the other worker move; whoever comes is at the new server."""
    clients = await sign_in_all(home, "alice", 60)
    workers = home.door.process.workers()
    last_words = [asyncio.create_task(client.last_words()) for client in clients]
    await asyncio.to_thread(home.move)
    os.kill(workers[0], signal.SIGKILL)
    heard = await asyncio.gather(*last_words)
    told = sum(bool(words) and words[-1].startswith(b"* BYE [UNAVAILABLE]") for words in heard)
    assert told >= 5  # those of the worker that lives
    again = await sign_in_all(home, "alice", 10)
    found = await home.sessions("--db", MOVES)
    assert {entry["server"] for entry in found["sessions"]} == {B}
    for client in again:
        client.close()


async def test_sessions_of_an_older_generation_are_listed_follow_and_end(home: Homes) -> None:
    """Field case 2: workers that are draining after a renewal still answer for their sessions."""
    clients = await sign_in_all(home, "alice", 6)
    bob = await Imap.sign_in(home.door, "bob")
    before = {entry["worker"] for entry in (await home.sessions())["sessions"]}
    os.kill(home.door.process.pid, signal.SIGUSR2)
    home.door.process.wait_for_event("service.renewing")
    async with asyncio.timeout(20):
        while len(set(home.door.process.workers()) - before) < 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)
    found = await home.sessions("--db", MOVES)
    assert (found["total"], found["workers_missing"]) == (6, {})
    assert {entry["worker"] for entry in found["sessions"]} <= before
    last_words = [asyncio.create_task(client.last_words()) for client in clients]
    await asyncio.to_thread(home.move)
    assert all(words[-1].startswith(b"* BYE [UNAVAILABLE]") for words in await asyncio.gather(*last_words))
    output = await asyncio.to_thread(home.door.command, "sessions", "kick", "--user", "bob", "--json")
    assert [one["outcome"] for one in json.loads(output)["outcomes"]] == ["closed"]
    assert (await bob.last_words())[-1].startswith(b"* BYE")


STOPPED_CLIENT = """
import os, socket, ssl, sys, time
raw = socket.create_connection((sys.argv[1], int(sys.argv[2])))
tls = ssl.create_default_context(cafile=sys.argv[3]).wrap_socket(raw, server_hostname="mail.contoso.com")
tls.recv(1000)
tls.sendall(b"a LOGIN alice apw\\r\\n")
tls.recv(1000)
print("in", flush=True)
time.sleep(600)
"""


async def test_kicked_clients_are_gone_even_when_they_are_stopped(home: Homes) -> None:
    """Field cases 1, 4: a process that is stopped takes no farewell; "closed" is true all the same, and in time."""
    address, port = home.door.addresses["imaps"]
    command = [sys.executable, "-c", STOPPED_CLIENT, address, str(port), str(home.door.ca)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(5)]  # noqa: ASYNC220
    try:
        for process in processes:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"in\n"
            process.send_signal(signal.SIGSTOP)
        bob = await Imap.sign_in(home.door, "bob")
        dry = await asyncio.to_thread(home.door.command, "sessions", "kick", "--user", "alice", "--dry-run")
        assert "sessions: 5 (5 imap)" in dry
        assert (await home.sessions("--user", "alice"))["total"] == 5
        began = time.monotonic()
        output = await asyncio.to_thread(home.door.command, "sessions", "kick", "--user", "alice", "--json")
        assert time.monotonic() - began < 5 + SLACK
        result = json.loads(output)
        assert [one["outcome"] for one in result["outcomes"]] == ["closed"] * 5
        ports = {connection_port(process.pid, port) for process in processes}
        assert ports == {0}, "the front door's ends are closed"
        assert b"OK" in await bob.ask("NOOP")
        bob.close()
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def connection_port(pid: int, port: int) -> int:
    """How many connections of a process to that port are established, by the kernel's table."""
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    inodes = {os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir() if f.exists() or f.is_symlink()}
    return sum(
        line.split()[3] == "01" and int(line.split()[2].split(":")[1], 16) == port
        for line in lines
        if f"socket:[{line.split()[9]}]" in inodes
    )


async def test_more_than_a_hundred_are_asked_for_and_nobody_is_never_meant(home: Homes) -> None:
    """Field cases 3 and 8: a filter must be there, is typed, and a large set wants a word more."""
    refused = await asyncio.to_thread(home.door.command, "sessions", "kick", status=2)
    assert "or --all" in refused
    assert "12345" in await asyncio.to_thread(home.door.command, "sessions", "kick", "--ip", "12345x", status=2)
    clients = await sign_in_all(home, "bob", 110)
    asked = await asyncio.to_thread(home.door.command, "sessions", "kick", "--db", STAYS, status=None)
    assert "End 110 sessions?" in asked
    assert (await home.sessions())["total"] == 110
    last_words = [asyncio.create_task(client.last_words()) for client in clients]
    output = await asyncio.to_thread(home.door.command, "sessions", "kick", "--all", "--yes")
    assert "closed: 110 of 110" in output
    assert all(words[-1].startswith(b"* BYE") for words in await asyncio.gather(*last_words))
    nobody = await asyncio.to_thread(home.door.command, "sessions", "kick", "--user", "12345")
    assert "closed: 0 of 0" in nobody


async def test_a_kick_needs_no_mailbox_server(home: Homes) -> None:
    """Field case 5: both servers are down, and hang."""
    clients = await sign_in_all(home, "alice", 4)
    for server in home.servers.values():
        server.signal(signal.SIGSTOP)
    try:
        output = await asyncio.to_thread(home.door.command, "sessions", "kick", "--user", "alice", "--json")
        assert [one["outcome"] for one in json.loads(output)["outcomes"]] == ["closed"] * 4
        assert all([(await client.last_words())[-1].startswith(b"* BYE") for client in clients])
    finally:
        for server in home.servers.values():
            server.signal(signal.SIGCONT)


def test_front_ends_that_do_not_answer_are_named(home: Homes) -> None:
    """One that was killed, and none at all: the others' answers are there, the status says that some are missing."""
    door: FrontDoor = home.door
    folder = Path(door.front_end["registry"]).parent
    (folder / "gatepost-CAS-09.sock").touch()
    output = door.command("sessions", "list", status=1)
    assert "CAS-01: sessions: 0" in output
    assert "CAS-09 cannot be reached" in output
    (folder / "gatepost-CAS-09.sock").unlink()
    os.kill(door.process.workers()[0], signal.SIGSTOP)
    try:
        output = door.command("sessions", "list", status=1)
        assert "these workers did not answer" in output
    finally:
        for worker in door.process.workers():
            os.kill(worker, signal.SIGCONT)
    door.process.stop()
    output = run_gatepost("sessions", "list", "-c", str(door.process.configuration), status=1)
    assert "no front end runs here" in output
