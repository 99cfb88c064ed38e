"""What all IMAP or POP3 sessions of a worker share: settings, services, counts, the sweep over deadlines.

MailDoor ── makes ──► MailClientLeg ── opens ──► MailServerLeg
    │                      └──────── Relay ────────┘
    └── sweeps sign-in deadlines every second, idle relays every half minute
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from structlog.typing import FilteringBoundLogger

from gatepost.access.admission import Admission
from gatepost.access.busy_log import FURTHER_STRANGERS, BusyLog
from gatepost.access.carry import AT_ONCE
from gatepost.access.health import AllHealthy, HealthService
from gatepost.access.leaving import KICKED, MOVED, MailLeaver
from gatepost.access.mail_server import AttemptFailed, MailBack
from gatepost.access.mail_sign_in import MailFront
from gatepost.access.moves import Changed, Leaver
from gatepost.access.parking import Parking
from gatepost.access.router import Router
from gatepost.access.sessions import SessionFilter
from gatepost.access.sign_in_turns import SignInTurns
from gatepost.access.tls import ClientContexts
from gatepost.balancing.choice import order
from gatepost.configuration.settings import Configuration
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.relay.noting import ImapTails, Notes, Pop3Tails
from gatepost.routing.outcome import Proxy, Serve, Target
from gatepost.wire.events import BackSignIn
from gatepost.wire.imap_back import ImapBack
from gatepost.wire.imap_front import ImapFront
from gatepost.wire.pop3_back import Pop3Back
from gatepost.wire.pop3_front import Pop3Front
from gatepost.wire.proxy_protocol import ProxyHeader

if TYPE_CHECKING:
    from gatepost.access.mail_client import MailClientLeg
    from gatepost.access.tls import Reloadable

SWEEP_SECONDS = 1.0
"""How often deadlines of sign-ins are looked at."""
RELAY_SWEEP_SECONDS = 30.0
"""How often idle relays are looked for; the idle time is over half an hour."""
MAX_TRIED = 3
"""Servers tried for one sign-in where several could take it: each may take `connect_seconds`, and the client waits."""
DRAIN_QUIET_SECONDS = 0.2
"""At the drain's deadline a session that says nothing for this long is at a command boundary."""


class MailDoor:
    """The sessions of one mail protocol in this worker."""

    def __init__(
        self,
        protocol: Protocol,
        configuration: Configuration,
        sign_in: SignInService,
        router: Router,
        admission: Admission,
        client_contexts: ClientContexts,
        log: FilteringBoundLogger,
        health: HealthService | None = None,
        parking: Parking | None = None,
        turns: SignInTurns | None = None,
    ) -> None:
        self.protocol = protocol
        self.configuration = configuration
        self.limits = configuration.front_end.limits
        self.sign_in = sign_in
        self.router = router
        self.admission = admission
        self.client_contexts = client_contexts
        self.starttls: Reloadable | None = None
        self.health = health or AllHealthy()
        """Which servers are up."""
        self._turns = count()
        self.log = log
        self.loop = asyncio.get_running_loop()
        limits = self.limits
        self.parking = parking if parking is not None else Parking(self.loop, router.view, limits.parked)
        """Where sign-ins wait for their database."""
        self.turns = turns or SignInTurns(self.loop, limits.sign_ins_per_server, limits.parked)
        """When it is their turn at a server. Both are shared with other doors."""
        self.event = f"{protocol.value}.session"
        self.refused_event = f"{protocol.value}.refused"
        self.busy_log = BusyLog(log, self.refused_event, self.loop)
        self.strangers_log = BusyLog(log, self.event, self.loop, level="info", further=FURTHER_STRANGERS)
        """For connections that end before anybody was refused or let in: whoever can connect can make them."""
        self.pending: set[MailClientLeg] = set()
        self.relaying: set[MailClientLeg] = set()
        self.carrying = asyncio.Semaphore(AT_ONCE)
        """Whoever carries a session over to another server holds one."""
        self.draining = False
        self.all_ended = asyncio.Event()
        """Set during a drain when the last relay is gone."""
        self._session_prefix = secrets.token_hex(4)
        self._session_numbers = count(1)
        self._next_relay_sweep = self.loop.time() + RELAY_SWEEP_SECONDS
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def reload(self, configuration: Configuration, client_contexts: ClientContexts) -> None:
        """Use another configuration for sessions that begin later."""
        self.configuration = configuration
        self.limits = configuration.front_end.limits
        self.client_contexts = client_contexts

    def factory(self, *, tls: bool, starttls: bool) -> Callable[[ProxyHeader | None], MailClientLeg]:
        """Makes the protocol of a connection that came to a listener of this kind."""
        from gatepost.access.mail_client import MailClientLeg

        def make(proxy: ProxyHeader | None = None) -> MailClientLeg:
            return MailClientLeg(self, tls=tls, starttls=starttls, proxy=proxy)

        return make

    def front(self, *, tls: bool, starttls: bool) -> MailFront:
        """The machine for the dialogue with one client."""
        front_end = self.configuration.front_end
        limits = self.limits
        common: dict[str, Any] = {
            "tls": tls,
            "starttls": starttls and not tls and self.starttls is not None,
            "clear_passwords": front_end.allow_clear_passwords,
            "bearer": self.sign_in.accepts_tokens,
            "bad_commands": limits.bad_commands,
            "sign_in_attempts": limits.sign_in_attempts,
        }
        if self.protocol is Protocol.IMAP:
            return ImapFront(**common)
        return Pop3Front(**common, utf8=front_end.pop3_utf8)

    def back(self, sign_in: BackSignIn) -> MailBack:
        """The machine for the dialogue with a mailbox server."""
        return ImapBack(sign_in) if self.protocol is Protocol.IMAP else Pop3Back(sign_in)

    def notes(self) -> Notes:
        """What watches a relayed session for the places where it may be ended."""
        return ImapTails() if self.protocol is Protocol.IMAP else Pop3Tails()

    def is_current(self, database: str, epoch: int) -> bool:
        """Whether `epoch` is still that of `database`; what was decided without one (0) is not overtaken by any."""
        active = self.router.view.active.get(database)
        return not epoch or active is None or active.epoch == epoch

    def move(self, changes: list[Changed], dead: frozenset[tuple[str, str]]) -> list[Leaver]:
        """The sessions that must go because of `changes`. Sign-ins under way go to the new server by themselves.

        Nothing more is expected of the services (server and protocol) in `dead`.
        """
        service = self.protocol.value
        databases = {changed.database for changed in changes}
        for leg in list(self.pending):
            if leg.database in databases:
                leg.database_moved()
        return [
            MailLeaver(leg, "the database has moved", MOVED, moved=True, dead=(leg.server, service) in dead)
            for leg in self.relaying
            if leg.database in databases and not self.is_current(leg.database, leg.epoch)
        ]

    def leavers(self, wanted: SessionFilter, reason: str) -> list[tuple[str, Leaver]]:
        """The sessions that match, by id, for an operator who ends them."""
        legs = [leg for leg in self.legs() if wanted.matches(leg.describe())]
        return [(leg.session, MailLeaver(leg, reason, KICKED)) for leg in legs]

    @property
    def carries_over(self) -> bool:
        """Whether sessions that begin now are to go on at another server when their database moves."""
        return self.protocol is Protocol.IMAP and self.configuration.front_end.carry_over_idle

    def new_session(self) -> str:
        """A session id: unique over workers and restarts, short enough to type."""
        return f"{self._session_prefix}-{next(self._session_numbers)}"

    def servers_for(self, decision: Serve | Proxy, address: str, user: str) -> list[Target]:
        """Where to try a sign-in, in this order: those of several that are up first (SPEC B7)."""
        if len(decision.candidates) < 2:
            return [decision.target]
        by_name = {target.server: target for target in decision.candidates}
        service = self.protocol.value
        names = order(
            list(by_name),
            decision.affinity,
            kept=None,
            address=address,
            user=user,
            turn=next(self._turns),
            healthy=lambda server: self.health.healthy(server, service),
        )
        return [by_name[name] for name in names[:MAX_TRIED]]

    def tell_health(self, target: Target, client: str, failure: AttemptFailed | None = None) -> None:
        """What came of an attempt: only a server that did not answer, or not in its protocol, speaks against it."""
        if failure is None or failure.answered:
            self.health.connected(target.server, self.protocol.value)
        elif not failure.by_server:
            self.health.failed(target.server, self.protocol.value, client, str(failure))

    def farewell(self, text: str) -> bytes:
        """What a client is told when its relayed session is ended by us."""
        if self.protocol is Protocol.IMAP:
            return b"* BYE " + text.encode() + b"\r\n"
        # POP3 has no unsolicited lines: one between two commands would be taken for an answer.
        return b""

    def sessions(self) -> list[dict[str, Any]]:
        """One entry a client connection, for the operator."""
        return [leg.describe() for leg in self.legs()]

    def legs(self) -> list[MailClientLeg]:
        """Every session there is now."""
        return [*self.pending, *self.relaying]

    def _sweep(self) -> None:
        # First of all the next round: whatever happens to one session, the others' deadlines are kept.
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self.loop.time()
        for leg in list(self.pending):
            self._guarded(leg, partial(leg.check_deadline, now))
        if now >= self._next_relay_sweep:
            self._next_relay_sweep = now + RELAY_SWEEP_SECONDS
            farewell = self.farewell("idle for too long")
            for leg in list(self.relaying):
                if leg.relay is not None:
                    self._guarded(leg, partial(leg.relay.sweep, now, self.limits.idle_seconds, farewell))

    def _guarded(self, leg: MailClientLeg, what: Callable[[], None]) -> None:
        """A fault of ours with one session ends that session and is reported like any other fault."""
        try:
            what()
        except Exception as error:  # noqa: BLE001 - a bug; the guard is what keeps it to one session
            context = {"message": f"session {leg.session} could not be swept", "exception": error}
            self.loop.call_exception_handler(context)
            leg.give_up()

    async def drain(self, seconds: float) -> None:
        """Refuse sign-ins from now on, let sessions go on until they end or `seconds` have passed, then end them.

        A session is ended at a command boundary where one can be seen, when it has been quiet for a moment; at the
        deadline it is cut.
        """
        self.draining = True
        for leg in list(self.pending):
            leg.turn_away("this server is going down, try again")
        if not self.relaying:
            self.all_ended.set()
        deadline = self.loop.time() + max(seconds, 2 * DRAIN_QUIET_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline - 2 * DRAIN_QUIET_SECONDS):
                await self.all_ended.wait()
        while self.relaying and self.loop.time() < deadline:
            seen = {leg: leg.bytes_seen for leg in self.relaying}
            await asyncio.sleep(DRAIN_QUIET_SECONDS)
            for leg, before in seen.items():
                if leg.relay is not None and leg.bytes_seen == before and leg.at_boundary():
                    leg.relay.close("drained", leg.farewell("this server is going down"))
        for leg in list(self.relaying):
            if leg.relay is not None:
                leg.relay.abort("drained")
        await asyncio.sleep(0)
        self._sweeper.cancel()
