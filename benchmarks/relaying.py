"""One measurement of relayed mail: `smtp-source` before a hub, a sink that counts behind it."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gatepost.lab.servers.postfix import PACKAGES
from gatepost.lab.servers.process import Address, require_program
from hubs import WAIT_SECONDS, CountingSink, processor_time

SENDER, RECIPIENT = "alice@contoso.com", "bob@example.com"


@dataclass
class Relayed:
    """One measurement. `taken` and `rate` are messages a second: acknowledged, and arrived at the sink."""

    count: int
    taken: float
    rate: float
    cpu: dict[str, float]
    """Microseconds of processor time for a message, by program."""

    @property
    def cpu_all(self) -> float:
        """Of all programs."""
        return sum(self.cpu.values())


@dataclass(frozen=True)
class Case:
    """What is sent: `size` in bytes, over `sessions` connections at a time."""

    size: int
    sessions: int
    kept: bool

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.size // 1000} kB, {self.sessions} sessions, {'connections kept' if self.kept else 'one each'}"


def source(to: Address, case: Case, count: int, recipient: str = RECIPIENT) -> list[str]:
    """The command that sends so many."""
    program = require_program("smtp-source", PACKAGES)
    kept = ["-d"] if case.kept else []
    words = ["-s", str(case.sessions), "-m", str(count), "-l", str(case.size), "-f", SENDER, "-t", recipient]
    return [program, *kept, *words, f"{to[0]}:{to[1]}"]


def relay(
    pids: int | Sequence[int],
    listens: Address,
    sink: CountingSink,
    case: Case,
    count: int,
    recipient: str = RECIPIENT,
) -> Relayed:
    """Send and wait until the sink has all; `pids` are those of the hubs whose processor time counts.

    Raises TimeoutError, `subprocess.CalledProcessError`.
    """
    hubs = [pids] if isinstance(pids, int) else pids
    before, had = _processor_time(hubs), sink.messages()
    begun = time.perf_counter()
    subprocess.run(source(listens, case, count, recipient), check=True, timeout=WAIT_SECONDS, capture_output=True)
    taken = time.perf_counter()
    arrived = sink.wait_for(had + count, WAIT_SECONDS)
    time.sleep(0.1)  # what is still to be done for them: removal, log lines
    after = _processor_time(hubs)
    cpu = {name: 1e6 * (value - before.get(name, 0.0)) / count for name, value in after.items()}
    return Relayed(count, count / (taken - begun), count / (arrived - begun), {n: v for n, v in cpu.items() if v >= 1})


def _processor_time(pids: Sequence[int]) -> Counter[str]:
    """Of all of them, by program."""
    found: Counter[str] = Counter()
    for pid in pids:
        found.update(processor_time(pid))
    return found
