"""Mail sessions that begin with an app password: how they go on to a server, and that they end when it is removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from stage import LIMITS, Stage, stage, until

from gatepost.access.front_door import FrontDoor
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import ClientAddress, Protocol, SignIn, SignInForm, TlsMode

MASTER = SignIn(SignInForm.MASTER_NAME, "gatepost", "master-secret")
LOGIN = b"a1 LOGIN alice secret-apw\r\n"


@pytest.fixture
async def opened() -> AsyncIterator[tuple[Stage, FrontDoor]]:
    """A whole front door whose mailbox servers take a master user."""
    async with stage(LIMITS, MASTER, ClientAddress.NONE, TlsMode.CLEAR) as s:
        first = s.door
        sign_in = cast(SignInService, s.sign_in)
        door = FrontDoor(s.configuration, asyncio.get_running_loop(), sign_in, s.router, cast(Any, s.capture))
        s.door = door._mail[Protocol.IMAP]
        s.door.starttls = s.tls
        yield s, door
        await first.drain(0)
        await door.drain(0)


async def test_the_server_is_signed_in_at_without_it(opened: tuple[Stage, FrontDoor]) -> None:
    s, _ = opened
    s.sign_in.app_password = 7
    client = await s.connect()
    await client.line()
    assert (await client.tagged(LOGIN)).startswith(b"a1 OK")
    said = b"".join(s.servers["MBX-01"].lines)
    assert b"master-secret" in said
    assert b"secret-apw" not in said


async def test_a_server_that_wants_the_users_password_gets_none() -> None:
    """A fault of the configuration: told as a temporary one, and the reason is in the log."""
    async with stage() as s:
        s.sign_in.app_password = 7
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a1 NO [UNAVAILABLE]")
        assert s.servers["MBX-01"].connections == 0
        assert "wants the user's password" in s.log_lines("imap.refused")[0]["reason"]


async def test_its_removal_ends_its_sessions_and_no_others(opened: tuple[Stage, FrontDoor]) -> None:
    s, door = opened
    clients = {}
    for number in (7, 8, 0):
        s.sign_in.app_password = number
        client = clients[number] = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a1 OK")
    door.end_removed(lambda number: number != 7)
    assert (await clients[7].rest()).startswith(b"* BYE")
    for number in (8, 0):
        assert (await clients[number].tagged(b"a2 NOOP\r\n")).startswith(b"a2 OK")
    await until(lambda: s.log_lines("sessions.app_password_removed"))
    assert s.log_lines("sessions.app_password_removed")[0]["closed"] == 1
