"""Assertions that the Kerberos context of a peer has sealed instead of a key."""

from __future__ import annotations

import base64
import hmac
from dataclasses import replace

import pytest
from peer_samples import NOW, SERVERS, ca_pair, der, pair, trust

from gatepost.organization.model import Version
from gatepost.peers.assertion import AssertionRefused, AssertionSigner, AssertionVerifier, Client, sealed_assertion
from gatepost.peers.identity import PeerRefused, PeerTrust

CLIENT = Client("203.0.113.9", 40000, True, "mail.contoso.com")


class Context:
    """Seals with a key that only the two sides have."""

    def __init__(self, key: bytes = b"session key") -> None:
        self.key = key

    def seal(self, payload: bytes) -> bytes:
        return hmac.digest(self.key, payload, "sha256")

    def sealed(self, payload: bytes, seal: bytes) -> bool:
        return hmac.compare_digest(self.seal(payload), seal)


def _payload(audience: str = "CAS-02") -> bytes:
    signer = AssertionSigner(pair("CAS-01").private_key, "CAS-01", 60.0)
    return signer.payload("alice@contoso.com", "r-1", audience, CLIENT, (), NOW, Version.MODERN)


def test_what_the_context_has_sealed_is_believed_once() -> None:
    payload, context = _payload(), Context()
    value = sealed_assertion(payload, context.seal(payload))
    verifier = AssertionVerifier("CAS-02", 60.0)
    claims = verifier.verify(value, "CAS-01", context, NOW)
    assert (claims.user, claims.client, claims.via) == ("alice@contoso.com", CLIENT, ("CAS-01",))
    with pytest.raises(AssertionRefused, match="taken before"):
        verifier.verify(value, "CAS-01", context, NOW)


def _signed() -> bytes:
    signer = AssertionSigner(pair("CAS-01").private_key, "CAS-01", 60.0)
    return signer.sign(signer.payload("alice@contoso.com", "r-1", "CAS-02", CLIENT, (), NOW, Version.MODERN))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (sealed_assertion(_payload(), Context(b"another").seal(_payload())), "not sealed by"),
        (sealed_assertion(_payload(), b""), "not sealed by"),
        (_signed(), "not that of a sealed assertion"),
        (b"a.b", "no assertion"),
        (b"!.!.!", "not that of a sealed|no assertion"),
    ],
)
def test_anything_else_is_not(value: bytes, words: str) -> None:
    with pytest.raises(AssertionRefused, match=words):
        AssertionVerifier("CAS-02", 60.0).verify(value, "CAS-01", Context(), NOW)


def test_a_sealed_one_is_nothing_to_who_shows_a_certificate() -> None:
    """The kind of proof is chosen by the connection, never by the assertion's header."""
    payload, context = _payload(), Context()
    value = sealed_assertion(payload, context.seal(payload))
    peer = trust("CAS-02").identify(der(pair("CAS-01").certificate), NOW)
    assert peer.public_key is not None
    with pytest.raises(AssertionRefused):
        AssertionVerifier("CAS-02", 60.0).verify(value, "CAS-01", peer.public_key, NOW)


@pytest.mark.parametrize("change", [base64.b64encode, lambda payload: payload.replace(b"alice", b"alicf")])
def test_a_changed_payload_breaks_the_seal(change: object) -> None:
    payload, context = _payload(), Context()
    changed = change(payload)  # type: ignore[operator]
    with pytest.raises(AssertionRefused):
        AssertionVerifier("CAS-02", 60.0).verify(
            sealed_assertion(changed, context.seal(payload)), "CAS-01", context, NOW
        )


def test_an_account_is_one_front_end_or_nobody() -> None:
    known = SERVERS | {"CAS-01": replace(SERVERS["CAS-01"], kerberos_principal="CAS-01$@AD.X")}
    authority = ca_pair().certificate
    other = PeerTrust(authority, known, "CAS-02")
    assert other.identify_principal("CAS-01$@AD.X").name == "CAS-01"
    for principal in ("", "alice@AD.X", "cas-01$@AD.X", "CAS-01$@AD.Y"):
        with pytest.raises(PeerRefused, match="no client access server"):
            other.identify_principal(principal)
    with pytest.raises(PeerRefused, match="this front end itself"):
        PeerTrust(authority, known, "CAS-01").identify_principal("CAS-01$@AD.X")
