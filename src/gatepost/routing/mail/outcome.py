"""What comes of routing one recipient of a message (SPEC T3)."""

from __future__ import annotations

from dataclasses import dataclass

from gatepost.routing.next_hop import NextHop
from gatepost.routing.outcome import Step
from gatepost.wire.smtp_reply import Reply


@dataclass(frozen=True, slots=True)
class Routed:
    """The recipient has a next hop, which is `Unreachable` where there is no way now.

    `path` are the sites from the own one to the one that is meant in the end, empty where no site is. `stop` is the
    place in it that the message goes to now, 0 when it stays in this site.
    """

    next_hop: NextHop
    reasons: tuple[Step, ...] = ()
    path: tuple[str, ...] = ()
    stop: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The recipient cannot have this message: `reply` is what the sender is told, always permanent."""

    reply: Reply
    reasons: tuple[Step, ...] = ()


Route = Routed | Refused
