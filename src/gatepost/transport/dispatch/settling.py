"""What an outcome means for a message: states, and who is to hear of them. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gatepost.transport.dispatch.ports import Answer
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.queues.item import Item
from gatepost.transport.reports.rules import Fate

OPEN = frozenset({RecipientState.WAITING, RecipientState.UNCERTAIN})
"""Recipients that the transport still owes an outcome."""

Happened = list[tuple[int, Fate]]
"""Places of recipients, and what became of each: what the reports are made from."""


def open_places(envelope: Envelope, places: Iterable[int]) -> tuple[int, ...]:
    """Those of `places` that are still to be delivered."""
    return tuple(place for place in places if envelope.recipients[place].state in OPEN)


def is_settled(envelope: Envelope) -> bool:
    """Whether nothing is left to do for the message."""
    return all(recipient.state not in OPEN for recipient in envelope.recipients)


def apply(envelope: Envelope, answers: Sequence[Answer], server: str) -> Happened:
    """Write answers into the envelope; what its sender may have to hear."""
    happened: Happened = []
    for answer in answers:
        recipient = envelope.recipients[answer.place]
        recipient.state = answer.state
        recipient.reply = answer.reply
        recipient.server = "" if answer.ours else server
        recipient.attempts += 1
        if answer.state is RecipientState.FAILED:
            happened.append((answer.place, Fate.FAILED))
        elif answer.tell is not None:
            happened.append((answer.place, answer.tell))
    return happened


def fail(envelope: Envelope, places: Iterable[int], reply: str, fate: Fate = Fate.FAILED) -> Happened:
    """Give recipients up that are not yet settled, in words of ours; without them what a server said stays."""
    happened: Happened = []
    for place in open_places(envelope, places):
        recipient = envelope.recipients[place]
        recipient.state = RecipientState.FAILED
        if reply:
            recipient.reply, recipient.server = reply, ""
        happened.append((place, fate))
    return happened


def attend(envelope: Envelope, item: Item, now: float, reason: str) -> Happened:
    """The time of `item.attend` has come: it has expired, or its delay is to be told. `reason` is its queue's."""
    waiting = [envelope.recipients[place] for place in open_places(envelope, item.recipients)]
    for recipient in waiting:
        recipient.reply = recipient.reply or reason
    if now >= item.expires:
        return fail(envelope, item.recipients, "", Fate.EXPIRED)
    happened: Happened = []
    for place in open_places(envelope, item.recipients):
        recipient = envelope.recipients[place]
        if not recipient.delay_told:
            recipient.delay_told = True
            happened.append((place, Fate.DELAYED))
    item.attend = item.expires
    return happened
