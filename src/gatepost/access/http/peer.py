"""Requests of other front ends, and requests to them: the identity that crosses, checked and made (SPEC C11).

in:   TLS peer ─► identify ─► each request: assertion ─► claims ─► user of the directory ─► Identity
out:  Identity, request id, target ─► assertion_line
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gatepost.access import tasks
from gatepost.access.busy_log import BusyLog
from gatepost.access.http import onward
from gatepost.access.http.answers import RETRY_AFTER
from gatepost.access.http.connection import Phase
from gatepost.access.http.exchange import Exchange
from gatepost.access.http.identity import Identity, Way
from gatepost.access.http.negotiate import OFFER, read_negotiate
from gatepost.access.http.peer_leg import PeerLeg
from gatepost.access.tls import PEER_ALPN, takes_tickets
from gatepost.configuration.settings import Configuration
from gatepost.directory.kerberos_port import NO_KERBEROS, PeerTicket, peer_service
from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import Protocol
from gatepost.peers.assertion import (
    MAX_HOPS,
    AssertionRefused,
    AssertionSigner,
    AssertionVerifier,
    Claims,
    Client,
    sealed_assertion,
)
from gatepost.peers.identity import PeerRefused, PeerTrust
from gatepost.routing.outcome import Target
from gatepost.wire.http_fields import ASSERTION, ASSERTION_HEADER, PEER_REFUSED_HEADER, request_rules

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.door import HttpDoor

BASIC_REFUSED = "Basic between front ends is refused: a peer sends an assertion, not a password"


class PeerEntrance:
    """One worker's side of everything between front ends. `clock` tells seconds since 1970."""

    def __init__(self, door: HttpDoor, configuration: Configuration, clock: Callable[[], float] = time.time) -> None:
        self._door = door
        self._clock = clock
        self._log = BusyLog(door.log, "peer.refused", door.loop)
        limits = configuration.front_end.limits
        # What was taken stays known through every reload: nothing can be presented again.
        self._verifier = AssertionVerifier(configuration.front_end.server, limits.assertion_seconds)
        self.configure(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Use these keys, this organization and these settings from the next request on."""
        front_end, servers = configuration.front_end, configuration.organization.servers
        keys = front_end.peer_keys
        assert keys is not None
        seconds = front_end.limits.assertion_seconds
        self._verifier.seconds = seconds
        self._signer = AssertionSigner(keys.private_key, front_end.server, seconds)
        self._trust = PeerTrust(keys.organization_ca, servers, front_end.server)
        self._servers = servers
        self._name = front_end.server
        self._kerberos = takes_tickets(front_end)
        own = servers[front_end.server]
        self._service = peer_service(own, own.peer_endpoint).partition("@")[0] if own.peer_endpoint else ""
        self.request_rules = request_rules((s.sign_in.http_header for s in servers.values()), peer=True)

    # --- who

    def handshake_failed(self, address: str, reason: str) -> None:
        """TLS has refused somebody: no certificate, or one of another CA."""
        self._log.refused_for(address, f"TLS: {reason}")

    def identify(self, leg: PeerLeg) -> None:
        """Find out who is at the other end of `leg`. Raises `PeerRefused`."""
        handshake: Any = leg.transport.get_extra_info("ssl_object")
        if handshake is None:
            raise PeerRefused("no TLS")
        if handshake.selected_alpn_protocol() != PEER_ALPN:
            raise PeerRefused(f"does not speak {PEER_ALPN}")
        certificate = handshake.getpeercert(binary_form=True)
        leg.trust = self._trust
        leg.peer, leg.binding = None, b""
        if certificate is None and self._kerberos:
            # It shows a ticket with each request.
            leg.binding = getattr(handshake.context, "binding", b"")
        if not leg.binding:
            leg.peer = self._trust.identify(certificate, self._clock())

    def log_refused(self, leg: PeerLeg, reason: str, user: str = "") -> None:
        """One line for a refusal; many of one kind become a number."""
        peer = leg.peer.name if leg.peer is not None else ""
        request_id = leg.request_id().decode() if leg.phase is Phase.BUSY else ""
        self._log.refused_for(
            leg.peer_address, reason, session=leg.session, peer=peer, user=user, request_id=request_id
        )

    # --- requests that come

    def begin(self, leg: PeerLeg) -> Identity | None:
        """Whose the request is that `leg.reader` holds; None: it is answered already, or
        will be when the directory has told of them.

        Afterwards `leg.address` and `leg.forwarded` are the client's, and the request's id is the first front end's.
        """
        now = self._clock()
        try:
            if leg.trust is not self._trust or (leg.peer is not None and now > leg.peer.expires):
                self.identify(leg)
            if leg.binding:
                self._begin_by_ticket(leg)
                return None
            claims = self._claims(leg, now)
        except PeerRefused as refused:
            self._refuse(leg, 403, str(refused), close=True)
            return None
        except AssertionRefused as refused:
            self._refuse(leg, 403, str(refused))
            return None
        return self._claimed(leg, claims)

    def _claimed(self, leg: PeerLeg, claims: Claims) -> Identity | None:
        """See `begin`, when what the peer says is believed."""
        leg.vouched(claims)
        loop = self._find_loop(leg, claims)
        if loop:
            self._refuse(leg, 508, loop)
            return None
        return self._user(leg, claims)

    def _begin_by_ticket(self, leg: PeerLeg) -> None:
        """The peer has no certificate: the request shows its ticket."""
        leg.peer = None
        authorization = leg.reader.kept.get(b"authorization")
        token = read_negotiate(authorization)
        if token is None:
            refused = BASIC_REFUSED if authorization is not None else "no client certificate and no ticket"
            self._refuse(leg, 403 if authorization is not None else 401, refused)
            return
        assert leg.asked is not None  # what it asks for was read before who it is
        exchange = leg.exchange = Exchange(leg, leg.asked)
        tasks.start(self._by_ticket(exchange, leg, token), f"{leg.session} ticket")

    async def _by_ticket(self, exchange: Exchange, leg: PeerLeg, token: bytes) -> None:
        kerberos = self._door.sign_in.kerberos
        found: PeerTicket | SignInResult = NO_KERBEROS
        if kerberos is not None:
            found = await kerberos.peer_ticket(token, self._service, leg.peer_address, leg.binding)
        if exchange.over:
            return
        exchange.over, leg.exchange = True, None
        if isinstance(found, SignInResult):
            wrong = found.verdict is Verdict.WRONG_CREDENTIALS
            self._refuse(leg, 401 if wrong else 503, found.reason)
            return
        try:
            peer = leg.peer = self._trust.identify_principal(found.principal)
            claims = self._verifier.verify(_assertion(leg), peer.name, found, self._clock())
        except (PeerRefused, AssertionRefused) as refused:
            self._refuse(leg, 403, str(refused))
            return
        identity = self._claimed(leg, claims)
        if identity is not None:
            again = leg.exchange = Exchange(leg, exchange.asked)
            onward.go(again, identity)

    def _claims(self, leg: PeerLeg, now: float) -> Claims:
        """What a peer with a certificate says of the request. Raises `AssertionRefused`."""
        assert leg.peer is not None
        assert leg.peer.public_key is not None
        if b"authorization" in leg.reader.kept:
            raise AssertionRefused(BASIC_REFUSED)
        return self._verifier.verify(_assertion(leg), leg.peer.name, leg.peer.public_key, now)

    def _find_loop(self, leg: PeerLeg, claims: Claims) -> str:
        """Why the request goes round in circles; empty when it does not."""
        via = leg.reader.kept.get(b"via", b"")
        if self._name in claims.via or (via and self._door.has_passed(via)):
            return "a loop: the request has been here before"
        if len(claims.via) > MAX_HOPS:
            return f"a loop: the request has passed {len(claims.via)} front ends"
        return ""

    def _user(self, leg: PeerLeg, claims: Claims) -> Identity | None:
        result = self._door.sign_in.user_by_name(claims.user, Protocol.HTTPS)
        if result.asking:
            assert leg.asked is not None  # what it asks for was read before who it is
            exchange = leg.exchange = Exchange(leg, leg.asked)
            tasks.start(self._user_later(exchange, leg, claims), f"{leg.session} look-up")
            return None
        return self._judged(leg, claims, result)

    async def _user_later(self, exchange: Exchange, leg: PeerLeg, claims: Claims) -> None:
        """The directory is elsewhere and did not yet tell of the user."""
        await self._door.sign_in.learn(claims.user)
        if exchange.over:
            return
        result = self._door.sign_in.user_by_name(claims.user, Protocol.HTTPS)
        exchange.over, leg.exchange = True, None
        identity = self._judged(leg, claims, result)
        if identity is not None:
            again = leg.exchange = Exchange(leg, exchange.asked)
            onward.go(again, identity)

    def _judged(self, leg: PeerLeg, claims: Claims, result: SignInResult) -> Identity | None:
        if result.verdict is Verdict.SIGNED_IN and result.user is not None:
            return Identity(result.user, Way.PEER, via=claims.via)
        temporary = result.verdict is Verdict.UNAVAILABLE
        self._refuse(leg, 503 if temporary else 403, result.reason or result.verdict.value, user=claims.user)
        return None

    def _refuse(self, leg: PeerLeg, status: int, reason: str, *, user: str = "", close: bool = False) -> None:
        """Answer so that the other front end knows: it was not let in. A client sees that front end's own answer."""
        self.log_refused(leg, reason, user)
        said = reason.encode("ascii", "replace")
        fields = b"%b: %b\r\n" % (PEER_REFUSED_HEADER.encode(), said) + (OFFER if status == 401 else b"")
        leg.answer(status, fields=fields + (RETRY_AFTER if status == 503 else b""), close=close)

    # --- requests that go

    def assertion_line(self, identity: Identity, request_id: bytes, target: Target, leg: HttpClientLeg) -> bytes:
        """The header line, with its end, that tells the peer `target` whose request this is; one for each attempt."""
        return _line(self._signer.sign(self.payload(identity, request_id, target, leg)))

    def payload(self, identity: Identity, request_id: bytes, target: Target, leg: HttpClientLeg) -> bytes:
        """What is said there; our ticket may seal it instead."""
        return self._signer.payload(
            identity.user.name,
            request_id.decode("ascii"),
            target.server,
            _client(leg),
            identity.via,
            self._clock(),
            self._servers[target.server].version,
        )

    def sealed_line(self, payload: bytes, seal: bytes) -> bytes:
        """The header line that says it."""
        return _line(sealed_assertion(payload, seal))


def _line(assertion: bytes) -> bytes:
    return b"%b: %b\r\n" % (ASSERTION_HEADER.encode(), assertion)


def _assertion(leg: PeerLeg) -> bytes:
    value = leg.reader.kept.get(ASSERTION)
    if value is None:
        raise AssertionRefused("no assertion")
    return value


def _client(leg: HttpClientLeg) -> Client:
    """The client of the request under way: a peer's word of its own client goes on."""
    if isinstance(leg, PeerLeg) and leg.claims is not None and leg.claims.client is not None:
        return leg.claims.client
    host = leg.reader.kept.get(b"host", b"").decode("ascii", "ignore")
    return Client(leg.address[0].partition("%")[0], leg.address[1], leg.tls, host)
