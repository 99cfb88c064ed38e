"""Which servers take part, which of them are fit, where they answer, what keeps a request with one (C1, C2, C9-C12)."""

from __future__ import annotations

import dataclasses
from typing import Any

import figure
import pytest

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import (
    Edition,
    Endpoint,
    HttpSignIn,
    Organization,
    Protocol,
    Role,
    SignIn,
    TlsMode,
    Version,
)
from gatepost.routing.decision import (
    Cause,
    Proxy,
    Redirect,
    Refuse,
    Serve,
)


def _cas_03(**changes: Any) -> Organization:
    """The figure with another CAS-03."""
    return figure.with_server(figure.figure(), "CAS-03", **changes)


def test_a_mailbox_server_without_an_endpoint_for_the_protocol_is_a_temporary_refusal() -> None:
    """The path has a directory, the machine no way in."""
    for protocol, path in ((Protocol.IMAP, ""), (Protocol.HTTPS, "/owa")):
        organization = figure.with_server(figure.figure(), "MBX-01", endpoints=())
        decision = figure.ask(organization, 1, "CAS-01", path, protocol=protocol)
        assert isinstance(decision, Refuse)
        assert decision.cause is Cause.NO_ENDPOINT


@pytest.mark.parametrize(
    ("endpoints", "cause"),
    [
        (("imaps",), Cause.NO_ENDPOINT),
        (("https",), None),
        (("http",), Cause.NO_INTEGRATED),
        (("peer",), None),
    ],
)
@pytest.mark.parametrize("way", [HttpSignIn.HEADER, HttpSignIn.KERBEROS])
def test_a_server_that_trusts_a_header_or_takes_tickets_is_proxied_to_over_tls_only(
    endpoints: tuple[str, ...], cause: Cause | None, way: HttpSignIn
) -> None:
    """C11: without a peer endpoint a header or a ticket over TLS is the other way; in clear there is none."""
    kinds = {
        "imaps": (Protocol.IMAP, TlsMode.IMPLICIT),
        "https": (Protocol.HTTPS, TlsMode.IMPLICIT),
        "http": (Protocol.HTTPS, TlsMode.CLEAR),
        "peer": (Protocol.HTTPS, TlsMode.IMPLICIT),
    }
    made = tuple(Endpoint(name, kinds[name][0], "192.0.2.3", 1000, kinds[name][1], "cas-03") for name in endpoints)
    organization = _cas_03(endpoints=made, sign_in=SignIn(http=way))
    decision = figure.ask(organization, 3, "CAS-01", "/owa")
    if cause is None:
        assert isinstance(decision, Proxy)
        assert decision.target.peer is (endpoints == ("peer",))
    else:
        assert isinstance(decision, Refuse)
        assert decision.cause is cause
        assert [step.rule for step in decision.steps].count("C11") == 2, "passed over, then refused"


def test_servers_that_cannot_be_used_are_named_with_the_reason_and_those_that_can_by_name() -> None:
    """C2: one is newer, one cannot open the mailbox, one is left."""
    organization = figure.nlb()
    organization = figure.versions(organization, Version.V2007, "CAS-04")
    organization = figure.versions(organization, Version.MODERN, "CAS-05")
    decision = figure.ask(organization, 3, "CAS-01", "/owa")
    assert isinstance(decision, Proxy)
    assert [step.text for step in decision.steps if step.rule == "C2"] == [
        "CAS-05 (version modern) is newer than CAS-01",
        "CAS-04 (version 2007) cannot open 2010 mailboxes",
        "client access servers of site asia that can be used: CAS-03",
    ]
    assert decision.candidates == (decision.target,)


def _with_web_servers(*endpoints: tuple[Endpoint, ...]) -> Organization:
    """The figure whose MBX-01 speaks RPC only, and web servers WEB-1, WEB-2 … in its site with these endpoints."""
    organization = figure.figure()
    kept = tuple(d for d in organization.virtual_directories if d.server != "MBX-01")
    organization = dataclasses.replace(organization, virtual_directories=kept)
    for number, found in enumerate(endpoints, 1):
        web = dataclasses.replace(figure.server(f"WEB-{number}", "usa", Role.CLIENT_ACCESS), endpoints=found)
        made = (figure.directory(web.name, service) for service in figure.SERVICES)
        organization = figure.added(organization, web, *made)
    return organization


def test_several_web_servers_of_the_site_share_by_the_services_affinity() -> None:
    """C1 with B1 to B3; one without an https endpoint is left out."""
    web = (Endpoint("https", Protocol.HTTPS, "192.0.2.9", 443, TlsMode.IMPLICIT, "web"),)
    organization = _with_web_servers(web, (), web)
    affinities = {}
    for path in (figure.OWA, figure.EAS, figure.EWS, figure.AS):
        decision = figure.ask(organization, 1, "CAS-01", path)
        assert isinstance(decision, Serve)
        assert [target.server for target in decision.candidates] == ["WEB-1", "WEB-3"]
        affinities[path] = decision.affinity
    assert list(affinities.values()) == [
        Affinity.COOKIE,
        Affinity.FIRST_SERVER,
        Affinity.COOKIE_OR_ADDRESS,
        Affinity.ROUND_ROBIN,
    ]
    decision = figure.ask(_with_web_servers(()), 1, "CAS-01", "/owa")
    assert isinstance(decision, Refuse)
    assert decision.cause is Cause.NO_ENDPOINT


@pytest.mark.parametrize("protocol", [Protocol.IMAP, Protocol.POP3])
def test_edition_sp2_takes_the_servers_there_in_turn(protocol: Protocol) -> None:
    """C9: no affinity for POP3 and IMAP4."""
    organization = dataclasses.replace(figure.nlb(), edition=Edition.SP2)
    decision = figure.ask(organization, 3, "CAS-01", protocol=protocol)
    assert isinstance(decision, Proxy)
    assert [target.server for target in decision.candidates] == ["CAS-03", "CAS-04", "CAS-05"]
    assert decision.affinity is Affinity.ROUND_ROBIN
    assert {target.endpoint.protocol for target in decision.candidates} == {protocol}


@pytest.mark.parametrize(("protocol", "path"), [(Protocol.HTTPS, "/owa/x"), (Protocol.IMAP, "")])
def test_a_modern_site_that_is_reached_by_a_peer_only_takes_its_front_ends_in_turn(
    protocol: Protocol, path: str
) -> None:
    """C12: the path stays as it is, since the peer decides by it; any of them comes to the same end."""
    organization = figure.versions(figure.nlb(), Version.MODERN, *figure.nlb().servers)
    asia = dataclasses.replace(organization.sites["asia"], through_peer=True)
    organization = dataclasses.replace(organization, sites={**organization.sites, "asia": asia})
    decision = figure.ask(organization, 3, "CAS-01", path, protocol=protocol)
    assert isinstance(decision, Proxy)
    assert [target.server for target in decision.candidates] == ["CAS-03", "CAS-04", "CAS-05"]
    assert decision.affinity is Affinity.ROUND_ROBIN
    assert decision.epoch == 7
    if protocol is Protocol.HTTPS:
        assert decision.target.url == "https://cas-03.contoso.com:444/owa"
        assert decision.target.peer


def test_a_long_path_is_cut_in_messages() -> None:
    """And what is not printable is escaped."""
    decision = figure.ask(figure.figure(), 1, "CAS-01", "/" + "x" * 500)
    assert isinstance(decision, Refuse)
    assert decision.message == "no web server of site usa has a virtual directory for /" + "x" * 59 + "..."
    decision = figure.ask(figure.figure(), 1, "CAS-01", "/a\r\nö")
    assert isinstance(decision, Refuse)
    assert decision.message.endswith("for /a\\r\\n\\xf6")


def test_web_services_are_reached_at_the_machine_behind_a_balanced_name() -> None:
    """C8: internal_bypass_url says where; others have only their internal URL, which must be there."""
    bypass = "https://cas-03.contoso.com/direct"
    for internal in ("https://balanced.contoso.com/EWS", None):
        organization = figure.with_directory(
            figure.figure(), "CAS-03", figure.EWS, internal_url=internal, internal_bypass_url=bypass
        )
        assert figure.ask(organization, 3, "CAS-01", figure.EWS).target.url == bypass  # type: ignore[union-attr]
    for path in (figure.OWA, figure.EAS):
        organization = figure.with_directory(
            figure.figure(), "CAS-03", path, internal_url=None, internal_bypass_url=bypass
        )
        assert figure.refused(figure.ask(organization, 3, "CAS-01", path)) is Cause.NO_INTERNAL_URL


@pytest.mark.parametrize(("redirect", "kind"), [(False, Proxy), (True, Redirect)])
def test_the_control_panel_follows_the_switches_of_outlook_web_app(redirect: bool, kind: type) -> None:
    """C6: also where it has a directory of its own, whose switches nobody sets."""
    organization = figure.figure()
    if not redirect:
        organization = figure.with_directory(organization, "CAS-02", figure.OWA, redirect_to_optimal_owa_server=False)
    panels = (figure.directory("CAS-02", "ecp"), figure.directory("CAS-01", "ecp", "www.usa.contoso.com"))
    panels = (dataclasses.replace(panels[0], redirect_to_optimal_owa_server=not redirect), panels[1])
    organization = dataclasses.replace(organization, virtual_directories=(*organization.virtual_directories, *panels))
    assert isinstance(figure.ask(organization, 1, "CAS-02", "/ecp"), kind)


@pytest.mark.parametrize(
    ("external", "used"),
    [("https://www.usa.contoso.com/OWA\r\nX: y", False), ("https://www.usa.contoso.com/O WA", False), ("", False)],
)
def test_an_external_url_that_fits_no_head_is_no_external_url(external: str, used: bool) -> None:
    """The check refuses such a file; a decision does not rely on it."""
    organization = figure.with_directory(figure.figure(), "CAS-01", figure.OWA, external_url=external)
    assert isinstance(figure.ask(organization, 1, "CAS-02", figure.OWA), Redirect) is used


def test_of_several_servers_the_fit_ones_take_part_and_the_others_are_named() -> None:
    """C11: CAS-04 takes only Basic, CAS-05 has an internal URL in clear."""
    organization = figure.with_server(figure.nlb(), "CAS-04", endpoints=figure.nlb().servers["CAS-04"].endpoints[:-1])
    organization = figure.with_directory(organization, "CAS-05", figure.OWA, internal_url="http://cas-05/owa")
    decision = figure.ask(organization, 3, "CAS-01", figure.OWA)
    assert isinstance(decision, Proxy)
    assert [target.server for target in decision.candidates] == ["CAS-03"]
    passed = [step.text for step in decision.steps if step.rule == "C11"]
    assert [text.split()[0] for text in passed] == ["CAS-04", "CAS-05"]
