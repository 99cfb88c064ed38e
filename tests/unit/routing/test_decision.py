"""Decisions by the source's figure: three sites, CAS-01 to CAS-03, MBX-01 to MBX-03, plus an old server."""

from __future__ import annotations

import dataclasses

import figure
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.organization.model import (
    CLIENT_PROTOCOLS,
    ClientAccessArray,
    ClientAddress,
    CrossSiteRedirect,
    Database,
    DatabaseCopy,
    Edition,
    Endpoint,
    Organization,
    PathClass,
    Protocol,
    Role,
    Server,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
)
from gatepost.routing.decision import (
    ActiveCopy,
    Cause,
    Mailbox,
    Proxy,
    Redirect,
    RedirectForm,
    Refuse,
    Request,
    Serve,
    decide,
    find_directory,
)

SITES = ("usa", "europe", "asia")


def endpoint(protocol: Protocol, fqdn: str) -> Endpoint:
    return Endpoint(protocol.value, protocol, "127.0.0.1", 143, TlsMode.STARTTLS, fqdn, ClientAddress.NONE)


def server(name: str, site: str, role: Role, version: Version = Version.MODERN) -> Server:
    fqdn = f"{name.lower()}.contoso.com"
    endpoints = tuple(endpoint(protocol, fqdn) for protocol in CLIENT_PROTOCOLS)
    return Server(name, site, fqdn, "127.0.0.1", version, frozenset({role}), endpoints)


def contoso(version: Version = Version.MODERN, edition: Edition = Edition.RTM) -> Organization:
    """The source's figure; every mailbox server has `version`."""
    servers = [server(f"CAS-0{i}", site, Role.CLIENT_ACCESS) for i, site in enumerate(SITES, 1)]
    servers += [server(f"MBX-0{i}", site, Role.MAILBOX, version) for i, site in enumerate(SITES, 1)]
    return Organization(
        name="contoso",
        edition=edition,
        accepted_domains=("contoso.com",),
        sites={site: Site(site) for site in SITES},
        servers={s.name: s for s in servers},
        databases={f"DB0{i}": Database(f"DB0{i}", (DatabaseCopy(f"MBX-0{i}", 1),)) for i in (1, 2, 3)},
        virtual_directories=tuple(
            VirtualDirectory(f"MBX-0{i}", "owa", "/owa", f"https://mbx-0{i}.contoso.com/owa") for i in (1, 2, 3)
        ),
    )


def ask(organization: Organization, protocol: Protocol, front_end: str, number: int, path: str = "") -> object:
    active = ActiveCopy(f"DB0{number}", f"MBX-0{number}", 7)
    return decide(organization, Request(protocol, front_end, path), Mailbox(f"DB0{number}"), active)


def test_mailbox_in_own_site_is_served_from_the_active_copy() -> None:
    """C1."""
    decision = ask(contoso(), Protocol.IMAP, "CAS-01", 1)
    assert isinstance(decision, Serve)
    assert decision.target.server == "MBX-01"
    assert decision.epoch == 7


@pytest.mark.parametrize("protocol", list(CLIENT_PROTOCOLS))
def test_modern_mailbox_is_proxied_from_any_front_end(protocol: Protocol) -> None:
    """C10."""
    decision = ask(contoso(), protocol, "CAS-02", 3, "/owa/x" if protocol is Protocol.HTTPS else "")
    assert isinstance(decision, Proxy)
    assert decision.target.server == "MBX-03"
    assert "C10" in {step.rule for step in decision.steps}


@pytest.mark.parametrize("version", [Version.V2003, Version.V2007, Version.V2010])
@pytest.mark.parametrize("protocol", [Protocol.IMAP, Protocol.POP3])
def test_old_mailbox_elsewhere_is_refused_and_the_right_server_named(version: Version, protocol: Protocol) -> None:
    """C9: POP3 and IMAP4 clients must use a client access server in the mailbox's own site."""
    decision = ask(contoso(version), protocol, "CAS-02", 1)
    assert isinstance(decision, Refuse)
    assert decision.cause is Cause.OTHER_SITE
    assert decision.server_name == "cas-01.contoso.com"
    assert "cas-01.contoso.com" in decision.message
    assert not decision.cause.temporary


def test_an_array_is_named_rather_than_its_member() -> None:
    """C9 with B7: clients know an array by its own name."""
    array = ClientAccessArray("outlook", "usa", "outlook.contoso.com", ("CAS-01",))
    organization = dataclasses.replace(contoso(Version.V2010), arrays={"outlook": array})
    decision = ask(organization, Protocol.IMAP, "CAS-02", 1)
    assert isinstance(decision, Refuse)
    assert decision.server_name == "outlook.contoso.com"


def test_edition_sp2_proxies_imap_to_the_client_access_server_there() -> None:
    """The later edition of the source's text."""
    decision = ask(contoso(Version.V2010, Edition.SP2), Protocol.IMAP, "CAS-02", 1)
    assert isinstance(decision, Proxy)
    assert decision.target.server == "CAS-01"


def test_never_proxied_to_a_newer_front_end() -> None:
    """C2."""
    organization = contoso(Version.V2010, Edition.SP2)
    old = dataclasses.replace(organization.servers["CAS-02"], version=Version.V2010)
    organization = dataclasses.replace(organization, servers={**organization.servers, "CAS-02": old})
    decision = ask(organization, Protocol.IMAP, "CAS-02", 1)
    assert isinstance(decision, Refuse)
    assert any(step.rule == "C2" and "newer" in step.text for step in decision.steps)


def test_the_registry_has_the_last_word() -> None:
    """B5: after a move everybody goes to the new server."""
    active = ActiveCopy("DB01", "MBX-02", 8)
    decision = decide(contoso(), Request(Protocol.IMAP, "CAS-01"), Mailbox("DB01"), active)
    assert isinstance(decision, Proxy)
    assert (decision.target.server, decision.epoch) == ("MBX-02", 8)


@pytest.mark.parametrize(
    ("mailbox", "active", "cause"),
    [
        (Mailbox(), None, Cause.NO_MAILBOX),
        (Mailbox("DB01"), None, Cause.NO_ACTIVE_COPY),
        (Mailbox("DB01"), ActiveCopy("DB02", "MBX-02", 1), Cause.NO_ACTIVE_COPY),
        (Mailbox("DB09"), None, Cause.NO_MAILBOX),
        (Mailbox("DB01"), ActiveCopy("DB01", "gone", 1), Cause.CONFIGURATION),
        (Mailbox(home_server="gone"), None, Cause.CONFIGURATION),
    ],
)
def test_missing_facts_are_temporary_refusals(mailbox: Mailbox, active: ActiveCopy | None, cause: Cause) -> None:
    """Missing directory or registry data is never "does not exist" (field case 17)."""
    decision = decide(contoso(), Request(Protocol.IMAP, "CAS-01"), mailbox, active)
    assert isinstance(decision, Refuse)
    assert decision.cause is cause
    assert decision.cause.temporary


def test_a_front_end_that_is_not_in_the_organization_is_a_temporary_refusal() -> None:
    """A reload may be under way."""
    decision = decide(contoso(), Request(Protocol.IMAP, "CAS-09"), Mailbox("DB01"), ActiveCopy("DB01", "MBX-01", 1))
    assert isinstance(decision, Refuse)
    assert decision.cause is Cause.CONFIGURATION


def test_a_mailbox_on_the_front_end_itself_is_not_asked_of_itself() -> None:
    """It would answer itself without end."""
    decision = decide(contoso(), Request(Protocol.IMAP, "MBX-01"), Mailbox("DB01"), ActiveCopy("DB01", "MBX-01", 1))
    assert isinstance(decision, Refuse)
    assert decision.cause is Cause.CONFIGURATION


def test_a_path_without_virtual_directory_is_refused_for_good() -> None:
    """HTTP: nothing answers there."""
    decision = ask(contoso(), Protocol.HTTPS, "CAS-01", 1, "/elsewhere")
    assert isinstance(decision, Refuse)
    assert decision.cause is Cause.NO_VIRTUAL_DIRECTORY


@pytest.mark.parametrize(
    ("path", "found"),
    [("/owa", True), ("/OWA/", True), ("/owa/a/b", True), ("/owax", False), ("/", False), ("", False)],
)
def test_virtual_directories_match_whole_segments(path: str, found: bool) -> None:
    """A prefix is a path, not a string."""
    assert (find_directory(contoso(), "MBX-01", path) is not None) is found


@given(
    database=st.none() | st.text(max_size=6) | st.sampled_from(["DB01", "DB02"]),
    home=st.none() | st.text(max_size=6) | st.sampled_from(["MBX-01", "CAS-01"]),
    active=st.none() | st.builds(ActiveCopy, st.text(max_size=6), st.text(max_size=6), st.integers()),
    front_end=st.text(max_size=6) | st.just("CAS-01"),
    path=st.text(max_size=10),
    protocol=st.sampled_from(Protocol),
)
def test_no_facts_make_it_raise(
    database: str | None, home: str | None, active: ActiveCopy | None, front_end: str, path: str, protocol: Protocol
) -> None:
    """C13: a decision for whatever comes, with its reasons, in one ASCII-safe line."""
    decision = decide(contoso(), Request(protocol, front_end, path), Mailbox(database, home), active)
    assert decision.steps


def test_the_class_of_a_path_is_this_front_ends_word_then_the_targets_then_the_services() -> None:
    """A directory at /phones: a device's path where it says so, and this front end's word counts first."""
    phones = {"service": "phones", "path": "/phones"}
    there = figure.directory("CAS-03", "phones")
    theirs = dataclasses.replace(there, path_class=PathClass.DEVICE, external_url="https://www.asia.contoso.com/phones")
    organization = figure.figure()
    organization = dataclasses.replace(
        organization, virtual_directories=(*organization.virtual_directories, theirs), edition=Edition.SP2
    )
    decision = figure.ask(organization, 3, "CAS-01", "/phones")
    assert isinstance(decision, Redirect)
    assert decision.form is RedirectForm.DEVICE
    own = VirtualDirectory("CAS-01", **phones, path_class=PathClass.INTERACTIVE)
    organization = dataclasses.replace(organization, virtual_directories=(*organization.virtual_directories, own))
    decision = figure.ask(organization, 3, "CAS-01", "/phones/x")
    assert isinstance(decision, Redirect)
    assert (decision.form, decision.prefix) == (RedirectForm.PAGE, "/phones")
    silent = dataclasses.replace(own, cross_site_redirect=CrossSiteRedirect.SILENT)
    organization = dataclasses.replace(
        organization, virtual_directories=(*organization.virtual_directories[:-1], silent)
    )
    decision = figure.ask(organization, 3, "CAS-01", "/phones/x")
    assert isinstance(decision, Redirect)
    assert decision.form is RedirectForm.SILENT, "another interactive path has switches of its own"


def test_a_home_server_has_no_epoch() -> None:
    """The registry's word is of databases only, whatever is handed in."""
    decision = decide(
        figure.figure(), Request(Protocol.IMAP, "CAS-01"), Mailbox(home_server="BE-01"), ActiveCopy("DB01", "MBX-01", 7)
    )
    assert isinstance(decision, Serve)
    assert decision.epoch == 0


def test_the_last_step_says_what_is_done() -> None:
    """In words that fit the outcome: served or proxied, one server at its place or several by affinity."""

    def last(user: int, front_end: str, path: str = "", organization: Organization | None = None) -> str:
        return figure.ask(organization or figure.figure(), user, front_end, path).steps[-1].text

    assert last(1, "CAS-01") == "served by MBX-01 at mbx-01.contoso.com port 993 (implicit)"
    assert last(1, "CAS-01", "/owa") == "served by MBX-01 at https://mbx-01.contoso.com/OWA"
    assert last(3, "CAS-01", "/EWS") == "proxied to CAS-03 at https://cas-03.contoso.com/EWS (as a front end)"
    several = last(3, "CAS-01", "/owa", figure.nlb())
    assert several == "proxied to one of CAS-03, CAS-04, CAS-05; affinity: cookie"


def test_the_second_step_says_where_the_mailbox_is() -> None:
    """Version, site, and whether that is this front end's."""
    steps = figure.ask(figure.figure(), 1, "CAS-01").steps
    assert steps[1].text == "MBX-01 (version 2010) is in site usa: the same site as CAS-01"
    steps = figure.ask(figure.figure(), 1, "CAS-02").steps
    assert steps[1].text == "MBX-01 (version 2010) is in site usa: another site than europe, that of CAS-02"
