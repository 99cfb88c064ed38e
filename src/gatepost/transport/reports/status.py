"""The part of a report that programs read: message/delivery-status (RFC 3464, section 2) and its international form."""

from __future__ import annotations

import re

from gatepost.transport.headers.trace import date
from gatepost.transport.headers.words import folded, printable, printable_ascii
from gatepost.transport.message import Envelope
from gatepost.transport.reports.rules import Action, Notice, Telling

MAX_ADDRESS = 512
MAX_DIAGNOSTIC = 1024
"""Characters of a server's words."""
MAX_ENVELOPE_ID = 200

_XTEXT = re.compile(r"[!-*,-<>-~]|\+[0-9A-F]{2}")
_HEX = re.compile(r"\+([0-9A-F]{2})")
_EMBEDDED = re.compile(r"\\x\{([0-9A-Fa-f]{2,6})\}")
_TYPE = re.compile(r"[A-Za-z0-9-]{1,40}")
_REPLY = re.compile(r"[2-5]\d\d(?:[ -]|$)")
_LITERAL = re.compile(r"\[?([0-9A-Fa-f:.]+)\]?")


def xtext(value: str) -> str | None:
    """What an xtext value says (RFC 3461, section 4); None when it is none. Other characters beyond ASCII are kept."""
    if _XTEXT.sub("", "".join(c for c in value if c.isascii())):
        return None
    return _HEX.sub(lambda match: chr(int(match[1], 16)), value)


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        number = int(match[1], 16)
        return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "?"

    return _EMBEDDED.sub(character, text)


def _escaped(text: str) -> str:
    """utf-8-addr-xtext: ASCII with everything else as `\\x{HEX}` (RFC 6533, section 3)."""
    return "".join(c if "!" <= c <= "~" and c not in "\\+=" else f"\\x{{{ord(c):02X}}}" for c in text)


def typed_address(kind: str, address: str, international: bool) -> str:
    """`rfc822; a@b`, or `utf-8; …`: as it is in the international form, escaped in the other."""
    if kind.lower() == "utf-8":
        address = _unescaped(address)
    clean = printable(address, MAX_ADDRESS)
    if clean.isascii():
        return f"{kind}; {clean}"
    return f"utf-8; {clean if international else _escaped(clean)}"


def original_recipient(orcpt: str, international: bool) -> str:
    """The field's value for an ORCPT as it came; empty where there is none, or none that can be read."""
    kind, semicolon, value = orcpt.partition(";")
    if not semicolon or not _TYPE.fullmatch(kind):
        return ""
    text = value if kind.lower() == "utf-8" else xtext(value)
    return typed_address(kind, text, international) if text else ""


def remote_mta(server: str) -> str:
    """The value for a server given as `name [address]`, `name`, or an address alone."""
    name, _, rest = printable_ascii(server, MAX_ADDRESS).partition(" ")
    literal = _LITERAL.fullmatch(name)
    if literal and (":" in literal[1] or literal[1].replace(".", "").isdigit()):
        name = f"[{'IPv6:' if ':' in literal[1] else ''}{literal[1]}]"
    comment = re.sub(r"[^0-9A-Za-z:. ]", "", rest).strip()
    return f"dns; {name} ({comment})" if comment else f"dns; {name}"


def diagnostic(reply: str, international: bool, *, said: bool) -> str:
    """The value for a reply that a server `said`, or for our own words on why there was none."""
    words = (printable if international else printable_ascii)(reply, MAX_DIAGNOSTIC)
    return f"smtp; {words}" if said and _REPLY.match(words) else f"x-gatepost; {words}"


def is_international(envelope: Envelope, notice: Notice) -> bool:
    """Whether the status part needs its international form: something in it is beyond ASCII (RFC 6533)."""
    return envelope.smtputf8 and not all(
        told.recipient.address.isascii()
        and told.recipient.reply.isascii()
        and original_recipient(told.recipient.original, international=True).isascii()
        for told in notice.tellings
    )


def status_part(envelope: Envelope, notice: Notice, mta: str, now: float, international: bool) -> str:
    """The whole part's content: fields of the message, then those of each recipient after an empty line."""
    fields = [_field("Reporting-MTA", f"dns; {mta}")]
    envelope_id = xtext(envelope.envelope_id)
    if envelope_id:
        fields.insert(0, _field("Original-Envelope-Id", printable_ascii(envelope_id, MAX_ENVELOPE_ID)))
    fields.append(_field("Arrival-Date", date(envelope.received)))
    for told in notice.tellings:
        fields.append("\r\n")
        fields.extend(_recipient(envelope, notice.action, told, now, international))
    return "".join(fields)


def _recipient(envelope: Envelope, action: Action, told: Telling, now: float, international: bool) -> list[str]:
    recipient = told.recipient
    fields = []
    original = original_recipient(recipient.original, international)
    if original:
        fields.append(_field("Original-Recipient", original))
    fields.append(_field("Final-Recipient", typed_address("rfc822", recipient.address, international)))
    fields.append(_field("Action", action.value))
    fields.append(_field("Status", told.status))
    if recipient.server:
        fields.append(_field("Remote-MTA", remote_mta(recipient.server)))
    if recipient.reply:
        fields.append(
            _field("Diagnostic-Code", diagnostic(recipient.reply, international, said=bool(recipient.server)))
        )
    if recipient.attempts and action in (Action.FAILED, Action.DELAYED):
        fields.append(_field("Last-Attempt-Date", date(now)))
    if action is Action.DELAYED:
        fields.append(_field("Will-Retry-Until", date(envelope.expires)))
    return fields


def _field(name: str, value: str) -> str:
    return folded(name, value.split(" "))
