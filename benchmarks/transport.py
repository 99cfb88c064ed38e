"""A hub's mail: durable relay beside Postfix, alone and with shadows on another hub, and what a long queue costs.

    python benchmarks/transport.py [--quick] [--only relay shadow queue later] [--sizes 5000,50000] [--sessions 20]
        [--seconds S] [--repeat N] [--peers gatepost gatepost-20 postfix] [--rates 50,300]
        [--queued 0,100000,1000000] [--later 100000] [--directory D] [--python P] [--json FILE]

`relay`: `smtp-source` before each hub, `smtp-sink` behind it; the peers are measured in turn. `taken` is the rate of
acknowledged messages, `through` that from the start of `smtp-source` until the sink has all; connections of the source
are kept (`-d`) or new for each message. `cpu` is the processor time of all processes of the hub for a message. Each
message is on disk (fsync) before it is acknowledged, at both. Ratios are medians of those of neighbours; the goal is 4
at 5 kB with 20 sessions, connections kept. Gatepost's connector to the sink has `max_messages_per_connection = 100`,
since Postfix has no such limit; `gatepost-20` is Gatepost with its default of 20.

`shadow`: `two-hubs` takes the mail at one hub, and the other keeps the shadows; `off` are the same hubs with shadow
redundancy switched off, and `postfix` is a single one. Both hubs' processor time counts. The goal is 1.5 times Postfix
at 5 kB with 20 sessions, connections kept. Then how long clients wait for the 250 after the last dot, at `--rates`
messages a second over all sessions.

`queue`: see `long_queue.py`; the cost of a message must be that with an empty queue.

`later`: see `putting_off.py`; a next server that answers 4xx to each of many recipients must not stop mail to another.

`--directory` is where the queues are; it should be a real disk. Postfix needs root. Exit status 1: something was lost.
Large messages and a black-holed exchanger have programs of their own: `large_messages.py`, `black_hole.py`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import long_queue
import putting_off
from gatepost.lab.servers.postfix import Postfix
from gatepost.lab.servers.process import ServerMissing
from hubs import CountingSink, GatepostHub, start_gatepost, start_postfix
from long_queue import Queued
from putting_off import PutOff
from relaying import Case, Relayed, relay
from shadows import RECIPIENT as SHADOW_RECIPIENT
from shadows import Pair, Waits, acknowledgements, percentiles, start_pair

Hub = tuple[GatepostHub | Postfix, CountingSink]
"""A hub and the sink behind it."""

PARTS = ("relay", "shadow", "queue", "later")
WITH_SHADOW = "two-hubs"


@dataclass
class Results:
    """Of one run: by case and peer, in the order measured."""

    relayed: dict[str, dict[str, list[Relayed]]] = field(default_factory=dict)
    shadowed: dict[str, dict[str, list[Relayed]]] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)
    queued: list[Queued] = field(default_factory=list)
    put_off: PutOff | None = None
    faults: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Everything."""
        found: dict[str, object] = {}
        for name, cases in (("relay", self.relayed), ("shadow", self.shadowed)):
            found[name] = {c: {p: [asdict(r) for r in rounds] for p, rounds in by.items()} for c, by in cases.items()}
        ratios = {c: {"rate": ratio(p), "cpu": ratio(p, cpu=True)} for c, p in self.relayed.items()}
        shadow_ratios = {c: ratio(p, WITH_SHADOW) for c, p in self.shadowed.items()}
        waits = asdict(self.waits) | {"added": {name: self.waits.added(name) for name in self.waits.on}}
        queued = [asdict(one) for one in self.queued]
        later = asdict(self.put_off) if self.put_off else None
        rest = {"ratios": ratios, "shadow_ratios": shadow_ratios, "waits": waits, "queued": queued, "later": later}
        return found | rest | {"faults": self.faults}


def ratio(peers: dict[str, list[Relayed]], ours: str = "gatepost", *, cpu: bool = False) -> float | None:
    """Gatepost / Postfix: the median over neighbours; with `cpu` Postfix' time for each microsecond of ours."""
    pairs = zip(peers.get(ours, []), peers.get("postfix", []), strict=False)
    found = [(p.cpu_all / g.cpu_all if cpu else g.rate / p.rate) for g, p in pairs]
    return statistics.median(found) if found else None


def table(results: Results) -> str:
    """For people."""
    lines = _relay_lines("relay", results.relayed, "gatepost")
    lines += _relay_lines("with shadows", results.shadowed, WITH_SHADOW)
    lines += results.waits.lines()
    if results.queued:
        lines += long_queue.lines(results.queued)
    if results.put_off:
        lines += putting_off.lines(results.put_off)
    return "\n".join(lines)


def _relay_lines(title: str, cases: dict[str, dict[str, list[Relayed]]], ours: str) -> list[str]:
    lines = [f"{title:42} {'peer':11} {'taken/s':>8} {'through/s':>9} {'cpu µs':>7}  by program"] if cases else []
    for case, peers in cases.items():
        for peer, rounds in peers.items():
            middle = sorted(rounds, key=lambda r: r.rate)[len(rounds) // 2]
            programs = sorted(middle.cpu.items(), key=lambda entry: -entry[1])
            shares = " ".join(f"{name} {value:.0f}" for name, value in programs)
            figures = f"{middle.taken:8,.0f} {middle.rate:9,.0f} {middle.cpu_all:7,.0f}"
            lines.append(f"{case:42} {peer:11} {figures}  {shares}")
        found = ratio(peers, ours)
        if found is not None:
            lines.append(f"{'':42} ratio {found:.1f}, of processor time {ratio(peers, ours, cpu=True):.1f}")
    return lines


def measure(folder: Path, wish: argparse.Namespace) -> Results:
    """All that was asked for."""
    results = Results()
    if "relay" in wish.only:
        measure_relay(folder, results, wish)
    if "shadow" in wish.only:
        measure_shadow(folder, results, wish)
    if "queue" in wish.only:
        for count in wish.queued:
            case = Case(wish.sizes[0], wish.sessions, kept=True)
            try:
                found = long_queue.queued(folder, wish.python, count, case, wish.repeat, wish.relayed)
            except (OSError, RuntimeError, subprocess.SubprocessError) as fault:
                results.faults.append(f"{count} queued: {fault}")
                continue
            results.queued.append(found)
            shutil.rmtree(folder / f"queued-{count}", ignore_errors=True)
            print(f"  {count:,} queued: loaded after {found.loaded_after:.1f} s", file=sys.stderr)
    if "later" in wish.only:
        case = Case(wish.sizes[0], wish.sessions, kept=True)
        try:
            results.put_off = putting_off.put_off(folder / "later", wish.python, wish.later, case, wish.repeat)
        except (OSError, RuntimeError, subprocess.SubprocessError) as fault:
            results.faults.append(f"put off: {fault}")
    return results


def measure_relay(folder: Path, results: Results, wish: argparse.Namespace) -> None:
    """All cases of `relay`, the peers in turn."""
    starters: dict[str, Callable[[], Hub]] = {
        "gatepost": lambda: start_gatepost(folder / "kept", wish.python, "max_messages_per_connection = 100"),
        "gatepost-20": lambda: start_gatepost(folder / "twenty", wish.python),
        "postfix": lambda: start_postfix(folder),
    }
    hubs: dict[str, Hub] = {}
    try:
        for name in wish.peers:
            try:
                hubs[name] = starters[name]()
            except ServerMissing as missing:
                print(f"{missing}: {name} is left out", file=sys.stderr)
        for size in wish.sizes:
            for kept in (True, False):
                measure_case(results, results.relayed, hubs, Case(size, wish.sessions, kept), wish)
    finally:
        for hub, sink in hubs.values():
            hub.stop()
            sink.stop()


def measure_shadow(folder: Path, results: Results, wish: argparse.Namespace) -> None:
    """Two hubs with shadows and without, and a Postfix, in turn; then how long the 250 takes."""
    case = Case(wish.sizes[0], wish.sessions, kept=True)
    pairs: dict[str, Pair] = {}
    hubs: dict[str, Hub | Pair] = {}
    try:
        for name, shadows in ((WITH_SHADOW, True), ("off", False)):
            hubs[name] = pairs[name] = start_pair(folder / name, wish.python, shadows=shadows)
        if "postfix" in wish.peers:
            try:
                hubs["postfix"] = start_postfix(folder / "beside")
            except ServerMissing as missing:
                print(f"{missing}: postfix is left out", file=sys.stderr)
        measure_case(results, results.shadowed, hubs, case, wish)
        counters = pairs[WITH_SHADOW].counters()
        if counters["shadow_failed"] or counters["shadow_made"] < wish.least:
            results.faults.append(f"shadows: {counters['shadow_made']} made, {counters['shadow_failed']} failed")
        for rate in wish.rates:
            for _ in range(wish.repeat):
                for name, waits in ((WITH_SHADOW, results.waits.on), ("off", results.waits.off)):
                    waited = acknowledgements(pairs[name].listens, case, int(rate * wish.seconds * 2), rate)
                    waits.setdefault(f"{case.name}, {rate} a second", []).append(percentiles(waited))
    finally:
        for hub in hubs.values():
            for server in hub if isinstance(hub, tuple) else (hub,):
                server.stop()


def measure_case(
    results: Results,
    into: dict[str, dict[str, list[Relayed]]],
    hubs: Mapping[str, Hub | Pair],
    case: Case,
    wish: argparse.Namespace,
) -> None:
    """One case: a short round tells each peer's count, then `repeat` rounds in turn."""
    rounds = into.setdefault(case.name, {})
    counts: dict[str, int] = {}
    for turn in range(wish.repeat + 1):
        for peer, hub in hubs.items():
            count = counts.get(peer, wish.least)
            try:
                if isinstance(hub, Pair):
                    done = relay(hub.pids, hub.listens, hub.sink, case, count, recipient=SHADOW_RECIPIENT)
                else:
                    done = relay(hub[0].pid, hub[0].ready[0], hub[1], case, count)
            except (TimeoutError, subprocess.SubprocessError) as fault:
                results.faults.append(f"{case.name}, {peer}: {fault}")
                continue
            if turn == 0:
                counts[peer] = max(wish.least, int(done.rate * wish.seconds))
                continue
            rounds.setdefault(peer, []).append(done)
            print(f"  {case.name} {peer}: {done.rate:,.0f}/s, {done.cpu_all:,.0f} µs", file=sys.stderr)


def numbers(text: str) -> list[int]:
    """`1,20`."""
    return [int(word) for word in text.split(",")]


def read_wish() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Durable relay of mail beside Postfix.")
    parser.add_argument("--quick", action="store_true", help="short and rough: shows that everything runs")
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--sizes", type=numbers, default=[5000, 50000])
    parser.add_argument("--queued", type=numbers, default=[0, 100_000, 1_000_000])
    parser.add_argument("--later", type=int, default=100_000, help="messages that a next server puts off")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--rates", type=numbers, default=[50, 300], help="messages a second, for the wait")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", nargs="+", default=["gatepost", "gatepost-20", "postfix"])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="where the queues are")
    parser.add_argument("--python", default=sys.executable, help="interpreter for Gatepost; default: this one")
    parser.add_argument("--json", type=Path, help="write all figures here")
    wish = parser.parse_args()
    wish.least, wish.relayed = 400, 2000
    if wish.quick:
        wish.seconds, wish.repeat, wish.least, wish.relayed = 0.1, 1, 60, 100
        wish.sizes, wish.queued, wish.rates = wish.sizes[:1], [0, 2000], wish.rates[:1]
        wish.later = 2000
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
