"""Server processes: one that does not come up is named with its log, one that is stopped is gone."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import pytest

from gatepost.lab.servers.process import (
    ServerMissing,
    ServerNotStarted,
    ServerProcess,
    accepts,
    can_listen,
    free_ports,
    require_program,
)

ADDRESS = "127.99.0.1"
LISTEN = (
    "import socket, sys; s = socket.create_server((sys.argv[1], int(sys.argv[2]))); print('up')\nwhile True: s.accept()"
)


def python(directory: Path, code: str, port: int) -> ServerProcess:
    """A server that runs `code` with its address and port as arguments."""
    argv = [sys.executable, "-c", code, ADDRESS, str(port)]
    return ServerProcess("SRV-01", argv, directory, [(ADDRESS, port)])


def test_a_server_is_ready_when_it_accepts_and_gone_when_stopped(tmp_path: Path) -> None:
    """`with` waits for both ends of its life."""
    (port,) = free_ports(ADDRESS, 1)
    with python(tmp_path, LISTEN, port) as server:
        assert server.running
        assert accepts((ADDRESS, port))
        assert not can_listen(ADDRESS, port)
    assert not server.running
    assert not accepts((ADDRESS, port))


def test_a_server_that_ends_at_once_is_named_with_its_log(tmp_path: Path) -> None:
    """No waiting for the deadline; the end of its output says why."""
    (port,) = free_ports(ADDRESS, 1)
    server = python(tmp_path, "import sys; sys.exit('no such certificate')", port)
    server.start()
    with pytest.raises(ServerNotStarted, match=r"(?s)SRV-01 ended with 1.*no such certificate"):
        server.wait_ready()


def test_a_server_that_never_accepts_is_ended_at_the_deadline(tmp_path: Path) -> None:
    """It does not stay behind."""
    (port,) = free_ports(ADDRESS, 1)
    server = python(tmp_path, "import signal; signal.pause()", port)
    server.start()
    with pytest.raises(ServerNotStarted, match=r"does not accept on 127\.99\.0\.1"):
        server.wait_ready(0.2)
    assert not server.running


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """After the time it was given."""
    (port,) = free_ports(ADDRESS, 1)
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LISTEN
    server = python(tmp_path, code, port)
    server.start()
    server.wait_ready()
    server.stop(0.1)
    assert not server.running
    assert server.wait(0) == -signal.SIGKILL


def test_children_do_not_outlive_their_server(tmp_path: Path) -> None:
    """A child that holds the listening socket goes with the server, not some time after it."""
    (port,) = free_ports(ADDRESS, 1)
    code = "import os, signal, socket, sys; s = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
    code += "if os.fork() == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()"
    server = python(tmp_path, code, port)
    server.start()
    server.wait_ready()
    server.stop()
    assert not accepts((ADDRESS, port))


def test_a_missing_program_says_how_to_install_it() -> None:
    """The reason of a skipped test is a command to copy."""
    with pytest.raises(ServerMissing, match="apt-get install -y --no-install-recommends no-such-package"):
        require_program("no-such-program", ["no-such-package"])


def test_free_ports_can_be_listened_on() -> None:
    """All of them, at the same time."""
    ports = free_ports(ADDRESS, 5)
    sockets = [socket.create_server((ADDRESS, port)) for port in ports]
    for made in sockets:
        made.close()
    assert len(set(ports)) == 5
