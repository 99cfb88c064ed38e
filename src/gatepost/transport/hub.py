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
from gatepost.balancing.healthy_server_selector import HealthyServerSelector, UnhealthyServer
from gatepost.configuration.hub import parse_resolver
from gatepost.configuration.hub_settings import HubSettings
from gatepost.configuration.settings import Configuration
from gatepost.directory.sign_in import SignInService
from gatepost.directory.sqlite import SqliteDirectory
from gatepost.routing.mail.router import MailRouter
from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.categorizer import Categorizer
from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.dispatcher import Dispatcher
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.dns import Resolver
from gatepost.transport.headers.trace import trace_token
from gatepost.transport.intake import Intake, IntakeSettings
from gatepost.transport.message import Envelope
from gatepost.transport.next_hop_targets import NextHopTargets, Ourselves
from gatepost.transport.operating import NO_DELIVERY, POISON, NotFound, Operating
from gatepost.transport.queues.delivery_queue import DeliveryQueue
from gatepost.transport.queues.item import Item
from gatepost.transport.queues.queues import Queues
from gatepost.transport.reaching import Identity, Reaching, fresh
from gatepost.transport.recipients import Recipients
from gatepost.transport.reporting import Reporting
from gatepost.transport.reports.builder import Reporter
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.tls import TlsMaterial
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

UNHEALTHY_FACT = "unhealthy"
"""Where the spool keeps the list of unhealthy servers."""
SUSPENDED_FACT = "suspended"
"""Where it keeps the frozen queues."""
KEEP_SECONDS = 5.0
"""Between two times that the list of unhealthy servers is written, where it has changed."""
REROUTE_SECONDS = 1.0
FIRST_VIEW_SECONDS = 3.0
"""A hub that starts waits so long for what the registry says; until then mail for mailboxes waits."""
VERBS = frozenset(
    {
        "queues", "freeze_queue", "resume_queue", "retry_queue", "resubmit_queue", "redirect", "messages",
        "freeze_message", "resume_message", "drop",
    }
)  # fmt: skip
"""What `Operating` does for operators."""


class _Suspended(msgspec.Struct):
    """A frozen queue as it is kept."""

    delivery: str
    domain: str
    connector: str


async def open_hub(configuration: Configuration, log: FilteringBoundLogger) -> Hub:
    """A hub that transports mail. Raises `SpoolInUse`, `SpoolDamaged`, OSError.

    A missing directory or registry is no fault here: it is logged, and mail waits until it comes.
    """
    loop = asyncio.get_running_loop()
    front_end, settings = configuration.front_end, configuration.server.transport
    transport = front_end.transport
    assert transport is not None
    limits = SpoolSettings(settings.max_queued_messages, settings.min_free_bytes)
    spool = await DiskSpool.open(Path(transport.spool), limits)
    directory = SqliteDirectory(front_end.directory, loop)
    directory.start()
    registry = watch_registry(front_end, loop)
    registry.start()
    await registry.first_view(FIRST_VIEW_SECONDS)
    hub = Hub(configuration, spool, directory, registry, log)
    await hub.start()
    return hub


class Hub:
    """Everything of one hub or edge on this machine; made by `open_hub`."""

    def __init__(
        self,
        configuration: Configuration,
        spool: DiskSpool,
        directory: SqliteDirectory,
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
        front_end, settings = configuration.front_end, configuration.server.transport
        self._sign_in = SignInService(
            directory,
            configuration.organization.default_domain,
            waiting_limit=front_end.limits.password_checks,
            per_address=front_end.limits.password_checks_per_address,
        )
        self.queues = Queues()
        router = MailRouter(configuration.organization, front_end.server)
        recipients = Recipients(directory)
        self._categorizer = Categorizer(self.queues, recipients, router, settings, clock, log)
        self._reporting = Reporting(spool, self._categorizer, Reporter(configuration.server.fqdn), clock, log)
        self._settler = Settler(spool, self._reporting, settings, clock, log)
        self._selector = HealthyServerSelector(settings)
        self._resolver = Resolver(_resolvers(front_end.transport))
        self._targets = NextHopTargets(self._resolver, Ourselves())
        self._outbound = Outbound(log)
        identity = Identity(configuration.server.fqdn)
        self._reaching = Reaching(
            self._categorizer, self._targets, self._selector, self._outbound, recipients, spool, identity, clock, log
        )
        self._dispatcher = Dispatcher(self.queues, spool, self._reaching, self._settler, self._requeue_soon, clock, log)
        self._categorizer.touch = self._dispatcher.touch
        self._categorizer.failed = self._not_routed
        self.intake = Intake(spool, self._categorizer, clock, log)
        self._checks: Checks | None = None
        self._operating = Operating(
            self.queues, self._dispatcher, self._settler, self._requeue, self._keep_suspended, clock
        )
        self._requeueing: set[DeliveryQueue] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._kept_unhealthy: list[UnhealthyServer] = []
        self._kept_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.loading = True
        """Messages of the last run are being queued."""

    async def start(self) -> None:
        """Take up what the spool has, and begin to send."""
        self._configure()
        kept = await self._spool.get(UNHEALTHY_FACT)
        if kept is not None:
            self._selector.load(msgspec.msgpack.decode(kept, type=list[UnhealthyServer]))
        suspended = await self._spool.get(SUSPENDED_FACT)
        if suspended is not None:
            for entry in msgspec.msgpack.decode(suspended, type=list[_Suspended]):
                next_hop = NextHop(DeliveryType(entry.delivery), entry.domain, entry.connector)
                self.queues.queue(next_hop, self._clock()).suspended = True
        self._set_active()
        self._registry.on_change(lambda _view: self._set_active())
        self._dispatcher.start()
        self._begin(self._load(), "load the spool")
        self._timer = self._loop.call_later(REROUTE_SECONDS, self._tick)

    # Messages of the last run

    async def _load(self) -> None:
        count = 0
        async for batch in self._spool.messages():
            for number, envelope in batch:
                self._take_up(number, envelope)
            count += len(batch)
            await asyncio.sleep(0)
        self.loading = False
        self._log.info("spool.loaded", messages=count)

    def _take_up(self, number: int, envelope: Envelope) -> None:
        if envelope.unchecked or settling.is_settled(envelope):
            self._settler.later(self._spool.remove(number), number)
        elif envelope.crashes >= self._configuration.server.transport.poison_threshold:
            self._log.error("message.poison", message=number, crashes=envelope.crashes, message_id=envelope.message_id)
            places = settling.open_places(envelope, range(len(envelope.recipients)))
            item = Item(number, places, envelope.size, float("inf"), float("inf"))
            item.suspended = True
            self.queues.add(POISON, item, self._clock())
        else:
            self._categorizer.place(number, envelope)

    # Connections

    async def listen(self, sockets: dict[str, list[socket.socket]]) -> None:
        """Accept connections on bound, listening sockets, by binding. Owns the sockets from then on."""

    def close_listeners(self, names: Iterable[str]) -> None:
        """Close the listeners of these bindings; their sessions go on."""

    def reload(self, configuration: Configuration) -> None:
        """Use another configuration from now on. Raises when it cannot."""
        router = MailRouter(configuration.organization, configuration.front_end.server)
        self._configuration = configuration
        settings = configuration.server.transport
        self._categorizer.use(router, settings)
        self._settler.settings = settings
        self._selector.settings = settings
        self._configure()
        self._reaching.configure(Identity(configuration.server.fqdn))
        self._reconsider()

    async def drain(self, seconds: float) -> None:
        """Take nothing more, give what is under way `seconds`, and close everything."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._dispatcher.end(seconds)
        await self._reaching.close()
        if self._checks is not None:
            await self._checks.close()
        await self._resolver.close()
        self._sign_in.close()
        self._registry.close()
        self._directory.close()
        self._keep_unhealthy()
        await self._spool.close()

    def counters(self) -> dict[str, int]:
        """Numbers for the operator."""
        return {
            "messages": self._spool.count,
            "queues": len(self.queues),
            "connections_out": self._dispatcher.connections,
            "taken": self.intake.taken,
            "refused": self.intake.refused,
            "delivered": self._settler.delivered,
            "failed": self._settler.failed,
            "reports": self._reporting.made,
            "unhealthy_servers": len(self._selector),
            "pressure": int(self._spool.pressure),
        }

    async def operate(self, verb: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - by verb
        """An operator's request (see `operating`). Raises ValueError, TypeError for one that cannot be understood."""
        if verb == "unhealthy":
            return msgspec.to_builtins(self._selector.unhealthy(self._clock()))
        if verb == "forget":
            return self._selector.forget((str(arguments["address"]), int(arguments["port"])))
        if verb == "redirect" and arguments.get("target") not in self._configuration.organization.servers:
            raise NotFound(f"there is no server {arguments.get('target')}")
        if verb not in VERBS:
            raise ValueError(f"the transport knows no {verb}")
        answer = getattr(self._operating, verb)(**arguments)
        return await answer if asyncio.iscoroutine(answer) else answer

    # What changes

    def _configure(self) -> None:
        configuration = self._configuration
        server, front_end = configuration.server, configuration.front_end
        token = trace_token(configuration.organization.name, server.name)
        connectors = configuration.organization.receive_connectors_by_server.get(server.name, ())
        limits = {c.name: (c.max_header_size, c.max_hop_count) for c in connectors}
        expiration = server.transport.message_expiration
        self.intake.configure(IntakeSettings(server.fqdn, token, expiration, limits=limits))
        self._reporting.reporter = Reporter(server.fqdn, lifetime=expiration)
        names = {server.fqdn.lower()} | {c.fqdn.lower() for c in connectors if c.fqdn}
        addresses = {str(b.address) for c in connectors for b in c.bindings if not b.address.is_unspecified}
        self._set_checks()
        self._targets.ourselves = Ourselves(frozenset(names), frozenset(addresses | {server.address}))
        keys = front_end.peer_keys
        self._outbound.renew(
            TlsMaterial(
                front_end.server_ca,
                keys.organization_ca if keys else b"",
                keys.certificate if keys else b"",
                keys.private_key if keys else b"",
            )
        )

    def _set_checks(self) -> None:
        """Hook and keys, anew: files of keys may have been changed."""
        settings, before = self._configuration.front_end.transport, self._checks
        assert settings is not None
        has_any = settings.content_hook is not None or settings.dkim
        fqdn = self._configuration.server.fqdn
        self._checks = Checks(settings, fqdn, self._spool, self._clock, self._log) if has_any else None
        self.intake.check = self._checks
        if before is not None:
            self._begin(before.close(), "close the content hook")

    def _set_active(self) -> None:
        before = self._categorizer.active
        now = {name: copy.server for name, copy in self._registry.view.active.items()}
        if now == before:
            return
        self._categorizer.active = now
        for queue in self.queues:
            hop = queue.next_hop
            if hop.delivery is DeliveryType.MAILBOX and before.get(hop.domain) != now.get(hop.domain):
                queue.retry_now()  # it is another server that is tried
                self._dispatcher.touch(queue)
        self._reconsider()

    def _reconsider(self) -> None:
        """The organization or the registry has changed: some that had no way may have one, and the other way round."""
        router, active = self._categorizer.router, self._categorizer.active
        for queue in self.queues:
            is_nowhere = queue.next_hop.delivery in NO_DELIVERY or router.destination(queue.next_hop, active) is None
            if is_nowhere and queue.next_hop != POISON and not queue.suspended:
                self._requeue_soon(queue)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(REROUTE_SECONDS, self._tick)
        now = self._clock()
        sites = fresh(self._reaching.unreached_sites, now)
        gone = sites - self._categorizer.unreachable_sites
        self._categorizer.unreachable_sites = sites
        for queue in self.queues if gone else ():
            if queue.next_hop.delivery is DeliveryType.SITE and queue.next_hop.domain in gone:
                self._requeue_soon(queue)
        if abs(now - self._kept_at) >= KEEP_SECONDS:
            self._kept_at = now
            self._keep_unhealthy()

    def _keep_unhealthy(self) -> None:
        found = self._selector.unhealthy(self._clock())
        if found != self._kept_unhealthy:
            self._kept_unhealthy = found
            self._settler.later(self._spool.put(UNHEALTHY_FACT, msgspec.msgpack.encode(found)), 0)

    def _keep_suspended(self) -> None:
        found = [
            _Suspended(q.next_hop.delivery.value, q.next_hop.domain, q.next_hop.connector)
            for q in self.queues
            if q.suspended
        ]
        self._settler.later(self._spool.put(SUSPENDED_FACT, msgspec.msgpack.encode(found)), 0)

    # Routing anew

    def _requeue_soon(self, queue: DeliveryQueue) -> None:
        if queue not in self._requeueing:
            self._begin(self._requeue(queue), "route a queue anew")

    async def _requeue(self, queue: DeliveryQueue) -> None:
        """Route what waits in a queue anew. What leads to the same queue again waits a little."""
        if queue in self._requeueing:
            return
        self._requeueing.add(queue)
        try:
            for count, item in enumerate(queue.empty()):
                await self._place_again(queue, item)
                if count % 1000 == 999:
                    await asyncio.sleep(0)
        finally:
            self._requeueing.discard(queue)
            queue.emptied(self._clock())

    async def _place_again(self, queue: DeliveryQueue, item: Item) -> None:
        try:
            envelope = await self._settler.hands.take(item.number)
        except KeyError:
            return
        except OSError as fault:
            self._log.error("message.unreadable", message=item.number, reason=str(fault))
            item.due = self._clock() + 300.0
            self.queues.add(queue.next_hop, item, self._clock())
            return
        try:
            self._categorizer.place(item.number, envelope, item.recipients, after=queue.next_hop)
        finally:
            self._settler.hands.give_back(item.number)

    def _not_routed(self, number: int, envelope: Envelope, happened: settling.Happened) -> None:
        self._begin(self._tell_not_routed(number, envelope, happened), "report what has no way")

    async def _tell_not_routed(self, number: int, envelope: Envelope, happened: settling.Happened) -> None:
        await self._reporting(number, envelope, happened)
        self._settler.keep(number, envelope)

    def _begin(self, work: Any, name: str) -> None:  # noqa: ANN401 - a coroutine
        task = tasks.start(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _resolvers(settings: HubSettings | None) -> list[tuple[str, int]]:
    return [parse_resolver(text) for text in settings.resolvers] if settings is not None else []
