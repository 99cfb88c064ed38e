"""The first source (proxying and redirection, 2010), sentence by sentence up to its part on redirection.

Each test is a sentence that states a behaviour. What needs running servers is elsewhere: certificates between front
ends, pools, pages. What concerns the settings alone is with the check.
"""

from __future__ import annotations

import pytest
from figure import (
    AS,
    EAS,
    EWS,
    NO_INTEGRATED,
    OWA,
    SERVICES,
    added,
    ask,
    directory,
    figure,
    proxied_to,
    redirected,
    refused,
    server,
    versions,
    with_directory,
    with_server,
)

from gatepost.organization.model import (
    HttpSignIn,
    Protocol,
    Role,
    Server,
    SignIn,
    TlsMode,
    Version,
)
from gatepost.routing.decision import Cause, Proxy, RedirectForm, Refuse, Serve

WEB_PATHS = (OWA, EAS, EWS, AS)
MAIL = (Protocol.IMAP, Protocol.POP3)

# --- What proxying is


@pytest.mark.parametrize("path", WEB_PATHS)
def test_the_client_access_server_communicates_with_the_mailbox_server_over_rpc(path: str) -> None:
    """So a 2010 mailbox server has no paths of its own, and a web server of its site serves them."""
    web = server("WEB-01", "usa", Role.CLIENT_ACCESS)
    web = Server(web.name, web.site, web.fqdn, web.address, web.version, web.roles, web.endpoints[:-1])
    organization = added(figure(), web, *(directory("WEB-01", service) for service in SERVICES))
    without = tuple(d for d in organization.virtual_directories if d.server != "MBX-01")
    organization = figure(servers=organization.servers, virtual_directories=without)
    decision = ask(organization, 1, "CAS-01", path)
    assert isinstance(decision, Serve)
    assert decision.target.server == "WEB-01"
    assert not decision.target.peer


@pytest.mark.parametrize("path", WEB_PATHS)
def test_every_site_with_a_mailbox_server_must_have_a_client_access_server(path: str) -> None:
    """Without one its 2010 mailboxes cannot be reached from other sites."""
    organization = figure()
    servers = {name: s for name, s in organization.servers.items() if name != "CAS-03"}
    assert refused(ask(figure(servers=servers), 3, "CAS-02", path)) is Cause.NO_CLIENT_ACCESS_SERVER


@pytest.mark.parametrize("path", WEB_PATHS)
def test_one_server_is_internet_facing_and_proxies_to_sites_that_have_no_internet_presence(path: str) -> None:
    """CAS-CAS proxying, to the server closest to the mailbox."""
    assert proxied_to(ask(figure(), 3, "CAS-01", path)) == "CAS-03"


@pytest.mark.parametrize("path", WEB_PATHS)
def test_a_2010_server_proxies_to_a_2007_server_so_that_the_two_coexist(path: str) -> None:
    """The second of the two situations."""
    assert proxied_to(ask(versions(figure(), Version.V2007, "CAS-03", "MBX-03"), 3, "CAS-01", path)) == "CAS-03"


@pytest.mark.parametrize("path", [OWA, EAS, EWS])
def test_proxying_is_supported_for_outlook_web_app_activesync_and_web_services(path: str) -> None:
    """Each with what follows its directory's path."""
    assert proxied_to(ask(figure(), 3, "CAS-02", path + "/a/b")) == "CAS-03"


def test_availability_proxies_by_itself() -> None:
    """It is proxied and never redirected, whatever external URL there is."""
    assert proxied_to(ask(figure(), 1, "CAS-02", AS)) == "CAS-01"


@pytest.mark.parametrize("path", WEB_PATHS)
@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        (Version.V2010, Version.V2010, True),
        (Version.V2010, Version.V2007, True),
        (Version.V2007, Version.V2007, True),
        (Version.V2007, Version.V2010, False),
        (Version.V2010, Version.MODERN, False),
    ],
)
def test_the_destination_runs_the_same_or_an_earlier_version(
    path: str, mine: Version, theirs: Version, fits: bool
) -> None:
    """C2: never to a newer one."""
    mailbox = Version.V2010 if theirs is Version.MODERN else theirs
    organization = versions(versions(versions(figure(), mine, "CAS-01"), theirs, "CAS-03"), mailbox, "MBX-03")
    decision = ask(organization, 3, "CAS-01", path)
    if fits:
        assert proxied_to(decision) == "CAS-03"
    else:
        assert refused(decision) is Cause.VERSION_MISMATCH


@pytest.mark.parametrize("path", WEB_PATHS)
def test_only_one_client_access_server_must_be_internet_facing(path: str) -> None:
    """With external URLs on CAS-01 alone every mailbox is reached by it."""
    organization = figure()
    for service in SERVICES:
        organization = with_directory(organization, "CAS-02", f"/{service}", external_url=None)
    assert isinstance(ask(organization, 1, "CAS-01", path), Serve)
    assert proxied_to(ask(organization, 2, "CAS-01", path)) == "CAS-02"
    assert proxied_to(ask(organization, 3, "CAS-01", path)) == "CAS-03"


@pytest.mark.parametrize("path", WEB_PATHS)
def test_a_server_without_internet_presence_needs_no_internet_host_name(path: str) -> None:
    """C12: it is reached by its internal URL."""
    decision = ask(figure(), 3, "CAS-01", path)
    assert isinstance(decision, Proxy)
    assert decision.target.directory is not None
    assert decision.target.directory.external_url is None
    assert decision.target.url.startswith("https://cas-03.contoso.com/")


@pytest.mark.parametrize("protocol", MAIL)
def test_proxying_does_not_work_for_pop3_and_imap4(protocol: Protocol) -> None:
    """C9, edition rtm."""
    assert refused(ask(figure(), 3, "CAS-02", protocol=protocol)) is Cause.OTHER_SITE


@pytest.mark.parametrize("protocol", MAIL)
def test_a_pop3_or_imap4_client_must_connect_to_a_server_in_the_site_of_its_mailbox(protocol: Protocol) -> None:
    """The refusal names it, and there it works."""
    decision = ask(figure(), 3, "CAS-02", protocol=protocol)
    assert isinstance(decision, Refuse)
    assert decision.server_name == "cas-03.contoso.com"
    assert isinstance(ask(figure(), 3, "CAS-03", protocol=protocol), Serve)


# --- The figure


@pytest.mark.parametrize("path", WEB_PATHS)
def test_user_1_uses_cas_01_without_proxying(path: str) -> None:
    """Its mailbox is in that site."""
    decision = ask(figure(), 1, "CAS-01", path)
    assert isinstance(decision, Serve)
    assert decision.target.server == "MBX-01"


def test_user_1_at_cas_02_with_activesync_receives_an_error_since_cas_01_is_the_appropriate_server() -> None:
    """The error is 451, and says which server is."""
    decision = redirected(ask(figure(), 1, "CAS-02", EAS))
    assert decision.form is RedirectForm.DEVICE
    assert decision.location == "https://www.usa.contoso.com/Microsoft-Server-ActiveSync"


def test_user_1_at_cas_02_with_outlook_web_app_sees_a_message_with_the_correct_url() -> None:
    """This process is known as redirection."""
    decision = redirected(ask(figure(), 1, "CAS-02", OWA))
    assert (decision.form, decision.location) == (RedirectForm.PAGE, "https://www.usa.contoso.com/OWA")


@pytest.mark.parametrize("path", WEB_PATHS)
def test_user_3_at_cas_02_is_proxied_to_cas_03(path: str) -> None:
    """Which is not Internet-facing; the user sees nothing of it."""
    assert proxied_to(ask(figure(), 3, "CAS-02", path)) == "CAS-03"


@pytest.mark.parametrize("path", WEB_PATHS)
def test_a_server_that_is_not_internet_facing_receives_requests_from_other_servers_inside(path: str) -> None:
    """What CAS-02 sent, CAS-03 serves."""
    decision = ask(figure(), 3, "CAS-03", path, from_peer=True)
    assert isinstance(decision, Serve)
    assert decision.target.server == "MBX-03"


@pytest.mark.parametrize("path", WEB_PATHS)
def test_servers_in_different_sites_communicate_over_https(path: str) -> None:
    """An internal URL in clear, or a server that answers in clear only, is not used."""
    decision = ask(figure(), 3, "CAS-02", path)
    assert isinstance(decision, Proxy)
    assert decision.target.url.startswith("https://")
    assert decision.target.endpoint.tls is TlsMode.IMPLICIT
    clear = with_directory(figure(), "CAS-03", path, internal_url="http://cas-03.contoso.com" + path)
    assert refused(ask(clear, 3, "CAS-02", path)) is Cause.NO_INTERNAL_URL


@pytest.mark.parametrize("path", WEB_PATHS)
def test_what_a_server_passed_on_is_not_passed_on_again(path: str) -> None:
    """C11: not even to the mailbox's own server, where that is a client access server too and would be asked as one."""
    assert refused(ask(figure(), 3, "CAS-02", path, from_peer=True)) is Cause.LOOP
    both = frozenset({Role.MAILBOX, Role.CLIENT_ACCESS})
    endpoints = figure().servers["CAS-03"].endpoints
    organization = with_server(figure(), "MBX-03", roles=both, endpoints=endpoints)
    organization = figure(servers={name: s for name, s in organization.servers.items() if name != "CAS-03"})
    assert proxied_to(ask(organization, 3, "CAS-02", path)) == "MBX-03"
    assert refused(ask(organization, 3, "CAS-02", path, from_peer=True)) is Cause.LOOP


# --- ActiveSync


@pytest.mark.parametrize(("back_end", "kind"), [("BE-01", Serve), ("BE-03", Proxy)])
def test_a_2003_activesync_user_is_proxied_to_the_server_that_hosts_the_mailbox(back_end: str, kind: type) -> None:
    """In this site and in another."""
    decision = ask(figure(), back_end, "CAS-01", EAS)
    assert isinstance(decision, kind)
    assert decision.target.server == back_end


@pytest.mark.parametrize("path", [EAS, "/exchange", "/public"])
def test_the_request_goes_directly_to_the_2003_server_even_if_a_client_access_server_is_in_its_site(path: str) -> None:
    """ActiveSync and the two directories of Outlook Web App alike."""
    decision = ask(figure(), "BE-03", "CAS-01", path)
    assert proxied_to(decision) == "BE-03"
    assert isinstance(decision, Proxy)
    assert not decision.target.peer


@pytest.mark.parametrize("path", [EAS, "/exchange", "/public"])
def test_in_the_same_site_it_goes_directly_to_the_2003_server_too(path: str) -> None:
    """Not by another client access server here."""
    decision = ask(figure(), "BE-01", "CAS-01", path)
    assert isinstance(decision, Serve)
    assert decision.target.server == "BE-01"


@pytest.mark.parametrize("back_end", ["BE-01", "BE-03"])
def test_2003_activesync_users_receive_an_error_unless_integrated_authentication_is_enabled(back_end: str) -> None:
    """On the ActiveSync directory of the 2003 server (C4)."""
    organization = with_directory(figure(), back_end, EAS, authentication=NO_INTEGRATED)
    assert refused(ask(organization, back_end, "CAS-01", EAS)) is Cause.NO_INTEGRATED


def test_a_server_closer_to_the_mailbox_is_located_in_the_mailboxs_site() -> None:
    """CAS-03 for a mailbox in asia, whatever others there are."""
    assert proxied_to(ask(figure(), 3, "CAS-01", EAS)) == "CAS-03"


@pytest.mark.parametrize("path", [EAS, OWA])
def test_with_internal_url_and_integrated_authentication_the_user_is_proxied_to_the_internal_url(path: str) -> None:
    """As the directory says it."""
    decision = ask(figure(), 3, "CAS-01", path)
    assert isinstance(decision, Proxy)
    assert decision.target.directory is not None
    assert decision.target.url == decision.target.directory.internal_url


@pytest.mark.parametrize("external", [None, "https://www.asia.contoso.com/x"])
@pytest.mark.parametrize("path", [EAS, OWA])
def test_otherwise_the_request_is_rejected(path: str, external: str | None) -> None:
    """Also where there is an external URL: the question comes first."""
    without_url = with_directory(figure(), "CAS-03", path, internal_url=None, external_url=external)
    assert refused(ask(without_url, 3, "CAS-01", path)) is Cause.NO_INTERNAL_URL
    basic = with_directory(figure(), "CAS-03", path, authentication=NO_INTEGRATED, external_url=external)
    assert refused(ask(basic, 3, "CAS-01", path)) is Cause.NO_INTEGRATED


def test_an_external_url_on_the_activesync_directory_returns_451() -> None:
    """With the URL of that directory, not of another one."""
    organization = with_directory(figure(), "CAS-03", EAS, external_url="https://www.asia.contoso.com/eas")
    decision = redirected(ask(organization, 3, "CAS-01", EAS))
    assert (decision.form, decision.location) == (RedirectForm.DEVICE, "https://www.asia.contoso.com/eas")
    organization = with_directory(figure(), "CAS-03", OWA, external_url="https://www.asia.contoso.com/owa")
    assert proxied_to(ask(organization, 3, "CAS-01", EAS)) == "CAS-03"


@pytest.mark.parametrize("path", WEB_PATHS)
def test_proxying_is_not_supported_between_directories_that_use_basic(path: str) -> None:
    """C11: neither where the directory says so nor where the server takes nothing else."""
    organization = with_directory(figure(), "CAS-03", path, authentication=NO_INTEGRATED)
    assert refused(ask(organization, 3, "CAS-01", path)) is Cause.NO_INTEGRATED
    found = figure().servers["CAS-03"]
    only_basic = with_server(figure(), "CAS-03", endpoints=found.endpoints[:-1], sign_in=SignIn(http=HttpSignIn.BASIC))
    decision = ask(only_basic, 3, "CAS-01", path)
    assert refused(decision) is Cause.NO_INTEGRATED
    assert isinstance(decision, Refuse)
    assert "Basic between front ends is refused" in decision.message


# --- Outlook Web App


@pytest.mark.parametrize("back_end", ["BE-01", "BE-03"])
def test_a_2003_user_at_owa_receives_an_error_that_says_to_use_the_exchange_directory(back_end: str) -> None:
    """And that the mailbox is on a 2003 server."""
    decision = ask(figure(), back_end, "CAS-01", OWA)
    assert isinstance(decision, Refuse)
    assert decision.cause is Cause.OLD_MAILBOX
    assert "2003" in decision.message
    assert "/exchange" in decision.message


@pytest.mark.parametrize("path", ["/exchange", "/public", "/Exchange/user/inbox", "/PUBLIC"])
@pytest.mark.parametrize("back_end", ["BE-01", "BE-03"])
def test_a_2003_user_at_exchange_or_public_is_proxied_to_the_2003_server(path: str, back_end: str) -> None:
    """With its Outlook Web App directory."""
    decision = ask(figure(), back_end, "CAS-01", path)
    assert isinstance(decision, Serve | Proxy)
    assert decision.target.server == back_end


def test_an_external_url_redirects_to_the_server_that_it_names() -> None:
    """C5."""
    assert redirected(ask(figure(), 2, "CAS-01", OWA)).location == "https://www.europe.contoso.com/OWA"


def test_without_external_url_the_request_is_proxied_to_the_internal_url() -> None:
    """C5."""
    decision = ask(with_directory(figure(), "CAS-02", OWA, external_url=None), 2, "CAS-01", OWA)
    assert isinstance(decision, Proxy)
    assert decision.target.url == "https://cas-02.contoso.com/OWA"


@pytest.mark.parametrize("path", WEB_PATHS)
def test_all_these_directories_must_have_integrated_authentication(path: str) -> None:
    """Proxying is not supported for directories with other methods."""
    for name, user in (("CAS-01", 1), ("CAS-02", 2), ("CAS-03", 3)):
        organization = with_directory(figure(), name, path, authentication=NO_INTEGRATED)
        front_end = "CAS-02" if name == "CAS-01" else "CAS-01"
        assert refused(ask(organization, user, front_end, path)) is Cause.NO_INTEGRATED
