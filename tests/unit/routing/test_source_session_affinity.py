"""The second source (removing session affinity, 2013), sentence by sentence, as far as decisions go."""

from __future__ import annotations

import pytest
from figure import OWA, SERVICES, added, directory, figure, server, versions, with_directory

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import Organization, Protocol, Role, Version
from gatepost.routing.decision import ActiveCopy, Mailbox, Proxy, Request, Serve, decide

FRONT_ENDS = ("CAS-01", "CAS-02", "CAS-03")
WAYS = ((Protocol.HTTPS, OWA), (Protocol.IMAP, ""), (Protocol.POP3, ""))


def modern() -> Organization:
    """The figure with servers of 2013 and later throughout."""
    return versions(figure(), Version.MODERN, *FRONT_ENDS, "MBX-01", "MBX-02", "MBX-03")


def ends_at(organization: Organization, front_end: str, protocol: Protocol, path: str, active: str, epoch: int) -> str:
    """The server where a session of user 1 ends, from a front end, while `active` has the active copy."""
    copy = ActiveCopy("DB01", active, epoch)
    decision = decide(organization, Request(protocol, front_end, path), Mailbox("DB01"), copy)
    assert isinstance(decision, Serve | Proxy)
    assert decision.epoch == epoch
    assert (decision.affinity, decision.candidates) == (Affinity.NONE, ())
    return decision.target.server


@pytest.mark.parametrize(("protocol", "path"), WAYS)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_the_client_reaches_a_client_access_server_and_any_will_do(
    front_end: str, protocol: Protocol, path: str
) -> None:
    """No affinity is needed: each comes to the same server."""
    assert ends_at(modern(), front_end, protocol, path, "MBX-01", 1) == "MBX-01"


def test_the_mailboxs_version_is_asked_for_and_decides() -> None:
    """A 2010 mailbox beside it follows the older rules."""
    organization = added(modern(), server("MBX-10", "usa", Role.MAILBOX), *(directory("MBX-10", s) for s in SERVICES))
    old = decide(organization, Request(Protocol.IMAP, "CAS-02"), Mailbox(home_server="MBX-10"), None)
    assert not isinstance(old, Serve | Proxy)
    assert ends_at(organization, "CAS-02", Protocol.IMAP, "", "MBX-01", 1) == "MBX-01"


def test_the_external_url_is_asked_for_but_a_modern_mailbox_is_not_redirected() -> None:
    """It decides whether to redirect or to proxy: a modern mailbox is proxied from anywhere."""
    organization = with_directory(modern(), "MBX-01", OWA, external_url="https://www.usa.contoso.com/owa")
    assert ends_at(organization, "CAS-02", Protocol.HTTPS, OWA, "MBX-01", 1) == "MBX-01"


def test_the_active_manager_says_which_server_hosts_the_active_copy() -> None:
    """Not the database's first choice, but what is active now."""
    assert ends_at(modern(), "CAS-01", Protocol.IMAP, "", "MBX-03", 5) == "MBX-03"


@pytest.mark.parametrize(("protocol", "path"), WAYS)
def test_the_request_is_proxied_to_the_active_copys_server_using_https_imap_or_pop(
    protocol: Protocol, path: str
) -> None:
    """By the protocol that the client speaks."""
    copy = ActiveCopy("DB01", "MBX-01", 1)
    decision = decide(modern(), Request(protocol, "CAS-02", path), Mailbox("DB01"), copy)
    assert isinstance(decision, Proxy)
    assert decision.target.endpoint.protocol is protocol


@pytest.mark.parametrize(("protocol", "path"), WAYS)
def test_for_any_session_there_is_one_mailbox_server(protocol: Protocol, path: str) -> None:
    """1:1, for all protocols and front ends together."""
    ends = {ends_at(modern(), front_end, protocol, path, "MBX-02", 3) for front_end in FRONT_ENDS}
    assert ends == {"MBX-02"}


@pytest.mark.parametrize(("protocol", "path"), WAYS)
def test_after_a_move_all_sessions_terminate_at_the_new_server_whatever_their_origin(
    protocol: Protocol, path: str
) -> None:
    """With a greater epoch, by which older sessions are known."""
    before = {ends_at(modern(), front_end, protocol, path, "MBX-01", 1) for front_end in FRONT_ENDS}
    after = {ends_at(modern(), front_end, protocol, path, "MBX-02", 2) for front_end in FRONT_ENDS}
    assert (before, after) == ({"MBX-01"}, {"MBX-02"})
