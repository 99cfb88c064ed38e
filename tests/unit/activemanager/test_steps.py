"""The steps of a move as a dialogue: their order by table, and for all results: no two writers, nothing left unsaid."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.activemanager.port import Move
from gatepost.activemanager.steps import (
    Activate,
    Begin,
    End,
    Fault,
    Hook,
    Outcome,
    Pause,
    Plan,
    Result,
    Step,
    Steps,
    steps_back,
    steps_of,
)
from gatepost.configuration.manager_settings import HookKind

LAG, FENCE, DEMOTE, PROMOTE = HookKind.LAG, HookKind.FENCE, HookKind.DEMOTE, HookKind.PROMOTE
ALL = frozenset(HookKind)
MOVE = Move("DB1", "A", "B", 4, 0.0, "")
NO = Result(Fault.HOOK, "no")
AWAY = Result(Fault.UNAVAILABLE, "no answer")
STALE = Result(Fault.STALE, "DB1 is at epoch 5")


def plan(*, planned: bool, hooks: frozenset[HookKind] = ALL, begun: Move | None = None) -> Plan:
    return Plan(MOVE, planned, lambda kind, _: kind in hooks, begun)


def short(step: Step) -> str:
    match step:
        case Hook():
            return f"{step.kind} {step.server}"
        case Begin(move):
            return f"begin {move.target}"
        case Activate():
            return f"activate {step.target}"
    return type(step).__name__.lower()


def play(steps: Steps, results: list[tuple[str, Result]] | None = None) -> tuple[list[str], Outcome]:
    """All steps in short words, and the outcome; `results` are what the named steps come to, each once."""
    left = list(results or [])
    said = []
    try:
        step = next(steps)
        while True:
            said.append(short(step))
            result = Result(number=0.0) if isinstance(step, Hook) and step.kind is LAG else Result()
            if left and left[0][0] == said[-1]:
                result = left.pop(0)[1]
            step = steps.send(result)
    except StopIteration as end:
        assert left == [], "every result was used"
        return said, end.value


MOVED = Outcome(True)
TABLE = [
    ("planned", plan(planned=True), [], "begin B, demote A, lag B, promote B, activate B", MOVED),
    ("failover", plan(planned=False), [], "begin B, fence A, promote B, activate B", MOVED),
    ("planned without hooks", plan(planned=True, hooks=frozenset()), [], "begin B, activate B", MOVED),
    (
        "planned, fence only",
        plan(planned=True, hooks=frozenset({FENCE})),
        [],
        "begin B, fence A, activate B",
        MOVED,
    ),
    ("another was faster", plan(planned=False), [("begin B", STALE)], "begin B", Outcome(False, "begin", STALE.text)),
    (
        "the fence fails",
        plan(planned=False),
        [("fence A", NO)],
        "begin B, fence A, end",
        Outcome(False, "fence of A", "no"),
    ),
    (
        "the demotion fails: perhaps it was half done",
        plan(planned=True),
        [("demote A", NO)],
        "begin B, demote A, promote A, end",
        Outcome(False, "demote of A", "no"),
    ),
    (
        "the promotion fails at a failover",
        plan(planned=False),
        [("promote B", NO)],
        "begin B, fence A, promote B, demote B, end",
        Outcome(False, "promote of B", "no", tried=True),
    ),
    (
        "the promotion fails when planned",
        plan(planned=True),
        [("promote B", NO)],
        "begin B, demote A, lag B, promote B, demote B, promote A, end",
        Outcome(False, "promote of B", "no", tried=True),
    ),
    (
        "and the target cannot be taken back: better no writer than two",
        plan(planned=True),
        [("promote B", NO), ("demote B", NO)],
        "begin B, demote A, lag B, promote B, demote B",
        Outcome(False, "promote of B", "no; undoing it: no", stands=True, tried=True),
    ),
    (
        "nothing to take it back with",
        plan(planned=False, hooks=frozenset({PROMOTE})),
        [("promote B", NO)],
        "begin B, promote B",
        Outcome(False, "promote of B", "no", stands=True, tried=True),
    ),
    (
        "the activation is refused",
        plan(planned=False),
        [("activate B", STALE)],
        "begin B, fence A, promote B, activate B",
        Outcome(False, "activate", STALE.text, stands=True),
    ),
    (
        "the registry is away for a moment",
        plan(planned=False, hooks=frozenset()),
        [("activate B", AWAY), ("activate B", AWAY)],
        "begin B, activate B, pause, activate B, pause, activate B",
        MOVED,
    ),
    (
        "the target catches up",
        plan(planned=True),
        [("lag B", Result(number=2.0)), ("lag B", NO)],
        "begin B, demote A, lag B, pause, lag B, pause, lag B, promote B, activate B",
        MOVED,
    ),
    (
        "a move that stands is gone on with",
        plan(planned=False, begun=MOVE),
        [],
        "fence A, promote B, activate B",
        MOVED,
    ),
    (
        "one that stands for another target is fenced and replaced first",
        plan(planned=False, begun=Move("DB1", "A", "C", 4, 0.0)),
        [],
        "fence A, fence C, end, begin B, promote B, activate B",
        MOVED,
    ),
]


@pytest.mark.parametrize(
    ("given_plan", "results", "expected", "outcome"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE]
)
def test_table(given_plan: Plan, results: list[tuple[str, Result]], expected: str, outcome: Outcome) -> None:
    said, came = play(steps_of(given_plan), results)
    assert ", ".join(said) == expected
    assert came == outcome


def test_a_move_is_taken_back_target_first() -> None:
    assert play(steps_back(plan(planned=True, begun=MOVE)))[0] == ["demote B", "promote A", "end"]


def test_it_is_not_taken_back_when_the_target_may_go_on_writing() -> None:
    said, outcome = play(steps_back(plan(planned=True, begun=MOVE)), [("demote B", NO)])
    assert said == ["demote B"]
    assert outcome.stands


def test_hooks_are_told_the_epoch_to_come() -> None:
    steps = steps_of(plan(planned=False))
    next(steps)
    assert steps.send(Result()) == Hook(FENCE, "DB1", "A", "B", "A", 5)


def test_a_registry_that_stays_away_is_not_asked_for_ever() -> None:
    said, outcome = play(steps_of(plan(planned=False)), [("begin B", AWAY)] * 11)
    assert said.count("begin B") == 11
    assert outcome == Outcome(False, "begin", "no answer")


@dataclass
class Storage:
    """Replicas and a registry that believe each other nothing: what happened, and what was answered, may differ."""

    writers: set[str] = field(default_factory=lambda: {"A"})
    standing: Move | None = None
    activated: bool = False

    def happens(self, step: Step) -> None:
        match step:
            case Hook():
                if step.kind is PROMOTE:
                    self.writers.add(step.server)
                elif step.kind in {DEMOTE, FENCE}:
                    self.writers.discard(step.server)
            case Begin(move):
                self.standing = move
            case Activate():
                self.standing, self.activated = None, True
            case End(_, move):
                self.standing = None if self.standing == move else self.standing


ANSWERS = st.sampled_from(["well", "fails", "fails though done", "away", "away though done"])


@given(
    st.booleans(),
    st.sets(st.sampled_from(HookKind)).map(frozenset),
    st.sampled_from([None, MOVE, Move("DB1", "A", "C", 4, 0.0)]),
    st.lists(ANSWERS, max_size=12),
    st.sampled_from([frozenset(), frozenset({"B"}), frozenset({"C"})]),
)
def test_whatever_comes_of_the_steps_there_are_no_two_writers(
    planned: bool, hooks: frozenset[HookKind], begun: Move | None, answers: list[str], promoted: frozenset[str]
) -> None:
    """With hooks to promote and to keep from writing. A move that found another one standing may find that one's target
    promoted, and the source given up."""
    if PROMOTE in hooks and not hooks & {FENCE, DEMOTE}:
        return  # nothing there keeps anybody from writing
    if FENCE not in hooks and (not planned or (begun is not None and begun.target == "C")):
        return
    if PROMOTE not in hooks:
        return
    storage = Storage(standing=begun)
    if begun is not None and promoted == {begun.target}:
        storage.writers = set(promoted)
    steps = steps_of(plan(planned=planned, hooks=hooks, begun=begun))
    try:
        step = next(steps)
        for count in range(500):
            answer = answers[count] if count < len(answers) else "well"
            step = steps.send(_answer(storage, step, answer))
            assert len(storage.writers) <= 1, f"after {short(step)}"
        pytest.fail("no end")
    except StopIteration as end:
        outcome: Outcome = end.value
    assert len(storage.writers) <= 1
    if outcome.moved:
        assert storage.activated
        assert storage.writers == {"B"}
    elif storage.writers & {"B", "C"}:
        assert storage.standing is not None or storage.activated, "what may write besides the source is on record"


def _answer(storage: Storage, step: Step, answer: str) -> Result:
    if isinstance(step, Pause):
        return Result()
    if answer in {"well", "fails though done", "away though done"}:
        storage.happens(step)
    if answer == "well":
        return Result(number=0.0)
    if isinstance(step, Hook):
        return NO
    return AWAY if answer.startswith("away") else STALE
