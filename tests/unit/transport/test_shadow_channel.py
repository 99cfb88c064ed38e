"""A shadow channel between two hubs: copies, questions, slowness and loss (SPEC S1, S2)."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest
from receive_stage import CONNECTOR, until
from shadow_channel_stage import HUB_01, HUB_02, QUICK, ChannelStage, channel_stage

from gatepost.transport.shadow.ports import ChannelLost
from gatepost.wire.shadow_messages import Ask, Discarded, Hold, Status


class Large:
    """A content of so many octets that comes in pieces. A `BodyReader`."""

    def __init__(self, size: int, *, says: int | None = None, fault: OSError | None = None) -> None:
        self.size = says if says is not None else size
        self._octets = size
        self._fault = fault
        self.read = 0

    async def chunks(self):  # noqa: ANN201 - a generator
        while self.read < self._octets:
            piece = b"x" * min(256 * 1024, self._octets - self.read)
            self.read += len(piece)
            yield piece
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        pass


async def test_copies_are_held() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        assert channel.usable
        assert (channel.server, channel.identity) == ("HUB-01", HUB_01.identity)
        assert await channel.hold("a-1", b"envelope", b"content", 7) == ""
        assert await channel.hold("a-2", b"other", b"", 0) == ""
        assert stage.keeper.held == {"a-1": (b"envelope", b"content"), "a-2": (b"other", b"")}
        assert stage.keeper.hubs == {("HUB-02", HUB_02.identity)}


async def test_several_holds_are_under_way_and_answered_as_they_end() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.commit.clear()
        holds = [asyncio.create_task(channel.hold(f"a-{n:x}", b"e", b"c", 1)) for n in range(50)]
        await until(lambda: stage.keeper.committing == 50)
        assert await channel.statuses(["b"]) == [Status.UNKNOWN]
        assert not any(hold.done() for hold in holds)
        stage.keeper.commit.set()
        assert await asyncio.gather(*holds) == [""] * 50


async def test_more_questions_than_may_be_under_way_wait_for_their_turn() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.commit.clear()
        holds = [asyncio.create_task(channel.hold(f"a-{n:x}", b"e", b"c", 1)) for n in range(1200)]
        await until(lambda: stage.keeper.committing == 512)
        stage.keeper.commit.set()
        assert await asyncio.gather(*holds) == [""] * 1200
        assert stage.keeper.most_committing <= 512
        assert channel.usable


async def test_large_contents_come_in_pieces_and_small_ones_pass_them() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        body = Large(3 * 1024 * 1024)
        assert await channel.hold("a-1", b"e", body, body.size) == ""
        assert stage.keeper.held["a-1"][1] == b"x" * body.size
        whole = bytes(range(256)) * 5000
        assert await channel.hold("a-2", b"e", whole, len(whole)) == ""
        assert stage.keeper.held["a-2"][1] == whole


async def test_a_full_writer_stops_the_reading_and_memory_stays_flat() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.keeps = False
        stage.keeper.disk.clear()
        body = Large(50 * 1024 * 1024)
        hold = asyncio.create_task(channel.hold("a-1", b"e", body, body.size))
        await until(lambda: stage.keeper.copies and stage.keeper.copies[0].full)
        seen = -1
        while seen != body.read:  # until nothing moves any more
            seen = body.read
            await asyncio.sleep(0.1)
        assert body.read < 20 * 1024 * 1024
        assert not hold.done()
        stage.keeper.disk.set()
        assert await hold == ""
        assert stage.keeper.copies[0].size == body.size
        assert stage.keeper.copies[0].most < 8 * 1024 * 1024


async def test_discard_events_are_acknowledged_by_the_next_question() -> None:
    async with channel_stage() as stage:
        stage.keeper.events = [Discarded("a-1"), Discarded("a-2", [1], ["DB01"], 5.0), Discarded("a-3")]
        channel = await stage.channels.channel("HUB-01")
        assert await channel.ask(2) == (stage.keeper.events[:2], True)
        assert stage.keeper.forgotten == []
        events, more = await channel.ask(2)
        assert ([event.token for event in events], more) == (["a-3"], False)
        assert stage.keeper.forgotten == ["a-1", "a-2"]
        assert await channel.ask(2) == ([], False)
        assert stage.keeper.forgotten == ["a-1", "a-2", "a-3"]


async def test_events_whose_answer_was_lost_are_told_again() -> None:
    async with channel_stage() as stage:
        stage.keeper.events = [Discarded("a-1")]
        first = await stage.channels.channel("HUB-01")
        assert (await first.ask())[0]
        first.close()
        second = await stage.channels.channel("HUB-01")
        assert second is not first
        assert (await second.ask())[0] == [Discarded("a-1")]
        assert stage.keeper.forgotten == []


async def test_many_tokens_are_asked_about_in_parts() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.held["a-7"] = b"", b""
        tokens = [f"a-{number}" for number in range(12_000)]
        found = await channel.statuses(tokens, took_over=True)
        assert [tokens[at] for at, status in enumerate(found) if status is Status.HELD] == ["a-7"]
        assert stage.keeper.asked == [("HUB-02", 5000, True), ("HUB-02", 5000, True), ("HUB-02", 2000, True)]
        assert await channel.statuses([]) == []


async def test_a_long_redelivery_holds_up_nothing() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.answer.clear()
        redelivery = asyncio.create_task(channel.redeliver("request 1", "DB01", 1.0, 2.0))
        await until(lambda: stage.keeper.asked)
        assert await channel.hold("a", b"e", b"c", 1) == ""
        stage.keeper.answer.set()
        assert await redelivery == 7
        assert stage.keeper.asked == [("request 1", "DB01", 1.0, 2.0)]


@pytest.mark.parametrize("fault", ["no room", "no disk", "refused", "broken", "bug"])
async def test_a_copy_that_is_not_kept_says_why(fault: str) -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        keeper = stage.keeper
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        keeper.no_room = fault == "no room"
        keeper.reason = "not for me" if fault == "refused" else ""
        keeper.fault = {"no disk": OSError(5, "input/output error"), "bug": RuntimeError("bug")}.get(fault)
        keeper.drain_fault = OSError(5, "broken disk") if fault == "broken" else None
        size = 1024 * 1024
        reason = await channel.hold("a", b"e", Large(size), size)
        wanted = {"no room": "no room", "no disk": "input/output", "refused": "not for me", "broken": "broken disk"}
        assert wanted.get(fault, "a fault of the keeper's") in reason
        assert len(faults) == (fault == "bug")
        assert not keeper.held
        assert channel.usable
        keeper.no_room, keeper.reason, keeper.fault, keeper.drain_fault = False, "", None, None
        assert await channel.hold("b", b"e", b"c", 1) == ""


async def test_what_cannot_be_asked_fails_alone() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        assert "octets" in await channel.hold("a", b"e", b"content", 3)
        assert "envelope" in await channel.hold("a", b"e" * 3_000_000, b"", 0)
        assert "cannot be read" in await channel.hold("a", b"e", Large(300_000, fault=OSError("gone")), 600_000)
        for is_, says in ((700_000, 600_000), (500_000, 600_000)):
            assert await channel.hold("a", b"e", Large(is_), says) == "the content is not as long as it was"
        assert await channel.hold("b", b"e", b"c", 1) == ""
        assert set(stage.keeper.held) == {"b"}
        await until(lambda: all(copy.discarded for copy in stage.keeper.copies[:3]))


async def test_who_gives_up_in_the_midst_of_a_content_leaves_nothing() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.disk.clear()
        hold = asyncio.create_task(channel.hold("a", b"e", Large(50_000_000), 50_000_000))
        await until(lambda: stage.keeper.copies and stage.keeper.copies[0].full)
        hold.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hold
        stage.keeper.disk.set()
        await until(lambda: stage.keeper.copies[0].discarded)
        assert await channel.hold("b", b"e", b"c", 1) == ""
        assert set(stage.keeper.held) == {"b"}


async def test_who_gives_up_waiting_may_have_it_kept() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.commit.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(channel.hold("a", b"e", b"c", 1), 0.05)
        stage.keeper.commit.set()
        assert await channel.hold("b", b"e", b"c", 1) == ""
        assert set(stage.keeper.held) == {"a", "b"}


async def test_a_lost_channel_fails_all_questions_at_once_and_the_next_one_is_new() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.commit.clear()
        stage.keeper.answer.clear()
        asked = [asyncio.create_task(channel.hold(f"a{n:x}", b"e", b"c", 1)) for n in range(20)]
        asked += [asyncio.create_task(channel.ask()), asyncio.create_task(channel.redeliver("r", "DB", 0.0, 1.0))]
        large = asyncio.create_task(channel.hold("b", b"e", Large(50_000_000), 50_000_000))
        stage.keeper.disk.clear()
        await until(lambda: stage.keeper.committing == 20 and stage.keeper.asked)
        stage.answering.abort("killed")
        found = await asyncio.gather(*asked, large, return_exceptions=True)
        assert all(isinstance(each, ChannelLost) for each in found), found
        assert not channel.usable
        with pytest.raises(ChannelLost):
            await channel.hold("c", b"e", b"c", 1)
        stage.keeper.commit.set()
        stage.keeper.answer.set()
        again = await stage.channels.channel("HUB-01")
        assert again is not channel
        assert await again.hold("d", b"e", b"c", 1) == ""
        # What was complete is kept, though nobody was there to hear of it.
        assert {f"a{n:x}" for n in range(20)} <= set(stage.keeper.held)
        assert "b" not in stage.keeper.held
        assert stage.channels.lost == 1


async def test_a_channel_lost_in_the_midst_of_a_content_is_no_fault_of_ours() -> None:
    """Who writes hears of it there, and never waits for the answer."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.disk.clear()
        large = asyncio.create_task(channel.hold("b", b"e", Large(50_000_000), 50_000_000))
        await until(lambda: stage.keeper.copies and stage.keeper.copies[0].full)
        stage.answering.abort("killed")
        with pytest.raises(ChannelLost):
            await large
    del large, channel
    gc.collect()
    await asyncio.sleep(0)
    gc.collect()
    assert faults == []


async def test_a_hub_that_does_not_answer_in_time_is_lost() -> None:
    async with channel_stage(times=QUICK) as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.commit.clear()
        with pytest.raises(ChannelLost, match="no answer in time"):
            await channel.hold("a", b"e", b"c", 1)
        stage.keeper.commit.set()


async def test_a_large_content_has_its_time_from_piece_to_piece() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.keeps = False
        deadlines = []

        class Watched(Large):
            async def chunks(self):  # noqa: ANN202
                async for piece in super().chunks():
                    deadlines.append(next(iter(channel._pending.values())).deadline)
                    await asyncio.sleep(0.01)
                    yield piece

        body = Watched(6 * 256 * 1024)
        assert await channel.hold("a", b"e", body, body.size) == ""
        assert len(deadlines) == 6
        assert deadlines == sorted(set(deadlines))


async def test_a_channel_at_rest_is_kept_and_a_frozen_hub_is_noticed() -> None:
    async with channel_stage(times=QUICK) as stage:
        channel = await stage.channels.channel("HUB-01")
        heard = stage.answering._heard
        await until(lambda: stage.answering._heard > heard + 0.2)
        assert channel.usable
        stage.answering.say = lambda *pieces: None  # it answers nothing any more
        channel._times = replace(QUICK, silence=0.1)
        await until(lambda: not channel.usable)
        assert [entry.kwargs["reason"] for entry in stage.log.calls if entry.args == ("shadow.channel_closed",)] == [
            "the server is silent"
        ]


async def test_the_connectors_deadlines_do_not_end_a_channel_but_silence_does(monkeypatch: pytest.MonkeyPatch) -> None:
    brief = replace(CONNECTOR, connection_seconds=0.2, inactivity_seconds=0.2)
    async with channel_stage(brief, times=QUICK) as stage:
        channel = await stage.channels.channel("HUB-01")
        await asyncio.sleep(0.4)
        assert channel.usable
        assert await channel.hold("a", b"e", b"c", 1) == ""
        monkeypatch.setattr("gatepost.transport.shadow.answering.SILENCE_SECONDS", 0.3)
        channel.say = lambda *pieces: None  # type: ignore[method-assign]
        await until(lambda: not stage.received.service.channels)
        assert left(stage) == ["nothing was heard"]
        assert not +stage.received.service.counts._all


async def test_who_does_not_read_its_answers_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatepost.transport.shadow.answering.STALL_SECONDS", 0.3)
    async with channel_stage(times=replace(QUICK, silence=60.0)) as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.events = [Discarded(f"{number:064x}", None, ["x" * 900]) for number in range(1000)]
        assert channel._transport is not None
        channel._transport.pause_reading()
        asked = [asyncio.create_task(channel._answered(Ask(0, 1000), 60.0)) for _ in range(40)]
        await until(lambda: not stage.received.service.channels)
        channel.close()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, ChannelLost) for each in found)
        assert left(stage) == ["answers are not read"]


def left(stage: ChannelStage) -> list[str]:
    """Why the answering side's channels ended."""
    calls = stage.received.log.calls
    return [call.kwargs["reason"] for call in calls if call.args == ("shadow.channel_left",)]


async def test_a_content_that_stands_still_ends_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatepost.transport.shadow.answering.STALL_SECONDS", 0.3)
    async with channel_stage(times=QUICK) as stage:
        channel = await stage.channels.channel("HUB-01")
        channel._ask(Hold("a", b"e", 100), 60.0)
        await until(lambda: not stage.received.service.channels)
        assert left(stage) == ["a content stood still"]
        assert stage.keeper.copies[0].discarded


async def test_a_malformed_frame_ends_the_channel_and_nothing_else() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        other = await stage.received.client()
        channel.say(b"\xff" * 12)
        await until(lambda: not channel.usable and not stage.received.service.channels)
        await other.begin()
        assert await other.say("x\r\n.") == ["250 2.6.0 Queued"]


async def test_a_service_that_stops_answers_what_was_asked() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.keeper.commit.clear()
        hold = asyncio.create_task(channel.hold("a", b"e", b"c", 1))
        await until(lambda: stage.keeper.committing)
        stopping = asyncio.create_task(stage.received.stop(10.0))
        await asyncio.sleep(0.05)
        stage.keeper.commit.set()
        assert await hold == ""
        await stopping
        await until(lambda: not channel.usable)
