"""What the check says of shadow redundancy, the safety net and mail from strangers (exchange-facts 4.4, 4.5, 4.9)."""

from __future__ import annotations

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
    Site,
    TlsMode,
    Version,
)
from gatepost.organization.transport import (
    AddressSpace,
    PermissionGroup,
    ReceiveAuthentication,
    ReceiveConnector,
    SendConnector,
    TransportConfig,
)
from gatepost.organization.transport_text import read_binding

CONFIG = ("organization", "transport")


def server(name: str, site: str, role: Role, version: Version = Version.MODERN) -> Server:
    fqdn = f"{name.lower()}.contoso.com"
    endpoints = [Endpoint("smtp", Protocol.SMTP, fqdn, 25, TlsMode.STARTTLS, fqdn)] if role is not Role.MAILBOX else []
    return Server(name, site, fqdn, fqdn, version, frozenset({role}), tuple(endpoints))


def connector(name: str, server: str, group: PermissionGroup, **changes: Any) -> ReceiveConnector:
    methods = frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.SERVERS})
    found = ReceiveConnector(name, server, (read_binding("0.0.0.0:25"),), (), frozenset({group}), methods)
    return replace(found, **changes)


def organization(*hubs: Server, **config: Any) -> Organization:
    """Hubs, and a mailbox server in site a."""
    servers = [*hubs, server("MBX-1", "a", Role.MAILBOX)]
    return Organization(
        "contoso",
        accepted_domains=("contoso.com",),
        sites={"a": Site("a"), "b": Site("b")},
        servers={each.name: each for each in servers},
        databases={"DB": Database("DB", (DatabaseCopy("MBX-1", 1),))},
        receive_connectors={"In": connector("In", hubs[0].name, PermissionGroup.ANONYMOUS)},
        send_connectors={"Out": SendConnector("Out", (AddressSpace("*"),), (hubs[0].name,))},
        transport_config=TransportConfig(**config),
    )


HUBS = (server("HUB-1", "a", Role.HUB_TRANSPORT), server("HUB-2", "a", Role.HUB_TRANSPORT))
LONE = server("HUB-3", "b", Role.HUB_TRANSPORT)


def found(organization: Organization, word: str) -> list[Finding]:
    return [finding for finding in check(organization) if word in finding.message]


def test_a_hub_alone_in_its_site_has_no_protection() -> None:
    """exchange-facts 4.4: single-server org."""
    [finding] = found(organization(*HUBS, LONE), "shadows")
    assert (finding.path, finding.object_name) == (("servers", "HUB-3"), "server HUB-3")
    assert finding.message == "is the only hub of site b: nobody there can keep shadows of its mail"
    assert "shadow_redundancy_enabled = false" in finding.remedy
    assert found(organization(*HUBS, LONE, shadow_redundancy_enabled=False), "shadows") == []
    assert found(organization(*HUBS), "shadows") == []


def test_hubs_of_other_programs_keep_no_shadows_for_it() -> None:
    old = server("HUB-2", "a", Role.HUB_TRANSPORT, Version.V2010)
    assert [f.path for f in found(organization(HUBS[0], old), "shadows")] == [("servers", "HUB-1")]


@pytest.mark.parametrize(("span", "told"), [(60.0, True), (120.0, True), (121.0, False)])
def test_hubs_are_not_held_dead_before_they_are_asked(span: float, told: bool) -> None:
    here = found(organization(*HUBS, shadow_resubmit_time_span=span), "held dead")
    assert [f.path for f in here] == ([(*CONFIG, "shadow_resubmit_time_span")] if told else [])
    off = organization(*HUBS, shadow_resubmit_time_span=span, shadow_redundancy_enabled=False)
    assert found(off, "held dead") == []


def test_without_a_safety_net_a_failover_loses_mail() -> None:
    """exchange-facts 4.5: only sites that relay go without."""
    [finding] = found(organization(*HUBS, safety_net_hold_time=0.0), "copies of delivered mail")
    assert finding.path == (*CONFIG, "safety_net_hold_time")
    assert "in a:" in finding.message
    assert found(organization(LONE, safety_net_hold_time=0.0), "copies of delivered mail") == []
    assert found(organization(*HUBS), "copies of delivered mail") == []


def test_somebody_takes_mail_from_strangers() -> None:
    base = organization(*HUBS)
    for_servers = connector("In", "HUB-1", PermissionGroup.SERVERS)
    closed = replace(base, receive_connectors={"In": for_servers})
    [finding] = found(closed, "from strangers")
    assert finding.path == ("receive_connectors", "In", "permission_groups")
    assert "contoso.com" in finding.message
    assert '"anonymous"' in finding.remedy
    assert found(base, "from strangers") == []
    edge = server("EDGE-1", "b", Role.EDGE_TRANSPORT)
    assert found(replace(closed, servers=closed.servers | {"EDGE-1": edge}), "from strangers") == []
    assert found(replace(closed, accepted_domains=()), "from strangers") == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"permission_groups": frozenset({PermissionGroup.PARTNERS})}, False),
        ({"authentication": frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.EXTERNALLY_SECURED})}, False),
        ({"permission_groups": frozenset({PermissionGroup.ANONYMOUS}), "enabled": False}, True),
    ],
    ids=["partners", "a filter in front", "not enabled"],
)
def test_who_counts_as_a_stranger(changes: dict[str, Any], told: bool) -> None:
    connectors = (
        connector("In", "HUB-1", PermissionGroup.SERVERS),
        connector("More", "HUB-2", PermissionGroup.SERVERS),
    )
    changed = {each.name: replace(each, **changes) if each.name == "More" else each for each in connectors}
    assert bool(found(replace(organization(*HUBS), receive_connectors=changed), "from strangers")) is told
