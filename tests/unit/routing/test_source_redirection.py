"""The first source (proxying and redirection, 2010) from its part on redirection on, sentence by sentence.

Several servers in a site are the source's last part. What needs running servers is elsewhere.
"""

from __future__ import annotations

import pytest
from figure import (
    AS,
    EAS,
    EWS,
    OWA,
    ask,
    figure,
    nlb,
    proxied_to,
    redirected,
    rules,
    with_directory,
)

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import (
    Edition,
    Organization,
    Protocol,
)
from gatepost.routing.decision import Proxy, Redirect, RedirectForm, Serve

WEB_PATHS = (OWA, EAS, EWS, AS)
MAIL = (Protocol.IMAP, Protocol.POP3)

# --- Redirection


def test_outlook_web_app_users_can_be_redirected_if_the_server_in_the_mailboxs_site_is_internet_facing() -> None:
    """And are proxied if it is not."""
    assert isinstance(ask(figure(), 1, "CAS-02", OWA), Redirect)
    assert isinstance(ask(figure(), 3, "CAS-02", OWA), Proxy)


def test_users_are_not_redirected_automatically() -> None:
    """They click the link on a page."""
    assert redirected(ask(figure(), 1, "CAS-02", OWA)).form is RedirectForm.PAGE


@pytest.mark.parametrize(
    ("user", "front_end", "url"),
    [(1, "CAS-02", "https://www.usa.contoso.com/OWA"), (2, "CAS-01", "https://www.europe.contoso.com/OWA")],
)
def test_the_two_tables_of_redirection_settings(user: int, front_end: str, url: str) -> None:
    """usa and europe redirect to each other."""
    assert redirected(ask(figure(), user, front_end, OWA)).location == url


@pytest.mark.parametrize("edition", list(Edition))
@pytest.mark.parametrize("path", [EWS, AS])
def test_web_services_cannot_use_redirection(path: str, edition: Edition) -> None:
    """C8: programs are proxied although there is an external URL."""
    decision = ask(figure(edition=edition), 1, "CAS-02", path)
    assert proxied_to(decision) == "CAS-01"
    assert "C8" in rules(decision)


@pytest.mark.parametrize("edition", list(Edition))
@pytest.mark.parametrize("protocol", MAIL)
def test_pop3_and_imap4_cannot_use_redirection(protocol: Protocol, edition: Edition) -> None:
    """Refused or proxied, never sent by an answer of that kind."""
    assert not isinstance(ask(figure(edition=edition), 1, "CAS-02", protocol=protocol), Redirect)


def test_a_redirect_outside_outlook_web_app_exists_only_as_the_error_451() -> None:
    """Devices take it as an error with a hint, not as a redirection."""
    forms = {redirected(ask(figure(), 1, "CAS-02", path)).form for path in (OWA, EAS)}
    assert forms == {RedirectForm.PAGE, RedirectForm.DEVICE}


@pytest.mark.parametrize("path", ["/exchange", "/public", "/exchweb"])
def test_the_exchange_and_public_directories_provide_2003_mailbox_access(path: str) -> None:
    """With exchweb, where their pictures are: four directories in all."""
    assert isinstance(ask(figure(), "BE-01", "CAS-01", path), Serve)
    assert not isinstance(ask(figure(), 1, "CAS-01", path), Serve)


def test_a_2010_user_at_owa_reaches_the_mailbox_directly() -> None:
    """The owa directory provides access to 2010 mailboxes."""
    assert isinstance(ask(figure(), 1, "CAS-01", OWA), Serve)


@pytest.mark.parametrize("path", ["/exchange", "/Exchange/x", "/public"])
@pytest.mark.parametrize("user", [1, 3])
def test_a_2010_user_at_exchange_is_redirected_to_owa_of_the_same_server(path: str, user: int) -> None:
    """In whatever site the mailbox is; the way from /owa is decided there."""
    decision = redirected(ask(figure(), user, "CAS-01", path))
    assert (decision.form, decision.location) == (RedirectForm.OWN_PATH, "/owa")
    assert decision.prefix.casefold() == "/" + path.split("/")[1].casefold()


# --- Disabling redirection


def test_redirection_can_be_disabled_to_use_proxying_instead_while_a_sites_connection_is_down() -> None:
    """RedirectToOptimalOWAServer on the directory of the server that would redirect (C6)."""
    disabled = with_directory(figure(), "CAS-02", OWA, redirect_to_optimal_owa_server=False)
    decision = ask(disabled, 1, "CAS-02", OWA)
    assert proxied_to(decision) == "CAS-01"
    assert "C6" in rules(decision)
    assert isinstance(ask(disabled, 2, "CAS-01", OWA), Redirect), "of other servers nothing changes"


def test_redirection_is_restored_by_the_same_parameter() -> None:
    """To $true."""
    disabled = with_directory(figure(), "CAS-02", OWA, redirect_to_optimal_owa_server=False)
    restored = with_directory(disabled, "CAS-02", OWA, redirect_to_optimal_owa_server=True)
    assert isinstance(ask(restored, 1, "CAS-02", OWA), Redirect)


def test_disabling_it_concerns_outlook_web_app_only() -> None:
    """Devices are told 451 as before."""
    disabled = with_directory(figure(), "CAS-02", OWA, redirect_to_optimal_owa_server=False)
    assert redirected(ask(disabled, 1, "CAS-02", EAS)).form is RedirectForm.DEVICE


# --- Several servers in a site


def candidates(organization: Organization, path: str, user: int = 3) -> tuple[list[str], Affinity]:
    """Names and affinity of a proxied request."""
    decision = ask(organization, user, "CAS-01", path)
    assert isinstance(decision, Proxy)
    assert decision.candidates[0] == decision.target
    return [target.server for target in decision.candidates], decision.affinity


@pytest.mark.parametrize("path", WEB_PATHS)
def test_all_servers_of_the_destination_site_take_part(path: str) -> None:
    """CAS-03, CAS-04 and CAS-05."""
    assert candidates(nlb(), path)[0] == ["CAS-03", "CAS-04", "CAS-05"]


def test_outlook_web_app_stays_with_one_server_by_a_cookie() -> None:
    """Even if another has fewer connections (B1)."""
    assert candidates(nlb(), OWA)[1] is Affinity.COOKIE


def test_web_services_stay_by_cookie_or_by_the_clients_address() -> None:
    """IP affinity must be configured for them (B1)."""
    assert candidates(nlb(), EWS)[1] is Affinity.COOKIE_OR_ADDRESS


@pytest.mark.parametrize("path", [OWA, EWS])
def test_if_one_server_is_unavailable_the_user_is_proxied_to_another(path: str) -> None:
    """Every candidate can take the request: the decision names them all."""
    decision = ask(nlb(), 3, "CAS-01", path)
    assert isinstance(decision, Proxy)
    assert all(target.url and target.peer for target in decision.candidates)


def test_an_activesync_client_that_is_proxied_to_a_server_first_is_proxied_there_every_time() -> None:
    """Round robin for the first contact (B2)."""
    assert candidates(nlb(), EAS)[1] is Affinity.FIRST_SERVER


def test_in_a_site_with_one_server_activesync_clients_have_no_other() -> None:
    """They fail until it is back."""
    assert candidates(figure(), EAS)[0] == ["CAS-03"]


def test_two_availability_requests_of_one_client_may_go_to_different_servers() -> None:
    """Round robin, no state (B3)."""
    assert candidates(nlb(), AS)[1] is Affinity.ROUND_ROBIN


def test_the_order_of_candidates_does_not_depend_on_the_order_of_the_file() -> None:
    """Every front end knows the same first one."""
    servers = dict(reversed(nlb().servers.items()))
    reordered = figure(servers=servers, virtual_directories=nlb().virtual_directories)
    assert candidates(reordered, OWA)[0] == ["CAS-03", "CAS-04", "CAS-05"]


def test_connections_to_one_server_are_2000_at_most_as_advised() -> None:
    """maxconnections."""
    assert figure().servers["CAS-03"].max_connections == 2000
