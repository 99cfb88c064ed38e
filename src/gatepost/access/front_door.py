"""The access layer of one worker: every listener and every session of it.

sockets ──► Listener ──► MailDoor (imap, pop3, submission) ──► MailClientLeg ──► Relay
                    ├──► SmtpDoor (smtp) ──► SmtpClientLeg ──► Relay
                    └──► HttpDoor (https, http) ──► HttpClientLeg
what all share: SignInService, Router, Admission, Parking, SignInTurns, TLS contexts, log
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from structlog.typing import FilteringBoundLogger

from gatepost.access.admission import Admission
from gatepost.access.busy_log import FURTHER_STRANGERS, BusyLog
from gatepost.access.health import HealthService
from gatepost.access.http.door import HttpDoor
from gatepost.access.leaving import REMOVED, MailLeaver
from gatepost.access.listener import Factory, Listener
from gatepost.access.mail_door import MailDoor
from gatepost.access.mail_server import KEEPALIVE
from gatepost.access.moves import Changed, Leaver, Outcome, Round, changes, counted, window_for
from gatepost.access.parking import Parking
from gatepost.access.router import Router
from gatepost.access.sessions import Found, SessionFilter
from gatepost.access.sign_in_turns import SignInTurns
from gatepost.access.smtp_door import SmtpDoor
from gatepost.access.tls import (
    ClientContexts,
    PeerServerContext,
    Reloadable,
    peer_server_context,
    server_context,
    takes_tickets,
)
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import PEER, Endpoint, Protocol, TlsMode
from gatepost.sharedstate.port import SharedState

ALPN = {
    Protocol.IMAP: "imap",
    Protocol.POP3: "pop3",
    Protocol.SUBMISSION: "smtp",
    Protocol.HTTPS: "http/1.1",
}
"""Names that a listener agrees on, so that bytes of one protocol find no other behind TLS (field case 93)."""

BREATH = 500
"""Sessions described before others get their turn: about two milliseconds."""


class FrontDoor:
    """All client access of one worker."""

    def __init__(
        self,
        configuration: Configuration,
        loop: asyncio.AbstractEventLoop,
        sign_in: SignInService,
        router: Router,
        log: FilteringBoundLogger,
        shared_state: SharedState | None = None,
        stores_fault: Callable[[], str] = str,
    ) -> None:
        front_end = configuration.front_end
        self._configuration = configuration
        self._log = log
        self._loop = loop
        self._router = router
        self._sign_in = sign_in
        limits = front_end.limits
        self._admission = Admission(limits.unauthenticated_per_address, limits.sessions)
        contexts = ClientContexts(front_end)
        self._tls = (
            {p: Reloadable(server_context(front_end, ALPN[p], p)) for p in ALPN} if front_end.certificate else {}
        )
        for_peers = _for_peers(front_end)
        self._peer_tls = Reloadable(for_peers) if for_peers is not None else None
        self.health = HealthService(loop, configuration, contexts, log)
        self._parking = parking = Parking(loop, router.view, limits.parked)
        self._turns = turns = SignInTurns(loop, limits.sign_ins_per_server, limits.parked)
        router.age.watch(loop, log)
        self._mail = {
            protocol: MailDoor(
                protocol, configuration, sign_in, router, self._admission, contexts, log, self.health, parking, turns
            )
            for protocol in (Protocol.IMAP, Protocol.POP3, Protocol.SUBMISSION)
        }
        for protocol, door in self._mail.items():
            door.starttls = self._tls.get(protocol)
        self._smtp = SmtpDoor(configuration, router, self._admission, contexts, log, self.health)
        self._http = HttpDoor(
            configuration,
            loop,
            sign_in,
            router,
            contexts,
            log,
            self._admission,
            shared_state=shared_state,
            health=self.health,
            stores_fault=stores_fault,
            parking=parking,
        )
        self.health.when_dead = self._http.server_dead
        self._listeners: dict[str, list[Listener]] = {}
        self._handshakes = BusyLog(log, "tls.handshake_refused", loop, level="info", further=FURTHER_STRANGERS)

    async def listen(self, sockets: dict[str, list[socket.socket]]) -> None:
        """Take connections from bound sockets, by endpoint name; a name that is listened on already is replaced."""
        for name, group in sockets.items():
            self.close_listeners([name])
            endpoint = self._endpoint(name)
            self._listeners[name] = [self._listener(endpoint, sock) for sock in group]
            for listener in self._listeners[name]:
                await listener.start()

    def close_listeners(self, names: Iterable[str]) -> None:
        """Take no more connections for these endpoints; their sessions stay."""
        for name in names:
            for listener in self._listeners.pop(name, []):
                listener.close()

    def reload(self, configuration: Configuration) -> None:
        """New certificate, settings and organization, for whoever comes from now on. Sessions stay as they are."""
        front_end = configuration.front_end
        fresh = {p: server_context(front_end, ALPN[p], p) for p in ALPN} if front_end.certificate else {}
        for_peers = _for_peers(front_end)
        self._configuration = configuration
        for protocol, context in fresh.items():
            if protocol in self._tls:
                self._tls[protocol].replace(context)
            else:
                self._tls[protocol] = Reloadable(context)
        if self._peer_tls is None or for_peers is None:
            self._peer_tls = Reloadable(for_peers) if for_peers else None
        else:
            self._peer_tls.replace(for_peers)
        contexts = ClientContexts(front_end)
        self.health.reload(configuration, contexts)
        for protocol, door in self._mail.items():
            door.reload(configuration, contexts)
            door.starttls = self._tls.get(protocol)
        self._smtp.reload(configuration, contexts)
        self._http.reload(configuration, contexts)
        limits = front_end.limits
        self._admission.set_limits(limits.unauthenticated_per_address, limits.sessions)
        self._parking.set_limit(limits.parked)
        self._turns.set_limits(limits.sign_ins_per_server, limits.parked)
        for name, group in self._listeners.items():
            for listener in group:
                listener.reload(_without_proxies(front_end) if name == PEER else front_end)

    async def drain(self, seconds: float) -> None:
        """Take no more connections; sessions go on until they end by themselves or `seconds` have passed."""
        self.close_listeners(list(self._listeners))
        async with asyncio.TaskGroup() as group:
            for door in self._doors():
                group.create_task(door.drain(seconds))
        self.health.close()
        self._router.age.close()

    def sessions(self) -> list[dict[str, Any]]:
        """One entry a client connection of any protocol."""
        return [entry for door in self._doors() for entry in door.sessions()]

    async def find(self, wanted: SessionFilter, limit: int) -> Found:
        """The sessions that match, the first `limit` of them as entries. Lets the loop turn meanwhile."""
        listed: list[dict[str, Any]] = []
        protocols: dict[str, int] = {}
        for number, leg in enumerate([leg for door in self._doors() for leg in door.legs()], 1):
            entry = leg.describe()
            if wanted.matches(entry):
                protocols[entry["protocol"]] = protocols.get(entry["protocol"], 0) + 1
                if len(listed) < limit:
                    listed.append(entry)
            if number % BREATH == 0:
                await asyncio.sleep(0)
        return Found(listed, sum(protocols.values()), protocols)

    # --- sessions that must go

    def set_view(self, view: RegistryView) -> None:
        """The registry has another view: decide by it from now on, and have sessions follow their databases."""
        moved = changes(self._router.view, view)
        self._router.set_view(view)
        if moved:
            self.moved(moved)
        self._parking.set_view(view)

    def moved(self, moved: Iterable[tuple[str, str, int]]) -> None:
        """Close the sessions of these databases that are of another epoch than the registry's (SPEC B5).

        Each of `moved` is the database, its server before and its epoch now. It takes a window's time, at boundaries;
        what is at none when `move_forced_seconds` are over is cut. Nothing waits for it.
        """
        found = [Changed(*one) for one in moved]
        observed = self._router.view.observed.items()
        dead = frozenset(key for key, seen in observed if not seen.healthy)
        leavers = [leaver for door in self._doors() for leaver in door.move(found, dead)]
        if not leavers:
            return
        limits = self._configuration.front_end.limits
        databases = sorted(one.database for one in found)
        began = self._loop.time()

        def done(outcomes: list[Outcome]) -> None:
            seconds = round(self._loop.time() - began, 3)
            self._log.info("sessions.moved", databases=databases, seconds=seconds, **counted(outcomes))

        Round(
            self._loop,
            leavers,
            window=window_for(len(leavers), limits.move_window_seconds, limits.move_sessions_per_second),
            forced=limits.move_forced_seconds,
            done=done,
        )

    def end_removed(self, is_there: Callable[[int], bool]) -> None:
        """End the sessions that began with an app password that is not there any more, at boundaries within seconds.

        HTTP requests each show their own; what is under way of them ends too.
        """
        leavers: list[Leaver] = [
            MailLeaver(leg, REMOVED, REMOVED)
            for door in self._mail.values()
            for leg in door.legs()
            if leg.app_password and not is_there(leg.app_password)
        ]
        leavers += self._http.shown_app_password(lambda number: not is_there(number), REMOVED)
        if not leavers:
            return
        limits = self._configuration.front_end.limits
        window = window_for(len(leavers), 0.0, limits.move_sessions_per_second)

        def done(outcomes: list[Outcome]) -> None:
            self._log.info("sessions.app_password_removed", **counted(outcomes))

        Round(self._loop, leavers, window=window, forced=limits.move_forced_seconds, done=done)

    async def kick(self, wanted: SessionFilter, reason: str, seconds: float) -> list[tuple[str, str]]:
        """End the sessions that match; answers their ids, each with what came of it (field cases 1, 4 and 5).

        They are ended at boundaries, those left after `seconds` are cut. "closed" means that the client's connection
        is closed. It never depends on any server.
        """
        found = [pair for door in self._doors() for pair in door.leavers(wanted, reason)]
        leavers: list[Leaver] = [leaver for _, leaver in found]
        ended: asyncio.Future[list[Outcome]] = self._loop.create_future()
        limits = self._configuration.front_end.limits
        window = window_for(len(leavers), 0.0, limits.move_sessions_per_second)
        Round(self._loop, leavers, window=window, forced=seconds, done=ended.set_result)
        outcomes = await ended
        if found:
            self._log.info("sessions.kicked", reason=reason, **wanted.words(), **counted(outcomes))
        return [(session, outcome.value) for (session, _), outcome in zip(found, outcomes, strict=True)]

    def counters(self) -> dict[str, int]:
        """What happened since the worker's start, and what happens now, as numbers."""
        parking, turns = self._parking, self._turns
        return (
            self._http.counters()
            | self._smtp.counters()
            | self.health.counters()
            | self._sign_in.policy.counters()
            | {
                "parked": len(parking),
                "parked.refused": parking.refused,
                "sign_ins.under_way": turns.under_way,
                "sign_ins.waiting": turns.waiting,
                "sign_ins.refused": turns.refused,
                "registry.stale_seconds": round(self._router.age.stale_seconds),
            }
        )

    def _doors(self) -> list[MailDoor | SmtpDoor | HttpDoor]:
        return [*self._mail.values(), self._smtp, self._http]

    def _endpoint(self, name: str) -> Endpoint:
        return next(e for e in self._configuration.server.endpoints if e.name == name)

    def _listener(self, endpoint: Endpoint, sock: socket.socket) -> Listener:
        for level, option, value in KEEPALIVE:
            sock.setsockopt(level, option, value)  # what a listening socket has, its connections inherit
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        front_end: FrontEnd = self._configuration.front_end
        if endpoint.name == PEER:
            return self._peer_listener(sock, front_end)
        implicit = endpoint.tls is TlsMode.IMPLICIT
        tls = self._tls[endpoint.protocol] if implicit else None
        return Listener(
            sock, self._factory(endpoint), tls, front_end, self._admission, self._log, self._bad_certificate
        )

    def _bad_certificate(self, address: str, reason: str) -> None:
        """A handshake came to nothing. Only where clients are asked for certificates is the reason worth a line."""
        if self._configuration.front_end.client_certificates is not None:
            self._handshakes.refused(address, reason=reason)

    def _peer_listener(self, sock: socket.socket, front_end: FrontEnd) -> Listener:
        """For other front ends, who come straight: a PROXY header is nothing that TLS begins with."""
        assert self._peer_tls is not None
        http = self._http

        def refused(address: str, reason: str) -> None:
            if http.peers is not None:
                http.peers.handshake_failed(address, reason)

        return Listener(
            sock,
            lambda _: http.protocol(tls=True, peer=True),
            self._peer_tls,
            _without_proxies(front_end),
            self._admission,
            self._log,
            refused,
        )

    def _factory(self, endpoint: Endpoint) -> Factory:
        implicit = endpoint.tls is TlsMode.IMPLICIT
        if endpoint.protocol is Protocol.HTTPS:
            return lambda proxy: self._http.protocol(tls=implicit, proxy=proxy)
        if endpoint.protocol is Protocol.SMTP:
            return self._smtp.factory()
        door = self._mail[endpoint.protocol]
        return door.factory(tls=implicit, starttls=endpoint.tls is TlsMode.STARTTLS)


def _without_proxies(front_end: FrontEnd) -> FrontEnd:
    """The same settings where nobody is believed to speak for others: an assertion says who a peer's client is."""
    return replace(front_end, proxy_protocol_from=())


def _for_peers(front_end: FrontEnd) -> PeerServerContext | None:
    """The context for other front ends, where there are keys for it."""
    keys = front_end.peer_keys
    return None if keys is None else peer_server_context(keys, tickets=takes_tickets(front_end))
