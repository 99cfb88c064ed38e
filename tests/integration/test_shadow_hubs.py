"""Hubs that keep shadows of each other's messages: who has them when, and who delivers (SPEC S1 to S3)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from shadow_stage import QUICK, shadow_hubs

import gatepost.transport.hub as hub_module
from gatepost.transport.operating import NotFound


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TICK_SECONDS", 0.05)


async def test_a_dead_primary_s_messages_are_taken_over_and_delivered_once(tmp_path: Path) -> None:
    """S2; the primary's disk is lost, and the shadow server has no other hub left to protect them with."""
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        for subject in ("one", "two", "three"):
            await stage[1].send("a@example.net", "c@example.org", subject=subject)
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: sorted(stage.taken()) == ["one", "three", "two"])
        assert stage[2].count("shadow_resubmitted") == 3
        assert {event["reason"] for event in stage[2].events("shadow.resubmitted")} == {
            "the primary has been silent for too long"
        }
        await stage.until(lambda: not stage[2].count("messages"))
        assert len(stage.taken()) == 3


async def test_before_the_resubmit_time_span_nothing_is_taken_over(tmp_path: Path) -> None:
    config = replace(QUICK, shadow_resubmit_time_span=3600.0)
    async with shadow_hubs(tmp_path, config=config) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].kill()
        await stage.until(lambda: stage[2].count("heartbeats_failed") >= 4)
        assert stage[2].count("shadow_resubmitted") == 0
        assert stage[2].count("shadow_held") == 1


async def test_so_many_failed_heartbeats_are_enough_where_their_count_is_set(tmp_path: Path) -> None:
    """ShadowHeartbeatRetryCount (exchange-facts 4.4, 2010)."""
    config = replace(QUICK, shadow_resubmit_time_span=3600.0, shadow_heartbeat_retry_count=3)
    async with shadow_hubs(tmp_path, config=config) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].kill()
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        assert stage[2].count("heartbeats_failed") >= 3


async def test_a_primary_back_with_another_queue_database_is_noticed_at_once(tmp_path: Path) -> None:
    """Promotion does not wait for ShadowResubmitTimeSpan then (exchange-facts 4.4)."""
    config = replace(QUICK, shadow_resubmit_time_span=3600.0)
    async with shadow_hubs(tmp_path, config=config) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].kill(lose_disk=True)
        await stage[1].start()
        await stage.until(lambda: stage[2].count("shadow_resubmitted") == 1)
        # It is protected anew, by the hub that is back.
        await stage.until(lambda: stage[1].count("shadow_held") == 1)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[1].count("shadow_held"))
        assert stage.taken() == ["hello"]


async def test_a_primary_that_comes_back_with_its_disk_asks_before_it_sends(tmp_path: Path) -> None:
    """S3; smtp-facts c.1, 63: what was taken over meanwhile is not sent a second time, and the roles have changed."""
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].kill()
        await stage.until(lambda: stage[2].count("shadow_resubmitted") == 1)
        await stage[1].start()
        await stage.until(lambda: stage[1].count("shadow_held") == 1)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[1].count("shadow_held") and not stage[2].count("messages"))
        assert stage.taken() == ["hello"]


async def test_a_primary_that_comes_back_drops_what_was_delivered_meanwhile(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].kill()
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[2].count("messages"))
        await stage[1].start()
        await stage.until(lambda: stage[1].events("shadow.finished_elsewhere"))
        await stage.until(lambda: not stage[1].count("messages"))
        assert stage.taken() == ["hello"]


async def test_a_primary_that_was_away_for_a_moment_delivers_itself(tmp_path: Path) -> None:
    """S3: back with an unchanged database, no resubmission."""
    async with shadow_hubs(tmp_path, config=replace(QUICK, shadow_resubmit_time_span=3600.0)) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].kill()
        await stage[1].start()
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[2].count("shadow_held"))
        assert stage[2].count("shadow_resubmitted") == 0


async def test_a_start_does_not_wait_for_dead_hubs_for_ever(tmp_path: Path) -> None:
    """`shadow_fence_time`; messages that nobody watches go on at once."""
    async with shadow_hubs(tmp_path, config=replace(QUICK, shadow_fence_time=1.0)) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org", subject="watched")
        await stage[2].kill()
        await stage[1].send("a@example.net", "c@example.org", subject="alone")
        await stage[1].stop()
        await stage.outside.start()
        await stage[1].start()
        await stage.until(lambda: stage.taken() == ["alone"])
        assert stage[1].running.shadow.primary.waits(1)
        await stage.until(lambda: stage.taken() == ["alone", "watched"])


async def test_a_hub_that_hands_a_message_on_keeps_the_shadow(tmp_path: Path) -> None:
    """S1, the sender's copy: HUB-01 has no way out but HUB-02, which makes no copy of its own."""
    async with shadow_hubs(tmp_path, sources=("HUB-02",)) as stage:
        stage.outside.gate = asyncio.Event()
        await stage[1].send("a@example.net", "c@example.org")
        await stage.until(lambda: stage[1].count("shadow_held") == 1 and stage.outside.contents)
        await stage.until(lambda: not stage[2].count("shadow_held"))
        assert stage[2].count("shadow_made") == 0
        stage.outside.gate.set()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[1].count("shadow_held") and not stage[2].count("messages"))


async def test_the_sender_s_copy_is_delivered_when_the_next_hub_dies(tmp_path: Path) -> None:
    """HUB-02 dies with its disk after it has taken the message; HUB-01 has another way then."""
    async with shadow_hubs(tmp_path, 3, sources=("HUB-02", "HUB-03")) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage.until(lambda: stage[2].count("messages") + stage[3].count("messages") == 1)
        await stage.until(lambda: stage[1].count("shadow_held") == 1)
        dead, alive = (stage[2], stage[3]) if stage[2].count("messages") else (stage[3], stage[2])
        await dead.kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not alive.count("messages") and not stage[1].count("messages"))
        assert stage.taken() == ["hello"]


async def test_shadows_of_a_message_with_several_next_hops_go_one_by_one(tmp_path: Path) -> None:
    """The last copy is released only when every fork is done (exchange-facts 4.4, 2013)."""
    async with shadow_hubs(tmp_path, sources=("HUB-02",)) as stage:
        stage.outside.gate = asyncio.Event()
        stage.mailbox.gate = asyncio.Event()
        await stage[1].send("a@example.net", "alice@contoso.com", "c@example.org")
        await stage.until(lambda: stage.outside.contents and stage.mailbox.contents)
        await stage.until(lambda: stage[1].count("shadow_held") == 1)
        stage.outside.gate.set()
        await stage.until(lambda: not stage[1].count("shadow_held"))
        assert stage[1].count("messages") == 1
        assert stage[2].count("shadow_held") == 1
        stage.mailbox.gate.set()
        await stage.until(lambda: not stage[2].count("shadow_held") and not stage[1].count("messages"))


async def test_a_resubmission_repeats_only_what_is_unfinished(tmp_path: Path) -> None:
    """smtp-facts, the ledger of deliveries: the shadow server hears of single recipients."""
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "alice@contoso.com", "c@example.org")
        await stage.until(lambda: stage.mailbox.received)
        await stage.until(lambda: stage[2].count("shadow_shrunk") == 1)
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: stage.outside.received)
        await stage.until(lambda: not stage[2].count("messages"))
        assert len(stage.mailbox.received) == 1


async def test_kept_shadows_survive_the_shadow_server_s_restart(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[2].kill()
        await stage[2].start()
        assert stage[2].count("shadow_held") == 1
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])


async def test_discard_events_survive_the_primary_s_restart(tmp_path: Path) -> None:
    """They are on disk (exchange-facts 4.4, 2013)."""
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[2].kill()
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[1].count("messages"))
        await stage[1].stop()
        await stage[1].start()
        await stage[2].start()
        await stage.until(lambda: not stage[2].count("shadow_held"))
        assert stage[2].count("shadow_resubmitted") == 0
        assert stage.taken() == ["hello"]


async def test_a_lost_shadow_is_made_anew(tmp_path: Path) -> None:
    """The shadow server loses its disk and says so when it starts; later the primary loses its own."""
    config = replace(QUICK, shadow_resubmit_time_span=3600.0, shadow_heartbeat_retry_count=3)
    async with shadow_hubs(tmp_path, config=config) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[2].kill(lose_disk=True)
        await stage[2].start()
        await stage.until(lambda: stage[2].count("shadow_held") == 1)
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])


async def test_what_an_operator_drops_is_dropped_by_the_shadow_server_too(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        hub = stage[1].running
        [message] = await hub.operate("messages", {})
        await hub.operate("drop", {"message": f"*\\{message['number']}", "report": False})
        await stage.until(lambda: not stage[2].count("shadow_held"))


async def test_operators_see_shadow_queues_and_take_them_over(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        hub = stage[2].running
        [queue] = await hub.operate("shadow_queues", {})
        assert (queue["server"], queue["messages"]) == ("HUB-01", 1)
        [message] = await hub.operate("shadow_messages", {"primary": "HUB-01"})
        assert message["from"] == "a@example.net"
        assert message["recipients"][0]["state"] == "shadowed"
        with pytest.raises(NotFound):
            await hub.operate("shadow_messages", {"primary": "HUB-09"})
        assert await hub.operate("shadow_resubmit", {"primary": "HUB-01"}) == 1
        # HUB-01 is alive: it is told, and keeps the shadow from then on.
        await stage.until(lambda: stage[1].count("shadow_held") == 1)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[1].count("shadow_held"))
        assert stage.taken() == ["hello"]


async def test_a_message_that_is_put_aside_for_a_fault_is_not_done(tmp_path: Path) -> None:
    """Its shadow stays, also over a restart, until an operator forgets the message."""
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].running._spool.quarantine(1, "a test")
        await stage[1].stop()
        await stage[1].start()
        heartbeats = stage[2].count("heartbeats")
        await stage.until(lambda: stage[2].count("heartbeats") >= heartbeats + 12)
        assert stage[2].count("shadow_held") == 1
        await stage[1].running.operate("forget_message", {"number": 1})
        await stage.until(lambda: not stage[2].count("shadow_held"))
        assert stage[2].count("shadow_resubmitted") == 0


async def test_a_hub_that_takes_over_tells_no_delay_twice(tmp_path: Path) -> None:
    """smtp-facts c.1, 20: the state of the reports goes along."""
    async with shadow_hubs(tmp_path) as stage:
        stage.mailbox.replies["alice@contoso.com"] = "450 4.2.0 Come again"
        await stage[1].send("a@example.net", "alice@contoso.com")
        stage[1].clock_ahead = 5 * 3600.0
        await stage.until(lambda: len(stage.outside.received) == 1)
        await stage.until(lambda: stage[2].count("shadow_shrunk") == 1)
        await stage[1].kill(lose_disk=True)
        stage[2].clock_ahead = 5 * 3600.0
        await stage.until(lambda: stage[2].count("shadow_resubmitted") == 1)

        async def tried_again() -> bool:
            return all(m["attempts"] >= 2 for m in await stage[2].running.operate("messages", {}))

        await stage.until(tried_again)
        assert stage[2].count("reports") == 0
        assert len(stage.outside.received) == 1


async def test_a_resubmitted_message_may_pass_the_hub_that_had_it_before(tmp_path: Path) -> None:
    """smtp-facts c.1, 31: HUB-01's own trace field in it is no loop."""
    async with shadow_hubs(tmp_path, sources=("HUB-01",)) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].kill(lose_disk=True)
        await stage.until(lambda: stage[2].count("shadow_resubmitted") == 1)
        await stage.outside.start()
        await stage[1].start()
        await stage.until(lambda: stage.taken() == ["hello"])
        content = stage.outside.received[0].content
        assert content.count(b"by hub-01.contoso.com") == 2
        await stage.until(lambda: not stage[2].count("shadow_held") and not stage[2].count("messages"))


async def test_mail_for_mailboxes_goes_to_the_safety_nets_of_both_hubs(tmp_path: Path) -> None:
    """exchange-facts 4.5: the primary keeps what it has delivered, and the shadow server when the event comes."""
    async with shadow_hubs(tmp_path, config=replace(QUICK, safety_net_hold_time=3600.0)) as stage:
        await stage[1].send("a@example.net", "alice@contoso.com")
        await stage.until(lambda: stage.mailbox.received)
        await stage.until(lambda: not stage[2].count("shadow_held"))
        now = time.time()

        async def both() -> bool:
            spools = [hub.running._spool for hub in stage.hubs.values()]
            found = [await spool.kept_since("DB01", now - 60, now + 60) for spool in spools]
            return all(len(kept) == 1 and kept[0].until > now + 3000 for kept in found)

        await stage.until(both)
        await stage.until(lambda: not stage[1].count("messages"))


async def test_what_was_delivered_elsewhere_is_in_no_safety_net(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path, config=replace(QUICK, safety_net_hold_time=3600.0)) as stage:
        await stage[1].send("a@example.net", "c@example.org")
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[2].count("shadow_held"))
        await stage.until(lambda: not stage[1].count("kept") and not stage[2].count("kept"))


async def test_an_address_that_puts_off_is_tried_by_the_schedule_after_a_takeover(tmp_path: Path) -> None:
    """smtp-facts c.1, 47: greylists know another hub's address not yet."""
    async with shadow_hubs(tmp_path) as stage:
        stage.mailbox.replies["alice@contoso.com"] = "450 4.2.0 Greylisted"
        await stage[1].send("a@example.net", "alice@contoso.com")
        await stage.until(lambda: stage.mailbox.connections)
        await stage[1].kill(lose_disk=True)
        await stage.until(lambda: stage[2].count("shadow_resubmitted") == 1)
        await stage.until(lambda: any(queue.deferred for queue in stage[2].running.queues))
        del stage.mailbox.replies["alice@contoso.com"]
        await stage.until(lambda: stage.taken() == ["hello"])


async def test_shadow_redundancy_that_is_switched_off_finishes_what_it_has(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        stage.config = replace(QUICK, shadow_redundancy_enabled=False)
        for hub in stage.hubs.values():
            hub.running.reload(stage.configuration(hub.name))
        await stage[1].send("a@example.net", "c@example.org", subject="unshadowed")
        assert stage[2].count("shadow_held") == 1
        await stage.outside.start()
        await stage.until(lambda: sorted(stage.taken()) == ["hello", "unshadowed"])
        await stage.until(lambda: not stage[2].count("shadow_held"))


async def test_a_hub_that_leaves_the_organization_has_its_messages_taken_over(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path, 3) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        holder = next(hub for hub in (stage[2], stage[3]) if hub.count("shadow_held"))
        await stage[1].kill(lose_disk=True)
        del stage.hubs["HUB-01"]
        stage.sources = ("HUB-02", "HUB-03")
        for hub in stage.hubs.values():
            hub.running.reload(stage.configuration(hub.name))
        await stage.until(lambda: holder.count("shadow_resubmitted") == 1)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
