"""Idle IMAP sessions that go on at another Dovecot when their database moves; both share one mail directory."""

from __future__ import annotations

import imaplib
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import pytest
from doors import FrontDoor, Servers, dovecot_tables

from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.toml_text import Table

StartFrontDoor = Callable[..., FrontDoor]
SECONDS = 15.0
"""For anything to happen, on a busy machine."""


class RawClient:
    """An IMAP client of lines; every read has a deadline."""

    def __init__(self, door: FrontDoor, user: str = "alice", password: str = "apw") -> None:
        host, port = door.addresses["imaps"]
        plain = socket.create_connection((host, port), timeout=SECONDS)
        self._socket: ssl.SSLSocket = door.client_context.wrap_socket(plain, server_hostname=host)
        self._reader = self._socket.makefile("rb")
        self.line()
        answer = self.tagged(f"l LOGIN {user} {password}")
        assert answer[-1].startswith(b"l OK"), answer
        self.capabilities = answer[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._socket.close()

    def send(self, text: str) -> None:
        self._socket.sendall(text.encode() + b"\r\n")

    def line(self) -> bytes:
        """One line; empty at the end."""
        return self._reader.readline()

    def tagged(self, command: str) -> list[bytes]:
        """The lines up to the command's answer."""
        self.send(command)
        return self.until(command.split(maxsplit=1)[0].encode() + b" ")

    def until(self, start: bytes) -> list[bytes]:
        """Lines up to one that begins so."""
        lines = [self.line()]
        while lines[-1] and not lines[-1].startswith(start):
            lines.append(self.line())
        return lines

    def idle(self, tag: str = "i") -> None:
        self.send(f"{tag} IDLE")
        assert self.line().startswith(b"+ ")

    def done(self, tag: str = "i") -> list[bytes]:
        self.send("DONE")
        return self.until(tag.encode() + b" ")


@dataclass
class Two:
    """The front door, and two Dovecots with the same mail. `extra` deliveries are unique by `number`."""

    door: FrontDoor
    old: Dovecot
    new: Dovecot
    number: int = 0

    def move(self, database: str = "DB05") -> None:
        """The active copy goes to the other server."""
        self.door.command("database", "activate", database, "--server", self.new.name)
        self.old, self.new = self.new, self.old

    def deliver(self, user: str = "alice") -> None:
        self.number += 1
        first = min((self.old, self.new), key=lambda server: server.name)
        text = f"Subject: message {self.number}\r\n\r\nThe text.\r\n".encode()
        first.deliver(user, text, f"{time.time_ns()}.{self.number}.test")

    def direct(self, server: Dovecot, user: str = "alice") -> imaplib.IMAP4:
        """Another client of the same mailbox, past the front door."""
        client = imaplib.IMAP4(server.address, server.ports.imap, timeout=SECONDS)
        client.login(user, {"alice": "apw", "bob": "bpw", "carol": "cpw"}[user])
        client.select("INBOX")
        return client

    def carried(self) -> list[dict[str, object]]:
        """Log lines of sessions that were carried over."""
        return [line for line in self.door.process.events("imap.session") if line.get("carried_from")]


@pytest.fixture
def two(servers: Servers, start_front_door: StartFrontDoor, request: pytest.FixtureRequest) -> Iterator[Two]:
    number = abs(hash(request.node.name)) % 10000
    first = servers.new_dovecot(f"A{number}", servers.address(), LIMITS)
    shared = f"mail_location = maildir:{first.directory}/mail/%n/Maildir\n"
    second = servers.new_dovecot(f"B{number}", servers.address(), LIMITS + shared)
    form = getattr(request, "param", "")

    def change(front_end: Table, organization: Table) -> None:
        front_end["carry_over_idle"] = True
        front_end["limits"] |= {"move_window_seconds": 0.2}
        for server in (first, second):
            organization["servers"][server.name] = dovecot_tables(server, tls=False)
            if form:
                organization["servers"][server.name]["sign_in"] = {"form": form}
        copies = [{"server": s.name, "preference": n} for n, s in enumerate((first, second), 1)]
        organization["databases"]["DB05"] = {"copies": copies}

    users = [
        LabUser(f"{name}@contoso.com", password, database="DB05", login_at_server=name)
        for name, password in (("alice", "apw"), ("bob", "bpw"), ("carol", "cpw"))
    ]
    with first, second:
        door = start_front_door(change, users=users)
        yield Two(door, first, second)


LIMITS = "\nmail_max_userip_connections = 2000\nservice imap {\n  process_limit = 1000\n  client_limit = 1\n}\n"


def wait_for_sign_in(server: Dovecot, count: int, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while len(server.sign_ins()) < count:
        assert time.monotonic() < deadline, server.log_text()
        time.sleep(0.02)


def test_an_idle_client_does_not_notice_the_move(two: Two) -> None:
    """New mail after it is announced by the new server; DONE, NOOP and FETCH are answered as ever."""
    with RawClient(two.door) as client:
        client.tagged("s SELECT INBOX")
        client.idle()
        two.move()
        wait_for_sign_in(two.old, 1)
        two.deliver()
        assert client.until(b"* 2 EXISTS")
        lines = client.done()
        assert lines[-1].startswith(b"i OK"), lines
        assert client.tagged("n NOOP")[-1].startswith(b"n OK")
        fetched = b"".join(client.tagged("f FETCH 2 (UID BODY.PEEK[HEADER.FIELDS (SUBJECT)])"))
        assert b"message 1" in fetched
        assert client.tagged("o LOGOUT")[-1].startswith(b"o OK")
    line = two.door.process.wait_for_event("imap.session", user="alice@contoso.com")
    assert line["carried_from"] == [two.new.name]
    assert line["server"] == two.old.name


def test_what_happened_in_between_is_announced(two: Two) -> None:
    """Somebody else deletes, flags and delivers at the new server while the client still idles at the old one.

    The old Dovecot may notice by itself, for it looks at the same directory: told once, by whichever server.
    """
    for _ in range(3):
        two.deliver()
    with RawClient(two.door) as client:
        assert b"* 4 EXISTS\r\n" in client.tagged("s SELECT INBOX")
        client.idle()
        other = two.direct(two.new)
        other.store("4", "+FLAGS", r"(\Flagged)")
        other.store("2", "+FLAGS", r"(\Deleted)")
        other.expunge()
        two.move()
        wait_for_sign_in(two.old, 2)
        two.deliver()
        lines = client.until(b"* 4 EXISTS")
        lines += client.done()
        assert lines.count(b"* 2 EXPUNGE\r\n") == 1
        flagged = [line for line in lines if re.match(rb"\* [34] FETCH .*\\Flagged", line)]
        assert len(flagged) == 1, lines
        assert sum(b"FETCH" in line for line in client.tagged("f FETCH 1:4 (UID FLAGS)")) == 4
        other.logout()


def test_a_client_between_commands_goes_on_too(two: Two) -> None:
    """By Python's own client; with a mailbox that it may only read."""
    host, port = two.door.addresses["imaps"]
    with imaplib.IMAP4_SSL(host, port, ssl_context=two.door.client_context, timeout=SECONDS) as client:
        client.login("alice", "apw")
        client.select("INBOX", readonly=True)
        two.move()
        wait_for_sign_in(two.old, 1)
        assert client.noop()[0] == "OK"
        assert client.fetch("1", "(FLAGS)")[0] == "OK"
        two.move()
        wait_for_sign_in(two.old, 1)
        assert client.uid("SEARCH", "ALL")[1] == [b"1"]
    assert two.door.process.wait_for_event("imap.session", user="alice@contoso.com")["carried_from"]


def test_with_qresync_what_is_gone_is_told_by_uid(two: Two) -> None:
    for _ in range(3):
        two.deliver()
    with RawClient(two.door) as client:
        assert b"* ENABLED QRESYNC\r\n" in client.tagged("e ENABLE QRESYNC")
        client.tagged("s SELECT INBOX")
        client.idle()
        two.move()
        wait_for_sign_in(two.old, 1)
        other = two.direct(two.old)
        other.store("2", "+FLAGS", r"(\Deleted)")
        other.expunge()
        assert client.until(b"* VANISHED 2")
        assert client.done()[-1].startswith(b"i OK")
        fetched = client.tagged("f FETCH 1 (FLAGS)")
        assert b"f OK" in fetched[-1]
        other.logout()


def test_another_mailbox_is_never_taken_for_the_same(two: Two) -> None:
    """Another UIDVALIDITY at the new server: BYE, in words of a temporary fault."""
    with RawClient(two.door) as client:
        client.tagged("s SELECT INBOX")
        client.idle()
        own = two.new.directory / "dovecot.conf"
        text = own.read_text()
        own.write_text(text.replace(f"maildir:{two.old.directory}/mail/", f"maildir:{two.new.directory}/mail/"))
        two.new.stop()
        two.new.start()
        two.new.wait_ready()
        time.sleep(1.1)  # UIDVALIDITY is the second of the mailbox's making
        two.move()
        lines = client.until(b"* BYE")
        assert lines[-1].startswith(b"* BYE [UNAVAILABLE]"), lines
        assert client.line() == b""
    line = two.door.process.wait_for_event("imap.session", user="alice@contoso.com")
    assert "UIDVALIDITY" in line["reason"]


def test_a_busy_session_is_not_carried(two: Two) -> None:
    """An upload under way at the old server ends there, or is cut; it never goes on at the new one."""
    with RawClient(two.door) as client:
        client.send("a APPEND INBOX {20}")
        assert client.line().startswith(b"+")
        two.move()
        wait_for_move = time.monotonic() + 1.0
        while time.monotonic() < wait_for_move:
            assert not two.old.sign_ins()
            time.sleep(0.05)
        client.send("x" * 20)
        assert client.until(b"a ")[-1].startswith(b"a OK")


@pytest.mark.parametrize("two", ["user"], indirect=True)
def test_by_the_users_own_password(two: Two) -> None:
    """Where no master user exists."""
    with RawClient(two.door) as client:
        client.tagged("s SELECT INBOX")
        client.idle()
        two.move()
        wait_for_sign_in(two.old, 1)
        two.deliver()
        assert client.until(b"* 2 EXISTS")
        assert client.done()[-1].startswith(b"i OK")
    assert "apw" not in two.door.process.output.read_text()


def test_two_hundred_idle_sessions_and_nearly_all_are_carried(two: Two) -> None:
    """At least 95 of 100; the others get BYE, and everybody gets an answer."""
    clients = [RawClient(two.door, *(("alice", "apw"), ("bob", "bpw"), ("carol", "cpw"))[n % 3]) for n in range(200)]
    for client in clients:
        client.tagged("s SELECT INBOX")
        client.idle()
    began = time.monotonic()
    two.move()
    wait_for_sign_in(two.old, 200)
    seconds = time.monotonic() - began
    fine = 0
    for client in clients:
        lines = client.done()
        fine += lines[-1].startswith(b"i OK")
        assert lines[-1].startswith((b"i OK", b"* BYE")) or not lines[-1]
        client.tagged("o LOGOUT")
        client.__exit__()
    print(f"{fine} of {len(clients)} carried in {seconds:.2f} s")
    assert fine >= 190
    deadline = time.monotonic() + SECONDS
    while len(two.carried()) < 190:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cyrus_is_left_and_taken_up_too(servers: Servers, start_front_door: StartFrontDoor) -> None:
    """One Cyrus under two names, so that the mail is the same: its own way to answer each of our commands."""
    cyrus = servers.cyrus()

    def change(front_end: Table, organization: Table) -> None:
        front_end["carry_over_idle"] = True
        front_end["limits"] |= {"move_window_seconds": 0.2}
        organization["servers"]["MBX-03B"] = dict(organization["servers"]["MBX-03"])
        copies = [{"server": name, "preference": n} for n, name in enumerate(("MBX-03", "MBX-03B"), 1)]
        organization["databases"]["DB03"] = {"copies": copies}

    door = start_front_door(change, cyrus=True)
    with imaplib.IMAP4(cyrus.address, cyrus.ports.imap, timeout=SECONDS) as other:
        other.login("carol", "cpw")
        other.append("INBOX", "", imaplib.Time2Internaldate(0), b"Subject: one\r\n\r\none\r\n")
        other.append("INBOX", "", imaplib.Time2Internaldate(0), b"Subject: two\r\n\r\ntwo\r\n")
        other.select("INBOX")
        for enable in ("", "CONDSTORE", "QRESYNC"):
            with RawClient(door, "carol", "cpw") as client:
                if enable:
                    assert client.tagged(f"e ENABLE {enable}")[-1].startswith(b"e OK")
                there = max(int(line.split()[1]) for line in client.tagged("s SELECT INBOX") if b" EXISTS" in line)
                client.idle()
                active = json.loads(door.command("database", "list", "--json"))
                now = next(row["active"] for row in active if row["database"] == "DB03")
                other.append("INBOX", "", imaplib.Time2Internaldate(0), b"Subject: more\r\n\r\nmore\r\n")
                other.store("1", "+FLAGS", f"(key{enable or 'word'})")
                door.command("database", "activate", "DB03", "--server", "MBX-03B" if now == "MBX-03" else "MBX-03")
                told = client.until(b"* %d EXISTS" % (there + 1)) + client.done()
                assert told[-1].startswith(b"i OK"), told
                word = f"key{enable or 'word'}".encode()
                assert sum(line.startswith(b"* 1 FETCH ") and word in line for line in told) == 1, told
                assert b"n OK" in client.tagged("n NOOP")[-1]
                assert b"f OK" in client.tagged(f"f FETCH {there + 1} (UID FLAGS)")[-1]
                client.tagged("o LOGOUT")
            line = door.process.wait_for_event("imap.session", carried_from=[now])
            assert line["server"] != now
