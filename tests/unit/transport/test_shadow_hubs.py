"""Two and three hubs that keep shadows of each other's messages (SPEC S1 to S4; exchange-facts 4.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shadow_shim import ShimSpool
from shadow_stage import ShadowStage

import gatepost.transport.hub as hub_module


@pytest.fixture(autouse=True)
def shim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "DiskSpool", ShimSpool)
    monkeypatch.setattr(hub_module, "TICK_SECONDS", 0.05)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[ShadowStage]:
    made = ShadowStage(tmp_path)
    await made.prepare()
    await made.start()
    yield made
    await made.stop()


async def test_a_message_is_on_two_disks_before_it_is_acknowledged(stage: ShadowStage) -> None:
    stage.outside.gate = asyncio.Event()
    code, _ = await stage[1].send("a@example.net", "c@example.org")
    assert code == 250
    assert stage[2].count("shadow_held") == 1
    stage.outside.gate.set()
    await stage.until(lambda: stage.taken() == ["hello"])
    await stage.until(lambda: not stage[2].count("shadow_held"))
    await stage.until(lambda: not stage[1].count("messages") and not stage[2].count("messages"))


async def test_a_dead_primary_s_messages_are_taken_over_and_delivered_once(stage: ShadowStage) -> None:
    """S2; the primary's disk is lost."""
    await stage.outside.stop()
    code, _ = await stage[1].send("a@example.net", "c@example.org")
    assert code == 250
    await stage[1].kill(lose_disk=True)
    await stage.outside.start()
    await stage.until(lambda: stage.taken() == ["hello"])
    assert stage[2].count("shadow_resubmitted") == 1
    await stage.until(lambda: not stage[2].count("messages"))


async def test_a_primary_back_with_another_queue_database_is_noticed_at_once(stage: ShadowStage) -> None:
    """Promotion does not wait for ShadowResubmitTimeSpan then (exchange-facts 4.4)."""
    await stage.outside.stop()
    await stage[1].send("a@example.net", "c@example.org")
    await stage[1].kill(lose_disk=True)
    await stage[1].start()
    await stage.until(lambda: stage[2].count("shadow_resubmitted") == 1)
    await stage.outside.start()
    await stage.until(lambda: stage.taken() == ["hello"])
    await stage.until(lambda: not stage[2].count("messages") and not stage[1].count("messages"))


async def test_a_primary_that_comes_back_with_its_disk_asks_before_it_sends(stage: ShadowStage) -> None:
    """S3; smtp-facts c.1, 63: what was taken over meanwhile is not delivered a second time."""
    await stage.outside.stop()
    await stage[1].send("a@example.net", "c@example.org")
    await stage[1].kill()
    await stage.until(lambda: stage[2].count("shadow_resubmitted") == 1)
    await stage[1].start()
    await stage.until(lambda: stage[1].events("shadow.followed"))
    await stage.outside.start()
    await stage.until(lambda: stage.taken() == ["hello"])
    await stage.until(lambda: not stage[1].count("shadow_held") and not stage[2].count("messages"))
    assert stage.taken() == ["hello"]


async def test_a_primary_that_was_away_for_a_moment_delivers_itself(stage: ShadowStage) -> None:
    """S3: back with an unchanged database, no resubmission."""
    await stage.outside.stop()
    await stage[1].send("a@example.net", "c@example.org")
    await stage[1].stop()
    await stage[1].start()
    await stage.outside.start()
    await stage.until(lambda: stage.taken() == ["hello"])
    await stage.until(lambda: not stage[2].count("shadow_held"))
    assert stage[2].count("shadow_resubmitted") == 0


async def test_a_hub_that_hands_a_message_on_keeps_the_shadow(tmp_path: Path) -> None:
    """S1, the sender's copy: HUB-01 has no way out but HUB-02."""
    stage = ShadowStage(tmp_path, sources=("HUB-02",))
    await stage.prepare()
    await stage.start()
    stage.outside.gate = asyncio.Event()
    try:
        code, _ = await stage[1].send("a@example.net", "c@example.org")
        assert code == 250
        await stage.until(lambda: stage[1].count("shadow_held") == 1 and stage.outside.contents)
        assert not stage[2].count("shadow_held")
        stage.outside.gate.set()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[1].count("shadow_held"))
        assert stage[1].count("messages") == stage[2].count("messages") == 0
    finally:
        await stage.stop()
