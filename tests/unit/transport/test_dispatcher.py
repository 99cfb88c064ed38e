"""The dispatcher with a spool and servers that the test plays (SPEC T3, T8, T13)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from gatepost.organization.transport import TransportSettings
from gatepost.routing.next_hop import DeliveryType, NextHop
from gatepost.transport.dispatch import dispatcher as module
from gatepost.transport.dispatch import settler as settler_module
from gatepost.transport.dispatch.dispatcher import Dispatcher
from gatepost.transport.dispatch.ports import Answer, Moved, NotReached, Sent
from gatepost.transport.dispatch.settler import Settler
from gatepost.transport.dispatch.settling import Happened
from gatepost.transport.message import Envelope, Recipient, RecipientState
from gatepost.transport.ports import BodyReader, ContentDamaged
from gatepost.transport.queues.delivery_queue import DeliveryQueue, QueueStatus
from gatepost.transport.queues.item import Item
from gatepost.transport.queues.queues import Queues
from gatepost.transport.reports.rules import Fate
from gatepost.wire.smtp_reply import Reply

HOP = NextHop(DeliveryType.DNS, "example.net", "Internet")
OTHER = NextHop(DeliveryType.DNS, "example.org", "Internet")
DELIVERED, FAILED, WAITING, UNCERTAIN, DROPPED = (
    RecipientState.DELIVERED,
    RecipientState.FAILED,
    RecipientState.WAITING,
    RecipientState.UNCERTAIN,
    RecipientState.DROPPED,
)


class Body:
    """No content at all."""

    size = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b""

    def close(self) -> None:
        pass


class MemorySpool:
    """Envelopes in memory; what was removed and updated is remembered."""

    def __init__(self) -> None:
        self.kept: dict[int, Envelope] = {}
        self.removed: list[int] = []
        self.updated: list[int] = []
        self.unreadable: set[int] = set()
        self.damaged: set[int] = set()
        self.quarantined: list[tuple[int, str]] = []
        self.held: list[int] = []
        """In hand at this moment."""

    async def envelope(self, number: int) -> Envelope:
        await asyncio.sleep(0)
        return self.kept[number]

    async def body(self, number: int) -> BodyReader:
        if number in self.unreadable:
            raise OSError("input/output error")
        if number in self.damaged:
            raise ContentDamaged("not as it was written")
        return Body()

    async def update(self, number: int, _envelope: Envelope) -> None:
        self.updated.append(number)

    async def quarantine(self, number: int, reason: str) -> None:
        self.quarantined.append((number, reason))
        del self.kept[number]

    @contextlib.contextmanager
    def in_hand(self, number: int) -> Iterator[None]:
        self.held.append(number)
        yield
        self.held.remove(number)

    async def remove(self, number: int) -> None:
        self.removed.append(number)
        del self.kept[number]


Say = Callable[[int, tuple[int, ...]], Sent | Awaitable[Sent]]


class Server:
    """A sender that answers as `say` has it for a message number (kept in the subject) and places."""

    def __init__(self, stage: Stage, address: str) -> None:
        self._stage = stage
        self.address = address
        self.server = f"mx.example.net [{address}]"
        self.usable = True
        self.prompt = stage.prompt
        self._messages = 0

    async def prepare(
        self, envelope: Envelope, places: tuple[int, ...], _body: BodyReader, _token: object = None
    ) -> None:
        self._stage.prepared.append((int(envelope.subject), places))

    async def send(
        self,
        envelope: Envelope,
        places: tuple[int, ...],
        _body: BodyReader,
        _reopen: object = None,
        _token: object = None,
    ) -> Sent:
        number = int(envelope.subject)
        self._stage.sent.append((number, places, self.address))
        answer = self._stage.say(number, places)
        outcome = answer if isinstance(answer, Sent) else await answer
        self._messages += 1
        self.usable = not outcome.fault and self._messages < self._stage.most_messages
        return outcome

    async def quit(self) -> None:
        self._stage.quits += 1
        if self._stage.leaving is not None:
            await self._stage.leaving.wait()


def ok(_number: int, places: tuple[int, ...]) -> Sent:
    return Sent(tuple(Answer(place, DELIVERED, "250 2.0.0 Ok") for place in places))


class Stage:
    """A dispatcher and what it meets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.spool = MemorySpool()
        self.queues = Queues()
        self.settings = TransportSettings()
        self.say: Say = ok
        self.sent: list[tuple[int, tuple[int, ...], str]] = []
        self.prompt = False
        self.prepared: list[tuple[int, tuple[int, ...]]] = []
        self.quits = 0
        self.most_messages = 1_000_000
        """Of a connection."""
        self.leaving: asyncio.Event | None = None
        """When there is one, connections end only after it."""
        self.connects = 0
        self.servers: list[Server] = []
        self.refuse: Exception | None = None
        self.addresses = ["192.0.2.1"]
        self.reports: list[tuple[int, Happened]] = []
        self.requeued: list[DeliveryQueue] = []
        self.log = CapturingLogger()
        self.settler = Settler(self.spool, self._report, self.settings, lambda: self.now, self.log)  # type: ignore[arg-type]
        self.dispatcher = Dispatcher(
            self.queues,
            self.spool,
            self,
            self.settler,
            self.requeued.append,
            lambda: self.now,
            self.log,  # type: ignore[arg-type]
        )

    async def _report(self, number: int, _envelope: Envelope, happened: Happened) -> None:
        self.reports.append((number, happened))

    def most_connections(self, _next_hop: NextHop) -> int:
        return self.settings.max_per_domain_outbound_connections

    async def connect(self, _next_hop: NextHop, _failures: int, _queued: int, first: str = "") -> Server:
        self.connects += 1
        await asyncio.sleep(0)
        if self.refuse is not None:
            raise self.refuse
        address = first or self.addresses[self.connects % len(self.addresses)]
        self.servers.append(Server(self, address))
        return self.servers[-1]

    def queue(self, number: int, recipients: int = 1, hop: NextHop = HOP, **fields: Any) -> Item:
        envelope = Envelope(
            "a@contoso.com",
            [Recipient(f"r{place}@{hop.domain}") for place in range(recipients)],
            self.now,
            self.now + self.settings.message_expiration,
            subject=str(number),
        )
        self.spool.kept[number] = envelope
        item = Item(number, tuple(range(recipients)), 1, envelope.expires, self.now + self.settings.delay_notification)
        for name, value in fields.items():
            setattr(item, name, value)
        self.dispatcher.touch(self.queues.add(hop, item, self.now))
        return item

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.dispatcher.wake()


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(module, "ATTEND_SECONDS", 0.005)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    made = Stage()
    made.dispatcher.start()
    yield made
    await made.dispatcher.end(1.0)


async def test_a_message_is_sent_and_removed_from_the_spool(stage: Stage) -> None:
    stage.queue(7)
    await stage.until(lambda: stage.spool.removed == [7])
    assert stage.sent == [(7, (0,), "192.0.2.1")]
    assert stage.reports == []
    assert stage.settler.delivered == 1
    assert len(stage.settler.hands) == 0


async def test_a_connection_is_used_again_and_ends_when_nothing_comes(stage: Stage) -> None:
    for number in range(10):
        stage.queue(number)
    await stage.until(lambda: len(stage.spool.removed) == 10)
    stage.queue(10)
    await stage.until(lambda: len(stage.spool.removed) == 11)
    assert stage.connects == 1
    await stage.until(lambda: stage.quits == 1)
    await stage.until(lambda: stage.dispatcher.connections == 0)


async def test_many_messages_get_more_connections_up_to_the_limit(stage: Stage) -> None:
    gate = asyncio.Event()

    async def wait(number: int, places: tuple[int, ...]) -> Sent:
        await gate.wait()
        return ok(number, places)

    stage.say = wait
    for number in range(1000):
        stage.queue(number)
    await stage.until(lambda: len(stage.sent) == 20)
    assert stage.queues.get(HOP).status(stage.now) is QueueStatus.ACTIVE  # type: ignore[union-attr]
    gate.set()
    await stage.until(lambda: len(stage.spool.removed) == 1000)
    assert stage.connects == 20


async def test_messages_that_wait_for_a_connection_cost_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    async def wait(number: int, places: tuple[int, ...]) -> Sent:
        await gate.wait()
        return ok(number, places)

    stage.say = wait
    for number in range(1000):
        stage.queue(number)
    await stage.until(lambda: len(stage.sent) == 20)
    looks = 0

    def runnable(_now: float) -> list[DeliveryQueue]:
        nonlocal looks
        looks += 1
        return []

    with monkeypatch.context() as patched:
        patched.setattr(stage.queues, "runnable", runnable)
        for _ in range(100):
            await asyncio.sleep(0)
    assert looks <= 1
    stage.dispatcher.touch(stage.queues.get(HOP))  # type: ignore[arg-type]
    gate.set()
    await stage.until(lambda: len(stage.spool.removed) == 1000)


async def test_the_next_connection_does_not_wait_for_the_leave_taking_of_the_last(stage: Stage) -> None:
    stage.leaving = asyncio.Event()
    stage.settings = TransportSettings(max_per_domain_outbound_connections=2)
    stage.most_messages = 1
    stage.queue(1)
    await stage.until(lambda: len(stage.spool.removed) == 1)
    stage.queue(2)
    await stage.until(lambda: len(stage.spool.removed) == 2)
    stage.queue(3)  # two connections are there, and no more are allowed
    await asyncio.sleep(0.02)
    assert stage.connects == 2
    stage.leaving.set()
    await stage.until(lambda: len(stage.spool.removed) == 3)


async def test_all_connections_together_are_bounded_and_no_queue_starves(stage: Stage) -> None:
    stage.settler.settings = TransportSettings(max_outbound_connections=3)
    most = 0

    async def wait(number: int, places: tuple[int, ...]) -> Sent:
        nonlocal most
        most = max(most, stage.dispatcher.connections)
        await asyncio.sleep(0)
        return ok(number, places)

    stage.say = wait
    for number in range(60):
        stage.queue(number, hop=NextHop(DeliveryType.DNS, f"d{number}.example", "Internet"))
    await stage.until(lambda: len(stage.spool.removed) == 60)
    assert most <= 3


async def test_a_next_hop_that_cannot_be_reached_is_tried_at_its_time(stage: Stage) -> None:
    stage.refuse = NotReached("connection refused", stage.now + 60)
    stage.queue(7)
    queue = stage.queues.get(HOP)
    assert queue is not None
    await stage.until(lambda: queue.status(stage.now) is QueueStatus.RETRY)
    stage.later(59)
    await asyncio.sleep(0.01)
    assert stage.connects == 1
    stage.refuse = None
    stage.later(1)
    await stage.until(lambda: stage.spool.removed == [7])
    assert queue.failures == 0


async def test_a_next_hop_that_refuses_one_connection_more_goes_on_with_those_it_has(stage: Stage) -> None:
    """Feedback: 421 to the third connection does not put the whole queue off."""
    gate = asyncio.Event()

    async def wait(number: int, places: tuple[int, ...]) -> Sent:
        await gate.wait()
        return ok(number, places)

    stage.say = wait
    for number in range(40):
        stage.queue(number)
    await stage.until(lambda: len(stage.sent) == 2)
    stage.refuse = NotReached("421 4.7.0 Too many connections", stage.now + 60)
    for number in range(40, 100):
        stage.queue(number)
    await stage.until(lambda: stage.connects >= 3)
    gate.set()
    await stage.until(lambda: len(stage.spool.removed) == 100)
    queue = stage.queues.get(HOP)
    assert queue is not None
    assert queue.retry_at == 0.0
    assert stage.connects <= 6


async def test_a_hundred_thousand_for_a_dead_site_cost_others_nothing(stage: Stage) -> None:
    """One attempt for all of them; another domain's message is sent at once."""
    stage.refuse = NotReached("timed out", stage.now + 600)
    for number in range(1000):
        stage.queue(number)
    await stage.until(lambda: stage.queues.get(HOP).retry_at > stage.now)  # type: ignore[union-attr]
    tried = stage.connects
    stage.refuse = None
    stage.queue(5000, hop=OTHER)
    await stage.until(lambda: stage.spool.removed == [5000])
    assert stage.connects == tried + 1
    assert tried <= 20


async def test_recipients_have_fates_of_their_own(stage: Stage) -> None:
    """smtp-facts row 43: a mix of 250, 451 and 550."""

    def mixed(number: int, places: tuple[int, ...]) -> Sent:
        if places == (1,):
            return ok(number, places)
        return Sent(
            (
                Answer(0, DELIVERED, "250 2.0.0 Ok"),
                Answer(1, WAITING, "451 4.2.0 Later"),
                Answer(2, FAILED, "550 5.1.1 No such user"),
            )
        )

    stage.say = mixed
    item = stage.queue(7, recipients=3)
    await stage.until(lambda: stage.spool.updated == [7])
    assert stage.reports == [(7, [(2, Fate.FAILED)])]
    assert item.recipients == (1,)
    assert stage.spool.kept[7].recipients[1].reply == "451 4.2.0 Later"
    stage.later(stage.settings.message_retry_interval - 1)
    await asyncio.sleep(0.01)
    assert len(stage.sent) == 1
    stage.later(1)
    await stage.until(lambda: stage.spool.removed == [7])
    assert stage.sent[1][1] == (1,)


async def test_a_session_that_ends_before_the_dot_costs_the_message_no_wait(stage: Stage) -> None:
    """smtp-facts row 42: 421 in the middle is the session's fault."""
    first = [True]

    def once(number: int, places: tuple[int, ...]) -> Sent:
        if number == 8 and first.pop() if first else False:
            return Sent((), "421 4.3.2 Shutting down")
        return ok(number, places)

    stage.say = once
    stage.queue(7)
    stage.queue(8)
    await stage.until(lambda: sorted(stage.spool.removed) == [7, 8])
    assert stage.connects == 2


async def test_a_server_that_takes_connections_and_no_messages_is_left_alone_for_a_minute(stage: Stage) -> None:
    stage.say = lambda _number, _places: Sent((), "421 4.3.2 Not now")
    stage.queue(7)
    queue = stage.queues.get(HOP)
    assert queue is not None
    await stage.until(lambda: queue.retry_at == stage.now + 60)
    await asyncio.sleep(0.01)
    assert stage.connects == 1


async def test_a_message_under_which_every_session_ends_lets_others_pass(stage: Stage) -> None:
    def say(number: int, places: tuple[int, ...]) -> Sent:
        return Sent((), "connection lost") if number == 8 else ok(number, places)

    stage.say = say
    stage.queue(7)
    bad = stage.queue(8)
    for number in (9, 10):
        stage.queue(number)
    for _ in range(3):
        await stage.until(lambda: stage.queues.get(HOP).retry_at > stage.now or bad.attempts > 1)  # type: ignore[union-attr]
        stage.later(60)
    await stage.until(lambda: sorted(stage.spool.removed) == [7, 9, 10])
    assert 8 in stage.spool.kept


async def test_an_uncertain_outcome_is_tried_again_at_the_same_server_first(stage: Stage) -> None:
    """RFC 1047, smtp-facts row 38: after the final dot nobody knows."""
    stage.addresses = ["192.0.2.1", "192.0.2.2"]
    answers = [Sent((Answer(0, UNCERTAIN, "no answer after the final dot"),), "timed out")]
    stage.say = lambda number, places: answers.pop() if answers else ok(number, places)
    item = stage.queue(7)
    await stage.until(lambda: stage.spool.updated == [7])
    assert item.server == stage.sent[0][2]
    assert item.due == stage.now + stage.settings.message_retry_interval


async def test_a_failure_for_good_of_the_whole_next_hop_is_reported(stage: Stage) -> None:
    """Null MX, NXDOMAIN."""
    stage.refuse = NotReached("no mail is taken", stage.now + 60, Reply(556, "The domain takes no mail", "5.1.10"))
    for number in (7, 8):
        stage.queue(number)
    await stage.until(lambda: sorted(stage.spool.removed) == [7, 8])
    assert sorted(stage.reports) == [(7, [(0, Fate.FAILED)]), (8, [(0, Fate.FAILED)])]
    assert stage.queues.get(HOP).idle  # type: ignore[union-attr]
    stage.queue(9)
    await stage.until(lambda: sorted(stage.spool.removed) == [7, 8, 9])


async def test_a_message_expires_in_a_queue_that_is_in_retry(stage: Stage) -> None:
    """smtp-facts row 48; the last known reason is in the report."""
    stage.refuse = NotReached("192.0.2.1: timed out", stage.now + 10 * 86400)
    stage.queue(7)
    await stage.until(lambda: stage.queues.get(HOP).last_error)  # type: ignore[union-attr]
    envelope = stage.spool.kept[7]
    stage.now += stage.settings.message_expiration - 1
    await stage.until(lambda: stage.reports)
    assert stage.reports[0][1] == [(0, Fate.DELAYED)]
    stage.now += 1
    await stage.until(lambda: stage.spool.removed == [7])
    assert stage.reports[1][1] == [(0, Fate.EXPIRED)]
    assert envelope.recipients[0].reply == "192.0.2.1: timed out"


async def test_a_delay_is_told_once(stage: Stage) -> None:
    stage.refuse = NotReached("refused", stage.now + 10 * 86400)
    stage.queue(7)
    await stage.until(lambda: stage.queues.get(HOP).last_error)  # type: ignore[union-attr]
    stage.now += stage.settings.delay_notification
    await stage.until(lambda: stage.reports)
    stage.now += 3600
    await asyncio.sleep(0.05)
    assert stage.reports == [(7, [(0, Fate.DELAYED)])]
    assert 7 in stage.spool.kept


async def test_a_next_hop_that_moved_is_routed_anew(stage: Stage) -> None:
    stage.refuse = Moved()
    stage.queue(7)
    await stage.until(lambda: stage.requeued)
    assert stage.requeued[0].next_hop == HOP


async def test_content_that_cannot_be_read_waits_and_nothing_is_lost(stage: Stage) -> None:
    stage.spool.unreadable.add(7)
    item = stage.queue(7)
    stage.queue(8)
    await stage.until(lambda: stage.spool.removed == [8] and item.due > stage.now)
    assert 7 in stage.spool.kept
    stage.spool.unreadable.clear()
    stage.later(300)
    await stage.until(lambda: stage.spool.removed == [8, 7])


async def test_two_parts_of_a_message_change_one_envelope(stage: Stage) -> None:
    """Recipients in two domains: whichever ends last removes the message."""
    gate = asyncio.Event()

    async def wait(number: int, places: tuple[int, ...]) -> Sent:
        await gate.wait()
        return ok(number, places)

    stage.say = wait
    item = stage.queue(7, recipients=2)
    item.recipients = (0,)
    other = Item(7, (1,), 1, item.expires, item.attend)
    stage.dispatcher.touch(stage.queues.add(OTHER, other, stage.now))
    await stage.until(lambda: len(stage.sent) == 2)
    gate.set()
    await stage.until(lambda: stage.spool.removed == [7])
    assert stage.spool.updated == [7]


async def test_an_operator_drops_a_message_with_and_without_a_report(stage: Stage) -> None:
    stage.refuse = NotReached("refused", stage.now + 600)
    first, second = stage.queue(7), stage.queue(8)
    queue = stage.queues.get(HOP)
    assert queue is not None
    await stage.until(lambda: queue.last_error)
    kept = dict(stage.spool.kept)
    await stage.settler.drop(queue, first, "5.7.0 Taken away", tell=True)
    await stage.settler.drop(queue, second, "5.7.0 Taken away", tell=False)
    await stage.until(lambda: sorted(stage.spool.removed) == [7, 8])
    assert [number for number, _ in stage.reports] == [7]
    assert kept[8].recipients[0].state == DROPPED
    assert len(queue) == 0


async def test_at_the_end_a_message_under_way_is_finished(stage: Stage) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def wait(number: int, places: tuple[int, ...]) -> Sent:
        begun.set()
        await gate.wait()
        return ok(number, places)

    stage.say = wait
    stage.queue(7)
    stage.queue(8)
    await begun.wait()
    ending = asyncio.create_task(stage.dispatcher.end(5))
    await asyncio.sleep(0)
    gate.set()
    await ending
    assert stage.spool.removed == [7]
    assert 8 in stage.spool.kept


async def test_at_the_end_a_message_that_hangs_is_cut_off_and_stays(stage: Stage) -> None:
    begun = asyncio.Event()

    async def hang(_number: int, _places: tuple[int, ...]) -> Sent:
        begun.set()
        await asyncio.sleep(3600)
        raise AssertionError

    stage.say = hang
    stage.queue(7)
    await begun.wait()
    await stage.dispatcher.end(0.05)
    assert stage.spool.removed == []
    assert 7 in stage.spool.kept


async def test_a_message_is_in_hand_while_it_is_worked_on_and_not_while_a_server_is_waited_for(stage: Stage) -> None:
    """What it waits for may take minutes, and a process that ends meanwhile did not die of it (poison messages)."""
    gate = asyncio.Event()
    during: list[list[int]] = []

    async def slow(number: int, places: tuple[int, ...]) -> Sent:
        during.append(list(stage.spool.held))
        await gate.wait()
        during.append(list(stage.spool.held))
        return ok(number, places)

    stage.say = slow
    stage.queue(7)
    await stage.until(lambda: during)
    assert stage.spool.held == []
    gate.set()
    await stage.until(lambda: stage.spool.removed == [7])
    assert during == [[7], [7]]


async def test_a_damaged_content_is_put_aside_and_the_connection_goes_on(stage: Stage) -> None:
    stage.spool.damaged.add(1)
    stage.queue(1)
    stage.queue(2)
    await stage.until(lambda: stage.spool.removed == [2])
    assert stage.spool.quarantined == [(1, "not as it was written")]
    [event] = [call for call in stage.log.calls if call.args == ("message.quarantined",)]
    assert (event.kwargs["message"], event.kwargs["sender"]) == (1, "a@contoso.com")
    assert stage.connects == 1
    assert sum(len(queue) for queue in stage.queues) == 0


async def test_a_connection_that_ends_while_a_message_is_read_says_nothing_of_the_message(stage: Stage) -> None:
    stage.queue(1)
    await stage.until(lambda: stage.spool.removed == [1])
    [server] = stage.servers
    read = stage.spool.body

    async def ends(number: int) -> BodyReader:
        server.usable = False
        return await read(number)

    stage.spool.body = ends  # type: ignore[method-assign]
    item = stage.queue(2)
    await stage.until(lambda: stage.quits == 1)
    stage.spool.body = read  # type: ignore[method-assign]
    await stage.until(lambda: stage.spool.removed == [1, 2])
    assert item.attempts == 0
    assert stage.connects == 2


async def test_a_report_is_on_disk_before_what_it_is_about(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill -9 in between: the report may be made twice, but is never lost."""
    gate, begun = asyncio.Event(), asyncio.Event()

    async def slow(number: int, _envelope: Envelope, happened: Happened) -> None:
        begun.set()
        await gate.wait()
        stage.reports.append((number, happened))

    monkeypatch.setattr(stage.settler, "_report", slow)
    stage.refuse = NotReached("refused", stage.now + 10 * 86400)
    stage.queue(7)
    await stage.until(lambda: stage.queues.get(HOP).last_error)  # type: ignore[union-attr]
    stage.now += stage.settings.delay_notification
    await begun.wait()
    await asyncio.sleep(0.02)
    assert stage.spool.updated == []
    gate.set()
    await stage.until(lambda: stage.spool.updated == [7])
    assert stage.reports == [(7, [(0, Fate.DELAYED)])]
    assert stage.spool.kept[7].recipients[0].delay_told


async def test_another_part_of_the_message_does_not_keep_what_is_not_yet_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both parts share one envelope: the delivered one must not write the failure of the other down too early."""
    gate, begun = asyncio.Event(), asyncio.Event()

    async def slow(number: int, _envelope: Envelope, happened: Happened) -> None:
        begun.set()
        await gate.wait()
        stage.reports.append((number, happened))

    monkeypatch.setattr(stage.settler, "_report", slow)
    delivered = asyncio.Event()

    async def say(number: int, places: tuple[int, ...]) -> Sent:
        if places == (0,):
            return Sent((Answer(0, FAILED, "550 5.1.1 Who?"),))
        await begun.wait()
        delivered.set()
        return ok(number, places)

    stage.say = say
    item = stage.queue(7, recipients=2)
    item.recipients = (0,)
    other = Item(7, (1,), 1, item.expires, item.attend)
    stage.dispatcher.touch(stage.queues.add(OTHER, other, stage.now))
    await delivered.wait()
    await stage.until(lambda: stage.settler.delivered == 1)
    await asyncio.sleep(0.02)
    assert (stage.spool.updated, stage.spool.removed) == ([], [])
    gate.set()
    await stage.until(lambda: stage.spool.removed == [7])
    assert stage.reports == [(7, [(0, Fate.FAILED)])]


async def test_a_report_that_the_disk_does_not_take_is_made_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the failed message stays: its sender is told, however long the disk is full."""
    monkeypatch.setattr(settler_module, "TELL_AGAIN_SECONDS", 0.01)
    full = True

    async def report(number: int, _envelope: Envelope, happened: Happened) -> Happened:
        if full:
            return happened
        stage.reports.append((number, happened))
        return []

    monkeypatch.setattr(stage.settler, "_report", report)
    stage.say = lambda _number, _places: Sent((Answer(0, FAILED, "550 5.1.1 Who?"),))
    stage.queue(7)
    await stage.until(lambda: stage.settler.failed == 1)
    await asyncio.sleep(0.05)
    assert stage.spool.removed == stage.spool.updated == []
    full = False
    await stage.until(lambda: stage.spool.removed == [7])
    assert stage.reports == [(7, [(0, Fate.FAILED)])]


async def test_words_of_ours_name_no_server(stage: Stage) -> None:
    stage.say = lambda _number, _places: Sent(
        (Answer(0, WAITING, "450 4.2.0 Later"), Answer(1, WAITING, "4.4.2 connection lost", ours=True))
    )
    stage.queue(7, recipients=2)
    await stage.until(lambda: stage.spool.updated == [7])
    assert [each.server for each in stage.spool.kept[7].recipients] == ["mx.example.net [192.0.2.1]", ""]


async def test_the_next_message_is_prepared_while_one_is_sent(stage: Stage) -> None:
    stage.prompt = True
    stage.settings = stage.settler.settings = TransportSettings(max_per_domain_outbound_connections=1)
    for number in range(5):
        stage.queue(number)
    await stage.until(lambda: len(stage.spool.removed) == 5)
    assert [number for number, _, _ in stage.sent] == [0, 1, 2, 3, 4]
    assert [number for number, _ in stage.prepared] == [1, 2, 3, 4]
    assert len(stage.settler.hands) == 0


async def test_a_prepared_message_keeps_its_place_when_the_connection_ends(stage: Stage) -> None:
    stage.prompt = True
    stage.settings = stage.settler.settings = TransportSettings(max_per_domain_outbound_connections=1)
    said: list[int] = []

    def once(number: int, places: tuple[int, ...]) -> Sent:
        said.append(number)
        return Sent((), "gone") if said == [0, 1] else ok(number, places)

    stage.say = once
    for number in range(4):
        stage.queue(number)
    await stage.until(lambda: len(stage.spool.removed) == 4)
    assert said[:2] == [0, 1]
    assert sorted(said) == [0, 1, 1, 2, 3]
    assert len(stage.settler.hands) == 0
    assert len(stage.queues.get(HOP) or ()) == 0


async def test_a_message_that_cannot_be_read_ahead_is_met_when_it_is_its_turn(stage: Stage) -> None:
    stage.prompt = True
    stage.settings = stage.settler.settings = TransportSettings(max_per_domain_outbound_connections=1)
    for number in range(3):
        stage.queue(number)
    del stage.spool.kept[1]
    await stage.until(lambda: len(stage.spool.removed) == 2)
    assert [number for number, _, _ in stage.sent] == [0, 2]
    assert len(stage.settler.hands) == 0


async def test_an_idle_connection_is_quicker_than_one_that_prepares(stage: Stage) -> None:
    stage.prompt = True
    for number in range(60):
        stage.queue(number)
    await stage.until(lambda: len(stage.spool.removed) == 60)
    stage.prepared.clear()
    stage.queue(60)
    await stage.until(lambda: len(stage.spool.removed) == 61)
    assert stage.prepared == []
