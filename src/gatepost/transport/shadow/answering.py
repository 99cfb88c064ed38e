"""The answering end of a shadow channel: another hub's questions, read, asked of `Answering`, and answered.

    frames ─► ServerFrames ─┬─ Hold ─► writer ◄─ content ─ … complete ─► Answering.hold ──┐
                            └─ Ask, AskStatus, TookOver, Redeliver ─► Answering ──────────┴─► answers, as they come

Copies are held many at a time, so that they share the disk's sync. Nothing grows without bound: a writer that is full
stops the reading, and so does a client that does not read its answers. A channel lives long; it ends when nothing is
heard for `SILENCE_SECONDS`, when a content stands still, or when answers are not read.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from gatepost.relay import tasks
from gatepost.transport.ports import BodyWriter, SpoolFull
from gatepost.transport.receive.admission import Place
from gatepost.transport.send.connection import keep_alive
from gatepost.transport.shadow.ports import Answering
from gatepost.transport.shadow.writing import FrameWriter
from gatepost.wire.shadow_checks import MAX_TEXT
from gatepost.wire.shadow_frames import ALIVE, MAX_MESSAGE, Asked, Complete, Content, ServerFrames, Withdrawn
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
    Redelivered,
    Statuses,
    TookOver,
)
from gatepost.wire.shadow_words import ShadowHub, ShadowOffer

SILENCE_SECONDS = 60.0
"""A client that says nothing for so long is gone: it says that it is alive every few seconds."""
STALL_SECONDS = 30.0
"""How long a client may leave its answers unread, and a content may stand still."""


@dataclass(frozen=True, slots=True)
class ShadowPart:
    """A hub's part in shadow redundancy, as its receive connectors have it: what is offered, and who answers."""

    offer: ShadowOffer
    answering: Answering


@dataclass(slots=True)
class _Receipt:
    """A copy whose content is on its way."""

    hold: Hold
    writer: BodyWriter | None
    heard: float
    reason: str = ""
    """Why it will not be kept."""
    draining: asyncio.Task[None] | None = None


class AnsweringChannel(FrameWriter):
    """One channel, of `hub`, which has shown this certificate (DER). It is among `channels` as long as it lives."""

    def __init__(
        self,
        answering: Answering,
        hub: ShadowHub,
        certificate: bytes,
        log: FilteringBoundLogger,
        channels: set[AnsweringChannel],
        place: Place | None = None,
    ) -> None:
        super().__init__()
        self.hub = hub
        self.certificate = certificate
        self._answering = answering
        self._log = log
        self._channels = channels
        self._place = place
        self._frames = ServerFrames()
        self._receipts: dict[int, _Receipt] = {}
        self._given = 0
        """Number of the last answer with discard events."""
        self._given_tokens: list[str] = []
        self._asking = asyncio.Lock()
        self._read = asyncio.Event()
        """Answers are being read."""
        self._read.set()
        self._draining = 0
        self._heard = self._loop.time()
        self._unread_since = float("inf")
        self._reading = True
        self._stopping = False
        self._over = False
        self._why = ""
        self.answered = 0
        """Questions so far."""

    def take(self, transport: asyncio.Transport, *, reading: bool = True, writing: bool = True) -> None:
        """The connection is ours; whether it reads and may be written to just now."""
        transport.set_protocol(self)
        self.connection_made(transport)
        keep_alive(transport)
        self._channels.add(self)
        self._log.info("shadow.channel_taken", server=self.hub.server, identity=self.hub.identity)
        self._reading = reading
        if not writing:
            self.pause_writing()
        self._read_on()

    # From the transport

    def data_received(self, data: bytes) -> None:
        """Frames."""
        self._heard = self._loop.time()
        frames = self._frames
        for event in frames.receive(data):
            kind = type(event)
            if kind is Content:
                assert isinstance(event, Content)
                self._content(event)
            elif kind is Asked:
                assert isinstance(event, Asked)
                self._asked(event.number, event.question)
            elif kind is Complete:
                assert isinstance(event, Complete)
                self._complete(event.number)
            elif kind is Withdrawn:
                assert isinstance(event, Withdrawn)
                self._withdrawn(event.number)
            else:
                self.say(ALIVE)
        if frames.fault is not None:
            self.abort(f"a fault of the client's: {frames.fault}")

    def eof_received(self) -> bool:
        """The client sends nothing more: it does not wait for answers either."""
        self._why = self._why or "closed by the client"
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone. Copies that are complete are kept; it will ask what became of them."""
        if self._over:
            return
        self._over = True
        self._read.set()
        self._channels.discard(self)
        if self._place is not None:
            self._place.leave()
        for receipt in self._receipts.values():
            if receipt.writer is not None:
                receipt.writer.discard()
        self._receipts.clear()
        reason = self._why or (f"lost: {type(exc).__name__}" if exc is not None else "closed")
        self._log.info("shadow.channel_left", server=self.hub.server, answered=self.answered, reason=reason)

    def pause_writing(self) -> None:
        """The client does not read its answers: it may not ask more either."""
        super().pause_writing()
        self._unread_since = self._loop.time()
        self._read.clear()
        self._read_on()

    def resume_writing(self) -> None:
        """It has read them."""
        super().resume_writing()
        self._unread_since = float("inf")
        self._read.set()
        self._read_on()

    # The end

    def sweep(self, now: float) -> None:
        """End the channel if its client is gone or stands still."""
        if now - self._unread_since >= STALL_SECONDS:
            self.abort("answers are not read")
        elif self._draining or not self._reading:
            self._heard = now  # it is we who do not listen
        elif now - self._heard >= SILENCE_SECONDS:
            self.abort("nothing was heard")
        elif any(now - receipt.heard >= STALL_SECONDS for receipt in self._receipts.values()):
            self.abort("a content stood still")

    def stop(self) -> None:
        """The service ends: answer what has been asked, then close."""
        self._stopping = True
        self._why = self._why or "the service is stopping"
        self._close_if_done()

    def abort(self, reason: str = "the service is stopping") -> None:
        """End now."""
        self._why = self._why or reason
        if self._transport is not None:
            self._transport.abort()

    def _close_if_done(self) -> None:
        if self._stopping and not self._frames.under_way and self._transport is not None:
            self.flush()
            self._transport.close()

    # Questions

    def _asked(self, number: int, question: Question) -> None:
        if type(question) is not Hold:
            tasks.start(self._ask(number, question), "answer a hub")
            return
        receipt = self._receipts[number] = _Receipt(question, None, self._heard)
        try:
            receipt.writer = self._answering.writer(question.size)
        except SpoolFull:
            receipt.reason = "no room"

    def _content(self, event: Content) -> None:
        receipt = self._receipts[event.number]
        receipt.heard = self._heard
        writer = receipt.writer
        if writer is None or receipt.reason:
            return
        writer.write(event.data)
        if writer.full and receipt.draining is None:
            self._draining += 1
            self._read_on()
            receipt.draining = tasks.start(self._drain(receipt, writer), "drain a copy")

    async def _drain(self, receipt: _Receipt, writer: BodyWriter) -> None:
        try:
            await writer.drain()
        except SpoolFull:
            receipt.reason = "no room"
        except OSError as fault:
            receipt.reason = _text(fault)
        finally:
            receipt.draining = None
            receipt.heard = self._loop.time()
            self._draining -= 1
            self._read_on()

    def _read_on(self) -> None:
        """Read from the client unless something is in the way."""
        reading = not (self.paused or self._draining)
        transport = self._transport
        if reading is self._reading or transport is None or transport.is_closing():
            return
        self._reading = reading
        if reading:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _complete(self, number: int) -> None:
        tasks.start(self._hold(number, self._receipts.pop(number)), "hold a copy")

    def _withdrawn(self, number: int) -> None:
        receipt = self._receipts.pop(number)
        if receipt.writer is not None:
            receipt.writer.discard()
        self._answer(number, NotHeld(receipt.hold.token, "withdrawn"))

    async def _hold(self, number: int, receipt: _Receipt) -> None:
        hold, writer, hub = receipt.hold, receipt.writer, self.hub
        reason = "a fault of the keeper's"
        try:
            if receipt.draining is not None:
                await asyncio.wait([receipt.draining])
            if receipt.reason or writer is None:
                reason = receipt.reason
                if writer is not None:
                    writer.discard()
            else:
                reason = await self._answering.hold(hub.server, hub.identity, hold.token, hold.envelope, writer)
        except SpoolFull:
            reason = "no room"
        except OSError as fault:
            reason = _text(fault)
        finally:
            # Also after a fault of our own, which the loop reports: the primary does not wait for its time to be over.
            self._answer(number, NotHeld(hold.token, reason[:MAX_TEXT]) if reason else Held(hold.token))

    async def _ask(self, number: int, question: Question) -> None:
        async with self._asking if type(question) is Ask else _AT_ONCE:
            await self._read.wait()  # these answers may be large
            if not self._over:
                await self._answer_question(number, question)

    async def _answer_question(self, number: int, question: Question) -> None:
        answering, hub = self._answering, self.hub
        answer: Answer | None = None
        try:
            if isinstance(question, Ask):
                answer = await self._events(question)
            elif isinstance(question, AskStatus | TookOver):
                took_over = isinstance(question, TookOver)
                found = await answering.statuses(hub.server, question.tokens, took_over=took_over)
                answer = Statuses([int(status) for status in found])
            elif not isinstance(question, Hold):
                count = await answering.redeliver(question.request, question.database, question.since, question.until)
                answer = Redelivered(count)
        except OSError as fault:
            self._log.error("shadow.not_answered", server=hub.server, reason=_text(fault))
        finally:
            if answer is None:
                self.abort("a question could not be answered")
            else:
                self._answer(number, answer)

    async def _events(self, question: Ask) -> Events:
        acknowledged = self._given_tokens if question.after == self._given else []
        events = await self._answering.ask(self.hub.server, self.hub.identity, acknowledged, question.limit)
        events, more = _fitting(events, question.limit)
        self._given += 1
        self._given_tokens = [event.token for event in events]
        return Events(self._given, events, more=more)

    def _answer(self, number: int, answer: Answer) -> None:
        self.answered += 1
        try:
            frame = self._frames.answer(number, answer)
        except ValueError as fault:
            self.abort(str(fault))
            return
        self.say(frame)
        self._close_if_done()


_AT_ONCE = nullcontext()
"""For questions that do not wait for each other."""


def _fitting(events: list[Discarded], limit: int) -> tuple[list[Discarded], bool]:
    """As many of them as are wanted and fit into an answer, and whether there may be more."""
    octets = 0
    for index, event in enumerate(events[:limit]):
        octets += 100 + len(event.token) + 9 * len(event.places or ()) + sum(4 * len(n) + 5 for n in event.databases)
        if octets > MAX_MESSAGE - 1000 and index:
            return events[:index], True
    return events[:limit], len(events) >= limit


def _text(fault: OSError) -> str:
    return str(fault) or type(fault).__name__
