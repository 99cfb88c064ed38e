"""Who a TLS peer is (SPEC C11): exactly one other front end of the organization, or nobody."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from peer_samples import MADE, NOW, SERVERS, ca_pair, der, pair, trust

from gatepost.organization.model import Version
from gatepost.peers.ca import Authority
from gatepost.peers.identity import PeerRefused, PeerTrust
from gatepost.peers.names import server_of_uri, server_uri

DAY = 86400.0


def refused(certificate: bytes | None, now: float = NOW, who: PeerTrust | None = None) -> str:
    """The reason."""
    with pytest.raises(PeerRefused) as caught:
        (who or trust()).identify(certificate, now)
    return str(caught.value)


def forged(*names: x509.GeneralName, key: object = None) -> bytes:
    """A certificate of the real CA with these names: what only the CA's owner could make by mistake."""
    authority = Authority.load(ca_pair())
    subject_key = key or ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CAS-01")]))
        .issuer_name(authority.certificate.subject)
        .public_key(subject_key.public_key())  # type: ignore[attr-defined]
        .serial_number(7)
        .not_valid_before(MADE - timedelta(days=1))
        .not_valid_after(MADE + timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(Encoding.DER)


def uri(name: str) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(server_uri(name))


HOST = x509.DNSName("cas-01.contoso.com")


def test_a_front_end_is_known_by_its_certificate() -> None:
    """Its name, its generation, its key, and until when."""
    found = trust().identify(der(pair("CAS-01").certificate), NOW)
    assert (found.name, found.version) == ("CAS-01", Version.MODERN)
    assert found.public_key == x509.load_pem_x509_certificate(pair("CAS-01").certificate).public_key()
    assert abs(found.expires - NOW - 30 * DAY) < 2
    old = replace(SERVERS["CAS-01"], version=Version.V2010)
    assert trust(**{"CAS-01": old}).identify(der(pair("CAS-01").certificate), NOW).version is Version.V2010


@pytest.mark.parametrize("certificate", [None, b""])
def test_no_certificate_is_nobody(certificate: bytes | None) -> None:
    """TLS asks for one; this is the second look."""
    assert refused(certificate) == "no client certificate"


def test_another_ca_is_not_believed_whatever_it_signs() -> None:
    """Its certificate names a front end of ours in every letter."""
    assert (
        refused(der(pair("CAS-01", "fabrikam").certificate)) == "the certificate is not signed by the organization's CA"
    )


def test_two_cas_are_believed_while_one_replaces_the_other() -> None:
    """The file holds both until every front end has a certificate of the new one."""
    both = PeerTrust(ca_pair().certificate + ca_pair("fabrikam").certificate, SERVERS, "CAS-02")
    for organization in ("contoso", "fabrikam"):
        assert both.identify(der(pair("CAS-01", organization).certificate), NOW).name == "CAS-01"


def test_a_peers_certificate_is_no_ca() -> None:
    """What a front end signs with its own key makes nobody a peer."""
    alone = PeerTrust(pair("CAS-01").certificate, SERVERS, "CAS-02")
    assert "not signed by" in refused(der(pair("CAS-01").certificate), who=alone)


@pytest.mark.parametrize("days", [31, -1])
def test_a_certificate_is_good_in_its_time_only(days: int) -> None:
    """It may end while a connection lasts: the caller asks again."""
    assert refused(der(pair("CAS-01").certificate), NOW + days * DAY) == "the certificate is not valid now"


def test_only_client_access_servers_of_the_organization_are_peers() -> None:
    """A mailbox server has no business here, and one that was taken out of the organization neither."""
    assert "no client access server" in refused(der(pair("MBX-01").certificate))
    assert "no client access server" in refused(der(pair("CAS-77").certificate))


def test_a_front_end_is_not_its_own_peer() -> None:
    """A request that comes back here from here goes round in a circle."""
    assert refused(der(pair("CAS-02").certificate)) == "it is this front end itself"


def test_a_certificate_for_the_name_of_another_machine_is_not_believed() -> None:
    """The server's full name has changed since: its certificate must be renewed."""
    moved = replace(SERVERS["CAS-01"], fqdn="front.contoso.com")
    reason = refused(der(pair("CAS-01").certificate), who=trust(**{"CAS-01": moved}))
    assert reason == "the certificate of CAS-01 does not name front.contoso.com: renew it"


def test_a_certificate_must_name_exactly_one_server() -> None:
    """The common name says nothing, and two names are one too many."""
    assert refused(forged(HOST)) == "the certificate names no servers"
    assert refused(forged(HOST, uri("CAS-01"), uri("CAS-03"))) == "the certificate names 2 servers"
    assert refused(forged(HOST, x509.UniformResourceIdentifier("https://cas-01.contoso.com"))).endswith("no servers")
    assert "names nobody" in refused(forged())
    assert trust().identify(forged(HOST, uri("CAS-01")), NOW).name == "CAS-01"


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)])
def test_keys_that_sign_no_assertions_are_refused(key: object) -> None:
    """One algorithm for each kind of key, and two kinds."""
    assert refused(forged(HOST, uri("CAS-01"), key=key)) == "the key of CAS-01 is neither P-256 nor Ed25519"


def test_an_ed25519_key_is_taken() -> None:
    """From a CA that an organization runs with other tools."""
    key = ed25519.Ed25519PrivateKey.generate()
    assert trust().identify(forged(HOST, uri("CAS-01"), key=key), NOW).public_key == key.public_key()


@pytest.mark.parametrize("certificate", [b"nonsense", b"0" * 20000, der(pair("CAS-01").certificate)[:-1]])
def test_what_is_no_certificate_is_nobody(certificate: bytes) -> None:
    """However it gets here."""
    assert refused(certificate)


@pytest.mark.parametrize("name", ["CAS-01", "Front end 1", "Köln", "a/b:c%d"])
def test_any_servers_name_fits_into_a_uri_and_back(name: str) -> None:
    """One spelling for each."""
    assert server_of_uri(server_uri(name)) == name


@pytest.mark.parametrize("text", ["gatepost:server:", "gatepost:server:%43AS-01", "Gatepost:server:CAS-01", "x", ""])
def test_other_spellings_name_no_server(text: str) -> None:
    """Two spellings of one name would be two certificates that look different and are the same."""
    assert server_of_uri(text) is None
