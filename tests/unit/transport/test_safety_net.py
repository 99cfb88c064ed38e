"""The safety net delivers again what a database may have lost: once, within its boundary, to who has the mailbox today
(exchange-facts 4.5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from safety_net_stage import HOLD, NOW, NetStage, organization, quick

from gatepost.activemanager.port import Loss
from gatepost.balancing.back_pressure import Pressure
from gatepost.transport.message import Envelope, Notify
from gatepost.transport.operating import NotFound
from gatepost.transport.shadow import redelivery, safety_net
from gatepost.transport.shadow.boundary import boundary_hubs, boundary_sites

ANNA, BEN, CARL = "anna@contoso.com", "ben@contoso.com", "carl@contoso.com"
EARLY, LATE = NOW - 1000, NOW


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NetStage]:
    quick(monkeypatch)
    monkeypatch.setattr(redelivery, "TELL_SECONDS", 0.01)
    found = NetStage()
    found.mailboxes = {ANNA: "DB01", BEN: "DB01", CARL: "DB02"}
    await found.start()
    yield found
    await found.stop()


def envelope(stage: NetStage, number: int) -> Envelope:
    return msgspec.msgpack.decode(stage.spool.blobs[number], type=Envelope)


async def test_what_was_delivered_in_the_interval_is_queued_again(stage: NetStage) -> None:
    stage.keep(1, ANNA)
    stage.keep(2, BEN, at=EARLY - 1)
    stage.keep(3, CARL)
    assert await stage.net.redeliver("r1", "DB01", EARLY, LATE) == 1
    await stage.done()
    assert stage.queued == [(1, (ANNA,))]
    assert set(stage.spool.aside) == {2, 3}


async def test_a_long_interval_is_read_in_slices_and_none_is_left_out(stage: NetStage) -> None:
    times = [NOW - HOLD + 10, NOW - 900, NOW - 600, NOW - 599.999, NOW - 300, NOW]
    for number, at in enumerate(times, 1):
        stage.keep(number, ANNA, at=at)
    assert await stage.net.redeliver("r1", "DB01", 0.0, LATE) == len(times)
    await stage.done()
    assert sorted(number for number, _ in stage.queued) == list(range(1, len(times) + 1))


async def test_nobody_is_told_of_it_and_its_time_begins_anew(stage: NetStage) -> None:
    """All reports are suppressed; a message of two days ago does not expire before it is delivered."""
    stage.keep(1, ANNA)
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.done()
    found = envelope(stage, 1)
    assert found.quiet
    assert found.recipients[0].notify == Notify.NEVER, "the hub of another site is told so, too"
    assert found.unprotected
    assert found.expires == NOW + 86400.0
    assert found.sender == "anna@example.com", "the original envelope"


async def test_only_who_has_the_mailbox_there_today(stage: NetStage) -> None:
    """Carl's database lost nothing, Ben's mailbox has moved there, and one outside has none."""
    stage.keep(1, ANNA, BEN, CARL, "doris@example.org")
    stage.mailboxes[BEN] = "DB02"
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.done()
    assert stage.queued == [(1, (ANNA,))]


async def test_a_request_is_carried_out_once(stage: NetStage) -> None:
    stage.keep(1, ANNA)
    assert [await stage.net.redeliver("r1", "DB01", EARLY, LATE) for _ in range(2)] == [1, 1]
    await stage.done()
    stage.now += 60
    stage.deliver(1)
    assert await stage.net.redeliver("r1", "DB01", EARLY, LATE) == 1
    await asyncio.sleep(0.05)
    assert len(stage.queued) == 1


async def test_what_was_delivered_again_is_in_the_net_again(stage: NetStage) -> None:
    stage.keep(1, ANNA)
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.done()
    stage.now += 60
    stage.deliver(1)
    await stage.net.redeliver("r2", "DB01", NOW + 1, stage.now)
    await stage.done("r2")
    assert len(stage.queued) == 2


async def test_an_end_in_the_middle_repeats_nothing_and_forgets_nothing(stage: NetStage) -> None:
    for number in range(1, 21):
        stage.keep(number, ANNA)
    stop = asyncio.Event()
    stage.on_queued = lambda _: stop.set() if len(stage.queued) == 7 else None
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stop.wait()
    await stage.stop()
    assert len(stage.queued) < 20
    stage.now += 10
    stage.deliver(1)  # the second delivery of one may have happened before the end
    await stage.start()
    await stage.done()
    assert sorted(number for number, _ in stage.queued) == list(range(1, 21))


async def test_it_pauses_under_back_pressure(stage: NetStage) -> None:
    """Exchange-facts 4.12: "pause resubmission"."""
    stage.keep(1, ANNA)
    stage.spool.pressure = Pressure.MEDIUM
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.until(lambda: "safety_net.pauses" in stage.events())
    assert stage.queued == []
    stage.spool.pressure = Pressure.NORMAL
    await stage.done()
    assert len(stage.queued) == 1


async def test_not_more_than_so_many_a_second(stage: NetStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety_net, "A_SECOND", 100)
    for number in range(1, 21):
        stage.keep(number, ANNA)
    began = asyncio.get_running_loop().time()
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.done()
    assert asyncio.get_running_loop().time() - began >= 0.15


async def test_a_directory_or_disk_that_is_away_is_waited_for(stage: NetStage) -> None:
    stage.keep(1, ANNA)
    stage.directory_works = False
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.until(lambda: "safety_net.waits" in stage.events())
    stage.directory_works, stage.spool.fails = True, True
    stage.log.calls.clear()
    await stage.until(lambda: "safety_net.waits" in stage.events())
    stage.spool.fails = False
    await stage.done()
    assert [number for number, _ in stage.queued][-1:] == [1]


async def test_a_second_database_of_the_same_message_while_it_waits(stage: NetStage) -> None:
    """A server dies with two databases: the message to both was taken up for the first and waits in the queue."""
    stage.keep(1, ANNA, CARL)
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.done("r1")
    await stage.stop()
    await stage.start(1)
    await stage.net.redeliver("r2", "DB02", EARLY, LATE)
    await stage.done("r2")
    assert stage.queued == [(1, (ANNA,)), (1, (CARL,))]


async def test_two_requests_at_a_time_share_their_messages(stage: NetStage) -> None:
    """What one has taken up meanwhile the other finds in the queue, not in the net."""
    for number in (1, 2, 3):
        stage.keep(number, ANNA, CARL)
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.net.redeliver("r2", "DB02", EARLY, LATE)
    await stage.done("r1")
    await stage.done("r2")
    assert sorted(stage.queued) == sorted((number, (who,)) for number in (1, 2, 3) for who in (ANNA, CARL))


async def test_what_a_hub_of_another_site_delivers_is_in_the_net_there(stage: NetStage) -> None:
    """It left by a hub that is its primary then: here it was not delivered to the database a second time."""
    stage.keep(1, ANNA)
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.done()
    assert envelope(stage, 1).databases == []


# The boundary, and who has it twice


def test_the_boundary_is_the_sites_of_the_copies() -> None:
    found = organization()
    assert boundary_sites(found, "DB02") == {"usa", "asia"}
    assert boundary_hubs(found, "DB01") == ["HUB-01", "HUB-02"]
    assert boundary_sites(found, "DB99") == frozenset()


async def test_nothing_is_delivered_again_outside_of_the_boundary(stage: NetStage) -> None:
    outside = NetStage("HUB-04")
    outside.mailboxes = stage.mailboxes
    outside.keep(1, ANNA)
    await outside.start()
    assert await outside.net.redeliver("r1", "DB01", EARLY, LATE) == 0
    await outside.stop()
    assert set(outside.spool.aside) == {1}
    assert "safety_net.outside" in outside.events()


async def test_what_its_primary_has_too_is_left_to_the_primary(stage: NetStage) -> None:
    stage.identities["HUB-02"] = "d1"
    stage.keep(1, ANNA, primary="HUB-02", identity="d1")
    assert await stage.net.redeliver("r1", "DB01", EARLY, LATE) == 0
    await stage.done()
    assert stage.queued == []
    assert stage.asked["HUB-02"] == [("r1", "DB01", EARLY, LATE)]


async def test_a_primary_with_another_queue_database_has_lost_it(stage: NetStage) -> None:
    stage.identities["HUB-02"] = "d2"
    stage.keep(1, ANNA, primary="HUB-02", identity="d1")
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.done()
    assert [number for number, _ in stage.queued] == [1]


async def test_a_silent_primary_is_waited_for_then_its_mail_is_delivered_from_here(stage: NetStage) -> None:
    stage.keep(1, ANNA, primary="HUB-02", identity="d1")
    stage.keep(2, BEN)
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.until(lambda: "safety_net.primary_silent" in stage.events())
    assert [number for number, _ in stage.queued] == [2], "our own does not wait for it"
    stage.now += stage.organization.transport_config.shadow_resubmit_time_span
    await stage.done()
    assert [number for number, _ in stage.queued] == [2, 1]


async def test_a_silent_primary_that_comes_back_does_it_itself(stage: NetStage) -> None:
    stage.keep(1, ANNA, primary="HUB-02", identity="d1")
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.until(lambda: "safety_net.primary_silent" in stage.events())
    stage.identities["HUB-02"] = "d1"
    await stage.done()
    assert stage.queued == []


# By itself


async def test_a_lossy_activation_is_followed_once_for_each_epoch(stage: NetStage) -> None:
    stage.keep(1, ANNA)
    loss = Loss("DB01", 5, EARLY, NOW - 10)
    stage.redelivery.follow({"DB01": (loss,)})
    await stage.until(lambda: len(stage.queued) == 1)
    stage.now += 60
    stage.deliver(1)
    stage.redelivery.follow({"DB01": (loss,)})
    await asyncio.sleep(0.05)
    assert len(stage.queued) == 1
    stage.redelivery.follow({"DB01": (loss, Loss("DB01", 6, NOW, stage.now))})
    await stage.until(lambda: len(stage.queued) == 2)


async def test_all_hubs_name_the_request_alike(stage: NetStage) -> None:
    """So that a shadow server's question to the primary repeats nothing."""
    loss = Loss("DB01", 5, EARLY, NOW - 10)
    names = []
    for name in ("HUB-01", "HUB-02"):
        other = NetStage(name)
        await other.start()
        other.redelivery.follow({"DB01": (loss,)})
        await other.until(lambda other=other: len(other.net.requests) == 1)  # type: ignore[misc]
        names.append(other.net.requests.all()[0].request)
        await other.stop()
    assert names[0] == names[1]


async def test_a_loss_of_other_sites_and_one_of_long_ago_ask_for_nothing(stage: NetStage) -> None:
    old = Loss("DB01", 5, NOW - HOLD - 1000, NOW - HOLD - 10)
    outside = NetStage("HUB-04")
    await outside.start()
    outside.redelivery.follow({"DB01": (Loss("DB01", 5, EARLY, NOW),)})
    stage.redelivery.follow({"DB01": (old,)})
    await asyncio.sleep(0.05)
    await outside.stop()
    assert len(stage.net.requests) == len(outside.net.requests) == 0


async def test_a_hub_that_was_away_hears_of_the_loss_at_its_start(stage: NetStage) -> None:
    away = NetStage("HUB-02")
    away.mailboxes = stage.mailboxes
    away.keep(1, ANNA)
    away.now = NOW + 3600
    await away.start()
    away.redelivery.follow({"DB01": (Loss("DB01", 5, EARLY, NOW),)})
    await away.until(lambda: len(away.queued) == 1)
    await away.stop()


# By operators


async def test_an_operator_asks_one_hub_for_all(stage: NetStage) -> None:
    stage.identities = {"HUB-02": "d1", "HUB-03": "d2", "HUB-04": "d3"}
    stage.keep(1, CARL)
    found = await stage.redelivery.safety_net_redeliver("DB02", EARLY)
    assert found["hubs"] == [
        {"hub": "HUB-01", "messages": 1},
        {"hub": "HUB-02", "messages": 7},
        {"hub": "HUB-03", "messages": 7},
    ]
    await stage.done(found["request"])
    assert "HUB-04" not in stage.asked


async def test_a_hub_that_is_not_reached_is_told_later_also_after_a_restart(stage: NetStage) -> None:
    found = await stage.redelivery.safety_net_redeliver("DB01", EARLY)
    assert found["hubs"][1] == {"hub": "HUB-02", "error": "HUB-02 cannot be reached"}
    await stage.stop()
    stage.identities["HUB-02"] = "d1"
    await stage.start()
    await stage.until(lambda: bool(stage.asked.get("HUB-02")))
    request = stage.net.requests.get(found["request"])
    assert request is not None
    await stage.until(lambda: not request.hubs)
    assert request.answers == {"HUB-02": 7}


async def test_after_twelve_hours_a_hub_is_given_up(stage: NetStage) -> None:
    found = await stage.redelivery.safety_net_redeliver("DB01", EARLY)
    stage.now += 12 * 3600
    await stage.until(lambda: "safety_net.given_up" in stage.events())
    request = stage.net.requests.get(found["request"])
    assert request is not None
    assert request.hubs == {}


async def test_a_hub_outside_of_the_boundary_asks_those_inside(stage: NetStage) -> None:
    outside = NetStage("HUB-04")
    outside.identities = {"HUB-01": "d1", "HUB-02": "d2"}
    await outside.start()
    found = await outside.redelivery.safety_net_redeliver("DB01", EARLY)
    await outside.stop()
    assert found["hubs"] == [{"hub": "HUB-01", "messages": 7}, {"hub": "HUB-02", "messages": 7}]


async def test_bad_requests_of_operators_are_refused(stage: NetStage) -> None:
    with pytest.raises(NotFound, match="no database DB99"):
        await stage.redelivery.safety_net_redeliver("DB99", EARLY)
    with pytest.raises(ValueError, match="later"):
        await stage.redelivery.safety_net_redeliver("DB01", NOW + 60)


async def test_what_is_kept_and_what_was_asked_is_listed(stage: NetStage) -> None:
    stage.keep(1, ANNA, CARL)
    stage.keep(2, BEN, primary="HUB-02", identity="d1")
    stage.identities["HUB-02"] = "d1"
    await stage.net.redeliver("r1", "DB02", EARLY, LATE)
    await stage.done()
    found = await stage.redelivery.safety_net()
    assert found["kept"] == [{"database": "DB01", "messages": 1, "of_others": 1, "until": NOW - 100 + HOLD}]
    assert [(each["request"], each["state"], each["redelivered"]) for each in found["requests"]] == [("r1", "done", 1)]


# What is too old


async def test_old_requests_are_forgotten(stage: NetStage) -> None:
    await stage.net.redeliver("r1", "DB01", EARLY, LATE)
    await stage.done()
    stage.now += HOLD + 2 * 86400
    stage.net.tick(stage.now)
    await stage.until(lambda: not stage.spool.known)
