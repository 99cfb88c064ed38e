"""A hub whose clock is set, whose next server does not answer, and that has too much (SPEC T2, T8)."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hub_stage import ADDRESS, HubStage, Played

from gatepost.balancing import back_pressure
from gatepost.balancing.back_pressure import Marks, Pressure, count_marks
from gatepost.configuration.load import load
from gatepost.transport import hub as hub_module
from gatepost.transport.categorizer import SUBMISSION
from gatepost.transport.dispatch import dispatcher
from gatepost.transport.queues.item import Item
from gatepost.transport.spool import metering, spool

HOUR = 3600.0
LATER = 'transport = { queue_glitch_retry_interval = "00:01:00", message_retry_interval = "00:15:00" }'
SOON = 'transport = { queue_glitch_retry_interval = "00:00:01", message_retry_interval = "00:00:01" }'
FEW = 'transport = { queue_glitch_retry_interval = "00:00:01", max_queued_messages = 10 }'


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[HubStage]:
    made = HubStage(tmp_path, getattr(request, "param", LATER))
    await made.prepare()
    await made.start()
    yield made
    await made.stop()


async def set_clock(stage: HubStage, seconds: float) -> None:
    """Set the hub's clock, and wait until it has seen that."""
    stage.clock_ahead += seconds
    known = len(stage.events("clock.set"))
    await stage.until(lambda: len(stage.events("clock.set")) > known)


@pytest.mark.parametrize("step", [-HOUR, HOUR])
async def test_a_clock_that_is_set_moves_no_retry(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """Neither a storm of retries, nor an hour more of waiting; nothing is lost and nobody is told anything."""
    monkeypatch.setattr(hub_module, "TICK_SECONDS", 0.05)
    stage.outside.replies["END"] = "451 4.3.0 Later"
    for number in range(3):
        await stage.send("a@example.net", "c@example.org", subject=f"m{number}")
    [queue] = stage.hub.queues
    await stage.until(lambda: queue.deferred == 3)
    del stage.outside.replies["END"]
    connections = stage.outside.connections
    before = queue.next_time()
    await set_clock(stage, step)
    after = queue.next_time()
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(step, abs=1.0)
    assert (queue.deferred, stage.outside.connections, stage.outside.received) == (3, connections, [])
    await stage.hub.operate("retry_queue", {"queue": "*"})
    await stage.until(lambda: len(stage.outside.received) == 3)
    assert stage.hub.counters()["failed"] == stage.hub.counters()["reports"] == 0


@pytest.mark.parametrize("stage", [SOON], indirect=True)
@pytest.mark.parametrize("step", [-HOUR, HOUR])
async def test_a_server_that_is_down_is_probed_once_when_the_clock_is_set(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    monkeypatch.setattr(hub_module, "TICK_SECONDS", 0.05)
    await stage.outside.stop()
    for number in range(5):
        await stage.send("a@example.net", "c@example.org", subject=f"m{number}")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    [before] = await stage.hub.operate("unhealthy", {})
    await set_clock(stage, step)
    await asyncio.sleep(0.2)
    [after] = await stage.hub.operate("unhealthy", {})
    assert after["failures"] - before["failures"] <= 2
    await stage.outside.start()
    await stage.until(lambda: len(stage.outside.received) == 5)
    assert stage.outside.connections == 1


@pytest.mark.parametrize("stage", [SOON], indirect=True)
async def test_no_answer_after_the_end_is_tried_again_at_the_same_server(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 1047: it may have the message already, and then only it can tell that it is the same."""
    monkeypatch.setattr(dispatcher, "IDLE_SECONDS", 0.05)
    other = Played("127.0.61.10", stage.outside_port)
    await other.start()
    servers = {played.address: played for played in (stage.outside, other)}
    text = (stage.folder / "hub.toml").read_text()
    both = ", ".join(f'"{address}:{stage.outside_port}"' for address in servers)
    text = text.replace(f'"127.0.61.9:{stage.outside_port}"', both)
    (stage.folder / "hub.toml").write_text(text)
    stage.hub.reload(load(str(stage.folder / "hub.toml")).require())
    try:
        for number in range(2):
            for played in servers.values():
                played.gate = asyncio.Event()
            await stage.send("a@example.net", "c@example.org", subject=f"m{number}")
            await stage.until(lambda: any(played.gate and played.busy for played in servers.values()))
            [hangs] = [played for played in servers.values() if played.busy]
            before = len(hangs.received)
            await hangs.stop()  # the connection ends without an answer
            hangs.busy = False
            for played in servers.values():
                played.gate = None
            await hangs.start()
            await stage.until(lambda: not stage.hub.counters()["messages"])
            assert len(hangs.received) == before + 1
            await stage.until(lambda: not stage.hub.counters()["connections_out"])
    finally:
        await other.stop()


async def answer(stage: HubStage, *, trusted: bool) -> str:
    """The reply to MAIL."""

    def go() -> str:
        source = ("127.0.61.7" if trusted else "127.0.62.7", 0)
        try:
            with smtplib.SMTP(ADDRESS, stage.port, "client.example", 15.0, source) as client:
                client.ehlo()
                code, words = client.mail("a@example.net")
                return f"{code} {words.decode()}"
        except smtplib.SMTPConnectError as refused:  # at full pressure the greeting says it
            return f"{refused.smtp_code} {refused.smtp_error.decode() if refused.smtp_error else ''}"

    return await asyncio.to_thread(go)


@pytest.mark.parametrize("stage", [FEW], indirect=True)
async def test_too_many_messages_slow_strangers_then_refuse_them_then_all(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """exchange-facts 4.12; and it recovers by itself."""

    def hasty(most: int) -> Marks:
        return replace(count_marks(most), patience=5)

    monkeypatch.setattr(metering, "count_marks", hasty)
    monkeypatch.setattr(spool, "METERING_SECONDS", 0.05)
    monkeypatch.setattr(back_pressure, "TARPIT_FIRST", 0.2)
    monkeypatch.setattr(back_pressure, "TARPIT_STEP", 0.1)
    monkeypatch.setattr(back_pressure, "TARPIT_MOST", 0.4)
    stage.hub.reload(stage.configuration())
    disk = stage.hub._spool
    await disk.meter()
    await stage.outside.stop()
    for number in range(9):
        await stage.send("a@example.net", "c@example.org", subject=f"m{number}")
    await stage.until(lambda: stage.hub.intake.pressure is Pressure.MEDIUM)
    assert stage.hub.intake.tarpit_seconds >= 0.2
    await stage.until(lambda: stage.hub.intake.refuses_strangers)
    assert (await answer(stage, trusted=False)) == "452 4.3.1 Insufficient system resources"
    assert (await answer(stage, trusted=True)).startswith("250")
    await stage.send("a@example.net", "c@example.org", subject="m9")
    await stage.until(lambda: stage.hub.intake.pressure is Pressure.HIGH)
    assert (await answer(stage, trusted=True)).startswith(("452 4.3.1 Insufficient", "421 4.3.1 Insufficient"))
    assert stage.hub.counters()["pressure"] == int(Pressure.HIGH)
    await stage.outside.start()
    await stage.until(lambda: len(stage.outside.received) == 10)
    await stage.until(lambda: stage.hub.intake.pressure is Pressure.NORMAL)
    assert (await answer(stage, trusted=False)).startswith("250")
    stages = [event["stage"] for event in stage.events("pressure.changed")]
    assert stages == ["medium", "high", "normal"] or stages == ["medium", "high", "medium", "normal"]


@pytest.mark.parametrize("stage", [FEW], indirect=True)
async def test_strangers_wait_at_the_medium_stage(stage: HubStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "METERING_SECONDS", 0.05)
    monkeypatch.setattr(back_pressure, "TARPIT_FIRST", 0.5)
    monkeypatch.setattr(back_pressure, "TARPIT_STEP", 0.0)
    monkeypatch.setattr(back_pressure, "TARPIT_MOST", 0.5)
    await stage.hub._spool.meter()
    await stage.outside.stop()
    for number in range(9):
        await stage.send("a@example.net", "c@example.org", subject=f"m{number}")
    await stage.until(lambda: stage.hub.intake.pressure is Pressure.MEDIUM)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await answer(stage, trusted=False)).startswith("250")
    assert loop.time() - began >= 0.49


async def test_too_many_messages_without_a_way_are_pressure(stage: HubStage) -> None:
    """The submission queue's marks: 9999, 15000, 10000, 2000."""
    intake = stage.hub.intake
    found = []
    for unrouted in (9998, 9999, 14999, 15000, 10001, 10000, 2001, 2000):
        intake.meter(unrouted)
        found.append(intake.pressure.name)
    assert found == ["NORMAL", "MEDIUM", "MEDIUM", "HIGH", "HIGH", "MEDIUM", "MEDIUM", "NORMAL"]
    for _ in range(299):
        intake.meter(9999)
    assert not intake.refuses_strangers
    intake.meter(9999)
    assert intake.refuses_strangers
    assert intake.tarpit_seconds == 55.0


async def test_messages_that_wait_for_the_directory_are_counted(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    metered: list[int] = []
    monkeypatch.setattr(hub_module, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(hub_module, "METERING_SECONDS", 0.05)
    monkeypatch.setattr(stage.hub.intake, "meter", metered.append)
    await stage.outside.stop()
    await stage.send("a@example.net", "c@example.org")
    item = Item(1 << 40, (0,), 1, 1e12, 1e12)
    item.due = 1e12
    stage.hub.queues.add(SUBMISSION, item, 0.0)
    await stage.until(lambda: metered and metered[-1] == 1)
