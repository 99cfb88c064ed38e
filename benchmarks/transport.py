"""Durable relay of mail: Gatepost's hub beside Postfix, in turn, `smtp-source` before and `smtp-sink` behind each.

    python benchmarks/transport.py [--quick] [--sizes 5000,50000] [--sessions 20] [--seconds S] [--repeat N]
        [--only WORD …] [--peers gatepost postfix] [--directory D] [--python P] [--json FILE]

`relay`: end-to-end rate, from the start of `smtp-source` until the sink has all messages, with connections that are
kept (`-d`) and with a new one for each message; `cpu` is the processor time of all processes of the hub for a message,
in microseconds. Both have each message on disk (fsync) before they acknowledge it. The ratio is the median of the
ratios of neighbours; the goal is 4 at 5 kB with 20 sessions, connections kept.

`--directory` is where the queues are; it should be a real disk. Postfix needs root. Exit status 1: something was lost.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from gatepost.lab.servers.postfix import PACKAGES, Postfix
from gatepost.lab.servers.process import Address, ServerMissing, require_program
from hubs import WAIT_SECONDS, CountingSink, GatepostHub, processor_time, start_gatepost, start_postfix

GOAL = 4.0


@dataclass
class Results:
    """Of one run: by case and peer, in the order measured."""

    relayed: dict[str, dict[str, list[Relayed]]]
    faults: list[str]

    def ratio(self, case: str, *, cpu: bool = False) -> float | None:
        """Gatepost / Postfix: the median over neighbours; with `cpu` Postfix' time for each microsecond of ours."""
        ours, theirs = (self.relayed[case].get(name, []) for name in ("gatepost", "postfix"))
        pairs = [(p.cpu_all / g.cpu_all if cpu else g.rate / p.rate) for g, p in zip(ours, theirs, strict=False)]
        return statistics.median(pairs) if pairs else None

    def as_json(self) -> dict[str, object]:
        """Everything."""
        relayed = {c: {p: [asdict(r) for r in rounds] for p, rounds in by.items()} for c, by in self.relayed.items()}
        ratios = {c: {"rate": self.ratio(c), "cpu": self.ratio(c, cpu=True)} for c in self.relayed}
        return {"relay": relayed, "ratios": ratios, "faults": self.faults}


def table(results: Results) -> str:
    """For people."""
    lines = [f"{'relay':42} {'peer':9} {'taken/s':>8} {'through/s':>9} {'cpu µs':>7}  by program"]
    for case, peers in results.relayed.items():
        for peer, rounds in peers.items():
            middle = sorted(rounds, key=lambda r: r.rate)[len(rounds) // 2]
            programs = sorted(middle.cpu.items(), key=lambda entry: -entry[1])
            shares = " ".join(f"{name} {value:.0f}" for name, value in programs)
            figures = f"{middle.taken:8,.0f} {middle.rate:9,.0f} {middle.cpu_all:7,.0f}"
            lines.append(f"{case:42} {peer:9} {figures}  {shares}")
        ratio = results.ratio(case)
        if ratio is not None:
            cpu = results.ratio(case, cpu=True)
            lines.append(f"{'':42} ratio {ratio:.1f}, of processor time {cpu:.1f}")
    return "\n".join(lines)


def measure(folder: Path, wish: argparse.Namespace) -> Results:
    """All cases, the peers in turn."""
    results = Results({}, [])
    hubs: dict[str, tuple[GatepostHub | Postfix, CountingSink]] = {}
    try:
        if "gatepost" in wish.peers:
            hubs["gatepost"] = start_gatepost(folder, wish.python)
        if "postfix" in wish.peers:
            try:
                hubs["postfix"] = start_postfix(folder)
            except ServerMissing as missing:
                print(f"{missing}: left out", file=sys.stderr)
        for size in wish.sizes:
            for kept in (True, False):
                measure_case(results, hubs, Case(size, wish.sessions, kept), wish)
    finally:
        for hub, sink in hubs.values():
            hub.stop()
            sink.stop()
    return results


def measure_case(
    results: Results,
    hubs: dict[str, tuple[GatepostHub | Postfix, CountingSink]],
    case: Case,
    wish: argparse.Namespace,
) -> None:
    """One case: a short round tells each peer's count, then `repeat` rounds in turn."""
    rounds: dict[str, list[Relayed]] = results.relayed.setdefault(case.name, {})
    counts: dict[str, int] = {}
    for turn in range(wish.repeat + 1):
        for peer, (hub, sink) in hubs.items():
            listens = hub.ready[0]
            try:
                done = relay(hub.pid, listens, sink, case, counts.get(peer, wish.least))
            except (TimeoutError, subprocess.SubprocessError) as fault:
                results.faults.append(f"{case.name}, {peer}: {fault}")
                continue
            if turn == 0:
                counts[peer] = max(wish.least, int(done.rate * wish.seconds))
                continue
            rounds.setdefault(peer, []).append(done)
            print(f"  {case.name} {peer}: {done.rate:,.0f}/s, {done.cpu_all:,.0f} µs", file=sys.stderr)


def read_wish() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Durable relay of mail beside Postfix.")
    parser.add_argument("--quick", action="store_true", help="short and rough: shows that everything runs")
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], default=[5000, 50000])
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", nargs="+", default=["gatepost", "postfix"])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="where the queues are")
    parser.add_argument("--python", default=sys.executable, help="interpreter for Gatepost; default: this one")
    parser.add_argument("--json", type=Path, help="write all figures here")
    wish = parser.parse_args()
    wish.least = 400
    if wish.quick:
        wish.seconds, wish.repeat, wish.least, wish.sizes = 0.1, 1, 60, wish.sizes[:1]
    return wish


def main() -> int:
    """Run, print, tell whether everything arrived."""
    wish = read_wish()
    folder = Path(tempfile.mkdtemp(prefix="gatepost-bench-", dir=wish.directory))
    folder.chmod(0o755)
    try:
        results = measure(folder, wish)
    except ServerMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(results))
    for text in results.faults:
        print(f"SPOILED: {text}")
    if wish.json:
        wish.json.write_text(json.dumps(results.as_json(), indent=1) + "\n")
    return 1 if results.faults else 0


if __name__ == "__main__":
    sys.exit(main())
