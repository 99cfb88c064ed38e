"""The active manager's mind (SPEC A2, A3): of all managers one holds the lease and acts, the others only look.

    probes, views, lease answers, results, ticks ──► Manager.handle ──► lease requests, observations, steps, log lines

Sans-I/O: time is an argument (seconds of a monotonic clock that counts the machine's sleep), what is to be done is the
answer. Nothing is done without the lease: by its own clock the manager stops a margin before it ends, counted from when
it asked; the conditions of the registry's changes (lease and epoch) have the last word.
"""

from __future__ import annotations

import re

from gatepost.activemanager.asking import copy_service, is_asked
from gatepost.activemanager.holding import Holding
from gatepost.activemanager.manager_events import (
    Asked,
    Configured,
    Do,
    Done,
    Input,
    Leave,
    Observe,
    Outbox,
    Output,
    Probed,
    Stop,
    Tick,
    Viewed,
)
from gatepost.activemanager.port import Dial, Lease, Move, RegistryView, ServerWord
from gatepost.activemanager.seen import Change, Seen
from gatepost.activemanager.selection import Chosen, CopyFacts, Facts, Lag, NoCopy, select
from gatepost.activemanager.steps import Hook, Outcome, Plan, Result, Step, Steps, steps_back, steps_of, steps_refused
from gatepost.activemanager.tasks import Task, Wish
from gatepost.activemanager.tries import Tries
from gatepost.configuration.manager_settings import HookKind, ManagerSettings
from gatepost.organization.model import Database, Organization
from gatepost.routing.decision import ActiveCopy

SLEPT_SECONDS = 1.0
"""Nothing was handled for so long: this process or its machine stood still. Ticks come several times a second."""
NEWS_SECONDS = 10.0
"""After a move that was made, how long a picture from before it may still come."""
_OURS = re.compile(r"manager's term (\d+): ")
"""How the reason of a manager's move begins, so that its successor knows whose it was."""


class Manager:
    """One manager. `holder` is its name in the lease, different in every process."""

    def __init__(self, holder: str, settings: ManagerSettings, organization: Organization, now: float) -> None:
        self._settings = settings
        self._organization = organization
        self._out = Outbox()
        self.seen = Seen(settings, organization, now)
        self._holding = Holding(holder, settings.lease_seconds, now, self._out)
        self._tries = Tries(settings)
        self._view: RegistryView | None = None
        self._last = now
        self._number = 0
        self._tasks: dict[str, Task] = {}
        """By database."""
        self._task_of: dict[int, Task] = {}
        self._foreign: dict[str, tuple[Move, float]] = {}
        """Moves in the registry with the time when they were first seen."""
        self._answered: dict[str, Move] = {}
        """Requests that were taken up; they may still be in the picture."""
        self._awaited: dict[str, tuple[int, float]] = {}
        """Epochs that we made and that are not in the picture yet, until when that is no surprise."""
        self._observed_in_term = 0
        self._stale = 0.0

    # State, for the status and the tests

    @property
    def lease(self) -> Lease | None:
        """The lease, as far as this manager knows."""
        return self._holding.lease

    @property
    def moving(self) -> tuple[str, ...]:
        """Databases with a move under way here."""
        return tuple(self._tasks)

    def acts(self, now: float) -> bool:
        """Whether it may act: it holds the lease by its own clock, the margin left out."""
        return self._holding.acts(now)

    # Events

    def handle(self, event: Input, now: float) -> list[Output]:
        """Take an input at `now`; answers what is to be done, in order."""
        if now - self._last > SLEPT_SECONDS:
            self._out.log("warning", "manager.slept", seconds=round(now - self._last, 1))
            self.seen.slept(now)
        self._last = now
        if self._tasks and not self.acts(now):
            self._drop_tasks("the lease was not renewed in time")  # before a result could let one go on
        look = True
        match event:
            case Probed():
                key = event.server, event.service
                self.seen.probed(key, event.sight, event.reason, event.started, now)
                look = False  # the next tick is soon, and a thousand probes a second are not worth as many looks
            case Viewed(view):
                self._viewed(view, now)
            case Asked():
                self._holding.asked(event, now)
            case Done(number, result):
                self._done(number, result, now)
            case Configured(settings, organization):
                self._configured(settings, organization, now)
            case Leave():
                self._drop_tasks("this manager ends")
                self._holding.leave()
            case Tick(stale):
                self._stale = stale
        self._holding.mind(now)
        if self._tasks and not self.acts(now):
            self._drop_tasks("the lease is lost")
        if look:
            self.seen.update(now)
            self._act(now)
        return self._out.take()

    def _configured(self, settings: ManagerSettings, organization: Organization, now: float) -> None:
        self._settings, self._organization = settings, organization
        self.seen.configure(settings, organization, now)
        self._tries.configure(settings)
        self._holding.seconds = settings.lease_seconds  # from the next lease on

    def _viewed(self, view: RegistryView, now: float) -> None:
        before, self._view = self._view, view
        for name, active in view.active.items():
            old = before.active.get(name) if before is not None else None
            if old is not None and old.epoch != active.epoch:
                self._tries.moved(name)
                self._out.settled(f"copy {name}")
        self._foreign = {
            name: self._foreign[name] if name in self._foreign and self._foreign[name][0] == move else (move, now)
            for name, move in view.moves.items()
        }
        self.seen.mute(frozenset(s for s, word in view.words.items() if word is ServerWord.MAINTENANCE))
        if view.manager is None:
            self._holding.seen_free(now)

    def _drop_tasks(self, why: str) -> None:
        """Leave all moves where they are: who holds the lease next finds them in the registry."""
        for task in self._tasks.values():
            self._out.log("warning", "manager.move_dropped", database=task.database, reason=why)
            self._out.put(*(Stop(number) for number in sorted(task.waiting)))
            if task.steps is not None:
                task.steps.close()
        self._tasks.clear()
        self._task_of.clear()
        self._answered.clear()

    # Deciding

    def _act(self, now: float) -> None:
        view, lease = self._view, self._holding.lease
        if view is None or lease is None or not self.acts(now):
            return
        if view.manager is None or view.manager.term != lease.term or self._stale > lease.seconds:
            return  # a picture of before: our predecessor may have done things that are not in it
        changes = self.seen.changes(now, everything=self._observed_in_term != lease.term)
        self._observed_in_term = lease.term
        if changes:
            self._out.put(Observe(tuple(changes), lease))
        restless = self.seen.failed_servers(now) | view.words.keys()
        calm = self._settings.move_back_seconds <= 0
        for database in self._organization.databases.values():
            if len(self._tasks) >= self._settings.moves_at_once:
                return
            active = view.active.get(database.name)
            if active is None or database.name in self._tasks or self._is_old_news(active, now):
                continue
            if calm and active.server not in restless and database.name not in self._foreign:
                self._out.settled(f"held {database.name}")  # as nearly all are, nearly always
                continue
            self._consider(database, active, view, now)

    def _is_old_news(self, active: ActiveCopy, now: float) -> bool:
        epoch, until = self._awaited.get(active.database, (0, 0.0))
        if active.epoch < epoch and now < until:
            return True
        self._awaited.pop(active.database, None)
        return False

    def _consider(self, database: Database, active: ActiveCopy, view: RegistryView, now: float) -> None:
        """Begin a move of this database, if there is a reason and nothing in the way."""
        begun, since = self._foreign.get(database.name, (None, now))
        asked = begun is not None and is_asked(begun) and self._answered.get(database.name) != begun
        if not asked and not self._tries.may_try(database.name, now):
            return
        if begun is not None and any(self.seen.undecided(s, now) for s in (active.server, begun.target)):
            return  # a failover or a planned move, on or back: it takes a moment to see which
        wish = self._wish(database, active, view, now)
        if begun is not None and asked:
            if wish is None or wish.planned:  # a failure does not wait for what was asked
                wish = Wish(planned=True, reason="an operator asked for it", target=begun.target)
            self._answered[database.name] = begun
        elif begun is not None:
            if not self._is_left_alone(begun, since, now):
                return
            wish = wish or Wish(planned=True, reason="a move that was left alone", target=begun.target)
        if wish is None:
            return
        task = Task(database.name, active.server, wish.planned, wish.reason, begun, wanted=wish.target)
        if asked:
            task.begun, task.asked = None, begun
        lagging = [] if wish.planned else self._measured(database, active.server)
        if not lagging:
            self._choose(task, now)
            return
        self._tasks[task.database] = task
        for server in lagging:
            hook = Hook(HookKind.LAG, database.name, active.server, server, server, active.epoch + 1)
            task.asked_lag_of[self._do(task, hook)] = server

    def _is_left_alone(self, move: Move, since: float, now: float) -> bool:
        """Whether nobody goes on with a move that stands in the registry: a manager's, since only we hold the lease, or
        a command's that takes too long."""
        return _OURS.match(move.reason) is not None or now - since >= self._settings.orphan_seconds

    def _wish(self, database: Database, active: ActiveCopy, view: RegistryView, now: float) -> Wish | None:
        """Why the database should not stay where it is."""
        word = view.words.get(active.server, ServerWord.UP)
        failed = self.seen.failed(active.server, now)
        if failed:
            reason = "; ".join(f"{service}: {text}" for service, text in sorted(failed.items()))
            return self._failover(database, active, reason, now)
        self._out.settled(f"held {database.name}")
        if word is not ServerWord.UP:
            return Wish(planned=True, reason=f"{active.server} is {word}")
        return self._preference(database, active, view, now)

    def _preference(self, database: Database, active: ActiveCopy, view: RegistryView, now: float) -> Wish | None:
        patience = self._settings.move_back_seconds
        first = min(database.copies, key=lambda copy: (copy.preference, copy.server), default=None)
        if patience <= 0 or first is None or first.server == active.server:
            return None
        if (database.name, first.server) in view.blocked or first.server in view.words:
            return None
        if self.seen.well_for(first.server, now) < patience:
            return None
        return Wish(planned=True, reason=f"{first.server} is preferred", target=first.server)

    def _failover(self, database: Database, active: ActiveCopy, reason: str, now: float) -> Wish | None:
        """The wish of a copy that has failed; None while it is not safe or too often."""
        server = self._organization.servers.get(active.server)
        held = self.seen.hold(server.site if server else "", now) or self._tries.too_often(database.name, now)
        if held:
            self._out.say("warning", f"held {database.name}", "manager.failover_held", held, database=database.name)
            return None
        self._out.settled(f"held {database.name}")
        return Wish(planned=False, reason=f"{active.server} has failed: {reason}")

    def _measured(self, database: Database, source: str) -> list[str]:
        """Servers of copies whose lag can be asked for."""
        return [c.server for c in database.copies if c.server != source and self._has_hook(HookKind.LAG, c.server)]

    def _has_hook(self, kind: HookKind, server: str) -> bool:
        return self._settings.hook(kind, server) is not None

    # Choosing

    def _facts(self, task: Task, view: RegistryView, now: float) -> Facts:
        database = self._organization.databases[task.database]
        tried = self._tries.tried(task.database, view.active[task.database].epoch)
        after = None if task.planned else self.seen.failing_from(task.source)
        copies = tuple(
            CopyFacts(
                copy.server,
                copy.preference,
                view.words.get(copy.server, ServerWord.UP),
                (task.database, copy.server) in view.blocked,
                self.seen.health(copy.server, now, after=None if copy.server == task.source else after),
                task.lags.get(copy.server),
                copy.server in tried,
            )
            for copy in database.copies
        )
        dial = view.dials.get(task.database, Dial.GOOD_AVAILABILITY)
        return Facts(task.database, task.source, copies, dial, lossless=task.planned)

    def _choose(self, task: Task, now: float) -> None:
        """Select the target and begin, or say why there is none."""
        view = self._view
        assert view is not None
        found = select(self._facts(task, view, now))
        usable = {c.server for c in found.candidates if c.usable}
        left = task.begun.target if task.begun is not None else ""
        target = found.server if isinstance(found, Chosen) else ""
        if task.wanted:
            target = task.wanted if task.wanted in usable else ""
        elif left in usable and left not in self._tries.tried(task.database, view.active[task.database].epoch):
            target = left  # what may be half done comes before what would be better
        if not target and task.begun is not None and task.planned:
            task.target = left
            self._go(task, view, back=True)
        elif not target:
            self._no_target(task, found, now)
        else:
            self._out.settled(f"copy {task.database}")
            task.target = target
            self._go(task, view)

    def _no_target(self, task: Task, found: Chosen | NoCopy, now: float) -> None:
        reason = found.reason
        if task.wanted:
            refused = [c.reason for c in found.candidates if c.server == task.wanted]
            reason = refused[0] if refused else f"{task.wanted} has no copy"
        self._out.say("error", f"copy {task.database}", "manager.no_copy", reason, database=task.database)
        if task.asked is not None:
            task.target = task.asked.target
            self._begin(task, steps_refused(task.asked, reason))
        elif task.lags or task.wanted:  # asking costs; what needs no asking is looked at all the time
            self._tries.failed(task.database, now)

    def _go(self, task: Task, view: RegistryView, *, back: bool = False) -> None:
        assert self._holding.lease is not None
        epoch, begun = view.active[task.database].epoch, task.begun
        reason = f"manager's term {self._holding.lease.term}: {task.reason}"
        lost = task.lost_seconds(self._settings)
        move = Move(task.database, task.source, task.target, epoch, 0.0, reason)
        plan = Plan(move, task.planned, self._has_hook, begun, asked=task.asked, lost_seconds=lost)
        event = "manager.taking_back" if back else "manager.moving" if task.planned else "manager.failing_over"
        facts = {"database": task.database, "source": task.source, "target": task.target, "epoch": epoch}
        facts |= {"lost_seconds": round(lost)} if lost is not None else {}
        self._out.log("info" if task.planned else "warning", event, **facts, reason=task.reason)
        task.epoch = epoch
        self._begin(task, steps_back(plan) if back else steps_of(plan))

    def _begin(self, task: Task, steps: Steps) -> None:
        self._tasks[task.database] = task
        task.steps = steps
        self._do(task, next(steps))

    # Doing

    def _do(self, task: Task, step: Step) -> int:
        assert self._holding.lease is not None
        self._number += 1
        task.waiting.add(self._number)
        self._task_of[self._number] = task
        self._out.put(Do(self._number, step, self._holding.lease, self._holding.acts_until))
        return self._number

    def _done(self, number: int, result: Result, now: float) -> None:
        task = self._task_of.pop(number, None)
        if task is None:
            return  # of a move that was dropped
        task.waiting.discard(number)
        if task.steps is None:
            fault = "" if result.fault is None else result.text or "no answer"
            task.lags[task.asked_lag_of[number]] = Lag(result.number, fault, result.seconds)
            if not task.waiting:
                self._choose_by_lag(task, now)
            return
        try:
            step = task.steps.send(result)
        except StopIteration as end:
            self._ended(task, end.value, now)
        else:
            self._do(task, step)

    def _choose_by_lag(self, task: Task, now: float) -> None:
        """All have said their lag; meanwhile the world may have changed."""
        self._tasks.pop(task.database)
        active = self._view.active.get(task.database) if self._view is not None else None
        known = task.database in self._organization.databases and active is not None
        if known and active is not None and active.server == task.source and self.seen.failed(task.source, now):
            self._choose(task, now)
        else:
            self._answered.pop(task.database, None)

    def _ended(self, task: Task, outcome: Outcome, now: float) -> None:
        self._tasks.pop(task.database)
        facts = {"database": task.database, "source": task.source, "target": task.target}
        if outcome.moved:
            self._out.log("info", "manager.moved", **facts)
            self._note(task.target, task.database, "", now)
            self._tries.moved(task.database)
            self._awaited[task.database] = task.epoch + 1, now + NEWS_SECONDS
            if not task.planned:
                self._tries.failed_over(task.database, now)
            return
        if outcome.tried:
            self._tries.not_promoted(task.database, task.epoch, task.target)
        self._out.log(
            "error", "manager.move_failed", **facts, step=outcome.failed_at, reason=outcome.text, stands=outcome.stands
        )
        step = f"{outcome.failed_at}: " if outcome.failed_at else ""
        self._note(task.target, task.database, f"{step}{outcome.text}", now)
        self._tries.failed(task.database, now)

    def _note(self, server: str, database: str, fault: str, now: float) -> None:
        """What came of activating a copy, for operators."""
        if self._holding.lease is not None and server:
            change = Change(server, copy_service(database), not fault, now, fault)
            self._out.put(Observe((change,), self._holding.lease))
