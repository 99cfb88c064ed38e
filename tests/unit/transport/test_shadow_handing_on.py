"""A message that is handed to another hub with a token: the hub becomes its primary (SPEC S1); and T9's heartbeats."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from receive_stage import CONNECTOR
from shadow_channel_stage import HUB_01, ChannelStage, channel_stage

from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.target import Target
from gatepost.organization.transport import TransportSettings
from gatepost.routing.next_hop import DeliveryType, Destination, NextHop, Way
from gatepost.transport.connecting import Connected
from gatepost.transport.connectivity_log import ConnectivityLog
from gatepost.transport.dispatch.ports import NotReached, Sent
from gatepost.transport.message import Envelope, Recipient, RecipientState, Watcher
from gatepost.transport.next_hop_targets import NextHopTargets, Ourselves
from gatepost.transport.reaching import Identity, MailSender, Reaching
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.spool.reading import MemoryBody
from gatepost.wire.smtp_reply import Reply

NOW = 1_000_000.0
NEXT_HOP = NextHop(DeliveryType.SITE, "usa")
CONTENT = b"Subject: s\r\n\r\ntext\r\n"


def message(*names: str) -> Envelope:
    return Envelope("s@ours.example", [Recipient(f"{name}@ours.example") for name in names or ("a", "b")], NOW, NOW)


def tokens() -> Any:
    order = itertools.count(1)
    return lambda: f"ab-{next(order)}"


async def handed_on(sender: SmtpSender, envelope: Envelope, token: Any = None, **how: Any) -> Sent:
    """By the dispatcher's sender; `how` are fields of its way."""
    sender.way = replace(sender.way, **how) if how else sender.way
    target = Target("hub-01.contoso.com", "127.0.0.1", 25, 0, sender.way)
    destination = Destination(NEXT_HOP, (sender.way,))
    rows = SimpleNamespace(ends=lambda *_: None)
    mail = MailSender(cast(Any, None), destination, Connected(target, sender), cast(Any, rows))
    places = tuple(range(len(envelope.recipients)))

    async def reopen() -> MemoryBody:
        return MemoryBody(CONTENT)

    return await mail.send(envelope, places, MemoryBody(CONTENT), reopen, token)


@pytest.fixture
async def stage() -> AsyncIterator[ChannelStage]:
    async with channel_stage() as stage:
        yield stage


async def test_the_next_hub_becomes_the_primary(stage: ChannelStage) -> None:
    sender = await stage.reach.reach_server("HUB-01")
    assert sender.primary == HUB_01
    sent = await handed_on(sender, message(), tokens())
    assert sent.primary == HUB_01
    assert [(each.state, each.token) for each in sent.answers] == [(RecipientState.SHADOWED, "ab-1")] * 2
    ((envelope, _),) = stage.received.intake.taken
    assert envelope.watchers == [Watcher("HUB-02", "ab-1")]
    assert envelope.source.internal
    await sender.quit()


async def test_without_a_token_nothing_is_said_and_it_is_delivered(stage: ChannelStage) -> None:
    sender = await stage.reach.reach_server("HUB-01")
    sent = await handed_on(sender, message())
    assert sent.primary is None
    assert {(each.state, each.token) for each in sent.answers} == {(RecipientState.DELIVERED, "")}
    assert stage.received.intake.taken[0][0].watchers == []
    await sender.quit()


async def test_only_who_is_taken_is_shadowed(stage: ChannelStage) -> None:
    sender = await stage.reach.reach_server("HUB-01")
    sent = await handed_on(sender, message("a", "unknown"), tokens())
    assert [(each.state, each.token) for each in sent.answers] == [
        (RecipientState.SHADOWED, "ab-1"),
        (RecipientState.FAILED, ""),
    ]
    stage.received.intake.reply = Reply(451, "Later", "4.3.0")
    sent = await handed_on(sender, message("a"), tokens())
    assert [(each.state, each.token) for each in sent.answers] == [(RecipientState.WAITING, "")]
    await sender.quit()


async def test_each_transaction_has_a_token_of_its_own() -> None:
    async with channel_stage(replace(CONNECTOR, max_recipients=2)) as stage:
        sender = await stage.reach.reach_server("HUB-01")
        sent = await handed_on(sender, message(*"abcde"), tokens())
        assert [each.token for each in sent.answers] == ["ab-1", "ab-1", "ab-2", "ab-2", "ab-3"]
        found = [envelope.watchers[0].token for envelope, _ in stage.received.intake.taken]
        assert found == ["ab-1", "ab-2", "ab-3"]
        await sender.quit()


async def test_an_answer_that_does_not_come_leaves_the_token_with_the_recipient(stage: ChannelStage) -> None:
    sender = await stage.reach.reach_server("HUB-01")
    stage.received.intake.commit.clear()

    def cut() -> str:
        stage.received.service.loop.call_later(0.1, lambda: [c.abort() for c in stage.received.service.connections])
        return "ab-1"

    sent = await handed_on(sender, message("a"), cut)
    stage.received.intake.commit.set()
    assert sent.fault
    assert [(each.state, each.token) for each in sent.answers] == [(RecipientState.UNCERTAIN, "ab-1")]


async def test_a_message_that_is_announced_with_the_end_of_the_one_before_has_its_token_too(
    stage: ChannelStage,
) -> None:
    sender = await stage.reach.reach_server("HUB-01")
    token = tokens()
    await handed_on(sender, message("a"), token)
    sender.prompt = True
    following = message("c")
    sender.prepare(following, following.recipients, MemoryBody(CONTENT), token)
    first = await handed_on(sender, message("b"), token)
    second = await handed_on(sender, following, token)
    assert [first.answers[0].token, second.answers[0].token] == ["ab-3", "ab-2"]
    assert second.primary == HUB_01
    found = [(envelope.recipients[0].address[0], envelope.watchers) for envelope, _ in stage.received.intake.taken]
    assert found == [(name, [Watcher("HUB-02", t)]) for name, t in (("a", "ab-1"), ("b", "ab-3"), ("c", "ab-2"))]
    await sender.quit()


@pytest.mark.parametrize("how", [{"mutual": False}, {"server": "HUB-03"}, {"server": ""}])
async def test_nothing_is_said_to_a_server_that_is_not_the_one_that_was_wanted(
    stage: ChannelStage, how: dict[str, Any]
) -> None:
    sender = await stage.reach.reach_server("HUB-01")
    sent = await handed_on(sender, message("a"), tokens(), **how)
    assert sent.primary is None
    assert sent.answers[0].state is RecipientState.DELIVERED
    assert stage.received.intake.taken[0][0].watchers == []
    await sender.quit()


async def test_nothing_is_said_where_it_is_not_offered(stage: ChannelStage) -> None:
    stage.received.service.shadow = None
    sender = await stage.reach.reach_server("HUB-01")
    sent = await handed_on(sender, message("a"), tokens())
    assert (sent.primary, sent.answers[0].state) == (None, RecipientState.DELIVERED)
    await sender.quit()


# Reaching a server for a channel


class Router:
    """Knows HUB-01 at the stage's port."""

    def __init__(self, port: int) -> None:
        self.way = Way("hub-01.contoso.com", "127.0.0.1", port, mutual=True, server="HUB-01")

    def destination(self, next_hop: NextHop, active: object) -> Destination | None:
        assert next_hop.delivery is DeliveryType.SERVERS
        return Destination(next_hop, (self.way,)) if next_hop.domain == "HUB-01" else None


def reaching(stage: ChannelStage, folder: Path) -> Reaching:
    settings = TransportSettings()
    categorizer = SimpleNamespace(router=Router(stage.received.ports[0]), active={})
    return Reaching(
        cast(Any, categorizer),
        NextHopTargets(cast(Any, None), Ourselves()),
        HealthyServerSelector(settings),
        stage.outbound,
        cast(Any, None),
        Identity("hub-02.contoso.com"),
        lambda: NOW,
        cast(Any, stage.log),
        ConnectivityLog(folder, settings, lambda: NOW),
    )


async def test_t9_a_heartbeat_passes_the_list_and_takes_the_server_off_it(stage: ChannelStage, tmp_path: Path) -> None:
    found = reaching(stage, tmp_path)
    assert found.may_reach("HUB-01")
    sender = await found.reach_server("HUB-01")
    sender.abort()
    target = Target("hub-01.contoso.com", "127.0.0.1", stage.received.ports[0], 0, sender.way)
    found.selector.failed(target, NOW, "ECONNREFUSED")
    assert not found.may_reach("HUB-01")
    with pytest.raises(NotReached, match="known to be down"):
        await found.reach_server("HUB-01")
    (await found.reach_server("HUB-01", heartbeat=True)).abort()
    assert found.selector.healthy(target)
    assert found.may_reach("HUB-01")
    await found.close()


async def test_a_heartbeat_that_gets_no_connection_puts_the_server_on_the_list(
    stage: ChannelStage, tmp_path: Path
) -> None:
    found = reaching(stage, tmp_path)
    await stage.received.stop()
    for heartbeat in (True, True, False):
        with pytest.raises(NotReached):
            await found.reach_server("HUB-01", heartbeat=heartbeat)
    (entry,) = found.selector.unhealthy(NOW)
    assert entry.failures == 2
    await found.close()


async def test_a_server_that_is_none_is_not_reached(stage: ChannelStage, tmp_path: Path) -> None:
    found = reaching(stage, tmp_path)
    with pytest.raises(NotReached, match="no such server"):
        await found.reach_server("HUB-09", heartbeat=True)
    await found.close()


async def test_a_server_that_takes_connections_and_does_not_serve_stays_off_the_list(
    stage: ChannelStage, tmp_path: Path
) -> None:
    found = reaching(stage, tmp_path)
    stage.received.service.stopping = True  # each connection is greeted by 421
    with pytest.raises(NotReached, match="421"):
        await found.reach_server("HUB-01", heartbeat=True)
    assert not found.selector.unhealthy(NOW)
    await found.close()
