"""From a next hop to a session with one of its servers (SPEC T3 to T8): what the dispatcher's `Reach` does.

next hop ─► destination (router) ─► targets (DNS) ─► turn (rotation, selector) ─► connection (hedged) ─► session
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.balancing.enhanced_dns import Rotation
from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.retry_schedule import retry_interval
from gatepost.balancing.target import Target
from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.transport import SendConnector
from gatepost.routing.next_hop import DeliveryType, Destination, NextHop, Transfer
from gatepost.transport.categorizer import Categorizer
from gatepost.transport.connecting import Connected, Connecting, NotConnected, NotServed
from gatepost.transport.connectivity_log import ConnectivityLog, SessionLog
from gatepost.transport.dispatch.ports import Answer, Moved, NewToken, NotReached, Sent
from gatepost.transport.headers.trace import return_path_field
from gatepost.transport.leaving import changed
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.next_hop_targets import Failure, NextHopTargets
from gatepost.transport.operating import POISON
from gatepost.transport.ports import BodyReader
from gatepost.transport.recipients import Recipients
from gatepost.transport.reports.rules import Fate
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.options import Endpoint, SendOptions, SendTimes
from gatepost.transport.send.outcome import DELIVERED, ConnectFailed, Outcome, RecipientOutcome
from gatepost.transport.send.sender import Reopen, SmtpSender
from gatepost.wire.shadow_words import ShadowHub

MAX_ROTATIONS = 10_000
"""Next hops whose turns are remembered; strangers choose domains."""
MAX_REASON = 500
CHANNEL_TIMES = SendTimes(greeting=10.0, tls=10.0, command=10.0)
"""Of sessions that become shadow channels: messages may wait for them."""
_CHANNELS = "\n"
"""Stands for the connector of those sessions."""


@dataclass(frozen=True, slots=True)
class Identity:
    """How this server speaks to others."""

    fqdn: str
    times: SendTimes = field(default_factory=SendTimes)


class Reaching:
    """Opens sessions. One a process; `configure` follows the organization."""

    def __init__(
        self,
        categorizer: Categorizer,
        targets: NextHopTargets,
        selector: HealthyServerSelector,
        outbound: Outbound,
        recipients: Recipients,
        identity: Identity,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        connectivity: ConnectivityLog,
    ) -> None:
        self.identity = identity
        self.selector = selector
        self._categorizer = categorizer
        self._targets = targets
        self._outbound = outbound
        self._recipients = recipients
        self._clock = clock
        self._log = log
        self._connectivity = connectivity
        self._rotations: dict[NextHop, Rotation] = {}
        self._connecting: dict[str, Connecting[SmtpSender]] = {}
        self._most: dict[NextHop, int] = {}
        self._servers: dict[str, tuple[Target, ...]] = {}
        """Targets of the servers that shadow channels were opened to."""
        self._expedited: set[NextHop] = set()
        self.unreached_sites: dict[str, float] = {}
        """Other sites none of whose hubs could be reached, and until when that is believed."""

    def configure(self, identity: Identity) -> None:
        """Connections from now on are made with these; what is known of servers stays."""
        self.identity = identity
        for connecting in self._connecting.values():
            tasks.start(connecting.close(), "end the connecting of before")
        self._connecting.clear()
        self._most.clear()

    def most_connections(self, next_hop: NextHop) -> int:
        """See `dispatch.ports.Reach`."""
        if next_hop.delivery is DeliveryType.UNREACHABLE or next_hop == POISON:
            return 0
        most = self._most.get(next_hop)
        if most is None:
            destination = self._destination(next_hop)
            most = destination.max_connections if destination is not None else 1
            if len(self._most) >= MAX_ROTATIONS:
                self._most.clear()
            self._most[next_hop] = most
        return most

    def expedite(self, next_hop: NextHop) -> None:
        """An operator's retry: the next connection is tried, though servers are known to be down and not yet due."""
        if len(self._expedited) < MAX_ROTATIONS:
            self._expedited.add(next_hop)

    async def connect(self, next_hop: NextHop, failures: int, queued: int, first: str = "") -> MailSender:
        """See `dispatch.ports.Reach`. Raises `NotReached`, `Moved`."""
        now = self._clock()
        destination = self._destination(next_hop)
        if destination is None:
            raise Moved
        rows = self._connectivity.session(next_hop)
        rows.begins(now, queued)
        found = await self._targets.targets(destination, now)
        rows.resolved(now, found.notes)
        if isinstance(found, Failure):
            rows.ends(self._clock(), 0, 0, found.reply.text)
            retry_at = now + retry_interval(self.selector.settings, failures)
            raise NotReached(found.reply.text, retry_at, found.reply if found.permanent else None)
        if next_hop in self._expedited:
            self._expedited.discard(next_hop)
            self.selector.expedite(found.targets, self._clock())
        connecting = self._connecting_for(destination.connector)
        rotation = self._rotation(next_hop)
        connected: Connected[SmtpSender] | NotConnected | None = None
        if first and (wanted := [target for target in found.targets if target.ip == first]):
            connected = await connecting.connect(rotation, wanted, rows)
        if not isinstance(connected, Connected):
            connected = await connecting.connect(rotation, found.targets, rows)
        if isinstance(connected, NotConnected):
            reason = _reason(connected)
            rows.ends(self._clock(), 0, 0, reason)
            self._note_site(next_hop, connected.due)
            raise NotReached(reason, connected.due)
        self._note_site(next_hop, None)
        return MailSender(self, destination, connected, rows)

    async def heartbeat(self, target: Target) -> SmtpSender:
        """A session with a server whatever the list of unhealthy ones says (SPEC T9). Raises OSError, `NotServed`."""
        return await self._connecting_for(None).heartbeat(target)

    def may_reach(self, server: str) -> bool:
        """Whether this server of the organization is, for all that is known, not down. Costs nothing."""
        targets = self._servers.get(server)
        return targets is None or bool(self.selector.filter(targets, self._clock()))

    async def reach_server(self, server: str, *, heartbeat: bool = False) -> SmtpSender:
        """A session with this server of the organization, for a shadow channel. A heartbeat is tried whatever the list
        of unhealthy servers says, and takes it off when it connects (SPEC T9). Raises `NotReached`."""
        now = self._clock()
        next_hop = NextHop(DeliveryType.SERVERS, server)
        destination = self._destination(next_hop)
        if destination is None:
            self._servers.pop(server, None)
            raise NotReached("no such server", now)
        rows = self._connectivity.session(next_hop)
        rows.begins(now, 0)
        found = await self._targets.targets(destination, now)
        rows.resolved(now, found.notes)
        if isinstance(found, Failure):
            reason, due = found.reply.text, now
        else:
            self._servers[server] = found.targets
            connected = await self._reach_any(next_hop, found.targets, rows, heartbeat=heartbeat)
            if isinstance(connected, SmtpSender):
                rows.ends(self._clock(), 0, 0, "a shadow channel")
                return connected
            reason, due = _reason(connected), connected.due
        rows.ends(self._clock(), 0, 0, reason)
        raise NotReached(reason, due)

    async def _reach_any(
        self, next_hop: NextHop, targets: tuple[Target, ...], rows: SessionLog, *, heartbeat: bool
    ) -> SmtpSender | NotConnected:
        connecting = self._connecting_for(None, channel=True)
        if not heartbeat:
            found = await connecting.connect(self._rotation(next_hop), targets, rows)
            return found.connection if isinstance(found, Connected) else found
        errors: list[tuple[Target, OSError | NotServed]] = []
        for target in targets:
            try:
                return await connecting.heartbeat(target, rows)
            except (OSError, NotServed) as error:
                errors.append((target, error))
        return NotConnected(self._clock(), tuple(errors))

    async def close(self) -> None:
        """End what runs in the background, cut all sessions."""
        for connecting in self._connecting.values():
            await connecting.close()
        self._outbound.close()

    def _destination(self, next_hop: NextHop) -> Destination | None:
        return self._categorizer.router.destination(next_hop, self._categorizer.active)

    def _rotation(self, next_hop: NextHop) -> Rotation:
        rotation = self._rotations.get(next_hop)
        if rotation is None:
            if len(self._rotations) >= MAX_ROTATIONS:
                del self._rotations[next(iter(self._rotations))]
            rotation = self._rotations[next_hop] = Rotation(self.selector, random.random)
        return rotation

    def _connecting_for(self, connector: SendConnector | None, *, channel: bool = False) -> Connecting[SmtpSender]:
        name = _CHANNELS if channel else connector.name if connector is not None else ""
        found = self._connecting.get(name)
        if found is None:
            options = SendOptions(self.identity.fqdn, CHANNEL_TIMES if channel else self.identity.times)
            if connector is not None:
                options = SendOptions(
                    connector.fqdn or self.identity.fqdn,
                    self.identity.times,
                    user=connector.user,
                    password=connector.password,
                )

            async def reach(target: Target) -> SmtpSender:
                try:
                    return await self._outbound.reach(Endpoint(target.ip, target.port), target.way, options)
                except ConnectFailed as fault:
                    raise fault.error or OSError(fault.text) from fault

            found = self._connecting[name] = Connecting(
                self.selector, reach, SmtpSender.abort, self._clock, self._greet
            )
        return found

    async def _greet(self, sender: SmtpSender) -> SmtpSender:
        try:
            return await self._outbound.greet(sender)
        except ConnectFailed as fault:
            raise NotServed(fault.text) from fault

    def _note_site(self, next_hop: NextHop, due: float | None) -> None:
        if next_hop.delivery is not DeliveryType.SITE:
            return
        if due is None:
            self.unreached_sites.pop(next_hop.domain, None)
        else:
            self.unreached_sites[next_hop.domain] = due

    # What senders ask

    async def fill_in(self, envelope: Envelope, places: tuple[int, ...]) -> None:
        """The addresses by which a mailbox server knows the recipients."""
        for place in places:
            recipient = envelope.recipients[place]
            try:
                found = await self._recipients.find_by_asking(recipient.address)
            except DirectoryUnavailable:
                found = None
            recipient.deliver_to = found.deliver_to if found is not None else ""

    def ended(self, rows: SessionLog, session: SmtpSender) -> None:
        """A session is over: its last row in the connectivity log."""
        broken = session.broken
        rows.ends(self._clock(), session.messages_sent, session.octets_sent, broken.text if broken is not None else "")


class MailSender:
    """A session of the dispatcher's: `dispatch.ports.Sender` on an `SmtpSender`."""

    def __init__(
        self,
        reaching: Reaching,
        destination: Destination,
        connected: Connected[SmtpSender],
        rows: SessionLog,
    ) -> None:
        self._reaching = reaching
        self._rows = rows
        self._delivers = destination.next_hop.delivery is DeliveryType.MAILBOX
        self._returns = self._delivers and connected.target.way.transfer is Transfer.SMTP
        """`Return-Path` is ours to write: servers of LMTP do it themselves."""
        self._fenced = destination.connector is not None
        """The server is another organization's: what ours tell each other is none of its business."""
        self._session = connected.connection
        self._most = destination.max_messages_per_connection
        self._messages = 0
        self.address = connected.target.ip
        self.server = str(connected.target)

    @property
    def usable(self) -> bool:
        """See `dispatch.ports.Sender`."""
        return self._session.usable and self._messages < self._most

    @property
    def prompt(self) -> bool:
        """See `dispatch.ports.Sender`."""
        return self._session.prompt and self._messages + 2 <= self._most

    async def prepare(
        self, envelope: Envelope, places: tuple[int, ...], body: BodyReader, token: NewToken | None = None
    ) -> None:
        """See `dispatch.ports.Sender`."""
        if self._delivers:
            await self._reaching.fill_in(envelope, places)
        before = return_path_field(envelope.sender) if self._returns else b""
        recipients = [envelope.recipients[place] for place in places]
        self._session.prepare(envelope, recipients, await changed(body, before, fenced=self._fenced), token)

    async def send(
        self,
        envelope: Envelope,
        places: tuple[int, ...],
        body: BodyReader,
        reopen: Reopen,
        token: NewToken | None = None,
    ) -> Sent:
        """See `dispatch.ports.Sender`."""
        if self._delivers:
            await self._reaching.fill_in(envelope, places)
        self._messages += 1
        recipients = [envelope.recipients[place] for place in places]
        before = return_path_field(envelope.sender) if self._returns else b""

        async def again() -> BodyReader:
            return await changed(await reopen(), before, fenced=self._fenced)

        body = await changed(body, before, fenced=self._fenced)
        session = self._session
        outcome = await session.send(envelope, recipients, body, again, token)
        primary = session.primary if any(each.token for each in outcome.recipients) else None
        return _sent(outcome, places, primary, delivers=self._delivers)

    async def quit(self) -> None:
        """See `dispatch.ports.Sender`."""
        await self._session.quit()
        self._reaching.ended(self._rows, self._session)


def _sent(outcome: Outcome, places: tuple[int, ...], primary: ShadowHub | None, *, delivers: bool) -> Sent:
    broken = outcome.broken
    answers = tuple(
        Answer(place, _state(each), str(each.reply), _fate(each.action, delivers=delivers), each.ours, each.token)
        for place, each in zip(places, outcome.recipients, strict=True)
        if not (broken is not None and each.ours and each.state is RecipientState.WAITING)
    )
    return Sent(answers, broken.text if broken is not None else "", primary)


def _state(outcome: RecipientOutcome) -> RecipientState:
    taken = outcome.token and outcome.state is RecipientState.DELIVERED
    return RecipientState.SHADOWED if taken else outcome.state


def _fate(action: str, *, delivers: bool) -> Fate | None:
    """The report of success that is ours: a mailbox's server delivers, whatever it speaks."""
    if not action:
        return None
    return Fate.DELIVERED if delivers or action == DELIVERED else Fate.RELAYED


def _reason(connected: NotConnected) -> str:
    if not connected.errors:
        return "all servers of the next hop are known to be down"
    return "; ".join(f"{target}: {_words(error)}" for target, error in connected.errors)[:MAX_REASON]


def _words(error: Exception) -> str:
    """What operators read; without the number that Python puts before the system's words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def fresh(unreached: Mapping[str, float], now: float) -> frozenset[str]:
    """The sites that are still believed not to be reached."""
    return frozenset(site for site, until in unreached.items() if now < until)
