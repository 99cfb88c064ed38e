"""App passwords in Basic credentials: the service that is asked for counts, and no server gets one."""

from __future__ import annotations

from typing import Any

import pytest
from http_harness import HEADER_SIGN_IN, World, get, mailbox_server, response


@pytest.fixture
async def world() -> World:
    """MBX-1 is told who the user is; MBX-2, with bob, wants the user's own password."""
    made = World([mailbox_server("MBX-1", sign_in=HEADER_SIGN_IN), mailbox_server("MBX-2")])
    made.sign_in.app_password = 7
    return made


async def test_the_request_goes_on_without_it(world: World) -> None:
    client = world.client()
    await client.send(get(user="alice"))
    told = await client.serve(response())
    assert b"GET /owa/" in told
    assert b"Authorization" not in told


async def test_a_server_that_wants_the_users_password_gets_none(world: World) -> None:
    answer = await world.client().send(get(user="bob"))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert "wants the user's password" in world.log.of("http.refused")[0]["reason"]


async def test_the_service_is_what_the_path_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = world.sign_in.password_now

    def noted(*arguments: Any, **options: Any) -> Any:
        asked.append((arguments[4], options))
        return real(*arguments, **options)

    monkeypatch.setattr(world.sign_in, "password_now", noted)
    await world.client().send(get(user="alice"))
    assert asked == [("owa", {})]


async def test_the_connections_that_showed_a_removed_one_are_found(world: World) -> None:
    client = world.client()
    await client.ask(get(user="alice"), response())
    assert world.door.shown_app_password(lambda number: number == 8, "removed") == []
    (leaver,) = world.door.shown_app_password(lambda number: number == 7, "removed")
    assert leaver.leave()
    assert client.transport.closed
