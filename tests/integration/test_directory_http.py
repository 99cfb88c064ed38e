"""Users behind an HTTP service: the directory's contract, and what is HTTP's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from directory_contract import ANNA, OTTO, PATIENCE_SECONDS, DirectoryContract
from ldap_kit import QUICK
from look_up_service import TOKEN, LookUpService

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.http_look_up import HttpEngine
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.directory.settings import HttpLookUpSettings


def _settings(*services: LookUpService, **more: Any) -> HttpLookUpSettings:
    given: dict[str, Any] = {"token": TOKEN, "seconds": 6.0, "try_seconds": 1.5}
    return HttpLookUpSettings(tuple(service.url for service in services), **given | more)


def _opened(settings: HttpLookUpSettings) -> CachedDirectory:
    return CachedDirectory("web", HttpEngine("web", settings), QUICK, probe_seconds=0.1)


class HttpOfATest:
    """See `directory_contract.Engine`."""

    def __init__(self, service: LookUpService) -> None:
        self.service = service
        self.directory = _opened(_settings(service))

    def put(self, user: User, addresses: tuple[str, ...] = ()) -> None:
        self.service.put(user, addresses)

    def remove(self, name: str) -> None:
        self.service.remove(name)

    def take_away(self) -> None:
        self.service.stop()

    def bring_back(self) -> None:
        self.service.start()


@pytest.fixture
def service() -> Iterator[LookUpService]:
    service = LookUpService()
    service.start()
    service.put(ANNA, ("sales@contoso.com",), "apw")
    service.put(OTTO)
    yield service
    service.stop()


@pytest.fixture
async def engine(service: LookUpService) -> AsyncIterator[HttpOfATest]:
    engine = HttpOfATest(service)
    yield engine
    engine.directory.close()
    await engine.directory.wait_closed()


class TestHttpDirectory(DirectoryContract):
    seen_seconds = PATIENCE_SECONDS


GARBAGE = (
    (500, b""), (404, b'{"user": null}'), (302, b'{"user": null}'), (204, b""), (200, b""), (200, b"{}"),
    (200, b"null"), (200, b'{"user": []}'), (200, b'{"user": {"name": 1}}'), (200, b"<html>"), (200, b"\xff\xfe"),
    (200, b" " * 70_000),
    (200, b'{"user": {"name": "anna@contoso.com", "disabled": "no"}}'), (401, b'{"user": null}'),
    (503, b'{"user": null}'),
)  # fmt: skip


async def test_garbage_is_a_directory_that_does_not_answer(service: LookUpService) -> None:
    """Nobody is told to be unknown."""
    for status, answer in GARBAGE:
        service.garble = partial(_answer, status, answer)
        engine = HttpEngine("web", _settings(service))
        with pytest.raises(DirectoryUnavailable):
            await engine.find("anna@contoso.com")
        await engine.close()


async def test_garbage_ends_by_itself(service: LookUpService, engine: HttpOfATest) -> None:
    service.garble = partial(_answer, 500, b"")
    with pytest.raises(DirectoryUnavailable):
        await engine.directory.ask("anna@contoso.com")
    told = asyncio.Event()
    engine.directory.on_change(told.set)
    service.garble = None
    await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
    assert await engine.directory.ask("anna@contoso.com") == ANNA


def _answer(status: int, answer: bytes) -> tuple[int, bytes]:
    return status, answer


async def test_the_service_may_judge_passwords_itself() -> None:
    service = LookUpService(judges=True)
    service.start()
    service.put(ANNA, password="apw")
    directory = _opened(_settings(service, check_path="/check"))
    found = await directory.ask("anna@contoso.com")
    assert found is not None
    assert found.judged_by_directory
    assert found.tells_of_password
    assert await directory.opens(found, (b"apw",))
    assert not await directory.opens(found, (b"wrong", b"Apw"))
    service.stop()
    with pytest.raises(DirectoryUnavailable):
        await directory.opens(found, (b"apw",))
    directory.close()
    await directory.wait_closed()


async def test_the_second_server_answers_when_the_first_does_not(service: LookUpService) -> None:
    dead = LookUpService()
    directory = _opened(_settings(dead, service))
    assert await directory.ask("anna@contoso.com") == ANNA
    directory.close()
    await directory.wait_closed()
