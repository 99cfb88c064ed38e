"""What an outcome means for a message: states, the next try, reports. Pure: time and settings are arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gatepost.transport.dispatch.ports import Answer
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.queues.item import Item

OPEN = frozenset({RecipientState.WAITING, RecipientState.UNCERTAIN})
"""Recipients that the transport still owes an outcome."""
EXPIRED = "4.4.7 The message could not be delivered in time"


@dataclass(slots=True)
class Told:
    """Places of recipients whose sender may have to hear of them."""

    failed: list[int] = field(default_factory=list)
    relayed: list[int] = field(default_factory=list)
    delayed: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.failed or self.relayed or self.delayed)


def open_places(envelope: Envelope, places: Iterable[int]) -> tuple[int, ...]:
    """Those of `places` that are still to be delivered."""
    return tuple(place for place in places if envelope.recipients[place].state in OPEN)


def is_settled(envelope: Envelope) -> bool:
    """Whether nothing is left to do for the message."""
    return all(recipient.state not in OPEN for recipient in envelope.recipients)


def apply(envelope: Envelope, answers: Sequence[Answer], server: str) -> Told:
    """Write answers into the envelope; who is to be told of them."""
    told = Told()
    for answer in answers:
        recipient = envelope.recipients[answer.place]
        recipient.state = answer.state
        recipient.reply = answer.reply
        recipient.server = server
        recipient.attempts += 1
        if answer.state is RecipientState.FAILED:
            told.failed.append(answer.place)
        elif answer.relayed:
            told.relayed.append(answer.place)
    return told


def fail(envelope: Envelope, places: Iterable[int], reply: str) -> Told:
    """Give recipients up that are not yet settled."""
    told = Told()
    for place in open_places(envelope, places):
        recipient = envelope.recipients[place]
        recipient.state = RecipientState.FAILED
        recipient.reply = reply
        told.failed.append(place)
    return told


def attend(envelope: Envelope, item: Item, now: float, reason: str) -> Told:
    """The time of `item.attend` has come: it has expired, or its delay is to be told. `reason` is its queue's."""
    if now >= item.expires:
        for place in open_places(envelope, item.recipients):
            reason = envelope.recipients[place].reply or reason
            break
        return fail(envelope, item.recipients, f"{EXPIRED}: {reason}" if reason else EXPIRED)
    told = Told()
    for place in open_places(envelope, item.recipients):
        recipient = envelope.recipients[place]
        if not recipient.delay_told:
            recipient.delay_told = True
            recipient.reply = recipient.reply or reason
            told.delayed.append(place)
    item.attend = item.expires
    return told
