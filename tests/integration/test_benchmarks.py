"""The benchmark's own devices: a load generator that believed a wrong answer would make every figure worthless."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from doors import missing

from gatepost.lab.servers.postfix import PACKAGES
from gatepost.lab.servers.process import ServerMissing, find_program, require_program

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODES = ["login", "command", "fetch", "http"]
SECONDS = 30.0

Answer = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled load generator and stub servers."""
    if not (shutil.which("gcc") and shutil.which("make") and Path("/usr/include/openssl/ssl.h").exists()):
        reason = "apt-get install --no-install-recommends gcc make libc6-dev libssl-dev"
        if os.environ.get("CI") or os.environ.get("GATEPOST_REQUIRE_SERVERS"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("bench")
    subprocess.run(
        ["make", "--silent", "-C", BENCHMARKS, f"BUILD={folder}", "CFLAGS=-O2 -Wall -Wextra -Werror"], check=True
    )
    return folder


def load(built: Path, mode: str, port: int, *options: str) -> tuple[int, dict[str, Any]]:
    """Run the load generator: its exit status and its report."""
    command = [built / "loadgen", mode, "--port", str(port), "--connections", "4", "--users", "10", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=SECONDS)
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def free_ports(count: int) -> list[int]:
    """Ports that are free on loopback at this moment."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture(scope="module")
def stub(built: Path) -> Iterator[dict[str, int]]:
    """The stub servers: port by mode."""
    imap, http = free_ports(2)
    process = subprocess.Popen([built / "stub", "127.0.0.1", str(imap), str(http)])
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", http), 1).close()
            break
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
    yield {mode: http if mode == "http" else imap for mode in MODES}
    process.terminate()
    process.wait()


@pytest.mark.parametrize("mode", MODES)
def test_right_answers_are_counted_and_none_is_an_error(built: Path, stub: dict[str, int], mode: str) -> None:
    """Against the stub every operation succeeds, in every mode."""
    status, report = load(built, mode, stub[mode], "--count", "200", "--size", "20480")
    assert status == 0
    assert report["errors"] == 0
    assert report["count"] >= 200
    assert 0 < report["p50_ms"] <= report["p99_ms"]


@pytest.mark.parametrize("size", ["20479", "20481"])
def test_a_fetch_of_the_wrong_size_is_an_error(built: Path, stub: dict[str, int], size: str) -> None:
    """One byte more or less than expected is an error and counts as no fetch."""
    status, report = load(built, "fetch", stub["fetch"], "--seconds", "0.1", "--size", size)
    assert status == 1
    assert report["errors"] > 0
    assert report["count"] == 0
    assert "wrong number of bytes" in report["first_error"]


@pytest.fixture
def liar() -> Iterator[Callable[[bytes, Answer], int]]:
    """Starts a server with a greeting and an answer to each line; returns its port."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def talk(connection: socket.socket, greeting: bytes, answer: Answer) -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                connection.sendall(greeting)
                for line in lines:
                    connection.sendall(answer(line))
            except ConnectionError:
                return

    def accept(listener: socket.socket, greeting: bytes, answer: Answer) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=talk, args=(connection, greeting, answer))
            thread.start()
            threads.append(thread)

    def start(greeting: bytes, answer: Answer) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        thread = threading.Thread(target=accept, args=(listener, greeting, answer))
        thread.start()
        threads.append(thread)
        port: int = listener.getsockname()[1]
        return port

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(SECONDS)


SIGNED_IN = b" OK stub signed in\r\n"


@pytest.mark.parametrize(
    ("mode", "answer", "error"),
    [
        ("login", lambda line: line.split()[0] + b" NO [UNAVAILABLE] later\r\n", "not OK"),
        ("login", lambda line: b"b1 OK stub signed in\r\n", "unexpected line"),
        ("login", lambda line: line.split()[0] + b" OK I am only the proxy\r\n", "not the mailbox server's answer"),
        (
            "command",
            lambda line: line.split()[0] + SIGNED_IN * (1 if b"LOGIN" in line else 0),
            "no answer for too long",
        ),
        (
            "command",
            lambda line: (line.split()[0] + SIGNED_IN) * (1 if b"LOGIN" in line else 2),
            "unexpected line",
        ),
    ],
)
def test_wrong_answers_are_errors(
    built: Path, liar: Callable[[bytes, Answer], int], mode: str, answer: Answer, error: str
) -> None:
    """A refusal, a wrong tag, an answer of the proxy itself, none at all and one too many: none counts as done."""
    port = liar(b"* OK hello\r\n", answer)
    status, report = load(built, mode, port, "--seconds", "0.3", "--patience", "0.2")
    assert status == 1
    assert error in report["first_error"]


def test_each_user_has_a_cookie_of_the_file(built: Path, tmp_path: Path) -> None:
    """`--cookies`: the fields as they stand there, all of them in turn, and no Basic credentials beside them."""
    cookies = tmp_path / "cookies"
    cookies.write_text("".join(f"a={number}; b=x\n" for number in range(10)))
    seen: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        # The load generator goes in the middle of an answer when it has had as many as it was told to.
        with connection, connection.makefile("rb") as lines, suppress(ConnectionError):
            for line in lines:
                seen.append(line)
                if line == b"\r\n":
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]
    status, _ = load(built, "http", port, "--connections", "1", "--count", "10", "--cookies", str(cookies))
    listener.close()
    thread.join(SECONDS)
    assert status == 0
    asked = [line for line in seen if line.startswith(b"Cookie: ")]
    assert asked[:10] == [b"Cookie: a=%d; b=x\r\n" % number for number in range(10)]
    assert not any(line.lower().startswith(b"authorization") for line in seen)


def test_too_few_cookies_are_refused(built: Path, tmp_path: Path) -> None:
    """A user without a cookie would be asked to sign in, which is not what is measured."""
    cookies = tmp_path / "cookies"
    cookies.write_text("a=1\n" * 9)
    command = [built / "loadgen", "http", "--port", "1", "--users", "10", "--cookies", cookies]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1
    assert "fewer cookies than users" in done.stderr


@pytest.mark.parametrize("who", ["basic", "cookie", "affinity"])
def test_the_cost_of_a_request_is_told(who: str) -> None:
    """`http_cost.py` for each kind of user; it ends badly when a request is not answered by the server."""
    command = [sys.executable, BENCHMARKS / "http_cost.py", who, "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{who}: least ")


@pytest.mark.timeout(180)
def test_the_whole_comparison_runs(tmp_path: Path) -> None:
    """`run.py --quick` starts every peer, spoils no measurement and writes its figures."""
    figures = tmp_path / "figures.json"
    command = [sys.executable, BENCHMARKS / "run.py", "--quick", "--json", figures]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["faults"] == []
    assert all("gatepost" in peers for peers in found["rounds"].values())
    by_cookie = found["rounds"]["HTTP requests, TLS"]
    assert by_cookie["by cookie"][0]["figure"] > 0
    assert by_cookie["affinity"][0]["figure"] > 0
    assert "of gatepost" in done.stdout
    # So few sessions may find their place in what was given back before: only that it was measured.
    assert all(found["memory"]["gatepost"][when] > 1_000_000 for when in ("before", "with_sessions"))


def test_the_time_until_all_workers_know_of_a_move_is_measured(tmp_path: Path) -> None:
    """Few moves are no measurement; that the last of the watchers tells of each is what is seen here."""
    figures = tmp_path / "figures.json"
    script = BENCHMARKS / "registry.py"
    words = ["--moves", "5", "--watchers", "2", "--databases", "3", "--json", str(figures)]
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, timeout=100)
    found = json.loads(figures.read_text())
    assert done.returncode in {0, 1}, done.stderr
    measured = {"sqlite", "etcd-1", "etcd-3"} if find_program("etcd") else {"sqlite"}
    assert measured <= set(found)
    for name in measured:
        assert found[name]["known_max"] < 2000
        assert found[name]["call_p50"] > 0


def test_what_it_costs_to_keep_messages_is_measured(tmp_path: Path) -> None:
    """Few messages are no measurement; that each was on disk and all of a restart were read is what is seen here."""
    figures = tmp_path / "figures.json"
    words = ["--sizes", "5000,100000", "--writers", "1,5", "--queued", "0,1000", "--seconds", "0.1"]
    script = BENCHMARKS / "spool.py"
    done = subprocess.run(
        [sys.executable, script, *words, "--directory", tmp_path, "--json", figures],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(figures.read_text())
    assert found["100000_bytes_5_writers"]["per_second"] > 0
    assert found["queued"]["1000"]["messages"] == 1000


def run_transport_benchmark(script: str, figures: Path, *words: str, seconds: float = 100.0) -> Any:
    """What a benchmark of the transport writes; it must end well."""
    for program in ("smtp-source", "postfix"):
        try:
            require_program(program, PACKAGES)
        except ServerMissing as error:
            missing(error)
    command = [sys.executable, BENCHMARKS / script, *words, "--json", figures]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(figures.read_text())


def test_the_relay_of_mail_is_measured_beside_postfix_and_with_a_queue(tmp_path: Path) -> None:
    """Few messages are no measurement; that all of them arrived, and who was measured, is what is seen here."""
    found = run_transport_benchmark("transport.py", tmp_path / "figures.json", "--quick")
    assert found["faults"] == []
    peers = {"gatepost", "gatepost-20", *(["postfix"] if os.geteuid() == 0 else [])}
    assert {name for case in found["relay"].values() for name in case} == peers
    for case in found["relay"].values():
        assert all(rounds[0]["rate"] > 0 and sum(rounds[0]["cpu"].values()) > 0 for rounds in case.values())
    for case in found["shadow"].values():
        assert set(case) == peers - {"gatepost", "gatepost-20"} | {"two-hubs", "off"}
        assert all(rounds[0]["rate"] > 0 for rounds in case.values())
    for added in found["waits"]["added"].values():
        assert len(added) == 2  # p50 and p99
    assert found["waits"]["added"].keys() == found["waits"]["on"].keys() != set()
    assert [one["messages"] for one in found["queued"]] == [0, 2000]
    assert all(one["memory"] > 10_000_000 and one["relayed"][0]["rate"] > 0 for one in found["queued"])
    assert found["later"]["messages"] == 2000
    assert found["later"]["afterwards"][0]["rate"] > 0


def test_a_black_holed_mail_exchanger_holds_nobody_up(tmp_path: Path) -> None:
    """Gatepost alone here: nobody waits for the connect timeout, whatever of the two exchangers comes first."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        pytest.skip("a network of its own needs root")
    words = ["--quick", "--peers", "gatepost"]
    found = run_transport_benchmark("black_hole.py", tmp_path / "figures.json", *words)
    assert all(one["arrived"] == one["sent"] for one in found.values()), found
    assert all(one["longest"] < 15.0 for one in found.values()), found
