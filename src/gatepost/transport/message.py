"""What is known of a message while the transport has it: envelope, and what became of each recipient (SPEC T2, T13).

These are the records that the spool keeps; they are encoded by msgspec, so a new field needs a default.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, StrEnum

import msgspec


class Notify(IntFlag):
    """When the sender wants to hear of a recipient (RFC 3461, section 4.1). Nothing set: failure and delay."""

    DEFAULT = 0
    NEVER = 1
    SUCCESS = 2
    FAILURE = 4
    DELAY = 8


class BodyType(StrEnum):
    """What `BODY=` said (RFC 6152, RFC 3030)."""

    SEVEN_BIT = "7BIT"
    EIGHT_BIT = "8BITMIME"
    BINARY = "BINARYMIME"


class RecipientState(IntEnum):
    """Where one recipient of a message stands."""

    WAITING = 0
    DELIVERED = 1
    """The next server has taken it over."""
    FAILED = 2
    """It will not be delivered; the sender has been told, or is not to be."""
    UNCERTAIN = 3
    """The message was sent to its end and no answer came: it may have been taken over. Tried again like `WAITING`, at
    the same server first."""
    DROPPED = 4
    """An operator took it away."""
    SHADOWED = 5
    """Another hub is responsible for it; this one keeps a shadow (`Envelope.shadows`) until that has delivered it."""


class Recipient(msgspec.Struct, gc=False):
    """One recipient. `address` is as the envelope had it, without brackets; `original` is ORCPT as it came."""

    address: str
    notify: int = 0
    """A `Notify`."""
    original: str = ""
    state: int = 0
    """A `RecipientState`."""
    attempts: int = 0
    reply: str = ""
    """The last answer of a server, or what kept the message from one: `450 4.2.0 …`."""
    server: str = ""
    """Who gave that answer: host name and address, or nothing."""
    delay_told: bool = False
    deliver_to: str = ""
    """The address by which the mailbox's server knows the recipient, where it is another; filled in for sending."""


class Source(msgspec.Struct, gc=False):
    """How a message came: for its `Received` field, its routing and its log line."""

    connector: str = ""
    address: str = ""
    """The client's IP address."""
    name: str = ""
    """What it called itself at EHLO, as it came."""
    protocol: str = "ESMTP"
    """SMTP, ESMTP, ESMTPS, ESMTPA, ESMTPSA, LMTP … (RFC 3848)."""
    user: str = ""
    """Who signed in."""
    tls: str = ""
    """Version and cipher, as `TLSv1.3 TLS_AES_256_GCM_SHA384`."""
    internal: bool = False
    """Whether a server of the organization sent it."""


class Shadow(msgspec.Struct, gc=False):
    """For some recipients of a message another hub, the primary, is responsible, and we keep the shadow (SPEC S1)."""

    primary: str
    """The hub's name in the organization."""
    identity: str
    """Its queue database's identity, as of when it became responsible."""
    token: str
    """What both call the copy: unique for ever; `[0-9a-f-]`, at most 64 characters."""
    places: list[int]
    """Where its recipients are in this envelope, in the order in which the copy counts them: the first primary's. They
    stay when recipients are settled."""
    since: float
    """When it became responsible, in seconds since 1970."""


class Watcher(msgspec.Struct, gc=False):
    """A hub that keeps a shadow of a message that we are responsible for; it hears when all recipients are settled."""

    server: str
    token: str
    places: list[int] = msgspec.field(default_factory=list)
    """As of `Shadow`; empty: the copy counts as this envelope does. It is another where a shadow was taken over."""


class Envelope(msgspec.Struct):
    """A message as the queue knows it. Times are seconds since 1970.

    `sender` is empty for reports (RFC 5321, section 4.5.5). `size` is the content's in bytes, with what was added here.
    """

    sender: str
    recipients: list[Recipient]
    received: float
    expires: float
    size: int = 0
    body: str = "7BIT"
    """A `BodyType`."""
    smtputf8: bool = False
    returns: str = ""
    """`RET`: FULL, HDRS or nothing (RFC 3461, section 4.3)."""
    envelope_id: str = ""
    """`ENVID`, as it came (xtext)."""
    require_tls: bool = False
    """REQUIRETLS (RFC 8689)."""
    source: Source = msgspec.field(default_factory=Source)
    message_id: str = ""
    """The `Message-ID` field, for logs and operators."""
    subject: str = ""
    suspended: bool = False
    """Frozen by an operator."""
    unchecked: bool = False
    """On disk, but not yet acknowledged: its content is being looked at. After a crash it is forgotten, for its sender
    still has it."""
    crashes: int = 0
    """How often the process died while it had this message in hand (poison messages)."""
    added: bytes = b""
    """Fields that are put before the content as it is sent: signatures, a content hook's (`headers.edits`)."""
    left_out: list[str] = msgspec.field(default_factory=list)
    """Names of fields, in lower case, that are left out of it then."""
    shadows: list[Shadow] = msgspec.field(default_factory=list)
    """Whom we keep shadows for; their recipients are `SHADOWED`, and every `SHADOWED` recipient is in exactly one."""
    watchers: list[Watcher] = msgspec.field(default_factory=list)
    """Who keeps shadows for us. One that may never have got the copy is listed as well."""
    unprotected: bool = False
    """Accepted though no shadow could be made: one is to be made later."""
    quiet: bool = False
    """Delivered once before (safety net): nobody is told of what becomes of it."""
    databases: list[str] = msgspec.field(default_factory=list)
    """Mailbox databases it has been delivered to, for the safety net."""
    delivered: float = 0.0
    """When the last of them took it, in seconds since 1970."""
