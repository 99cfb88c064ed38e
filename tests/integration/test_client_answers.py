"""What real clients are answered by a front end as a process: a browser, a phone, and programs.

CAS-01 is in usa. Alice and Bob have modern mailboxes there; Erin's 2010 mailbox is in europe, which faces the Internet;
Carl's, in asia, cannot be proxied to; Gus still has one on a 2003 server.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest
from activesync import Phone
from browser import Browsers
from doors import Servers, start

from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.servers.mailbox_web import MailboxWeb
from gatepost.lab.toml_text import Table

EUROPE = "https://www.europe.contoso.com"
EAS = "/Microsoft-Server-ActiveSync"
OUTLOOK = "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"
MOBILE = "http://schemas.microsoft.com/exchange/autodiscover/mobilesync/responseschema/2006"
ERRORS = "{http://schemas.microsoft.com/exchange/services/2006/errors}"
WORDS = ("owa", "Microsoft-Server-ActiveSync", "EWS")
USERS = [
    LabUser("alice@contoso.com", "apw", database="DB01"),
    LabUser("bob@contoso.com", "bpw", database="DB02", aliases=("robert@contoso.com",)),
    LabUser("erin@contoso.com", "epw", database="DB03"),
    LabUser("carl@contoso.com", "cpw", database="DB04"),
    LabUser("gus@contoso.com", "gpw", home_server="EX03-01"),
]


class Place:
    """The front end, and the web part of the site that Erin is sent to."""

    def __init__(self, servers: Servers) -> None:
        self.webs = {name: servers.mailbox_web(name) for name in ("MBX-11", "MBX-12")}
        self.europe = servers.mailbox_web("EX10-02", "2010", "europe")
        self.door = start(servers, self._change, USERS)

    def _change(self, front_end: Table, organization: Table) -> None:
        organization["sites"] |= {"europe": {"internet_facing": True}, "asia": {}}
        found = organization["servers"]
        found |= {name: _server("usa", "modern", ["mailbox"], web) for name, web in self.webs.items()}
        both = ["client-access", "mailbox"]
        found["EX10-02"] = _server("europe", "2010", both, self.europe)
        found["EX10-03"] = {"site": "asia", "version": "2010", "roles": both, "endpoints": {"https": {}}}
        found["EX03-01"] = {"site": "usa", "version": "2003", "roles": ["mailbox"], "endpoints": {"https": {}}}
        homes = ("MBX-11", "MBX-12", "EX10-02", "EX10-03")
        organization["databases"] |= {
            f"DB0{n}": {"copies": [{"server": name, "preference": 1}]} for n, name in enumerate(homes, 1)
        }
        inner = {name: f"https://{name.lower()}.contoso.com" for name in ("CAS-01", "EX10-03", "EX03-01")}
        inner |= {name: f"https://{name.lower()}.contoso.com:{web.port}" for name, web in self.webs.items()}
        inner["EX10-02"] = f"https://ex10-02.contoso.com:{self.europe.port}"
        outer = {"CAS-01": "https://mail.contoso.com", "EX10-02": EUROPE}
        organization["virtual_directories"] = [
            {"server": server, "service": word, "path": f"/{word}", "internal_url": f"{url}/{word}"}
            | ({"external_url": f"{outer[server]}/{word}"} if server in outer else {})
            | ({"authentication": ["basic"]} if server == "EX10-03" else {})
            for server, url in inner.items()
            for word in (("exchange", *WORDS[1:2]) if server == "EX03-01" else WORDS)
        ]

    def ask(
        self, path: str, user: str = "", method: str = "GET", body: bytes = b"", **fields: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """A request of `user`, by the first letter of whose name the password is known."""
        context = self.door.client_context
        connection = http.client.HTTPSConnection(*self.door.addresses["https"], timeout=15, context=context)
        headers = {name.replace("_", "-"): value for name, value in fields.items()} | (basic(user) if user else {})
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response, content

    def phone(self, user: str) -> Phone:
        host, port = self.door.addresses["https"]
        return Phone(host, port, f"{user}@contoso.com", f"{user[0]}pw", self.door.client_context)


def _server(site: str, version: str, roles: list[str], web: MailboxWeb) -> Table:
    return {
        "site": site, "version": version, "roles": roles, "address": web.address,
        "endpoints": {"https": {"port": web.port}}, "fqdn": f"{web.name.split()[0].lower()}.contoso.com",
        "sign_in": {"http": "header"},
    }  # fmt: skip


def basic(user: str) -> dict[str, str]:
    token = base64.b64encode(f"{user}@contoso.com:{user[0]}pw".encode()).decode()
    return {"Authorization": f"Basic {token}"}


@pytest.fixture(scope="module")
def place(servers: Servers) -> Iterator[Place]:
    made = Place(servers)
    with made.door:
        yield made


def soap(operation: str, inner: str = "") -> bytes:
    """A request of the web services."""
    return (
        '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:m="urn:m" xmlns:t="urn:t"><s:Body>'
        f"<m:{operation}>{inner}</m:{operation}></s:Body></s:Envelope>"
    ).encode()


def times_of(*addresses: str) -> bytes:
    """An Availability request."""
    data = "".join(f"<t:MailboxData><t:Email><t:Address>{a}</t:Address></t:Email></t:MailboxData>" for a in addresses)
    return soap("GetUserAvailabilityRequest", f"<m:MailboxDataArray>{data}</m:MailboxDataArray>")


def test_a_browser_is_shown_the_page_and_the_click_leads_to_the_mailbox(place: Place, browser: Browsers) -> None:
    """User 1 of the source's figure: the message with the correct URL, then the mailbox at the other site."""
    host, port = place.door.addresses["https"]
    hosts = {
        "mail.contoso.com": f"{host}:{port}",
        "www.europe.contoso.com": f"{place.europe.address}:{place.europe.port}",
    }
    page = browser.context(hosts).new_page()
    page.set_extra_http_headers(basic("erin"))
    response = page.goto("https://mail.contoso.com/owa/?ae=Item&id=1")
    assert response is not None
    assert response.status == 200
    assert page.url.startswith("https://mail.contoso.com/")
    page.get_by_role("link", name=f"{EUROPE}/owa").click()
    page.get_by_text("Mailbox of").wait_for()
    assert page.url == f"{EUROPE}/owa/?ae=Item&id=1"
    assert "EX10-02" in page.title()


def test_a_browser_with_a_2003_mailbox_is_led_to_exchange(place: Place, browser: Browsers) -> None:
    """The source: they receive an error at /owa."""
    host, port = place.door.addresses["https"]
    page = browser.context({"mail.contoso.com": f"{host}:{port}"}).new_page()
    page.set_extra_http_headers(basic("gus"))
    response = page.goto("https://mail.contoso.com/owa/")
    assert response is not None
    assert response.status == 403
    assert page.get_by_role("link").get_attribute("href") == "/exchange/"


def test_a_phone_gets_451_and_follows_it(place: Place) -> None:
    """User 1 by ActiveSync: the error with the other site's URL, where the same phone then synchronizes."""
    answer = place.phone("erin").options()
    assert answer.status == 451
    assert answer.headers["X-MS-Location"] == EUROPE + EAS
    assert answer.headers["Cache-Control"] == "private"
    assert answer.headers["Content-Length"] == "0"
    there = place.phone("erin").at(EUROPE + EAS, place.europe.address, place.europe.port)
    assert there.folder_sync().folders() == {"Inbox on EX10-02": "1"}


def test_a_phone_that_cannot_be_served_gets_an_error_code(place: Place) -> None:
    """The source: without Integrated authentication the request is rejected; no body, not 401."""
    answer = place.phone("carl").options()
    assert (answer.status, answer.headers["Content-Length"]) == (403, "0")


def test_web_services_that_cannot_be_proxied_say_why(place: Place) -> None:
    """By a SOAP fault with the response code."""
    response, body = place.ask("/EWS/Exchange.asmx", "carl", "POST", soap("GetFolder"), Content_Type="text/xml")
    assert response.status == 500
    code = next(ET.fromstring(body).iter(f"{ERRORS}ResponseCode"))
    assert code.text == "ErrorNoDestinationCASDueToKerberosRequirements"


@pytest.mark.parametrize(
    ("addresses", "server"),
    [
        (("alice@contoso.com",), "MBX-11"),
        (("bob@contoso.com", "alice@contoso.com"), "MBX-12"),
        (("robert@contoso.com",), "MBX-12"),
        (("nobody@contoso.com",), "MBX-11"),
    ],
)
@pytest.mark.parametrize(
    "action", ["http://schemas.microsoft.com/exchange/services/2006/messages/GetUserAvailability", ""]
)
def test_availability_goes_by_the_mailbox_that_is_asked_about(
    place: Place, addresses: tuple[str, ...], server: str, action: str
) -> None:
    """Also by its alias, and from clients that send no `SOAPAction`; an unknown one is asked of Alice's own server."""
    fields = {"Content_Type": "text/xml; charset=utf-8"} | ({"SOAPAction": f'"{action}"'} if action else {})
    response, body = place.ask("/EWS/Exchange.asmx", "alice", "POST", times_of(*addresses), **fields)
    assert response.status == 200
    assert f"{server} answered alice@contoso.com".encode() in body


def test_an_anchor_names_the_mailbox_and_never_a_host(place: Place) -> None:
    """Bob's mailbox by its address; hosts and nonsense leave it at Alice's own."""
    anchors = {
        "bob@contoso.com": "MBX-12",
        "": "MBX-11",
        "mbx-12.contoso.com": "MBX-11",
        "Server~mbx-12.contoso.com~1941962754": "MBX-11",
        "x@mbx-12.contoso.com:443/": "MBX-11",
    }
    for anchor, server in anchors.items():
        fields = {"Content_Type": "text/xml", "SOAPAction": "urn:GetFolder", "X_AnchorMailbox": anchor}
        response, _ = place.ask("/EWS/Exchange.asmx", "alice", "POST", soap("GetFolder"), **fields)
        assert response.headers["X-Lab-Server"] == server, anchor


def test_explicit_logon_leads_to_the_other_mailboxs_server(place: Place) -> None:
    """A shared mailbox in the path of the web mail."""
    for path, server in (("/owa/", "MBX-11"), ("/owa/robert@contoso.com/", "MBX-12"), ("/owa/x@y.example/", "MBX-11")):
        response, _ = place.ask(path, "alice")
        assert response.headers["X-Lab-Server"] == server


def discovered(place: Place, user: str, address: str, schema: str) -> dict[str, str | None]:
    """All elements of a plain answer that have text, by their local names; later ones win."""
    body = (
        f"<Autodiscover><Request><EMailAddress>{address}</EMailAddress>"
        f"<AcceptableResponseSchema>{schema}</AcceptableResponseSchema></Request></Autodiscover>"
    ).encode()
    response, answer = place.ask("/Autodiscover/Autodiscover.xml", user, "POST", body, Content_Type="text/xml")
    assert response.status == 200
    return {element.tag.rpartition("}")[2]: element.text for element in ET.fromstring(answer).iter()}


def test_autodiscover_names_the_site_of_the_mailbox(place: Place) -> None:
    """For the own mailbox and another's; an unknown address is an error of the protocol."""
    assert discovered(place, "alice", "alice@contoso.com", MOBILE)["Url"] == f"https://mail.contoso.com{EAS}"
    assert discovered(place, "erin", "erin@contoso.com", MOBILE)["Url"] == EUROPE + EAS
    assert discovered(place, "alice", "erin@contoso.com", OUTLOOK)["EwsUrl"] == f"{EUROPE}/EWS/Exchange.asmx"
    assert discovered(place, "alice", "alice@contoso.com", OUTLOOK)["EwsUrl"] == (
        "https://mail.contoso.com/EWS/Exchange.asmx"
    )
    assert discovered(place, "alice", "nobody@contoso.com", OUTLOOK)["ErrorCode"] == "500"


def test_a_phone_goes_from_autodiscover_to_its_folders(place: Place) -> None:
    """What it is told is where it synchronizes."""
    url = discovered(place, "alice", "alice@contoso.com", MOBILE)["Url"]
    assert url is not None
    phone = place.phone("alice").at(url, *place.door.addresses["https"])
    assert phone.folder_sync().folders() == {"Inbox on MBX-11": "1"}


def test_autodiscover_by_soap(place: Place) -> None:
    """GetUserSettings, signed in."""
    inner = (
        "<m:Request><m:Users><m:User><m:Mailbox>bob@contoso.com</m:Mailbox></m:User></m:Users><m:RequestedSettings>"
        "<m:Setting>ExternalEwsUrl</m:Setting></m:RequestedSettings></m:Request>"
    )
    body = soap("GetUserSettingsRequestMessage", inner)
    response, answer = place.ask("/autodiscover/autodiscover.svc", "alice", "POST", body, Content_Type="text/xml")
    assert response.status == 200
    assert b"<Value>https://mail.contoso.com/EWS/Exchange.asmx</Value>" in answer


def test_who_has_not_signed_in_learns_only_what_is_the_same_for_all(place: Place) -> None:
    """401 for the forms that name a mailbox; JSON for anybody."""
    for path in ("/autodiscover/autodiscover.xml", "/autodiscover/autodiscover.svc"):
        response, _ = place.ask(path, method="POST", body=b"<x/>")
        assert response.status == 401
    answers = set()
    for address in ("alice@contoso.com", "nobody@contoso.com"):
        response, body = place.ask(f"/autodiscover/autodiscover.json?Email={address}&Protocol=ActiveSync")
        assert response.status == 200
        answers.add(json.loads(body)["Url"])
    assert answers == {f"https://mail.contoso.com{EAS}"}


def test_a_dead_service_is_a_fault_to_wait_for(place: Place) -> None:
    """503 with `Retry-After` in each form, never 401; back at once when the service is."""
    web = place.webs["MBX-12"]
    web.go_down("close")
    try:
        response, body = place.ask("/EWS/Exchange.asmx", "bob", "POST", soap("GetFolder"), Content_Type="text/xml")
        assert (response.status, response.headers["Retry-After"]) == (503, "10")
        assert next(ET.fromstring(body).iter(f"{ERRORS}ResponseCode")).text == "ErrorNoRespondingCASInDestinationSite"
        response, body = place.ask("/owa/", "bob", Accept="text/html")
        assert (response.status, response.headers["Retry-After"]) == (503, "10")
        assert b"Try again" in body
        assert place.phone("bob").folder_sync().status == 503
    finally:
        web.come_back()
