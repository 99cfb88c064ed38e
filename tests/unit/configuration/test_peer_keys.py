"""The certificates between front ends in a configuration (SPEC C11): what others would refuse is found before."""

from __future__ import annotations

from functools import cache

import pytest
from configuration_samples import NOW, WHOLE, lines_of, load_text

from gatepost.configuration.compare import compare
from gatepost.configuration.load import Loaded
from gatepost.organization.model import Role, Server, Version
from gatepost.peers.ca import Authority, KeyPair, make_authority

KEYS = 'peer_certificate = "pki/{server}.crt"\npeer_private_key = "pki/{server}.key"\norganization_ca = "pki/org.crt"\n'
TEXT = WHOLE.replace('server = "CAS-01"\n', 'server = "CAS-01"\n' + KEYS, 1).replace(
    "https = {}", "https = {}\npeer = {}", 1
)


@cache
def ca_pair(organization: str) -> KeyPair:
    """An organization's CA."""
    return make_authority(organization, NOW)


def issued(name: str = "CAS-01", fqdn: str = "mail.contoso.com", organization: str = "contoso") -> KeyPair:
    """What `gatepost ca issue` makes."""
    server = Server(name, "usa", fqdn, "127.0.1.1", Version.MODERN, frozenset({Role.CLIENT_ACCESS}))
    return Authority.load(ca_pair(organization)).issue(server, NOW, 300)


def loaded(pair: KeyPair, authorities: bytes = b"", more: str = "") -> Loaded:
    files = {
        "etc/pki/cas-01.crt": pair.certificate,
        "etc/pki/cas-01.key": pair.private_key,
        "etc/pki/org.crt": authorities or ca_pair("contoso").certificate,
    }
    return load_text(TEXT + more, files)


def test_a_certificate_that_was_issued_for_this_front_end_is_right() -> None:
    """Without a word."""
    found = loaded(issued())
    assert [line for line in lines_of(found) if "peer" in line] == []
    assert found.require().front_end.peer_keys is not None


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (issued("CAS-02"), "'CAS-02' is no client access server of the organization"),
        (issued(fqdn="old.contoso.com"), "the certificate of CAS-01 does not name mail.contoso.com: renew it"),
        (issued(organization="fabrikam"), "the certificate is not signed by the organization's CA"),
    ],
)
def test_a_certificate_that_others_would_refuse_is_a_warning(pair: KeyPair, reason: str) -> None:
    """Now, and not with the first request that crosses."""
    found = loaded(pair)
    assert found.errors == 0
    (line,) = [line for line in lines_of(found) if "other front ends" in line]
    assert reason in line
    assert "gatepost ca issue CAS-01" in line


def test_the_certificate_of_another_front_end_is_named() -> None:
    """Two run from one file with `--server`, and `{server}` was forgotten."""
    other = '[servers.CAS-03]\nsite = "usa"\nroles = ["client-access"]\nfqdn = "cas-03.contoso.com"\n'
    found = loaded(issued("CAS-03", fqdn="cas-03.contoso.com"), more=other)
    assert any("know CAS-01 by: it is that of CAS-03; make one" in line for line in lines_of(found))


def test_front_ends_of_two_cas_are_told_apart() -> None:
    """Each by itself is right; together they refuse each other, until the files hold both CAs."""
    ours, theirs = ca_pair("contoso").certificate, ca_pair("fabrikam").certificate
    first, second = loaded(issued(), ours), loaded(issued(organization="fabrikam"), theirs)
    both = {"a.toml": first.require(), "b.toml": second.require()}
    said = [str(finding) for finding in compare(both)]
    assert len(said) == 2
    assert "b.toml" in said[0]
    assert said[0].startswith("a.toml")
    mixed = {"a.toml": loaded(issued(), ours + theirs).require(), "b.toml": second.require()}
    assert [str(finding).startswith("b.toml") for finding in compare(mixed)] == [True]
    assert list(compare({"a.toml": first.require(), "c.toml": first.require()})) == []
