"""A hub, put together: what is received becomes the queue's, what is queued is sent (SPEC T).

receive ─► intake ─► spool ─► categorizer ─► queues ─► dispatcher ─► reaching ─► servers
                                 ▲                          │
                directory, registry, organization      reports, settler ─► spool
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.activemanager.open import watch_registry
from gatepost.activemanager.port import OwnedRegistryWatch
from gatepost.balancing.back_pressure import METERING_SECONDS, Pressure
from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.configuration.hub import parse_resolver
from gatepost.configuration.settings import Configuration
from gatepost.directory.open import open_directory, open_kerberos, use_other_ways
from gatepost.directory.port import OwnedDirectory
from gatepost.organization.transport import binding_name
from gatepost.routing.mail.router import MailRouter
from gatepost.transport.categorizer import SUBMISSION, Categorizer
from gatepost.transport.checks import Checks
from gatepost.transport.configured import (
    connectors_of,
    hub_settings,
    intake_settings,
    open_spool,
    other_hub,
    ourselves,
    receiving_tls,
    sending_material,
)
from gatepost.transport.connectivity_log import ConnectivityLog
from gatepost.transport.dispatch.dispatcher import Dispatcher
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.dns import Resolver
from gatepost.transport.intake import Intake
from gatepost.transport.next_hop_targets import NextHopTargets, Ourselves
from gatepost.transport.operating import VERBS, Operating
from gatepost.transport.quarantine import QUARANTINE_VERBS, Quarantine
from gatepost.transport.queues.queues import Queues
from gatepost.transport.reaching import Identity, Reaching, fresh
from gatepost.transport.receive.service import ReceiveService
from gatepost.transport.recipients import Recipients
from gatepost.transport.remembered import Remembered
from gatepost.transport.reporting import Reporting
from gatepost.transport.reports.builder import Reporter
from gatepost.transport.rerouting import Rerouting
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.senders import Senders
from gatepost.transport.shadow.answering import ShadowPart
from gatepost.transport.shadow.channels import ShadowChannels
from gatepost.transport.shadow.listing import SHADOW_VERBS
from gatepost.transport.shadow.redelivery import SAFETY_NET_VERBS
from gatepost.transport.shadow.service import ShadowService
from gatepost.transport.sign_in import HubSignIn
from gatepost.transport.spool.spool import DiskSpool
from gatepost.wire.shadow_words import ShadowHub, ShadowOffer

TICK_SECONDS = 1.0
CLOCK_SET_SECONDS = 5.0
"""The wall's clock was set when it has gone so much more or less than time has."""
LOOK_UP_SECONDS = 5.0
"""Between two times that messages are routed anew which could not be: a directory may come and go."""
ADDRESSES_SECONDS = 60.0
"""Between two looks at the addresses of this machine."""
FIRST_VIEW_SECONDS = 3.0
"""A hub that starts waits so long for what the registry says; until then mail for mailboxes waits."""


async def open_hub(
    configuration: Configuration, log: FilteringBoundLogger, clock: Callable[[], float] = time.time
) -> Hub:
    """A hub that transports mail. Raises `SpoolInUse`, `SpoolDamaged`, OSError, `ssl.SSLError`, ValueError.

    A missing directory or registry is no fault here: it is logged, and mail waits until it comes.
    """
    loop = asyncio.get_running_loop()
    front_end = configuration.front_end
    spool = await open_spool(configuration, log)
    directory = open_directory(front_end, loop)
    directory.start()
    registry = watch_registry(front_end, loop)
    registry.start()
    await registry.first_view(FIRST_VIEW_SECONDS)
    hub = Hub(configuration, spool, directory, registry, log, clock)
    await hub.start()
    return hub


class Hub:
    """Everything of one hub or edge on this machine; made by `open_hub`."""

    def __init__(
        self,
        configuration: Configuration,
        spool: DiskSpool,
        directory: OwnedDirectory,
        registry: OwnedRegistryWatch,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._configuration = configuration
        self._spool = spool
        self._directory = directory
        self._registry = registry
        self._log = log
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        server, settings = configuration.server, configuration.server.transport
        self._sign_in = HubSignIn(configuration, directory, self._loop)
        open_kerberos(self._sign_in, configuration.front_end)
        use_other_ways(self._sign_in, configuration.front_end)
        self._checks: Checks | None = None
        self._recipients = Recipients(directory, configuration.organization)
        self.queues = Queues()
        router = MailRouter(configuration.organization, server.name)
        self._categorizer = Categorizer(self.queues, self._recipients, router, settings, clock, log)
        self._reporting = Reporting(spool, self._categorizer, Reporter(server.fqdn), clock, log)
        self._settler = Settler(spool, self._reporting, settings, clock, log)
        self._rerouting = Rerouting(self.queues, self._categorizer, self._settler, spool, clock, log)
        self._selector = HealthyServerSelector(settings)
        resolvers = [parse_resolver(text) for text in hub_settings(configuration).resolvers]
        self._resolver = Resolver(resolvers)
        self._targets = NextHopTargets(self._resolver, Ourselves())
        self._outbound = Outbound(log)
        self._connectivity = ConnectivityLog(Path(hub_settings(configuration).connectivity_log), settings, clock)
        self._reaching = Reaching(
            self._categorizer,
            self._targets,
            self._selector,
            self._outbound,
            self._recipients,
            Identity(server.fqdn),
            clock,
            log,
            self._connectivity,
        )
        self._dispatcher = Dispatcher(
            self.queues, spool, self._reaching, self._settler, self._rerouting.soon, clock, log
        )
        self._categorizer.touch = self._dispatcher.touch
        self.intake = Intake(spool, self._categorizer, clock, log)
        self._senders = self.intake.senders = Senders(directory, self.intake.is_ours, log)
        self._receive = ReceiveService(
            connectors_of(self._configuration), self.intake, server.fqdn, log, sign_in=self._sign_in
        )
        self._own = ShadowHub(server.name, spool.identity)
        self._channels = ShadowChannels(self._reaching, self._own, log)
        self.shadow = ShadowService(
            self._own,
            configuration.organization,
            spool,
            self._settler,
            self.queues,
            self._categorizer,
            self._recipients,
            self._channels,
            clock,
            log,
        )
        self._join_shadow()
        self._remembered = Remembered(spool, self.queues, self._selector, self._settler, clock)
        self._operating = Operating(
            self.queues,
            self._dispatcher,
            self._settler,
            spool,
            self._rerouting.now,
            self._reaching.expedite,
            self._remembered.keep_suspended,
            clock,
        )
        self._loading: asyncio.Task[None] | None = None
        self._metered_at = 0.0
        self._ahead = 0.0
        """How far the wall's clock is ahead of the loop's."""
        self._quarantine = Quarantine(spool, self._categorizer, log)
        self._quarantine.forgotten = self.shadow.redundancy.dropped
        self._known_at = 0.0
        self._looked_up_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Take up what the spool has, and begin to send."""
        self._connectivity.configure(self._configuration.server.transport)
        self._configure()
        self._spool.on_pressure = self._pressure_changed
        if self._spool.pressure is not Pressure.NORMAL:
            self._pressure_changed(self._spool.pressure)
        await self._remembered.load()
        faulty = await self._spool.quarantined()
        await self.shadow.load([(found.number, found.envelope) for found in faulty if found.envelope is not None])
        self._follow_registry()
        self._registry.on_change(lambda _view: self._follow_registry())
        self._dispatcher.start()
        threshold = self._configuration.server.transport.poison_threshold
        self._loading = tasks.start(self._load(threshold), "load the spool")
        self._ahead = self._clock() - self._loop.time()
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    async def _load(self, poison_threshold: int) -> None:
        await self._rerouting.load(self._spool.messages(), poison_threshold, self.shadow.found)
        self.shadow.loaded()

    def _join_shadow(self) -> None:
        """Who tells the shadow service what happens to messages."""
        shadow = self.shadow
        self._settler.redundancy = shadow.redundancy
        self.intake.watched = shadow.watched
        shadow.carrying.take_up = self._rerouting.take_up

    async def listen(self, sockets: dict[str, list[socket.socket]]) -> None:
        """Accept connections on bound, listening sockets, by binding. Owns the sockets from then on."""
        bindings = {binding_name(b): b for connector in connectors_of(self._configuration) for b in connector.bindings}
        for name, found in sockets.items():
            for sock in found:
                await self._receive.listen(sock, bindings[name])

    def close_listeners(self, names: Iterable[str]) -> None:
        """Close the listeners of these bindings; their sessions go on."""
        gone = set(names)
        self._receive.close_listeners(lambda binding: binding_name(binding) in gone)

    def reload(self, configuration: Configuration) -> None:
        """Use another configuration from now on. Raises when it cannot."""
        self._sign_in.follow(self._configuration, configuration)
        open_kerberos(self._sign_in, configuration.front_end)
        use_other_ways(self._sign_in, configuration.front_end)
        router = MailRouter(configuration.organization, configuration.front_end.server)
        self._configuration = configuration
        settings = configuration.server.transport
        self._categorizer.use(router, settings)
        self._settler.settings = settings
        self._selector.settings = settings
        self._spool.limit(settings.max_queued_messages, settings.min_free_bytes)
        self._connectivity.configure(settings)
        self._configure()
        self._reaching.configure(Identity(configuration.server.fqdn))
        self._rerouting.reconsider()
        self._dispatcher.reconsider()

    async def drain(self, seconds: float) -> None:
        """Take nothing more, give what is under way `seconds`, and close everything."""
        if self._timer is not None:
            self._timer.cancel()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        self.shadow.protector.hurry()
        await asyncio.gather(self._receive.stop(seconds), self._dispatcher.end(seconds))
        await self._rerouting.end()
        await self.shadow.end()
        self._channels.close()
        await self._reaching.close()
        await self._resolver.close()
        if self._checks is not None:
            await self._checks.close()
        await self._sign_in.end()
        self._registry.close()
        self._directory.close()
        await self._directory.wait_closed()
        self._remembered.keep_unhealthy()
        await self._settler.flush()
        await self._spool.close()
        await asyncio.to_thread(self._connectivity.close)

    def counters(self) -> dict[str, int]:
        """Numbers for the operator."""
        return {
            "messages": self._spool.count,
            "queues": len(self.queues),
            "connections_in": len(self._receive.connections),
            "connections_out": self._dispatcher.connections,
            "taken": self.intake.taken,
            "refused": self.intake.refused,
            "delivered": self._settler.delivered,
            "failed": self._settler.failed,
            "reports": self._reporting.made,
            "unhealthy_servers": len(self._selector),
            "pressure": int(self.intake.pressure),
            "loading": int(self._rerouting.loading),
            **self.shadow.counters(),
        }

    async def operate(self, verb: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - by verb
        """An operator's request (see `operating`). Raises ValueError, TypeError for one that cannot be understood."""
        if verb == "unhealthy":
            return msgspec.to_builtins(self._selector.unhealthy(self._clock()))
        if verb == "forget":
            return self._selector.forget((str(arguments["address"]), int(arguments["port"])))
        if verb == "redirect":
            arguments = arguments | {"target": other_hub(self._configuration, str(arguments.get("target")))}
        if verb in VERBS:
            performer: object = self._operating
        elif verb in QUARANTINE_VERBS:
            performer = self._quarantine
        elif verb in SHADOW_VERBS:
            performer = self.shadow.listing
        elif verb in SAFETY_NET_VERBS:
            performer = self.shadow.redelivery
        else:
            raise ValueError(f"the transport knows no {verb}")
        answer = getattr(performer, verb)(**arguments)
        return await answer if asyncio.iscoroutine(answer) else answer

    # What changes

    def _configure(self) -> None:
        configuration = self._configuration
        server, expiration = configuration.server, configuration.server.transport.message_expiration
        organization = self._recipients.organization = configuration.organization
        self._sign_in.policy.set_settings(configuration.front_end.policy)
        self.intake.configure(intake_settings(configuration))
        self._senders.configure(connectors_of(configuration), organization.default_domain)
        self._reporting.reporter = Reporter(server.fqdn, organization.postmaster, lifetime=expiration)
        self._know_ourselves()
        self._outbound.renew(sending_material(configuration))
        tls = receiving_tls(configuration)
        self._receive.reload(connectors_of(configuration), server.fqdn, tls, self._sign_in)
        self._set_checks()
        self._set_shadow(expiration)

    def _set_shadow(self, expiration: float) -> None:
        """With which hubs messages are made redundant, and how."""
        shadow, organization = self.shadow, self._configuration.organization
        others = shadow.configure(organization, expiration)
        self._channels.keep_only(others)
        self._receive.shadow = ShadowPart(ShadowOffer(self._own, others), shadow.answers) if others else None
        protector = shadow.protector if shadow.protector.active else None
        self.intake.protector = self._reporting.protector = protector
        self._dispatcher.token = shadow.tokens.fresh if shadow.is_on else None

    def _know_ourselves(self) -> None:
        self._targets.ourselves = ourselves(self._configuration)
        self._known_at = self._clock()

    def _set_checks(self) -> None:
        """Hook and keys, anew: files of keys may have been changed."""
        settings, before = hub_settings(self._configuration), self._checks
        has_any = settings.content_hook is not None or settings.dkim
        fqdn = self._configuration.server.fqdn
        self._checks = Checks(settings, fqdn, self._spool, self._clock, self._log) if has_any else None
        self.intake.check = self._checks
        if before is not None:
            tasks.start(before.close(), "close the content hook")

    def _follow_registry(self) -> None:
        view = self._registry.view
        self._rerouting.set_active({name: copy.server for name, copy in view.active.items()})
        self.shadow.redelivery.follow(view.losses)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        now = self._clock()
        self._notice_clock(now)
        self._rerouting.set_unreachable(fresh(self._reaching.unreached_sites, now))
        self._look_up_again(now)
        self.shadow.tick(now)
        if abs(now - self._known_at) >= ADDRESSES_SECONDS:
            self._know_ourselves()
        self._remembered.look(now)
        if self._loop.time() - self._metered_at >= METERING_SECONDS - TICK_SECONDS / 2:
            self._metered_at = self._loop.time()
            waiting = self.queues.get(SUBMISSION)
            self.intake.meter(len(waiting) if waiting is not None else 0)

    def _notice_clock(self, now: float) -> None:
        """Waiting is measured by the wall's clock, since it outlives the process; when that is set, waiting is not
        longer or shorter for it. Messages' ages are: they go by the dates that others read."""
        ahead = now - self._loop.time()
        step, self._ahead = ahead - self._ahead, ahead
        if abs(step) >= CLOCK_SET_SECONDS:
            self._log.warning("clock.set", seconds=round(step, 1))
            self.queues.shift(step)
            self._dispatcher.wake()

    def _pressure_changed(self, now: Pressure) -> None:
        causes = {cause: stage.name.lower() for cause, stage in self._spool.causes().items()}
        fault = str(self._spool.fault) if self._spool.fault is not None else ""
        self._log.warning("pressure.changed", stage=now.name.lower(), causes=causes, fault=fault)

    def _look_up_again(self, now: float) -> None:
        """What could not be looked up is routed when the directory is back."""
        if not self._categorizer.lacks_directory or not self._directory.available:
            return
        if abs(now - self._looked_up_at) >= LOOK_UP_SECONDS:
            self._looked_up_at = now
            self._categorizer.lacks_directory = False
            self._rerouting.reconsider()
