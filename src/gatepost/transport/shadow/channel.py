"""The asking end of a shadow channel: many questions at a time over one connection to another hub.

    hold, ask, statuses, redeliver ─► ClientFrames ─► one write a turn of the loop ─► … ─► futures, by number

A question that is not answered in its time ends the channel, for a hub that hangs is of no use; so does silence, for a
channel at rest says every few seconds that it is alive. A channel that is lost fails all its questions at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from gatepost.transport.ports import BodyReader
from gatepost.transport.shadow.ports import ChannelLost
from gatepost.transport.shadow.writing import FrameWriter
from gatepost.wire.shadow_checks import MAX_EVENTS
from gatepost.wire.shadow_frames import ALIVE, MAX_PIECE, Answered, ClientFrames
from gatepost.wire.shadow_messages import (
    Answer,
    Ask,
    AskStatus,
    Discarded,
    Events,
    Held,
    Hold,
    NotHeld,
    Question,
    Redeliver,
    Redelivered,
    Status,
    Statuses,
    TookOver,
)
from gatepost.wire.shadow_words import ShadowHub

TOKENS_AT_ONCE = 5000
"""Of one question; more are asked about one question after the other."""


@dataclass(frozen=True, slots=True)
class ChannelTimes:
    """Seconds. The sweep that looks may be one late."""

    hold: float = 10.0
    """Without progress: for a large content, from piece to piece."""
    question: float = 15.0
    """For the answer to `ask` and `statuses`."""
    redeliver: float = 300.0
    alive: float = 5.0
    """A channel that has heard nothing for so long says that it is alive."""
    silence: float = 10.0
    """And is lost when it hears nothing for so long after that."""
    sweep: float = 1.0


@dataclass(slots=True)
class _Pending:
    """A question that is not answered."""

    answer: asyncio.Future[Answer]
    seconds: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Parties:
    """Both ends of a channel."""

    own: ShadowHub
    other: ShadowHub
    address: str = field(default="", compare=False)


class AskingChannel(FrameWriter):
    """A `ports.Channel`. `lost` is called once when it is of no more use."""

    def __init__(
        self,
        parties: Parties,
        lost: Callable[[AskingChannel, str], None],
        log: FilteringBoundLogger,
        times: ChannelTimes | None = None,
    ) -> None:
        super().__init__()
        self.server = parties.other.server
        self.identity = parties.other.identity
        self.parties = parties
        self._tell = lost
        self._log = log
        self._times = times or ChannelTimes()
        self._frames = ClientFrames()
        self._pending: dict[int, _Pending] = {}
        self._lost: str | None = None
        self._asking = asyncio.Lock()
        self._after = 0
        """Number of the last answer with discard events."""
        self._room = asyncio.Event()
        self._room.set()
        self._heard = self._loop.time()
        self._said_alive = 0.0
        """When, if nothing has been heard since; else 0."""
        self._timer: asyncio.TimerHandle | None = None
        self.asked = 0
        """Questions so far."""

    def take(self, transport: asyncio.Transport) -> None:
        """The connection is ours, and is read from."""
        transport.set_protocol(self)
        self.connection_made(transport)
        self._timer = self._loop.call_later(self._times.sweep, self._sweep)
        if transport.is_closing():
            self._lose("closed")
        else:
            transport.resume_reading()

    # `ports.Channel`

    @property
    def usable(self) -> bool:
        """See `ports.Channel`."""
        return self._lost is None

    async def hold(self, token: str, envelope: bytes, body: bytes | BodyReader, size: int) -> str:
        """See `ports.Channel`."""
        content: bytes | None = body if isinstance(body, bytes) else getattr(body, "whole", None)
        if content is not None and len(content) != size:
            return f"the content has {len(content)} octets where {size} were announced"
        await self._may_ask()
        try:
            number, pending = self._ask(Hold(token, envelope, size), self._times.hold)
        except ValueError as bad:
            return str(bad)
        if content is not None and size <= MAX_PIECE:
            if size:
                self.say(self._frames.content(number, content), content)
        else:
            left = size
            reason = ""
            try:
                pieces = _parts(content) if content is not None else _pieces(body)
                async for piece in pieces:
                    await self._may_write()
                    left -= len(piece)
                    if left < 0:
                        break
                    self.say(self._frames.content(number, piece), piece)
                    pending.deadline = self._loop.time() + pending.seconds
            except ChannelLost:
                raise
            except OSError as fault:
                reason = f"the content cannot be read: {fault}"
            finally:
                if left and self._lost is None:
                    self._withdraw(number, pending)
            if left:
                return reason or "the content is not as long as it was"
        answer = await pending.answer
        if isinstance(answer, NotHeld):
            return answer.reason or "not held"
        assert isinstance(answer, Held)
        return ""

    async def ask(self, limit: int = 1000) -> tuple[list[Discarded], bool]:
        """See `ports.Channel`."""
        async with self._asking:
            answer = await self._answered(Ask(self._after, min(limit, MAX_EVENTS)), self._times.question)
            assert isinstance(answer, Events)
            self._after = answer.number
        return answer.events, answer.more

    async def statuses(self, tokens: Sequence[str], *, took_over: bool = False) -> list[Status]:
        """See `ports.Channel`."""
        found: list[Status] = []
        for at in range(0, len(tokens), TOKENS_AT_ONCE):
            some = list(tokens[at : at + TOKENS_AT_ONCE])
            question = TookOver(some) if took_over else AskStatus(some)
            answer = await self._answered(question, self._times.question)
            assert isinstance(answer, Statuses)
            found += map(Status, answer.statuses)
        return found

    async def redeliver(self, request: str, database: str, since: float, until: float) -> int:
        """See `ports.Channel`."""
        answer = await self._answered(Redeliver(request, database, since, until), self._times.redeliver)
        assert isinstance(answer, Redelivered)
        return answer.count

    def close(self) -> None:
        """Questions under way fail. Safe twice."""
        self._lose("closed")

    # From the transport

    def data_received(self, data: bytes) -> None:
        """Answers."""
        self._heard = self._loop.time()
        self._said_alive = 0.0
        pending = self._pending
        for event in self._frames.receive(data):
            if type(event) is Answered:
                waiting = pending.pop(event.number)
                if not waiting.answer.done():
                    waiting.answer.set_result(event.answer)
        if self._frames.fault is not None:
            self._lose(f"a fault of the server's: {self._frames.fault}")
        elif not self._room.is_set() and self._may_now():
            self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other hub is gone."""
        self._lose(f"connection lost: {type(exc).__name__}" if exc is not None else "closed by the server")

    def resume_writing(self) -> None:
        """The server has read."""
        super().resume_writing()
        if self._may_now():
            self._room.set()

    # Asking

    async def _answered(self, question: Question, seconds: float) -> Answer:
        await self._may_ask()
        return await self._ask(question, seconds)[1].answer

    def _ask(self, question: Question, seconds: float) -> tuple[int, _Pending]:
        number, frame = self._frames.ask(question)
        pending = _Pending(self._loop.create_future(), seconds, self._loop.time() + seconds)
        self._pending[number] = pending
        self.asked += 1
        self.say(frame)
        return number, pending

    def _withdraw(self, number: int, pending: _Pending) -> None:
        self.say(self._frames.withdraw(number))
        pending.answer.cancel()

    def _may_now(self) -> bool:
        return not self.paused and self._frames.has_room

    async def _may_ask(self) -> None:
        """Until there is room for one more question."""
        while self._lost is None and not self._may_now():
            self._room.clear()
            await self._room.wait()
        self._check()

    async def _may_write(self) -> None:
        """Until the server has read enough for one more piece of content."""
        while self._lost is None and self.paused:
            self._room.clear()
            await self._room.wait()
        self._check()

    def _check(self) -> None:
        if self._lost is not None:
            raise ChannelLost(self._lost)

    # The end

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(self._times.sweep, self._sweep)
        now = self._loop.time()
        if any(pending.deadline <= now for pending in self._pending.values()):
            self._lose("no answer in time")
        elif self._said_alive:
            if now - self._said_alive >= self._times.silence:
                self._lose("the server is silent")
        elif now - self._heard >= self._times.alive:
            self._said_alive = now
            self.say(ALIVE)

    def _lose(self, reason: str) -> None:
        if self._lost is not None:
            return
        self._lost = f"the shadow channel to {self.server} is lost: {reason}"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(ChannelLost(self._lost))
                pending.answer.exception()  # who still writes a large content hears of it there, and never waits
        self._pending.clear()
        self._room.set()
        self._tell(self, reason)


async def _parts(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), MAX_PIECE):
        yield content[at : at + MAX_PIECE]


async def _pieces(body: BodyReader | bytes) -> AsyncIterator[bytes]:
    """The content in pieces that fit into a frame."""
    assert not isinstance(body, bytes)
    chunks = body.chunks()
    try:
        async for chunk in chunks:
            for at in range(0, len(chunk), MAX_PIECE):
                yield chunk[at : at + MAX_PIECE]
    finally:
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()
