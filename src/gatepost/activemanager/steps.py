"""The steps of one move, in their order, as a dialogue: each step is said, its result is told (SPEC A2).

    planned:   begin ─► demote the source ─► lag none? ─► promote the target ─► activate
    failover:  begin ─► fence the source ──────────────► promote the target ─► activate

Sans-I/O: a generator that yields steps and is sent their results. The manager drives it with its lease, a command
without. A hook that fails stops the move: what was done is undone, and the move ends. Where it cannot be undone, since
the target may be a writer, the move stays in the registry, so that whoever acts next knows that this one comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from enum import Enum

from gatepost.activemanager.asking import PROMOTING, REFUSED
from gatepost.activemanager.port import Move
from gatepost.configuration.manager_settings import HookKind

LAG_TRIES = 20
LAG_PAUSE_SECONDS = 0.5
"""A planned move waits for the target to catch up: so many looks at its lag, so far apart."""
REGISTRY_TRIES = 10
REGISTRY_PAUSE_SECONDS = 0.5
"""A registry that does not answer may have lost its leader a moment ago: elections take a second or two."""


class Fault(Enum):
    """Why a step failed."""

    HOOK = "hook"
    STALE = "stale"
    """The epoch is over, or another move of the database is under way."""
    LEASE = "lease"
    UNAVAILABLE = "unavailable"
    """The registry did not answer; what was asked for may have happened."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a step. `text` is for people, of a hook its output; `number` what a lag hook measured."""

    fault: Fault | None = None
    text: str = ""
    number: float | None = None
    seconds: float | None = None
    """Since when the copy lacks something, where the lag hook said that."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Have sign-ins wait. `started` of the move is filled in by who does it."""

    move: Move


@dataclass(frozen=True, slots=True)
class Hook:
    """Run the hook of this kind for `server`, if there is one."""

    kind: HookKind
    database: str
    source: str
    target: str
    server: str
    epoch: int
    """The epoch that the move is to lead to: what storage that refuses late calls compares."""


@dataclass(frozen=True, slots=True)
class Activate:
    """Make the target active, if the database is at `epoch` still."""

    database: str
    target: str
    epoch: int
    lost_seconds: float | None = None
    """The copy may lack what came in so many seconds before this; None: it lacks nothing."""


@dataclass(frozen=True, slots=True)
class End:
    """The move has come to nothing; it is ended if it is the one that stands."""

    database: str
    move: Move


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


Step = Begin | Hook | Activate | End | Pause


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a move. `failed_at` is the step that stopped it, in a word, and `text` why."""

    moved: bool
    failed_at: str = ""
    text: str = ""
    stands: bool = False
    """It could not be undone and stays in the registry."""
    tried: bool = False
    """The target could not be promoted: another one may do better."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A move to make. `has_hook` says whether there is a hook of a kind that concerns a server."""

    move: Move
    planned: bool
    has_hook: Callable[[HookKind, str], bool]
    begun: Move | None = None
    """What stands in the registry already: its target may have been promoted."""
    asked: Move | None = None
    """A request that stands in the registry: nothing was done for it yet, and the move takes its place."""
    lost_seconds: float | None = None
    """What the target may lack (`Activate`)."""


Steps = Generator[Step, Result, Outcome]


def steps_of(plan: Plan) -> Steps:
    """The dialogue of a move."""
    move = plan.move
    if plan.asked is not None:
        # Not left as it is: whoever finds the move after our death must know that the target may be a writer.
        yield from _persistently(End(move.database, plan.asked))
    if plan.begun is None:
        result = yield from _persistently(Begin(move))
        if result.fault is not None:
            return Outcome(False, "begin", result.text)
    for kind, server in _giving_up(plan):
        result = yield from _hook(plan, kind, server)
        if result.fault is not None:
            return (yield from _given_up(plan, f"{kind} of {server}", result, began=kind is HookKind.DEMOTE))
    if plan.planned:
        result = yield from _catch_up(plan)
        if result.fault is not None:
            return (yield from _given_up(plan, "lag", result))
    if plan.begun is not None and plan.begun.target != move.target:
        # The registry must know whom we promote; who was to be promoted before has been fenced.
        yield from _persistently(End(move.database, plan.begun))
        result = yield from _persistently(Begin(move))
        if result.fault is not None:
            return Outcome(False, "begin", result.text)
    result = yield from _hook(plan, HookKind.PROMOTE, move.target)
    if result.fault is not None:
        now = replace(plan, begun=move)
        return replace((yield from _given_up(now, f"{PROMOTING}{move.target}", result)), tried=True)
    result = yield from _persistently(Activate(move.database, move.target, move.epoch, plan.lost_seconds))
    if result.fault is not None:
        # Whoever was faster has the last word; what is stale has ended in the registry already.
        return Outcome(False, "activate", result.text, stands=True)
    return Outcome(True)


def steps_back(plan: Plan) -> Steps:
    """The dialogue that undoes a move which stands in the registry and was left alone by who began it."""
    return (yield from _given_up(plan, "", Result(text="it was left alone, and is undone")))


def steps_refused(move: Move, why: str) -> Steps:
    """The dialogue for a request that is not fulfilled."""
    yield from _persistently(End(move.database, move))
    return Outcome(False, REFUSED, why)


def _giving_up(plan: Plan) -> list[tuple[HookKind, str]]:
    """Hooks that keep others from writing: the source, and who may have been promoted before."""
    move, fences = plan.move, []
    if move.source:
        demotes = plan.planned and plan.has_hook(HookKind.DEMOTE, move.source)
        fences.append((HookKind.DEMOTE if demotes else HookKind.FENCE, move.source))
    if plan.begun is not None and plan.begun.target not in {move.target, move.source}:
        fences.append((HookKind.FENCE, plan.begun.target))
    return fences


def _hook(plan: Plan, kind: HookKind, server: str) -> Generator[Step, Result, Result]:
    if not plan.has_hook(kind, server):
        return Result()
    move = plan.move
    return (yield Hook(kind, move.database, move.source, move.target, server, move.epoch + 1))


def _catch_up(plan: Plan) -> Generator[Step, Result, Result]:
    """Until the target lacks nothing: a planned move is lossless."""
    result = Result()
    for _ in range(LAG_TRIES):
        result = yield from _hook(plan, HookKind.LAG, plan.move.target)
        if result.fault is None and not result.number:
            return Result()
        yield Pause(LAG_PAUSE_SECONDS)
    if result.fault is not None:
        return result
    return Result(Fault.HOOK, f"{plan.move.target} still lacks {result.number:g}")


def _given_up(plan: Plan, failed_at: str, result: Result, *, began: bool = True) -> Steps:
    """Undo what was done and end the move. `began`: the source may have been kept from writing, in good order."""
    move, before = plan.move, plan.begun
    if before is not None and plan.has_hook(HookKind.PROMOTE, before.target):
        # The target may be a writer, by this move or by who began it. Better no writer than two.
        kind = HookKind.DEMOTE if plan.has_hook(HookKind.DEMOTE, before.target) else HookKind.FENCE
        if not plan.has_hook(kind, before.target):
            return Outcome(False, failed_at, result.text, stands=True)
        undoing = yield Hook(
            kind, move.database, before.target, move.source, before.target, move.epoch + 1
        )  # to the target it is the other way round
        if undoing.fault is not None:
            return Outcome(False, failed_at, f"{result.text}; undoing it: {undoing.text}", stands=True)
    if plan.planned and began and move.source and plan.has_hook(HookKind.PROMOTE, move.source):
        # When this fails too, the hook's line in the log is all that can be done.
        yield Hook(HookKind.PROMOTE, move.database, move.target, move.source, move.source, move.epoch + 1)
    yield from _persistently(End(move.database, before or move))
    return Outcome(False, failed_at, result.text)


def _persistently(step: Begin | Activate | End) -> Generator[Step, Result, Result]:
    """A change of the registry, again while that does not answer: its conditions make it happen once."""
    result = yield step
    for _ in range(REGISTRY_TRIES):
        if result.fault is not Fault.UNAVAILABLE:
            return result
        yield Pause(REGISTRY_PAUSE_SECONDS)
        result = yield step
    return result
