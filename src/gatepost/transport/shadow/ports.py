"""The seams of shadow redundancy: what the hub asks of it, what it asks of the spool and of other hubs.

    intake ──protect──► Protector ──Hold──► channel ══► other hub: keeper ─► its spool  (S4: receiver copies)
    MailSender ── MAIL … XSHADOW=token ──► other hub: watcher in its envelope  (S1: sender keeps)
    settler ──settled──► Primary: discard events ◄──Ask── other hub's Keeper (heartbeats, promotion)

The rules are pure (`primary`, `keeper`): facts and time in, decisions out; the simulation drives them as the hub does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyReader, BodyWriter
from gatepost.wire.shadow_messages import Discarded, Status


class Role(IntEnum):
    """Why the spool keeps a message that is not in the queue."""

    SHADOW = 1
    SAFETY_NET = 2


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept message, without its envelope. `key` is the token of a shadow; times in seconds since 1970."""

    number: int
    role: Role
    key: str
    primary: str
    """Of a shadow: the hub that is responsible. In the safety net: the hub that has delivered it and keeps it as well;
    empty where that is this one."""
    identity: str
    until: float
    """When it is let go of in any case."""


class ShadowSpool(Protocol):
    """What the spool does beyond `transport.ports.Spool`. As durable, in the same groups, begun at the call.

    What is asked first is durable no later. All but `keep` wait for a disk that is full or fails, as updates do.
    `envelope`, `body`, `update`, `in_hand` and `quarantine` work for kept messages as for those of the queue; `remove`
    is for the queue alone.
    """

    kept_count: int
    """Messages that are kept: shadows and the safety net's. `count` is the queue's alone."""

    def keep(self, writer: BodyWriter, envelope: Envelope, kept: Kept) -> Awaitable[int]:
        """Put a copy on disk that is not queued (`kept.number` is ignored). Raises `SpoolFull`, OSError."""

    def set_aside(self, number: int, envelope: Envelope, kept: Sequence[Kept]) -> Awaitable[None]:
        """A message of the queue is kept from now on, for each of `kept`, and is none of the queue any more.

        Of one that is kept already, `kept` replaces what it was kept for. Of a message that is gone: nothing. A copy of
        the safety net is found by `Envelope.databases` and `delivered`.
        """

    def take_back(self, number: int, envelope: Envelope) -> Awaitable[None]:
        """A kept message is one of the queue again, and kept for nothing any more."""

    def let_go(self, kept: Sequence[tuple[int, str]]) -> Awaitable[None]:
        """Nothing is kept of these (number, key) any more; a message goes with the last of its keys."""

    async def expire(self, now: float, most: int = 1000) -> bool:
        """Let go of the safety net's copies whose `until` is past; whether there are more than `most`."""

    def kept(self, role: Role) -> AsyncIterator[list[Kept]]:
        """All that is on disk, in lists. Raises OSError."""

    async def kept_since(self, database: str, since: float, until: float) -> list[Kept]:
        """The safety net's copies for a database, delivered between the two. Raises OSError."""

    async def safety_net_sums(self) -> list[tuple[str, int, int, float]]:
        """What the safety net has for each database: its name, messages, those of them that another hub has delivered
        and keeps as well, and when the next one is let go of. Raises OSError."""

    def note_discards(self, server: str, events: Sequence[Discarded]) -> Awaitable[None]:
        """Keep discard events until they are acknowledged. Asked before the message's removal, durable no later."""

    def forget_discards(self, server: str, tokens: Sequence[str]) -> Awaitable[None]:
        """They are acknowledged, or too old. The latest event of each token goes, so not of one that was noted anew."""

    async def discards(self) -> dict[str, list[Discarded]]:
        """All that are on disk, by server, oldest first. Raises OSError."""


class ChannelLost(OSError):
    """The other hub cannot be asked now."""


class Channel(Protocol):
    """A shadow channel to another hub; questions may be asked by many at a time."""

    server: str
    identity: str
    """The other hub's queue database, now."""

    @property
    def usable(self) -> bool:
        """Whether it stands."""

    async def hold(self, token: str, envelope: bytes, body: bytes | BodyReader, size: int) -> str:
        """Have a copy kept; "" when it is on the other's disk, else why not. Raises `ChannelLost`: it may be kept."""

    async def ask(self, limit: int = 1000) -> tuple[list[Discarded], bool]:
        """Discard events, and whether there are more; the next question acknowledges them. Raises `ChannelLost`."""

    async def statuses(self, tokens: Sequence[str], *, took_over: bool = False) -> list[Status]:
        """See `AskStatus` and `TookOver`. Raises `ChannelLost`."""

    async def redeliver(self, request: str, database: str, since: float, until: float) -> int:
        """See `Redeliver`. Raises `ChannelLost`."""

    def close(self) -> None:
        """Safe twice."""


class Channels(Protocol):
    """Channels to the other hubs of the organization, opened when wanted and kept."""

    def ready(self, server: str) -> bool:
        """Whether a channel stands, or may be opened now: its server is not known to be down. Costs nothing."""

    async def channel(self, server: str, *, heartbeat: bool = False) -> Channel:
        """A channel that stands. A heartbeat tries whatever the list of unhealthy servers says (SPEC T9), and takes
        the server off it when it connects. Raises `ChannelLost`."""


class Answering(Protocol):
    """Who answers the questions of other hubs. `server` and `identity` are the asking hub's, authenticated."""

    async def hold(self, server: str, identity: str, token: str, envelope: bytes, writer: BodyWriter) -> str:
        """ "" when the copy is on disk, else why not. The content is written."""

    def writer(self, size: int) -> BodyWriter:
        """For a copy's content. Raises `SpoolFull`."""

    async def ask(self, server: str, identity: str, acknowledged: Sequence[str], limit: int) -> list[Discarded]:
        """Discard events for that hub; the acknowledged ones are forgotten."""

    async def statuses(self, server: str, tokens: Sequence[str], *, took_over: bool) -> list[Status]:
        """See `AskStatus`, `TookOver`."""

    async def redeliver(self, request: str, database: str, since: float, until: float) -> int:
        """See `Redeliver`."""


Clock = Callable[[], float]
"""Seconds since 1970."""
