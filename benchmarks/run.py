"""Gatepost beside its peers, on one machine, in one run.

    python benchmarks/run.py [--quick] [--only WORD ...] [--peers NAME ...] [--json FILE] [--seconds S] [--repeat N]

Every proxy has one worker pinned to one core; the load generator and the stub servers have the other. The peers are
measured in turn, A B C A B C, and a ratio is the median of the ratios of neighbours. docs/benchmarks.md says what is
measured and how the load was checked. Exit status 1: something was answered wrongly or not at all. A missed goal does
not change the exit status: machines differ.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from machine import LOAD_CORE, PROXY_CORE, CannotStart, Machine, allow_open_files, busy_share, missing_programs
from measure import SCENARIOS, Generator, Scenario, Spoiled
from peers import Peer, Stage, set_stage, start_direct, start_dovecot, start_gatepost, start_haproxy, start_nginx
from report import Memory, Results, table

HERE = Path(__file__).parent
DECISIONS_SECONDS = 300.0
"""A million mailboxes are made first."""
TRANSPORT_SECONDS = 600.0
"""A queue of a million is made."""
BUSY = 0.15
"""Share of the machine's time that others may use before the figures are called doubtful."""


def build(folder: Path) -> None:
    """Compile the load generator and the stub servers."""
    subprocess.run(["make", "--silent", "-C", str(HERE), f"BUILD={folder}"], check=True)


def start_peers(stage: Stage, wanted: list[str], auth_core: int) -> dict[str, Peer]:
    """Start the wanted peers; one that this machine lacks is left out and said so."""
    starters: dict[str, Callable[[], list[Peer]]] = {
        "gatepost": lambda: start_gatepost(stage),
        "nginx": lambda: start_nginx(stage, auth_core),
        "haproxy": lambda: start_haproxy(stage),
        "dovecot": lambda: start_dovecot(stage),
        "direct": lambda: start_direct(stage),
    }
    lacking = missing_programs()
    peers: dict[str, Peer] = {}
    for name in wanted:
        if name in lacking:
            print(f"{name} is not installed: left out", file=sys.stderr)
        else:
            peers.update((peer.name, peer) for peer in starters[name]())
    return peers


def run_scenario(scenario: Scenario, peers: dict[str, Peer], generator: Generator, wish: argparse.Namespace) -> Results:
    """Measure the scenario's peers in turn, `repeat` times."""
    results = Results()
    taking_part = [peers[name] for name in scenario.peers if name in peers]
    if "gatepost" in peers:  # a remembered password is good for five minutes
        generator.sign_in_everybody(peers["gatepost"], cold=False)
    for _ in range(wish.repeat):
        for peer in taking_part:
            try:
                measured = generator.measure(scenario, peer, wish.seconds, wish.warm_up)
            except Spoiled as fault:
                results.faults.append(str(fault))
                continue
            results.add(scenario, peer.name, measured)
            print(f"  {scenario.name} {peer.name}: {measured.figure:,.0f} {scenario.unit}", file=sys.stderr)
    return results


def measure_all(generator: Generator, peers: dict[str, Peer], wish: argparse.Namespace) -> Results:
    """Everything that was asked for."""
    results = Results()
    gatepost = peers.get("gatepost")
    if gatepost:
        generator.sign_in_everybody(gatepost, cold=False)
    if not wish.only or any(word in "idle memory" for word in wish.only):
        measure_memory(generator, peers, wish.idle, results)  # first: later their heaps hold what earlier work left
    if gatepost:
        results.cold_logins = generator.sign_in_everybody(gatepost, cold=True)
        print("  warmed", file=sys.stderr)
    if not wish.only or any(word in "decisions" for word in wish.only):
        measure_decisions(wish, results)
    if not wish.only or any(word in "transport" for word in wish.only):
        measure_transport(wish, results)
    for scenario in wanted_scenarios(wish.only):
        found = run_scenario(scenario, peers, generator, wish)
        results.rounds.update(found.rounds)
        results.faults += found.faults
    return results


def measure_memory(generator: Generator, peers: dict[str, Peer], sessions: int, results: Results) -> None:
    """Idle TLS sessions at each peer, one peer after the other."""
    for name in ("gatepost", "nginx", "haproxy", "dovecot"):
        if name not in peers:
            continue
        try:
            results.memory[name] = Memory(sessions, *generator.idle_memory(peers[name], sessions))
        except Spoiled as fault:
            results.faults.append(str(fault))


def measure_decisions(wish: argparse.Namespace, results: Results) -> None:
    """Decisions a second on the proxies' core, with nothing else running."""
    size = ["--servers", "100", "--users", "20000"] if wish.quick else []
    command = [
        wish.python,
        str(HERE / "decisions.py"),
        "--core",
        str(PROXY_CORE),
        "--seconds",
        str(wish.seconds),
        *size,
    ]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=DECISIONS_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as fault:
        results.faults.append(f"decisions: {fault}")
    else:
        results.decisions = json.loads(done.stdout)


def measure_transport(wish: argparse.Namespace, results: Results) -> None:
    """Mail through a hub, beside Postfix; its processes use both cores. Its table is printed with the others."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        size = ["--quick", "--only", "relay"] if wish.quick else ["--repeat", str(wish.repeat)]
        command = [sys.executable, str(HERE / "transport.py"), "--python", wish.python, "--json", str(figures), *size]
        try:
            done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, timeout=TRANSPORT_SECONDS)
        except subprocess.TimeoutExpired as fault:
            results.faults.append(f"transport: {fault}")
            return
        if done.returncode:
            results.faults.append(f"transport: {done.stdout}")
            return
        results.transport = json.loads(figures.read_text())
        results.transport_table = done.stdout


def wanted_scenarios(only: list[str]) -> tuple[Scenario, ...]:
    """All, or those whose name contains one of the words."""
    return tuple(s for s in SCENARIOS if not only or any(word.lower() in s.name.lower() for word in only))


def read_wish() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Gatepost beside its peers.")
    parser.add_argument("--quick", action="store_true", help="short and rough: shows that everything runs")
    parser.add_argument(
        "--only", nargs="+", default=[], help="words of scenario names; 'idle' memory, 'decisions', 'transport'"
    )
    parser.add_argument("--peers", nargs="+", default=["gatepost", "nginx", "haproxy", "dovecot", "direct"])
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one measurement")
    parser.add_argument("--warm-up", type=float, default=0.5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--idle", type=int, default=5000, help="idle TLS sessions for the memory figure")
    parser.add_argument("--auth-core", type=int, default=LOAD_CORE, help="core of nginx's sign-in service")
    parser.add_argument("--python", default=sys.executable, help="interpreter for Gatepost; default: this one")
    parser.add_argument("--keep", type=Path, help="folder for configurations and logs, kept afterwards")
    wish = parser.parse_args()
    if wish.quick:
        wish.seconds, wish.warm_up, wish.repeat, wish.users, wish.idle = 0.4, 0.1, 1, 40, 300
    return wish


def run(folder: Path, wish: argparse.Namespace) -> Results:
    """Start everything, measure, end everything."""
    build(folder / "build")
    machine = Machine(folder)
    busy = busy_share()
    if busy > BUSY:
        print(f"warning: the machine is {busy:.0%} busy with something else; the figures are doubtful", file=sys.stderr)
    try:
        cold_users = 20 if wish.quick else 60
        stage = set_stage(machine, folder / "build", wish.users, cold_users, wish.python)
        peers = start_peers(stage, wish.peers, wish.auth_core)
        return measure_all(Generator(folder / "build" / "loadgen", stage), peers, wish)
    finally:
        machine.stop_all()


def main() -> int:
    """Run, print, tell whether the answers were right."""
    wish = read_wish()
    allow_open_files()
    folder = wish.keep or Path(tempfile.mkdtemp(prefix="gatepost-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    try:
        results = run(folder, wish)
    except (CannotStart, Spoiled, subprocess.CalledProcessError) as fault:
        print(fault, file=sys.stderr)
        return 1
    finally:
        if not wish.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(
        f"One worker on core {PROXY_CORE}; load and stub servers on core {LOAD_CORE}; nginx's sign-in service on core"
    )
    print(f"{wish.auth_core}. {wish.repeat} rounds of {wish.seconds} s. Ratios: Gatepost / peer.\n")
    print(table(results, SCENARIOS))
    if results.transport_table:
        print(f"\n{results.transport_table}")
    for text in results.faults:
        print(f"SPOILED: {text}")
    if wish.json:
        wish.json.write_text(json.dumps(results.as_json(), indent=1) + "\n")
    return 1 if results.faults else 0


if __name__ == "__main__":
    sys.exit(main())
