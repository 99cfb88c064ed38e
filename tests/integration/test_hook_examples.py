"""The hooks of examples/hooks, as docs/active-manager.md uses them, with two Dovecots that each keep their own mail."""

from __future__ import annotations

import imaplib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import ACCOUNTS, FrontDoor, Servers, dovecot_tables, start

from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.toml_text import Table

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parents[2] / "examples" / "hooks" / "dovecot-sync"
A, B, DATABASE = "MBX-A", "MBX-B", "DB11"
SSH = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    -i | -o) shift 2 ;;
    root@*) host=${1#root@}; shift; break ;;
    esac
done
[ -e "LAB/$host/down" ] && exit 255
exec env -i PATH="LAB/$host:/usr/bin:/bin" sh -c "$(printf '%s' "$*" | sed 's#ssh root@#LAB/bin/ssh root@#g')"
"""
"""Stands for ssh: each server's folder LAB/NAME has the doveadm of its own Dovecot, which hands no environment on."""


class Stage:
    """A front door before two servers; the hooks run through a path that leads to this stage's `ssh`."""

    def __init__(self, servers: Servers) -> None:
        number = servers.address().rpartition(".")[2]
        self.servers: dict[str, Dovecot] = {}
        self.lab = servers.scratch / f"hooks{number}"
        (self.lab / "bin").mkdir(parents=True)
        self.lab.chmod(0o755)
        self._program(self.lab / "bin" / "ssh", SSH.replace("LAB", str(self.lab)))
        for name in (A, B):
            server = servers.new_dovecot(f"{name}{number}", servers.address())
            self.servers[name] = server
            (self.lab / name).mkdir()
            self._program(
                self.lab / name / "doveadm",
                f'#!/bin/sh\nexec /usr/bin/doveadm -c {server.directory}/dovecot.conf "$@"\n',
            )
            server.start()
            server.wait_ready()
        self.door: FrontDoor

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def change(self, front_end: Table, organization: Table) -> None:
        front_end["allow_clear_passwords"] = True
        path = f"{self.lab}/bin:{Path(sys.executable).parent}:{os.defpath}"
        configuration = Path(str(front_end["registry"])).parent / "gatepost.toml"
        environment = ["/usr/bin/env", f"PATH={path}", f"GATEPOST_CONFIG={configuration}"]
        words = [*environment, str(SCRIPT), "{kind}", "{database}", "{source}", "{target}"]
        hook = {"command": words, "seconds": 60}
        front_end["manager"] = {"services": ["imap"], "hooks": {"demote": hook, "promote": hook}}
        self.words = words
        for name, server in self.servers.items():
            organization["servers"][name] = dovecot_tables(server, tls=False)
        organization["databases"][DATABASE] = {
            "copies": [{"server": A, "preference": 1}, {"server": B, "preference": 2}]
        }

    def move(self, server: str) -> str:
        """As an operator, on a machine without a manager that acts: the command runs the hooks itself."""
        return self.door.command("database", "move", DATABASE, "--to", server)

    def at(self, name: str, user: str = "alice") -> imaplib.IMAP4:
        """A session at one Dovecot, as a front end would have it."""
        server = self.servers[name]
        client = imaplib.IMAP4(server.address, server.ports.imap, timeout=20.0)
        client.login(user, ACCOUNTS[user])
        return client

    def mail(self, name: str) -> tuple[str, list[str]]:
        """UIDVALIDITY and UIDs of alice's INBOX there, with flags."""
        client = self.at(name)
        client.select()
        validity = str(client.response("UIDVALIDITY")[1])
        found = client.uid("FETCH", "1:*", "(FLAGS)")[1]
        client.logout()
        return validity, sorted(str(line).replace("\\\\Recent", "").replace(" )", ")") for line in found)

    def fetch(self, source: str, target: str) -> subprocess.CompletedProcess[str]:
        """What a timer runs."""
        values = {"{kind}": "fetch", "{database}": DATABASE, "{source}": source, "{target}": target}
        words = [values.get(word, word) for word in self.words]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env={})

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


@pytest.fixture
def stage(servers: Servers) -> Iterator[Stage]:
    made = Stage(servers)
    try:
        users = [
            LabUser(f"{name}@contoso.com", word, database=DATABASE, login_at_server=name)
            for name, word in ACCOUNTS.items()
        ]
        made.door = start(servers, made.change, users, wait=False)
        yield made
    finally:
        made.stop()


def append(client: imaplib.IMAP4, text: str) -> None:
    assert client.append("INBOX", "(\\Seen)", None, f"Subject: {text}\r\n\r\n{text}\r\n".encode())[0] == "OK"


def subjects(stage: Stage, name: str) -> set[str]:
    """Of alice's messages there."""
    client = stage.at(name)
    client.select("INBOX", readonly=True)
    found = client.fetch("1:*", "(BODY[HEADER.FIELDS (SUBJECT)])")[1]
    client.logout()
    return {part[1].decode().partition(":")[2].strip() for part in found if isinstance(part, tuple)}


def test_a_planned_move_brings_all_mail_along(stage: Stage) -> None:
    """Sessions at the old server end, what was written until then is at the new one: same UIDVALIDITY, UIDs, flags."""
    client = stage.at(A)
    for number in range(3):
        append(client, f"number {number}")
    said = stage.move(B)
    assert f"demote {A}: done" in said
    assert f"promote {B}: done" in said
    with pytest.raises(imaplib.IMAP4.abort):
        client.noop()
    client.shutdown()
    assert stage.mail(A) == stage.mail(B)
    assert len(stage.mail(B)[1]) == 4, "a message was there from the beginning"
    back = stage.at(B)
    append(back, "written at B")
    back.logout()
    stage.move(A)
    assert len(stage.mail(A)[1]) == 5
    assert stage.mail(A) == stage.mail(B)


def test_after_a_failover_the_copy_has_what_was_fetched_last(stage: Stage) -> None:
    """The timer says so when it fails, the promotion goes on without the dead server, and nothing is taken away."""
    client = stage.at(A)
    append(client, "fetched")
    assert stage.fetch(A, B).returncode == 0
    assert stage.mail(A) == stage.mail(B)
    append(client, "too late")
    client.logout()
    (stage.lab / A / "down").touch()
    assert stage.fetch(A, B).returncode != 0
    values = {"{kind}": "promote", "{database}": DATABASE, "{source}": A, "{target}": B}
    words = [values.get(word, word) for word in stage.words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env={})
    assert (done.returncode, done.stdout) == (0, f"{A} does not answer: {B} has what was fetched last\n")
    other = stage.at(B)
    append(other, "written at B")
    other.logout()
    (stage.lab / A / "down").unlink()
    assert stage.fetch(B, A).returncode == 0
    assert stage.fetch(A, B).returncode == 0
    # Two messages got the same UID meanwhile: a sync may bring both together or not, but takes neither away.
    assert subjects(stage, A) >= {"fetched", "too late"}
    assert subjects(stage, B) >= {"fetched", "written at B"}
