"""The parts of `[front_end]` that hold keys: what peers are shown (SPEC C11), whose sign-in cookies are opened (B6)."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Certificate

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.schema import FormsTable, FrontEndTable
from gatepost.configuration.settings import Forms, OtherKey, PeerKeys
from gatepost.organization.faults import Path, error, warning
from gatepost.organization.model import Server
from gatepost.peers.identity import PeerRefused, PeerTrust

WHO = "front end"
SERVER_MARK = "{server}"
"""Stands for the server's name in lower case, so that front ends can share one file and have keys of their own."""


def build_forms(document: Document, table: FormsTable, files: Files) -> Forms:
    """The settings of forms sign-in. A key that cannot be read is a finding, and left out."""
    others = []
    for index, other in enumerate(table.also_opens):
        key: Path = ("front_end", "forms", "also_opens", index)
        if other.until.tzinfo is None:
            message = "until has no time zone"
            files.findings.add(document, error((*key, "until"), WHO, message, "write it like 2027-01-31T00:00:00Z"))
            continue
        if other.until <= files.now:
            message = f"until {other.until.isoformat()} is over: cookies of this key are not opened"
            files.findings.add(document, warning((*key, "until"), WHO, message, "remove the entry"))
        pem = files.private_key(Named(document, (*key, "private_key"), other.private_key, WHO, "the private key"), None)
        if pem is not None:
            others.append(OtherKey(pem, other.until))
    return Forms(table.public_seconds, table.private_seconds, tuple(others))


def build_peer_keys(
    document: Document, table: FrontEndTable, files: Files, server: Server | None, servers: Mapping[str, Server]
) -> PeerKeys | None:
    """What peers are shown; None when the front end has none, which is a finding where it takes peers' requests."""
    if not table.peer_certificate:
        if table.peer_private_key or (server is not None and server.peer_endpoint is not None):
            message = "no peer_certificate, but this front end takes requests of other front ends"
            remedy = f"make one with: gatepost ca issue {server.name if server else 'SERVER'}"
            files.findings.add(document, error(("front_end", "peer_certificate"), WHO, message, remedy))
        return None
    if not table.organization_ca:
        remedy = 'add organization_ca = "pki/organization-ca.crt", made by: gatepost ca init'
        message = "no organization_ca: nobody could be believed to be a peer"
        files.findings.add(document, error(("front_end", "organization_ca"), WHO, message, remedy))
        return None
    word = server.name.lower() if server else ""
    certificate = table.peer_certificate.replace(SERVER_MARK, word)
    private_key = table.peer_private_key.replace(SERVER_MARK, word)
    named = Named(document, ("front_end", "peer_certificate"), certificate, WHO, "the peer certificate")
    chain = files.certificates(named)
    key_file = Named(
        document,
        ("front_end", "peer_private_key" if table.peer_private_key else "peer_certificate"),
        private_key or certificate,
        WHO,
        "the peer private key",
    )
    key = files.private_key(key_file, chain[1][0] if chain else None)
    ca = files.certificates(
        Named(document, ("front_end", "organization_ca"), table.organization_ca, WHO, "the organization's CA")
    )
    if chain is None or key is None or ca is None:
        return None
    if server is not None:
        _judge_peer_certificate(named, chain[1][0], PeerTrust(ca[0], servers, "", server.roles), server, files)
    return PeerKeys(chain[0], key, ca[0])


def _judge_peer_certificate(named: Named, leaf: Certificate, trust: PeerTrust, server: Server, files: Files) -> None:
    """What other front ends will say of it. Its times are judged already."""
    reason = ""
    try:
        peer = trust.identify(leaf.public_bytes(Encoding.DER), leaf.not_valid_after_utc.timestamp())
        if peer.name != server.name:
            reason = f"it is that of {peer.name}"
    except PeerRefused as refused:
        reason = str(refused)
    if reason:
        message = f"{named.what} {named.path} is none that other front ends know {server.name} by: {reason}"
        remedy = f"make one with: gatepost ca issue {server.name}"
        files.findings.add(named.document, warning(named.key, WHO, message, remedy))
