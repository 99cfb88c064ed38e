"""`gatepost status` asks the operators' sockets of front ends on this machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gatepost.cli.main import run
from gatepost.service.control import ServiceStatus, StatusReply, TransportStatus, WorkerStatus, encode

CONFIGURATION = """
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
[servers.CAS-01]
site = "usa"
roles = ["client-access"]
endpoints = { imap = { port = 1143, tls = "clear" } }
"""

Call = Callable[..., tuple[int, str, str]]


def _status(server: str, *counters: dict[str, int] | None) -> ServiceStatus:
    workers = [
        WorkerStatus(slot, 100 + slot, "ready", None if found is None else StatusReply(3, found, []))
        for slot, found in enumerate(counters)
    ]
    return ServiceStatus(server, 99, 3, 1, workers)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[ServiceStatus], None]]:
    """Answers one question at the operators' socket of a front end."""
    threads: list[threading.Thread] = []

    def start(status: ServiceStatus) -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(10)
        sock.bind(str(tmp_path / f"gatepost-{status.server}.sock"))
        sock.listen()

        def answer() -> None:
            with sock, sock.accept()[0] as client:
                client.recv(1024)
                client.sendall(encode(status))

        threads.append(threading.Thread(target=answer))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(10)


@pytest.fixture
def status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command; answers status, output, errors."""
    path = tmp_path / "gatepost.toml"
    path.write_text(CONFIGURATION)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["status", *arguments, "-c", str(path)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_workers_sessions_and_what_is_not_zero(status: Call, serve: Callable[[ServiceStatus], None]) -> None:
    """Numbers are those of all workers; a server that is down is so for the longest time, at some of them."""
    serve(
        _status(
            "CAS-01",
            {"sessions": 4, "http.requests.under_way": 2, "http.requests.refused": 0, "down.MBX-01.owa": 3},
            {"sessions": 1, "http.requests.under_way": 5, "faults": 0, "down.MBX-01.owa": 12, "down.MBX-02.ews": 0},
            None,
        )
    )
    code, out, err = status()
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["CAS-01:", "pid", "99,", "configuration", "version", "3,", "restarts", "1"],
        ["worker", "pid", "state", "version", "sessions"],
        ["0", "100", "ready", "3", "4"],
        ["1", "101", "ready", "3", "1"],
        ["2", "102", "ready", "-", "no", "answer"],
        ["down.MBX-01.owa", "12", "s", "at", "2", "of", "3", "workers"],
        ["down.MBX-02.ews", "0", "s", "at", "1", "of", "3", "workers"],
        ["http.requests.under_way", "7"],
    ]


def test_all_front_ends_of_the_machine(status: Call, serve: Callable[[ServiceStatus], None], tmp_path: Path) -> None:
    """Whose sockets are beside the registry; one whose supervisor was killed has left its socket, and is said."""
    serve(_status("CAS-01", {"sessions": 1}))
    serve(_status("CAS-02", {"sessions": 2}))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "gatepost-CAS-03.sock"))
    code, out, _ = status("--all")
    assert code == 1
    blocks = out.split("\n\n")
    assert [block.partition(":")[0] for block in blocks] == ["CAS-01", "CAS-02", "CAS-03"]
    assert "not running on this machine" in blocks[2]


def test_json_for_programs(status: Call, serve: Callable[[ServiceStatus], None]) -> None:
    serve(_status("CAS-01", {"sessions": 4, "down.MBX-01.owa": 3}))
    code, out, _ = status("--json")
    assert code == 0
    (found,) = json.loads(out)
    assert (found["server"], found["running"], found["pid"], found["version"]) == ("CAS-01", True, 99, 3)
    (worker,) = found["workers"]
    assert (worker["state"], worker["counters"]["down.MBX-01.owa"]) == ("ready", 3)


@pytest.mark.parametrize(
    ("state", "counters", "why"),
    [
        ("ready", {"messages": 7, "pressure": 0}, ""),
        ("ready", {"messages": 7, "pressure": 1}, ""),
        ("ready", {"messages": 7, "pressure": 2}, "back pressure"),
        ("draining", {"messages": 7, "pressure": 0}, "it is draining"),
        ("ready", None, "it does not answer"),
    ],
)
def test_whether_a_hub_takes_mail(
    status: Call,
    serve: Callable[[ServiceStatus], None],
    state: str,
    counters: dict[str, int] | None,
    why: str,
    tmp_path: Path,
) -> None:
    """Health of the service for a balancer in front (SPEC V2), as its greeting shows it."""
    for arguments in ([], ["--json"]):
        transport = TransportStatus(200, state, 0, counters)
        serve(msgspec.structs.replace(_status("CAS-01", {"sessions": 1}), transport=transport))
        code, out, _ = status(*arguments)
        assert code == 0
        if arguments:
            found = json.loads(out)[0]["transport"]
            assert (found["takes_mail"], found["reason"]) == (not why, why)
            assert found["counters"] == counters
        else:
            assert (f"takes no mail: {why}" if why else "takes mail") in out
        (tmp_path / "gatepost-CAS-01.sock").unlink()


@pytest.mark.parametrize("count", [0, 3])
def test_messages_on_one_disk_only_are_warned_of(
    status: Call, serve: Callable[[ServiceStatus], None], count: int
) -> None:
    transport = TransportStatus(200, "ready", 0, {"shadow_unprotected": count})
    serve(msgspec.structs.replace(_status("CAS-01", {"sessions": 1}), transport=transport))
    _, out, _ = status()
    assert ("warning: messages that are on this disk only: 3." in out) is bool(count)
    assert ("gatepost transport unhealthy" in out) is bool(count)


def test_a_front_end_that_does_not_run_is_said_and_fails(status: Call, tmp_path: Path) -> None:
    code, out, _ = status()
    assert code == 1
    socket_file = tmp_path / "gatepost-CAS-01.sock"
    assert out == f"CAS-01: not running on this machine: nobody answers at {socket_file}\n"
    code, _, err = status("--all")
    assert code == 1
    assert err == f"gatepost: no front end runs here: there is no gatepost-*.sock in {tmp_path}\n"
    assert json.loads(status("--json")[1])[0]["running"] is False
