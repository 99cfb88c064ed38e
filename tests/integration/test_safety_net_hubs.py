"""The safety net at running hubs: a copy is activated that may lack mail, and all of it comes again (exchange-facts
4.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from shadow_stage import QUICK, Member, ShadowStage

from gatepost.transport.shadow import safety_net

CONFIG = replace(QUICK, safety_net_hold_time=3600.0, shadow_resubmit_time_span=30.0)
SUBJECTS = [f"m{number}" for number in range(10)]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[ShadowStage]:
    made = ShadowStage(tmp_path, config=CONFIG)
    await made.prepare()
    await made.start()
    yield made
    await made.stop()


async def kept(hub: Member, database: str = "DB01") -> dict[str, int]:
    found = await hub.running.operate("safety_net", {})
    return next((entry for entry in found["kept"] if entry["database"] == database), {"messages": 0, "of_others": 0})


async def deliver(stage: ShadowStage) -> None:
    """Half of them by each hub; both hubs have all of them in their nets then."""
    for number, subject in enumerate(SUBJECTS):
        await stage[1 + number % 2].send("anna@example.org", "alice@contoso.com", subject=subject)
    await stage.until(lambda: len(stage.taken()) == len(SUBJECTS))
    for hub in (stage[1], stage[2]):

        async def has_all(hub: Member = hub) -> bool:
            found = await kept(hub)
            return (found["messages"], found["of_others"]) == (10, 5)

        await stage.until(has_all)


def second(stage: ShadowStage) -> Counter[str]:
    """What the second mailbox server has taken."""
    return Counter(
        line.partition(b":")[2].strip().decode()
        for received in stage.second_mailbox.received
        for line in received.content.split(b"\r\n\r\n")[0].split(b"\r\n")
        if line.lower().startswith(b"subject:")
    )


async def test_after_a_lossy_activation_all_is_delivered_again_once(stage: ShadowStage) -> None:
    await deliver(stage)
    stage.registry.activate("DB01", "MBX-02", 1, lost_seconds=600.0)
    await stage.until(lambda: len(stage.second_mailbox.received) >= len(SUBJECTS))
    assert second(stage) == Counter(SUBJECTS)
    assert stage[1].count("safety_net_redelivered") == stage[2].count("safety_net_redelivered") == 5
    assert stage[1].count("reports") == 0


async def test_after_a_lossless_activation_nothing_is(stage: ShadowStage) -> None:
    await deliver(stage)
    stage.registry.activate("DB01", "MBX-02", 1)
    await stage.until(lambda: stage[1].running._rerouting._categorizer.active["DB01"] == "MBX-02")
    await stage[1].send("anna@example.org", "alice@contoso.com", subject="after")
    await stage.until(lambda: second(stage)["after"])
    assert second(stage) == Counter(["after"])


async def test_mail_of_a_primary_whose_disk_is_lost_comes_from_its_shadow_server(stage: ShadowStage) -> None:
    await deliver(stage)
    await stage[1].kill(lose_disk=True)
    await stage[1].start()
    stage.registry.activate("DB01", "MBX-02", 1, lost_seconds=600.0)
    await stage.until(lambda: len(stage.second_mailbox.received) >= len(SUBJECTS))
    assert second(stage) == Counter(SUBJECTS)


async def test_the_new_copy_in_another_site_gets_it_by_the_hub_there(tmp_path: Path) -> None:
    """The boundary is both sites; the second hub delivers, and tells nobody anything either."""
    stage = ShadowStage(tmp_path, config=CONFIG, sites=("usa", "asia"), second_site="asia")
    await stage.prepare()
    await stage.start()
    try:
        await stage[1].send("anna@example.org", "alice@contoso.com", subject="one", options=("RET=HDRS",))
        await stage.until(lambda: stage.taken() == ["one"])

        async def has_it() -> bool:
            return (await kept(stage[1]))["messages"] == 1

        await stage.until(has_it)
        stage.registry.activate("DB01", "MBX-02", 1, lost_seconds=600.0)
        await stage.until(lambda: second(stage))
        assert second(stage) == Counter(["one"])
        await stage.until(lambda: stage[2].count("delivered") == 1)

        async def is_there_now() -> bool:
            return (await kept(stage[2]))["messages"] >= 1

        await stage.until(is_there_now)
        assert stage[1].count("reports") == stage[2].count("reports") == 0
    finally:
        await stage.stop()


async def test_an_operator_asks_one_hub(stage: ShadowStage) -> None:
    await deliver(stage)
    found = await stage[1].running.operate("safety_net_redeliver", {"database": "DB01", "since": 0.0})
    assert found["hubs"] == [{"hub": "HUB-01", "messages": 5}, {"hub": "HUB-02", "messages": 5}]
    await stage.until(lambda: len(stage.taken()) >= 2 * len(SUBJECTS))
    assert Counter(stage.taken()) == Counter(SUBJECTS * 2)


async def test_a_restart_in_the_middle_goes_on(stage: ShadowStage, monkeypatch: pytest.MonkeyPatch) -> None:
    await deliver(stage)
    monkeypatch.setattr(safety_net, "A_SECOND", 1)
    stage.registry.activate("DB01", "MBX-02", 1, lost_seconds=600.0)
    await stage.until(lambda: stage[1].count("safety_net_redelivered") >= 1)
    await stage[1].stop()
    assert len(second(stage)) < len(SUBJECTS)
    monkeypatch.undo()
    await stage[1].start()
    await stage.until(lambda: len(stage.second_mailbox.received) >= len(SUBJECTS))
    assert second(stage) == Counter(SUBJECTS)


async def test_a_shadow_queue_is_named_by_number_and_one_message_is_taken_over(stage: ShadowStage) -> None:
    await stage.mailbox.stop()
    await stage[1].send("anna@example.org", "alice@contoso.com", subject="one")
    await stage[1].send("anna@example.org", "alice@contoso.com", subject="two")
    await stage.until(lambda: stage[2].count("shadow_held") == 2)
    hub = stage[2].running
    [queue] = await hub.operate("shadow_queues", {})
    assert (queue["server"], queue["number"], queue["messages"], queue["status"]) == ("HUB-01", 1, 2, "Ready")
    assert queue["oldest"] > 0
    found = await hub.operate("shadow_messages", {"primary": "1"})
    assert {entry["subject"] for entry in found} == {"one", "two"}
    assert {entry["queue"] for entry in found} == {1}
    [one] = [entry for entry in found if entry["subject"] == "one"]
    assert await hub.operate("shadow_resubmit", {"primary": "hub-01", "message": one["number"]}) == 1
    await stage.until(lambda: stage[2].count("shadow_resubmitted") == 1)
    with pytest.raises(ValueError, match="no shadow queue of HUB-09"):
        await hub.operate("shadow_queues", {"primary": "HUB-09"})
    with pytest.raises(ValueError, match="no message 999"):
        await hub.operate("shadow_resubmit", {"primary": "1", "message": 999})
