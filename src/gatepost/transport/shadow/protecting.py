"""The protector: another hub holds a copy of a message before its sender is told that it is ours (SPEC S4).

    begin ──► Hold to the first partner ─┬─ held ───────────────────────────────► it stands
      │                                  └─ not held, lost ─► the next partner … ─► unprotected: again later
      └─► commit, at the same time                                                  (or refused, by setting)

The partner is in the envelope that is committed, so a hub that dies in between asks it at its next start. One that may
have got a copy, and is not needed, hears that the message is settled.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.hands import Hands
from gatepost.transport.message import Envelope, Watcher
from gatepost.transport.ports import BodyReader, Spool
from gatepost.transport.shadow import copies
from gatepost.transport.shadow.decisions import PrimaryStep, Unwatch
from gatepost.transport.shadow.ports import ChannelLost, Channels
from gatepost.transport.shadow.primary import Primary
from gatepost.transport.shadow.protection import Protection, count_finished
from gatepost.transport.shadow.steady import Moments
from gatepost.transport.shadow.tokens import Tokens
from gatepost.wire.smtp_reply import Reply

NOT_REDUNDANT = Reply(451, "Message failed to be made redundant", "4.4.0")
"""The source system's words (exchange-facts 6)."""
REACH_SECONDS = 5.0
"""How long a partner may take to be reached before the next one is tried."""
HOLD_SECONDS = 15.0
HOLD_BYTES_A_SECOND = 1024 * 1024
"""How long it may take to have a copy on disk: so long, and longer for a large content."""
REJECT_SECONDS = 30.0
"""How long a message waits for its shadow that is to be refused without one, where its connector does not wait."""
LATER_AT_ONCE = 8
"""Messages that get their shadow later at a time: mail that comes in goes first."""
AGAIN_SECONDS = 5.0
"""Until it is tried again after no partner took one."""


class Protector:
    """Has copies held. `configure` gives it the organization; until then, and alone, it protects nothing."""

    def __init__(
        self,
        spool: Spool,
        hands: Hands,
        channels: Channels,
        primary: Primary,
        tokens: Tokens,
        moments: Moments,
        keep: Callable[[int, Envelope], None],
        note: Callable[[Iterable[PrimaryStep]], None],
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        """`keep` has the spool know an envelope, `note` has discard events on disk."""
        self._spool = spool
        self._hands = hands
        self._channels = channels
        self._primary = primary
        self._keep = keep
        self._note = note
        self._clock = clock
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._tokens = tokens
        self._moments = moments
        self._stand_ins = itertools.count(1)
        self._choose: Callable[[Envelope], list[str]] | None = None
        self._under_way: set[Protection] = set()
        self._open: dict[int, Protection] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._failed_at = 0.0
        self._is_lacking = False
        self._is_ending = False
        self.rejects = False
        """Whether a message is refused that gets no shadow."""
        self.made = 0
        """Shadows that other hubs hold, or held, of our messages."""
        self.failed = 0
        """Messages that no hub took a copy of when it was asked."""

    def configure(self, choose: Callable[[Envelope], list[str]] | None, *, rejects: bool) -> None:
        """`choose` answers the hubs to try for a message, in turn, without those that are down; None: there is no other
        hub, or all this is off."""
        self._choose = choose
        self.rejects = rejects

    @property
    def active(self) -> bool:
        """Whether messages are protected at all."""
        return self._choose is not None

    # While a message comes in

    def begin(self, envelope: Envelope, content: bytes | None) -> Protection | None:
        """Before the commit of a message: who is to hold it is in its envelope then, and is asked at once if `content`
        is there (else after `committed`). None: nothing is protected here."""
        if self._choose is None:
            return None
        partners = self._choose(envelope)
        if not partners:
            self.failed += 1
            if not self._is_lacking:
                self._is_lacking = True
                self._log.warning("shadow.no_partner", event_id="HAREDIRECTFAIL", reason="no other hub can be reached")
            envelope.unprotected = True
            return Protection(envelope, None, [])
        self._is_lacking = False
        protection = Protection(envelope, content, partners)
        self._next(protection)
        protection.on_disk = envelope.watchers
        self._under_way.add(protection)
        if content is not None:
            self._start(protection)
        return protection

    def committed(self, protection: Protection, number: int) -> None:
        """The message is on our disk, and not yet queued."""
        envelope = protection.envelope
        self._primary.opened(number, protection.tried[:1], held=False)
        if not protection.encoded:  # there is no partner
            return
        if len(protection.tried) > 1:
            self._primary.offered(number, protection.tried)
        if not protection.is_held or envelope.watchers != protection.on_disk:
            protection.is_adopted = True
            self._hands.adopt(number, envelope)
        self._open[number] = protection
        protection.number.set_result(number)
        if protection.task is None:
            self._start(protection)

    def abandon(self, protection: Protection) -> None:
        """The message is not taken after all: who may hold a copy of it hears that it is settled."""
        protection.is_settled = True
        if protection.task is not None and not protection.task.done():
            protection.number.cancel()  # where it is not known yet
            protection.task.cancel()
        else:
            self._dismiss(protection)

    async def stands(self, protection: Protection, seconds: float) -> Reply | None:
        """Wait until a message has its shadow that is not taken without; the reply that refuses it where it has none
        by then. The caller removes and abandons it."""
        await self._wait(protection, seconds or REJECT_SECONDS)
        return None if protection.is_held else NOT_REDUNDANT

    async def acknowledged(self, protection: Protection, seconds: float) -> None:
        """Wait until the message has its shadow, or cannot get one now, or has been delivered; so long at most."""
        if seconds > 0 and not self._is_ending:
            await self._wait(protection, seconds)

    def hurry(self) -> None:
        """All ends: whoever waits for a shadow that need not stand is answered now; the message is on our disk."""
        self._is_ending = True
        for protection in self._under_way if not self.rejects else ():
            protection.wake()

    def settled(self, number: int) -> None:
        """The message has ended here, whatever became of its shadow."""
        protection = self._open.get(number)
        if protection is not None:
            protection.is_settled = True
            protection.wake()

    async def _wait(self, protection: Protection, seconds: float) -> None:
        if protection.is_over or protection.is_settled:
            return
        protection.waiter = self._loop.create_future()
        alarm = self._loop.call_later(seconds, protection.wake)
        try:
            await protection.waiter
        finally:
            alarm.cancel()

    # What is protected later

    def look(self, now: float) -> None:
        """Called now and then: give messages shadows that have none."""
        if self._choose is None or abs(now - self._failed_at) < AGAIN_SECONDS:
            return
        for number in self._primary.unprotected(LATER_AT_ONCE - len(self._workers)):
            worker = tasks.start(self._work(number), "protect messages later")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def end(self) -> None:
        """Try no more: what has no shadow yet is marked so."""
        self._choose = None
        running = [protection.task for protection in self._under_way if protection.task is not None]
        for task in [*running, *self._workers]:
            task.cancel()
        await asyncio.gather(*running, *self._workers, return_exceptions=True)

    async def _work(self, number: int) -> None:
        """Protect this message, and others after it as long as that succeeds."""
        while True:
            if not await self._protect(number):
                self._failed_at = self._clock()
                return
            following = self._primary.unprotected(1) if self._choose is not None else []
            if not following:
                return
            number = following[0]

    async def _protect(self, number: int) -> bool:
        try:
            envelope = await self._hands.take(number)
        except KeyError:  # settled meanwhile
            return True
        except OSError as fault:
            self._log.error("message.unreadable", message=number, reason=str(fault))
            self._primary.still_unprotected(number)
            return False
        try:
            if settling.is_settled(envelope) or number in self._open:
                return True
            partners = self._choose(envelope) if self._choose is not None else []
            if not partners:
                self._primary.still_unprotected(number)
                return False
            protection = Protection(envelope, None, partners)
            self._next(protection)
            self._write(number, protection)
            self._primary.offered(number, envelope.watchers)
            self._open[number] = protection
            protection.number.set_result(number)
            await self._make(protection)
            return protection.is_held or protection.is_settled
        finally:
            self._hands.give_back(number)

    # One copy

    def _next(self, protection: Protection) -> None:
        """The next partner, in the envelope as well."""
        watcher = Watcher(protection.partners.pop(0), self._tokens.fresh())
        protection.tried.append(watcher)
        protection.envelope.watchers = [*protection.before, *protection.tried]

    def _start(self, protection: Protection) -> None:
        protection.task = tasks.start(self._make(protection), "make a shadow")

    async def _make(self, protection: Protection) -> None:
        try:
            await self._try_all(protection)
            protection.is_over = True
            protection.wake()
            number = await asyncio.shield(protection.number)
            self._finish(number, protection)
        except asyncio.CancelledError:
            if protection.is_settled:  # abandoned
                self._dismiss(protection)
            elif protection.number.done():  # all ends
                self._finish(protection.number.result(), protection)
            raise
        finally:
            protection.is_over = True
            self._under_way.discard(protection)
            if protection.number.done() and not protection.number.cancelled():
                number = protection.number.result()
                self._open.pop(number, None)
                if protection.is_adopted:
                    self._hands.give_back(number)
            protection.wake()

    async def _try_all(self, protection: Protection) -> None:
        while True:
            watcher = protection.tried[-1]
            reason = await self._attempt(protection, watcher)
            if not reason:
                protection.is_held = True
                self.made += 1
                self._log.debug(
                    "shadow.made", event_id="HAREDIRECT", server=watcher.server, token=watcher.token,
                    message_id=protection.envelope.message_id,
                )  # fmt: skip
                return
            self._log.info(
                "shadow.not_made", event_id="HAREDIRECTFAIL", server=watcher.server, reason=reason,
                message_id=protection.envelope.message_id,
            )  # fmt: skip
            if protection.is_settled or not protection.partners:
                self.failed += 1
                return
            self._next(protection)
            if protection.number.done():  # it is on disk before the copy is: after a crash that hub is asked
                self._write(protection.number.result(), protection)
                self._primary.offered(protection.number.result(), protection.envelope.watchers)

    def _finish(self, number: int, protection: Protection) -> None:
        """What came of it goes into the envelope, where that says something else."""
        envelope, tried, primary = protection.envelope, protection.tried, self._primary
        if protection.is_settled:
            self._dismiss(protection)
            return
        steps: list[PrimaryStep] = []
        envelope.watchers = [*protection.before, *tried]
        if protection.is_held:
            holder = tried[-1]
            steps = primary.held(number, holder.server, protection.identity, holder.token, protection.moment)
        else:
            for watcher in tried:
                primary.in_doubt(number, watcher.server, watcher.token)
            primary.still_unprotected(number)
        for step in steps:
            if isinstance(step, Unwatch):
                copies.unwatch(envelope, step.tokens)
        # Recipients that were settled meanwhile were told to who had no copy yet: `keep` tells them once more.
        is_late = protection.is_held and count_finished(envelope) != protection.finished
        if envelope.watchers != protection.on_disk or envelope.unprotected is protection.is_held or is_late:
            envelope.unprotected = not protection.is_held
            self._write(number, protection)
        self._note(steps)

    def _write(self, number: int, protection: Protection) -> None:
        protection.on_disk = protection.envelope.watchers
        self._keep(number, protection.envelope)

    def _dismiss(self, protection: Protection) -> None:
        """The message is settled, or was not taken: who may have got a copy, even after that was told, is told."""
        number, tried, at = protection.number, protection.tried, self._clock()
        if number.done() and not number.cancelled():
            self._note(self._primary.settled(number.result(), tried, (), whole=True, at=at))
        if tried:
            stand_in = -next(self._stand_ins)
            self._primary.opened(stand_in, tried, held=False)
            self._note(self._primary.settled(stand_in, tried, (), whole=True, at=at))

    async def _attempt(self, protection: Protection, watcher: Watcher) -> str:
        """ "" when it is held, else why not. One that may be held stays in `tried`."""
        sent = False
        try:
            async with asyncio.timeout(REACH_SECONDS):
                channel = await self._channels.channel(watcher.server)
            body: bytes | BodyReader | None = protection.content
            if body is None:
                body = await self._spool.body(await asyncio.shield(protection.number))
                body = getattr(body, "whole", body)
            assert body is not None
            sent = True
            try:
                async with asyncio.timeout(HOLD_SECONDS + protection.size / HOLD_BYTES_A_SECOND):
                    protection.identity, protection.moment = channel.identity, self._moments.next()
                    reason = await channel.hold(watcher.token, protection.encoded, body, protection.size)
            finally:
                if not isinstance(body, bytes):
                    body.close()
        except TimeoutError:
            reason = "no answer in time" if sent else "not reached in time"
        except (KeyError, OSError) as fault:
            reason = str(fault) or type(fault).__name__
            sent = sent and isinstance(fault, ChannelLost)
        else:
            sent = not reason
        if not sent:
            protection.tried.remove(watcher)
            if protection.number.done():
                self._primary.not_held(protection.number.result(), watcher.server, watcher.token)
        return reason
