"""The seams of the transport: who receives asks `Intake`, who keeps is a `Spool`, who sends reads a `BodyReader`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from gatepost.balancing.back_pressure import BackPressure, Pressure
from gatepost.transport.message import Envelope
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server_events import Asking


class SpoolFull(Exception):
    """There is no room for this message: answered 452 4.3.1. Nothing of it is left on disk."""


class ContentDamaged(OSError):
    """The content on disk is not the one that was written, and will not become it again: it is never sent."""


class BodyWriter(Protocol):
    """A message's content on its way to disk: small ones stay in memory until the commit, large ones go to a file."""

    @property
    def size(self) -> int:
        """Bytes written."""

    @property
    def full(self) -> bool:
        """More is waiting to be written than should: stop reading from the client until `drain`."""

    def write(self, data: bytes) -> None:
        """Take bytes: lines end in CR LF, dots are unstuffed. Never blocks; faults come out at `drain` or `commit`."""

    async def drain(self) -> None:
        """Until there is room again. Raises `SpoolFull`, OSError."""

    def discard(self) -> None:
        """Forget the message; safe at any moment, also twice."""


class BodyReader(Protocol):
    """A message's content on disk. Any number may be open at a time, and one is read once from its beginning."""

    size: int

    def chunks(self) -> AsyncIterator[bytes]:
        """The content in pieces of up to 256 KiB; small messages come at once. Raises `ContentDamaged`, OSError."""

    def close(self) -> None:
        """Safe twice."""


Writer = TypeVar("Writer", bound=BodyWriter)


class Spool(Protocol):
    """Messages on disk (SPEC T2). What `commit`, `update`, `remove` have answered survives kill -9 and power loss.

    These three begin at the call, before they are awaited; many that wait together cost one wait for the disk. An
    update or removal is never refused for a fault of the disk: it waits until the disk takes it, and raises OSError
    only when the spool is closed before. A `commit` that is cancelled takes the message back.
    """

    @property
    def pressure(self) -> Pressure:
        """From memory; costs nothing."""

    @property
    def back_pressure(self) -> BackPressure:
        """What follows from the disk and the number of messages, as they were metered last."""

    def writer(self, size: int | None) -> BodyWriter:
        """For a message of `size` bytes, as announced. Raises `SpoolFull`."""

    def commit(self, writer: BodyWriter, envelope: Envelope) -> Awaitable[int]:
        """Put the message on disk for good; its number, which is never used again. Raises `SpoolFull`, OSError."""

    def update(self, number: int, envelope: Envelope) -> Awaitable[None]:
        """Keep what has become of the recipients. Of a message that is gone: nothing."""

    def remove(self, number: int) -> Awaitable[None]:
        """Everything about it is settled. Safe twice."""

    async def envelope(self, number: int) -> Envelope:
        """One of the caller's own, as of the last `update`. Raises KeyError, OSError."""

    async def body(self, number: int) -> BodyReader:
        """Raises KeyError, `ContentDamaged`, OSError."""

    def quarantine(self, number: int, reason: str) -> Awaitable[None]:
        """Put it aside: it is no message of the queue any more, and what there is of it stays."""

    def in_hand(self, number: int) -> AbstractContextManager[None]:
        """Around work that a malicious message could end the process in. Should it die within, the next start counts
        that in `Envelope.crashes`. Costs a microsecond, so take single steps into hand rather than a whole delivery:
        all that is in hand is suspected."""


class Intake(Protocol[Writer]):
    """What a receive connection asks of the transport behind it. All but `accept` answer at once, from memory."""

    @property
    def pressure(self) -> Pressure:
        """The stage of back pressure now."""

    @property
    def refuses_strangers(self) -> bool:
        """Whether who is no server of the organization is refused for the moment."""

    @property
    def tarpit_seconds(self) -> float:
        """How long such clients wait before MAIL is answered, to slow them."""

    def sender(self, envelope: Envelope) -> Reply | None:
        """Called at MAIL, with no recipients yet; a reply refuses."""

    def recipient(self, envelope: Envelope, address: str) -> Reply | Asking | None:
        """Called at each RCPT that the connector's permissions let through; a reply refuses, `Asking` waits."""

    async def ask(self, name: str) -> None:
        """Wait until what `recipient` asks for is known, or cannot be. Never raises."""

    def is_ours(self, address: str) -> bool:
        """Whether the address is in an accepted domain, so that strangers may send to it."""

    def writer(self, size: int | None, envelope: Envelope) -> Writer:
        """Called at DATA or the first BDAT, when all recipients are known. Raises `SpoolFull`."""

    async def accept(self, writer: Writer, envelope: Envelope) -> Reply:
        """Make it ours: at a positive reply the message is on disk. Never raises for a fault of the disk."""
