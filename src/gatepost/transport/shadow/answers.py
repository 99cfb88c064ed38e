"""What this hub answers others on a shadow channel (SPEC S1, S2): the seam `Answering`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from structlog.typing import FilteringBoundLogger

from gatepost.balancing.back_pressure import Pressure
from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyWriter, SpoolFull
from gatepost.transport.shadow import copies
from gatepost.transport.shadow.carrying import Carrying
from gatepost.transport.shadow.keeper import Keeper
from gatepost.transport.shadow.ports import Kept, Role
from gatepost.transport.shadow.primary import Primary
from gatepost.transport.shadow.redundancy import KeepingSpool, Redundancy
from gatepost.transport.shadow.steady import Moments
from gatepost.wire.shadow_messages import Discarded, Status

MAX_RECIPIENTS = 100_000
FULL = "no room"

Redeliver = Callable[[str, str, float, float], Awaitable[int]]


class Answers:
    """Answers other hubs. `clock` answers seconds since 1970."""

    def __init__(
        self,
        spool: KeepingSpool,
        primary: Primary,
        keeper: Keeper,
        redundancy: Redundancy,
        carrying: Carrying,
        moments: Moments,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._spool = spool
        self._primary = primary
        self._keeper = keeper
        self._redundancy = redundancy
        self._carrying = carrying
        self._clock = clock
        self._log = log
        self._moments = moments
        self._seen: dict[tuple[str, str], int] = {}
        """By hub and queue database: the moment when it was first heard of."""
        self._identities: dict[str, str] = {}
        self._decode = msgspec.msgpack.Decoder(Envelope).decode
        self.redeliver_here: Redeliver | None = None
        """Has the safety net of this hub delivered again; None: there is none."""
        self.held = 0
        """Copies that were kept for other hubs."""

    def writer(self, size: int) -> BodyWriter:
        """See `Answering`. Mail of our own goes first where there is little room (exchange-facts 4.12)."""
        if self._spool.pressure is Pressure.HIGH or self._spool.back_pressure.refuses_strangers:
            raise SpoolFull("back pressure")
        return self._spool.writer(size)

    async def hold(self, server: str, identity: str, token: str, envelope: bytes, writer: BodyWriter) -> str:
        """See `Answering`. Safe twice: a copy that is kept already is."""
        self._heard(server, identity)
        try:
            copy = self._read(server, identity, token, envelope)
        except ValueError as fault:
            writer.discard()
            return str(fault)
        if self._keeper.number(server, token) is not None:
            writer.discard()
            return ""
        reason = self._keeper.may_hold(server, token)
        if reason:
            writer.discard()
            return reason
        until = self._keeper.until(self._clock())
        kept = Kept(0, Role.SHADOW, token, server, identity, until)
        try:
            number = await self._spool.keep(writer, copy, kept)
        except SpoolFull:
            return FULL
        except OSError as fault:
            return str(fault)
        steps = self._keeper.keep(server, identity, token, number, until)
        if steps:  # it has been released while it was written
            await self._carrying.keeper(steps)
            return "it has been released already"
        self.held += 1
        self._log.debug("shadow.held", event_id="HARECEIVE", message=number, server=server, token=token)
        return ""

    async def ask(self, server: str, identity: str, acknowledged: Sequence[str], limit: int) -> list[Discarded]:
        """See `Answering`. What is told is on disk before."""
        self._heard(server, identity)
        events, forgotten = self._primary.ask(server, acknowledged, limit)
        if forgotten:
            await self._spool.forget_discards(server, forgotten)
        if events:
            await self._redundancy.durable()
        return events

    async def statuses(self, server: str, tokens: Sequence[str], *, took_over: bool) -> list[Status]:
        """See `Answering`."""
        identity = self._identities.get(server, "")
        if took_over:
            await self._carrying.primary(self._primary.told(server, identity, tokens, self._carrying.is_busy))
        return [self._status(server, token) for token in tokens]

    async def redeliver(self, request: str, database: str, since: float, until: float) -> int:
        """See `Answering`."""
        return await self.redeliver_here(request, database, since, until) if self.redeliver_here is not None else 0

    def _status(self, server: str, token: str) -> Status:
        status = self._primary.status(server, token)
        if status not in (Status.UNKNOWN, Status.LATER):
            return status
        kept = self._keeper.status(server, token)
        return status if kept is Status.UNKNOWN else kept

    def _heard(self, server: str, identity: str) -> None:
        """Another hub has asked. An old connection's question may come after a new one's: what counts is when its
        queue database was first seen."""
        moment = self._seen.get((server, identity))
        if moment is None:
            moment = self._seen[server, identity] = self._moments.next()
        now = self._clock()
        self._identities[server] = identity
        self._keeper.heard(server, identity, moment, now)
        self._primary.heard(server, identity, moment, now)

    def _read(self, server: str, identity: str, token: str, encoded: bytes) -> Envelope:
        """The envelope of a copy: whatever it says of shadows, it is one of that hub's messages. Raises ValueError."""
        try:
            envelope = self._decode(encoded)
        except msgspec.DecodeError as fault:
            raise ValueError("the envelope cannot be read") from fault
        if not 0 < len(envelope.recipients) <= MAX_RECIPIENTS:
            raise ValueError("the envelope has no recipients, or too many")
        envelope.watchers, envelope.crashes, envelope.unchecked = [], 0, False
        return copies.copy_of(envelope, server, identity, token, self._clock())
