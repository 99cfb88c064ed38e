"""The figures as a table: medians, ratios of pairs measured next to each other, goals."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median

from measure import Measured, Scenario

NEARLY_FULL = 0.9
"""A core that is busier than this is what limits the figure."""


@dataclass
class Memory:
    """Memory of one peer with idle TLS sessions."""

    sessions: int
    before: int
    with_sessions: int

    @property
    def per_session(self) -> float:
        """Everything the peer's processes hold, in bytes for each session."""
        return self.with_sessions / self.sessions

    @property
    def growth(self) -> float:
        """What a session adds, in bytes."""
        return (self.with_sessions - self.before) / self.sessions


@dataclass
class Results:
    """All measurements of a run: for each scenario and peer one `Measured` a round, in the same order of rounds."""

    rounds: dict[str, dict[str, list[Measured]]] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    cold_logins: float = 0.0
    decisions: dict[str, float] = field(default_factory=dict)
    """What `decisions.py` printed."""
    transport: dict[str, object] = field(default_factory=dict)
    """What `transport.py` wrote."""
    transport_table: str = ""
    faults: list[str] = field(default_factory=list)

    def add(self, scenario: Scenario, peer: str, measured: Measured) -> None:
        """Keep one measurement."""
        self.rounds.setdefault(scenario.name, {}).setdefault(peer, []).append(measured)

    def ratio(self, scenario: str, peer: str, of: str = "figure", to: str = "gatepost") -> float:
        """Median over the rounds of the value of `to` (Gatepost) divided by the peer's of the same round."""
        found = self.rounds.get(scenario, {})
        pairs = zip(found.get(to, []), found.get(peer, []), strict=False)
        values = [getattr(ours, of) / (getattr(theirs, of) or 1e-9) for ours, theirs in pairs]
        return median(values) if values else float("nan")

    def as_json(self) -> dict[str, object]:
        """Everything, for a file."""
        return {
            "rounds": {s: {p: [asdict(m) for m in ms] for p, ms in peers.items()} for s, peers in self.rounds.items()},
            "memory": {peer: asdict(memory) for peer, memory in self.memory.items()},
            "cold_logins": self.cold_logins,
            "decisions": self.decisions,
            "transport": self.transport,
            "faults": self.faults,
        }


def limit_of(measured: list[Measured]) -> str:
    """What held the figure down: the peer, the load, or neither (waiting, or other work on the machine)."""
    if median(m.proxy_share for m in measured) >= NEARLY_FULL:
        return "proxy"
    if median(m.load_share + m.helper_share for m in measured) >= NEARLY_FULL:
        return "load"
    return "waits"


def table(results: Results, scenarios: tuple[Scenario, ...]) -> str:
    """The table. Ratios are Gatepost / peer, so more than 1 is in its favour; for rows of its own, row / first row."""
    head = f"{'':22}{'peer':12}{'median':>12}{'p50 ms':>9}{'p99 ms':>9}{'proxy':>7}{'helper':>7}{'load':>6}"
    head += f"{'cpu/op':>9}{'limit':>7}{'ratio':>8}{'cpu':>7}  goal"
    lines = [head, "-" * len(head)]
    for scenario in scenarios:
        first = scenario.name
        for peer, measured in results.rounds.get(scenario.name, {}).items():
            lines.append(f"{first:22}{peer:12}{_row(results, scenario, peer, measured)}")
            first = ""
    lines += _memory_lines(results.memory)
    if results.cold_logins:
        lines.append(
            f"{'first sign-ins':22}{'gatepost':12}{results.cold_logins:>10.0f}/s  (argon2id at its usual cost)"
        )
    for way in ("remembered", "anew") if results.decisions else ():
        figure, goal = results.decisions[f"{way}_per_second"], results.decisions["goal"]
        met = "met" if figure >= goal else "MISSED"
        lines.append(f"{'decisions':22}{way:12}{figure:>10,.0f}/s  at least {goal:,.0f}: {met}")
    return "\n".join(lines)


def _row(results: Results, scenario: Scenario, peer: str, measured: list[Measured]) -> str:
    def middle(name: str) -> float:
        values: list[float] = [getattr(m, name) for m in measured]
        return median(values)

    text = f"{middle('figure'):>8,.0f}{scenario.unit:<4}{middle('p50_ms'):>9.2f}{middle('p99_ms'):>9.2f}"
    text += f"{middle('proxy_share'):>7.0%}{middle('helper_share'):>7.0%}{middle('load_share'):>6.0%}"
    text += f"{middle('cost_us'):>7.0f}us{limit_of(measured):>7}"
    if peer == "gatepost" or "gatepost" not in results.rounds[scenario.name]:
        return text
    own_goal = scenario.own_goals.get(peer)
    if own_goal is not None:
        return text + _own_ratio(results, scenario.name, peer, own_goal)
    text += f"{results.ratio(scenario.name, peer):>8.2f}"
    # the peer's processor time for an operation, divided by ours: what the ratio would be with a faster load
    text += f"{1 / results.ratio(scenario.name, peer, 'cost_us'):>7.2f}" if middle("cost_us") else f"{'':7}"
    goal = scenario.goals.get(peer)
    if goal is not None:
        text += f"  {goal:g} {'met' if results.ratio(scenario.name, peer) >= goal else 'MISSED'}"
    return text


def _own_ratio(results: Results, scenario: str, peer: str, goal: float) -> str:
    """Another row of Gatepost's: it is compared with the first, by figure and by processor time."""
    ratio = results.ratio(scenario, "gatepost", to=peer)
    cost = results.ratio(scenario, peer, "cost_us")
    words = f"{goal:g} of gatepost {'met' if ratio >= goal else 'MISSED'}" if goal else "of gatepost"
    return f"{ratio:>8.2f}{cost:>7.2f}  {words}"


def _memory_lines(memory: dict[str, Memory]) -> list[str]:
    lines: list[str] = []
    ours = memory.get("gatepost")
    for peer, found in memory.items():
        text = f"{f'{found.sessions} idle, TLS' if not lines else '':22}{peer:12}"
        text += f"{found.per_session / 1024:>8.1f}kB each, of which {found.growth / 1024:.1f} kB by the session"
        if ours and peer != "gatepost":
            ratio = ours.per_session / found.per_session
            text += f"   ratio {ratio:.2f} (by the session {ours.growth / found.growth:.2f})"
            if peer == "nginx":
                text += f"  at most 1.5: {'met' if ratio <= 1.5 else 'MISSED'}"
        lines.append(text)
    return lines
