"""The redirection page and the error pages as people meet them: in a browser, on a phone, by keyboard.

The pages are our own answers, served on loopback as the front door frames them; host names lead there by the browser's
map.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from browser import PHONE, Browsers
from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as NothingHappened

from gatepost.access.http.answers import Answer, answer
from gatepost.access.http.redirects import redirect
from gatepost.access.http.refusals import refusal, status_of
from gatepost.organization.model import PathClass
from gatepost.routing.outcome import Cause, Redirect
from gatepost.wire.http_path import read_path

USA = "http://www.usa.contoso.com/OWA"
EUROPE = "http://www.europe.contoso.com"
LONG = "http://www." + "a-name-that-is-as-long-as-they-come." * 4 + "contoso.com/OWA"
MIN_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3, for text of usual size."""
MIN_TARGET = 24
"""CSS pixels: WCAG 2.2, 2.5.8."""


def answered(target: str, method: str) -> Answer:
    """What the front end of europe says: `/owa` is in usa, `/long` far away, `/refused/CAUSE` is refused."""
    path, query, route = read_path(target.encode())
    leg: Any = SimpleNamespace(reader=SimpleNamespace(method=method.encode()))
    if route.startswith("/owa"):
        return redirect(leg, Redirect(USA, prefix="/owa"), path, query)
    if route.startswith("/long"):
        return redirect(leg, Redirect(LONG, prefix="/long"), path, query)
    if route.startswith("/refused/"):
        cause = Cause[route.removeprefix("/refused/")]
        status = status_of(cause, PathClass.INTERACTIVE)
        return refusal(PathClass.INTERACTIVE, "owa", status, cause, "m", 10, b"text/html", method.encode())
    return Answer(200, b"", b"text/html", b"<!DOCTYPE html><title>Web mail</title><p>This is the web mail.")


class Handler(BaseHTTPRequestHandler):
    """Writes our answers as they are, and remembers what was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.headers['Host']} {self.path}")
        status, fields, content_type, body = answered(self.path, self.command)
        self.wfile.write(answer(status, body, fields=fields, content_type=content_type, close=True))

    do_POST = do_GET  # noqa: N815 - the base class's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def site() -> Iterator[tuple[dict[str, str], list[str]]]:
    """The browser's map of names, and what was asked for."""
    asked: list[str] = []
    handler = type("Asked", (Handler,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield {"*.contoso.com": f"127.0.0.1:{server.server_port}"}, asked
        server.shutdown()
        thread.join()


Site = tuple[dict[str, str], list[str]]


def test_the_user_is_prompted_to_click_the_url(browser: Browsers, site: Site) -> None:
    """The source's sentence; the click leads to the same place at the other site, the deep link kept."""
    hosts, asked = site
    page = browser.context(hosts).new_page()
    response = page.goto(f"{EUROPE}/owa/?ae=Item&t=IPM.Note&id=Rg%2bAAA")
    assert response is not None
    assert response.status == 200
    link = page.get_by_role("link", name=USA, exact=True)
    assert link.count() == page.get_by_role("link").count() == 1
    link.click()
    page.get_by_text("This is the web mail.").wait_for()
    assert page.url == USA + "/?ae=Item&t=IPM.Note&id=Rg%2bAAA"
    assert "www.usa.contoso.com /OWA/?ae=Item&t=IPM.Note&id=Rg%2bAAA" in asked


def test_they_are_not_redirected_automatically_in_a_browser(browser: Browsers, site: Site) -> None:
    """The source's sentence: for two seconds nothing moves, and nothing else is fetched from the other site."""
    hosts, asked = site
    page = browser.context(hosts).new_page()
    page.goto(f"{EUROPE}/owa/")
    with pytest.raises(NothingHappened):
        page.wait_for_event("framenavigated", timeout=2000)
    assert page.url == f"{EUROPE}/owa/"
    assert not [request for request in asked if request.startswith("www.usa.")]


def test_the_link_works_by_keyboard_and_without_scripts(browser: Browsers, site: Site) -> None:
    """The first Tab is on the link, it is seen there, Enter follows it."""
    hosts, _ = site
    page = browser.context(hosts, javascript=False).new_page()
    page.goto(f"{EUROPE}/owa/")
    page.keyboard.press("Tab")
    link = page.get_by_role("link")
    focused = page.locator("a:focus-visible")
    assert focused.count() == 1
    assert focused.get_attribute("href") == link.get_attribute("href")
    assert page.locator("a:focus-visible").evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.get_by_text("This is the web mail.").wait_for()


PAGES = ["/owa/", "/long/", *(f"/refused/{cause.name}" for cause in Cause)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_readable_on_a_phone(browser: Browsers, site: Site, scheme: str) -> None:
    """At 360 pixels no page scrolls sideways, links are large enough to touch, and all text has contrast."""
    hosts, _ = site
    context = browser.context(hosts, viewport=PHONE)
    page = context.new_page()
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for path in PAGES:
        page.goto(EUROPE + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], path
        assert page.evaluate("innerWidth") == PHONE[0], path
        for link in page.get_by_role("link").all():
            box = link.bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) >= MIN_TARGET, path
            assert box["x"] + box["width"] <= PHONE[0], path
        for text, ratio in contrasts(page):
            assert ratio >= MIN_CONTRAST, (path, text, ratio)


def test_pages_have_what_a_screen_reader_needs(browser: Browsers, site: Site) -> None:
    """A language, a title that says what happened, one main part with one heading, links with names of their own."""
    hosts, _ = site
    page = browser.context(hosts).new_page()
    titles = set()
    for path in PAGES:
        page.goto(EUROPE + path)
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.get_by_role("main").count() == 1
        assert page.get_by_role("heading", level=1).all_inner_texts() == [page.title()]
        assert all(link.inner_text().strip() for link in page.get_by_role("link").all())
        titles.add(page.title())
    assert "Your mailbox is at another address" in titles


def test_try_again_asks_for_the_same_page(browser: Browsers, site: Site) -> None:
    """The link of a temporary fault keeps path and query."""
    hosts, asked = site
    page = browser.context(hosts).new_page()
    page.goto(f"{EUROPE}/refused/BUSY?a=1&b=2")
    asked.clear()
    with page.expect_navigation():
        page.get_by_role("link", name="Try again").click()
    assert asked == ["www.europe.contoso.com /refused/BUSY?a=1&b=2"]


def test_the_error_page_of_a_2003_mailbox_leads_to_exchange(browser: Browsers, site: Site) -> None:
    """The source: they must use the Exchange virtual directory."""
    hosts, _ = site
    page = browser.context(hosts).new_page()
    page.goto(f"{EUROPE}/refused/OLD_MAILBOX")
    page.get_by_role("link", name="/exchange").click()
    page.get_by_text("This is the web mail.").wait_for()
    assert page.url == f"{EUROPE}/exchange/"


def test_what_a_path_holds_is_never_run(browser: Browsers, site: Site) -> None:
    """Path and query full of markup: no dialog, no script, one link."""
    hosts, _ = site
    context = browser.context(hosts)
    page = context.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for attack in (
        "%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
        "?'\"><img src=x onerror=alert(1)>",
        "?javascript:alert(1)",
    ):
        page.goto(f"{EUROPE}/owa/{attack}")
        assert page.locator("script, img").count() == 0
        link = page.get_by_role("link").get_attribute("href") or ""
        assert link.startswith(USA + "/")
    assert dialogs == []


def contrasts(page: Page) -> list[tuple[str, float]]:
    """Each text with the contrast (WCAG 2.2) of its colour on what is behind it."""
    found = page.evaluate(
        """() => {
            const texts = [];
            for (const e of document.querySelectorAll("main *")) {
                if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
                let behind = e;
                while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)")
                    behind = behind.parentElement;
                texts.push([e.innerText, getComputedStyle(e).color, getComputedStyle(behind).backgroundColor]);
            }
            return texts;
        }"""
    )
    assert found
    return [(text, contrast(colour(ink), colour(paper))) for text, ink, paper in found]


def colour(css: str) -> tuple[float, ...]:
    """Red, green, blue of `rgb(…)`, opaque."""
    assert css.startswith("rgb(")
    return tuple(int(part) / 255 for part in re.findall(r"\d+", css))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The contrast ratio of WCAG 2.2."""

    def luminance(rgb: tuple[float, ...]) -> float:
        parts = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)
