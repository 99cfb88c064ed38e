"""Warnings about port 25 and submissions at front ends (SPEC O2, T12)."""

from __future__ import annotations

import pytest

from gatepost.organization.check_front_mail import check_front_mail
from gatepost.organization.model import ClientAddress, Endpoint, Organization, Protocol, Role, Server, TlsMode, Version


def server(name: str, role: Role, protocol: Protocol, told: ClientAddress = ClientAddress.NONE) -> Server:
    """With one endpoint."""
    endpoint = Endpoint(protocol.value, protocol, "127.0.0.1", 25, TlsMode.STARTTLS, "x", told)
    return Server(name, "usa", "x", "127.0.0.1", Version.MODERN, frozenset({role}), (endpoint,))


def findings(*servers: Server) -> list[str]:
    """Each as object and message."""
    organization = Organization("contoso", servers={s.name: s for s in servers})
    return [f"{finding.object_name} {finding.message}" for finding in check_front_mail(organization)]


FRONT = server("CAS-01", Role.CLIENT_ACCESS, Protocol.SMTP)


def test_a_hub_that_is_not_told_the_client_takes_strangers_for_neighbours() -> None:
    """It may allow its neighbours to relay."""
    hub = server("HUB-01", Role.HUB_TRANSPORT, Protocol.SMTP)
    assert findings(FRONT, hub) == ["server HUB-01 takes every stranger for CAS-01, which hands it mail"]
    assert findings(hub) == []


@pytest.mark.parametrize("told", [ClientAddress.PROXY_V1, ClientAddress.PROXY_V2, ClientAddress.XCLIENT])
def test_a_hub_that_is_told_is_fine(told: ClientAddress) -> None:
    """By whatever way."""
    assert findings(FRONT, server("HUB-01", Role.HUB_TRANSPORT, Protocol.SMTP, told)) == []


def test_port_25_without_hubs() -> None:
    """Every client would be told to come back."""
    words = "server CAS-01 takes mail on port 25, but the organization has no hub to hand it to"
    assert findings(FRONT) == [words]


def test_submissions_that_nobody_takes() -> None:
    """Neither a mailbox server nor a hub."""
    front = server("CAS-01", Role.CLIENT_ACCESS, Protocol.SUBMISSION)
    words = "server CAS-01 takes submissions, but no mailbox server or hub does, to which they could go"
    assert findings(front) == [words]
    assert findings(front, server("MBX-01", Role.MAILBOX, Protocol.SUBMISSION)) == []
    assert findings(front, server("HUB-01", Role.HUB_TRANSPORT, Protocol.SUBMISSION)) == []
