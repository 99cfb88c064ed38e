"""What the rules of shadow redundancy have decided, carried out at the queues and on disk (see `decisions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from gatepost.transport.categorizer import Categorizer
from gatepost.transport.dispatch import settling
from gatepost.transport.dispatch.hands import Hands
from gatepost.transport.message import Envelope
from gatepost.transport.queues.queues import Queues
from gatepost.transport.shadow import copies
from gatepost.transport.shadow.decisions import (
    Drop,
    Follow,
    GoOn,
    KeeperStep,
    LetGo,
    PrimaryStep,
    Reason,
    Settle,
    Shrink,
    TakeOver,
    ToSafetyNet,
    Unwatch,
)
from gatepost.transport.shadow.keeper import Keeper
from gatepost.transport.shadow.primary import Primary
from gatepost.transport.shadow.redundancy import KeepingSpool, Redundancy

AT_ONCE = 200
"""Messages that are taken over before others get their turn on the loop."""


class Carrying:
    """Carries decisions out, each on disk before the rules hear that it has happened."""

    def __init__(
        self,
        spool: KeepingSpool,
        hands: Hands,
        queues: Queues,
        categorizer: Categorizer,
        redundancy: Redundancy,
        primary: Primary,
        keeper: Keeper,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._spool = spool
        self._hands = hands
        self._queues = queues
        self._categorizer = categorizer
        self._redundancy = redundancy
        self._primary = primary
        self._keeper = keeper
        self._clock = clock
        self._log = log
        self.take_up: Callable[[int, Envelope], None] = categorizer.place
        """Queues a message that was found at the start."""
        self.resubmitted = 0
        """Messages that were taken over."""
        self.shrunk = 0
        """Times that something was heard of single recipients of a shadow."""

    def is_busy(self, number: int) -> bool:
        """Whether a message is worked on just now: its being sent among that."""
        return number in self._hands

    # As a primary

    async def primary(self, steps: Sequence[PrimaryStep]) -> None:
        """Raises OSError."""
        self._redundancy.note(steps)
        leaving = {step.number for step in steps if isinstance(step, Follow | Drop)}
        if leaving:
            self._take_out(leaving)
        for step in steps:
            match step:
                case GoOn():
                    await self.release([step.number])
                case Follow() | Drop():
                    await self._leave(step)
                case Settle() | Unwatch():
                    await self._adjust(step)
                case _:
                    pass

    async def release(self, numbers: Iterable[int]) -> None:
        """Queue messages that have waited for what other hubs know of them."""
        for count, number in enumerate(numbers, 1):
            try:
                envelope = await self._hands.take(number)
            except KeyError:
                continue
            try:
                self.take_up(number, envelope)
            finally:
                self._hands.give_back(number)
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)

    def _take_out(self, numbers: set[int]) -> None:
        """Have them in no queue any more."""
        now = self._clock()
        for queue in self._queues:
            found = [item for item in queue if item.number in numbers]
            for item in found:
                queue.drop(item)
            if found:
                queue.emptied(now)

    async def _leave(self, step: Follow | Drop) -> None:
        try:
            envelope = await self._hands.take(step.number)
        except KeyError:
            return
        try:
            if isinstance(step, Follow):
                copies.follow(envelope, step.server, step.identity, step.token, self._clock())
                self._log.info("shadow.followed", message=step.number, server=step.server, token=step.token)
            else:
                copies.drop(envelope, step.server, step.token)
                self._log.info("shadow.finished_elsewhere", message=step.number, server=step.server, token=step.token)
            await self._redundancy.kept(step.number, envelope)
            goes_on = self._primary.left(step.number, step.server, step.token)
            is_waiting = self._primary.waits(step.number) or any(isinstance(other, GoOn) for other in goes_on)
            if not settling.is_settled(envelope) and not is_waiting:
                self._categorizer.place(step.number, envelope)
        finally:
            self._hands.give_back(step.number)
        await self.primary(goes_on)

    async def _adjust(self, step: Settle | Unwatch) -> None:
        with suppress(KeyError):
            envelope = await self._hands.take(step.number)
            try:
                if isinstance(step, Unwatch):
                    copies.unwatch(envelope, step.tokens)
                else:
                    copies.settle(envelope, step.places, step.server, step.token)
                await self._redundancy.kept(step.number, envelope)
            finally:
                self._hands.give_back(step.number)

    # As a shadow server

    async def keeper(self, steps: Sequence[KeeperStep]) -> None:
        """Raises OSError."""
        gone: list[tuple[int, str]] = []
        for step in steps:
            match step:
                case LetGo():
                    self._log.debug(
                        "shadow.discarded", event_id="HADISCARD", message=step.number, server=step.server,
                        token=step.token, reason=step.reason.value,
                    )  # fmt: skip
                    if step.number in self._redundancy.in_queue:
                        await self._change(step)
                    else:
                        gone.append((step.number, step.token))
                case Shrink():
                    await self._change(step)
                case ToSafetyNet():
                    await self._to_safety_net(step)
                case TakeOver():
                    await self.take_over(step)
        if gone:
            await self._spool.let_go(gone)

    async def take_over(self, step: TakeOver) -> None:
        """Make a message ours whose primary is gone, and queue it. Never raises for a fault of the disk."""
        number, now = step.number, self._clock()
        try:
            envelope = await self._hands.take(number)
        except KeyError:
            self._keeper.gone(step.server, step.token)
            return
        except OSError as fault:
            self._not_taken(step, fault)
            return
        try:
            is_aside = settling.is_settled(envelope)
            again = copies.take_over(envelope, step.server, step.token)
            for shadow in list(envelope.shadows):
                if self._keeper.number(shadow.primary, shadow.token) is None:
                    copies.let_go(envelope, shadow.primary, shadow.token)
            if not again:  # all of it was settled
                self._keeper.gone(step.server, step.token)
                await self._spool.let_go([(number, step.token)])
                return
            envelope.unprotected = True
            if is_aside:
                await self._spool.take_back(number, envelope)
            else:
                await self._spool.update(number, envelope)
            if envelope.shadows:
                self._redundancy.in_queue.add(number)
            is_finished = self._keeper.taken(step)
            self._primary.took_over(number, envelope.watchers, step.server, step.token)
            self.resubmitted += 1
            self._log.info(
                "shadow.resubmitted", event_id="RESUBMIT", message=number, server=step.server, token=step.token,
                reason=step.reason.value, message_id=envelope.message_id, waited=round(now - envelope.received, 1),
            )  # fmt: skip
            if is_finished:
                await self.primary(self._primary.finished(step.server, step.token, lambda _number: False))
            else:
                with self._spool.in_hand(number):
                    self._categorizer.place(number, envelope, again)
        except OSError as fault:
            self._not_taken(step, fault)
        finally:
            self._hands.give_back(number)

    def _not_taken(self, step: TakeOver, fault: OSError) -> None:
        self._log.error("shadow.not_resubmitted", event_id="RESUBMITFAIL", message=step.number, reason=str(fault))
        self._keeper.not_taken(step)

    async def _change(self, step: LetGo | Shrink) -> None:
        """What other hubs have settled of a message whose envelope changes by that."""
        try:
            envelope = await self._hands.take(step.number)
        except KeyError:
            return
        try:
            is_aside = settling.is_settled(envelope)
            if isinstance(step, LetGo):
                copies.let_go(envelope, step.server, step.token)
                if not envelope.shadows:
                    self._redundancy.in_queue.discard(step.number)
            else:
                copies.shrink(envelope, step.server, step.token, step.places, step.late)
                self.shrunk += 1
            if is_aside:
                await self._spool.update(step.number, envelope)
            else:
                await self._redundancy.kept(step.number, envelope)
        finally:
            self._hands.give_back(step.number)

    async def _to_safety_net(self, step: ToSafetyNet) -> None:
        number = step.number
        if number in self._redundancy.in_queue:
            await self._change(LetGo(number, step.server, step.token, Reason.DISCARDED))
            return
        with suppress(KeyError):
            envelope = await self._hands.take(number)
            try:
                shadow = copies.find_shadow(envelope, step.server, step.token)
                copies.let_go(envelope, step.server, step.token)
                envelope.databases = list(step.databases)
                envelope.delivered = step.delivered
                identity = shadow.identity if shadow is not None else ""
                kept = self._redundancy.aside(number, envelope, step.server, identity)
                if kept:
                    await self._spool.set_aside(number, envelope, kept)
                else:
                    await self._spool.let_go([(number, step.token)])
            finally:
                self._hands.give_back(number)
