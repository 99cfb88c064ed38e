"""What is answered before anybody signs in, with every mailbox server down."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from http_harness import World, directories, get, head_of, mailbox_server, response

from gatepost.access.http.well_known import autoconfig
from gatepost.organization.model import Organization


@pytest.fixture
async def down() -> World:
    """A world whose databases have no active copy."""
    world = World(
        virtual=[d for s in ("MBX-1", "MBX-2") for d in directories(s, "/owa", "/dav", "/jmap", "/activesync")]
    )
    world.active.clear()
    return world


@pytest.mark.parametrize(
    ("path", "status", "location"),
    [
        ("/.well-known/caldav", 301, "/dav/"),
        ("/.well-known/carddav/", 301, "/dav/"),
        ("/.well-known/CalDAV", 301, "/dav/"),
        ("/", 302, "/owa/"),
    ],
)
async def test_redirects(down: World, path: str, status: int, location: str) -> None:
    """RFC 6764: before the sign-in, for any method; the root leads to the web mail (field case 25)."""
    for method in ("GET", "PROPFIND"):
        first, fields, _ = head_of(await down.client().send(get(path, user="", method=method)))
        assert first.startswith(f"HTTP/1.1 {status} ")
        assert fields["location"] == location


async def test_autoconfig_lists_the_front_ends_endpoints(down: World) -> None:
    """Mozilla's format: IMAP before POP3, the name that clients use, how each is secured."""
    _, fields, body = head_of(await down.client().send(get("/.well-known/autoconfig/mail/config-v1.1.xml?x", user="")))
    assert fields["content-type"].startswith("application/xml")
    root = ET.fromstring(body)
    found = [
        (s.get("type"), s.findtext("hostname"), s.findtext("port"), s.findtext("socketType"))
        for s in root.iter("incomingServer")
    ]
    assert found == [("imap", "mail.contoso.com", "993", "SSL"), ("pop3", "mail.contoso.com", "110", "STARTTLS")]


def test_names_are_escaped() -> None:
    """An organization called `<a&b>` makes no XML of its own."""
    world = mailbox_server("MBX-1")
    organization = Organization("<a&b>", accepted_domains=("x<y",))
    root = ET.fromstring(autoconfig(world, organization, "a&b"))
    assert root.findtext("emailProvider/displayName") == "<a&b>"
    assert root.findtext("emailProvider/domain") == "x<y"


async def test_autodiscover_for_outlook(down: World) -> None:
    """After the sign-in, whatever server is down; implicit TLS only; the connection goes on."""
    client = down.client()
    path = "/Autodiscover/Autodiscover.xml"
    assert (await client.send(get(path, user="", method="POST", body=b"<x/>"))).startswith(b"HTTP/1.1 401 ")
    first, _, body = head_of(await client.send(get(path)))
    assert first == "HTTP/1.1 200 OK"
    outlook = "{http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a}"
    protocols = [
        (p.findtext(f"{outlook}Type"), p.findtext(f"{outlook}Server"), p.findtext(f"{outlook}Port"))
        for p in ET.fromstring(body).iter(f"{outlook}Protocol")
    ]
    assert ("IMAP", "mail.contoso.com", "993") in protocols
    answer = await client.send(get("/autodiscover/autodiscover.json?Email=a@b.c&Protocol=ActiveSync", user=""))
    assert json.loads(head_of(answer)[2]) == {"Protocol": "ActiveSync", "Url": "https://mail.contoso.com/activesync"}
    assert head_of(await client.send(get("/autodiscover/autodiscover.json?Protocol=Ews", user="")))[0].endswith(
        "Not Found"
    )


async def test_an_organizations_own_autodiscover_is_routed() -> None:
    """Where servers have an autodiscover directory they answer, after the sign-in."""
    world = World(virtual=[d for s in ("MBX-1", "MBX-2") for d in directories(s, "/owa", "/autodiscover")])
    client = world.client()
    assert (await client.send(get("/autodiscover/autodiscover.xml", user=""))).startswith(b"HTTP/1.1 401 ")
    assert (await client.ask(get("/autodiscover/autodiscover.xml"), response())).endswith(b"hello")


async def test_jmap_goes_to_the_users_server(world: World) -> None:
    """RFC 8620 section 2.2: the session resource is the server's, under the path it knows; its redirects lead back."""
    client = world.client()
    assert (await client.send(get("/.well-known/jmap", user=""))).startswith(b"HTTP/1.1 401 ")
    await client.send(get("/.well-known/jmap", user="bob"))
    sent = await client.serve(response("302 Found", "Location: https://mbx-2.contoso.com/jmap/session"))
    assert sent.startswith(b"GET /.well-known/jmap HTTP/1.1\r\n")
    assert b"Location: https://mail.contoso.com/jmap/session\r\n" in client.transport.take()


async def test_head_and_options(down: World) -> None:
    """HEAD gets the head alone; OPTIONS * is answered."""
    answer = await down.client().send(get("/.well-known/autoconfig/mail/config-v1.1.xml", user="", method="HEAD"))
    assert answer.endswith(b"\r\n\r\n")
    assert (await down.client().send(get("*", user="", method="OPTIONS"))).startswith(b"HTTP/1.1 204 ")


async def test_without_services_there_is_a_page() -> None:
    """No web mail: a page. No DAV: 404."""
    world = World()
    world.door.configuration = replace(
        world.configuration, organization=replace(world.organization, virtual_directories=())
    )
    client = world.client()
    assert b"The mail service is running." in await client.send(get("/", user=""))
    assert (await client.send(get("/.well-known/caldav", user=""))).startswith(b"HTTP/1.1 404 ")
