"""How long the last known registry is gone by, and asking it anew (SPEC A4, field case 115)."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Any

from fake_loop import FakeLoop
from figure import OWA, figure
from structlog.testing import CapturingLogger

from gatepost.access.registry_age import RegistryAge
from gatepost.access.router import Router
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration, FrontEnd, Limits
from gatepost.organization.model import Protocol
from gatepost.routing.decision import ActiveCopy, Cause, Mailbox, Refuse

VIEW = RegistryView(1, MappingProxyType({f"DB0{n}": ActiveCopy(f"DB0{n}", f"MBX-0{n}", 1) for n in (1, 2, 3)}))


class Registry:
    """A registry that can be cut off."""

    def __init__(self) -> None:
        self.stale = 0.0
        self.looks = 0

    async def look(self, seconds: float) -> bool:
        assert seconds > 0
        self.looks += 1
        await asyncio.sleep(0)
        return True


def test_past_the_age_nobody_is_sent_to_a_database() -> None:
    """Every protocol, also by what was decided before; the answer is a temporary fault."""
    registry = Registry()
    front_end = FrontEnd("CAS-02", "", "", limits=Limits(registry_age_seconds=300.0))
    router = Router(Configuration(figure(), front_end), VIEW, RegistryAge(300.0, lambda: registry.stale))
    assert not isinstance(router.decide(Protocol.HTTPS, Mailbox("DB01"), OWA), Refuse)
    registry.stale = 300.0
    assert not isinstance(router.decide(Protocol.HTTPS, Mailbox("DB01"), OWA), Refuse)
    registry.stale = 300.1
    for protocol in Protocol:
        refused = router.decide(protocol, Mailbox("DB01"), OWA)
        assert isinstance(refused, Refuse)
        assert refused.cause is Cause.NO_ACTIVE_COPY
        assert refused.cause.temporary
    registry.stale = 0.0
    assert not isinstance(router.decide(Protocol.HTTPS, Mailbox("DB01"), OWA), Refuse)


def test_a_reload_brings_its_age() -> None:
    registry = Registry()
    registry.stale = 100.0
    configuration = Configuration(figure(), FrontEnd("CAS-02", "", ""))
    router = Router(configuration, VIEW, RegistryAge(300.0, lambda: registry.stale))
    shorter = FrontEnd("CAS-02", "", "", limits=Limits(registry_age_seconds=50.0))
    router.set_configuration(Configuration(figure(), shorter))
    assert isinstance(router.decide(Protocol.HTTPS, Mailbox("DB01"), OWA), Refuse)


def test_forgetting_a_database_forgets_no_other() -> None:
    router = Router(Configuration(figure(), FrontEnd("CAS-02", "", "")), VIEW)
    before = [router.decide(Protocol.HTTPS, Mailbox(name), OWA) for name in ("DB01", "DB02")]
    router.forget("DB01")
    after = [router.decide(Protocol.HTTPS, Mailbox(name), OWA) for name in ("DB01", "DB02")]
    assert after == before
    assert after[0] is not before[0]
    assert after[1] is before[1]


def test_the_log_hears_of_it_once_and_of_its_end() -> None:
    registry, loop, log = Registry(), FakeLoop(), CapturingLogger()
    age = RegistryAge(10.0, lambda: registry.stale)
    fake: Any = loop
    logger: Any = log
    age.watch(fake, logger)
    loop.pass_time(5)
    assert log.calls == []
    registry.stale = 11.0
    loop.pass_time(5)
    registry.stale = 0.0
    loop.pass_time(5)
    assert [call.args for call in log.calls] == [("registry.cut_off",), ("registry.heard_again",)]
    assert log.calls[0].method_name == "error"
    age.close()
    assert loop.timers == 0


async def test_many_who_ask_at_once_make_one_look() -> None:
    """However many sign-ins were sent to the wrong server."""
    registry = Registry()
    age = RegistryAge(10.0, look=registry.look)
    assert await asyncio.gather(*(age.look() for _ in range(50))) == [True] * 50
    assert registry.looks == 1
    await age.look()
    assert registry.looks == 2


async def test_one_who_gives_up_does_not_end_the_look_of_the_others() -> None:
    registry = Registry()
    age = RegistryAge(10.0, look=registry.look)
    first, second = asyncio.ensure_future(age.look()), asyncio.ensure_future(age.look())
    await asyncio.sleep(0)
    first.cancel()
    assert await second
