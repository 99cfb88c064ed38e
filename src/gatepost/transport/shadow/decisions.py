"""What the rules of shadow redundancy decide: facts and time went in, these come out, and the hub carries them out.

None of them has happened before it is on disk. What is said to another hub (a status, an acknowledged event) is said
after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gatepost.wire.shadow_messages import Discarded


class Reason(StrEnum):
    """Why a shadow server does something with a copy; for logs and operators."""

    IDENTITY = "the primary has another queue database"
    SILENCE = "the primary has been silent for too long"
    HEARTBEATS = "too many heartbeats failed"
    REMOVED = "the primary is no server of the organization any more"
    OPERATOR = "an operator wants it"
    BOTH_HELD = "both hubs keep a shadow and none is responsible"
    DISCARDED = "the primary has finished it"
    UNKNOWN = "the primary knows nothing of it"
    EXPIRED = "nothing was heard of it for too long"


# What a primary does


@dataclass(frozen=True, slots=True)
class Note:
    """Have the event on disk for `server` (`ShadowSpool.note_discards`; it replaces one of the same token)."""

    server: str
    event: Discarded


@dataclass(frozen=True, slots=True)
class GoOn:
    """All watchers have said what they know: the message may be sent."""

    number: int


@dataclass(frozen=True, slots=True)
class Follow:
    """`server` has taken the message over: become its shadow server under the same token (`copies.follow`), on disk;
    then `Keeper.keep` and `Primary.left`."""

    number: int
    server: str
    identity: str
    token: str


@dataclass(frozen=True, slots=True)
class Drop:
    """`server` has finished the message (`copies.drop`): nobody is told, that has been done; then `Primary.left`."""

    number: int
    server: str
    token: str


@dataclass(frozen=True, slots=True)
class Settle:
    """These recipients are settled (`copies.settle`): it was not on disk at the end, or another hub has done it.

    With a token `places` are as that copy counts them.
    """

    number: int
    places: tuple[int, ...]
    server: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class Unwatch:
    """These copies are not needed any more (`copies.unwatch`)."""

    number: int
    tokens: tuple[str, ...]


PrimaryStep = Note | GoOn | Follow | Drop | Settle | Unwatch


# What a shadow server does


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Contact `server` now: `Channels.channel(server, heartbeat=True)`, `Ask`, then the questions of `Keeper` and
    `Primary` for it. `moment` goes back with the answer."""

    server: str
    moment: int


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take ownership of a copy (`copies.take_over`), on disk; then `Keeper.taken` and `Primary.took_over`."""

    number: int
    token: str
    server: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class LetGo:
    """Nothing is kept for this token any more (`ShadowSpool.let_go`; of a queued message `copies.let_go`)."""

    number: int
    server: str
    token: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Shrink:
    """The primary has settled these, as the copy counts them (`copies.shrink`), and told the delay of those at `late`;
    the rest of the shadow stays."""

    number: int
    server: str
    token: str
    places: tuple[int, ...]
    late: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ToSafetyNet:
    """The copy is a shadow no more but one of the safety net, until `until`."""

    number: int
    server: str
    token: str
    databases: tuple[str, ...]
    delivered: float
    until: float


KeeperStep = TakeOver | LetGo | Shrink | ToSafetyNet


@dataclass(frozen=True, slots=True)
class Question:
    """`Channel.statuses(tokens, took_over=…)` to `server`; goes back with the answer, or as unanswered."""

    server: str
    tokens: tuple[str, ...]
    took_over: bool
    moment: int
