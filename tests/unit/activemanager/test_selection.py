"""Best copy selection: the table of its rules, and what holds for all facts (SPEC A2)."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.activemanager.port import Dial, ServerWord
from gatepost.activemanager.selection import MOST_LAG, Chosen, CopyFacts, Facts, Health, Lag, NoCopy, rank, select

DEAD = Health(failed=frozenset({"imap", "pop3"}))
HALF = Health(failed=frozenset({"pop3"}))
UNKNOWN = Health(unknown=frozenset({"imap"}))
SOURCE = CopyFacts("A", 1, health=DEAD)


def facts(*copies: CopyFacts, dial: Dial = Dial.GOOD_AVAILABILITY, lossless: bool = False) -> Facts:
    return Facts("DB01", "A", (SOURCE, *copies), dial, lossless)


B, C = CopyFacts("B", 2), CopyFacts("C", 3)


def lag(behind: float) -> Lag:
    return Lag(behind)


TABLE = [
    ("preference decides between equals", facts(C, B), "B"),
    ("a blocked copy is never taken", facts(replace(B, blocked=True), C), "C"),
    ("a draining server takes none", facts(replace(B, word=ServerWord.DRAINING), C), "C"),
    ("a server in maintenance takes none", facts(replace(B, word=ServerWord.MAINTENANCE), C), "C"),
    ("a failed copy is no gain", facts(replace(B, health=DEAD), C), "C"),
    ("one not seen well yet is not taken", facts(replace(B, health=UNKNOWN), C), "C"),
    ("the healthy one before the half healthy", facts(replace(B, health=HALF), C), "C"),
    ("half healthy is better than dead", facts(replace(B, health=HALF)), "B"),
    ("least lag first", facts(replace(B, lag=lag(5)), replace(C, lag=lag(0))), "C"),
    ("equal lag: preference", facts(replace(B, lag=lag(5)), replace(C, lag=lag(5))), "B"),
    ("known lag before lag nobody measures", facts(B, replace(C, lag=lag(6))), "C"),
    ("over the dial is refused", facts(replace(B, lag=lag(7)), replace(C, lag=lag(6))), "C"),
    ("good availability takes six", facts(replace(B, lag=lag(6))), "B"),
    ("good availability does not take seven", facts(replace(B, lag=lag(7))), None),
    ("best availability takes twelve", facts(replace(B, lag=lag(12)), dial=Dial.BEST_AVAILABILITY), "B"),
    ("best availability does not take thirteen", facts(replace(B, lag=lag(13)), dial=Dial.BEST_AVAILABILITY), None),
    ("lossless takes none", facts(replace(B, lag=lag(1)), dial=Dial.LOSSLESS), None),
    ("lossless goes by preference", facts(replace(B, lag=lag(0)), replace(C, lag=lag(0)), dial=Dial.LOSSLESS), "B"),
    ("lossless wants a measurement", facts(B, dial=Dial.LOSSLESS), None),
    ("a hook without an answer: not good enough", facts(replace(B, lag=Lag(fault="hung"))), None),
    (
        "best availability takes the risk",
        facts(replace(B, lag=Lag(fault="hung")), dial=Dial.BEST_AVAILABILITY),
        "B",
    ),
    ("a planned move looks at no lag before", facts(replace(B, lag=lag(99)), C, lossless=True), "B"),
    ("a planned move goes to health only", facts(replace(B, health=HALF), lossless=True), None),
    ("the one that could not be promoted comes last", facts(replace(B, tried=True), C), "C"),
    ("but it comes", facts(replace(B, tried=True)), "B"),
    ("there is only the source", facts(), None),
    ("an answer that is no number is no answer", facts(replace(B, lag=lag(math.nan))), None),
]


@pytest.mark.parametrize(("given_facts", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(given_facts: Facts, expected: str | None) -> None:
    found = select(given_facts)
    assert (found.server if isinstance(found, Chosen) else None) == expected
    assert found.reason


def test_a_refusal_names_every_copy_and_why() -> None:
    found = select(facts(replace(B, blocked=True), replace(C, lag=lag(9))))
    assert isinstance(found, NoCopy)
    assert found.reason == (
        "B: the copy is blocked from activation; C: its lag 9 is over the 6 of the dial good availability"
    )


SERVICES = st.frozensets(st.sampled_from(["imap", "pop3", "https"]))
LAGS = st.none() | st.builds(Lag, st.none() | st.integers(0, 20).map(float), st.just("no answer"))
COPY = st.builds(
    CopyFacts,
    st.sampled_from("ABCDEF"),
    st.integers(1, 4),
    st.sampled_from(ServerWord),
    st.booleans(),
    st.builds(Health, SERVICES, st.just(frozenset()) | SERVICES),
    LAGS,
    st.booleans(),
)
FACTS = st.builds(
    Facts,
    st.just("DB01"),
    st.sampled_from(["A", "B", ""]),
    st.lists(COPY, max_size=6, unique_by=lambda copy: copy.server).map(tuple),
    st.sampled_from(Dial),
    st.booleans(),
)


@given(FACTS)
def test_what_is_chosen_may_be_chosen(facts: Facts) -> None:
    """Never blocked, draining, the source, unseen, as sick as the source, or over the dial."""
    found = select(facts)
    if isinstance(found, NoCopy):
        return
    copy = next(copy for copy in facts.copies if copy.server == found.server)
    assert copy.word is ServerWord.UP
    assert not copy.blocked
    assert copy.server != facts.source
    assert not copy.health.unknown
    source = next((c for c in facts.copies if c.server == facts.source), None)
    assert not copy.health.failed or (source is not None and copy.health.failed < source.health.failed)
    if not facts.lossless and copy.lag is not None and copy.lag.behind is not None:
        assert copy.lag.behind <= MOST_LAG[facts.dial]


@given(FACTS, st.randoms())
def test_the_order_of_the_copies_means_nothing(facts: Facts, chance: random.Random) -> None:
    shuffled = list(facts.copies)
    chance.shuffle(shuffled)
    assert rank(replace(facts, copies=tuple(shuffled))) == rank(facts)


@given(FACTS)
def test_every_copy_is_judged_once_and_the_usable_come_first(facts: Facts) -> None:
    ranked = rank(facts)
    assert sorted(c.server for c in ranked) == sorted(c.server for c in facts.copies)
    assert [c.usable for c in ranked] == sorted((c.usable for c in ranked), reverse=True)
    assert all(c.reason for c in ranked)


@given(FACTS, COPY)
def test_a_copy_that_may_not_be_chosen_changes_nothing(facts: Facts, other: CopyFacts) -> None:
    if any(copy.server == other.server for copy in facts.copies) or other.server == facts.source:
        return
    more = replace(facts, copies=(*facts.copies, replace(other, blocked=True)))
    before, after = select(facts), select(more)
    assert isinstance(before, Chosen) == isinstance(after, Chosen)
    if isinstance(before, Chosen) and isinstance(after, Chosen):
        assert before.server == after.server


@given(FACTS)
def test_a_tighter_dial_never_allows_more(facts: Facts) -> None:
    usable = [
        {c.server for c in rank(replace(facts, dial=dial)) if c.usable}
        for dial in (Dial.LOSSLESS, Dial.GOOD_AVAILABILITY, Dial.BEST_AVAILABILITY)
    ]
    assert usable[0] <= usable[1] <= usable[2]
