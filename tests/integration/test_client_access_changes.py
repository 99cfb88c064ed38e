"""Changes while requests flow: a mailbox moves, redirection is switched, certificates and editions change."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from sites import FOLLOW_SECONDS, Sites, wait_until
from sites_figure import ARRAY, DOMAIN, FRONT_ENDS, HOMES

from gatepost.lab.clients import MailAnswer, WebAnswer, imap_visit, pop3_visit
from gatepost.lab.toml_text import Table

PAGE = {"Accept": "text/html"}
MOVE_SECONDS = 1.0
"""From the end of the command to the first request at the new server (SPEC O4, A1)."""
FORM_FIELD = re.compile(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"')
SIGN_IN = "__Host-gatepost"


class Flow:
    """Requests one after the other, in a thread, until it is stopped: `answers` with the moment each began."""

    def __init__(self, ask: Callable[[], WebAnswer]) -> None:
        self._ask = ask
        self._stop = threading.Event()
        self.answers: list[tuple[float, WebAnswer]] = []
        self.faults: list[Exception] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self.answers.append((began, self._ask()))
            except OSError as error:
                self.faults.append(error)

    def stop(self) -> None:
        """After the request that is under way."""
        self._stop.set()
        self._thread.join(30.0)
        assert self.faults == []
        assert {answer.status for _, answer in self.answers} == {200}

    def until(self, holds: Callable[[WebAnswer], bool], seconds: float) -> float:
        """Wait for an answer of that kind to a request that begins from now on; the seconds until it began."""
        now = time.monotonic()
        found: list[float] = []

        def come() -> bool:
            found[:] = [began for began, answer in self.answers if began > now and holds(answer)]
            return bool(found)

        wait_until(come, seconds, "the answer")
        return found[0] - now


@contextmanager
def flow(ask: Callable[[], WebAnswer]) -> Iterator[Flow]:
    """Requests while the block runs; each must have succeeded."""
    made = Flow(ask)
    try:
        yield made
    finally:
        made.stop()


# --- moves


def test_a_database_moves_while_requests_flow(sites: Sites) -> None:
    """B5: the next request goes to the server that has the active copy now, at each front end; none fails."""

    def at(server: str) -> Callable[[WebAnswer], bool]:
        return lambda answer: answer.facts["mailbox_server"] == server

    with flow(lambda: sites.web("CAS-01", "bob")) as first, flow(lambda: sites.web("CAS-02", "bob")) as second:
        first.until(at("MBX-21"), 5.0)
        for server in ("MBX-22", "MBX-21"):
            sites.command("database", "activate", "DB21", "--server", server)
            for requests in (first, second):
                assert requests.until(at(server), 5.0) < MOVE_SECONDS
    users = {answer.facts["user"] for requests in (first, second) for _, answer in requests.answers}
    assert users == {f"bob@{DOMAIN}"}


# --- redirection


def _set_redirect(sites: Sites, word: str) -> None:
    sites.shell(rf'set-owavirtualdirectory "CAS-02\owa (default web site)" -RedirectToOptimalOWAServer {word}')


def test_redirection_is_disabled_and_restored_by_the_cmdlet_while_requests_flow(sites: Sites) -> None:
    """ "You can temporarily disable redirection … to use proxying instead. After … you can reinstate" it (C6).

    It is one server's directory: CAS-03 goes on with its page.
    """
    link = f'href="{sites.external_url("CAS-01", "owa")}/?id=7"'

    def page(answer: WebAnswer) -> bool:
        return link in answer.text

    def proxied(answer: WebAnswer) -> bool:
        return answer.headers.get("x-beserver") == HOMES["user1"]

    with flow(lambda: sites.web("CAS-02", "user1", "/owa/?id=7", PAGE)) as requests:
        requests.until(page, 5.0)
        try:
            _set_redirect(sites, "$false")
            requests.until(proxied, FOLLOW_SECONDS)
            assert page(sites.web("CAS-03", "user1", "/owa/?id=7", PAGE))
        finally:
            _set_redirect(sites, "$true")
        requests.until(page, FOLLOW_SECONDS)
    assert all(page(answer) or proxied(answer) for _, answer in requests.answers)


# --- certificates


def _sign_in(sites: Sites, front_end: str) -> str:
    """The sign-in cookie that bob gets by the form."""
    location = sites.web(front_end, "", "/owa/", PAGE).headers["location"]
    shown = sites.web(front_end, "", location, PAGE)
    action = re.search(r'<form[^>]*action="([^"]+)"', shown.text)
    assert action is not None
    given = {"username": "bob", "password": sites.password("bob"), "trusted": "4"}
    cookies = "; ".join(f"{name}={value}" for name, value in shown.cookies.items())
    headers = PAGE | {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookies}
    body = urlencode(dict(FORM_FIELD.findall(shown.text)) | given).encode()
    answer = sites.web(front_end, "", action[1], headers, method="POST", body=body)
    assert answer.status == 303
    return answer.cookies[SIGN_IN]


def _click(sites: Sites, front_end: str, cookie: str) -> WebAnswer:
    return sites.web(front_end, "", "/owa/", {"Cookie": f"{SIGN_IN}={cookie}"})


def _void(sites: Sites, front_end: str, cookie: str) -> WebAnswer:
    return sites.web(front_end, "", "/owa/", PAGE | {"Cookie": f"{SIGN_IN}={cookie}"})


def test_a_new_certificate_by_reload_and_cookies_of_before(sites: Sites) -> None:
    """B6: listed in `also_opens` they still open; without it they are void: the sign-in page, no error."""
    cookie = _sign_in(sites, "CAS-01")
    assert _click(sites, "CAS-02", cookie).facts["user"] == f"bob@{DOMAIN}"
    kept = sites.directory / "before.key"
    shutil.copy(sites.front_end["private_key"], kept)
    names = ["mail.contoso.com", "www.europe.contoso.com", f"cas-02.{DOMAIN}", sites.place("CAS-02")[0]]
    pair = sites.servers.authority.issue("sites-new", *names)
    new = {"certificate": str(pair.certificate), "private_key": str(pair.private_key)}
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    try:
        with flow(lambda: sites.web("CAS-02", "bob")):
            sites.configure("CAS-02", **new, forms={"also_opens": [{"private_key": str(kept), "until": until}]})
            assert _click(sites, "CAS-02", cookie).facts["user"] == f"bob@{DOMAIN}"
            fresh = _sign_in(sites, "CAS-02")
            assert _void(sites, "CAS-01", fresh).status == 302, "the others do not know the new key yet"
            sites.configure("CAS-02", **new)
        void = _void(sites, "CAS-02", cookie)
        assert void.status == 302
        assert 'type="password"' in sites.web("CAS-02", "", void.headers["location"], PAGE).text
        assert _click(sites, "CAS-02", fresh).facts["user"] == f"bob@{DOMAIN}"
    finally:
        sites.configure("CAS-02")
    assert _click(sites, "CAS-02", cookie).facts["user"] == f"bob@{DOMAIN}"


# --- mail and HTTP behind a peer


@pytest.mark.parametrize("front_end", ["CAS-01", "CAS-02"])
def test_a_site_that_is_reached_through_a_peer_only(sites: Sites, front_end: str) -> None:
    """C10, C12: IMAP, POP3 and HTTP of a modern mailbox there go by a front end of that site."""
    before = {name: len(sites.front_ends[name].events()) for name in ARRAY}
    user, password = f"carol@{DOMAIN}", sites.password("carol")
    by_imap = imap_visit(sites.place(front_end, "imaps"), sites.context, user, password)
    by_pop3 = pop3_visit(sites.place(front_end, "pop3s"), sites.context, user, password)
    assert by_imap.text.startswith("signed in")
    assert by_pop3.text.startswith("signed in, 1 message")
    answer = sites.web(front_end, "carol", "/owa/x?y=1")
    assert answer.facts["mailbox_server"] == "MBX-23"
    assert (answer.facts["user"], answer.facts["path"]) == (user, "/owa/x?y=1")
    assert answer.headers["x-calculatedbetarget"] in ARRAY

    def there() -> set[tuple[str, str, str]]:
        """Sessions that the front ends of asia had since."""
        new = [entry for name in ARRAY for entry in sites.front_ends[name].events()[before[name] :]]
        sessions = [e for e in new if e["event"] in {"imap.session", "pop3.session"}]
        return {(e["event"], e.get("user", ""), e.get("server", "")) for e in sessions}  # lines that count have none

    expected = {(event, user, "MBX-23") for event in ("imap.session", "pop3.session")}
    wait_until(lambda: expected <= there(), 5.0, "both sessions at front ends of asia")


def test_in_its_own_site_it_is_reached_straight(sites: Sites) -> None:
    """And what came from a peer is not handed to another one."""
    for name in ARRAY:
        answer = sites.web(name, "carol")
        assert (answer.facts["mailbox_server"], answer.headers.get("x-calculatedbetarget")) == ("MBX-23", None)


# --- editions


def _mail(sites: Sites, front_end: str, user: str) -> MailAnswer:
    place = sites.place(front_end, "imaps")
    return imap_visit(place, sites.context, f"{user}@{DOMAIN}", sites.password(user))


def _edition(sites: Sites, edition: str) -> None:
    def change(tables: Table) -> None:
        tables["organization"]["edition"] = edition

    sites.reorganize(change)


def test_mail_of_old_versions_elsewhere_is_refused_by_rtm_and_proxied_by_sp2(sites: Sites) -> None:
    """ "Proxying won't work for … POP3 … or … IMAP4 … clients" in the first edition; in the later one it does (C9)."""
    homes = {"user1": "CAS-01", "user2": "CAS-02", "user3": "CAS-03", "user4": "CAS-04", "user5": "CAS-02"}
    for user, front_end in homes.items():
        assert _mail(sites, front_end, user).server == HOMES[user]
    elsewhere = {user: "CAS-01" if home == "CAS-02" else "CAS-02" for user, home in homes.items()}
    names = {"CAS-01": "cas-01", "CAS-02": "cas-02", "CAS-03": "asia", "CAS-04": "asia"}
    for user, front_end in elsewhere.items():
        refused = _mail(sites, front_end, user)
        assert f"{names[homes[user]]}.contoso.com" in refused.text, refused
        assert "AUTHENTICATIONFAILED" not in refused.text
    assert _mail(sites, "CAS-02", "bob").text.startswith("signed in")
    try:
        _edition(sites, "sp2")
        for user, front_end in elsewhere.items():
            assert _mail(sites, front_end, user).server == HOMES[user]
        place = sites.place("CAS-02", "pop3s")
        assert pop3_visit(place, sites.context, f"user3@{DOMAIN}", sites.password("user3")).server == HOMES["user3"]
        assert _mail(sites, "CAS-02", "bob").text.startswith("signed in")
    finally:
        _edition(sites, "rtm")


def test_a_wrong_password_is_refused_where_the_user_signs_in_not_where_the_mailbox_is(sites: Sites) -> None:
    """No other site hears of it."""
    answer = imap_visit(sites.place("CAS-02", "imaps"), sites.context, f"carol@{DOMAIN}", "wrong")
    assert "AUTHENTICATIONFAILED" in answer.text
    sessions = [entry for name in ARRAY for entry in sites.front_ends[name].events("imap.session")]
    assert [
        entry for entry in sessions if entry.get("outcome") == "refused" and entry["user"] == f"carol@{DOMAIN}"
    ] == []


def test_four_front_ends_use_one_organization(sites: Sites) -> None:
    """What the tests above rest on: each front end is another server of the same file."""
    started = {name: front.events("service.started")[-1]["server"] for name, front in sites.front_ends.items()}
    assert started == {name: name for name in FRONT_ENDS}
