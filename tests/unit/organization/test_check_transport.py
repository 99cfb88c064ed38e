"""The check of transport: each fault is found alone, names its object, and says what to do (SPEC O2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gatepost.organization.check import check
from gatepost.organization.model import (
    Database,
    DatabaseCopy,
    Endpoint,
    Finding,
    Organization,
    Protocol,
    Role,
    Server,
    Severity,
    Site,
    SiteLink,
    TlsMode,
    Version,
)
from gatepost.organization.transport import (
    AddressRange,
    AddressSpace,
    DomainKind,
    PermissionGroup,
    ReceiveAuthentication,
    ReceiveConnector,
    SendConnector,
    SmartHost,
    TlsLevel,
    TransportConfig,
    TransportSettings,
)
from gatepost.organization.transport_text import read_binding, read_range

A, P = ReceiveAuthentication, PermissionGroup
PASSWORDS = frozenset({A.TLS, A.BASIC, A.BASIC_REQUIRE_TLS})


def _server(name: str, site: str, role: Role, **endpoints: int) -> Server:
    fqdn = f"{name.lower()}.contoso.com"
    protocols = {"imaps": Protocol.IMAP, "lmtp": Protocol.LMTP, "smtp": Protocol.SMTP}
    found = tuple(
        Endpoint(word, protocols[word], fqdn, port, TlsMode.IMPLICIT if word == "imaps" else TlsMode.STARTTLS, fqdn)
        for word, port in endpoints.items()
    )
    return Server(name, site, fqdn, fqdn, Version.MODERN, frozenset({role}), found)


def receive(name: str, *ranges: str, **changes: Any) -> ReceiveConnector:
    """A sound connector of HUB-1 for servers, from these ranges."""
    remote = tuple(map(read_range, ranges))
    groups, methods = frozenset({P.SERVERS}), frozenset({A.TLS, A.SERVERS})
    return replace(ReceiveConnector(name, "HUB-1", (read_binding("0.0.0.0:25"),), remote, groups, methods), **changes)


def send(name: str, *patterns: str, **changes: Any) -> SendConnector:
    """A sound connector of HUB-1."""
    return replace(SendConnector(name, tuple(map(AddressSpace, patterns)), ("HUB-1",)), **changes)


def clean() -> Organization:
    """Two sites with a front end, a mailbox server and a hub each; an edge; all sound."""
    servers = [
        _server("CAS-1", "a", Role.CLIENT_ACCESS, imaps=993),
        _server("CAS-2", "b", Role.CLIENT_ACCESS, imaps=993),
        _server("MBX-1", "a", Role.MAILBOX, imaps=993, lmtp=24),
        _server("MBX-2", "b", Role.MAILBOX, imaps=993, lmtp=24),
        _server("HUB-1", "a", Role.HUB_TRANSPORT, smtp=25),
        _server("HUB-2", "b", Role.HUB_TRANSPORT, smtp=25),
        _server("EDGE-1", "a", Role.EDGE_TRANSPORT, smtp=25),
    ]
    return Organization(
        "contoso",
        accepted_domains=("contoso.com", "relayed.com"),
        accepted_domain_kinds={"relayed.com": DomainKind.INTERNAL_RELAY},
        sites={"a": Site("a"), "b": Site("b", hub_site=True)},
        site_links={"a-b": SiteLink("a-b", ("a", "b"))},
        servers={server.name: server for server in servers},
        databases={"DB": Database("DB", (DatabaseCopy("MBX-1", 1), DatabaseCopy("MBX-2", 2)))},
        receive_connectors={"Default": receive("Default")},
        send_connectors={"Internet": send("Internet", "*")},
        transport_config=TransportConfig(shadow_redundancy_enabled=False),  # each is alone in its site
    )


def found(organization: Organization) -> list[Finding]:
    """Findings."""
    return check(organization)


def with_receive(*connectors: ReceiveConnector) -> Organization:
    """With these in place of the one receive connector."""
    return replace(clean(), receive_connectors={each.name: each for each in connectors})


def with_send(*connectors: SendConnector) -> Organization:
    """With these beside the one send connector."""
    base = clean()
    return replace(base, send_connectors=base.send_connectors | {each.name: each for each in connectors})


def with_server(name: str, **changes: Any) -> Organization:
    """With one server changed."""
    base = clean()
    return replace(base, servers=base.servers | {name: replace(base.servers[name], **changes)})


def with_settings(**changes: Any) -> Organization:
    """With settings of HUB-1."""
    return with_server("HUB-1", transport=replace(TransportSettings(), **changes))


def test_a_sound_organization_has_no_findings() -> None:
    """So that each of the others is alone."""
    assert found(clean()) == []


def test_without_hubs_nothing_of_mail_is_missed() -> None:
    """Organizations of client access alone."""
    base = clean()
    servers = {name: server for name, server in base.servers.items() if not server.carries_mail}
    bare = replace(
        base, servers=servers, receive_connectors={}, send_connectors={}, sites={"a": Site("a"), "b": Site("b")}
    )
    assert found(bare) == []


RECEIVE = ("receive_connectors", "Default")
ERRORS: dict[str, tuple[Callable[[], Organization], tuple[str | int, ...], str, str]] = {
    "a postmaster that is no address": (
        lambda: replace(clean(), transport_config=TransportConfig(external_postmaster_address="postmaster")),
        ("organization", "transport", "external_postmaster_address"), "no mail address", "postmaster@contoso.com",
    ),
    "connector of an unknown server": (
        lambda: with_receive(receive("Default", server="HUB-9")),
        (*RECEIVE, "server"), '"HUB-9" does not exist', "HUB-1",
    ),
    "connector of a server that is no hub": (
        lambda: with_receive(receive("Default", server="MBX-1")), (*RECEIVE, "server"), "no hub and no edge", "role",
    ),
    "connector that listens nowhere": (
        lambda: with_receive(receive("Default", bindings=())), (*RECEIVE, "bindings"), "listens nowhere", "0.0.0.0:25",
    ),
    "two connectors with the same binding and range": (
        lambda: with_receive(receive("Other", "10.0.0.0/8"), receive("Default", "10.0.0.0-10.255.255.255")),
        (*RECEIVE, "remote_ranges"), "same clients as connector Other, 10.0.0.0/8, at the same binding", "other",
    ),
    "two connectors for everybody": (
        lambda: with_receive(receive("Other"), receive("Default")), (*RECEIVE, "remote_ranges"), "all clients", "other",
    ),
    "ranges that overlap without containment": (
        lambda: with_receive(receive("Other", "10.0.0.1-10.0.0.9"), receive("Default", "10.0.0.5-10.0.0.20")),
        (*RECEIVE, "remote_ranges"), "neither is inside the other", "part",
    ),
    "a binding with and without TLS": (
        lambda: with_receive(
            receive("Other"), receive("Default", "10.0.0.1", bindings=(read_binding("0.0.0.0:25", implicit_tls=True),))
        ),
        (*RECEIVE, "bindings"), "begins with TLS at 0.0.0.0:25", "another port",
    ),
    "BasicAuthRequireTLS needs BasicAuth and TLS": (
        lambda: with_receive(receive("Default", authentication=frozenset({A.BASIC_REQUIRE_TLS, A.SERVERS}))),
        (*RECEIVE, "authentication"), "needs basic and tls", 'add "basic"',
    ),
    "Kerberos needs TLS": (
        lambda: with_receive(receive("Default", authentication=frozenset({A.KERBEROS, A.SERVERS}))),
        (*RECEIVE, "authentication"), "kerberos needs tls", 'add "tls"',
    ),
    "ExternalAuthoritative needs TLS": (
        lambda: with_receive(receive("Default", "10.0.0.1", authentication=frozenset({A.EXTERNALLY_SECURED}))),
        (*RECEIVE, "authentication"), "externally-secured needs tls", 'add "tls"',
    ),
    "ExternalAuthoritative needs the group of servers": (
        lambda: with_receive(
            receive(
                "Default", "10.0.0.1",
                authentication=frozenset({A.EXTERNALLY_SECURED, A.TLS}), permission_groups=frozenset({P.ANONYMOUS}),
            )
        ),
        (*RECEIVE, "permission_groups"), "does not let in", 'add "servers"',
    ),
    "RequireTLS needs TLS": (
        lambda: with_receive(receive("Default", require_tls=True, authentication=frozenset({A.SERVERS}))),
        (*RECEIVE, "authentication"), "require_tls needs tls", 'add "tls"',
    ),
    "inactivity not less than the whole": (
        lambda: with_receive(receive("Default", inactivity_seconds=600.0)),
        (*RECEIVE, "inactivity_seconds"), "not less than connection_seconds", "less",
    ),
    "banner of two lines": (
        lambda: with_receive(receive("Default", banner="a\r\nb")), (*RECEIVE, "banner"), "line ends", "one line",
    ),
    "port taken by the front end": (
        lambda: replace(
            with_server(
                "HUB-1",
                roles=frozenset({Role.HUB_TRANSPORT, Role.CLIENT_ACCESS}),
                endpoints=_server("HUB-1", "a", Role.HUB_TRANSPORT, imaps=25, smtp=2525).endpoints,
            ),
        ),
        (*RECEIVE, "bindings"), "0.0.0.0:25 is taken by endpoint imaps of HUB-1", "another port",
    ),
    "a star without a dot": (
        lambda: with_send(send("Bad", "*contoso.com")),
        ("send_connectors", "Bad", "address_spaces", 0), "*.contoso.com means", "correct",
    ),
    "no address space": (
        lambda: with_send(send("Bad")), ("send_connectors", "Bad", "address_spaces"), "no address space", "domains",
    ),
    "an address space twice": (
        lambda: with_send(send("Bad", "x.com", "x.com")),
        ("send_connectors", "Bad", "address_spaces", 1), "listed twice", "remove",
    ),
    "a cost out of range": (
        lambda: with_send(send("Bad", address_spaces=(AddressSpace("x.com", 101),))),
        ("send_connectors", "Bad", "address_spaces", 0), "costs 101", "1 to 100",
    ),
    "a source server that is none": (
        lambda: with_send(send("Bad", "x.com", source_servers=("HUB-7",))),
        ("send_connectors", "Bad", "source_servers", 0), "does not exist", "HUB-1",
    ),
    "a source server that is no hub": (
        lambda: with_send(send("Bad", "x.com", source_servers=("HUB-1", "MBX-1"))),
        ("send_connectors", "Bad", "source_servers", 1), "no hub and no edge", "role",
    ),
    "no source server": (
        lambda: with_send(send("Bad", "x.com", source_servers=())),
        ("send_connectors", "Bad", "source_servers"), "no source server", "name",
    ),
    "a sign-in without smart hosts": (
        lambda: with_send(send("Bad", "x.com", user="u", password="p", tls=TlsLevel.VERIFIED)),
        ("send_connectors", "Bad", "user"), "smart hosts are needed", "smart_hosts",
    ),
    "a sign-in without TLS": (
        lambda: with_send(
            send("Bad", "x.com", user="u", password="p", tls=TlsLevel.NONE, smart_hosts=(SmartHost("relay"),))
        ),
        ("send_connectors", "Bad", "tls"), "only within TLS", "verified",
    ),
    "a user without a password": (
        lambda: with_send(send("Bad", "x.com", user="u", tls=TlsLevel.VERIFIED, smart_hosts=(SmartHost("relay"),))),
        ("send_connectors", "Bad", "password_file"), "no password", "file",
    ),
    "a smart host that is none": (
        lambda: with_send(send("Bad", "x.com", smart_hosts=(SmartHost("re lay"),))),
        ("send_connectors", "Bad", "smart_hosts", 0), "neither an IP address nor a host name", "correct",
    ),
    "a kind of no accepted domain": (
        lambda: replace(
            clean(), accepted_domain_kinds=clean().accepted_domain_kinds | {"x.com": DomainKind.EXTERNAL_RELAY}
        ),
        ("organization", "accepted_domain_kinds", "x.com"), "no accepted domain", "accepted domains are",
    ),
    "more connections for a domain than in all": (
        lambda: with_settings(max_outbound_connections=5),
        ("servers", "HUB-1", "transport", "max_per_domain_outbound_connections"), "more than", "less",
    ),
    "a log file larger than its folder": (
        lambda: with_settings(connectivity_log_max_file_size=2**30),
        ("servers", "HUB-1", "transport", "connectivity_log_max_file_size"), "more than", "less",
    ),
    "a site link to a site that is none": (
        lambda: replace(clean(), site_links={"a-b": SiteLink("a-b", ("a", "b", "c"))}),
        ("site_links", "a-b", "sites", 2), '"c" does not exist', "sites are",
    ),
    "names that differ only in case": (
        lambda: with_send(send("internet", "x.com")), ("send_connectors", "internet"), "only in case", "rename",
    ),
}  # fmt: skip

WARNINGS: dict[str, tuple[Callable[[], Organization], tuple[str | int, ...], str, str]] = {
    "an open relay": (
        lambda: with_receive(receive("Default", authentication=frozenset({A.TLS, A.EXTERNALLY_SECURED}))),
        (*RECEIVE, "authentication"), "is an open relay: everybody is taken for a server", "trusted addresses",
    ),
    "an open relay for half of the Internet": (
        lambda: with_receive(receive("Default", "0.0.0.0/1", authentication=frozenset({A.TLS, A.EXTERNALLY_SECURED}))),
        (*RECEIVE, "authentication"), "everybody in 0.0.0.0/1", "trusted addresses",
    ),
    "passwords of everybody in clear": (
        lambda: with_receive(
            receive(
                "Default",
                permission_groups=frozenset({P.ANONYMOUS, P.USERS}), authentication=frozenset({A.TLS, A.BASIC}),
            )
        ),
        (*RECEIVE, "authentication"), "passwords of everybody who connects may cross in clear", "basic-require-tls",
    ),
    "nobody may send": (
        lambda: with_receive(receive("Default", permission_groups=frozenset())),
        (*RECEIVE, "permission_groups"), "nobody may send", "anonymous",
    ),
    "users that cannot sign in": (
        lambda: with_receive(receive("Default", permission_groups=frozenset({P.USERS}))),
        (*RECEIVE, "permission_groups"), "cannot sign in", "basic",
    ),
    "servers that cannot be known": (
        lambda: with_receive(receive("Default", authentication=frozenset({A.TLS}))),
        (*RECEIVE, "permission_groups"), "none can be known", "servers",
    ),
    "partners without TLS": (
        lambda: with_receive(receive("Default", permission_groups=frozenset({P.PARTNERS}), authentication=frozenset())),
        (*RECEIVE, "permission_groups"), "none can show a certificate", "tls",
    ),
    "a password to a host that is not verified": (
        lambda: with_send(send("Out", "x.com", user="u", password="p", smart_hosts=(SmartHost("relay"),))),
        ("send_connectors", "Out", "tls"), "can have the password", "verified",
    ),
    "tls_domain that is not looked at": (
        lambda: with_send(send("Out", "x.com", tls_domain="mail.x.com")),
        ("send_connectors", "Out", "tls_domain"), "only looked at", "verified",
    ),
    "an address space of an authoritative domain": (
        lambda: with_send(send("Out", "contoso.com")),
        ("send_connectors", "Out", "address_spaces"), "nothing for it goes by Out", "internal-relay",
    ),
    "no way to other domains": (
        lambda: replace(clean(), send_connectors={"Out": send("Out", "relayed.com")}),
        ("send_connectors",), "Unreachable", '["*"]',
    ),
    "a site with databases and no hub": (
        lambda: with_server("HUB-2", site="a"), ("sites", "b"), "holds DB but no hub", "hub-transport",
    ),
    "a site that no link leads to": (
        lambda: replace(clean(), site_links={}), ("sites", "a"), "no site links lead here from b", "link",
    ),
    "a hub that cannot be reached": (
        lambda: with_server("HUB-2", endpoints=()), ("servers", "HUB-2", "endpoints"), "no smtp endpoint", "smtp = {}",
    ),
    "a mailbox server that hubs cannot deliver to": (
        lambda: with_server("MBX-2", endpoints=_server("MBX-2", "b", Role.MAILBOX, imaps=993).endpoints),
        ("servers", "MBX-2", "endpoints"), "hubs cannot deliver", "lmtp = {}",
    ),
    "a notice of delay after the end": (
        lambda: with_settings(delay_notification=3 * 86400.0),
        ("servers", "HUB-1", "transport", "delay_notification"), "before the notice", "less",
    ),
    "a notice of delay during short retries": (
        lambda: with_settings(delay_notification=1800.0),
        ("servers", "HUB-1", "transport", "delay_notification"), "still being retried", "more",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "path", "message", "remedy"), ERRORS.values(), ids=ERRORS.keys())
def test_each_error(make: Callable[[], Organization], path: tuple[str | int, ...], message: str, remedy: str) -> None:
    """At its place, with words for the operator, and no other error."""
    errors = [finding for finding in found(make()) if finding.severity is Severity.ERROR]
    assert [finding.path for finding in errors] == [path]
    assert message in errors[0].message
    assert remedy in errors[0].remedy
    assert errors[0].object_name


@pytest.mark.parametrize(("make", "path", "message", "remedy"), WARNINGS.values(), ids=WARNINGS.keys())
def test_each_warning(make: Callable[[], Organization], path: tuple[str | int, ...], message: str, remedy: str) -> None:
    """Among the findings at its place; there is no error."""
    findings = found(make())
    assert {finding.severity for finding in findings} == {Severity.WARNING}
    (here,) = [finding for finding in findings if finding.path == path]
    assert message in here.message
    assert remedy in here.remedy


def test_a_hub_site_without_a_hub_and_a_relay_without_a_connector() -> None:
    """Two warnings that come with others."""
    base = clean()
    lonely = replace(base, sites=base.sites | {"c": Site("c", hub_site=True)})
    assert [finding.message for finding in found(lonely)] == ["is a hub site, but has no hub: mail does not stop there"]
    closed = replace(base, send_connectors={"Out": send("Out", "x.com")})
    assert any("relayed.com is relayed on, but no send connector" in finding.message for finding in found(closed))


def test_the_examples_ranges_lie_inside_each_other() -> None:
    """exchange-facts 4.9: 0.0.0.0-255.255.255.255, 192.168.1.0-255, 192.168.1.75 at one binding are sound."""
    connectors = (
        receive("All", "0.0.0.0-255.255.255.255"), receive("Some", "192.168.1.0-255"), receive("One", "192.168.1.75"),
    )  # fmt: skip
    assert found(with_receive(*connectors)) == []
    assert found(with_receive(receive("V4", "0.0.0.0/0"), receive("V6", "::/0"))) == []


def test_connectors_of_different_servers_or_not_enabled_do_not_meet() -> None:
    """The same binding elsewhere, or out of use."""
    assert found(with_receive(receive("One"), receive("Two", server="HUB-2"))) == []
    assert found(with_receive(receive("One"), receive("Two", enabled=False))) == []


def test_a_private_network_may_be_externally_secured() -> None:
    """10.0.0.0/8 is no open relay."""
    trusted = receive("Default", "10.0.0.0/8", "fd00::/8", authentication=frozenset({A.TLS, A.EXTERNALLY_SECURED}))
    assert isinstance(trusted.remote_ranges[0], AddressRange)
    assert [f.message for f in found(with_receive(trusted)) if "10.0.0.0/8" in f.message] == []
    v4 = receive("Default", "10.0.0.0/8", authentication=frozenset({A.TLS, A.EXTERNALLY_SECURED}))
    assert found(with_receive(v4)) == []


def test_passwords_within_tls_only_give_no_warning() -> None:
    """By basic-require-tls, by require_tls, by TLS from the first byte."""
    users = frozenset({P.USERS})
    for connector in (
        receive("Default", permission_groups=users, authentication=PASSWORDS),
        receive("Default", permission_groups=users, authentication=frozenset({A.TLS, A.BASIC}), require_tls=True),
        receive(
            "Default",
            permission_groups=users,
            authentication=frozenset({A.TLS, A.BASIC}),
            bindings=(read_binding("0.0.0.0:465", implicit_tls=True),),
        ),
    ):
        assert found(with_receive(connector)) == []
