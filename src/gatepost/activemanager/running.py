"""A manager that runs: its mind joined to the registry, the probes, the hooks and the clock of this machine.

One loop. The registry is called in threads, since a call may take as long as a network wants; hooks are processes.
What is decided is in `manager`, nothing here.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from structlog.typing import FilteringBoundLogger

from gatepost.activemanager import hooks
from gatepost.activemanager import manager_events as words
from gatepost.activemanager.boot_clock import boot_seconds
from gatepost.activemanager.changing import change_registry
from gatepost.activemanager.manager import Manager
from gatepost.activemanager.observing import Observer
from gatepost.activemanager.open import open_registry, watch_registry
from gatepost.activemanager.port import MANAGER, Lease, LeaseLost, RegistryUnavailable, RegistryView
from gatepost.activemanager.probing import ContextOf, Prober
from gatepost.activemanager.steps import Fault, Hook, Pause, Result
from gatepost.configuration.manager_settings import HookSettings, ManagerSettings
from gatepost.configuration.settings import Configuration, FrontEnd

T = TypeVar("T")

TICK_SECONDS = 0.1
LEASE_THREADS = 3
"""Calls about the lease have threads of their own: a change that hangs must not keep it from being renewed."""
ANSWER = 0.5
"""A call about the lease is given up after this part of it."""
LEAVING_SECONDS = 2.0
"""For giving the lease back at the end; it ends by itself later."""


def holder_name(server: str) -> str:
    """A name for this process in the lease, that no other process ever had."""
    return f"{server}/{os.getpid()}/{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class ManagerState:
    """What a manager does, for the status. `acts`: it holds the lease; `holder` and `term` are the lease's, whoever has
    it."""

    acts: bool
    holder: str
    term: int
    moving: tuple[str, ...]
    ill: dict[str, str]


class RunningManager:
    """One manager in this process. `contexts` makes the TLS contexts for connections to servers."""

    def __init__(
        self,
        configuration: Configuration,
        contexts: Callable[[FrontEnd], ContextOf],
        log: FilteringBoundLogger,
        hook_context: Callable[[FrontEnd], hooks.HookContext] = lambda _: hooks.HookContext(),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._contexts = contexts
        self._make_hook_context = hook_context
        self._log = log
        front_end = configuration.front_end
        self._settings = settings_of(configuration)
        self._hook_context = hook_context(front_end)
        self.holder = holder_name(front_end.server)
        self._mind = Manager(self.holder, self._settings, configuration.organization, boot_seconds())
        self._leases = open_registry(front_end, ANSWER * self._settings.lease_seconds)
        self._registry = open_registry(front_end, self._settings.lease_seconds)
        # What was known before is no ground to act on, so nothing is remembered.
        self._watch = watch_registry(front_end, self._loop, remembers=False)
        self._lease_threads = ThreadPoolExecutor(LEASE_THREADS, "lease")
        self._threads = ThreadPoolExecutor(max(4, self._settings.moves_at_once), "registry")
        self._observer = Observer(self._registry, self._call, log)
        self._tasks: set[asyncio.Task[None]] = set()
        self._steps: dict[int, asyncio.Task[None]] = {}
        self._hooks: set[asyncio.Task[None]] = set()
        self._prober: Prober | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._configuration = configuration
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Gets an exception when something happened that cannot be: the process should end and be started anew."""
        self.on_view: Callable[[RegistryView], None] | None = None
        """Called with every new view of the registry."""

    def start(self) -> None:
        """Probe, ask for the lease, and act once it is held."""
        self._watch.on_change(self._viewed)
        self._watch.start()
        if self._watch.view != RegistryView():
            self._viewed(self._watch.view)
        self._prober = Prober(
            self._settings,
            self._configuration.organization,
            self._contexts(self._configuration.front_end),
            self._tell,
            boot_seconds,
        )
        self._tick()

    def reload(self, configuration: Configuration) -> None:
        """Go on with another configuration. Where the registry is may not change. Moves under way go on."""
        self._configuration = configuration
        self._settings = settings_of(configuration)
        self._hook_context = self._make_hook_context(configuration.front_end)
        if self._prober is not None:
            context_of = self._contexts(configuration.front_end)
            self._prober.configure(self._settings, configuration.organization, context_of)
        self._tell(words.Configured(self._settings, configuration.organization))

    def state(self) -> ManagerState:
        """What it does now."""
        now = boot_seconds()
        acts = self._mind.acts(now)
        lease = self._mind.lease if acts else self._watch.view.manager
        holder, term = (lease.holder, lease.term) if lease is not None else ("", 0)
        return ManagerState(acts, holder, term, self._mind.moving, dict(self._mind.seen.describe(now)))

    async def leave(self) -> None:
        """Give the lease back, so that a standby acts at once, and end everything."""
        if self._timer is not None:
            self._timer.cancel()
        if self._prober is not None:
            self._prober.close()
        self._tell(words.Leave())
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEAVING_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._prober is not None:
            await self._prober.wait_closed()
        self._watch.close()
        self._lease_threads.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._registry.close()
        self._leases.close()

    # The mind

    def _viewed(self, view: RegistryView) -> None:
        self._tell(words.Viewed(view))
        if self.on_view is not None:
            self.on_view(view)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        self._tell(words.Tick(self._watch.stale_seconds))

    def _tell(self, event: words.Input) -> None:
        try:
            for output in self._mind.handle(event, boot_seconds()):
                self._carry_out(output)
        except Exception as fault:  # noqa: BLE001 - a mind in an unknown state must not act: this manager ends
            if not self.failed.done():
                self.failed.set_exception(fault)

    def _carry_out(self, output: words.Output) -> None:
        match output:
            case words.Log(level, event, fields):
                getattr(self._log, level)(event, **fields)
            case words.Take():
                self._spawn(self._take(output), "take the lease")
            case words.Keep():
                self._spawn(self._keep(output), "keep the lease")
            case words.GiveBack(lease):
                self._spawn(self._give_back(lease), "give the lease back")
            case words.Observe(changes, lease):
                self._observer.seen(changes, lease, self._spawn)
            case words.Do(number, step, _, _):
                task = self._spawn(self._do(output), f"step {number}")
                self._steps[number] = task
                task.add_done_callback(lambda _: self._steps.pop(number, None))
                if isinstance(step, Hook):
                    self._hooks.add(task)
                    task.add_done_callback(self._hooks.discard)
            case words.Stop(number):
                if number in self._steps:
                    self._steps[number].cancel()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(fault)

    # The lease

    async def _take(self, ask: words.Take) -> None:
        call = self._lease_threads.submit(self._leases.take_lease, MANAGER, ask.holder, ask.seconds)
        try:
            lease = await asyncio.wait_for(asyncio.wrap_future(call), ANSWER * ask.seconds)
        except TimeoutError:
            call.add_done_callback(self._too_late)
            self._tell(words.Asked(None, ask.asked, "no answer in time"))
        except RegistryUnavailable as fault:
            self._tell(words.Asked(None, ask.asked, str(fault) or "no answer"))
        else:
            self._tell(words.Asked(lease, ask.asked))

    def _too_late(self, call: Future[Lease | None]) -> None:
        """In the thread: a lease that nobody waits for any more is given back."""
        if call.cancelled() or call.exception() is not None:
            return
        lease = call.result()
        if lease is not None:
            try:
                self._leases.give_lease_back(lease)
            except RegistryUnavailable as fault:  # then it ends by itself
                self._log.info("manager.lease_not_given_back", reason=str(fault))

    async def _keep(self, ask: words.Keep) -> None:
        call = self._lease_threads.submit(self._leases.keep_lease, ask.lease)
        try:
            await asyncio.wait_for(asyncio.wrap_future(call), ANSWER * ask.lease.seconds)
        except LeaseLost:
            self._tell(words.Asked(None, ask.asked))
        except TimeoutError:
            self._tell(words.Asked(None, ask.asked, "no answer in time"))
        except RegistryUnavailable as fault:
            self._tell(words.Asked(None, ask.asked, str(fault) or "no answer"))
        else:
            self._tell(words.Asked(ask.lease, ask.asked))

    async def _give_back(self, lease: Lease) -> None:
        if self._hooks:  # they are being killed: nobody may act before they have ended
            await asyncio.wait(set(self._hooks))
        call = self._lease_threads.submit(self._leases.give_lease_back, lease)
        try:
            await asyncio.wait_for(asyncio.wrap_future(call), ANSWER * lease.seconds)
        except (RegistryUnavailable, TimeoutError) as fault:
            self._log.info("manager.lease_not_given_back", reason=str(fault) or "no answer in time")

    # Steps

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401 - whatever it takes
        return await asyncio.wrap_future(self._threads.submit(function, *arguments))

    async def _do(self, do: words.Do) -> None:
        if boot_seconds() >= do.before:
            result = Result(Fault.LEASE, "the lease ends too soon")
        elif isinstance(do.step, Hook):
            result = await self._hook(do.step, do.lease)
        elif isinstance(do.step, Pause):
            await asyncio.sleep(do.step.seconds)
            result = Result()
        else:
            result = await self._call(change_registry, self._registry, do.step, do.lease)
        self._tell(words.Done(do.number, result))

    async def _hook(self, call: Hook, lease: Lease) -> Result:
        settings = self._settings.hook(call.kind, call.server) or HookSettings()
        began = self._loop.time()
        result = await hooks.run(settings, call, self._hook_context, lease.term)
        level = self._log.info if result.fault is None else self._log.error
        level(
            "manager.hook",
            kind=call.kind.value,
            database=call.database,
            server=call.server,
            epoch=call.epoch,
            succeeded=result.fault is None,
            milliseconds=round((self._loop.time() - began) * 1000),
            output=result.text,
        )
        return result


def settings_of(configuration: Configuration) -> ManagerSettings:
    """The manager's settings; the defaults where the front end has none (`gatepost manager` started by hand)."""
    return configuration.front_end.manager or ManagerSettings()
