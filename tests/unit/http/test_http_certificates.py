"""Clients' certificates as identities of requests, where the directory allows it."""

from __future__ import annotations

from typing import Any

import pytest
from http_harness import HEADER_SIGN_IN, World, basic, get, head_of, mailbox_server, response

from gatepost.access.http import certificate
from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import Protocol


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """MBX-1 is told who the user is; MBX-2, with bob, wants the user's own password. The client shows `alice`."""
    made = World([mailbox_server("MBX-1", sign_in=HEADER_SIGN_IN), mailbox_server("MBX-2")])
    made.door.takes_certificate = lambda route: True  # type: ignore[method-assign]
    _shows(monkeypatch, b"alice")

    async def user_of_certificate(der: bytes, protocol: Protocol, client: str) -> SignInResult:
        assert protocol is Protocol.HTTPS
        if der == b"revoked":
            return SignInResult(Verdict.WRONG_CREDENTIALS, reason="the certificate was revoked")
        if der == b"no CRL":
            return SignInResult(Verdict.UNAVAILABLE, reason="no CRL")
        return SignInResult(Verdict.SIGNED_IN, made.sign_in._user(der.decode()))

    sign_in: Any = made.sign_in
    sign_in.user_of_certificate = user_of_certificate
    return made


def _shows(monkeypatch: pytest.MonkeyPatch, der: bytes) -> None:
    monkeypatch.setattr(certificate, "client_certificate", lambda transport: der)


def _with(line: str) -> bytes:
    return get(user="").replace(b"\r\n\r\n", b"\r\n" + line.encode() + b"\r\n\r\n")


async def test_the_request_goes_on_without_a_password(world: World) -> None:
    client = world.client()
    await client.send(get(user=""))
    told = await client.serve(response())
    assert b"GET /owa/" in told
    assert b"X-Remote-User: alice" in told
    assert world.sign_in.asked == []


async def test_a_server_that_wants_the_users_password_gets_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _shows(monkeypatch, b"bob")
    answer = await world.client().send(get(user=""))
    assert answer.startswith(b"HTTP/1.1 503 ")


async def test_a_name_with_an_empty_password_beside_it(world: World) -> None:
    """As some phones send it."""
    answer = await world.client().ask(_with("Authorization: Basic YWxpY2U6"), response())
    assert answer.endswith(b"hello")
    assert world.sign_in.asked == []


async def test_a_password_beside_it_counts(world: World) -> None:
    await world.client().ask(_with(basic("alice")), response())
    assert [name for name, _ in world.sign_in.asked] == ["alice"]


@pytest.mark.parametrize(("der", "status"), [(b"revoked", "401"), (b"no CRL", "503")])
async def test_what_a_refusal_looks_like(
    world: World, monkeypatch: pytest.MonkeyPatch, der: bytes, status: str
) -> None:
    """A bad one: the ordinary way is asked for, after the usual delay. A fault of ours is told as one."""
    _shows(monkeypatch, der)
    client = world.client()
    written = await client.send(get(user=""))
    await world.pass_time(5)
    written += client.transport.take()
    first, fields, _ = head_of(written)
    assert first.split()[1] == status
    assert ("www-authenticate" in fields) is (status == "401")


async def test_where_the_directory_does_not_allow_it_it_is_no_identity(world: World) -> None:
    world.door.takes_certificate = lambda route: False  # type: ignore[method-assign]
    assert (await world.client().send(get(user=""))).startswith(b"HTTP/1.1 401 ")


async def test_without_one_the_client_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _shows(monkeypatch, b"")
    assert (await world.client().send(get(user=""))).startswith(b"HTTP/1.1 401 ")
