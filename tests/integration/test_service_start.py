"""Starting and running `gatepost serve`: what keeps it from starting, privileges, logs, certificates, the manager."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_kit import ADDRESS, ECHO, PATIENCE_SECONDS, REAL, Line, Service, is_running, until

from gatepost.lab.servers.process import free_ports

_numbers = itertools.count(1)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing the account needs root: sudo pytest …")
NOBODY = 65534


@pytest.fixture
def make_service(scratch: Path) -> Iterator[Callable[..., Service]]:
    """Makes services that are ended after the test."""
    made: list[Service] = []

    def make(**options: object) -> Service:
        folder = scratch / f"start-{next(_numbers)}"
        made.append(Service(folder, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for service in made:
        service.stop()


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    """A service with one endpoint and one worker, not started."""
    return make_service()


def as_nobody(service: Service) -> None:
    """Has the workers run as nobody, who owns the state folder and may read nothing else."""
    service.settings["user"] = "nobody"
    os.chown(service.folder / "state", NOBODY, NOBODY)
    service.write()


def status_line(pid: int, name: str) -> list[str]:
    """The values of a line of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{name}:"))


# What keeps it from starting


def test_command_line_reports_a_port_in_use(service: Service) -> None:
    """`gatepost serve` on a taken port: exit status 1, one message with the endpoint and the remedy."""
    with socket.create_server((ADDRESS, service.ports["imap"])):
        command = [sys.executable, "-m", "gatepost", "serve", "-c", str(service.folder / "gatepost.toml")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert ended.returncode == 1
    assert f"Endpoint imap ({ADDRESS}:{service.ports['imap']})" in ended.stderr
    assert "ss -ltnp" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_second_start_of_the_same_front_end_fails(service: Service) -> None:
    """The same configuration started twice: the second says which process runs, the first is undisturbed."""
    service.start()
    assert service.process is not None
    first = service.process
    service.start(wait=False)
    assert service.wait() == 1
    assert f"already runs here (process {first.pid}" in service.text()
    service.process = first
    assert Line(service.ports["imap"]).ask("on") == "on"


def test_second_front_end_on_the_same_port_fails(make_service: Callable[..., Service]) -> None:
    """Another front end with the same port but other stores would share the port by SO_REUSEPORT: it is refused."""
    first, second = make_service(), make_service()
    first.start()
    second.ports = dict(first.ports)
    second.write()
    second.start(wait=False)
    assert second.wait() == 1
    assert "Another process has this port" in second.text()


def test_broken_configuration_fails_with_every_finding(service: Service) -> None:
    """All findings on standard error, exit status 1."""
    service.write(broken='[servers.MBX-02]\nsite = "nowhere"\nroles = ["mailbox"]\n[databases.DB02]\ncopies = []\n')
    service.start(wait=False)
    assert service.wait() == 1
    assert "nowhere" in service.text()
    assert "DB02" in service.text()


def test_key_of_another_certificate_fails(service: Service) -> None:
    """A certificate and key that do not belong together are found before anything listens."""
    key = (service.folder / "front.key").read_bytes()
    service.new_certificate()
    (service.folder / "front.key").write_bytes(key)
    service.start(wait=False)
    assert service.wait() == 1
    assert "key" in service.text()


def test_no_worker_can_start(service: Service) -> None:
    """When every first worker fails the service ends with status 1 and what the workers said."""
    service.organization = "REFUSE"
    service.settings["workers"] = 2
    service.write()
    service.start(wait=False)
    assert service.wait() == 1
    assert "this core was told not to start" in service.text().splitlines()[-1]


def test_unknown_account_fails(service: Service) -> None:
    """An account that does not exist is named together with the command that makes it."""
    service.settings["user"] = "no-such-account"
    service.write()
    service.start(wait=False)
    assert service.wait() == 1
    assert "useradd --system no-such-account" in service.text()


@as_root
def test_a_state_folder_closed_to_the_workers_fails(service: Service) -> None:
    """Rather than run, look healthy and let nobody in: the folder and the command that gives it away are named."""
    service.settings["user"] = "nobody"
    service.write()
    service.start(wait=False)
    assert service.wait() == 1
    assert f"chown nobody {service.folder / 'state'}" in service.text()


# Privileges


@as_root
def test_workers_have_no_privileges(service: Service) -> None:
    """Workers run as the account, with no capability, no way to regain any, and no core dumps."""
    as_nobody(service)
    service.start()
    worker = service.workers()[0]
    assert status_line(worker, "Uid") == [str(NOBODY)] * 4
    assert status_line(worker, "Gid") == [str(NOBODY)] * 4
    assert set(status_line(worker, "Groups")) <= {str(NOBODY)}
    assert int(status_line(worker, "CapPrm")[0], 16) == int(status_line(worker, "CapEff")[0], 16) == 0
    assert status_line(worker, "NoNewPrivs") == ["1"]
    limits = Path(f"/proc/{worker}/limits").read_text()
    assert "Max core file size        0                    0" in limits
    # A process that is not dumpable belongs to root in /proc, whatever its user.
    assert Path(f"/proc/{worker}/maps").stat().st_uid == 0


@as_root
def test_key_that_only_root_can_read(make_service: Callable[..., Service]) -> None:
    """Workers of another account serve with a key they cannot read, after a reload and a restart of a worker too."""
    service = make_service(core=REAL, endpoints=("imap", "imaps"))
    as_nobody(service)
    service.folder.chmod(0o700)
    os.chown(service.folder, 0, 0)
    service.folder.chmod(0o711)
    (service.folder / "gatepost.toml").chmod(0o600)
    service.start()
    first = fingerprint(service)
    service.new_certificate()
    assert service.reload()["objections"] == []
    second = fingerprint(service)
    assert second != first
    os.kill(service.workers()[0], signal.SIGKILL)
    service.event("worker.ready", 2)
    assert fingerprint(service) == second
    assert (service.folder / "state" / "registry.sqlite").stat().st_uid == NOBODY


@as_root
def test_no_secrets_in_arguments_and_environment(service: Service) -> None:
    """Command line and environment of a worker hold no key, and a worker cannot speak for the service."""
    service.start(environment={"NOTIFY_SOCKET": "/nonexistent"})
    worker = service.workers()[0]
    visible = Path(f"/proc/{worker}/cmdline").read_bytes() + Path(f"/proc/{worker}/environ").read_bytes()
    assert b"PRIVATE KEY" not in visible
    assert b"NOTIFY_SOCKET" not in visible


def test_stores_are_given_away_but_never_through_a_link(tmp_path: Path) -> None:
    """Root gives a store to the workers' account, but not what a planted link leads to."""
    if os.geteuid() != 0:
        pytest.skip("changing owners needs root")
    from gatepost.service import privileges, stores

    account = privileges.account("nobody")
    victim = tmp_path / "shadow"
    victim.touch()
    store = tmp_path / "registry.sqlite"
    store.touch()
    (tmp_path / "registry.sqlite-wal").symlink_to(victim)
    stores._give(str(store), account)
    assert store.stat().st_uid == NOBODY
    assert victim.stat().st_uid == 0


# Certificates, with the real front door


def fingerprint(service: Service) -> str:
    """SHA-256 of the certificate a new handshake shows."""
    with connect_tls(service) as tls:
        return hashlib.sha256(tls.getpeercert(binary_form=True) or b"").hexdigest()


def connect_tls(service: Service) -> ssl.SSLSocket:
    """A verified connection to `imaps`."""
    context = ssl.create_default_context(cafile=str(service.authority.certificate))
    sock = socket.create_connection((ADDRESS, service.ports["imaps"]), timeout=PATIENCE_SECONDS)
    return context.wrap_socket(sock, server_hostname=ADDRESS)


def test_new_certificate_for_new_handshakes(make_service: Callable[..., Service]) -> None:
    """SIGHUP with a new certificate: new handshakes see it, a TLS session that was open goes on."""
    service = make_service(core=REAL, endpoints=("imap", "imaps"))
    service.start()
    with connect_tls(service) as session:
        session.recv(1000)
        before = hashlib.sha256(session.getpeercert(binary_form=True) or b"").hexdigest()
        service.new_certificate()
        service.reload()
        assert fingerprint(service) != before
        session.sendall(b"a NOOP\r\n")
        assert session.recv(1000).startswith(b"a OK")


def test_mismatched_key_at_reload_keeps_the_old_certificate(make_service: Callable[..., Service]) -> None:
    """SIGHUP in the middle of an exchange of files, certificate new and key old: the old pair goes on."""
    service = make_service(core=REAL, endpoints=("imap", "imaps"))
    service.start()
    before = fingerprint(service)
    key = (service.folder / "front.key").read_bytes()
    service.new_certificate()
    (service.folder / "front.key").write_bytes(key)
    assert service.reload()["event"] == "configuration.rejected"
    assert fingerprint(service) == before


def test_listener_added_to_the_real_front_door(make_service: Callable[..., Service]) -> None:
    """SIGHUP adds an endpoint of another protocol and removes one."""
    service = make_service(core=REAL, endpoints=("imap",))
    service.start()
    old = service.ports.pop("imap")
    service.ports["pop3"] = free_ports(ADDRESS, 1)[0]
    service.write()
    assert service.reload()["objections"] == []
    assert Line(service.ports["pop3"]).greeting.startswith(b"+OK")

    def gone() -> bool:
        try:
            socket.create_connection((ADDRESS, old), timeout=PATIENCE_SECONDS).close()
        except ConnectionRefusedError:
            return True
        return False

    until(gone, "refusal at the removed endpoint")


# Log


def test_log_file_is_reopened(service: Service) -> None:
    """After a rotation SIGHUP makes supervisor and workers write to the new file."""
    service.settings["log_file"] = "gatepost.log"
    service.write()
    service.start()
    (service.folder / "gatepost.log").rename(service.folder / "gatepost.log.1")
    service.signal(signal.SIGHUP)
    service.event("configuration.reloaded")
    Line(service.ports["imap"]).close()
    assert service.event("echo.session")["process"] == "worker-0"
    assert "echo.session" not in (service.folder / "gatepost.log.1").read_text()
    assert (service.folder / "gatepost.log").stat().st_mode & 0o777 == 0o640


def test_log_is_reopened_even_when_the_configuration_is_broken(service: Service) -> None:
    """A rotation must not keep a deleted file open because of a fault elsewhere."""
    service.settings["log_file"] = "gatepost.log"
    service.write()
    service.start()
    (service.folder / "gatepost.log").rename(service.folder / "gatepost.log.1")
    service.write(broken="[[[")
    service.signal(signal.SIGHUP)
    service.event("configuration.rejected")
    assert "configuration.rejected" in (service.folder / "gatepost.log").read_text()
    Line(service.ports["imap"]).close()
    service.event("echo.session")


def test_full_disk_stops_no_session(service: Service) -> None:
    """Nothing can be written: sessions go on, lines are counted, and the count is logged when there is room again."""
    service.settings["log_file"] = "/dev/full"
    service.write()
    service.start(wait=False)
    until((service.folder / "state" / "gatepost-CAS-01.sock").exists, "the start")
    for _ in range(20):
        line = Line(service.ports["imap"])
        assert line.ask("on") == "on"
        line.close()

    def dropped() -> int:
        status = service.status().workers[0].status
        return status.counters["log_lines_dropped"] if status else 0

    until(lambda: dropped() == 20, "twenty dropped lines")
    service.settings["log_file"] = "gatepost.log"
    service.write()
    service.signal(signal.SIGHUP)
    until(lambda: any(e["lines"] == 20 for e in service.events("log.lines_dropped")), "the worker's report")
    Line(service.ports["imap"]).close()
    service.event("echo.session")


# The service manager


def test_service_manager_is_told(service: Service, scratch: Path) -> None:
    """READY with MAINPID, WATCHDOG, RELOADING then READY, STOPPING."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        path = scratch / f"notify-{next(_numbers)}"
        manager.bind(str(path))
        manager.settimeout(PATIENCE_SECONDS)

        def await_message(word: str) -> str:
            while True:
                text = manager.recv(4096).decode()
                if text.startswith(word):
                    return text

        service.start(environment={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000"})
        assert service.process is not None
        assert f"MAINPID={service.process.pid}\n" in await_message("READY=1")
        await_message("WATCHDOG=1")
        service.signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in await_message("RELOADING=1")
        await_message("READY=1")
        service.signal(signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC=" in await_message("STOPPING=1")
        assert service.wait() == 0


PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
_WITHOUT_NEW_CODE = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)


def test_runs_where_memory_cannot_become_code(make_service: Callable[..., Service]) -> None:
    """MemoryDenyWriteExecute=yes of the unit is bearable: under the kernel's own ban it starts and serves TLS."""
    supported = subprocess.run(
        [sys.executable, "-c", f"import ctypes,sys; sys.exit(ctypes.CDLL(None).prctl({PR_SET_MDWE}, 1, 0, 0, 0) != 0)"]
    )
    if supported.returncode != 0:
        pytest.skip("the kernel has no PR_SET_MDWE (Linux 6.3)")
    service = make_service(core=REAL, endpoints=("imap", "imaps"))
    service.start(prefix=[sys.executable, "-c", _WITHOUT_NEW_CODE])
    assert fingerprint(service)


def test_hanging_worker_answers_no_status(make_service: Callable[..., Service]) -> None:
    """A worker whose loop stands still is shown without a status; the supervisor itself answers and can end it."""
    service = make_service(core=ECHO)
    service.limits["drain_seconds"] = 0.2
    service.write()
    service.start()
    worker = service.workers()[0]
    line = Line(service.ports["imap"])
    line.sock.sendall(b"hang\n")
    until(lambda: service.status().workers[0].status is None, "the missing status")
    for _ in range(3):
        service.signal(signal.SIGTERM)
        until(lambda: service.process is None or bool(service.events("service.draining")), "the drain")
    assert service.wait() == 0
    assert not is_running(worker)
