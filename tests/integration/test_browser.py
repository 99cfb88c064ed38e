"""The browser of the tests itself: host names, certificates, phones, and a test without one afterwards."""

from __future__ import annotations

import asyncio

import pytest
from browser import PHONE, Browsers, resolver_rules
from doors import Servers
from playwright.sync_api import Error

from gatepost.lab.servers.mailbox_web import MailboxWeb


@pytest.fixture(scope="module")
def page_server(servers: Servers) -> MailboxWeb:
    """The web part of a lab's mailbox server."""
    return servers.mailbox_web("MBX-09")


def place(server: MailboxWeb) -> str:
    """Address and port."""
    return f"{server.address}:{server.port}"


def test_a_host_name_leads_where_the_map_says(browser: Browsers, page_server: MailboxWeb) -> None:
    """Without a port in the address, and the server sees the name."""
    page = browser.context({"www.usa.contoso.com": place(page_server)}).new_page()
    answer = page.goto("https://www.usa.contoso.com/owa/")
    assert answer is not None
    assert answer.status == 200
    assert "MBX-09" in page.title()
    assert page.get_by_role("row", name="Host").inner_text().endswith("www.usa.contoso.com")


def test_no_other_host_is_found(browser: Browsers, page_server: MailboxWeb) -> None:
    """Nothing leaves this machine; a loopback address works."""
    context = browser.context({"www.usa.contoso.com": place(page_server)})
    with pytest.raises(Error, match="ERR_NAME_NOT_RESOLVED"):
        context.new_page().goto("https://www.europe.contoso.com/owa/")
    page = context.new_page()
    page.goto(f"https://{place(page_server)}/owa/")
    assert "MBX-09" in page.title()


def test_an_unknown_authority_is_refused_if_wished(browser: Browsers, page_server: MailboxWeb) -> None:
    """The lab's authority is in no store."""
    page = browser.context({"mbx-09.contoso.com": place(page_server)}, ca_errors_ignored=False).new_page()
    with pytest.raises(Error, match="ERR_CERT_AUTHORITY_INVALID"):
        page.goto("https://mbx-09.contoso.com/")


def test_two_contexts_share_no_cookie(browser: Browsers, page_server: MailboxWeb) -> None:
    """Each is a browser of its own; one is a phone with scripts switched off."""
    hosts = {"mbx-09.contoso.com": place(page_server)}
    first = browser.context(hosts)
    first.add_cookies([{"name": "a", "value": "1", "url": "https://mbx-09.contoso.com"}])
    assert first.new_page().evaluate("innerWidth") == 1280
    phone = browser.context(hosts, viewport=PHONE, javascript=False)
    assert phone.cookies() == []
    page = phone.new_page()
    page.goto("https://mbx-09.contoso.com/")
    assert page.viewport_size == {"width": 360, "height": 640}


def test_an_event_loop_runs_after_the_browser(browser: Browsers) -> None:
    """The next test may be asynchronous."""
    browser.context()
    browser.close()
    asyncio.run(asyncio.sleep(0))


def test_the_map_ends_with_nothing_found() -> None:
    """The order counts: Chromium takes the first rule that fits."""
    rules = "MAP a 127.0.0.1:1, MAP * ~NOTFOUND, EXCLUDE 127.*, EXCLUDE localhost"
    assert resolver_rules({"a": "127.0.0.1:1"}) == rules
