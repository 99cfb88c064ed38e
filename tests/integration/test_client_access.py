"""The source's figure by real front ends: who is served, redirected, proxied or refused, at every front end."""

from __future__ import annotations

import itertools
import re

import pytest
from sites import Sites, wait_until
from sites_figure import ACTIVESYNC, ARRAY, EXTERNAL, HOMES, OLD_WEB

from gatepost.lab.clients import WebAnswer

PAGE = {"Accept": "text/html"}
FRONT_ENDS = ("CAS-01", "CAS-02", "CAS-03", "CAS-04")
HOME_FRONT_ENDS = {"user1": ("CAS-01",), "user2": ("CAS-02",), "user3": ARRAY}
_numbers = itertools.count(1)


def _asked(sites: Sites, user: str, mark: str) -> list[str]:
    """Lines of the log of the user's mailbox server that hold `mark`."""
    lines = sites.webs[HOMES[user]].output.read_text().splitlines()
    return [line for line in lines if mark in line]


def _mark() -> str:
    return f"mark-{next(_numbers)}-"


def _soap(action: str, inner: str) -> tuple[dict[str, str], bytes]:
    messages = "http://schemas.microsoft.com/exchange/services/2006/messages"
    body = (
        '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
        f'<{action} xmlns="{messages}">{inner}</{action}></s:Body></s:Envelope>'
    )
    headers = {"Accept": "text/xml", "Content-Type": "text/xml; charset=utf-8", "SOAPAction": f'"{messages}/{action}"'}
    return headers, body.encode()


def _availability(user: str) -> tuple[dict[str, str], bytes]:
    """A question for a user's free and busy times."""
    email = f"<Email><Address>{user}@contoso.com</Address></Email>"
    return _soap(
        "GetUserAvailabilityRequest", f"<MailboxDataArray><MailboxData>{email}</MailboxData></MailboxDataArray>"
    )


def _way(answer: WebAnswer) -> tuple[str, str, str]:
    """Front end, the one that it was proxied to, and the mailbox server, as the answer says them."""
    names = ("x-feserver", "x-calculatedbetarget", "x-beserver")
    front, peer, server = (answer.headers.get(name, "") for name in names)
    return front, peer, server


def _check_way(answer: WebAnswer, user: str, front_end: str) -> None:
    """Served here in the mailbox's own site, and by one of that site's front ends from elsewhere."""
    assert answer.status == 200, answer.text
    front, peer, server = _way(answer)
    assert (front, server) == (front_end, HOMES[user])
    assert (peer == "") if front_end in HOME_FRONT_ENDS[user] else (peer in HOME_FRONT_ENDS[user])


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("user", HOME_FRONT_ENDS)
class TestFigure:
    """Users 1, 2 and 3 of the figure by every front end."""

    def test_outlook_web_app(self, sites: Sites, user: str, front_end: str) -> None:
        """ "their browser displays a message that includes the correct URL"; "that server will proxy their request"."""
        mark = _mark()
        answer = sites.web(front_end, user, f"/owa/?q={mark}", PAGE)
        home = HOME_FRONT_ENDS[user][0]
        if front_end not in HOME_FRONT_ENDS[user] and home in EXTERNAL:
            assert answer.status == 200
            assert f'href="{sites.external_url(home, "owa")}/?q={mark}"' in answer.text
            assert _asked(sites, user, mark) == []
            return
        _check_way(answer, user, front_end)
        wait_until(lambda: bool(_asked(sites, user, mark)), 2.0, "the server's log line")
        assert [f"'{user}@contoso.com'" in line for line in _asked(sites, user, mark)] == [True]

    def test_activesync(self, sites: Sites, user: str, front_end: str) -> None:
        """ "they'll receive an error because Client Access server 01 is the appropriate" one: 451 with its URL."""
        mark = _mark()
        answer = sites.phone(front_end, user, mark.strip("-")).folder_sync()
        home = HOME_FRONT_ENDS[user][0]
        if front_end not in HOME_FRONT_ENDS[user] and home in EXTERNAL:
            assert answer.status == 451
            assert answer.headers["X-MS-Location"] == sites.external_url(home, ACTIVESYNC)
            assert answer.body == b""
            assert _asked(sites, user, mark.strip("-")) == []
            return
        assert answer.folders() == {f"Inbox on {HOMES[user]}": "1"}
        wait_until(lambda: bool(_asked(sites, user, mark.strip("-"))), 2.0, "the server's log line")
        assert f"'{user}@contoso.com'" in _asked(sites, user, mark.strip("-"))[0]

    def test_web_services_are_proxied_only(self, sites: Sites, user: str, front_end: str) -> None:
        """ "Clients that use … Exchange Web Services … can't use redirection" (C8)."""
        headers, body = _soap("GetFolder", "")
        answer = sites.web(front_end, user, "/EWS/Exchange.asmx", headers, method="POST", body=body)
        _check_way(answer, user, front_end)
        assert f"{HOMES[user]} answered {user}@contoso.com" in answer.text

    def test_availability_is_proxied_to_the_server_of_whom_it_asks_about(
        self, sites: Sites, user: str, front_end: str
    ) -> None:
        """ "it has its own built-in logic for handling proxying": by the target; who asks is someone else."""
        asker = "user2" if user == "user1" else "user1"
        headers, body = _availability(user)
        answer = sites.web(front_end, asker, "/AS/Service.asmx", headers, method="POST", body=body)
        _check_way(answer, user, front_end)
        assert f"{HOMES[user]} answered {asker}@contoso.com" in answer.text


def test_proxying_is_not_visible_to_the_user(sites: Sites) -> None:
    """ "Proxying isn't visible to the user": same address, no link, no other name; the client's address arrives."""
    direct, proxied = (sites.web(name, "user3", "/owa/?x=1") for name in ("CAS-03", "CAS-02"))
    assert {key: direct.facts[key] for key in ("user", "path", "mailbox_server")} == {
        key: proxied.facts[key] for key in ("user", "path", "mailbox_server")
    }
    assert "location" not in proxied.headers
    way = proxied.facts["way"]
    assert way["X-Forwarded-For"] == "127.0.0.1"
    assert way["X-Forwarded-Host"] == "mail.contoso.com"
    assert [hop.split()[1] for hop in way["Via"].split(", ")] == ["CAS-02", proxied.headers["x-calculatedbetarget"]]


def test_one_request_has_one_id_at_both_front_ends_and_at_the_server(sites: Sites) -> None:
    """SPEC C14: what an operator searches for in all three logs; a client cannot say it."""
    answer = sites.web("CAS-02", "user3", "/owa/", {"X-Request-Id": "mine", "request-id": "mine"})
    found = answer.headers["request-id"]
    assert found != "mine"
    assert answer.facts["way"]["X-Request-Id"] == found
    for name in ("CAS-02", answer.headers["x-calculatedbetarget"]):
        line = sites.front_ends[name].wait_for_event("http.request", request_id=found)
        assert line["user"] == "user3@contoso.com"


def test_a_2007_mailbox_is_proxied_like_one_of_2010(sites: Sites) -> None:
    """ "Proxying … between an Exchange 2010 Client Access server and Exchange 2007" servers."""
    answer = sites.web("CAS-02", "user4")
    assert _way(answer)[1] in ARRAY
    assert (answer.facts["version"], answer.facts["user"]) == ("2007", "user4@contoso.com")


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_2003_mailbox_is_reached_straight_in_any_site(sites: Sites, front_end: str) -> None:
    """ "proxied to the destination back-end server directly, even if there's" a front end in that site (C4, C7)."""
    page = sites.web(front_end, "user5", "/owa/", PAGE)
    assert page.status == 403
    assert 'href="/exchange/"' in page.text
    for path in ("/exchange/", "/public/"):
        answer = sites.web(front_end, "user5", path)
        assert _way(answer) == (front_end, "", "EX03-EUR")
        assert answer.facts["user"] == "user5@contoso.com"
    phone = sites.phone(front_end, "user5", "old").folder_sync()
    assert phone.folders() == {"Inbox on EX03-EUR": "1"}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_exchange_of_a_2010_mailbox_is_sent_to_owa(sites: Sites, front_end: str) -> None:
    """ "If they log on … using https://server name/Exchange, they will be redirected to https://server name/owa"."""
    answer = sites.web(front_end, "user1", "/exchange/", PAGE)
    assert (answer.status, answer.headers["location"].rstrip("/")) == (302, "/owa")


def test_outlook_web_app_stays_with_the_peer_chosen_first(sites: Sites) -> None:
    """ "the next time that user tries …, they'll again be proxied to CAS-01" (B1), from either front end."""
    first = sites.web("CAS-02", "user3")
    cookies = "; ".join(f"{name}={value}" for name, value in first.cookies.items())
    assert cookies
    ways = {_way(sites.web(name, "user3", headers={"Cookie": cookies}))[1] for name in ("CAS-02", "CAS-01") * 4}
    assert ways == {_way(first)[1]}


def test_two_consecutive_availability_requests_can_go_to_different_servers(sites: Sites) -> None:
    """The source's words (B3)."""
    headers, body = _availability("user3")
    ways = []
    for _ in range(2):
        answer = sites.web("CAS-02", "user1", "/AS/Service.asmx", headers, method="POST", body=body)
        assert answer.status == 200
        ways.append(_way(answer)[1])
    assert set(ways) == set(ARRAY)


def test_every_old_version_has_its_own_server_in_the_figure() -> None:
    """The fleet is what the tests above say it is."""
    assert {version for _, version in OLD_WEB.values()} == {"2003", "2007", "2010"}
    assert re.fullmatch(r"www\..*", EXTERNAL["CAS-01"])
