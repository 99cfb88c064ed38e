"""What the client machine of SMTP and LMTP says to whoever drives it, beside `Send` and `StartTls` of all machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from gatepost.wire.events import Send, StartTls
from gatepost.wire.shadow_words import ShadowHub
from gatepost.wire.smtp_reply import Reply


class Step(Enum):
    """What the client waits for; each has its time."""

    GREETING = "greeting"
    HELLO = "EHLO"
    STARTTLS = "STARTTLS"
    HANDSHAKE = "TLS"
    AUTHENTICATION = "AUTH"
    IDLE = "between messages"
    MAIL = "MAIL"
    RECIPIENT = "RCPT"
    DATA = "DATA"
    CONTENT = "content"
    """Nothing from the server: the content is being sent."""
    CHUNK = "BDAT"
    END = "end of content"
    EMPTY_END = "end of no content"
    RESET = "RSET"
    QUIT = "QUIT"
    CHANNEL = "XSHADOW"
    OVER = "over"


class SessionFault(Enum):
    """What ended a session, or kept it from beginning. None says anything of a message (field cases 42 and 44)."""

    CONNECT = "connect"
    """No connection: a socket error, or no answer in time. The only one that says that a server is down (SPEC T5)."""
    REFUSED = "refused"
    """A greeting, or an answer to EHLO, that is no welcome."""
    BUSY = "busy"
    """421, at whatever step: the server closes."""
    TLS = "TLS"
    """Not offered where it is required, refused, or its handshake failed."""
    AUTHENTICATION = "authentication"
    PROTOCOL = "protocol"
    """Bytes that are no reply, or one that does not fit its command, or one that nobody asked for."""
    LOST = "lost"
    """The connection ended."""
    TIMEOUT = "timeout"


class Fate(Enum):
    """What became of one recipient in one transaction."""

    TAKEN = "taken"
    """The server has taken the message over for this recipient."""
    REFUSED = "refused"
    """5yz: it will not."""
    LATER = "later"
    """4yz, or the session ended first: it has not, now."""
    AGAIN = "again"
    """Too many recipients for one transaction: in the next one of this session."""
    UNCERTAIN = "uncertain"
    """The content was sent to its end, and there is no answer: it may have been taken over (RFC 1047)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One recipient's fate, and the reply that decided it; None where the session's end did."""

    fate: Fate
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The session stands: `transact` may be called."""


@dataclass(frozen=True, slots=True)
class SendContent:
    """Send the content now, or its next chunk: `content_end` or `chunk`."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The session is of no more use; close the connection. `text` is for logs, clean and without secrets."""

    fault: SessionFault
    text: str
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The transaction is over: a verdict for each recipient in their order. Without `broken` another may follow."""

    verdicts: list[Verdict]
    broken: Broken | None = None


@dataclass(frozen=True, slots=True)
class ChannelOpen:
    """The session is a shadow channel with this hub: nothing more is said here, frames follow."""

    hub: ShadowHub


@dataclass(frozen=True, slots=True)
class Closed:
    """QUIT is answered: close the connection."""


ClientEvent = Send | StartTls | Ready | SendContent | Broken | Finished | Closed | ChannelOpen


class TlsUse(Enum):
    """Whether STARTTLS is said."""

    NEVER = "never"
    IF_OFFERED = "if offered"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a session is opened. `name` is said at EHLO: a host name or an address literal."""

    name: str
    lmtp: bool = False
    starttls: TlsUse = TlsUse.IF_OFFERED
    secured: bool = False
    """TLS is there from the first byte."""
    user: str = ""
    """For AUTH, which is said within TLS only; empty: there is none."""
    password: str = field(default="", repr=False)
