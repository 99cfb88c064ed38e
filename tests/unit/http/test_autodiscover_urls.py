"""Which addresses a client is told: the mailbox's site first, internal ones inside only, nothing that leads nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from organization_samples import clean, endpoint, server

from gatepost.access.http.autodiscover.urls import Service, elsewhere, own_answer, public_name, urls_for
from gatepost.organization.model import (
    ClientAccessArray,
    Organization,
    Protocol,
    Role,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
)

SERVICES = ("owa", "ecp", "EWS", "OAB", "Microsoft-Server-ActiveSync")


def directories(name: str, *services: str, outside: str = "") -> tuple[VirtualDirectory, ...]:
    """Virtual directories with internal URLs, and external ones on the host `outside`."""
    return tuple(
        VirtualDirectory(
            name,
            word,
            f"/{word}",
            f"https://{name.lower()}.contoso.com/{word}",
            f"https://{outside}/{word}" if outside else None,
        )
        for word in services or SERVICES
    )


@pytest.fixture
def organization() -> Organization:
    """The source's sites: usa and europe face the Internet, asia does not; 2010 mailboxes, and modern ones in usa."""
    both = Role.CLIENT_ACCESS, Role.MAILBOX
    base = clean()
    return replace(
        base,
        sites={
            "usa": base.sites["usa"],
            "europe": Site("europe", internet_facing=True),
            "asia": base.sites["asia"],
        },
        servers={
            "CAS-01": server("CAS-01", "usa", Role.CLIENT_ACCESS),
            "MBX-01": server("MBX-01", "usa", Role.MAILBOX),
            "OLD-01": server("OLD-01", "usa", Role.MAILBOX, version=Version.V2003),
            "CAS-02": server("CAS-02", "europe", *both, version=Version.V2010),
            "CAS-03": server("CAS-03", "asia", Role.CLIENT_ACCESS, version=Version.V2010),
            "MBX-03": server("MBX-03", "asia", Role.MAILBOX, version=Version.V2010),
            "DOV-01": server("DOV-01", "usa", Role.MAILBOX),
        },
        virtual_directories=(
            *directories("CAS-01", outside="www.usa.contoso.com"),
            *directories("MBX-01"),
            *directories("OLD-01", "exchange", "Microsoft-Server-ActiveSync"),
            *directories("CAS-02", outside="www.europe.contoso.com"),
            *directories("CAS-03"),
        ),
        arrays={},
    )


def hosts(urls: dict[Service, str]) -> set[str]:
    return {url.split("/")[2] for url in urls.values()}


@pytest.mark.parametrize(
    ("mailbox", "host"),
    [
        ("CAS-02", "www.europe.contoso.com"),
        ("MBX-03", "www.usa.contoso.com"),
        ("MBX-01", "www.usa.contoso.com"),
    ],
)
def test_external_urls_are_those_of_the_mailboxs_site(organization: Organization, mailbox: str, host: str) -> None:
    """If it is Internet-facing; else those of this front end, which reaches the mailbox by a peer (C12)."""
    servers = organization.servers
    urls = urls_for(organization, servers["CAS-01"], servers[mailbox], None)
    assert hosts(urls.external) == {host}
    assert urls.internal == {}


def test_clients_get_complete_urls(organization: Organization) -> None:
    """What follows a virtual directory's own URL: clients ask exactly what they are told."""
    urls = urls_for(organization, organization.servers["CAS-01"], organization.servers["MBX-01"], None)
    assert urls.external == {
        Service.EWS: "https://www.usa.contoso.com/EWS/Exchange.asmx",
        Service.OAB: "https://www.usa.contoso.com/OAB/",
        Service.ECP: "https://www.usa.contoso.com/ecp/",
        Service.OWA: "https://www.usa.contoso.com/owa/",
        Service.ACTIVESYNC: "https://www.usa.contoso.com/Microsoft-Server-ActiveSync",
    }
    whole = VirtualDirectory("CAS-01", "EWS", "/EWS", None, "https://www.usa.contoso.com/ews/Exchange.ASMX")
    changed = replace(organization, virtual_directories=(whole, *directories("MBX-01")))
    assert urls_for(changed, changed.servers["CAS-01"], changed.servers["MBX-01"], None).external[Service.EWS] == (
        "https://www.usa.contoso.com/ews/Exchange.ASMX"
    )


@pytest.mark.parametrize(
    ("mailbox", "host"),
    [("MBX-03", "cas-03.contoso.com"), ("CAS-02", "cas-02.contoso.com"), ("MBX-01", "cas-01.contoso.com")],
)
def test_clients_inside_get_internal_urls_too(organization: Organization, mailbox: str, host: str) -> None:
    """Of the client access servers in the mailbox's site; a modern mailbox server's own URL is never told."""
    servers = organization.servers
    urls = urls_for(organization, servers["CAS-01"], servers[mailbox], organization.sites["usa"])
    assert hosts(urls.internal) == {host}


def test_a_service_that_the_mailboxs_server_lacks_is_not_named(organization: Organization) -> None:
    """No web services on a plain IMAP server, none on a 2003 server: its web mail is at /exchange."""
    front_end, servers = organization.servers["CAS-01"], organization.servers
    assert urls_for(organization, front_end, servers["DOV-01"], organization.sites["usa"]).external == {}
    old = urls_for(organization, front_end, servers["OLD-01"], None).external
    assert old == {
        Service.OWA: "https://www.usa.contoso.com/exchange/",
        Service.ACTIVESYNC: "https://www.usa.contoso.com/Microsoft-Server-ActiveSync",
    }


def test_a_front_end_without_urls_of_its_own_takes_what_its_site_has(organization: Organization) -> None:
    """Another server of the site, then another Internet-facing site, at last the front end's own name."""
    second = server("CAS-09", "usa", Role.CLIENT_ACCESS)
    asian = organization.servers["CAS-03"]
    wider = replace(organization, servers={**organization.servers, "CAS-09": second})
    assert hosts(urls_for(wider, second, wider.servers["MBX-01"], None).external) == {"www.usa.contoso.com"}
    assert hosts(urls_for(wider, asian, wider.servers["MBX-03"], None).external) == {"www.europe.contoso.com"}
    bare = replace(wider, virtual_directories=directories("MBX-01"))
    assert hosts(urls_for(bare, second, bare.servers["MBX-01"], None).external) == {"cas-09.contoso.com"}
    array = ClientAccessArray("outlook", "usa", "outlook.contoso.com", ("CAS-09",))
    bare = replace(bare, arrays={"outlook": array})
    assert hosts(urls_for(bare, second, bare.servers["MBX-01"], None).external) == {"outlook.contoso.com"}
    assert public_name(bare, second) == "outlook.contoso.com"
    inside = urls_for(bare, second, bare.servers["MBX-01"], bare.sites["usa"])
    assert hosts(inside.internal) == {"outlook.contoso.com"}


def test_another_port_is_said(organization: Organization) -> None:
    """Where this front end's own name is used and its listener has not the usual port; not for a peer's endpoint."""
    listener = endpoint("https", port=8443)
    peer = endpoint("peer", protocol=Protocol.HTTPS, port=443, tls=TlsMode.IMPLICIT)
    front_end = replace(organization.servers["CAS-01"], endpoints=(listener, peer))
    bare = replace(organization, virtual_directories=directories("MBX-01"))
    urls = urls_for(bare, front_end, bare.servers["MBX-01"], None)
    assert hosts(urls.external) == {"cas-01.contoso.com:8443"}
    assert urls.origin == "https://cas-01.contoso.com:8443"


def test_a_server_older_than_the_mailbox_is_not_named(organization: Organization) -> None:
    """A 2007 client access server does not open 2010 mailboxes (C2)."""
    older = server("CAS-00", "europe", Role.CLIENT_ACCESS, version=Version.V2007)
    wider = replace(
        organization,
        servers={"CAS-00": older, **organization.servers},
        virtual_directories=(*directories("CAS-00", outside="old.contoso.com"), *organization.virtual_directories),
    )
    urls = urls_for(wider, wider.servers["CAS-01"], wider.servers["CAS-02"], None)
    assert hosts(urls.external) == {"www.europe.contoso.com"}


def test_availability_has_a_url_of_its_own_only_if_one_is_written(organization: Organization) -> None:
    """Else it is the web services' URL, as in the source system."""
    front_end, mailbox = organization.servers["CAS-01"], organization.servers["MBX-01"]
    assert Service.AVAILABILITY not in urls_for(organization, front_end, mailbox, None).external
    written = VirtualDirectory("CAS-01", "AS", "/AS", None, "https://www.contoso.com/AS")
    own = VirtualDirectory("MBX-01", "AS", "/AS", "https://mbx-01.contoso.com/AS")
    wider = replace(organization, virtual_directories=(written, own, *organization.virtual_directories))
    assert urls_for(wider, front_end, mailbox, None).external[Service.AVAILABILITY] == "https://www.contoso.com/AS"


def test_modern_servers_with_a_directory_answer_themselves(organization: Organization) -> None:
    """Front ends answer for all others; an unknown server leaves it to the front end."""
    assert own_answer(organization, "MBX-01")
    assert own_answer(organization, "nowhere")
    wider = replace(
        organization,
        virtual_directories=(*directories("MBX-01", "Autodiscover"), *directories("CAS-02", "autodiscover")),
    )
    assert not own_answer(wider, "MBX-01")
    assert own_answer(wider, "CAS-02")


def test_another_sites_autodiscover_is_named_for_newer_mailboxes_only(organization: Organization) -> None:
    """A front end must not proxy to a newer server (C2): the client asks there, if that is another host."""
    old_front = replace(organization.servers["CAS-01"], version=Version.V2007)
    there = organization.servers["CAS-02"]
    assert elsewhere(organization, old_front, there) is None
    wider = replace(
        organization,
        virtual_directories=(*organization.virtual_directories, *directories("CAS-02", "Autodiscover", outside="eu.x")),
    )
    assert elsewhere(wider, old_front, there) == "https://eu.x/Autodiscover/autodiscover.xml"
    assert elsewhere(wider, organization.servers["CAS-01"], there) is None
    closed = replace(wider, sites={**wider.sites, "europe": Site("europe")})
    assert elsewhere(closed, old_front, there) is None
    same = replace(wider, arrays={"a": ClientAccessArray("a", "usa", "EU.x", ("CAS-01",))}, virtual_directories=(
        directories("CAS-02", "Autodiscover", outside="eu.x")
    ))  # fmt: skip
    assert elsewhere(same, old_front, there) is None
