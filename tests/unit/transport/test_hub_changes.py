"""What changes while a hub runs: limits, the directory, its own addresses. No restart is needed (SPEC V1, O4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hub_stage import HubStage

from gatepost.configuration.load import load
from gatepost.transport.categorizer import SUBMISSION
from gatepost.transport.dispatch import dispatcher
from gatepost.transport.own_addresses import interface_addresses


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HubStage]:
    monkeypatch.setattr(dispatcher, "IDLE_SECONDS", 0.1)
    made = HubStage(tmp_path)
    await made.prepare()
    await made.start()
    yield made
    await made.stop()


def use(stage: HubStage, settings: str) -> None:
    """What `Set-TransportServer` writes, as the running hub takes it up."""
    stage.extra = f"transport = {{ {settings} }}"
    stage.hub.reload(stage.configuration())


async def hold(stage: HubStage, messages: int) -> asyncio.Event:
    """Messages for outside, whose server answers none of them before the event."""
    gate = stage.outside.gate = asyncio.Event()
    for number in range(messages):
        await stage.send("a@contoso.com", f"c{number}@example.org")
    return gate


async def test_connections_of_one_next_hop_are_bounded_anew(stage: HubStage) -> None:
    """`MaxPerDomainOutboundConnections`, at smart hosts too; more are opened though those of before still hang."""
    use(stage, "max_per_domain_outbound_connections = 1")
    gate = await hold(stage, 45)
    await stage.until(lambda: stage.outside.connections == 1)
    await asyncio.sleep(0.05)
    assert stage.outside.connections == 1
    use(stage, "max_per_domain_outbound_connections = 2")
    await stage.until(lambda: stage.outside.connections == 2)
    await asyncio.sleep(0.05)
    assert stage.hub.counters()["connections_out"] == 2
    gate.set()


async def test_connections_in_all_are_bounded_anew(stage: HubStage) -> None:
    """`MaxOutboundConnections`: who waits for one gets it when there may be more."""
    use(stage, "max_outbound_connections = 1, max_per_domain_outbound_connections = 1")
    gate = await hold(stage, 1)
    await stage.until(lambda: stage.outside.connections == 1)
    await stage.send("a@contoso.com", "alice@contoso.com")
    await asyncio.sleep(0.05)
    assert stage.mailboxes["MBX-01"].connections == 0
    use(stage, "max_outbound_connections = 2, max_per_domain_outbound_connections = 1")
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)
    gate.set()


async def test_messages_of_one_connection_are_bounded_anew(stage: HubStage) -> None:
    """`IntraOrgConnectorSmtpMaxMessagesPerConnection`; 20 by default."""
    for number in range(3):
        await stage.send("a@contoso.com", "alice@contoso.com", subject=f"m{number}")
    await stage.until(lambda: len(stage.mailboxes["MBX-01"].received) == 3)
    before = stage.mailboxes["MBX-01"].connections
    assert before == 1
    use(stage, "max_messages_per_connection = 1")
    await stage.until(lambda: not stage.hub.counters()["connections_out"])  # that of before counts as it was opened
    for number in range(3):
        await stage.send("a@contoso.com", "alice@contoso.com", subject=f"n{number}")
    await stage.until(lambda: len(stage.mailboxes["MBX-01"].received) == 6)
    assert stage.mailboxes["MBX-01"].connections == before + 3


async def test_empty_queues_go_after_the_new_time(stage: HubStage) -> None:
    """`QueueMaxIdleTime`; three minutes by default."""
    await stage.send("a@contoso.com", "alice@contoso.com")
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)
    await stage.until(lambda: not stage.hub.counters()["messages"])
    assert stage.hub.counters()["queues"] == 1
    await stage.until(lambda: not stage.hub.counters()["connections_out"])
    [queue] = stage.hub.queues
    queue.empty_since -= 60.0
    assert stage.hub.queues.forget_idle(time.time(), stage.hub._settler.settings.queue_max_idle) == 0
    use(stage, 'queue_max_idle = "00:00:30"')
    await stage.until(lambda: not stage.hub.counters()["queues"])


async def test_what_could_not_be_looked_up_goes_on_when_the_directory_is_back(stage: HubStage) -> None:
    """The queue Submission: taken, and routed as soon as somebody can say where to, not only at its next turn."""
    await stage.mailboxes["MBX-01"].stop()
    await stage.send("a@contoso.com", "alice@contoso.com")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    await stage.hub.drain(1.0)
    directory = stage.folder / "directory.sqlite"
    directory.rename(stage.folder / "away.sqlite")
    await stage.mailboxes["MBX-01"].start()
    await stage.start()
    await stage.until(lambda: [q for q in stage.hub.queues if q.next_hop == SUBMISSION and len(q)])
    assert await stage.hub.operate("forget", {"address": "127.0.61.2", "port": stage.mailbox_port})
    await asyncio.sleep(0.05)
    assert stage.mailboxes["MBX-01"].received == []
    (stage.folder / "away.sqlite").rename(directory)
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)


async def test_who_listens_at_every_address_knows_all_of_them_as_its_own(stage: HubStage) -> None:
    """So that an MX that leads back to this machine is a loop, whatever its address (smtp-facts row 31)."""
    assert stage.hub._targets.ourselves.addresses == {"127.0.61.1"}
    stage.configuration()
    path = stage.folder / "hub.toml"
    path.write_text(
        path.read_text().replace(f'bindings = ["127.0.61.1:{stage.port}"]', f'bindings = ["0.0.0.0:{stage.port}"]')
    )
    stage.hub.reload(load(str(path)).require())
    assert interface_addresses() <= stage.hub._targets.ourselves.addresses
    assert "0.0.0.0" not in stage.hub._targets.ourselves.addresses
