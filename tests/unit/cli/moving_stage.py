"""A configuration with two copies, an embedded registry, sessions that are said to be there, and a manager to play."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gatepost.activemanager.asking import copy_service, is_asked
from gatepost.activemanager.port import MANAGER, Lease, Move, Observation
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.cli.main import run
from gatepost.service import asking
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest

CONFIGURATION = """
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
internet_facing = true
[servers.CAS-01]
site = "usa"
roles = ["client-access"]
[servers.CAS-01.endpoints]
imap = { port = 1143, tls = "clear" }
[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
fqdn = "mbx-01.contoso.com"
address = "192.0.2.11"
[servers.MBX-01.endpoints]
imap = { tls = "clear" }
[servers.MBX-02]
site = "usa"
roles = ["mailbox"]
[servers.MBX-02.endpoints]
imap = { tls = "clear" }
[servers.MBX-03]
site = "usa"
roles = ["mailbox"]
[servers.MBX-03.endpoints]
imap = { tls = "clear" }
[databases.DB01]
copies = [
    { server = "MBX-01", preference = 1 },
    { server = "MBX-03", preference = 3 },
    { server = "MBX-02", preference = 2 },
]
[databases.DB02]
copies = [ { server = "MBX-01", preference = 1 }, { server = "MBX-02", preference = 2 } ]
[databases.DB03]
copies = [ { server = "MBX-03", preference = 1 } ]
"""


class Commands:
    """Runs commands on the configuration, and says what front ends of this machine would."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.path = folder / "gatepost.toml"
        self.path.write_text(CONFIGURATION)
        self.registry = SqliteRegistry(str(folder / "registry.sqlite"))
        self.capsys = capsys
        self.sessions: list[list[dict[str, Any]]] = []
        """What each next question finds; the last answer stays."""
        self.front_ends = True
        self.asked: list[SessionsRequest | Kick] = []
        monkeypatch.setenv("GATEPOST_CONFIG", str(self.path))
        monkeypatch.setattr(asking, "all_sockets", lambda _: {"CAS-01": folder} if self.front_ends else {})
        monkeypatch.setattr(asking, "request", self._answer)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        status = run(arguments)
        out, err = self.capsys.readouterr()
        return status, out, err

    def _answer(self, _path: Path, message: SessionsRequest | Kick, _kind: type, _seconds: float) -> object:
        self.asked.append(message)
        there = self.sessions[0] if self.sessions else []
        found = [entry for entry in there if message.wanted.matches(entry)]
        if isinstance(message, Kick):
            return Kicked([(entry["session"], "closed") for entry in found], "CAS-01")
        if len(self.sessions) > 1:
            self.sessions.pop(0)
        protocols: dict[str, int] = {}
        for entry in found:
            protocols[entry["protocol"]] = protocols.get(entry["protocol"], 0) + 1
        return SessionsReply(found[: message.limit], len(found), protocols, "CAS-01")

    def add_hooks(self, **bodies: str) -> Path:
        """Hooks as Python programs that note their call in the file answered; `bodies` are run after that."""
        log = self.folder / "calls"
        log.touch()
        text = "[front_end.manager]\n"
        for kind, body in bodies.items():
            script = self.folder / f"{kind}.py"
            script.write_text(
                f"import sys, time\nopen({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))\n{body}\n"
            )
            words = [sys.executable, "-I", "-S", str(script), kind, *PLACES]
            text += f"[front_end.manager.hooks.{kind}]\ncommand = {words}\n"
        self.path.write_text(CONFIGURATION.replace("[organization]", f"{text}[organization]"))
        return log

    @contextmanager
    def manager(self, decide: Callable[[Move], str] = lambda _: "") -> Iterator[Lease]:
        """Plays a manager that takes requests up; what `decide` answers is why one came to nothing.

        "deaf": it does not look. What begins with "stands: " cannot be undone: the manager's own move stays.
        """
        lease = self.registry.take_lease(MANAGER, "CAS-02/7/abc", 60.0)
        assert lease is not None
        ended = threading.Event()
        thread = threading.Thread(target=self._manage, args=(lease, decide, ended), daemon=True)
        thread.start()
        try:
            yield lease
        finally:
            ended.set()
            thread.join()
            self.registry.give_lease_back(lease)

    def _manage(self, lease: Lease, decide: Callable[[Move], str], ended: threading.Event) -> None:
        while not ended.wait(0.02):
            for move in self.registry.view().moves.values():
                if not is_asked(move):
                    continue
                fault = decide(move)
                if fault == "deaf":
                    continue
                self.registry.end_move(move.database, lease)
                if fault.startswith("stands: "):
                    self.registry.begin_move(replace(move, reason="manager's term 1: an operator asked for it"), lease)
                    fault = fault.removeprefix("stands: ")
                if fault:
                    seen = Observation(move.target, copy_service(move.database), False, time.time(), fault)
                    self.registry.observe([seen], lease)
                else:
                    self.registry.activate(move.database, move.target, move.epoch, lease)


PLACES = ["{database}", "{source}", "{target}", "{server}", "{epoch}", "{term}"]


def session(number: int, protocol: str = "imap", user: str = "anna@contoso.com", **more: str) -> dict[str, Any]:
    """An entry of a front end's list, of DB01 at MBX-01."""
    entry = {
        "session": f"s{number}",
        "protocol": protocol,
        "phase": "relaying",
        "client": "192.0.2.77",
        "user": user,
        "database": "DB01",
        "server": "MBX-01",
        "epoch": 1,
        "since": 1.0,
        "seconds": 1.0,
    }
    return entry | more
