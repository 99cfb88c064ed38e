"""Forms sign-in in a real browser: two front ends with one certificate behind one name, mailbox servers behind them."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from browser import PHONE, Browsers
from doors import FrontDoor, Servers, start
from playwright.sync_api import BrowserContext, Page, expect

from gatepost.lab.servers.gatepost import Gatepost, LabUser, write_configuration
from gatepost.lab.servers.process import Address, free_ports
from gatepost.lab.toml_text import Table

NAME = "mail.contoso.com"
HOME = f"https://{NAME}/owa/"
SIGN_IN = "__Host-gatepost"
USERS = [
    LabUser("alice@contoso.com", "apw", database="DB01"),
    LabUser("bob@contoso.com", "bpw", database="DB02"),
]


class Switch:
    """The one name: carries every connection to the front end that is chosen, as a balancer would."""

    def __init__(self, servers: Servers) -> None:
        address = servers.address()
        self.place: Address = (address, free_ports(address, 1)[0])
        self._target: Address | None = None
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(self.place)
        threading.Thread(target=self._accept, daemon=True).start()

    def to(self, door: FrontDoor) -> None:
        """From now on: `door`. What is open to another ends."""
        self._target = door.addresses["https"]
        self._end()

    def close(self) -> None:
        self._listener.close()
        self._end()

    def _end(self) -> None:
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                assert self._target is not None
                server = socket.create_connection(self._target)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        self._open.add(source)
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()


class Fleet:
    """CAS-01 and CAS-02 of one array share all their files; MBX-07 is told the user's name, MBX-08 wants Basic."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.webs = {"MBX-07": servers.mailbox_web("MBX-07"), "MBX-08": servers.mailbox_web("MBX-08")}
        self.address = servers.address()
        self.ports = dict(zip(("imap", "https"), free_ports(self.address, 2), strict=True))
        self.switch = Switch(servers)
        self.first = start(servers, self._change, USERS)
        self.second = self._second()
        self.switch.to(self.first)

    def _change(self, front_end: Table, organization: Table) -> None:
        front_end["workers"] = 2
        first = organization["servers"]["CAS-01"]
        ports = {name: {"port": port} for name, port in self.ports.items()}
        second = first | {"address": self.address, "endpoints": ports}
        organization["servers"] = {"CAS-01": first, "CAS-02": second}
        organization["arrays"] = {"mail": {"site": "usa", "fqdn": NAME, "members": ["CAS-01", "CAS-02"]}}
        directories = organization["virtual_directories"] = [
            {"server": name, "service": "owa", "path": "/owa", "authentication": ["forms"]}
            for name in ("CAS-01", "CAS-02")
        ]
        for number, (name, web) in enumerate(self.webs.items(), 1):
            fqdn = f"{name.lower()}.contoso.com"
            organization["servers"][name] = {
                "site": "usa", "roles": ["mailbox"], "address": web.address, "fqdn": fqdn,
                "endpoints": {"https": {"port": web.port}}, "sign_in": {"http": ("header", "basic")[number - 1]},
            }  # fmt: skip
            inner = f"https://{fqdn}:{web.port}/owa"
            directories.append({"server": name, "service": "owa", "path": "/owa", "internal_url": inner})
            organization["databases"][f"DB0{number}"] = {"copies": [{"server": name, "preference": 1}]}

    def _second(self) -> FrontDoor:
        first = self.first
        directory = self.servers.scratch / f"front-{self.address}"
        front_end = first.front_end | {"server": "CAS-02"}
        path = write_configuration(directory / "gatepost.toml", front_end, first.organization)
        places = {name: (self.address, port) for name, port in self.ports.items()}
        process = Gatepost("CAS-02", directory, path, places)
        process.start()
        process.wait_ready()
        return FrontDoor(process, front_end, first.organization, first.ca)

    def set_forms(self, door: FrontDoor, **forms: object) -> None:
        """Settings of forms sign-in, by a reload."""
        door.front_end["forms"] = forms
        self._reload(door)

    @staticmethod
    def _reload(door: FrontDoor) -> None:
        door.write()
        before = len(door.process.events("configuration.reloaded"))
        door.process.signal(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while len(door.process.events("configuration.reloaded")) == before:
            assert time.monotonic() < deadline, door.process.log_tail()
            time.sleep(0.05)

    def stop(self) -> None:
        self.switch.close()
        self.second.stop()
        self.first.stop()


@pytest.fixture(scope="module")
def fleet(servers: Servers) -> Iterator[Fleet]:
    made = Fleet(servers)
    yield made
    made.stop()


def context(browser: Browsers, fleet: Fleet, **options: object) -> BrowserContext:
    fleet.switch.to(fleet.first)
    address, port = fleet.switch.place
    return browser.context({NAME: f"{address}:{port}"}, **options)  # type: ignore[arg-type]


def sign_in(page: Page, name: str = "alice", password: str = "apw", *, private: bool = False) -> None:
    page.get_by_label("Name or e-mail address").fill(name)
    page.get_by_label("Password").fill(password)
    if private:
        page.get_by_label("my own").check()
    page.get_by_role("button", name="Sign in").click()


def cookie(page: Page) -> dict[str, object] | None:
    found = [dict(c) for c in page.context.cookies(HOME) if c.get("name") == SIGN_IN]
    return found[0] if found else None


def test_sign_in_on_one_front_end_and_the_next_click_on_another(browser: Browsers, fleet: Fleet) -> None:
    """SPEC B6, without a script, from a deep link; each user on their own server."""
    page = context(browser, fleet, javascript=False).new_page()
    page.goto(HOME + "?ae=Folder&t=IPF.Note")
    expect(page).to_have_title("Sign in")
    sign_in(page)
    assert page.url == HOME + "?ae=Folder&t=IPF.Note"
    expect(page).to_have_title(re.compile("alice@contoso.com on MBX-07"))
    found = cookie(page)
    assert found is not None
    assert (found["secure"], found["httpOnly"], found["sameSite"], found["expires"]) == (True, True, "Lax", -1)
    fleet.switch.to(fleet.second)
    page.goto(HOME + "next")
    expect(page).to_have_title(re.compile("alice@contoso.com on MBX-07"))
    fleet.switch.to(fleet.first)
    assert fleet.second.process.wait_for_event("http.connection", user="alice@contoso.com")["outcome"] == "signed in"
    assert fleet.second.process.events("forms.signed_in") == []


def test_a_server_that_wants_basic_gets_it_at_either_front_end(browser: Browsers, fleet: Fleet) -> None:
    """The sealed cookie carries what that server needs."""
    page = context(browser, fleet).new_page()
    page.goto(HOME)
    sign_in(page, "bob@contoso.com", "bpw")
    expect(page).to_have_title(re.compile("bob@contoso.com on MBX-08"))
    fleet.switch.to(fleet.second)
    page.goto(HOME)
    expect(page).to_have_title(re.compile("bob@contoso.com on MBX-08"))


def test_a_wrong_password_then_the_right_one(browser: Browsers, fleet: Fleet) -> None:
    """The page says so, keeps the name and the wish, and has the focus on the password."""
    page = context(browser, fleet, javascript=False).new_page()
    page.goto(HOME + "deep")
    sign_in(page, "alice", "wrong")
    expect(page.get_by_role("alert")).to_have_text(re.compile("name or the password is not right"))
    expect(page.get_by_label("Name or e-mail address")).to_have_value("alice")
    expect(page.get_by_label("Password")).to_have_value("")
    expect(page.get_by_label("Password")).to_be_focused()
    sign_in(page)
    assert page.url == HOME + "deep"


def test_signing_out_ends_it_at_both_front_ends(browser: Browsers, fleet: Fleet) -> None:
    """A copy of the cookie, taken before, is void too, wherever it goes."""
    page = context(browser, fleet, javascript=False).new_page()
    page.goto(HOME)
    sign_in(page)
    expect(page).to_have_title(re.compile("alice"))
    stolen = page.context.cookies()
    page.goto(HOME + "logoff")
    expect(page.get_by_role("heading")).to_have_text("You are signed out")
    assert cookie(page) is None
    page.get_by_role("link", name="Sign in again").click()
    expect(page).to_have_title("Sign in")
    thief = context(browser, fleet)
    thief.add_cookies(stolen)  # type: ignore[arg-type]
    for door in (fleet.first, fleet.second):
        fleet.switch.to(door)
        deadline = time.monotonic() + 2  # the other front end knows within a second
        other = thief.new_page()
        other.goto(HOME)
        while other.title() != "Sign in":
            assert time.monotonic() < deadline
            other.goto(HOME)


def test_another_sites_link_asks_before_it_signs_out(browser: Browsers, fleet: Fleet) -> None:
    """An image or link elsewhere is a nuisance at most."""
    page = context(browser, fleet, javascript=False).new_page()
    page.goto(HOME)
    sign_in(page)
    evil = f'<a href="{HOME}logoff">prize</a><img src="{HOME}logoff">'
    page.route("https://evil.example/", lambda route: route.fulfill(body=evil, content_type="text/html"))
    page.goto("https://evil.example/")
    page.get_by_role("link", name="prize").click()
    expect(page.get_by_role("heading")).to_have_text("Sign out?")
    assert cookie(page) is not None
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading")).to_have_text("You are signed out")
    assert cookie(page) is None


def test_when_the_time_is_over_the_page_says_so(browser: Browsers, fleet: Fleet) -> None:
    """Also for a script in a page that was left open: 440. The wish is kept."""
    page = context(browser, fleet).new_page()
    page.goto(HOME)
    sign_in(page)
    expect(page).to_have_title(re.compile("alice"))
    fleet.set_forms(fleet.first, public_seconds=0.2)
    try:
        time.sleep(0.4)  # the wall clock of another process
        assert page.evaluate("fetch('/owa/news').then(r => r.status)") == 440
        page.goto(HOME + "later")
        expect(page.get_by_role("status")).to_have_text(re.compile("nothing happened for a while"))
    finally:
        fleet.set_forms(fleet.first)
    page.reload()
    sign_in(page)
    assert page.url == HOME + "later"


def test_a_new_password_ends_sign_ins_with_the_old_one(browser: Browsers, fleet: Fleet) -> None:
    """And a disabled user's; at the front end that has not heard of the command either."""
    page = context(browser, fleet, javascript=False).new_page()
    page.goto(HOME)
    sign_in(page, "bob", "bpw", private=True)
    expect(page).to_have_title(re.compile("bob"))
    fleet.switch.to(fleet.second)
    page.goto(HOME)
    fleet.first.command("user", "set", "bob", "--disabled")
    try:
        _until_asked(page)
        expect(page.get_by_role("status")).to_have_text(re.compile("no longer valid"))
    finally:
        fleet.first.command("user", "set", "bob", "--enabled")


def _until_asked(page: Page) -> None:
    deadline = time.monotonic() + 5
    page.goto(HOME)
    while page.title() != "Sign in":
        assert time.monotonic() < deadline
        page.goto(HOME)


def test_another_certificate_voids_and_a_listed_key_does_not(browser: Browsers, fleet: Fleet) -> None:
    """The change of a certificate as docs/sign-in-page.md describes it, one front end after the other."""
    old, folder = fleet.first.front_end["private_key"], fleet.servers.scratch
    pair = fleet.servers.authority.issue(f"front-{time.monotonic_ns()}", NAME, fleet.first.addresses["https"][0])
    saved = {key: fleet.second.front_end[key] for key in ("certificate", "private_key")}
    kept = folder / "front-old.key"
    shutil.copy(old, kept)
    page = context(browser, fleet, javascript=False).new_page()
    page.goto(HOME)
    sign_in(page)
    expect(page).to_have_title(re.compile("alice"))
    try:
        fleet.second.front_end |= {"certificate": str(pair.certificate), "private_key": str(pair.private_key)}
        fleet.set_forms(
            fleet.second, also_opens=[{"private_key": str(kept), "until": datetime(2099, 1, 1, tzinfo=UTC)}]
        )
        fleet.switch.to(fleet.second)
        page.goto(HOME)
        expect(page).to_have_title(re.compile("alice"))
        fleet.set_forms(fleet.second)
        page.goto(HOME)
        expect(page).to_have_title("Sign in")
    finally:
        fleet.second.front_end |= saved
        fleet.set_forms(fleet.second)


def test_a_phone_shows_the_page_whole(browser: Browsers, fleet: Fleet) -> None:
    """360 pixels: nothing to scroll sideways, everything to tap is large enough, text is readable; dark as well."""
    phone = context(browser, fleet, viewport=PHONE)
    page = phone.new_page()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(HOME)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        for control in page.locator("input:not([type=hidden]):not([type=radio]), button, .choice").all():
            box = control.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360
            assert box["height"] >= 40
        for selector in ("label", "button", "legend", ".dim", "h1"):
            assert _contrast(page, selector) >= 4.5, (scheme, selector)
    page.get_by_label("Name or e-mail address").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").tap()
    expect(page.get_by_role("alert")).to_be_visible()
    assert _contrast(page, ".bad") >= 4.5


def _contrast(page: Page, selector: str) -> float:
    """WCAG 2's contrast of an element's text with what is behind it."""
    found = page.locator(selector).first.evaluate(
        """element => {
            const numbers = text => text.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
                .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            let behind = element;
            while (behind && (numbers(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0)
                behind = behind.parentElement;
            const pair = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]
                .map(text => light(numbers(text)));
            return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        }"""
    )
    return float(found)


def test_the_keyboard_is_enough(browser: Browsers, fleet: Fleet) -> None:
    """From the name, which has the focus, by Tab, arrow and Enter."""
    page = context(browser, fleet, javascript=False).new_page()
    page.goto(HOME)
    expect(page.get_by_label("Name or e-mail address")).to_be_focused()
    page.keyboard.type("alice")
    page.keyboard.press("Tab")
    page.keyboard.type("apw")
    page.keyboard.press("Tab")
    expect(page.get_by_label("used by others")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("my own")).to_be_checked()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Sign in")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_title(re.compile("alice"))
    assert fleet.first.process.wait_for_event("forms.signed_in", private=True, user="alice@contoso.com")


def test_what_password_managers_and_screen_readers_find(browser: Browsers, fleet: Fleet) -> None:
    """By the names they look for; the policy lets nothing else run, and the browser reports nothing."""
    page = context(browser, fleet).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(HOME)
    name, password = page.get_by_label("Name or e-mail address"), page.get_by_label("Password")
    assert name.get_attribute("autocomplete") == "username"
    assert name.get_attribute("autocapitalize") == "none"
    assert password.get_attribute("autocomplete") == "current-password"
    assert password.get_attribute("type") == "password"
    expect(page.get_by_role("group", name="This computer is")).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.evaluate("getComputedStyle(document.querySelector('button')).borderRadius") != "0px", "the style counts"
    assert said == []
    page.evaluate("() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
                  " document.body.append(s); }")  # fmt: skip
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in text for text in said)


def test_the_page_is_in_no_frame(browser: Browsers, fleet: Fleet) -> None:
    """Nobody's site can put itself over it."""
    page = context(browser, fleet).new_page()
    evil = f'<iframe src="{HOME}"></iframe>'
    page.route("https://evil.example/", lambda route: route.fulfill(body=evil, content_type="text/html"))
    page.goto("https://evil.example/")
    frame = page.frames[1]
    frame.wait_for_load_state()
    assert frame.get_by_label("Password").count() == 0


def test_secrets_are_in_no_log(browser: Browsers, fleet: Fleet) -> None:
    """Passwords, cookies and tokens of a whole run."""
    page = context(browser, fleet).new_page()
    page.goto(HOME)
    token = page.locator("input[name=token]").get_attribute("value")
    sign_in(page, "alice", "s3cret-wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    sign_in(page)
    expect(page).to_have_title(re.compile("alice"))
    found = cookie(page)
    assert found is not None
    page.context.close()
    log = fleet.first.process.output.read_text()
    assert "forms.signed_in" in log
    for secret in ("s3cret-wrong", token, str(found["value"])):
        assert secret is not None
        assert secret not in log
