"""Running the supervisor as a real process, and looking at what it does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.process import free_ports
from gatepost.service.control import ServiceStatus
from gatepost.service.operators import ask

HERE = Path(__file__).parent
ADDRESS = "127.0.83.1"
PATIENCE_SECONDS = 20.0
"""For anything to happen on a machine that runs other tests as well."""
ECHO = "echo_core:build"
REAL = "gatepost.service.core:front_door"
_RUN = """
import asyncio, os, sys
from gatepost.service import fleet
fleet.PING_SECONDS = float(os.environ.pop("PING_SECONDS", fleet.PING_SECONDS))
from gatepost.service.supervisor import CannotStart, Supervisor
try:
    sys.exit(asyncio.run(Supervisor(sys.argv[1], core=sys.argv[2]).run()))
except CannotStart as fault:
    sys.exit(f"gatepost: {fault}")
"""


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Waits until `condition` answers something true, and answers that."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen in {seconds} s: {what}")
        time.sleep(0.01)


class Line:
    """A connection that speaks lines."""

    def __init__(self, port: int, address: str = ADDRESS, seconds: float = PATIENCE_SECONDS) -> None:
        self.sock = socket.create_connection((address, port), timeout=seconds)
        self.file = self.sock.makefile("rb")
        try:
            self.greeting = self.file.readline()
        except OSError:
            self.close()
            raise

    def ask(self, line: str) -> str:
        """Sends a line and answers the next one; empty at the end."""
        self.sock.sendall(line.encode() + b"\n")
        return self.file.readline().decode().strip()

    def ask_nothing(self, line: str) -> None:
        """Sends a line; no answer is awaited."""
        self.sock.sendall(line.encode() + b"\n")

    def at_end(self) -> bool:
        """Waits for the end of the connection; whether it came."""
        try:
            return self.file.readline() == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.file.close()
        self.sock.close()

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.close()


class Service:
    """A front end in a folder: `gatepost.toml`, `state/`, key pair, log."""

    def __init__(self, folder: Path, *, core: str = ECHO, endpoints: Sequence[str] = ("imap",)) -> None:
        self.folder = folder
        self.core = core
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").mkdir(exist_ok=True)
        self.authority = CertificateAuthority.create(folder / "pki")
        self.ports = dict(zip(endpoints, free_ports(ADDRESS, len(endpoints)), strict=True))
        self.settings: dict[str, Any] = {"workers": 1}
        self.limits: dict[str, Any] = {}
        self.organization = "contoso"
        self.new_certificate()
        self.output = folder / "output"
        self.process: subprocess.Popen[bytes] | None = None
        self.write()

    def new_certificate(self) -> None:
        """Another key pair under the same file names."""
        pair = self.authority.issue(f"front-{time.monotonic_ns()}", "cas-01.contoso.com", ADDRESS)
        for name, source in (("front.crt", pair.certificate), ("front.key", pair.private_key)):
            shutil.copy(source, self.folder / name)
        (self.folder / "front.key").chmod(0o600)

    def write(self, *, broken: str = "") -> None:
        """Writes the configuration; `broken` is appended."""
        front = {"server": "CAS-01", "directory": "state/directory.sqlite", "registry": "state/registry.sqlite"}
        front |= {"certificate": "front.crt", "private_key": "front.key", "server_ca": str(self.authority.certificate)}
        front |= self.settings
        text = "[front_end]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in front.items())
        text += "[front_end.limits]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in self.limits.items())
        text += f'[organization]\nname = "{self.organization}"\naccepted_domains = ["contoso.com"]\n'
        text += '[sites.usa]\nsubnets = ["127.0.0.0/8"]\ninternet_facing = true\n'
        text += f'[servers.CAS-01]\nsite = "usa"\nroles = ["client-access"]\naddress = "{ADDRESS}"\n'
        text += "[servers.CAS-01.endpoints]\n" + "".join(f"{n} = {{ port = {p} }}\n" for n, p in self.ports.items())
        text += '[servers.MBX-01]\nsite = "usa"\nroles = ["mailbox"]\naddress = "127.0.83.2"\n'
        text += '[servers.MBX-01.endpoints]\nimap = { tls = "clear" }\n'
        text += '[databases.DB01]\ncopies = [{ server = "MBX-01", preference = 1 }]\n' + broken
        (self.folder / "gatepost.toml").write_text(text)

    def start(
        self, *, wait: bool = True, environment: dict[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> None:
        """Starts the supervisor; waits until it serves."""
        command = [*prefix, sys.executable, "-c", _RUN, str(self.folder / "gatepost.toml"), self.core]
        env = os.environ | {"PYTHONPATH": str(HERE)} | (environment or {})
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        if wait:
            self.event("service.started")

    def text(self) -> str:
        """Everything that was printed and logged."""
        log = self.settings.get("log_file")
        file = self.folder / (log or "output")
        logged = file.read_text() if log and file.is_file() else ""  # not there for a moment after a rotation
        return self.output.read_text() + logged

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines with this event name."""
        lines = (json.loads(line) for line in self.text().splitlines() if line.startswith("{") and line.endswith("}"))
        return [line for line in lines if line["event"] == name]

    def event(self, name: str, count: int = 1) -> dict[str, Any]:
        """Waits for the `count`-th such event and answers it."""

        def found() -> Any:
            if self.process is not None and self.process.poll() is not None and len(self.events(name)) < count:
                raise AssertionError(f"the supervisor ended before {name}:\n{self.text()}")
            return self.events(name)[count - 1 :]

        result: dict[str, Any] = until(found, f"{name} ({count})\n{self.text()}")[0]
        return result

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def reload(self) -> dict[str, Any]:
        """SIGHUP; the event that says what came of it."""
        before = len(self.events("configuration.reloaded")), len(self.events("configuration.rejected"))
        self.signal(signal.SIGHUP)

        def result() -> list[dict[str, Any]]:
            return (
                self.events("configuration.reloaded")[before[0] :] + self.events("configuration.rejected")[before[1] :]
            )

        answer: dict[str, Any] = until(result, f"the reload\n{self.text()}")[0]
        return answer

    def status(self) -> ServiceStatus:
        """What the operators' socket answers."""
        return ask(self.folder / "state" / "gatepost-CAS-01.sock")

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        return [w.pid for w in self.status().workers]

    def children(self) -> set[int]:
        """Process ids of all that the supervisor has started and not seen end: workers, and a loader."""
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """The exit status of the supervisor."""
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self) -> None:
        """Ends what is left, for the fixture."""
        if self.process is not None and self.process.poll() is None:
            for _ in range(2):
                self.process.terminate()
            try:
                self.process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] != "Z"
