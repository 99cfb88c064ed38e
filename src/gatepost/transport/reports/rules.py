"""Who is told what of a message, and when (RFC 3461, RFC 3464; SPEC T13). Pure: times are arguments.

At each moment the caller gathers what became of recipients and asks `tell`: the answer is at most one report for each
action, and which recipients' failure nobody can be told of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum

from gatepost.transport.message import Envelope, Notify, Recipient, RecipientState


class Action(StrEnum):
    """The actions of RFC 3464, section 2.3.3, in the order in which their reports are made."""

    FAILED = "failed"
    DELAYED = "delayed"
    EXPANDED = "expanded"
    RELAYED = "relayed"
    DELIVERED = "delivered"


class Fate(Enum):
    """What became of a recipient at a moment."""

    FAILED = Action.FAILED
    """A server refused it for good, or it could not go on."""
    EXPIRED = "expired"
    """It was tried until the message's time was over."""
    DELAYED = Action.DELAYED
    EXPANDED = Action.EXPANDED
    """The address is that of a list; its members are told nothing of."""
    RELAYED = Action.RELAYED
    """Handed to a server that knows no DSN."""
    DELIVERED = Action.DELIVERED

    @property
    def action(self) -> Action:
        """The action that its report names."""
        return Action.FAILED if self is Fate.EXPIRED else Action(self.value)


class Handover(Enum):
    """Who took a recipient over."""

    MAILBOX = "mailbox"
    """The recipient's mailbox server: it is delivered."""
    WITH_DSN = "with DSN"
    """A server that offers DSN: `NOTIFY` has gone with it, and the report is that server's."""
    WITHOUT_DSN = "without DSN"


def success(handover: Handover) -> Fate | None:
    """What there is to tell of a recipient that was taken over (RFC 3461, section 5.2.2)."""
    return {Handover.MAILBOX: Fate.DELIVERED, Handover.WITH_DSN: None, Handover.WITHOUT_DSN: Fate.RELAYED}[handover]


@dataclass(frozen=True, slots=True)
class Telling:
    """One recipient of a report, with the status code that it gets there."""

    recipient: Recipient
    status: str
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """One report that is to be made."""

    action: Action
    tellings: tuple[Telling, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a moment calls for."""

    notices: tuple[Notice, ...] = ()
    dead: tuple[Recipient, ...] = ()
    """They failed and the message has no sender: it is kept where an operator finds it (dead letters)."""


def wanted(notify: int, fate: Fate) -> bool:
    """Whether the sender wants to hear this of a recipient (RFC 3461, section 4.1). Unasked: failures and delays."""
    if notify & Notify.NEVER:
        return False
    if fate.action is Action.FAILED:
        return not notify or bool(notify & Notify.FAILURE)
    if fate is Fate.DELAYED:
        return not notify or bool(notify & Notify.DELAY)
    return bool(notify & Notify.SUCCESS)


def tell(envelope: Envelope, happened: Iterable[tuple[Recipient, Fate]]) -> Decision:
    """The reports on what became of these recipients at one moment.

    A message without a sender causes none (RFC 5321, section 4.5.5): there a failure makes a dead letter.
    """
    if envelope.quiet:  # it was delivered once, and who had to hear of it has (exchange-facts 4.5)
        return Decision()
    if not envelope.sender:
        return Decision(dead=tuple(recipient for recipient, fate in happened if fate.action is Action.FAILED))
    told: dict[Action, list[Telling]] = {}
    for recipient, fate in happened:
        if wanted(recipient.notify, fate):
            telling = Telling(recipient, status(recipient, fate), fate is Fate.EXPIRED)
            told.setdefault(fate.action, []).append(telling)
    return Decision(tuple(Notice(action, tuple(told[action])) for action in Action if action in told))


def _open(recipient: Recipient) -> bool:
    return recipient.state in (RecipientState.WAITING, RecipientState.UNCERTAIN)


def _delay_owed(envelope: Envelope, recipient: Recipient) -> bool:
    return (
        bool(envelope.sender)
        and not envelope.quiet
        and not recipient.delay_told
        and wanted(recipient.notify, Fate.DELAYED)
    )


def delayed(envelope: Envelope, now: float, delay_notification: float) -> list[Recipient]:
    """The recipients whose delay is to be told now. Once it has been, the caller sets their `delay_told`."""
    if not envelope.received + delay_notification <= now < envelope.expires:
        return []
    return [recipient for recipient in envelope.recipients if _open(recipient) and _delay_owed(envelope, recipient)]


def expired(envelope: Envelope, now: float) -> list[Recipient]:
    """The recipients whose time is over: they fail with 4.4.7."""
    return [recipient for recipient in envelope.recipients if _open(recipient)] if now >= envelope.expires else []


def next_moment(envelope: Envelope, delay_notification: float) -> float | None:
    """When `delayed` or `expired` next have something to say; None when all is settled."""
    waiting = [recipient for recipient in envelope.recipients if _open(recipient)]
    if not waiting:
        return None
    told = envelope.received + delay_notification
    if told < envelope.expires and any(_delay_owed(envelope, recipient) for recipient in waiting):
        return told
    return envelope.expires


_CODES = re.compile(r"(?:([2-5])\d\d(?=[ -]|$)[ -]*)?(?:([245])(\.\d{1,3}\.\d{1,3})(?= |$))?")
_CLASS = {Action.FAILED: "5", Action.DELAYED: "4"}
EXPIRED = "4.4.7"
"""RFC 3463, section 3.5: delivery time expired."""


def status(recipient: Recipient, fate: Fate) -> str:
    """The status code that a report gives for a recipient (RFC 3463), from the last server's reply where it had one.

    Its class is that of the action, whatever the server made of it.
    """
    if fate is Fate.EXPIRED:
        return EXPIRED
    wanted_class = _CLASS.get(fate.action, "2")
    match = _CODES.match(recipient.reply)
    code, detail = (match[1], match[3]) if match else (None, None)
    if detail:
        return f"{wanted_class}{detail}"
    # No server spoke: it could not be reached (RFC 3463, section 3.5: network and routing).
    return "4.4.0" if fate is Fate.DELAYED and not code else f"{wanted_class}.0.0"
