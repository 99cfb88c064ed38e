"""Every fault of an organization gives exactly its finding, and a clean one gives none (SPEC O2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network

import pytest
from organization_samples import (
    clean,
    endpoint,
    server,
    with_array,
    with_copies,
    with_directory,
    with_endpoint,
    with_old_asia,
    with_server,
    with_web_part_of_2010,
)

from gatepost.organization.check import MAX_NAME, check
from gatepost.organization.model import (
    AuthenticationMethod,
    ClientAddress,
    DatabaseCopy,
    HttpSignIn,
    Organization,
    Role,
    Severity,
    SignIn,
    SignInForm,
    Site,
    SiteLink,
    TlsMode,
    Version,
    VirtualDirectory,
)

Case = tuple[Callable[[], Organization], tuple[str | int, ...], str]
"""How to make the organization, the finding's key path, and words of its message."""

BASIC = frozenset({AuthenticationMethod.BASIC})


def _link(sites: tuple[str, ...], cost: int = 10) -> Organization:
    return replace(clean(), site_links={"usa-asia": SiteLink("usa-asia", sites, cost)})


def _directory(path: str = "/dav", internal: str | None = "https://mbx-01.contoso.com/dav") -> Organization:
    return with_directory(clean(), VirtualDirectory("MBX-01", "dav", path, internal))


def _sign_in(**values: object) -> Organization:
    return with_server(clean(), "MBX-01", sign_in=SignIn(**values))  # type: ignore[arg-type]


def _added_site(name: str, net: str) -> Organization:
    return replace(clean(), sites={**clean().sites, name: Site(name, (ip_network(net),))})


ERRORS: dict[str, Case] = {
    "organization without a name": (
        lambda: replace(clean(), name=""),
        ("organization", "name"),
        "the name is empty",
    ),
    "name with a control character": (
        lambda: _added_site("a\x1bb", "10.9.0.0/16"),
        ("sites", "a\x1bb"),
        "control characters",
    ),
    "name that is too long": (
        lambda: _added_site("a" * (MAX_NAME + 1), "10.9.0.0/16"),
        ("sites", "a" * (MAX_NAME + 1)),
        "too long",
    ),
    "names that differ in case only": (
        lambda: _added_site("USA", "10.9.0.0/16"),
        ("sites", "USA"),
        'differs from site "usa" only in case',
    ),
    "accepted domain that is none": (
        lambda: replace(clean(), accepted_domains=("con toso",)),
        ("organization", "accepted_domains", 0),
        "is not a domain name",
    ),
    "accepted domain twice": (
        lambda: replace(clean(), accepted_domains=("contoso.com", "Contoso.com")),
        ("organization", "accepted_domains", 1),
        "listed twice",
    ),
    "one subnet in two sites": (
        lambda: _added_site("europe", "10.1.0.0/16"),
        ("sites", "europe", "subnets", 0),
        'also a subnet of site "usa"',
    ),
    "link to nowhere": (
        lambda: _link(("usa", "asai")),
        ("site_links", "usa-asia", "sites", 1),
        'site "asai" does not exist',
    ),
    "link of one site": (
        lambda: _link(("usa",)),
        ("site_links", "usa-asia", "sites"),
        "fewer than two sites",
    ),
    "link from a site to itself": (
        lambda: _link(("usa", "usa")),
        ("site_links", "usa-asia", "sites", 1),
        "listed twice",
    ),
    "link that costs nothing": (
        lambda: _link(("usa", "asia"), 0),
        ("site_links", "usa-asia", "cost"),
        "the cost is 0",
    ),
    "server in no site": (
        lambda: with_server(clean(), "HUB-01", site="usaa", roles=frozenset({Role.HUB_TRANSPORT})),
        ("servers", "HUB-01", "site"),
        'site "usaa" does not exist',
    ),
    "server without a role": (
        lambda: with_server(clean(), "HUB-01", roles=frozenset()),
        ("servers", "HUB-01", "roles"),
        "no role",
    ),
    "host name that is none": (
        lambda: with_server(clean(), "HUB-01", roles=frozenset({Role.HUB_TRANSPORT}), fqdn="hub_01..x", endpoints=()),
        ("servers", "HUB-01", "fqdn"),
        "cannot be a host name",
    ),
    "address that is none": (
        lambda: with_server(clean(), "HUB-01", roles=frozenset({Role.HUB_TRANSPORT}), address="10.0.0.256"),
        ("servers", "HUB-01", "address"),
        "neither an IP address nor a host name",
    ),
    "pool without connections": (
        lambda: with_server(clean(), "MBX-01", max_connections=0),
        ("servers", "MBX-01", "max_connections"),
        "max_connections is 0",
    ),
    "endpoint of an unknown name": (
        lambda: with_endpoint(clean(), endpoint("imapx")),
        ("servers", "MBX-01", "endpoints", "imapx"),
        'endpoint "imapx" does not exist',
    ),
    "implicit TLS under the name for STARTTLS": (
        lambda: with_endpoint(clean(), endpoint("imap", tls=TlsMode.IMPLICIT)),
        ("servers", "MBX-01", "endpoints", "imap", "tls"),
        'endpoint imap has tls = "implicit"',
    ),
    "http without the word clear": (
        lambda: with_endpoint(clean(), endpoint("http", tls=TlsMode.IMPLICIT)),
        ("servers", "MBX-01", "endpoints", "http", "tls"),
        "clear text, which must be said",
    ),
    "port 0": (
        lambda: with_endpoint(clean(), endpoint("imap", port=0)),
        ("servers", "MBX-01", "endpoints", "imap", "port"),
        "has port 0",
    ),
    "port beyond the last": (
        lambda: with_endpoint(clean(), endpoint("imap", port=65536)),
        ("servers", "MBX-01", "endpoints", "imap", "port"),
        "has port 65536",
    ),
    "two endpoints on one port": (
        lambda: with_endpoint(clean(), endpoint("pop3s", "MBX-01.contoso.com", port=993, tls=TlsMode.IMPLICIT)),
        ("servers", "MBX-01", "endpoints", "pop3s"),
        "same address and port as imaps",
    ),
    "endpoint address that is none": (
        lambda: with_endpoint(clean(), endpoint("imap", "a b")),
        ("servers", "MBX-01", "endpoints", "imap", "address"),
        "neither an IP address nor a host name",
    ),
    "certificate name that is none": (
        lambda: with_endpoint(clean(), endpoint("imap", tls_name="")),
        ("servers", "MBX-01", "endpoints", "imap", "tls_name"),
        "cannot be a name in a certificate",
    ),
    "ID with POP3": (
        lambda: with_endpoint(clean(), endpoint("pop3", client_address=ClientAddress.ID)),
        ("servers", "MBX-01", "endpoints", "pop3", "client_address"),
        'client_address = "id", which only imap knows',
    ),
    "XCLIENT with IMAP": (
        lambda: with_endpoint(clean(), endpoint("imap", client_address=ClientAddress.XCLIENT)),
        ("servers", "MBX-01", "endpoints", "imap", "client_address"),
        'client_address = "xclient", which only pop3, smtp, submission knows',
    ),
    "master form without a master user": (
        lambda: _sign_in(form=SignInForm.MASTER_AUTHZID, master_password="x"),
        ("servers", "MBX-01", "sign_in", "master_user"),
        "needs a master user",
    ),
    "master form without a password": (
        lambda: _sign_in(form=SignInForm.MASTER_NAME, master_user="gatepost"),
        ("servers", "MBX-01", "sign_in", "master_password_file"),
        "needs the master user's password",
    ),
    "assertion without a key": (
        lambda: _sign_in(form=SignInForm.ASSERTION),
        ("servers", "MBX-01", "sign_in", "assertion_key_file"),
        "needs a key to sign with",
    ),
    "a master user over HTTP without a name": (
        lambda: _sign_in(http=HttpSignIn.MASTER, master_password="x"),
        ("servers", "MBX-01", "sign_in", "master_user"),
        'sign-in form "http = master" needs a master user',
    ),
    "master name without a separator": (
        lambda: _sign_in(form=SignInForm.MASTER_NAME, master_user="m", master_password="x", separator=""),
        ("servers", "MBX-01", "sign_in", "separator"),
        "separator between user and master user is empty",
    ),
    "header name that is none": (
        lambda: _sign_in(http=HttpSignIn.HEADER, http_header="X User:"),
        ("servers", "MBX-01", "sign_in", "http_header"),
        "cannot be the name of a header",
    ),
    "header over a clear endpoint": (
        lambda: with_endpoint(_sign_in(http=HttpSignIn.HEADER), endpoint("http")),
        ("servers", "MBX-01", "sign_in", "http"),
        "a header names the user, but the endpoint http is clear",
    ),
    "database without copies": (
        lambda: with_copies(clean()),
        ("databases", "DB01", "copies"),
        "has no copies",
    ),
    "copy on an unknown server": (
        lambda: with_copies(clean(), DatabaseCopy("MBX-01", 1), DatabaseCopy("MBX-O3", 2)),
        ("databases", "DB01", "copies", 1, "server"),
        'server "MBX-O3" does not exist',
    ),
    "copy on a server without mailboxes": (
        lambda: with_copies(clean(), DatabaseCopy("MBX-01", 1), DatabaseCopy("CAS-01", 2)),
        ("databases", "DB01", "copies", 1, "server"),
        "CAS-01, which is not a mailbox server",
    ),
    "two copies on one server": (
        lambda: with_copies(clean(), DatabaseCopy("MBX-01", 1), DatabaseCopy("MBX-01", 2)),
        ("databases", "DB01", "copies", 1, "server"),
        "two copies on MBX-01",
    ),
    "two copies of one preference": (
        lambda: with_copies(clean(), DatabaseCopy("MBX-01", 1), DatabaseCopy("MBX-03", 1)),
        ("databases", "DB01", "copies", 1, "preference"),
        "two copies have the preference 1",
    ),
    "preference 0": (
        lambda: with_copies(clean(), DatabaseCopy("MBX-01", 1), DatabaseCopy("MBX-03", 0)),
        ("databases", "DB01", "copies", 1, "preference"),
        "the preference is 0",
    ),
    "directory of an unknown server": (
        lambda: with_directory(clean(), VirtualDirectory("MBX-1", "dav", "/dav")),
        ("virtual_directories", 2, "server"),
        'server "MBX-1" does not exist',
    ),
    "directory without a service": (
        lambda: with_directory(clean(), VirtualDirectory("CAS-03", "", "/dav")),
        ("virtual_directories", 2, "service"),
        "the service is empty",
    ),
    "path with a slash at its end": (
        lambda: _directory("/dav/"),
        ("virtual_directories", 2, "path"),
        "does not begin with one slash, or ends with one",
    ),
    "path that climbs": (
        lambda: _directory("/dav/../owa"),
        ("virtual_directories", 2, "path"),
        "empty or dot segment",
    ),
    "path with an escape": (
        lambda: _directory("/d%61v"),
        ("virtual_directories", 2, "path"),
        "characters that a path cannot hold",
    ),
    "one path twice, in another case": (
        lambda: _directory("/OWA"),
        ("virtual_directories", 2, "path"),
        "this path twice",
    ),
    "internal URL that is none": (
        lambda: _directory(internal="mbx-01/dav"),
        ("virtual_directories", 2, "internal_url"),
        "does not begin with https://",
    ),
    "internal URL with a query": (
        lambda: _directory(internal="https://mbx-01.contoso.com/dav?x=1"),
        ("virtual_directories", 2, "internal_url"),
        "has a query or fragment",
    ),
    "internal URL with credentials": (
        lambda: _directory(internal="https://u:p@mbx-01.contoso.com/dav"),
        ("virtual_directories", 2, "internal_url"),
        "has a user name in it",
    ),
    "internal URL with an impossible port": (
        lambda: _directory(internal="https://mbx-01.contoso.com:70000/dav"),
        ("virtual_directories", 2, "internal_url"),
        "has a port that is not a number from 1 to 65535",
    ),
    "internal URL that leads to no endpoint": (
        lambda: with_server(clean(), "MBX-01", endpoints=(endpoint("imaps"),)),
        ("virtual_directories", 1, "internal_url"),
        "MBX-01 has no https endpoint",
    ),
    "clear internal URL where a header names the user": (
        lambda: with_directory(
            with_server(
                clean(),
                "MBX-03",
                sign_in=SignIn(http=HttpSignIn.HEADER),
                endpoints=(endpoint("http", "127.0.0.9"),),
            ),
            VirtualDirectory("MBX-03", "dav", "/dav", "http://mbx-03.contoso.com/dav"),
        ),
        ("virtual_directories", 2, "internal_url"),
        "the internal URL is clear, but a header names the user",
    ),
    "directory of a modern mailbox server without an internal URL": (
        lambda: _directory(internal=None),
        ("virtual_directories", 2, "internal_url"),
        "no internal URL, so no front end can reach it",
    ),
    "external URL that is none": (
        lambda: with_directory(
            clean(), VirtualDirectory("CAS-01", "ews", "/EWS", "https://cas-01.contoso.com/EWS", "www.contoso.com")
        ),
        ("virtual_directories", 2, "external_url"),
        "does not begin with https://",
    ),
    "array in no site": (
        lambda: with_array(clean(), site="us"),
        ("arrays", "outlook", "site"),
        'site "us" does not exist',
    ),
    "array without a host name": (
        lambda: with_array(clean(), fqdn="outlook contoso"),
        ("arrays", "outlook", "fqdn"),
        "is not a host name",
    ),
    "array without members": (
        lambda: with_array(clean(), members=()),
        ("arrays", "outlook", "members"),
        "has no members",
    ),
    "array with an unknown member": (
        lambda: with_array(clean(), members=("CAS-01", "CAS-1")),
        ("arrays", "outlook", "members", 1),
        'server "CAS-1" does not exist',
    ),
    "array with a mailbox server": (
        lambda: with_array(clean(), members=("CAS-01", "MBX-01")),
        ("arrays", "outlook", "members", 1),
        "MBX-01 is not a client access server",
    ),
    "array with a member twice": (
        lambda: with_array(clean(), members=("CAS-01", "CAS-01")),
        ("arrays", "outlook", "members", 1),
        "listed twice",
    ),
}

WARNINGS: dict[str, Case] = {
    "STARTTLS on a port for TLS": (
        lambda: with_endpoint(clean(), endpoint("imap", port=993)),
        ("servers", "MBX-01", "endpoints", "imap", "port"),
        "imap begins in clear on port 993, the port of imaps",
    ),
    "STARTTLS on POP3's port for TLS": (
        lambda: with_endpoint(clean(), endpoint("pop3", port=995)),
        ("servers", "MBX-01", "endpoints", "pop3", "port"),
        "pop3 begins in clear on port 995, the port of pop3s",
    ),
    "clear text on the port of https": (
        lambda: with_endpoint(clean(), endpoint("http", port=443, tls=TlsMode.CLEAR)),
        ("servers", "MBX-01", "endpoints", "http", "port"),
        "http begins in clear on port 443, the port of https",
    ),
    "TLS on a port for STARTTLS": (
        lambda: with_endpoint(clean(), endpoint("imaps", port=143)),
        ("servers", "MBX-01", "endpoints", "imaps", "port"),
        "imaps begins with TLS on port 143, the port of imap",
    ),
    "TLS on POP3's port for STARTTLS": (
        lambda: with_endpoint(clean(), endpoint("pop3s", port=110, tls=TlsMode.IMPLICIT)),
        ("servers", "MBX-01", "endpoints", "pop3s", "port"),
        "pop3s begins with TLS on port 110, the port of pop3",
    ),
    "external URL in a site that is not Internet-facing": (
        lambda: with_directory(
            clean(),
            VirtualDirectory("CAS-03", "owa", "/owa", "https://cas-03.contoso.com/owa", "https://x.contoso.com/owa"),
        ),
        ("virtual_directories", 2, "external_url"),
        "site asia is not Internet-facing: clients will fail to connect",
    ),
    "old directory that others proxy to, without Integrated authentication": (
        lambda: with_old_asia(
            clean(),
            VirtualDirectory("CAS-03", "EWS", "/EWS", "https://cas-03.contoso.com/EWS", authentication=BASIC),
        ),
        ("virtual_directories", 2, "authentication"),
        "lacks Integrated authentication",
    ),
    "old directory that others proxy to, without an internal URL": (
        lambda: with_old_asia(clean(), VirtualDirectory("CAS-03", "owa", "/owa")),
        ("virtual_directories", 2, "internal_url"),
        "other sites must proxy to it, but it has no internal URL",
    ),
    "external URL that names a front end of another site": (
        lambda: with_directory(
            replace(clean(), sites={n: replace(s, internet_facing=True) for n, s in clean().sites.items()}),
            VirtualDirectory(
                "CAS-03", "owa", "/owa", "https://cas-03.contoso.com/owa", "https://cas-01.contoso.com/owa"
            ),
        ),
        ("virtual_directories", 2, "external_url"),
        "its external host cas-01.contoso.com is CAS-01 of site usa",
    ),
    "2010 mailbox server with a web part and no virtual directory": (
        lambda: with_web_part_of_2010(clean()),
        ("servers", "MBX-03", "endpoints"),
        "nobody answers Outlook Web App",
    ),
    "ActiveSync of 2003 without Integrated authentication": (
        lambda: with_directory(
            with_server(clean(), "MBX-03", version=Version.V2003),
            VirtualDirectory(
                "MBX-03",
                "Microsoft-Server-ActiveSync",
                "/Microsoft-Server-ActiveSync",
                "https://mbx-03.contoso.com/Microsoft-Server-ActiveSync",
                authentication=BASIC,
            ),
        ),
        ("virtual_directories", 2, "authentication"),
        "lacks Integrated authentication",
    ),
    "sign-in page where programs ask": (
        lambda: with_directory(
            clean(),
            VirtualDirectory(
                "CAS-01",
                "dav",
                "/dav",
                "https://cas-01.contoso.com/dav",
                authentication=frozenset({AuthenticationMethod.FORMS}),
            ),
        ),
        ("virtual_directories", 2, "authentication"),
        "its class is api: programs cannot fill it in",
    ),
    "internal URL and endpoint disagree": (
        lambda: _directory(internal="https://mbx-01.contoso.com:8443/dav"),
        ("virtual_directories", 2, "internal_url"),
        "leads to https on port 8443, but MBX-01 answers https on port 443",
    ),
    "two Internet-facing servers, one not in the array": (
        lambda: with_server(clean(), "CAS-02"),
        ("sites", "usa"),
        "more than one Internet-facing client access server, and not in an array: CAS-02",
    ),
    "array over two sites": (
        lambda: with_array(clean(), members=("CAS-01", "CAS-03")),
        ("arrays", "outlook", "members", 1),
        "member CAS-03 is in site asia, the array is in site usa",
    ),
    "mailboxes without a front end in their site": (
        lambda: with_server(clean(), "CAS-03", site="usa", roles=frozenset({Role.HUB_TRANSPORT})),
        ("sites", "asia"),
        "has mailbox servers but no client access server",
    ),
    "database with one copy": (
        lambda: with_copies(clean(), DatabaseCopy("MBX-01", 1)),
        ("databases", "DB01", "copies"),
        "has one copy only, on MBX-01",
    ),
    "modern mailbox server without endpoints": (
        lambda: with_server(clean(), "MBX-03", endpoints=()),
        ("servers", "MBX-03", "endpoints"),
        "no client can be taken to it",
    ),
}


def test_a_clean_organization_has_no_findings() -> None:
    """Nothing is said where nothing is wrong."""
    assert check(clean()) == []


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS.keys())
def test_each_error_is_found_alone(case: Case) -> None:
    """The fault gives one error at its place, and no other."""
    _expect(case, Severity.ERROR)


@pytest.mark.parametrize("case", WARNINGS.values(), ids=WARNINGS.keys())
def test_each_warning_is_found_alone(case: Case) -> None:
    """The fault gives one warning at its place, and no other."""
    _expect(case, Severity.WARNING)


def _expect(case: Case, severity: Severity) -> None:
    make, path, words = case
    findings = check(make())
    assert [(finding.severity, finding.path) for finding in findings] == [(severity, path)]
    assert words in findings[0].message
    assert findings[0].object_name
    assert findings[0].remedy


def test_errors_come_before_warnings() -> None:
    """Whoever reads only the first lines reads the worst."""
    both = with_server(with_copies(clean(), DatabaseCopy("MBX-01", 1)), "MBX-01", max_connections=0)
    assert [finding.severity for finding in check(both)] == [Severity.ERROR, Severity.WARNING]


def test_a_misspelt_name_gets_the_nearest_one_as_remedy() -> None:
    """The remedy says what was probably meant and what there is."""
    found = check(with_server(clean(), "HUB-01", site="usaa", roles=frozenset({Role.HUB_TRANSPORT})))
    remedy = next(finding.remedy for finding in found if finding.path[-1] == "site")
    assert remedy == 'did you mean "usa"? Sites are: usa, asia'


def test_clear_http_on_a_loopback_address_may_name_the_user_in_a_header() -> None:
    """A program on the same machine is reached without a wire that others could write to."""
    local = endpoint("http", "127.0.0.1")
    assert check(with_endpoint(_sign_in(http=HttpSignIn.HEADER), local)) == []


def test_servers_in_two_internet_facing_sites_need_no_array() -> None:
    """An array is for one site; front ends of different sites have names of their own."""
    sites = {**clean().sites, "asia": replace(clean().sites["asia"], internet_facing=True)}
    assert check(replace(clean(), sites=sites)) == []


def test_a_directory_nobody_proxies_to_may_lack_an_internal_url() -> None:
    """A modern front end serves its own paths; no peer asks it."""
    assert check(with_directory(clean(), VirtualDirectory("CAS-03", "owa", "/owa", authentication=BASIC))) == []


def test_the_root_is_a_path() -> None:
    """A web server may hand over everything."""
    assert check(_directory("/", "https://mbx-01.contoso.com/")) == []


def test_old_mailbox_servers_need_no_endpoints() -> None:
    """Mailbox servers of 2010 are reached by their client access servers only."""
    old = replace(server("MBX-03", "asia", Role.MAILBOX, version=Version.V2010), endpoints=())
    assert check(replace(clean(), servers={**clean().servers, "MBX-03": old})) == []
