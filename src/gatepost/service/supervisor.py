"""The supervisor: owns configuration, listening sockets, log file and workers; serves no client itself.

    SIGHUP, a command's change ──► read and check all ──► open what is new ──► tell the workers ──► close what is gone
    SIGTERM, SIGINT ──► stop listening ──► workers drain ──► end; a second one ends at once

One loop. It keeps root, where it was started so, to read keys, bind low ports and reopen the log at a reload; what
comes from the network is handled only in workers without privileges.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from gatepost.access import tasks
from gatepost.configuration.settings import Configuration
from gatepost.service import handing_over, logs, privileges, sessions, stores
from gatepost.service.control import (
    Opened,
    Reload,
    ServiceStatus,
    Start,
)
from gatepost.service.fleet import Fleet, StartFailed
from gatepost.service.following import OrganizationFollower, followed
from gatepost.service.handing_over import Loaded, pack
from gatepost.service.keeper import MANAGER, TRANSPORT, Keeper
from gatepost.service.operators import OperatorsSocket
from gatepost.service.sd_notify import Notifier
from gatepost.service.service_status import service_status
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest
from gatepost.service.sockets import NO_CHANGE, AlreadyRunning, Change, InstanceLock, ListenError, Listeners
from gatepost.service.transport_messages import ANSWER_SECONDS, TransportReply, TransportRequest
from gatepost.service.transport_sockets import bindings
from gatepost.service.worker_process import DEFAULT_CORE

CONFIRM_SECONDS = 10.0
"""For all workers to take over a new configuration."""
MIN_OPEN_FILES = 65_536
"""Each session takes two descriptors; workers raise their own limit up to what the supervisor could allow."""


class CannotStart(RuntimeError):
    """The service cannot start. The message has a line for each reason, with its remedy; some are only `warnings`."""

    def __init__(self, message: str, warnings: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.warnings = warnings


class Supervisor:
    """One front end on this machine: `run` returns the exit status.

    `path` is the configuration file, `server` overrides `front_end.server`, `workers` overrides `front_end.workers`.
    `core` names the factory of the workers' core; only tests choose another.
    """

    def __init__(
        self, path: str, server: str | None = None, workers: int | None = None, *, core: str = DEFAULT_CORE
    ) -> None:
        self._path = str(Path(path).absolute())
        self._server = server
        self._workers = workers
        self._core = core
        self._notifier = Notifier(os.environ)
        self._listeners = Listeners()
        self._bindings = Listeners()
        self._loaded: Loaded
        self._fleet: Fleet
        self._manager: Keeper
        self._transport: Keeper
        self._operators: OperatorsSocket | None = None
        self._follower: OrganizationFollower | None = None
        self._read_at = 0.0
        self._writer: logs.LineWriter
        self._stop_signals = 0
        self._stopped = asyncio.Event()
        self._reloading = asyncio.Lock()

    async def run(self) -> int:
        """Starts, serves until told to end, ends. Raises `CannotStart`."""
        self._loaded = await self._load(1)
        configuration = self._loaded.configuration
        lock = self._lock(configuration)
        try:
            try:
                stores.check_folders(configuration)
            except stores.UnusableFolder as fault:
                raise CannotStart(str(fault)) from fault
            self._prepare(configuration)
            privileges.raise_open_files(MIN_OPEN_FILES)
            self._log = logs.configure(self._writer, process="supervisor")
            self._follow(configuration)
            stores.prepare(configuration, self._log)
            await self._start(configuration)
            await self._stopped.wait()
            self._log.info("service.ended")
        finally:
            if self._follower is not None:
                self._follower.close()
            if self._operators is not None:
                self._operators.close()
            if hasattr(self, "_writer"):
                self._writer.close()
            self._notifier.close()
            lock.release()
        return 0

    async def _load(self, version: int) -> Loaded:
        self._read_at = time.time()
        try:
            loaded = await handing_over.load(self._path, self._server, version)
            user = loaded.configuration.front_end.user
            if user:
                privileges.check_can_become(privileges.account(user))
        except handing_over.Invalid as fault:
            raise CannotStart(str(fault), fault.warnings) from fault
        except privileges.PrivilegeError as fault:
            raise CannotStart(str(fault)) from fault
        return loaded

    def _lock(self, configuration: Configuration) -> InstanceLock:
        registry = Path(configuration.front_end.registry)
        path = registry.parent / f"gatepost-{configuration.front_end.server}.lock"
        try:
            return InstanceLock(str(path))
        except AlreadyRunning as fault:
            raise CannotStart(str(fault)) from fault
        except OSError as fault:
            raise CannotStart(
                f"The lock file {path} cannot be made: {fault.strerror}. Create the registry's folder, owned by the "
                f"account in front_end.user."
            ) from fault

    def _prepare(self, configuration: Configuration) -> None:
        try:
            self._listeners.commit(
                self._listeners.prepare(configuration.server.client_endpoints, self._slots(configuration))
            )
            self._bindings.commit(self._bindings.prepare(bindings(configuration), 1))
            path = configuration.front_end.log_file
            self._writer = logs.LineWriter(logs.open_log(path) if path else 1)
        except ListenError as fault:
            raise CannotStart(str(fault)) from fault
        except OSError as fault:
            raise CannotStart(f"The log file cannot be opened: {fault}. Correct front_end.log_file.") from fault

    async def _start(self, configuration: Configuration) -> None:
        self._fleet = Fleet(self._core, self._start_message, self._log)
        self._fleet.drain_seconds = configuration.front_end.limits.drain_seconds
        self._manager = Keeper(MANAGER, lambda: self._start_message(MANAGER.slot, ()), self._log)
        self._transport = Keeper(TRANSPORT, self._start_transport, self._log)
        self._watch_signals()
        self._log_warnings()
        try:
            await self._fleet.start(self._slots(configuration))
        except StartFailed as fault:
            await self._fleet.drain(0)
            raise CannotStart(f"No worker could start: {fault}") from fault
        if self._stop_signals:
            return
        self._manager.follow(configuration)
        self._transport.drain_seconds = self._ending_seconds(configuration)
        self._transport.follow(configuration)
        self._operators = OperatorsSocket(configuration, self, self._log)
        listening = (*configuration.server.client_endpoints, *bindings(configuration))
        endpoints = {e.name: f"{e.address}:{e.port}" for e in listening}
        self._log.info("service.started", server=configuration.front_end.server, endpoints=endpoints, pid=os.getpid())
        self._notifier.ready(f"Serving as {configuration.front_end.server}")
        self._sign_of_life()
        if self._follower is not None:
            self._follower.start()

    def _log_warnings(self) -> None:
        for text in self._loaded.warnings:
            self._log.warning("configuration.finding", finding=text)
        user = self._loaded.configuration.front_end.user
        if os.geteuid() == 0 and not user:
            self._log.warning("service.runs_as_root", remedy="set front_end.user to an account for the workers")
        if user and not privileges.can_read(privileges.account(user), __file__):
            remedy = f"install Gatepost and its Python where {user} may read them, such as /opt/gatepost"
            self._log.warning("service.code_not_readable", user=user, remedy=remedy)

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._task(self._reload(), "reload"))
        loop.add_signal_handler(signal.SIGUSR2, self._renew)

    def _task(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        tasks.start(coroutine, name)

    def _sign_of_life(self) -> None:
        if self._notifier.watchdog_seconds is not None:
            self._notifier.watchdog()
            asyncio.get_running_loop().call_later(self._notifier.watchdog_seconds, self._sign_of_life)

    def _slots(self, configuration: Configuration) -> int:
        if not configuration.server.client_endpoints:
            return 0  # a server that only transports mail
        return self._workers or configuration.front_end.workers or len(os.sched_getaffinity(0))

    @staticmethod
    def _ending_seconds(configuration: Configuration) -> float:
        transport = configuration.front_end.transport
        return transport.ending_seconds if transport is not None else 0.0

    # Messages to workers

    def _common(
        self, slot: int, names: tuple[str, ...] | None, listeners: Listeners
    ) -> tuple[dict[str, Any], list[int]]:
        sockets = listeners.for_slot(slot, names)
        path = self._loaded.configuration.front_end.log_file
        descriptors = [self._writer.descriptor] if path else []
        descriptors += [sock.fileno() for found in sockets.values() for sock in found]
        fields = {
            "version": self._loaded.configuration.version,
            "configuration": pack(self._loaded.configuration),
            "opened": [Opened(name, len(found)) for name, found in sockets.items()],
            "log": bool(path),
        }
        return fields, descriptors

    def _start_message(self, slot: int, names: tuple[str, ...] | None = None) -> tuple[Start, list[int]]:
        fields, descriptors = self._common(slot, names, self._listeners)
        return Start(**fields, slot=slot, user=self._loaded.configuration.front_end.user), descriptors

    def _reload_message(self, slot: int, change: Change) -> tuple[Reload, list[int]]:
        fields, descriptors = self._common(slot, change.changed, self._listeners)
        return Reload(**fields, closed=list(change.closed)), descriptors

    def _start_transport(self) -> tuple[Start, list[int]]:
        fields, descriptors = self._common(0, None, self._bindings)
        return Start(**fields, slot=TRANSPORT.slot, user=self._loaded.configuration.front_end.user), descriptors

    def _reload_transport(self, change: Change) -> tuple[Reload, list[int]]:
        fields, descriptors = self._common(0, change.changed, self._bindings)
        return Reload(**fields, closed=list(change.closed)), descriptors

    # Reload

    def _follow(self, configuration: Configuration) -> None:
        """Reload when a command has changed the organization; its file is read as at a SIGHUP."""
        front_end, before = configuration.front_end, self._follower
        if before is not None and before.follows == followed(front_end):
            return
        self._follower = OrganizationFollower(front_end, self._reload, self._log, since=self._read_at)
        if before is not None:
            before.close()
            self._follower.start()

    async def _reload(self) -> None:
        async with self._reloading:
            if self._stop_signals:
                return
            self._notifier.reloading()
            try:
                loaded = await self._load(self._loaded.configuration.version + 1)
                if self._is_ending():  # asked for while it was read: nothing may be opened or started any more
                    return
                self._check_same_server(loaded)
                change = self._listeners.prepare(
                    loaded.configuration.server.client_endpoints, self._slots(loaded.configuration)
                )
                binding_change = self._bindings.prepare(bindings(loaded.configuration), 1)
            except (CannotStart, ListenError) as fault:
                self._reopen_log(self._loaded)
                # The same configuration again, for the sake of the log file.
                self._fleet.reload(lambda slot: self._reload_message(slot, NO_CHANGE))
                warnings = fault.warnings if isinstance(fault, CannotStart) else frozenset()
                for line in str(fault).splitlines():
                    say = self._log.warning if line in warnings else self._log.error
                    say("configuration.finding", finding=line)
                self._log.error("configuration.rejected", version=self._loaded.configuration.version)
            else:
                await self._apply(loaded, change, binding_change)
            finally:
                # Whatever came of it: the service manager waits for the end of the reload.
                if not self._is_ending():
                    self._notifier.ready(f"Serving as {self._loaded.configuration.front_end.server}")

    def _is_ending(self) -> bool:
        return self._stop_signals > 0

    def _check_same_server(self, loaded: Loaded) -> None:
        before, after = self._loaded.configuration.front_end.server, loaded.configuration.front_end.server
        if before != after:
            raise CannotStart(f"front_end.server changed from {before} to {after}: this needs a restart.")

    async def _apply(self, loaded: Loaded, change: Change, binding_change: Change) -> None:
        old, new = self._loaded.configuration, loaded.configuration
        self._loaded = loaded
        self._reopen_log(loaded)
        self._log_warnings()
        self._follow(new)
        stores.prepare(new, self._log)
        slots = self._slots(new)
        self._fleet.drain_seconds = new.front_end.limits.drain_seconds
        # Workers that go away are told before their sockets are closed here, so that they accept what waits on them.
        self._fleet.shrink(slots, new.front_end.limits.drain_seconds)
        self._listeners.commit(change)
        self._fleet.reload(lambda slot: self._reload_message(slot, change))
        self._manager.follow(new, lambda: self._reload_message(MANAGER.slot, NO_CHANGE))
        self._bindings.commit(binding_change)
        self._transport.drain_seconds = self._ending_seconds(new)
        self._transport.follow(new, lambda: self._reload_transport(binding_change))
        self._fleet.grow(slots)
        if _needs_new_workers(old, new):
            self._fleet.replace()
        objections = await self._fleet.confirmed(CONFIRM_SECONDS)
        if objections:
            # A worker that cannot change in place gives way to one that starts with the new configuration.
            self._fleet.replace()
        self._log.info("configuration.reloaded", version=new.version, objections=objections)

    def _reopen_log(self, loaded: Loaded) -> None:
        """Opens the log file anew: a rotation may have renamed it."""
        path = loaded.configuration.front_end.log_file
        try:
            self._writer.replace(logs.open_log(path) if path else os.dup(1))
        except OSError as fault:
            self._log.error("log.not_reopened", reason=str(fault))

    def _renew(self) -> None:
        """New workers from the code on disk take over (SIGUSR2): an upgrade of all but the supervisor itself."""
        if self._stop_signals:
            return
        self._log.info("service.renewing")
        self._fleet.replace()

    # The end

    def _stop(self) -> None:
        self._stop_signals += 1
        if self._stop_signals > 2:
            for worker in list(self._fleet):
                worker.kill()
            return
        seconds = self._loaded.configuration.front_end.limits.drain_seconds if self._stop_signals == 1 else 0.0
        self._log.info("service.draining", seconds=seconds)
        self._notifier.stopping("Draining", seconds)
        self._listeners.close()
        self._bindings.close()
        self._task(self._drain(seconds), "drain")

    async def _drain(self, seconds: float) -> None:
        # The manager gives its lease back at once: another front end's takes over while sessions here end.
        ending = min(seconds, self._ending_seconds(self._loaded.configuration))
        await asyncio.gather(self._manager.stop(), self._transport.stop(ending), self._fleet.drain(seconds))
        self._stopped.set()

    async def sessions(self, request: SessionsRequest) -> SessionsReply:
        """The sessions of all workers that match."""
        return await sessions.find(list(self._fleet), request, self._loaded.configuration.front_end.server)

    async def kick(self, request: Kick) -> Kicked:
        """End the sessions of all workers that match."""
        self._log.info("sessions.kick", reason=request.reason, **request.wanted.words())
        return await sessions.kick(list(self._fleet), request, self._loaded.configuration.front_end.server)

    async def transport(self, request: TransportRequest) -> TransportReply:
        """What the transport says to an operator's request."""
        server = self._loaded.configuration.front_end.server
        process = self._transport.process
        answer = await process.ask(request, ANSWER_SECONDS) if process is not None else None
        if isinstance(answer, TransportReply):
            return TransportReply(answer.answer, answer.error, server, request.request)
        error = f"{server} transports no mail" if process is None else "the transport does not answer"
        return TransportReply(None, error, server, request.request)

    async def status(self) -> ServiceStatus:
        """The service and its workers now."""
        return await service_status(self._loaded.configuration, self._fleet, self._manager, self._transport)


def _needs_new_workers(old: Configuration, new: Configuration) -> bool:
    """Whether something changed that a worker takes up only when it starts."""

    def fixed(c: Configuration) -> tuple[object, ...]:
        front = c.front_end
        checks = (front.limits.password_checks, front.limits.password_checks_per_address)
        return (
            front.user,
            front.directory,
            front.directories,
            front.registry,
            front.etcd,
            front.shared_store,
            front.token_issuers,
            c.organization.default_domain,
            checks,
        )

    return fixed(old) != fixed(new)
