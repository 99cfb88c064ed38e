"""The connection of another front end: requests of many users, each with an identity that it vouches for (C11)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gatepost.access.http.client_leg import HttpClientLeg
from gatepost.access.http.connection import Phase
from gatepost.access.http.forwarded import forwarded_lines
from gatepost.peers.assertion import Claims
from gatepost.peers.identity import Peer, PeerRefused
from gatepost.wire.http_head import RequestReader

if TYPE_CHECKING:
    from gatepost.access.http.door import HttpDoor
    from gatepost.access.http.identity import Identity
    from gatepost.access.http.peer import PeerEntrance

OWN_FIELDS = 20
"""Header lines that a front end adds to a client's."""
OWN_BYTES = 8192
"""Bytes of them: the assertion, the client's address and host, `Via`."""


class PeerLeg(HttpClientLeg):
    """One connection of a peer. While a request is under way `address` is the client's, as far as the peer says it."""

    __slots__ = ("_peer_address", "binding", "claims", "entrance", "peer", "trust")

    is_peer = True

    def __init__(self, door: HttpDoor, entrance: PeerEntrance) -> None:
        super().__init__(door, tls=True)
        self.entrance = entrance
        self.peer: Peer | None = None
        self.binding = b""
        """What its tickets must be bound to; empty: it has shown a certificate."""
        self.trust: object = None
        """What `peer` was judged by; when the configuration has changed since, it is judged again."""
        self.claims: Claims | None = None
        """What was said of the current request."""
        # A head that just fitted at the first front end fits here too.
        self.reader = RequestReader(entrance.request_rules, door.limits.http_headers + OWN_FIELDS)
        self.max_head = door.limits.http_head_bytes + OWN_BYTES
        self._peer_address = ("", 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TLS is done: whoever is not another front end goes at once."""
        super().connection_made(transport)
        self._peer_address = self.address
        if self.phase is not Phase.IDLE:
            return
        try:
            self.entrance.identify(self)
        except PeerRefused as refused:
            self.entrance.log_refused(self, str(refused))
            self.close(f"peer refused: {refused}")
            return
        self.settled = True
        self.door.settle(self)

    def vouched(self, claims: Claims) -> None:
        """The current request is as `claims` say."""
        self.claims = claims
        self._id = claims.request_id.encode()
        client = claims.client
        if client is None:
            self.forwarded = forwarded_lines(self.address[0], self.door.default_host, tls=True)
            return
        self.address = (client.address, client.port)
        host = client.host.encode() or self.door.default_host
        self.forwarded = forwarded_lines(client.address, host, tls=client.tls)

    def peer_identity(self) -> Identity | None:
        """Whose the current request is by the word of the peer; None: it is answered already."""
        return self.entrance.begin(self)

    @property
    def peer_address(self) -> str:
        """The address of the peer itself."""
        return self._peer_address[0]

    def _request(self, head: bytes) -> None:
        # Until somebody vouches for this request it is the peer's own; nothing of the one before stays.
        self.address = self._peer_address
        self.claims = None
        super()._request(head)

    def finish(self) -> None:
        """The connection is gone: it was counted, and is logged, by the peer's own address."""
        self.address = self._peer_address
        super().finish()

    def describe(self) -> dict[str, Any]:
        """One entry of `sessions`."""
        return {**super().describe(), "peer": self.peer.name if self.peer is not None else ""}
