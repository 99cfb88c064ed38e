"""A move under load: a part of the lab, clients in processes of their own, databases that move, and what came of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import msgspec

from gatepost.activemanager.open import open_registry
from gatepost.activemanager.port import RegistryUnavailable
from gatepost.configuration.load import load
from gatepost.configuration.settings import FrontEnd
from gatepost.lab import figure, own_submission
from gatepost.lab.fleet import Fleet, Variant
from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.process import ServerMissing, ServerProcess
from gatepost.proving import machine, processors
from gatepost.proving.clients import Task
from gatepost.proving.history import Client, Event, History, Moved, What, evaluate, missed_goals, summary
from gatepost.proving.plan import FRONTS, MAILBOX_SETTINGS, SUBMISSION_SETTINGS, ramp, shares, tasks, users
from gatepost.proving.relay import new_relay, relayed
from gatepost.service.asking import sessions_at

Say = Callable[[str], None]

A, B = figure.SHARING
PER_PROCESS = 400
"""Clients of one process."""
BACK_SECONDS = 60.0
"""After a move: how long all clients may take until they are at work again, before they count as lost."""
FENCE_SECONDS = 11.0
"""After a planned move at the latest: `move_forced_seconds` and a moment."""
WATCH_SECONDS = 0.005
"""Between two looks at whether the registry's files have changed: how exactly "B is active" is known."""
LOOK_SECONDS = 0.05
"""The registry is read after so long even if its files look unchanged."""
LIST_SECONDS = 0.25
"""Between two questions for the sessions at the old server: each costs the front ends a look at all of theirs."""


class ClientsFailed(RuntimeError):
    """The clients did not come to work, or their process broke: nothing is proved."""


class Clients:
    """All clients, and what they wrote down so far."""

    def __init__(self, fleet: Fleet, all_tasks: list[Task]) -> None:
        self.clients = [Client(t.name, t.kind, t.user, t.database) for t in all_tasks]
        self.events: list[Event] = []
        self.last_ok: dict[str, Event] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._faults = fleet.directory / "clients.log"
        processes = max(1, min(os.cpu_count() or 1, len(all_tasks) // PER_PROCESS))
        for number in range(processes):
            self._start({"ca": str(fleet.ca), "tasks": [asdict(task) for task in all_tasks[number::processes]]})

    def _start(self, given: dict[str, Any]) -> None:
        with self._faults.open("ab") as faults:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gatepost.proving.client_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=faults,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.flush()
        reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        reader.start()
        self._processes.append(process)
        self._readers.append(reader)

    @property
    def pids(self) -> list[int]:
        """Of their processes."""
        return [process.pid for process in self._processes]

    def _read(self, lines: IO[bytes]) -> None:
        decode = msgspec.json.Decoder(Event).decode
        for line in lines:
            event = decode(line)
            self.events.append(event)
            if event.what == What.OK:
                self.last_ok[event.client] = event

    def order(self, text: str) -> None:
        """Tell all processes."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(text.encode() + b"\n")
                process.stdin.flush()

    def wait_at_work(self, since: float, names: Iterable[str], seconds: float) -> list[str]:
        """Wait until these had a success after `since`; answers who had none in time. Raises `ClientsFailed`."""
        deadline = time.monotonic() + seconds
        waiting = list(names)
        while waiting and time.monotonic() < deadline:
            if any(process.poll() is not None for process in self._processes):
                raise ClientsFailed(f"a process of clients has ended: {self._faults.read_text()[-2000:]}")
            time.sleep(0.1)
            waiting = [name for name in waiting if (e := self.last_ok.get(name)) is None or e.at < since]
        return waiting

    def stop(self) -> None:
        """End them, and wait for all that they wrote. Raises `ClientsFailed` when a script broke."""
        self.order("stop")
        for process in self._processes:
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join(10)
        broken = [process.returncode for process in self._processes if process.returncode]
        self._processes.clear()
        if broken:
            raise ClientsFailed(f"clients ended with {broken}: {self._faults.read_text()[-2000:]}")


@dataclass(frozen=True, slots=True)
class Seen:
    """A database has another active copy."""

    database: str
    server: str
    at: float


class Watcher:
    """Looks at the registry all the time, and pokes the clients of a database that has another active copy."""

    def __init__(self, fleet: Fleet, clients: Clients) -> None:
        self._front_end = fleet_front_end(fleet)
        self._clients = clients
        self._ended = threading.Event()
        self.seen: dict[str, Seen] = {}
        """The last change of each database."""
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        with closing(open_registry(self._front_end)) as registry:
            before: dict[str, str] = {}
            changed, looked_at = "", 0.0
            while not self._ended.wait(WATCH_SECONDS):
                # Reading costs 0.3 ms, which the front ends need.
                was, changed = changed, machine.last_change(self._front_end.registry)
                if was == changed and time.monotonic() - looked_at < LOOK_SECONDS:
                    continue
                looked_at = time.monotonic()
                try:
                    active = {name: copy.server for name, copy in registry.view().active.items()}
                except RegistryUnavailable:
                    continue
                now = time.monotonic()
                for name, server in active.items():
                    if before.get(name, server) != server:
                        self.seen[name] = Seen(name, server, now)
                        self._clients.order(f"poke {name} {before[name]}")
                before = active

    def wait(self, database: str, since: float, seconds: float) -> Seen | None:
        """The change of a database after `since`; None when there is none in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.seen.get(database)
            if found is not None and found.at >= since:
                return found
            time.sleep(WATCH_SECONDS)
        return None

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(5)


def prove_move(directory: Path, *, sessions: int, seconds: float, kill: bool, say: Say) -> dict[str, Any]:
    """Run it all in an empty directory; the report. Raises what `Fleet.start` raises, and `ClientsFailed`."""
    before = machine.load()
    machine.raise_open_files()
    known = users(2 * sessions)
    sink: ServerProcess | None = None
    left_out = []
    try:
        sink = new_relay(directory / "sink")
    except ServerMissing as missing:
        left_out.append(f"submission: {missing}")
        say(f"Left out: {left_out[-1]}")
    total = sum(shares(sessions, submission=sink is not None).values())
    variant = Variant(
        servers=(*FRONTS, A, B),
        users=known,
        limits={"unauthenticated_per_address": 20000, "password_checks": 20000, "password_checks_per_address": 20000},
        manager={},
        mailbox_settings=MAILBOX_SETTINGS + (SUBMISSION_SETTINGS if sink is not None else ""),
        relay=sink.ready[0] if sink is not None else None,
    )
    ports = figure.choose_ports(root=False, can=lambda _address, _port: False)  # a lab may run beside it
    with ExitStack() as stack:
        if sink is not None:
            own_submission.choose_ports(ports, variant.servers)
            sink.start()
            stack.callback(sink.stop)
            sink.wait_ready()
        fleet = stack.enter_context(Fleet(directory, ports, builtin=False, variant=variant))
        say(f"Starting {' and '.join(FRONTS)} before {A} and {B}, {len(known)} users, {total} clients …")
        fleet.start()
        with _clients(fleet, sessions) as clients:
            lost = clients.wait_at_work(0.0, [c.name for c in clients.clients], ramp(total) + BACK_SECONDS)
            say(f"{total - len(lost)} of {total} clients are at work.")
            if len(lost) > total // 10:
                raise ClientsFailed(f"{len(lost)} of {total} clients did not come to work, {lost[0]} for one")
            time.sleep(seconds)
            watcher = Watcher(fleet, clients)
            during = machine.load()
            whose = {process.pid: process.name for process in fleet.processes}
            whose |= dict.fromkeys(clients.pids, "clients") | {os.getsid(0): "proving"}
            whose |= {sink.pid: "sink"} if sink is not None else {}
            first = processors.read(whose)
            moves, connected = _kill(fleet, clients, watcher, say) if kill else _planned(fleet, clients, watcher, say)
            used = processors.between(first, processors.read(whose), total)
            time.sleep(seconds)
            watcher.close()
            during = max(during, machine.load(), key=lambda found: found["load_1m"])
            clients.stop()
            history = History(
                clients.clients,
                clients.events,
                moves,
                stored(directory / "shared-mail"),
                relayed(sink),
                connected,
                _sign_ins(fleet),
            )
    loads = {"before": before, "during": during, "processors": used}
    return _report(history, sessions, loads, left_out, kill=kill)


def _report(
    history: History, sessions: int, loads: dict[str, Any], left_out: list[str], *, kill: bool
) -> dict[str, Any]:
    report = evaluate(history)
    missed = missed_goals(report, kill=kill)
    return {
        "summary": summary(report, missed, kill=kill),
        "ok": not missed,
        "missed": missed,
        "kind": "kill" if kill else "planned",
        "sessions_per_protocol": sessions,
        "machine": loads,
        "left_out": left_out,
        **report,
    }


@contextmanager
def _clients(fleet: Fleet, sessions: int) -> Iterator[Clients]:
    clients = Clients(fleet, tasks(fleet, sessions))
    try:
        yield clients
    finally:
        clients.stop()


def _concerned(clients: Clients, database: str) -> list[str]:
    return [client.name for client in clients.clients if client.database == database]


def _back(clients: Clients, database: str, since: float, say: Say) -> None:
    left = clients.wait_at_work(since, _concerned(clients, database), BACK_SECONDS)
    say(f"{database}: all at work again" if not left else f"{database}: {len(left)} not at work again, {left[0]} …")


def _planned(fleet: Fleet, clients: Clients, watcher: Watcher, say: Say) -> tuple[list[Moved], int]:
    """Each database is moved to the other server, by the command that an operator has."""
    moves, front_end = [], fleet_front_end(fleet)
    for database in figure.SHARED:
        say(f"gatepost database move {database} --to {B}")
        began = time.monotonic()
        fleet.command("database", "move", database, "--to", B)
        seen = watcher.wait(database, began, 5.0)
        if seen is None:
            raise ClientsFailed(f"the registry never had {database} on {B}")
        listed = _listed(front_end, database, seen.at + FENCE_SECONDS)
        fence = time.monotonic()
        say(f"{database}: {listed} sessions are at {A}, {fence - seen.at:.1f} s after {B} was active")
        moves.append(Moved(database, A, B, seen.at, fence, listed_left=listed))
        _back(clients, database, seen.at, say)
    return moves, _connected(fleet)


def _kill(fleet: Fleet, clients: Clients, watcher: Watcher, say: Say) -> tuple[list[Moved], int]:
    """The server of all databases dies, web part and all."""
    say(f"kill -9 of {A}")
    servers = (fleet.mailbox_servers[A], fleet.web_servers[A])
    began = time.monotonic()
    for server in servers:
        os.killpg(server.pid, signal.SIGKILL)
    for server in servers:
        server.wait(5.0)
    moves, front_end = [], fleet_front_end(fleet)
    for database in figure.SHARED:
        seen = watcher.wait(database, began, BACK_SECONDS)
        if seen is None:
            raise ClientsFailed(f"{database} was not failed over within {BACK_SECONDS:g} s")
        say(f"{database}: active on {seen.server} {seen.at - began:.2f} s after the death")
        moves.append(Moved(database, A, seen.server, seen.at, killed_at=began))
    for move in moves:
        _back(clients, move.database, move.active_at, say)
    moves = [replace(move, listed_left=_listed(front_end, move.database, 0.0)) for move in moves]
    return moves, _connected(fleet)


def _listed(front_end: FrontEnd, database: str, until: float) -> int:
    """Sessions of a database that the front ends list at the old server: none, or how many are left at `until`.

    A worker that has its hands full may not answer in time; it is asked again. Raises `ClientsFailed` when one stays
    silent.
    """
    silent_at = max(until, time.monotonic()) + BACK_SECONDS
    while True:
        found = sessions_at(front_end, database, A, limit=1)
        now = time.monotonic()
        if found.is_whole and (not found.total or now > until):
            return found.total
        if now > silent_at:
            raise ClientsFailed(f"not every front end said who is connected: {found.lines()}")
        time.sleep(LIST_SECONDS)


def fleet_front_end(fleet: Fleet) -> FrontEnd:
    """What the configuration says of the front ends."""
    loaded = load(str(fleet.configuration))
    assert loaded.configuration is not None
    return loaded.configuration.front_end


def _connected(fleet: Fleet) -> int:
    """Mail connections at the old server, by the kernel: those that are there twice, for probes come and go."""
    server = fleet.mailbox_servers[A]
    ports = {port for _, port in server.ready}
    address = server.ready[0][0]
    first = machine.connections_at(address, ports, machine.tcp_table())
    time.sleep(1.5)
    return len(first & machine.connections_at(address, ports, machine.tcp_table()))


def stored(mail: Path) -> dict[str, Counter[str]]:
    """By user: how often each Message-ID is in the INBOX, by the files."""
    found: dict[str, Counter[str]] = {}
    for home in mail.iterdir():
        count = found[f"{home.name}@{figure.DOMAIN}"] = Counter()
        for part in ("new", "cur"):
            for path in (home / "Maildir" / part).glob("*"):
                with path.open("rb") as opened:
                    match = re.search(rb"^Message-ID: (\S+)", opened.read(1024), re.IGNORECASE | re.MULTILINE)
                if match:
                    count[match[1].decode()] += 1
    return found


def _sign_ins(fleet: Fleet) -> dict[str, list[float]]:
    """Sign-ins at the new server, by the second of its log."""
    server = fleet.mailbox_servers[B]
    assert isinstance(server, Dovecot)
    lines = [line for line in server.log_text().splitlines() if " Login: " in line]
    year = time.strftime("%Y")
    return {B: [time.mktime(time.strptime(f"{year} {line[:15]}", "%Y %b %d %H:%M:%S")) for line in lines]}
