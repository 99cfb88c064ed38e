"""TLS contexts of both sides. Servers are always verified; clients get TLS 1.2 or later, peers 1.3."""

from __future__ import annotations

import asyncio
import re
import ssl
from weakref import WeakKeyDictionary

from gatepost.access.end_point_binding import PREFIX, end_point_binding
from gatepost.configuration.key_pairs import load_key_pair
from gatepost.configuration.settings import FrontEnd, PeerKeys
from gatepost.organization.model import Protocol, Server

PEM_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
PEER_ALPN = "gatepost-peer/1"
"""What front ends agree on among themselves (RFC 7301): a connection meant for another service never passes for one."""


def server_context(front_end: FrontEnd, alpn: str, protocol: Protocol | None = None) -> ssl.SSLContext:
    """The context of listeners that speak `alpn` (`imap`, `pop3`, `http/1.1`). Raises `ssl.SSLError`.

    Clients of `protocol` may be asked for a certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_SINGLE_ECDH_USE
    context.set_alpn_protocols([alpn])
    # One ticket a handshake: a mail client resumes one session at a time, and each ticket is a packet's worth of work.
    context.num_tickets = 1
    load_key_pair(context, front_end.certificate, front_end.private_key)
    _END_POINTS[context] = _binding(front_end.certificate).removeprefix(PREFIX)
    asked = front_end.client_certificates
    if asked is not None and protocol is not None and asked.asks(protocol):
        context.verify_mode = ssl.CERT_REQUIRED if protocol in asked.required else ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=asked.ca.decode("ascii", "ignore"))
        # As for peers: whoever comes back shows the certificate again, and it is judged again.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def client_certificate(transport: asyncio.BaseTransport) -> bytes:
    """The certificate that a client has shown and TLS has verified, DER; empty: none."""
    found: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return (found.getpeercert(binary_form=True) or b"") if found is not None else b""


def end_point(context: ssl.SSLContext) -> bytes:
    """What `tls-server-end-point` (RFC 5929 section 4.1) is by the context of a connection; empty: not defined."""
    return _END_POINTS.get(context, b"")


def _binding(chain: bytes) -> bytes:
    """What sign-ins are bound to on connections of a server that shows this chain, PEM."""
    own = PEM_CERTIFICATE.search(chain.decode("ascii", "ignore"))
    return end_point_binding(ssl.PEM_cert_to_DER_cert(own[0])) if own else b""


_END_POINTS: WeakKeyDictionary[ssl.SSLContext, bytes] = WeakKeyDictionary()


class PeerServerContext(ssl.SSLContext):
    """The context of the listener for other front ends."""

    binding = b""
    """What tickets must be bound to that come on its connections."""


def peer_server_context(keys: PeerKeys, *, tickets: bool = False) -> PeerServerContext:
    """The context of the listener for other front ends (SPEC C11): only the organization's CA is believed.

    With `tickets` a peer without a certificate comes so far; it shows a ticket with each request. Both sides are
    Gatepost, so nothing older than TLS 1.3 is needed. Raises `ssl.SSLError`.
    """
    context = PeerServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.binding = _binding(keys.certificate)
    # Every connection shows its certificate: none is resumed on a ticket that was given to an earlier one.
    context.num_tickets = 0
    _for_peers(context, keys)
    if tickets:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def peer_client_context(keys: PeerKeys, *, certificate: bool = True) -> ssl.SSLContext:
    """The context of connections to other front ends: theirs is verified, with its name, and our certificate is shown.

    Without `certificate` it is not: the peer knows us by our tickets.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _for_peers(context, keys, certificate=certificate)
    return context


def _for_peers(context: ssl.SSLContext, keys: PeerKeys, *, certificate: bool = True) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols([PEER_ALPN])
    context.load_verify_locations(cadata=keys.organization_ca.decode("ascii", "ignore"))
    if certificate:
        load_key_pair(context, keys.certificate, keys.private_key)


def takes_tickets(front_end: FrontEnd) -> bool:
    """Whether other front ends may know this one by Kerberos, and the other way round."""
    return front_end.kerberos is not None and bool(front_end.kerberos.peer_principal)


def client_context(front_end: FrontEnd, server: Server | None = None) -> ssl.SSLContext:
    """The context of connections to `server`: its certificate chain and name are verified (field case 81).

    Without `server` that of connections to others of this organization.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    own = front_end.server_ca_by_server.get(server.name) if server is not None else None
    authorities = own or front_end.server_ca
    if authorities:
        context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))
    else:
        context.load_default_certs()
    return context


class ClientContexts:
    """One context a server, and one for all peers, made on first use and kept until the configuration changes."""

    def __init__(self, front_end: FrontEnd) -> None:
        self._front_end = front_end
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._peer_contexts: dict[bool, ssl.SSLContext] = {}

    def __call__(self, server: Server, *, peer: bool = False) -> ssl.SSLContext:
        """The context for connections to `server`; with `peer` to its endpoint for peers, for which we need keys."""
        if peer:
            by_ticket = takes_tickets(self._front_end) and bool(server.kerberos_principal)
            found = self._peer_contexts.get(by_ticket)
            if found is None:
                assert self._front_end.peer_keys is not None
                found = peer_client_context(self._front_end.peer_keys, certificate=not by_ticket)
                self._peer_contexts[by_ticket] = found
            return found
        context = self._contexts.get(server.name)
        if context is None:
            context = self._contexts[server.name] = client_context(self._front_end, server)
        return context


class Reloadable:
    """A listener's context that can be replaced: handshakes that begin later use the new certificate."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._current = context
        self.outer = context
        """The context to hand to the listener; stays the same object for life."""
        context.sni_callback = self._choose

    def replace(self, context: ssl.SSLContext) -> None:
        """Use `context` from the next handshake on."""
        self._current = context

    @property
    def current(self) -> ssl.SSLContext:
        """The context for handshakes that begin now."""
        return self._current

    def _choose(self, handshake: ssl.SSLObject, _name: str | None, _outer: ssl.SSLContext) -> None:
        if handshake.context is not self._current:
            handshake.context = self._current
