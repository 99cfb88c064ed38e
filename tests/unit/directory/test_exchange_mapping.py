"""From the entries of a real forest to an organization, and what becomes of entries that are odd."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from exchange_stage import CONFIGURATION, GROUP, captured, changed, entry, server_dn, site_dn, with_more

from gatepost.directory.exchange.found import Ambiguous, Found, FoundDatabase, FoundLink, FoundServer
from gatepost.directory.exchange.mapping import found_in
from gatepost.directory.exchange.reading import Entries
from gatepost.directory.exchange.servers import generation, version_of
from gatepost.organization.model import AuthenticationMethod, Role, Version


def _told(found: Found, words: str) -> bool:
    return any(words in line for line in found.not_mapped)


def test_the_whole_forest() -> None:
    found = found_in(captured(), said_sites={"ex-old": "USA"})
    assert found.organization == "Contoso"
    assert list(found.sites) == ["Default-First-Site-Name", "asia", "europe", "usa"]
    assert found.sites["asia"].subnets == (ip_network("10.2.7.0/24"), ip_network("fd00:3::/32"))
    assert [found.sites[name].hub_site for name in ("usa", "europe", "asia")] == [True, False, None]
    assert found.site_links == {
        "europe-asia": FoundLink("europe-asia", ("asia", "europe"), 40, None),
        "usa-europe": FoundLink("usa-europe", ("europe", "usa"), 10, 5),
    }
    assert found.servers["EX-OLD"] == FoundServer(
        "EX-OLD", "ex-old.contoso.com", "usa", Version.V2003, frozenset({Role.MAILBOX})
    )
    assert found.databases["DB02"] == FoundDatabase("DB02", (("EX-MBX-02", 1), ("EX-MBX-01", 2)))
    owa = next(d for d in found.directories if (d.server, d.service) == ("EX-CAS-01", "owa"))
    assert (owa.path, owa.external_url) == ("/owa", "https://mail.contoso.com/owa")
    assert _told(found, "DAG-01: EX-MBX-01, EX-MBX-02; as a group")


def test_a_forest_without_anything_is_an_empty_organization() -> None:
    assert found_in(Entries()) == Found()


# --- versions and roles


@pytest.mark.parametrize(
    ("serial", "number", "version"),
    [
        ("Version 6.5 (Build 7638.2: Service Pack 2)", "", Version.V2003),
        ("Version 8.3 (Build 30083.6)", "", Version.V2007),
        ("Version 14.3 (Build 30123.4)", "", Version.V2010),
        ("Version 15.0 (Build 1497.2)", "", Version.MODERN),
        ("Version 15.2 (Build 1118.7)", "", Version.MODERN),
        ("Version 16.0", "", Version.MODERN),
        ("", str(0x738180DA), Version.V2010),  # the documentation's example: 14.1 build 218
        ("", str(0x720280B0), Version.V2007),
        ("Version 6.0 (Build 6249.4: Service Pack 3)", "", None),
        ("Version 5.5", "", None),
        ("Version 9999999.1", "", None),
        ("Version ١٤.٣", "", None),
        ("", "-1", None),
        ("", "0", None),
        ("", "9" * 5000, None),
        ("", "", None),
    ],
)  # fmt: skip
def test_a_version_by_its_text_or_its_number(serial: str, number: str, version: Version | None) -> None:
    found = version_of(entry("CN=EX", serialnumber=serial, versionnumber=number))
    assert (generation(found) if found else None) is version


@pytest.mark.parametrize(
    ("version", "bits", "roles"),
    [
        ("14.3", 2, {Role.MAILBOX}),
        ("14.3", 4 | 32, {Role.CLIENT_ACCESS, Role.HUB_TRANSPORT}),
        ("8.3", 2 | 4 | 16 | 32, {Role.MAILBOX, Role.CLIENT_ACCESS, Role.HUB_TRANSPORT}),
        ("14.3", 64, {Role.EDGE_TRANSPORT}),
        ("15.0", 54, {Role.MAILBOX}),
        ("15.1", 16439, {Role.MAILBOX}),
        ("15.2", 64, {Role.EDGE_TRANSPORT}),
        ("6.5", 0, {Role.MAILBOX}),
    ],
)
def test_roles_by_their_bits(version: str, bits: int, roles: set[Role]) -> None:
    """Of 2013 and later the mailbox alone: a front end of today is Gatepost."""
    changes = {"serialnumber": f"Version {version} (Build 1.1)", "msexchcurrentserverroles": str(bits)}
    assert found_in(changed(captured(), "servers", "EX-07", **changes)).servers["EX-07"].roles == roles


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"serialnumber": "Version 15.0", "msexchcurrentserverroles": "16385"}, "2013's client access"),
        ({"msexchcurrentserverroles": "16"}, "no role it has here"),
        ({"msexchcurrentserverroles": []}, "no role it has here"),
        ({"serialnumber": "", "versionnumber": ""}, "its version is not known"),
        ({"networkaddress": ["netbios:EX-07"]}, "no full host name"),
        ({"networkaddress": ["ncacn_ip_tcp:a host"]}, "no full host name"),
        ({"msexchserversite": "CN=gone,CN=Sites"}, "say it with --site EX-07=SITE"),
    ],
)
def test_a_server_that_cannot_be_one_here_is_named(changes: dict[str, object], words: str) -> None:
    found = found_in(changed(captured(), "servers", "EX-07", **changes))
    assert "EX-07" not in found.servers
    assert _told(found, f"server EX-07: {words}") or _told(found, words)
    assert _told(found, "database Mailbox Database 07: none of its servers is in the file")


def test_the_site_that_the_file_has_counts_where_nothing_is_known() -> None:
    known = {"EX-OLD": "usa", "EX-07": "usa"}
    found = found_in(captured(), known_sites=known)
    assert (found.servers["EX-OLD"].site, found.servers["EX-07"].site) == ("usa", "asia")
    said = found_in(captured(), known_sites=known, said_sites={"EX-07": "europe"})
    assert said.servers["EX-07"].site == "europe"


def test_a_part_of_a_server_is_no_server() -> None:
    part = entry(f"CN=Transport,{server_dn('EX-16')}", objectclass=["top", "msExchExchangeTransportServer"])
    assert found_in(with_more(captured(), "servers", part)) == found_in(captured())


# --- virtual directories


@pytest.mark.parametrize(
    ("bits", "methods"),
    [
        ("1", {AuthenticationMethod.BASIC}),
        ("5", {AuthenticationMethod.BASIC, AuthenticationMethod.FORMS}),
        ("2", {AuthenticationMethod.INTEGRATED}),
        ("16", {AuthenticationMethod.INTEGRATED}),
        ("8192", {AuthenticationMethod.INTEGRATED}),
        ("1153", {AuthenticationMethod.BASIC}),
        ("8", None),
        ("0", None),
        ("", None),
    ],
)
def test_methods_by_their_bits(bits: str, methods: set[AuthenticationMethod] | None) -> None:
    entries = changed(captured(), "directories", "owa (Default Web Site)", msexchinternalauthenticationmethods=bits)
    owa = next(d for d in found_in(entries).directories if d.service == "owa")
    assert owa.authentication == methods


@pytest.mark.parametrize(
    ("name", "kind", "service", "path"),
    [
        ("owa (Extern)", "msExchOwaVirtualDirectory", "owa", "/owa"),
        ("Exchange (Default Web Site)", "msExchOwaVirtualDirectory", "exchange", "/Exchange"),
        ("Public (Default Web Site)", "msExchOwaVirtualDirectory", "public", "/Public"),
        ("Autodiscover (Default Web Site)", "msExchAutoDiscoverVirtualDirectory", "Autodiscover", "/Autodiscover"),
        ("mapi (Default Web Site)", "msExchMapiVirtualDirectory", "mapi", "/mapi"),
        ("mail", "msExchOwaVirtualDirectory", "owa", "/mail"),
    ],
)
def test_service_and_path_of_a_directory(name: str, kind: str, service: str, path: str) -> None:
    dn = f"CN={name},CN=HTTP,CN=Protocols,{server_dn('EX-07')}"
    more = entry(dn, objectclass=["top", "msExchVirtualDirectory", kind])
    found = [d for d in found_in(with_more(captured(), "directories", more)).directories if d.server == "EX-07"]
    assert [(d.service, d.path, d.name) for d in found] == [(service, path, name)]


@pytest.mark.parametrize(
    "url", ["owa.contoso.com", "https://", "ftp://a/b", "https://a b/", "https://u:p@host/", "https://h/?x", "x" * 9999]
)
def test_an_url_that_is_none_is_named_and_left_away(url: str) -> None:
    entries = changed(captured(), "directories", "ecp (Default Web Site)", msexchexternalhostname=url)
    found = found_in(entries)
    assert all(d.external_url is None for d in found.directories if d.service == "ecp")
    assert _told(found, "(msExchExternalHostName)") or len(url) > 4096


def test_two_directories_of_one_path_are_the_default_site_s() -> None:
    dn = f"CN=OWA (Second),CN=HTTP,CN=Protocols,{server_dn('EX-16')}"
    more = entry(dn, objectclass="msExchOwaVirtualDirectory", msexchinternalhostname="https://second.contoso.com/owa")
    found = found_in(with_more(captured(), "directories", more))
    (owa,) = (d for d in found.directories if (d.server, d.service) == ("EX-16", "owa"))
    assert owa.internal_url == "https://ex-16.contoso.com/owa"
    assert _told(found, "virtual directory OWA (Second) of EX-16: owa (Default Web Site) has that path")


# --- sites


def test_odd_sites_links_and_subnets_are_named() -> None:
    sites = f"CN=Sites,{CONFIGURATION}"
    entries = with_more(captured(), "sites", entry(f"CN=usa\\0ACNF:9d07,{sites}"))
    entries = with_more(entries, "sites", entry(f"CN=a\x1b[31mb,{sites}"))
    entries = with_more(entries, "subnets", entry(f"CN=all,CN=Subnets,{sites}", siteobject=site_dn("usa")))
    entries = with_more(entries, "subnets", entry(f"CN=10.8.0.0/16,CN=Subnets,{sites}", siteobject=site_dn("gone")))
    links = f"CN=Inter-Site Transports,{sites}"
    both = [site_dn("usa"), site_dn("asia")]
    entries = with_more(entries, "site_links", entry(f"CN=mail,CN=SMTP,{links}", sitelist=both))
    entries = with_more(entries, "site_links", entry(f"CN=far,CN=IP,{links}", sitelist=both, cost="0", msexchcost="x"))
    found = found_in(entries)
    assert found.site_links["far"] == FoundLink("far", ("asia", "usa"))
    for words in (
        "site usa CNF:9d07: the rest of a replication conflict",
        "subnet all: it is none",
        "subnet 10.8.0.0/16: its site is none",
        "subnet 10.9.0.0/16: it is in no site",
        "site link mail: it is for the replication of directories by SMTP",
        "site link DEFAULTIPSITELINK: it joins fewer than two sites",
        "site link far: cost is 0",
        "site a\x1b[31mb: its name is none that the file can hold",
    ):
        assert _told(found, words), words


# --- what can mean two things


def _ambiguous(entries: Entries, words: str, **options: object) -> None:
    with pytest.raises(Ambiguous) as raised:
        found_in(entries, **options)  # type: ignore[arg-type]
    assert any(words in fault for fault in raised.value.faults), raised.value.faults


def test_two_servers_of_one_name_in_two_administrative_groups() -> None:
    second = server_dn("ex-16").replace("Exchange Administrative Group (FYDIBOHF23SPDLT)", "First")
    first = next(values for dn, values in captured().servers if dn == server_dn("EX-16"))
    twin = second, first
    _ambiguous(with_more(captured(), "servers", twin), "there are two servers called ")
    left_out = found_in(with_more(captured(), "servers", twin), leave_out=["EX-16"])
    assert "EX-16" not in left_out.servers


def test_two_databases_of_one_name() -> None:
    more = entry(f"CN=db01,CN=SG,{server_dn('EX-07')}", msexchowningserver=server_dn("EX-07"))
    _ambiguous(with_more(captured(), "databases", more), "there are two databases called ")
    found = found_in(with_more(captured(), "databases", more), leave_out=["db01"])
    assert "DB01" not in found.databases
    assert _told(found, "left out, as you said")


@pytest.mark.parametrize("preference", ["2", "0", "-1", "", "first"])
def test_copies_without_an_order(preference: str) -> None:
    entries = captured()
    holder = f"CN=EX-MBX-01,CN=DB01,CN=Databases,{GROUP}"
    copies = tuple(
        (dn, {**have, "msexchactivationpreference": [preference.encode()]}) if dn == holder else (dn, have)
        for dn, have in entries.copies
    )
    assert copies != entries.copies
    _ambiguous(Entries(**{k: getattr(entries, k) for k in Entries.__slots__} | {"copies": copies}), "database DB01: ")


def test_two_organizations() -> None:
    more = entry(f"CN=Fabrikam,CN=Microsoft Exchange,CN=Services,{CONFIGURATION}")
    _ambiguous(with_more(captured(), "organizations", more), "several Exchange organizations: Contoso, Fabrikam")


def test_a_site_that_the_operator_invents() -> None:
    _ambiguous(captured(), "--site EX-OLD=mars: Active Directory has no such site", said_sites={"EX-OLD": "mars"})
