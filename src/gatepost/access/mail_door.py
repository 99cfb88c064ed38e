"""What all IMAP, POP3 or submission sessions of a worker share: settings, services, what is made for each.

MailDoor ── makes ──► MailClientLeg ── opens ──► MailServerLeg
    │                      └──────── Relay ────────┘
    └── is a RelayDoor: sweeps sign-in deadlines every second, idle relays every half minute
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from structlog.typing import FilteringBoundLogger

from gatepost.access.admission import Admission
from gatepost.access.busy_log import BusyLog
from gatepost.access.carry import AT_ONCE
from gatepost.access.health import AllHealthy, HealthService
from gatepost.access.leaving import MOVED, MailLeaver
from gatepost.access.mail_server import AttemptFailed, MailBack
from gatepost.access.mail_sign_in import MailFront
from gatepost.access.moves import Changed, Leaver
from gatepost.access.parking import Parking
from gatepost.access.relay_door import RelayDoor
from gatepost.access.router import Router
from gatepost.access.sign_in_turns import SignInTurns
from gatepost.access.tls import ClientContexts
from gatepost.balancing.choice import order
from gatepost.configuration.settings import Configuration
from gatepost.directory.kerberos_port import KerberosExchange
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.relay.noting import ImapTails, MailNotes, Pop3Tails
from gatepost.routing.outcome import Proxy, Serve, Target
from gatepost.wire.events import BackSignIn
from gatepost.wire.imap_back import ImapBack
from gatepost.wire.imap_front import ImapFront
from gatepost.wire.pop3_back import Pop3Back
from gatepost.wire.pop3_front import Pop3Front
from gatepost.wire.proxy_protocol import ProxyHeader
from gatepost.wire.smtp_tracker import SmtpTracker
from gatepost.wire.submission_back import SubmissionBack
from gatepost.wire.submission_front import SubmissionFront

if TYPE_CHECKING:
    from gatepost.access.mail_client import MailClientLeg
    from gatepost.access.tls import Reloadable

MAX_TRIED = 3
"""Servers tried for one sign-in where several could take it: each may take `connect_seconds`, and the client waits."""


class MailDoor(RelayDoor["MailClientLeg"]):
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
        super().__init__(protocol, configuration, router, admission, log)
        self.sign_in = sign_in
        self.client_contexts = client_contexts
        self.starttls: Reloadable | None = None
        self.health = health or AllHealthy()
        """Which servers are up."""
        self._turns = count()
        limits = self.limits
        self.parking = parking if parking is not None else Parking(self.loop, router.view, limits.parked)
        """Where sign-ins wait for their database."""
        self.turns = turns or SignInTurns(self.loop, limits.sign_ins_per_server, limits.parked)
        """When it is their turn at a server. Both are shared with other doors."""
        self.refused_event = f"{protocol.value}.refused"
        self.busy_log = BusyLog(log, self.refused_event, self.loop)
        self.carrying = asyncio.Semaphore(AT_ONCE)
        """Whoever carries a session over to another server holds one."""

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
            "token_help": self.sign_in.token_help(self.protocol),
            "kerberos": self.sign_in.accepts_tickets(self.protocol),
            "bad_commands": limits.bad_commands,
            "sign_in_attempts": limits.sign_in_attempts,
        }
        if self.protocol is Protocol.IMAP:
            return ImapFront(**common)
        if self.protocol is Protocol.SUBMISSION:
            name = self.configuration.server.fqdn
            return SubmissionFront(**common, name=name, extensions=front_end.submission_extensions)
        return Pop3Front(**common, utf8=front_end.pop3_utf8)

    def begin_ticket(self, client: str) -> KerberosExchange | None:
        """A new exchange of Kerberos tokens; None: they are not accepted any more."""
        kerberos = self.sign_in.kerberos
        return None if kerberos is None else kerberos.begin(self.protocol, client)

    def back(self, sign_in: BackSignIn) -> MailBack:
        """The machine for the dialogue with a mailbox server."""
        if self.protocol is Protocol.SUBMISSION:
            return SubmissionBack(sign_in)
        return ImapBack(sign_in) if self.protocol is Protocol.IMAP else Pop3Back(sign_in)

    def notes(self) -> MailNotes:
        """What watches a relayed session for the places where it may be ended."""
        if self.protocol is Protocol.SUBMISSION:
            return SmtpTracker()
        return ImapTails() if self.protocol is Protocol.IMAP else Pop3Tails()

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

    @property
    def carries_over(self) -> bool:
        """Whether sessions that begin now are to go on at another server when their database moves."""
        return self.protocol is Protocol.IMAP and self.configuration.front_end.carry_over_idle

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
        # POP3 has no unsolicited lines: one between two commands would be taken for an answer. In submission it
        # depends on what is under way (`SmtpTracker.farewell`).
        return b""
