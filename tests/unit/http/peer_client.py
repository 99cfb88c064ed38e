"""Other front ends that have connected to a front door in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from http_harness import MemoryTransport, World, get, head_of
from peer_samples import NOW, der, front_end, pair

from gatepost.access.http.identity import Identity
from gatepost.access.http.peer import PeerEntrance
from gatepost.access.http.peer_leg import PeerLeg
from gatepost.access.tls import PEER_ALPN
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Version
from gatepost.peers.assertion import AssertionSigner, Client

PEERS = [front_end(name) for name in ("CAS-02", "CAS-03", "CAS-04")]
CLIENT = Client("198.51.100.9", 5555, tls=True, host="mail.contoso.com")


class Handshake:
    """What the TLS layer tells of the other side."""

    def __init__(self, certificate: bytes | None, alpn: str | None) -> None:
        self.certificate = certificate
        self.alpn = alpn

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        assert binary_form
        return self.certificate

    def selected_alpn_protocol(self) -> str | None:
        return self.alpn


class PeerTransport(MemoryTransport):
    """A connection of a front end."""

    def __init__(self, protocol: Any, handshake: Handshake | None) -> None:
        super().__init__(protocol, ("127.0.1.2", 40001))
        self.handshake = handshake

    def get_extra_info(self, name: str) -> Any:
        return self.handshake if name == "ssl_object" else super().get_extra_info(name)


class PeerClient:
    """Another front end that has connected, TLS done."""

    def __init__(
        self, world: World, name: str = "CAS-02", *, organization: str = "contoso", alpn: str | None = PEER_ALPN
    ) -> None:
        self.world = world
        self.name = name
        self.signer = AssertionSigner(pair(name, organization).private_key, name, 60.0)
        leg = world.door.protocol(tls=True, peer=True)
        assert isinstance(leg, PeerLeg)
        self.leg = leg
        certificate = der(pair(name, organization).certificate) if name else None
        self.transport = PeerTransport(leg, Handshake(certificate, alpn))
        leg.connection_made(self.transport)  # type: ignore[arg-type]

    def line(self, user: str = "alice", audience: str = "CAS-01", **changes: Any) -> str:
        """An assertion for the next request."""
        arguments = {"client": CLIENT, "via": (), "now": NOW, "version": Version.MODERN, **changes}
        payload = self.signer.payload(user, "0f1e-7", audience, **arguments)
        return f"X-Gatepost-Assertion: {self.signer.sign(payload).decode()}"

    async def ask(self, *lines: str, path: str = "/owa/") -> tuple[str, dict[str, str], bytes]:
        """Send a request with these lines; first line, fields and body of what comes back."""
        self.transport.protocol.data_received(get(path, *lines, user=""))
        await self.world.settle()
        return head_of(self.transport.take())


class LetIn(NamedTuple):
    """A request that was let in, and what is known of its client."""

    identity: Identity
    address: tuple[str, int]
    forwarded: bytes
    request_id: bytes


def entrance(world: World) -> PeerEntrance:
    assert world.door.peers is not None
    return world.door.peers


def refusals(world: World) -> list[str]:
    """The reasons in the log, in their order."""
    return [line["reason"] for line in world.log.of("peer.refused")]


def reload(world: World, keys: Any = None, **servers: Any) -> None:
    """Another configuration: these servers instead (None: gone), these keys."""
    old = world.configuration
    there = {**old.organization.servers, **servers}
    organization = replace(old.organization, servers={k: v for k, v in there.items() if v is not None})
    front = replace(old.front_end, peer_keys=keys or old.front_end.peer_keys)
    world.door.reload(Configuration(organization, front, 2), world.context)
