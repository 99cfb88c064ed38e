"""The seams of the transport: who receives asks `Intake`, who keeps is a `Spool`, who sends reads a `BodyReader`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import IntEnum
from typing import Protocol, TypeVar

from gatepost.transport.message import Envelope
from gatepost.wire.smtp_reply import Reply


class Pressure(IntEnum):
    """Back pressure by stages (exchange-facts 4.12)."""

    NORMAL = 0
    MEDIUM = 1
    """Strangers wait before each MAIL is answered; when it lasts they are refused for the moment."""
    HIGH = 2
    """Nothing new is taken: 452 4.3.1."""


class SpoolFull(Exception):
    """There is no room for this message: answered 452 4.3.1. Nothing of it is left on disk."""


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
        """The content in pieces of up to 256 KiB; small messages come at once. Raises OSError."""

    def close(self) -> None:
        """Safe twice."""


Writer = TypeVar("Writer", bound=BodyWriter)


class Spool(Protocol):
    """Messages on disk (SPEC T2). What `commit`, `update`, `remove` have returned from survives kill -9, power loss."""

    @property
    def pressure(self) -> Pressure:
        """From memory; costs nothing."""

    def writer(self, size: int | None) -> BodyWriter:
        """For a message of `size` bytes, as announced. Raises `SpoolFull`."""

    async def commit(self, writer: BodyWriter, envelope: Envelope) -> int:
        """Put the message on disk for good; its number, which is never used again. Raises `SpoolFull`, OSError."""

    async def update(self, number: int, envelope: Envelope) -> None:
        """Keep what has become of the recipients."""

    async def remove(self, number: int) -> None:
        """Everything about it is settled."""

    async def envelope(self, number: int) -> Envelope:
        """Raises KeyError."""

    async def body(self, number: int) -> BodyReader:
        """Raises KeyError, OSError."""


class Intake(Protocol[Writer]):
    """What a receive connection asks of the transport behind it. All but `accept` answer at once, from memory."""

    @property
    def pressure(self) -> Pressure:
        """The stage of back pressure now."""

    def sender(self, envelope: Envelope) -> Reply | None:
        """Called at MAIL, with no recipients yet; a reply refuses."""

    def recipient(self, envelope: Envelope, address: str) -> Reply | None:
        """Called at each RCPT that the connector's permissions let through; a reply refuses."""

    def is_ours(self, address: str) -> bool:
        """Whether the address is in an accepted domain, so that strangers may send to it."""

    def writer(self, size: int | None, envelope: Envelope) -> Writer:
        """Called at DATA or the first BDAT, when all recipients are known. Raises `SpoolFull`."""

    async def accept(self, writer: Writer, envelope: Envelope) -> Reply:
        """Make it ours: at a positive reply the message is on disk. Never raises for a fault of the disk."""
