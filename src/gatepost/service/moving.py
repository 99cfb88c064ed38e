"""Moving a database by command: the manager is asked where one holds the lease, else the command makes the move itself.

Both ways the steps are those of `activemanager.steps`, and sign-ins wait meanwhile. Everything here blocks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from gatepost.access.tls import client_context
from gatepost.activemanager import hooks
from gatepost.activemanager.asking import REFUSED, asked, copy_service, is_asked
from gatepost.activemanager.port import Move, Observation, Registry, RegistryUnavailable, RegistryView, StaleEpoch
from gatepost.activemanager.selection import Candidate, Lag, rank
from gatepost.activemanager.standing import facts_of, move_in_words
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
    steps_of,
)
from gatepost.configuration.manager_settings import HookKind, HookSettings, ManagerSettings
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.organization.model import Database
from gatepost.routing.decision import ActiveCopy
from gatepost.service.asking import Sessions, sessions_at

POLL_SECONDS = 0.1
TAKEN_SECONDS = 10.0
"""A manager that holds the lease takes a request up within a moment; longer than a lease, so that a standby can."""
GONE_SECONDS = 2.0
"""A request that is not there any more: its manager puts its own move in its place, or says what was wrong."""

Say = Callable[[str], None]


class MoveFailed(Exception):
    """The database was not moved; the words say why, and how it stands."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a move would go. `candidates` are all copies with the judgement on each, best first."""

    server: str
    candidates: tuple[Candidate, ...]


def choose(database: Database, view: RegistryView, wanted: str = "") -> Target:
    """The best copy, or `wanted` if that may be activated. Raises `MoveFailed` with the reasons."""
    candidates = rank(facts_of(database, view))
    usable = [candidate.server for candidate in candidates if candidate.usable]
    if wanted and wanted not in usable:
        reason = next((c.reason for c in candidates if c.server == wanted), "it has no copy")
        raise MoveFailed(f"{database.name} cannot be moved to {wanted}: {reason}")
    if not usable:
        reasons = "".join(f"\n  {candidate.server}: {candidate.reason}" for candidate in candidates)
        raise MoveFailed(f"no other copy of {database.name} may be activated:{reasons}")
    return Target(wanted or usable[0], candidates)


def plan_in_words(configuration: Configuration, view: RegistryView, source: str, target: str) -> str:
    """Who makes a move, and what is done."""
    if view.manager is not None:
        return f"the manager {view.manager.holder} is asked for it"
    has = _has_hook(configuration.front_end.manager)
    words = [f"demote {source}"] if has(HookKind.DEMOTE, source) else []
    words = words or ([f"fence {source}"] if has(HookKind.FENCE, source) else [])
    words += [f"wait until {target} lacks nothing"] if has(HookKind.LAG, target) else []
    words += [f"promote {target}"] if has(HookKind.PROMOTE, target) else []
    return f"no manager runs, this command does it: {', '.join([*words, f'activate {target}'])}"


def move(
    configuration: Configuration,
    registry: Registry,
    database: str,
    target: str,
    *,
    reason: str = "",
    seconds: float = 60.0,
    say: Say = lambda _: None,
) -> ActiveCopy:
    """Make the copy on `target` the active one; answers the new state. `seconds` bound the wait for a manager.

    Raises `MoveFailed`, `RegistryUnavailable`.
    """
    view = registry.view()
    active = view.active.get(database) or ActiveCopy(database, "", 0)
    if active.server == target:
        raise MoveFailed(f"{database} is active on {target} already, epoch {active.epoch}")
    if database in view.moves:
        raise MoveFailed(f"a move of {database} is under way {move_in_words(view.moves[database])}")
    wanted = Move(database, active.server, target, active.epoch, time.time(), reason or "database move")
    if view.manager is not None:
        before = view.observed.get((target, copy_service(database)))
        return _Request(registry, wanted, before, say).fulfilled(seconds)
    settings = configuration.front_end.manager
    outcome = _make(Plan(wanted, planned=True, has_hook=_has_hook(settings)), registry, configuration.front_end, say)
    if not outcome.moved:
        stands = "; the move stands in the registry, and sign-ins to it wait" if outcome.stands else ""
        raise MoveFailed(f"{database} was not moved, {outcome.failed_at} failed: {outcome.text}{stands}")
    return ActiveCopy(database, target, active.epoch + 1)


def wait_until_off(front_end: FrontEnd, database: str, server: str, seconds: float) -> Sessions:
    """Wait until no session of `database` (empty: of any) is at `server`; answers those that are left at the end."""
    deadline = time.monotonic() + seconds
    while True:
        left = sessions_at(front_end, database, server)
        if (left.total == 0 and left.is_whole) or time.monotonic() >= deadline:
            return left
        time.sleep(POLL_SECONDS)


# Asking the manager


class _Request:
    def __init__(self, registry: Registry, wanted: Move, before: Observation | None, say: Say) -> None:
        self._registry = registry
        self._move = wanted
        self._before = before
        self._say = say
        self._taken = False
        self._gone_since: float | None = None

    def fulfilled(self, seconds: float) -> ActiveCopy:
        """The new state. Raises `MoveFailed`."""
        request = replace(self._move, reason=asked(self._move.reason))
        try:
            self._registry.begin_move(request)
        except StaleEpoch as fault:
            raise MoveFailed(f"{fault}: somebody else moves it") from fault
        began = time.monotonic()
        try:
            while time.monotonic() - began < seconds:
                if (now := self._looked(began)) is not None:
                    return now
                time.sleep(POLL_SECONDS)
        except BaseException:
            self._withdraw()
            raise
        self._withdraw()
        goes_on = "the manager goes on with it: gatepost database status" if self._taken else "nothing was changed"
        raise MoveFailed(f"not done after {seconds:g} s; {goes_on}")

    def _withdraw(self) -> None:
        """Nobody waits for it any more: unless the manager has it, sign-ins go on."""
        if self._taken:
            return
        with suppress(RegistryUnavailable):
            standing = self._registry.view().moves.get(self._move.database)
            if standing is not None and is_asked(standing):
                self._registry.end_move(self._move.database, move=standing)

    def _looked(self, began: float) -> ActiveCopy | None:
        wanted, now = self._move, time.monotonic()
        try:
            view = self._registry.view()
        except RegistryUnavailable:
            return None
        active = view.active.get(wanted.database)
        if active is not None and active.epoch > wanted.epoch:
            if active.server == wanted.target:
                return active
            raise MoveFailed(f"{wanted.database} is on {active.server} now, epoch {active.epoch}: it was moved there")
        standing = view.moves.get(wanted.database)
        if standing is None:
            self._look_for_answer(view, now)
            return None
        self._gone_since = None
        if not is_asked(standing):
            if not self._taken:
                self._say(f"the manager goes on with it: {standing.reason}")
            self._taken = True
            self._refuse_by_note(view, "; it cannot be undone and stands: sign-ins wait, and the manager tries again")
        elif now - began >= TAKEN_SECONDS:
            raise MoveFailed(
                f"no manager took it up within {TAKEN_SECONDS:g} s (is it busy with other moves?); nothing was changed"
            )
        return None

    def _refuse_by_note(self, view: RegistryView, stands: str = "") -> None:
        """Raise `MoveFailed` when the manager has said what was wrong."""
        note = view.observed.get((self._move.target, copy_service(self._move.database)))
        if note is not None and note != self._before and not note.healthy:
            reason = note.reason.removeprefix(f"{REFUSED}: ")
            raise MoveFailed(f"{self._move.database} was not moved, the manager says: {reason}{stands}")

    def _look_for_answer(self, view: RegistryView, now: float) -> None:
        self._refuse_by_note(view)
        self._gone_since = now if self._gone_since is None else self._gone_since
        if now - self._gone_since >= GONE_SECONDS:
            raise MoveFailed(f"{self._move.database} was not moved; the manager's log says why (manager.move_failed)")


# Making it here


def _has_hook(settings: ManagerSettings | None) -> Callable[[HookKind, str], bool]:
    return lambda kind, server: settings is not None and settings.hook(kind, server) is not None


def _make(plan: Plan, registry: Registry, front_end: FrontEnd, say: Say) -> Outcome:
    """Carry the steps out. Interrupted before the target was promoted, the move is ended."""
    steps = steps_of(plan)
    maker = _Maker(registry, front_end, say)
    try:
        return maker.outcome(steps)
    except KeyboardInterrupt:
        steps.close()
        if maker.promoting:
            say(
                f"interrupted while {plan.move.target} may have been promoted: the move stands, and sign-ins wait; "
                "see gatepost database status"
            )
        elif maker.begun:
            registry.end_move(plan.move.database, move=plan.move)
            say(f"interrupted: the move is ended. {plan.move.source} may have been demoted: promote it, or move again")
        raise


class _Maker:
    def __init__(self, registry: Registry, front_end: FrontEnd, say: Say) -> None:
        self._registry = registry
        self._front_end = front_end
        self._say = say
        self.begun = False
        self.promoting = False

    def outcome(self, steps: Steps) -> Outcome:
        step = next(steps)
        while True:
            result = self._done(step)
            try:
                step = steps.send(result)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome

    def _done(self, step: Step) -> Result:
        match step:
            case Hook():
                return self._hook(step)
            case Pause(seconds):
                time.sleep(seconds)
                return Result()
        try:
            match step:
                case Begin(move):
                    self._registry.begin_move(replace(move, started=time.time()))
                    self.begun = True
                case Activate(database, target, epoch, lost_seconds):
                    self._registry.activate(database, target, epoch, lost_seconds=lost_seconds)
                case End(database, move):
                    self._registry.end_move(database, move=move)
        except StaleEpoch as fault:
            return Result(Fault.STALE, f"{fault}: somebody else moves it")
        except RegistryUnavailable as fault:
            return Result(Fault.UNAVAILABLE, str(fault))
        return Result()

    def _hook(self, call: Hook) -> Result:
        settings = self._front_end.manager
        hook = settings.hook(call.kind, call.server) if settings is not None else None
        self.promoting |= call.kind is HookKind.PROMOTE and call.server == call.target
        began = time.monotonic()
        result = run_hook(self._front_end, hook or HookSettings(), call)
        words = f" ({result.text})" if result.text else ""
        what = "failed" if result.fault is not None else f"done in {time.monotonic() - began:.1f} s"
        self._say(f"{call.kind} {call.server}: {what}{words}")
        return result


def run_hook(front_end: FrontEnd, hook: HookSettings, call: Hook) -> Result:
    """Run one hook from here."""
    context = hooks.HookContext(client_context(front_end)) if hook.url.startswith("https:") else hooks.HookContext()
    return asyncio.run(hooks.run(hook, call, context))


def lags(configuration: Configuration, database: Database, active: ActiveCopy | None) -> dict[str, Lag]:
    """What the lag hooks say of the passive copies, by server; only those that have a hook."""
    settings = configuration.front_end.manager
    source = active.server if active else ""
    found = {}
    for copy in database.copies:
        hook = settings.hook(HookKind.LAG, copy.server) if settings is not None else None
        if hook is None or copy.server == source:
            continue
        epoch = active.epoch + 1 if active else 1
        call = Hook(HookKind.LAG, database.name, source, copy.server, copy.server, epoch)
        result = run_hook(configuration.front_end, hook, call)
        found[copy.server] = Lag(result.number, "" if result.fault is None else result.text or "no answer")
    return found
