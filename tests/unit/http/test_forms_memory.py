"""Cookies that were opened once are known to all connections, and are worth no more for it (SPEC B6)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from http_harness import PASSWORD, World
from test_forms_flow import KEY, OTHER, WALL, FormsWorld

from gatepost.access.http.forms import flow as flow_module
from gatepost.access.http.forms.flow import FormsFlow
from gatepost.access.http.forms.session import Sessions
from gatepost.configuration.settings import Forms, OtherKey
from gatepost.directory.port import SignInResult, Verdict


def cookie(world: FormsWorld, key: bytes = KEY, user: str = "alice") -> bytes:
    """A cookie that the front ends with `key` made just now."""
    return Sessions(key, Forms()).begin(world.sign_in._user(user), PASSWORD, world.wall, private=False)


def known(world: World) -> dict[bytes, Any]:
    door: Any = world.door
    flow: FormsFlow = door.forms
    return flow._known


async def test_a_cookie_is_opened_once_for_all_connections() -> None:
    """Another connection gets the same answer without a look into the directory."""
    world = FormsWorld()
    value = cookie(world)
    first = world.flow().identity(world.client().leg, value)
    looks = world.sign_in.looks
    assert first is not None
    assert world.flow().identity(world.client(address="192.0.2.8").leg, value) is first
    assert world.sign_in.looks == looks


async def test_a_known_cookie_counts_for_nothing_in_clear() -> None:
    """Only TLS, as for one that is not known."""
    world = FormsWorld()
    value = cookie(world)
    assert world.flow().identity(world.client().leg, value) is not None
    assert world.flow().identity(world.client(tls=False).leg, value) is None


@pytest.mark.parametrize("end", ["time-out", "sign-out", "password", "settings"])
async def test_what_voids_a_cookie_voids_a_known_one(end: str) -> None:
    """Its time is over, its user has signed out or has another password, the front end has another key."""
    world = FormsWorld()
    value = cookie(world)
    signed = world.flow().identity(world.client().leg, value)
    assert signed is not None
    if end == "time-out":
        world.shift += 1.5 * 900
    elif end == "sign-out":
        world.shared.out[signed.id] = world.wall + 900
    elif end == "password":
        world.sign_in.hashes["alice"] = "another"
        world.sign_in.directory_changes += 1
    else:
        world.use(world.organization, private_key=OTHER)
    assert world.flow().identity(world.client().leg, value) is None


async def test_a_certificate_that_opens_no_more_ends_what_it_has_sealed() -> None:
    """Also where the connection, or this front end, has opened the cookie before."""
    until = datetime.fromtimestamp(WALL + 1000 + 500, UTC)
    world = FormsWorld()
    world.use(world.organization, forms=Forms(also_opens=(OtherKey(OTHER, until),)))
    leg, value = world.client().leg, cookie(world, OTHER)
    signed = world.flow().identity(leg, value)
    assert signed is not None
    world.shift += 499
    assert world.flow().still_good(signed, world.wall)
    assert world.flow().identity(leg, value) is signed
    world.shift += 1
    assert not world.flow().still_good(signed, world.wall)
    assert world.flow().identity(leg, value) is None


async def test_few_cookies_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sign in; none that is void, and none of a user who may not."""
    monkeypatch.setattr(flow_module, "MAX_KNOWN", 3)
    world = FormsWorld()
    for _ in range(10):
        assert world.flow().identity(world.client().leg, cookie(world)) is not None
        assert len(known(world)) <= 3
    before = dict(known(world))
    assert world.flow().identity(world.client().leg, cookie(world)[:-4] + b"AAAA") is None
    world.sign_in.verdict = SignInResult(Verdict.WRONG_CREDENTIALS)
    assert world.flow().identity(world.client().leg, cookie(world)) is None
    assert known(world) == before
