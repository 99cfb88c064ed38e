"""Every combination of facts has exactly one decision, the oracle's; none raises (SPEC C13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from math import prod

from oracle import TABLE, expected
from worlds import ASKS, Facts, decided, word

from gatepost.routing.decision import StepKind

ALL = {
    "mailbox": ("2003", "2007", "2010", "modern"),
    "site": ("same", "other"),
    "door": ("none", "2003", "2007", "2010", "modern"),
    "present": ("yes", "no"),
    "internal": ("https", "http", "none"),
    "integrated": ("yes", "no"),
    "external": ("no", "yes"),
    "reach": ("peer", "header", "basic"),
    "switch": ("on", "silent", "off"),
    "own": ("2003", "2007", "2010", "modern"),
    "edition": ("rtm", "sp2"),
    "through": ("no", "yes"),
    "ask": ASKS,
    "follows": ("yes", "no"),
    "from_peer": ("no", "yes"),
}
SIZE = prod(len(words) for words in ALL.values())


def combination(number: int) -> Facts:
    """The combination with this number out of all."""
    chosen = {}
    for name, words in ALL.items():
        number, index = divmod(number, len(words))
        chosen[name] = words[index]
    return Facts(**chosen)


def usual() -> Iterator[Facts]:
    """Every combination of the issue's dimensions; a switch varies only where something can depend on it."""
    of_organization = product(
        ALL["mailbox"], ALL["site"], ALL["internal"], ALL["integrated"], ALL["external"], ALL["reach"],
        ("2007", "2010", "modern"), ALL["edition"], ALL["switch"],
    )  # fmt: skip
    for mailbox, site, internal, integrated, external, reach, own, edition, switch in of_organization:
        for ask in ASKS if switch == "on" else ("owa", "ecp"):
            for from_peer in ALL["from_peer"]:
                for follows in ALL["follows"] if ask == "activesync" else ("yes",):
                    yield Facts(
                        ask, mailbox, site, "modern" if mailbox in {"2003", "modern"} else mailbox, "yes", internal,
                        integrated, external, reach, switch, own, edition, follows, from_peer,
                    )  # fmt: skip


def judge(facts: Facts, rows: Counter[int]) -> str:
    """What is wrong with the code's decision; empty when it is the oracle's. `rows` counts the oracle's rows."""
    decision = decided(facts)
    outcome, row = expected(facts)
    rows[row] += 1
    if word(decision) != outcome:
        return f"{facts}: {word(decision)}, the oracle says {outcome}: {decision.steps}"
    if [step.kind is StepKind.TAKEN for step in decision.steps] != [False] * (len(decision.steps) - 1) + [True]:
        return f"{facts}: not exactly one rule taken, and that the last: {decision.steps}"
    return ""


def test_every_combination_of_the_rules_dimensions_has_the_oracles_decision() -> None:
    """Protocol, path, version, site, internal URL, authentication, external URL, switch, own version and the rest."""
    rows: Counter[int] = Counter()
    wrong = [fault for facts in usual() if (fault := judge(facts, rows))]
    assert not wrong, "\n".join(wrong[:5])
    assert rows.total() > 50_000


def test_the_whole_product_is_sampled_evenly() -> None:
    """Also doors of every version and none, directories that are missing, sites that are reached by a peer only.

    No row of the oracle stays idle: one that no combination reaches would be a rule that nobody states.
    """
    rows: Counter[int] = Counter()
    step = SIZE // 20_000 | 1  # odd: no multiple of a dimension of two
    wrong = [fault for number in range(0, SIZE, step) if (fault := judge(combination(number), rows))]
    assert not wrong, "\n".join(wrong[:5])
    assert set(rows) == set(range(len(TABLE)))
