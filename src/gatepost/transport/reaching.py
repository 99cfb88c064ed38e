"""From a next hop to a session with one of its servers (SPEC T3 to T8): what the dispatcher's `Reach` does.

next hop ─► destination (router) ─► targets (DNS) ─► turn (rotation, selector) ─► connection (hedged) ─► session
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from gatepost.balancing.enhanced_dns import Rotation
from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.target import Target
from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.transport import SendConnector
from gatepost.routing.next_hop import DeliveryType, Destination, NextHop
from gatepost.transport.categorizer import Categorizer
from gatepost.transport.connecting import Connected, Connecting, NotConnected, Notes, NotServed
from gatepost.transport.dispatch.ports import Answer, Moved, NotReached, Sent
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.next_hop_targets import Failure, NextHopTargets
from gatepost.transport.operating import POISON
from gatepost.transport.ports import BodyReader, Spool
from gatepost.transport.recipients import Recipients
from gatepost.transport.reports.rules import Fate
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.options import Endpoint, SendOptions, SendTimes, SessionHooks
from gatepost.transport.send.outcome import DELIVERED, ConnectFailed, Outcome
from gatepost.transport.send.sender import SmtpSender
from gatepost.wire.smtp_client_events import SessionFault

MAX_ROTATIONS = 10_000
"""Next hops whose turns are remembered; strangers choose domains."""
MAX_REASON = 500


class SessionLogs(SessionHooks):
    """Makes the notes of one connection for the connectivity log; see `transport.connectivity_log`."""

    def session(self, destination: str) -> Notes | None:
        """Notes for a connection to that next hop; None while the log is off."""


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
        spool: Spool,
        identity: Identity,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        logs: SessionLogs | None = None,
    ) -> None:
        self.identity = identity
        self.selector = selector
        self._categorizer = categorizer
        self._targets = targets
        self._outbound = outbound
        self._recipients = recipients
        self._spool = spool
        self._clock = clock
        self._log = log
        self._logs = logs
        self._rotations: dict[NextHop, Rotation] = {}
        self._connecting: dict[str, Connecting[SmtpSender]] = {}
        self._most: dict[NextHop, int] = {}
        self.unreached_sites: dict[str, float] = {}
        """Other sites none of whose hubs could be reached, and until when that is believed."""

    def configure(self, identity: Identity) -> None:
        """Connections from now on are made with these; what is known of servers stays."""
        self.identity = identity
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

    async def connect(self, next_hop: NextHop, failures: int) -> MailSender:
        """See `dispatch.ports.Reach`. Raises `NotReached`, `Moved`."""
        now = self._clock()
        destination = self._destination(next_hop)
        if destination is None:
            raise Moved
        notes = self._logs.session(next_hop.domain) if self._logs is not None else None
        found = await self._targets.targets(destination, now)
        if isinstance(found, Failure):
            retry_at = now + self._pause(failures)
            raise NotReached(found.reply.text, retry_at, found.reply if found.permanent else None)
        connecting = self._connecting_for(destination.connector)
        connected = await connecting.connect(self._rotation(next_hop), found.targets, notes)
        if isinstance(connected, NotConnected):
            self._note_site(next_hop, connected.due)
            raise NotReached(_reason(connected), connected.due)
        self._note_site(next_hop, None)
        return MailSender(self, next_hop, connected, destination.max_messages_per_connection)

    async def heartbeat(self, target: Target) -> SmtpSender:
        """A session with a server whatever the list of unhealthy ones says (SPEC T9). Raises OSError, `NotServed`."""
        return await self._connecting_for(None).heartbeat(target)

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

    def _connecting_for(self, connector: SendConnector | None) -> Connecting[SmtpSender]:
        name = connector.name if connector is not None else ""
        found = self._connecting.get(name)
        if found is None:
            hooks = self._logs
            options = SendOptions(self.identity.fqdn, self.identity.times, hooks=hooks)
            if connector is not None:
                options = SendOptions(
                    connector.fqdn or self.identity.fqdn,
                    self.identity.times,
                    user=connector.user,
                    password=connector.password,
                    hooks=hooks,
                )

            async def connect(target: Target) -> SmtpSender:
                return await self._open(target, options)

            found = self._connecting[name] = Connecting(self.selector, connect, SmtpSender.abort, self._clock)
        return found

    async def _open(self, target: Target, options: SendOptions) -> SmtpSender:
        try:
            return await self._outbound.connect(Endpoint(target.ip, target.port), target.way, options)
        except ConnectFailed as fault:
            if fault.fault is SessionFault.CONNECT and fault.error is not None:
                raise fault.error from fault
            raise NotServed(fault.text) from fault

    def _pause(self, failures: int) -> float:
        """Between two look-ups that brought nothing: the schedule of a server that is down, by the same settings."""
        settings = self.selector.settings
        if failures < settings.queue_glitch_retry_count:
            return settings.queue_glitch_retry_interval
        if failures < settings.queue_glitch_retry_count + settings.transient_failure_retry_count:
            return settings.transient_failure_retry_interval
        return settings.outbound_connection_failure_retry_interval

    def _note_site(self, next_hop: NextHop, due: float | None) -> None:
        if next_hop.delivery is not DeliveryType.SITE:
            return
        if due is None:
            self.unreached_sites.pop(next_hop.domain, None)
        else:
            self.unreached_sites[next_hop.domain] = due

    # What senders ask

    def fill_in(self, envelope: Envelope, places: tuple[int, ...]) -> None:
        """The addresses by which a mailbox server knows the recipients."""
        for place in places:
            recipient = envelope.recipients[place]
            try:
                found = self._recipients.find(recipient.address)
            except DirectoryUnavailable:
                found = None
            recipient.deliver_to = found.deliver_to if found is not None else ""

    async def reopen(self, number: int) -> BodyReader:
        """A message's content once more."""
        return await self._spool.body(number)


class MailSender:
    """A session of the dispatcher's: `dispatch.ports.Sender` on an `SmtpSender`."""

    def __init__(self, reaching: Reaching, next_hop: NextHop, connected: Connected[SmtpSender], most: int) -> None:
        self._reaching = reaching
        self._delivers = next_hop.delivery is DeliveryType.MAILBOX
        self._session = connected.connection
        self._most = most
        self._messages = 0
        self.address = connected.target.ip
        self.server = str(connected.target)

    @property
    def usable(self) -> bool:
        """See `dispatch.ports.Sender`."""
        return self._session.usable and self._messages < self._most

    async def send(self, envelope: Envelope, places: tuple[int, ...], body: BodyReader) -> Sent:
        """See `dispatch.ports.Sender`."""
        if self._delivers:
            self._reaching.fill_in(envelope, places)
        self._messages += 1
        recipients = [envelope.recipients[place] for place in places]
        outcome = await self._session.send(envelope, recipients, body)
        return _sent(outcome, places, delivers=self._delivers)

    async def quit(self) -> None:
        """See `dispatch.ports.Sender`."""
        await self._session.quit()


def _sent(outcome: Outcome, places: tuple[int, ...], *, delivers: bool) -> Sent:
    broken = outcome.broken
    answers = tuple(
        Answer(place, each.state, str(each.reply), _fate(each.action, delivers=delivers))
        for place, each in zip(places, outcome.recipients, strict=True)
        if not (broken is not None and each.ours and each.state is RecipientState.WAITING)
    )
    return Sent(answers, broken.text if broken is not None else "")


def _fate(action: str, *, delivers: bool) -> Fate | None:
    """The report of success that is ours: a mailbox's server delivers, whatever it speaks."""
    if not action:
        return None
    return Fate.DELIVERED if delivers or action == DELIVERED else Fate.RELAYED


def _reason(connected: NotConnected) -> str:
    if not connected.errors:
        return "all servers of the next hop are known to be down"
    return "; ".join(f"{target}: {error}" for target, error in connected.errors)[:MAX_REASON]


def fresh(unreached: Mapping[str, float], now: float) -> frozenset[str]:
    """The sites that are still believed not to be reached."""
    return frozenset(site for site, until in unreached.items() if now < until)
