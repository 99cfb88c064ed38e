"""Sign-ins that take several messages, and others than passwords: which a mail session offers, and who leads them.

What a channel can be bound by (RFC 5929) depends on its TLS: within TLS 1.2 by `tls-unique` and by our certificate.
Within TLS 1.3 the default is `tls-exporter` (RFC 9266), which Python's ssl cannot give; whoever was told of -PLUS there
would choose it, so -PLUS is not offered there.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gatepost.access.tls import client_certificate, end_point
from gatepost.directory.certificate_sign_in import ExternalExchange
from gatepost.directory.kerberos_port import KerberosExchange
from gatepost.wire.sasl import EXTERNAL, SCRAM
from gatepost.wire.scram import PLAIN_NAME, PLUS_NAME

if TYPE_CHECKING:
    from gatepost.access.mail_door import MailDoor

NO_BINDINGS: Mapping[str, bytes] = {}


def channel_bindings(transport: asyncio.BaseTransport) -> Mapping[str, bytes]:
    """What the connection can be bound by, by type; empty without TLS of ours, and within TLS 1.3."""
    found: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if found is None or found.version() != "TLSv1.2":
        return NO_BINDINGS
    bindings = {"tls-unique": found.get_channel_binding("tls-unique"), "tls-server-end-point": end_point(found.context)}
    return {kind: octets for kind, octets in bindings.items() if octets}


def offered(door: MailDoor, transport: asyncio.BaseTransport, bindings: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """Mechanisms beside those that every session has; EXTERNAL to clients that have shown a certificate."""
    found: tuple[bytes, ...] = ()
    if door.sign_in.accepts_scram(door.protocol):
        found = SCRAM if bindings else SCRAM[:1]
    if door.sign_in.accepts_certificates(door.protocol) and client_certificate(transport):
        found += (EXTERNAL,)
    return found


def begin(
    door: MailDoor, mechanism: str, transport: asyncio.BaseTransport, client: str, bindings: Mapping[str, bytes]
) -> KerberosExchange | None:
    """A new exchange by `mechanism`; None: it is not accepted any more."""
    sign_in = door.sign_in
    if mechanism == EXTERNAL.decode():
        return ExternalExchange(sign_in, client_certificate(transport), door.protocol, client)
    if mechanism in (PLAIN_NAME, PLUS_NAME):
        if not sign_in.accepts_scram(door.protocol):
            return None
        return sign_in.begin_scram(mechanism, door.protocol, client, bindings, offers_plus=bool(bindings))
    return door.begin_ticket(client)
