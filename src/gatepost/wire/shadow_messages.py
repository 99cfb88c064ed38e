"""What hubs say to each other on a shadow channel (SPEC S1, S2): questions, answers, and their meaning.

A channel is an SMTP session between servers of the organization (mutual TLS) after `XSHADOW <server> <identity>` was
answered `250 2.0.0 <server> <identity>`; identities are those of the two queue databases. From then on both sides send
frames (`shadow_frames`), which carry the messages of this module. The client asks, many questions at a time; the server
answers each of them once, in any order.

A hub's part in a copy, by the copy's token:

    OPEN     it is responsible and has not finished          (the primary)
    HELD     it keeps the shadow                             (the shadow server)
    DONE     it has finished: all recipients are settled     (a discard event that is not yet acknowledged)
    UNKNOWN  it has nothing of it
    LATER    it is starting and cannot say yet; ask again
"""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Status(IntEnum):
    """See above."""

    UNKNOWN = 0
    OPEN = 1
    HELD = 2
    DONE = 3
    LATER = 4


class Hold(msgspec.Struct, tag=1, array_like=True, gc=False):
    """Primary to shadow server: keep this copy. `size` octets of content follow in frames of their own.

    `envelope` is an encoded `transport.message.Envelope`. Answered by `Held` or `NotHeld`, after it is on disk.
    """

    token: str
    envelope: bytes
    size: int


class Held(msgspec.Struct, tag=2, array_like=True, gc=False):
    """The copy is on disk."""

    token: str


class NotHeld(msgspec.Struct, tag=3, array_like=True, gc=False):
    """The copy is not kept; `reason` for the log."""

    token: str
    reason: str


class Discarded(msgspec.Struct, array_like=True, gc=False):
    """A discard event. `places` None: all recipients are settled, let the copy go; else: these are, keep it for the
    others. `databases` are those that it was delivered to, `at` when (seconds since 1970). `late` are recipients of
    whose delay the sender has been told: whoever takes over does not tell it again."""

    token: str
    places: list[int] | None = None
    databases: list[str] = msgspec.field(default_factory=list)
    at: float = 0.0
    late: list[int] = msgspec.field(default_factory=list)


class Ask(msgspec.Struct, tag=4, array_like=True, gc=False):
    """Shadow server to primary (XQDISCARD): what has been finished. Acknowledges the events of the answer number
    `after`, which are then forgotten; 0: none. Also the heartbeat."""

    after: int
    limit: int


class Events(msgspec.Struct, tag=5, array_like=True, gc=False):
    """Discard events, oldest first. `number` grows within a channel; `more`: there are more."""

    number: int
    events: list[Discarded]
    more: bool = False


class AskStatus(msgspec.Struct, tag=6, array_like=True, gc=False):
    """What the other hub's part in these copies is. A primary that was away asks before it sends (fencing); a shadow
    server asks about copies that it has heard nothing of for long."""

    tokens: list[str]


class TookOver(msgspec.Struct, tag=7, array_like=True, gc=False):
    """Shadow server to a primary that is back: I have taken these over and am responsible; keep the shadow of those
    you still have and are not sending just now. Answered like `AskStatus`, with the parts after that."""

    tokens: list[str]


class Statuses(msgspec.Struct, tag=8, array_like=True, gc=False):
    """A `Status` for each token of the question, in its order."""

    statuses: list[int]


class Redeliver(msgspec.Struct, tag=9, array_like=True, gc=False):
    """Deliver again what the safety net has for a database, delivered from `since` to `until` (seconds since 1970).

    A hub does it once for each `request`, however often it is asked."""

    request: str
    database: str
    since: float
    until: float


class Redelivered(msgspec.Struct, tag=10, array_like=True, gc=False):
    """How many messages it has taken up again."""

    count: int


Question = Hold | Ask | AskStatus | TookOver | Redeliver
Answer = Held | NotHeld | Events | Statuses | Redelivered
