"""The part of a report that people read: a few plain sentences, and the servers' own words, quoted."""

from __future__ import annotations

import textwrap

from gatepost.transport.headers.trace import date
from gatepost.transport.headers.words import printable
from gatepost.transport.message import Envelope
from gatepost.transport.reports.rules import Action, Notice, Telling

MAX_NAMED = 50
"""Recipients that the text names; the others are in the part for programs."""
MAX_QUOTED = 400
MAX_ADDRESS = 320
WIDTH = 72

TITLES = {
    Action.FAILED: "Undeliverable",
    Action.DELAYED: "Delayed",
    Action.EXPANDED: "Expanded",
    Action.RELAYED: "Relayed",
    Action.DELIVERED: "Delivered",
}
"""What stands before the subject of the message."""

_BEGINNINGS = {
    Action.FAILED: "Your message could not be delivered to:",
    Action.DELAYED: "Your message has not been delivered yet to:",
    Action.EXPANDED: "Your message has reached these lists and was sent on to their members:",
    Action.RELAYED: "Your message was handed to the mail server of these recipients:",
    Action.DELIVERED: "Your message was delivered to:",
}
_ENDINGS = {
    Action.FAILED: "The message will not be tried again.",
    Action.DELAYED: "This is only a warning. The message will be tried again until {until}; do not send it again.",
    Action.EXPANDED: "What becomes of the copies for the members is not reported.",
    Action.RELAYED: "That server makes no reports of deliveries, so you will not hear more unless it fails.",
    Action.DELIVERED: "",
}


def human_text(envelope: Envelope, notice: Notice, mta: str) -> str:
    """The text, lines parted by CR LF."""
    lines = [f"This is the mail system of {mta}.", "", *_wrapped(_BEGINNINGS[notice.action], ""), ""]
    for told in notice.tellings[:MAX_NAMED]:
        lines.append(f"  {printable(told.recipient.address, MAX_ADDRESS)}")
        lines.extend(_wrapped(_reason(told, notice.action), "    "))
    more = len(notice.tellings) - MAX_NAMED
    if more > 0:
        lines.append(f"  and {more} more, who are listed in the next part.")
    ending = _ENDINGS[notice.action].format(until=date(envelope.expires))
    if ending:
        lines += ["", *_wrapped(ending, "")]
    lines += ["", f"Received here: {date(envelope.received)}"]
    if envelope.subject:
        lines += _wrapped(f"Subject: {printable(envelope.subject, MAX_QUOTED)}", "")
    return "\r\n".join(lines) + "\r\n"


def _reason(told: Telling, action: Action) -> str:
    recipient = told.recipient
    if action not in (Action.FAILED, Action.DELAYED):
        return ""
    said = printable(recipient.reply, MAX_QUOTED)
    if said and recipient.server:
        said = f'{printable(recipient.server, MAX_ADDRESS)} said: "{said}"'
    if told.expired:
        return f"It was tried until its time was over. {f'The last answer: {said}' if said else ''}".rstrip()
    return said


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
