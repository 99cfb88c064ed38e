"""One server process: started in the foreground, waited for by connecting, ended by its own pid.

Every process gets its own directory and log file. `setpriv --pdeathsig` has the kernel end it when the process that
started it dies, however that happens, so that nothing is left running. (The kernel watches the *thread* that started
it: start servers from a thread that lives as long as they shall.)
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

Address = tuple[str, int]
"""IP address and port."""

READY_SECONDS = 20.0
"""From start to the last port that accepts: a Dovecot takes 10 ms; the rest is for a busy machine."""
STOP_SECONDS = 10.0
"""From SIGTERM until SIGKILL."""
KILLED_SECONDS = 2.0
"""Until the ports of killed children are closed: milliseconds, or somebody else listens there."""
POLL_SECONDS = 0.005
"""Between two looks at a port or a process: Dovecot is ready within two of them."""
LOG_TAIL_LINES = 20
SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where servers live; an ordinary user's PATH lacks them."""


class ServerMissing(RuntimeError):
    """A server is not installed. The text says how to install it."""

    def __init__(self, program: str, packages: Sequence[str]) -> None:
        super().__init__(f"{program} is not installed: apt-get install -y --no-install-recommends {' '.join(packages)}")


class ServerNotStarted(RuntimeError):
    """A server ended or did not answer in time. The text holds the end of its log."""


def find_program(name: str) -> str | None:
    """The path of a program, None if it is not installed."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES))
    return shutil.which(name, path=path)


def require_program(name: str, packages: Sequence[str]) -> str:
    """The path of a program. Raises `ServerMissing`."""
    found = find_program(name)
    if found is None:
        raise ServerMissing(name, packages)
    return found


def can_listen(address: str, port: int) -> bool:
    """Whether nobody listens on the port, and this process may."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_ports(address: str, count: int) -> list[int]:
    """So many ports of `address` that are free now, all different."""
    probes = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((address, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def accepts(address: Address) -> bool:
    """Whether a connection is accepted at this moment."""
    try:
        with socket.create_connection(address, timeout=1.0):
            return True
    except OSError:
        return False


def wait_until_accepted(addresses: Sequence[Address], deadline: float) -> Address | None:
    """Wait until all addresses accept; answers the first that does not by `deadline` (of `time.monotonic`)."""
    for address in addresses:
        while not accepts(address):
            if time.monotonic() > deadline:
                return address
            time.sleep(POLL_SECONDS)
    return None


def dies_with_parent(argv: Sequence[str]) -> list[str]:
    """`argv` such that the kernel sends it SIGTERM when its parent dies."""
    setpriv = find_program("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--", *argv] if setpriv else list(argv)


def as_account(account: str, argv: Sequence[str], at_death: signal.Signals = signal.SIGTERM) -> list[str]:
    """`argv` run by root as another account, of which `at_death` is sent when the parent dies.

    In one step: the kernel forgets the wish of `dies_with_parent` when a process changes its account.
    """
    setpriv = require_program("setpriv", ("util-linux",))
    whose = [f"--reuid={account}", f"--regid={account}", "--init-groups"]
    return [setpriv, *whose, "--pdeathsig", at_death.name.removeprefix("SIG"), "--", *argv]


class ServerProcess:
    """A server of ours. Use `start` and `wait_ready`, or `with`; `stop` ends it and waits."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        directory: Path,
        ready: Sequence[Address],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`ready` are the addresses that accept connections once the server is up; it runs in `directory`."""
        self.name = name
        self.argv = list(argv)
        self.directory = directory
        self.ready = tuple(ready)
        self.output = directory / "output.log"
        self.extra_logs: list[Path] = []
        """Further files whose end is shown when the server does not start."""
        self.environment = dict(environment or {})
        self.input = Path(os.devnull)
        """What the server reads on its standard input."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises `ServerNotStarted`."""
        if self._process is None:
            raise ServerNotStarted(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; does not wait. A second start after `stop` is fine."""
        with self.output.open("ab") as log, self.input.open("rb") as given:
            self._process = subprocess.Popen(  # noqa: S603 - arguments are ours
                dies_with_parent(self.argv),
                cwd=self.directory,
                stdin=given,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self.environment,
                start_new_session=True,  # Ctrl-C is for the lab alone, which stops its servers in order
            )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every `ready` address accepts. Raises `ServerNotStarted` (the process is stopped then)."""
        deadline = time.monotonic() + seconds
        for address in self.ready:
            while not accepts(address):
                ended = None if self._process is None else self._process.poll()
                if ended is None and time.monotonic() <= deadline:
                    time.sleep(POLL_SECONDS)
                    continue
                what = f"does not accept on {address[0]}:{address[1]}" if ended is None else f"ended with {ended}"
                self.stop()
                raise ServerNotStarted(f"{self.name} {what}\n{self.log_tail()}")
        ended = None if self._process is None else self._process.poll()
        if ended is not None:  # and what accepts there is somebody else's
            raise ServerNotStarted(f"{self.name} ended with {ended}\n{self.log_tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a power cut would, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(STOP_SECONDS)

    def freeze(self) -> None:
        """Have it stand still: its connections stay open, the kernel takes more of them, nothing is answered."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)

    def wait(self, seconds: float) -> int | None:
        """Wait until it ends by itself; answers its exit status, None at the deadline."""
        if self._process is None:
            return None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it and wait: SIGTERM, after `seconds` SIGKILL. Children that outlive it are killed too.

        A frozen one ends likewise.
        """
        if self._process is None or self._process.poll() is not None:
            return
        self.thaw()
        self._process.terminate()
        if self.wait(seconds) is None:
            self._process.kill()
            self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session, see `start`: the group is ours alone
            self._wait_until_silent()

    def _wait_until_silent(self) -> None:
        """Wait for the children that were killed: they are not ours to reap, but their ports tell."""
        deadline = time.monotonic() + KILLED_SECONDS
        while any(map(accepts, self.ready)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def log_tail(self) -> str:
        """The end of its logs, for messages."""
        parts = []
        for path in (self.output, *self.extra_logs):
            if path.exists() and path.stat().st_size:
                lines = path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
                parts.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(parts)

    def __enter__(self) -> Self:
        self.start()
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
