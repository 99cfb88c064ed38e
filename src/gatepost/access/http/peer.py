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
from gatepost.access.http.peer_leg import PeerLeg
from gatepost.access.tls import PEER_ALPN
from gatepost.configuration.settings import Configuration
from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import Protocol
from gatepost.peers.assertion import MAX_HOPS, AssertionRefused, AssertionSigner, AssertionVerifier, Claims, Client
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
        leg.peer = self._trust.identify(handshake.getpeercert(binary_form=True), self._clock())
        leg.trust = self._trust

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
            if leg.peer is None or leg.trust is not self._trust or now > leg.peer.expires:
                self.identify(leg)
            claims = self._claims(leg, now)
        except PeerRefused as refused:
            self._refuse(leg, 403, str(refused), close=True)
            return None
        except AssertionRefused as refused:
            self._refuse(leg, 403, str(refused))
            return None
        leg.vouched(claims)
        loop = self._find_loop(leg, claims)
        if loop:
            self._refuse(leg, 508, loop)
            return None
        return self._user(leg, claims)

    def _claims(self, leg: PeerLeg, now: float) -> Claims:
        """What the peer says of the request. Raises `AssertionRefused`."""
        assert leg.peer is not None
        kept = leg.reader.kept
        if b"authorization" in kept:
            raise AssertionRefused(BASIC_REFUSED)
        value = kept.get(ASSERTION)
        if value is None:
            raise AssertionRefused("no assertion")
        return self._verifier.verify(value, leg.peer.name, leg.peer.public_key, now)

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
        fields = b"%b: %b\r\n" % (PEER_REFUSED_HEADER.encode(), said)
        leg.answer(status, fields=fields + (RETRY_AFTER if status == 503 else b""), close=close)

    # --- requests that go

    def assertion_line(self, identity: Identity, request_id: bytes, target: Target, leg: HttpClientLeg) -> bytes:
        """The header line, with its end, that tells the peer `target` whose request this is; one for each attempt."""
        value = self._signer.sign(
            identity.user.name,
            request_id.decode("ascii"),
            target.server,
            _client(leg),
            identity.via,
            self._clock(),
            self._servers[target.server].version,
        )
        return b"%b: %b\r\n" % (ASSERTION_HEADER.encode(), value)


def _client(leg: HttpClientLeg) -> Client:
    """The client of the request under way: a peer's word of its own client goes on."""
    if isinstance(leg, PeerLeg) and leg.claims is not None and leg.claims.client is not None:
        return leg.claims.client
    host = leg.reader.kept.get(b"host", b"").decode("ascii", "ignore")
    return Client(leg.address[0].partition("%")[0], leg.address[1], leg.tls, host)
