"""What is said for one message to one server: commands, form of the content, and who cannot be served at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from gatepost.transport.message import BodyType, Envelope, Notify, Recipient
from gatepost.wire.smtp_client_command import Unsendable, mail_command, recipient_command
from gatepost.wire.smtp_client_extensions import Extensions
from gatepost.wire.smtp_command import encode_xtext
from gatepost.wire.smtp_reply import Reply

_NOTIFY = tuple(
    tuple(word.name or "" for word in (Notify.NEVER, Notify.SUCCESS, Notify.FAILURE, Notify.DELAY) if word & number)
    for number in range(16)
)
"""The words of NOTIFY for each number that `Recipient.notify` may be."""
_HEADER_END = b"\r\n\r\n"


@dataclass(slots=True)
class Plan:
    """Commands for those that can be served, refusals of ours for the others; `recipients` have a command each."""

    mail: bytes = b""
    commands: list[bytes] = field(default_factory=list)
    recipients: list[Recipient] = field(default_factory=list)
    refused: list[tuple[Recipient, Reply]] = field(default_factory=list)
    token: str = ""
    """What the server is told to call it as its primary; empty: nothing."""
    chunked: bool = False
    """Content goes by BDAT, as it is."""
    convert: bool = False
    """The server takes seven bits only: parts of the content are encoded on the way."""


def make_plan(
    envelope: Envelope,
    recipients: list[Recipient],
    extensions: Extensions,
    head: bytes,
    size: int,
    *,
    whole: bool,
    verified: bool,
    token: str = "",
) -> Plan:
    """The plan for a server with these `extensions`.

    `head` is the beginning of the content, all of it if `whole`; `size` is that of all of it as it leaves, in octets;
    `verified`: TLS is there and says who the server is; `token`: for its shadow, where the server is offered one.
    """
    plan = Plan(token=token)
    if refusal := _message_refusal(envelope, extensions, size, verified=verified):
        plan.refused = [(recipient, refusal) for recipient in recipients]
        return plan
    utf8 = False
    if not _all_ascii(envelope, recipients) or (envelope.smtputf8 and not _header(head).isascii()):
        utf8 = extensions.utf8
        if not utf8 and envelope.smtputf8 and not _header(head).isascii():
            reply = Reply(554, "the next server does not take header fields beyond ASCII (SMTPUTF8)", "5.6.9")
            plan.refused = [(recipient, reply) for recipient in recipients]
            return plan
    body = _body(plan, envelope, extensions, head, whole=whole)
    try:
        plan.mail = mail_command(
            envelope.sender,
            extensions,
            size=0 if plan.convert else size,
            body=body,
            utf8=utf8,
            returns=envelope.returns,
            envelope_id=envelope.envelope_id,
            require_tls=envelope.require_tls,
            shadow=token,
        )
    except Unsendable as error:
        reply = Reply(553, f"sender: {error}", error.enhanced)
        plan.refused = [(recipient, reply) for recipient in recipients]
        return plan
    for recipient in recipients:
        try:
            command = recipient_command(
                recipient.deliver_to or recipient.address,
                extensions,
                utf8=utf8,
                notify=_NOTIFY[recipient.notify & 15],
                original=recipient.original or _original(recipient),
            )
        except Unsendable as error:
            plan.refused.append((recipient, Reply(553, str(error), error.enhanced)))
        else:
            plan.commands.append(command)
            plan.recipients.append(recipient)
    return plan


def _message_refusal(envelope: Envelope, extensions: Extensions, size: int, *, verified: bool) -> Reply | None:
    """Why this server can have the message for nobody (field cases 19 and 23)."""
    if extensions.max_size and size > extensions.max_size:
        return Reply(552, f"the next server takes no more than {extensions.max_size} octets", "5.3.4")
    if envelope.require_tls and not (verified and extensions.require_tls):
        return Reply(550, "the next server does not promise TLS on all of the way (REQUIRETLS)", "5.7.30")
    return None


def _body(plan: Plan, envelope: Envelope, extensions: Extensions, head: bytes, *, whole: bool) -> str:
    """The BODY parameter; `plan` says how the content goes."""
    if envelope.body == BodyType.BINARY:
        plan.chunked = extensions.binary
        plan.convert = not extensions.binary
        return "BINARYMIME" if extensions.binary else ""
    # What the sender said is one thing, what the content is another: many send eight bits and say nothing.
    ascii_only = head.isascii()
    if ascii_only and (whole or envelope.body != BodyType.EIGHT_BIT):
        return ""
    plan.convert = not extensions.eight_bit
    return "8BITMIME" if extensions.eight_bit else ""


def _all_ascii(envelope: Envelope, recipients: list[Recipient]) -> bool:
    return envelope.sender.isascii() and all(
        (recipient.deliver_to or recipient.address).isascii() for recipient in recipients
    )


def _original(recipient: Recipient) -> str:
    """Where the server knows the recipient by another address: ORCPT, so that its reports name the sender's."""
    if recipient.deliver_to and recipient.address.isascii():
        return f"rfc822;{encode_xtext(recipient.address)}"
    return ""


def _header(head: bytes) -> bytes:
    """The header section, as far as it is in the beginning of the content."""
    return head.partition(_HEADER_END)[0]
