"""Health pages: can this service really be served? (SPEC V2)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from http_harness import World, directories, get, head_of, mailbox_server

from gatepost.access.http.health_page import offering
from gatepost.organization.model import (
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
)


class Health:
    """Some services are down."""

    def __init__(self, *down: tuple[str, str]) -> None:
        self.down = set(down)
        self.watched: list[tuple[str, str]] = []

    def healthy(self, server: str, service: str) -> bool:
        return (server, service) not in self.down

    def watch(self, server: str, service: str) -> None:
        self.watched.append((server, service))


def page(path: str = "/owa", *, method: str = "GET") -> bytes:
    return get(f"{path}/healthcheck.htm", user="", method=method)


def set_health(world: World, *down: tuple[str, str]) -> None:
    health: Any = Health(*down)
    world.door.health = health


async def test_a_service_that_can_be_served_says_200_and_the_servers_name(world: World) -> None:
    """In the source system's words, to anybody."""
    first, fields, body = head_of(await world.client().send(page()))
    assert first == "HTTP/1.1 200 OK"
    assert body == b"200 OK<br/>cas-01.contoso.com"
    assert fields["content-type"].startswith("text/html")
    assert fields["cache-control"] == "no-store"
    assert world.sign_in.asked == []


@pytest.mark.parametrize("path", ["/OWA", "/Owa", "/ews", "/dav"])
async def test_every_virtual_directory_has_one(world: World, path: str) -> None:
    assert (await world.client().send(page(path))).startswith(b"HTTP/1.1 200 ")


async def test_only_virtual_directories_have_one(world: World) -> None:
    """Anything else goes the way of any request."""
    for path in ("/nothing", "/owa/auth", ""):
        assert (await world.client().send(page(path))).startswith(b"HTTP/1.1 401 ")


async def test_head_and_other_methods(world: World) -> None:
    client = world.client()
    head = await client.send(page(method="HEAD"))
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
    assert b"\r\nContent-Length: 29\r\n" in head
    answer = await client.send(page(method="DELETE"))
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET, HEAD\r\n" in answer


async def test_a_service_whose_servers_are_all_down_says_503_and_names_no_host(world: World) -> None:
    """And its neighbour on the same servers stays: health is that of the service."""
    set_health(world, ("MBX-1", "owa"))
    client = world.client()
    assert (await client.send(page())).startswith(b"HTTP/1.1 200 ")
    set_health(world, ("MBX-1", "owa"), ("MBX-2", "owa"))
    first, fields, body = head_of(await client.send(page()))
    assert first.startswith("HTTP/1.1 503 ")
    assert "retry-after" in fields
    assert b"mbx" not in body.lower()
    assert b"cas" not in body.lower()
    assert (await client.send(page("/ews"))).startswith(b"HTTP/1.1 200 ")


async def test_the_answer_rests_on_a_probe_of_one_server(world: World) -> None:
    """Not of all, each second, for a balancer that asks about each service."""
    set_health(world, ("MBX-1", "owa"))
    await world.client().send(page())
    health: Any = world.door.health
    assert health.watched == [("MBX-2", "owa")]


async def test_a_front_end_that_drains_says_503(world: World) -> None:
    client = world.client()
    world.door.draining = True
    _, _, body = head_of(await client.send(page()))
    assert b"going down" in body


async def test_without_directory_or_registry_it_says_503(world: World) -> None:
    world.door.stores_fault = lambda: "the directory cannot be read"
    first, _, body = head_of(await world.client().send(page()))
    assert first.startswith("HTTP/1.1 503 ")
    assert b"the directory cannot be read" in body


# --- whose health counts

PEER = Endpoint("peer", Protocol.HTTPS, "127.0.1.9", 444, TlsMode.IMPLICIT, "cas.contoso.com")


def front_end(name: str, site: str) -> Server:
    roles = frozenset({Role.CLIENT_ACCESS})
    return Server(name, site, f"{name.lower()}.contoso.com", "127.0.1.9", Version.MODERN, roles, (PEER,))


def two_sites(*, through_peer: bool = False) -> Organization:
    """CAS-01 in usa; CAS-02 with a directory of its own and MBX-1 in europe."""
    servers = [
        front_end("CAS-01", "usa"),
        front_end("CAS-02", "europe"),
        replace(mailbox_server("MBX-1"), site="europe"),
    ]
    return Organization(
        "contoso",
        sites={"usa": Site("usa"), "europe": Site("europe", through_peer=through_peer)},
        servers={server.name: server for server in servers},
        virtual_directories=(
            *directories("CAS-01", "/owa"),
            *directories("CAS-02", "/owa"),
            *directories("MBX-1", "/owa"),
        ),
    )


def test_servers_that_are_reached_straight_count() -> None:
    """Two front ends that judged themselves by each other would never come up again."""
    organization = two_sites()
    assert list(offering(organization, organization.servers["CAS-01"], "/owa")) == [("MBX-1", "owa")]


def test_where_a_site_is_reached_through_peers_those_count() -> None:
    organization = two_sites(through_peer=True)
    assert list(offering(organization, organization.servers["CAS-01"], "/owa")) == [("CAS-02", "owa")]
    assert list(offering(organization, organization.servers["CAS-02"], "/owa")) == [("MBX-1", "owa")]


def test_a_service_that_only_front_ends_have_counts_them() -> None:
    organization = two_sites()
    organization = replace(organization, virtual_directories=organization.virtual_directories[:2])
    assert list(offering(organization, organization.servers["CAS-01"], "/owa")) == [("CAS-02", "owa")]
    assert list(offering(organization, organization.servers["CAS-01"], "/ews")) == []


def test_the_first_server_that_is_reached_straight_comes_at_once() -> None:
    """Anybody may ask, ten thousand times a second: a page does not cost what the organization is large."""
    organization = two_sites()

    class First(tuple[VirtualDirectory, ...]):
        """Nothing is read beyond the first."""

        __slots__ = ()

        def __iter__(self) -> Iterator[VirtualDirectory]:
            yield self[0]
            raise AssertionError("more was read than is needed")

    there = First(directory for directory in organization.virtual_directories if directory.server == "MBX-1")
    organization.__dict__["directories_by_path"] = {"/owa": there}
    assert next(offering(organization, organization.servers["CAS-01"], "/owa")) == ("MBX-1", "owa")


def test_directories_are_found_by_path_whatever_its_case() -> None:
    organization = replace(
        two_sites(), virtual_directories=(*directories("CAS-01", "/OWA"), *directories("MBX-1", "/owa"))
    )
    assert [d.server for d in organization.directories_by_path["/owa"]] == ["CAS-01", "MBX-1"]
