"""The vocabulary's own judgements: which site, which endpoint, which directory first."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from ipaddress import ip_network

import pytest
from organization_samples import clean, endpoint, with_directory, with_server

from gatepost.organization.model import (
    Database,
    DatabaseCopy,
    Protocol,
    SignIn,
    Site,
    Version,
    VirtualDirectory,
)


def _nested_sites() -> dict[str, Site]:
    return {
        "wide": Site("wide", (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))),
        "narrow": Site("narrow", (ip_network("10.1.0.0/16"), ip_network("2001:db8:1::/48"))),
    }


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("10.1.2.3", "narrow"),
        ("10.2.2.3", "wide"),
        ("2001:db8:1::5", "narrow"),
        ("2001:db8:2::5", "wide"),
        ("192.0.2.1", None),
        ("::a01:203", None),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_longest_subnet_decides_the_site(address: str, site: str | None, reverse: bool) -> None:
    """Whatever the order of the sites; an IPv4 subnet never holds an IPv6 address."""
    sites = _nested_sites()
    if reverse:
        sites = dict(reversed(sites.items()))
    found = replace(clean(), sites=sites).site_of_address(address)
    assert (found.name if found else None) == site


def test_what_is_no_address_has_no_site() -> None:
    """A host name is the caller's mistake."""
    with pytest.raises(ValueError, match="cas-01"):
        clean().site_of_address("cas-01")


@pytest.mark.parametrize("reverse", [False, True])
def test_implicit_tls_is_preferred(reverse: bool) -> None:
    """It needs fewer round trips than STARTTLS; the order in the file makes no difference."""
    both = [endpoint("imap"), endpoint("imaps"), endpoint("pop3")]
    server = replace(clean().servers["MBX-01"], endpoints=tuple(reversed(both) if reverse else both))
    found = server.endpoint(Protocol.IMAP)
    assert found is not None
    assert found.name == "imaps"
    assert server.endpoint(Protocol.HTTPS) is None


def test_versions_are_ordered_by_generation() -> None:
    """ "Newer than" is a comparison (SPEC C2), and the words are those of the file."""
    assert Version.V2003 < Version.V2007 < Version.V2010 < Version.MODERN
    assert [version.word for version in Version] == ["2003", "2007", "2010", "modern"]


def test_directories_come_longest_path_first() -> None:
    """So that the first match is the most specific."""
    deep = VirtualDirectory("MBX-01", "calendar", "/owa/calendar", "https://mbx-01.contoso.com/owa/calendar")
    found = with_directory(clean(), deep).directories_by_server["MBX-01"]
    assert [directory.path for directory in found] == ["/owa/calendar", "/owa"]


def test_a_database_knows_its_copies() -> None:
    """Only servers that are named hold a copy."""
    database = Database("DB01", (DatabaseCopy("MBX-01", 1),))
    assert database.has_copy_on("MBX-01")
    assert not database.has_copy_on("mbx-01")


def test_the_default_domain_is_the_first() -> None:
    """None, where there are no accepted domains."""
    assert replace(clean(), accepted_domains=("a.example", "b.example")).default_domain == "a.example"
    assert replace(clean(), accepted_domains=()).default_domain == ""


def test_master_passwords_stay_out_of_reprs() -> None:
    """An organization can be printed in a log."""
    spoken = repr(with_server(clean(), "MBX-01", sign_in=SignIn(master_user="m", master_password="hush-hush")))
    assert "master_user='m'" in spoken
    assert "hush" not in spoken


def test_objects_cannot_be_changed() -> None:
    """Whoever holds an organization keeps a consistent view of it."""
    with pytest.raises(FrozenInstanceError):
        clean().servers["MBX-01"].site = "asia"  # type: ignore[misc]
