"""The rules of a shadow server (SPEC S2, S3): shadow queues, heartbeats, promotion. Pure.

    keep ─► a primary's shadow queue ── event: whole ──► let go, or safety net
                 │   ▲        │ │
                 │   └ partial┘ └── status: UNKNOWN ──► let go
                 ▼
          silent, failed, another identity, removed, operator ──► TakeOver, one by one ─► taken

Silence is counted in steady time and in heartbeats that were tried: a clock that is set promotes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gatepost.organization.transport import TransportConfig
from gatepost.transport.shadow.decisions import Heartbeat, KeeperStep, Question, TakeOver
from gatepost.wire.shadow_messages import Discarded, Status


@dataclass(frozen=True, slots=True)
class ShadowQueue:
    """One primary's shadow queue, for operators. Times in seconds since 1970; 0: never."""

    server: str
    identity: str
    count: int
    taking_over: int
    heard: float
    next_heartbeat: float
    failures: int


class Keeper:
    """One for a hub. `name` is the hub's. `moment`s as of `Primary`, from `moment` here."""

    def __init__(self, name: str, settings: TransportConfig, message_expiration: float, now: float) -> None: ...

    def configure(self, settings: TransportConfig, message_expiration: float, servers: Iterable[str]) -> None:
        """Other settings, and the hubs that the organization has now: copies of others' messages are taken over."""

    def moment(self) -> int:
        """As of `Primary`."""
        ...

    def until(self, now: float) -> float:
        """When a copy that comes now expires: for `Kept.until`."""
        ...

    # Copies

    def load(self, server: str, identity: str, token: str, number: int, until: float) -> None:
        """A copy of the spool, at the start: its primary counts as heard now."""

    def may_hold(self, server: str, token: str) -> str:
        """Before a copy is written: why it will not be kept, or nothing. Not asked for a token that is kept."""
        ...

    def keep(self, server: str, identity: str, token: str, number: int, until: float) -> None:
        """The copy is on disk, of a message that `server` with this queue database is responsible for."""

    def number(self, server: str, token: str) -> int | None:
        """Whether we keep it, and where."""
        ...

    def status(self, server: str, token: str) -> Status:
        """`HELD` or `UNKNOWN`."""
        ...

    def gone(self, server: str, token: str) -> None:
        """An operator has dropped the copy, or the spool has lost it."""

    # Primaries

    def due(self, now: float, wanted: Iterable[str] = ()) -> list[Heartbeat]:
        """Every second: the primaries to contact now; `wanted` are `Primary.wanted`. Each is answered by `heard` or
        `failed`, and is not due again before."""
        ...

    def heard(self, server: str, identity: str, moment: int, now: float, *, more: bool = False) -> None:
        """It has answered or asked, as for `Primary.heard`. `more`: there are more events."""

    def failed(self, heartbeat: Heartbeat, now: float) -> None:
        """No contact could be made, or it was lost."""

    def event(self, server: str, event: Discarded, now: float) -> KeeperStep | None:
        """What a discard event means. None: nothing is kept for the token (see `Primary.finished`)."""
        ...

    def questions(self, server: str, now: float, limit: int) -> tuple[Question | None, list[KeeperStep]]:
        """Copies of which nothing was heard for long; and those that have expired."""
        ...

    def answered(self, question: Question, identity: str, statuses: Sequence[int]) -> list[KeeperStep]:
        """What its answer means."""
        ...

    # Ownership

    def resubmit(self, server: str) -> int:
        """An operator wants all messages of this primary taken over; how many they are."""
        ...

    def takeovers(self, limit: int) -> list[TakeOver]:
        """Some of what is to be taken over now; each ends with `taken` or `not_taken`."""
        ...

    def taken(self, takeover: TakeOver) -> None:
        """It is on disk that the message is ours."""

    def not_taken(self, takeover: TakeOver) -> None:
        """The disk did not take it: it is still a shadow, and to be taken over."""

    def queues(self) -> list[ShadowQueue]:
        """For operators."""
        ...
