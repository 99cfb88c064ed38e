"""TLS contexts of both sides. Servers are always verified; clients get TLS 1.2 or later."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from gatepost.configuration.settings import FrontEnd
from gatepost.organization.model import Server


def server_context(front_end: FrontEnd, alpn: str) -> ssl.SSLContext:
    """The context of listeners that speak `alpn` (`imap`, `pop3`, `http/1.1`). Raises `ssl.SSLError`.

    The ssl module reads keys only from files. Ours came from the supervisor as bytes, since a worker without
    privileges cannot read the operator's file, so they pass through a private file in memory.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_SINGLE_ECDH_USE
    context.set_alpn_protocols([alpn])
    # One ticket a handshake: a mail client resumes one session at a time, and each ticket is a packet's worth of work.
    context.num_tickets = 1
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - the file is private and gone at once
    with (
        tempfile.NamedTemporaryFile(dir=memory, prefix="gatepost-") as certificate,
        tempfile.NamedTemporaryFile(dir=memory, prefix="gatepost-") as key,
    ):
        certificate.write(front_end.certificate)
        certificate.flush()
        key.write(front_end.private_key)
        key.flush()
        context.load_cert_chain(certificate.name, key.name)
    return context


def client_context(front_end: FrontEnd, server: Server) -> ssl.SSLContext:
    """The context of connections to `server`: its certificate chain and name are verified (field case 81)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authorities = front_end.server_ca_by_server.get(server.name, front_end.server_ca)
    if authorities:
        context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))
    else:
        context.load_default_certs()
    return context


class ClientContexts:
    """One context a server, made on first use and kept until the configuration changes."""

    def __init__(self, front_end: FrontEnd) -> None:
        self._front_end = front_end
        self._contexts: dict[str, ssl.SSLContext] = {}

    def __call__(self, server: Server) -> ssl.SSLContext:
        """The context for connections to `server`."""
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
