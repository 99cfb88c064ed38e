"""The supervisor and its workers as real processes: deaths, reloads, drains. The core is an echo (`echo_core`)."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_kit import ADDRESS, PATIENCE_SECONDS, Line, Service, is_running, until

from gatepost.cli.main import run
from gatepost.lab.servers.process import free_ports

_numbers = itertools.count(1)


@pytest.fixture
def make_service(scratch: Path) -> Iterator[Callable[..., Service]]:
    """Makes services that are ended after the test."""
    made: list[Service] = []

    def make(**options: object) -> Service:
        made.append(Service(scratch / f"service-{next(_numbers)}", **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for service in made:
        service.stop()


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    """A service with one endpoint and one worker, not started."""
    return make_service()


class Knocking(threading.Thread):
    """Connects again and again and asks who answers; notes what went wrong and how long each answer took."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.stopping = threading.Event()
        self.refused = 0
        self.cut_off = 0
        self.answers: list[tuple[float, str, float]] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                line = Line(self.port)
                self.answers.append((time.monotonic(), line.ask("pid"), time.monotonic() - began))
                line.close()
            except ConnectionRefusedError:
                self.refused += 1
            except OSError:
                self.cut_off += 1

    def end(self) -> None:
        self.stopping.set()
        self.join(PATIENCE_SECONDS)


def test_killed_worker_is_replaced_and_nobody_is_refused(service: Service) -> None:
    """A worker is killed under load: its replacement takes over the waiting connections; none is refused."""
    service.start()
    old = service.workers()[0]
    knocking = [Knocking(service.ports["imap"]) for _ in range(4)]
    for thread in knocking:
        thread.start()
    until(lambda: all(len(t.answers) > 20 for t in knocking), "load")
    os.kill(old, signal.SIGKILL)
    killed = time.monotonic()
    until(
        lambda: all(any(pid not in {"", str(old)} for _, pid, _ in t.answers[-5:]) for t in knocking),
        "answers of the new one",
    )
    for thread in knocking:
        thread.end()
    first = min(at for t in knocking for at, pid, _ in t.answers if pid not in {"", str(old)}) - killed
    assert sum(t.refused for t in knocking) == 0
    assert sum(t.cut_off for t in knocking) + sum(pid == "" for t in knocking for _, pid, _ in t.answers) <= 4
    # 0.5 s where nothing else runs; the machine of a test run may be busy.
    assert first < 3.0, f"the replacement answered after {first:.2f} s"
    assert service.status().restarts == 1
    assert service.event("worker.ended")["how"] == "killed by SIGKILL"


def test_worker_that_keeps_dying_is_held_back(service: Service) -> None:
    """The second death soon after a start makes the supervisor wait before it tries again."""
    service.start()
    for count in (1, 2):
        os.kill(service.workers()[0], signal.SIGKILL)
        service.event("worker.ready", count + 1)
    assert service.event("worker.held_back")["seconds"] == 0.5
    assert Line(service.ports["imap"]).greeting == b"hello\n"


def test_workers_end_when_the_supervisor_is_killed(service: Service) -> None:
    """Workers see the end of their control connection, drain and end; the port is free for the next start."""
    service.settings["workers"] = 2
    service.limits["drain_seconds"] = 1.0
    service.write()
    service.start()
    workers = service.workers()
    line = Line(service.ports["imap"])
    service.signal(signal.SIGKILL)
    service.wait()
    assert line.ask("still here") == "still here", "a session may go on until the deadline"
    until(lambda: not any(map(is_running, workers)), "the end of the workers")
    assert line.at_end()
    service.start(wait=False)
    service.event("service.started", 2)


def test_sigterm_drains(service: Service) -> None:
    """SIGTERM: new connections are refused, the session goes on until it ends, then the exit status is 0."""
    service.start()
    line = Line(service.ports["imap"])
    service.signal(signal.SIGTERM)
    service.event("service.draining")
    until(lambda: refused(service.ports["imap"]), "refusal of new connections")
    assert line.ask("pid").isdigit()
    line.close()
    assert service.wait() == 0
    assert service.events("service.ended")


def test_drain_ends_at_its_deadline(service: Service) -> None:
    """A session that does not end by itself is ended at `drain_seconds`; the exit status is 0 all the same."""
    service.limits["drain_seconds"] = 0.5
    service.write()
    service.start()
    line = Line(service.ports["imap"])
    service.signal(signal.SIGINT)
    began = time.monotonic()
    assert line.at_end()
    assert 0.4 < time.monotonic() - began < 5.0
    assert service.wait() == 0
    assert "killed" not in service.event("worker.ended")["how"]


def test_second_sigterm_ends_at_once(service: Service) -> None:
    """An operator who cannot wait sends SIGTERM again."""
    service.start()
    line = Line(service.ports["imap"])
    service.signal(signal.SIGTERM)
    service.event("service.draining")
    service.signal(signal.SIGTERM)
    assert service.wait(5.0) == 0
    assert line.at_end()


def test_renewal_or_reload_within_a_drain_starts_nothing(service: Service) -> None:
    """SIGTERM, then SIGUSR2 and SIGHUP: no new worker, no new configuration; the drain ends as if they had not come."""
    service.start()
    line = Line(service.ports["imap"])
    service.signal(signal.SIGTERM)
    service.event("service.draining")
    service.settings["workers"] = 3
    service.write()
    service.signal(signal.SIGUSR2)
    service.signal(signal.SIGHUP)
    assert line.ask("version") == "1"
    line.close()
    assert service.wait() == 0
    assert len(service.events("worker.ready")) == 1
    unwanted = ("service.renewing", "configuration.reloaded", "configuration.rejected")
    assert [event for name in unwanted for event in service.events(name)] == []


def test_stop_within_a_reload_wins(service: Service) -> None:
    """SIGTERM while the new file is being read: what it asks for is neither opened nor started."""
    service.start()
    line = Line(service.ports["imap"])
    service.settings["workers"] = 3
    service.ports["pop3"] = free_ports(ADDRESS, 1)[0]
    service.write()
    workers = set(service.workers())
    service.signal(signal.SIGHUP)
    (loader,) = until(lambda: service.children() - workers, "the loader")
    os.kill(loader, signal.SIGSTOP)
    service.signal(signal.SIGTERM)
    service.event("service.draining")
    os.kill(loader, signal.SIGCONT)
    until(lambda: service.children() == workers, "the end of the loader")
    assert line.ask("version") == "1"
    assert refused(service.ports["pop3"])
    line.close()
    assert service.wait() == 0
    assert len(service.events("worker.ready")) == 1
    assert service.events("configuration.reloaded") == []


def test_reload_adds_and_removes_listeners(service: Service) -> None:
    """SIGHUP opens new endpoints and closes those that are gone; a session of a closed one goes on."""
    service.start()
    session = Line(service.ports["imap"])
    old_port = service.ports.pop("imap")
    service.ports["pop3"] = free_ports(ADDRESS, 1)[0]
    service.write()
    assert service.reload()["event"] == "configuration.reloaded"
    assert Line(service.ports["pop3"]).ask("version") == "2"
    until(lambda: refused(old_port), "refusal at the closed endpoint")
    assert session.ask("version") == "2", "same session, same worker, new configuration"


def test_endpoint_moves_to_another_port(service: Service) -> None:
    """An endpoint of the same name with another port: the new port answers, the old one refuses."""
    service.start()
    old_port = service.ports["imap"]
    service.ports["imap"] = free_ports(ADDRESS, 1)[0]
    service.write()
    service.reload()
    assert Line(service.ports["imap"]).ask("here") == "here"
    until(lambda: refused(old_port), "refusal at the old port")


def test_the_status_command_asks_the_running_front_end(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    """Its workers by pid and sessions; afterwards it is said not to run."""
    service.settings["workers"] = 2
    service.write()
    service.start()
    assert service.process is not None
    session = Line(service.ports["imap"])
    assert session.ask("here") == "here"
    arguments = ["status", "--json", "-c", str(service.folder / "gatepost.toml")]
    assert run(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["server"], found["pid"], found["version"]) == ("CAS-01", service.process.pid, 1)
    assert [worker["pid"] for worker in found["workers"]] == service.workers()
    assert [worker["state"] for worker in found["workers"]] == ["ready", "ready"]
    assert sum(worker["counters"]["sessions"] for worker in found["workers"]) == 1
    assert run(["status", "--all", *arguments[2:]]) == 0
    assert capsys.readouterr().out.startswith(f"CAS-01: pid {service.process.pid}, ")
    service.stop()
    assert run(arguments) == 1


def test_broken_file_keeps_the_old_configuration(service: Service) -> None:
    """SIGHUP with a bad file: each finding is logged, as bad as it is, and the service goes on as before.

    The next good file is taken.
    """
    service.start()
    before = len(service.events("configuration.finding"))
    lone = '[databases.LONE]\ncopies = [{ server = "MBX-01" }]\n'
    service.write(broken='[servers.MBX-02]\nsite = "nowhere"\nroles = ["mailbox"]\n' + lone)
    assert service.reload()["event"] == "configuration.rejected"
    found = {e["finding"]: e["level"] for e in service.events("configuration.finding")[before:]}
    assert [level for text, level in found.items() if "nowhere" in text] == ["error"]
    assert [level for text, level in found.items() if "LONE" in text] == ["warning"]
    assert Line(service.ports["imap"]).ask("version") == "1"
    service.write()
    assert service.reload() | {"version": 0} == service.event("configuration.reloaded") | {"version": 0}


def test_port_in_use_keeps_the_old_configuration(service: Service) -> None:
    """SIGHUP with a new endpoint whose port is taken: nothing changes, and the log names endpoint and remedy."""
    service.start()
    with socket.create_server((ADDRESS, 0)) as other:
        service.ports["pop3"] = other.getsockname()[1]
        service.write()
        assert service.reload()["event"] == "configuration.rejected"
    finding = next(e["finding"] for e in service.events("configuration.finding") if "pop3" in e["finding"])
    assert "Another process has this port" in finding
    assert Line(service.ports["imap"]).ask("version") == "1"


def test_a_reload_without_descriptors_keeps_the_old_configuration(service: Service, scratch: Path) -> None:
    """The supervisor may open no file: the reload is rejected, the service manager told so, the next one succeeds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        path = scratch / f"notify-{next(_numbers)}"
        manager.bind(str(path))
        manager.settimeout(PATIENCE_SECONDS)
        service.settings["log_file"] = "gatepost.log"
        service.write()
        service.start(environment={"NOTIFY_SOCKET": str(path)})
        assert service.process is not None
        service.event("worker.ready")
        pid, before = service.process.pid, resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        lowest_free = next(number for number in itertools.count() if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
        assert service.reload()["event"] == "configuration.rejected"
        assert any("Too many open files" in e["finding"] for e in service.events("configuration.finding"))
        assert Line(service.ports["imap"]).ask("version") == "1"
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert service.reload()["event"] == "configuration.reloaded"
        told: list[str] = []
        while len(told) < 5:
            told.append(manager.recv(4096).decode().partition("\n")[0])
        assert told == ["READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1"]


def test_number_of_workers_follows_the_file(service: Service) -> None:
    """SIGHUP with more workers starts them, with fewer drains the last ones; sessions there go on."""
    service.start()
    service.settings["workers"] = 3
    service.write()
    service.reload()
    until(lambda: sum(w.state == "ready" for w in service.status().workers) == 3, "three workers")
    lines = [Line(service.ports["imap"]) for _ in range(30)]
    pids = {line.ask("pid") for line in lines}
    assert len(pids) > 1, "the kernel spreads connections over the workers' sockets"
    service.settings["workers"] = 1
    service.write()
    service.reload()
    assert {line.ask("pid") for line in lines} == pids
    for line in lines:
        line.close()
    until(lambda: len(service.status().workers) == 1, "one worker")


def test_worker_that_objects_is_replaced(service: Service) -> None:
    """A worker that cannot take a configuration up in place gives way to one that starts with it."""
    service.start()
    line = Line(service.ports["imap"])
    service.organization = "OBJECT"
    service.write()
    assert "cannot change in place" in str(service.reload()["objections"])
    until(lambda: Line(service.ports["imap"]).ask("version") == "2", "a worker with the new configuration")
    assert line.ask("version") == "1"


def test_renewal_replaces_workers_without_a_gap(service: Service) -> None:
    """SIGUSR2: new processes take over while clients connect; none is refused, old sessions go on."""
    service.start()
    session = Line(service.ports["imap"])
    old = session.ask("pid")
    knocking = Knocking(service.ports["imap"])
    knocking.start()
    service.signal(signal.SIGUSR2)
    until(lambda: any(pid != old for _, pid, _ in knocking.answers), "answers of the new worker")
    service.event("worker.ready", 2)
    until(lambda: all(pid != old for _, pid, _ in knocking.answers[-20:]), "answers of the new worker only")
    knocking.end()
    assert (knocking.refused, knocking.cut_off) == (0, 0)
    assert session.ask("pid") == old


def test_worker_told_to_end_is_replaced_first(service: Service) -> None:
    """SIGTERM to one worker: it hands over to a replacement before it drains."""
    service.start()
    session = Line(service.ports["imap"])
    old = int(session.ask("pid"))
    os.kill(old, signal.SIGTERM)
    until(lambda: Line(service.ports["imap"]).ask("pid") not in {str(old), ""}, "a replacement")
    session.close()
    until(lambda: not is_running(old), "the end of the old worker")
    assert service.status().restarts == 0


def test_hanging_worker_is_killed_and_replaced(service: Service) -> None:
    """A worker whose loop stands still answers no pings: it is killed, and its replacement serves."""
    service.start(environment={"PING_SECONDS": "0.1"})
    old = service.workers()[0]
    Line(service.ports["imap"]).ask_nothing("hang")
    assert service.event("worker.hangs")["worker"] == old
    service.event("worker.ready", 2)
    assert Line(service.ports["imap"]).ask("on") == "on"


def test_unexpected_faults_are_logged_and_counted(service: Service) -> None:
    """A fault in a callback ends up in the log with its traceback and in the counters; the worker goes on."""
    service.start()
    Line(service.ports["imap"]).ask_nothing("fault")
    event = service.event("worker.fault")
    assert "RuntimeError: asked for" in event["traceback"]
    status = service.status().workers[0].status
    assert status is not None
    assert status.counters["faults"] == 1
    assert Line(service.ports["imap"]).ask("on") == "on"


def test_log_lines_hide_secrets(service: Service) -> None:
    """A value under a secret's key does not reach the log, even when a session passes one."""
    service.start()
    Line(service.ports["imap"]).close()
    event = service.event("echo.session")
    assert event["password"] == "…"
    assert event["process"] == "worker-0"


def test_status_lists_sessions(service: Service) -> None:
    """The operators' socket lists the sessions of all workers; only its owner may connect."""
    service.start()
    line = Line(service.ports["imap"])
    assert line.ask("there") == "there"
    status = service.status()
    assert (status.server, status.version) == ("CAS-01", 1)
    assert status.workers[0].status is not None
    assert len(status.workers[0].status.sessions) == 1
    assert (service.folder / "state" / "gatepost-CAS-01.sock").stat().st_mode & 0o777 == 0o600


def refused(port: int) -> bool:
    """Whether a connection is refused."""
    try:
        socket.create_connection((ADDRESS, port), timeout=PATIENCE_SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False
