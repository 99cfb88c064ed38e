"""Autodiscover on connections: plain XML, SOAP and JSON, for the caller's mailbox and others, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import pytest
from http_harness import World, directories, get, head_of

from gatepost.access.http import front
from gatepost.access.http.autodiscover.service import Autodiscover
from gatepost.access.http.client_leg import HttpClientLeg
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.organization.model import Server, Site, Version, VirtualDirectory
from gatepost.routing.outcome import Mailbox
from gatepost.wire.http_path import read_path

ALICE = User("alice@contoso.com", Mailbox("DB1"))
PATHS = ("/owa", "/EWS", "/ecp", "/OAB", "/Microsoft-Server-ActiveSync")
OUTLOOK = "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"
MOBILE = "http://schemas.microsoft.com/exchange/autodiscover/mobilesync/responseschema/2006"
PLAIN = "{http://schemas.microsoft.com/exchange/autodiscover/responseschema/2006}"
OUT, M = f"{{{OUTLOOK}}}", f"{{{MOBILE}}}"
A = "{http://schemas.microsoft.com/exchange/2010/Autodiscover}"
SOAP = "{http://schemas.xmlsoap.org/soap/envelope/}"
TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
XML, SVC = "/Autodiscover/Autodiscover.xml", "/autodiscover/autodiscover.svc"


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Everybody is Alice, and every request is Autodiscover's. The client's address is in no site."""
    world = World(virtual=[d for s in ("MBX-1", "MBX-2") for d in directories(s, *PATHS)])
    sites = {"usa": Site("usa", (ip_network("10.1.0.0/16"),), internet_facing=True)}
    change(world, sites=sites)
    autodiscover = Autodiscover(world.door)

    def begin(leg: HttpClientLeg) -> None:
        path, query, route = read_path(leg.reader.target)
        assert path
        autodiscover.collect(leg, ALICE, route, query)

    monkeypatch.setattr(front, "begin", begin)
    return world


def change(world: World, **changes: object) -> None:
    organization = replace(world.door.configuration.organization, **changes)  # type: ignore[arg-type]
    world.door.configuration = replace(world.door.configuration, organization=organization)


def plain(address: str, schema: str = OUTLOOK, extra: str = "") -> bytes:
    """A plain request."""
    return (
        '<?xml version="1.0" encoding="utf-8"?><Autodiscover xmlns="urn:request"><Request>'
        f"<EMailAddress>{address}</EMailAddress>{extra}<AcceptableResponseSchema>{schema}</AcceptableResponseSchema>"
        "</Request></Autodiscover>"
    ).encode()


def settings(*wanted: str, users: tuple[str, ...] = ("alice@contoso.com",), message_id: str = "") -> bytes:
    """A GetUserSettings request."""
    mailboxes = "".join(f"<a:User><a:Mailbox>{user}</a:Mailbox></a:User>" for user in users)
    names = "".join(f"<a:Setting>{name}</a:Setting>" for name in wanted)
    header = f"<w:MessageID>{message_id}</w:MessageID>" if message_id else ""
    return (
        '<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/" xmlns:a="urn:a" xmlns:w="urn:w">'
        f"<soap:Header>{header}</soap:Header><soap:Body><a:GetUserSettingsRequestMessage><a:Request>"
        f"<a:Users>{mailboxes}</a:Users><a:RequestedSettings>{names}</a:RequestedSettings></a:Request>"
        "</a:GetUserSettingsRequestMessage></soap:Body></soap:Envelope>"
    ).encode()


async def post(world: World, path: str, body: bytes, address: str = "192.0.2.7") -> tuple[str, ET.Element]:
    """Status line and document."""
    first, fields, answer = head_of(await world.client(address=address).send(get(path, method="POST", body=body)))
    assert fields["content-type"].startswith("text/xml")
    return first, ET.fromstring(answer)


def error_of(document: ET.Element) -> tuple[str | None, str | None]:
    error = document.find(f"{PLAIN}Response/{PLAIN}Error")
    assert error is not None
    assert (error.get("Time") or "").count(":") == 2
    return error.findtext(f"{PLAIN}ErrorCode"), error.findtext(f"{PLAIN}Message")


def section(document: ET.Element, kind: str) -> dict[str, str | None]:
    """A protocol's section of Outlook's form."""
    for protocol in document.iter(f"{OUT}Protocol"):
        if protocol.findtext(f"{OUT}Type") == kind:
            return {element.tag.removeprefix(OUT): element.text for element in protocol}
    return {}


async def test_outlook_outside(world: World) -> None:
    """External URLs under EXPR, IMAP with implicit TLS, web mail; nothing internal."""
    first, document = await post(world, XML, plain("alice@contoso.com"))
    assert first == "HTTP/1.1 200 OK"
    assert document.findtext(f"{OUT}Response/{OUT}Account/{OUT}Action") == "settings"
    assert document.findtext(f"{OUT}Response/{OUT}User/{OUT}AutoDiscoverSMTPAddress") == "alice@contoso.com"
    outside = section(document, "EXPR")
    assert outside["EwsUrl"] == outside["ASUrl"] == "https://mail.contoso.com/EWS/Exchange.asmx"
    assert outside["OABUrl"] == "https://mail.contoso.com/OAB/"
    assert outside["EcpUrl"] == "https://mail.contoso.com/ecp/"
    imap = section(document, "IMAP")
    assert (imap["Server"], imap["Port"], imap["LoginName"]) == ("mail.contoso.com", "993", "alice@contoso.com")
    assert section(document, "POP3") == {}
    assert document.findtext(f".//{OUT}External/{OUT}OWAUrl") == "https://mail.contoso.com/owa/"
    assert section(document, "EXCH") == {}
    assert document.find(f".//{OUT}Internal") is None


async def test_outlook_inside(world: World) -> None:
    """A client in a site's subnet is told internal URLs as well."""
    _, document = await post(world, XML, plain("alice@contoso.com"), "10.1.2.3")
    assert section(document, "EXCH")["EwsUrl"] == "https://outlook.contoso.com/EWS/Exchange.asmx"
    assert section(document, "EXPR")["EwsUrl"] == "https://mail.contoso.com/EWS/Exchange.asmx"
    assert document.findtext(f".//{OUT}Internal/{OUT}OWAUrl") == "https://outlook.contoso.com/owa/"


async def test_a_phone(world: World) -> None:
    """ActiveSync's form: one URL."""
    _, document = await post(world, XML, plain("alice@contoso.com", MOBILE))
    response = document.find(f"{M}Response")
    assert response is not None
    assert response.findtext(f"{M}User/{M}EMailAddress") == "alice@contoso.com"
    server = response.find(f"{M}Action/{M}Settings/{M}Server")
    assert server is not None
    assert server.findtext(f"{M}Type") == "MobileSync"
    assert server.findtext(f"{M}Url") == "https://mail.contoso.com/Microsoft-Server-ActiveSync"


async def test_a_phone_without_activesync(world: World) -> None:
    """An error of the protocol, status 2."""
    change(world, virtual_directories=())
    _, document = await post(world, XML, plain("alice@contoso.com", MOBILE))
    assert document.findtext(f"{M}Response/{M}Action/{M}Error/{M}Status") == "2"


async def test_without_a_body_it_is_the_users_own_mailbox(world: World) -> None:
    """GET, for Outlook."""
    _, _, body = head_of(await world.client().send(get(XML)))
    assert ET.fromstring(body).findtext(f".//{OUT}AutoDiscoverSMTPAddress") == "alice@contoso.com"


async def test_another_mailbox_of_the_organization(world: World) -> None:
    """By its own server: Bob's has no web services."""
    virtual = tuple(directories("MBX-1", *PATHS))
    change(world, virtual_directories=virtual)
    _, document = await post(world, XML, plain("bob@contoso.com"))
    assert document.findtext(f".//{OUT}AutoDiscoverSMTPAddress") == "bob@contoso.com"
    assert section(document, "EXPR") == {}
    assert section(document, "IMAP")["LoginName"] == "bob"
    _, document = await post(world, XML, plain("carol@contoso.com"))
    assert section(document, "EXPR")["EwsUrl"] == "https://outlook.contoso.com/EWS/Exchange.asmx"


async def test_settings_do_not_wait_for_a_database(world: World) -> None:
    """With no active copy the answer is the same: a phone set up during a failover is set up right."""
    _, before = await post(world, XML, plain("alice@contoso.com"))
    world.active.clear()
    _, after = await post(world, XML, plain("alice@contoso.com"))
    assert section(after, "EXPR") == section(before, "EXPR")


@pytest.mark.parametrize("schema", [OUTLOOK, MOBILE])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (lambda schema: plain("nobody@contoso.com", schema), "500"),
        (lambda schema: plain("https://mbx-1/", schema), "500"),
        (lambda schema: plain("", schema), "500"),
        (lambda schema: plain("alice@contoso.com", "urn:other"), "601"),
        (lambda schema: b"hello", "600"),
        (lambda schema: b"<Autodiscover/>", "600"),
        (lambda schema: plain("alice@contoso.com", schema)[:-20], "600"),
        (lambda schema: b"<!DOCTYPE a>" + plain("alice@contoso.com", schema)[38:], "600"),
    ],
)
async def test_errors_of_the_plain_forms(world: World, schema: str, body: Callable[[str], bytes], code: str) -> None:
    """500 for an address that nobody has, 601 for another form, 600 for what is not understood; HTTP says 200."""
    first, document = await post(world, XML, body(schema))
    assert first == "HTTP/1.1 200 OK"
    assert error_of(document)[0] == code


async def test_a_newer_mailbox_is_at_another_sites_autodiscover(world: World) -> None:
    """`redirectUrl`, and `RedirectUrl` in SOAP: where this front end must not proxy (C2)."""
    organization = world.door.configuration.organization
    servers: dict[str, Server] = dict(organization.servers)
    servers["CAS-01"] = replace(servers["CAS-01"], version=Version.V2010)
    servers["CAS-02"] = replace(organization.servers["CAS-01"], name="CAS-02", site="europe")
    servers["MBX-1"] = replace(servers["MBX-1"], site="europe")
    there = VirtualDirectory("CAS-02", "Autodiscover", "/Autodiscover", None, "https://eu.contoso.com/Autodiscover")
    sites = {**organization.sites, "europe": Site("europe", internet_facing=True)}
    change(world, servers=servers, sites=sites, virtual_directories=(*organization.virtual_directories, there))
    _, document = await post(world, XML, plain("alice@contoso.com"))
    account = document.find(f"{OUT}Response/{OUT}Account")
    assert account is not None
    assert account.findtext(f"{OUT}Action") == "redirectUrl"
    assert account.findtext(f"{OUT}RedirectUrl") == "https://eu.contoso.com/Autodiscover/autodiscover.xml"
    _, document = await post(world, SVC, settings("ExternalEwsUrl"))
    user = next(document.iter(f"{A}UserResponse"))
    assert user.findtext(f"{A}ErrorCode") == "RedirectUrl"
    assert user.findtext(f"{A}RedirectTarget") == "https://eu.contoso.com/Autodiscover/autodiscover.svc"


async def test_user_settings(world: World) -> None:
    """What was asked for: values with their types, and errors for what is not to be had."""
    wanted = (
        "UserDisplayName", "AutoDiscoverSMTPAddress", "ExternalEwsUrl", "InternalEwsUrl", "ExternalMailboxServer",
        "ExternalMailboxServerRequiresSSL", "ActiveDirectoryServer", "ExternalWebClientUrls",
        "ExternalImap4Connections", "ExternalPop3Connections", "UserDisplayName", "Bad&lt;Name",
    )  # fmt: skip
    first, document = await post(world, SVC, settings(*wanted, message_id="urn:uuid:1"))
    assert first == "HTTP/1.1 200 OK"
    header = document.find(f"{SOAP}Header")
    assert header is not None
    assert [e.text for e in header if e.tag.endswith("RelatesTo")] == ["urn:uuid:1"]
    assert document.findtext(f"{SOAP}Body/{A}GetUserSettingsResponseMessage/{A}Response/{A}ErrorCode") == "NoError"
    found = {e.findtext(f"{A}Name"): e for e in document.iter(f"{A}UserSetting")}
    assert {name: e.findtext(f"{A}Value") for name, e in found.items() if e.get(TYPE) == "StringSetting"} == {
        "UserDisplayName": "alice@contoso.com",
        "AutoDiscoverSMTPAddress": "alice@contoso.com",
        "ExternalEwsUrl": "https://mail.contoso.com/EWS/Exchange.asmx",
        "ExternalMailboxServer": "mail.contoso.com",
        "ExternalMailboxServerRequiresSSL": "True",
    }
    web = found["ExternalWebClientUrls"]
    assert web.get(TYPE) == "WebClientUrlCollectionSetting"
    assert web.findtext(f"{A}WebClientUrls/{A}WebClientUrl/{A}Url") == "https://mail.contoso.com/owa/"
    pop3 = found["ExternalPop3Connections"].find(f"{A}ProtocolConnections/{A}ProtocolConnection")
    assert pop3 is not None
    assert [e.text for e in pop3] == ["TLS", "mail.contoso.com", "110"]
    errors = [
        (e.findtext(f"{A}SettingName"), e.findtext(f"{A}ErrorCode")) for e in document.iter(f"{A}UserSettingError")
    ]
    assert errors == [(n, "SettingIsNotAvailable") for n in ("InternalEwsUrl", "ActiveDirectoryServer", "Bad<Name")]


async def test_user_settings_of_several(world: World) -> None:
    """Each user has an answer of his own; one who is unknown spoils nothing for the others."""
    users = ("bob@contoso.com", "nobody@contoso.com", "<b/>", "alice@contoso.com")
    _, document = await post(world, SVC, settings("InternalEwsUrl", users=users), "10.1.0.9")
    codes = [e.findtext(f"{A}ErrorCode") for e in document.iter(f"{A}UserResponse")]
    assert codes == ["NoError", "InvalidUser", "InvalidUser", "NoError"]
    values = [e.findtext(f"{A}Value") for e in document.iter(f"{A}UserSetting")]
    assert values == ["https://outlook.contoso.com/EWS/Exchange.asmx"] * 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<x/>",
        settings(),
        settings("UserDN", users=()),
        settings("UserDN", users=("a@contoso.com",) * 101),
        settings(*("UserDN",) * 101),
        b'<!DOCTYPE a [<!ENTITY a "b">]>' + settings("UserDN"),
    ],
)
async def test_a_request_that_is_not_understood_is_a_fault(world: World, body: bytes) -> None:
    """SOAP 1.1: status 500, the client's fault."""
    first, document = await post(world, SVC, body)
    assert first.startswith("HTTP/1.1 500 ")
    assert document.findtext(f"{SOAP}Body/{SOAP}Fault/faultcode") == "s:Client"


async def test_bodies_are_bounded(world: World) -> None:
    """413 before anything is read."""
    head = get(SVC, "Content-Length: 70000", method="POST")
    assert (await world.client().send(head)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(("path", "body"), [(XML, plain("bob@contoso.com")), (SVC, settings("A", users=("b@c.de",)))])
async def test_without_the_directory_it_is_503(world: World, path: str, body: bytes) -> None:
    """Temporary: neither an unknown address nor a wrong password."""
    world.sign_in.look_up = Mock(side_effect=DirectoryUnavailable("down"))  # type: ignore[method-assign]
    answer = await world.client().send(get(path, method="POST", body=body))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 10\r\n" in answer
    assert world.log.of("http.refused")[0]["reason"] == "down"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("PUT", XML, 405), ("GET", SVC, 405), ("GET", "/autodiscover/other", 404), ("HEAD", XML, 200)],
)
async def test_other_methods_and_paths(world: World, method: str, path: str, status: int) -> None:
    """405 with what is allowed, 404."""
    first, fields, body = head_of(await world.client().send(get(path, method=method)))
    assert first.startswith(f"HTTP/1.1 {status} ")
    assert ("allow" in fields) == (status == 405)
    assert method != "HEAD" or not body


@pytest.mark.parametrize(
    ("target", "status", "answer"),
    [
        ("?Email=a@b.c&Protocol=ActiveSync", 200, "https://mail.contoso.com/Microsoft-Server-ActiveSync"),
        ("?protocol=ews&Email=", 200, "https://mail.contoso.com/EWS/Exchange.asmx"),
        ("/v1.0/alice@contoso.com?Protocol=AutodiscoverV1", 200, "https://mail.contoso.com/autodiscover/autodiscover.xml"),
        ("?Email=a@b.c&Protocol=Substrate", 400, "InvalidProtocol"),
        ("?Email=a@b.c", 400, "MandatoryParameterMissing"),
        ("?" + "&".join(["a=b"] * 40), 400, "MandatoryParameterMissing"),
    ],
)  # fmt: skip
async def test_json(world: World, target: str, status: int, answer: str) -> None:
    """Version 2: one URL, or an error's name."""
    first, fields, body = head_of(await world.client().send(get("/Autodiscover/autodiscover.json" + target)))
    assert first.startswith(f"HTTP/1.1 {status} ")
    assert fields["content-type"] == "application/json"
    found = json.loads(body)
    assert found.get("Url", found.get("ErrorCode")) == answer


async def test_json_says_nothing_of_who_has_a_mailbox(world: World) -> None:
    """The same octets for every address, with the directory away."""
    world.sign_in.look_up = Mock(side_effect=AssertionError)  # type: ignore[method-assign]
    answers = set()
    for email in ("alice@contoso.com", "nobody@contoso.com", "nobody@elsewhere.example", "%00"):
        for form in (f"?Email={email}&Protocol=Ews", f"/v1.0/{email}?Protocol=Ews"):
            if "%00/" not in form and "/%00" not in form:
                _, _, body = head_of(await world.client().send(get("/autodiscover/autodiscover.json" + form)))
                answers.add(body)
    assert len(answers) == 1


async def test_a_new_configuration_counts_at_once(world: World) -> None:
    """What was remembered for the old one is forgotten."""
    await post(world, XML, plain("alice@contoso.com"))
    change(world, virtual_directories=())
    _, document = await post(world, XML, plain("alice@contoso.com"))
    assert section(document, "EXPR") == {}


async def test_whose_server_answers_itself(world: World) -> None:
    """A path of Autodiscover's, in any case, for a mailbox on a server without a directory for it."""
    autodiscover = Autodiscover(world.door)
    assert autodiscover.is_ours(ALICE, "/AutoDiscover/x")
    assert not autodiscover.is_ours(ALICE, "/owa/autodiscover/")
    change(world, virtual_directories=tuple(directories("MBX-1", "/Autodiscover")))
    assert not autodiscover.is_ours(ALICE, "/autodiscover/autodiscover.xml")
    assert autodiscover.is_ours(User("bob", Mailbox("DB2")), "/autodiscover/autodiscover.xml")
    assert autodiscover.is_ours(User("eve", Mailbox("nowhere")), "/autodiscover/autodiscover.xml")
