"""What the server's side of SMTP says to who drives it, and whom it asks.

Events are those of the sign-in machines (`Send`, `StartTls`, `SignIn`, `GssToken`, `Close`) and these. After `Store`,
`SignIn`, `GssToken`, `StartTls`, `Wait`, `LookUp`, `Impersonate` and `OpenChannel` the session is parked: what comes in
is only kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gatepost.wire.events import Close, GssToken, Send, SignIn, StartTls
from gatepost.wire.shadow_words import ShadowHub
from gatepost.wire.smtp_command import MailCommand, RcptCommand
from gatepost.wire.smtp_reply import Reply


@dataclass(frozen=True, slots=True)
class Store:
    """The content has come to its end and may be taken: store it and call `stored(reply)`."""

    size: int
    """Octets of content."""
    eight_bit: bool = False
    """It goes beyond ASCII, whatever BODY said."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Say nothing for so many seconds, then call `waited()` (tarpit)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LookUp:
    """The sender or recipient must be asked for elsewhere (`Asking`): when that was done call `looked_up()`."""

    name: str
    """What to ask for, as the judge said it."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What to say of a sender or recipient is not known here; `name` must be asked for, then it is judged again."""

    name: str


@dataclass(frozen=True, slots=True)
class ClientClaim:
    """Who the client is, as a listed peer says by XCLIENT. Empty or 0: nothing was said of it."""

    address: str = ""
    port: int = 0
    name: str = ""
    """The client's host name."""
    helo: str = ""
    """What it called itself at EHLO."""
    login: str = ""
    """The user who has signed in at the peer."""


@dataclass(frozen=True, slots=True)
class Impersonate:
    """Begin a new session for this client, greeting included; this one is over. `rest` is what followed."""

    claim: ClientClaim
    rest: bytes = b""


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """The session is a shadow channel from here on: this is over, frames follow. `hub` is the client, authenticated;
    `rest` is what has come of the channel already."""

    hub: ShadowHub
    rest: bytes = b""


ServerEvent = Send | StartTls | SignIn | GssToken | Close | Store | Wait | LookUp | Impersonate | OpenChannel


class Judge(Protocol):
    """Whom a session asks; all answer at once. A reply refuses, None lets pass."""

    def mail(self, command: MailCommand) -> Reply | Asking | None:
        """Called at MAIL, once more after each `Asking`; if it passes a message has begun."""

    def mail_wait(self) -> float:
        """Seconds before the answer to MAIL (back pressure)."""

    def is_ours(self, address: str) -> bool:
        """Whether the recipient is one of the organization, so that everybody may send to it."""

    def recipient(self, command: RcptCommand) -> Reply | Asking | None:
        """Called at each RCPT that permissions and limits let through; once more after each `Asking`."""

    def content_begins(self) -> Reply | None:
        """Called at DATA or the first BDAT."""

    def content(self, data: bytes) -> None:
        """Content, dots unstuffed, every line with CR LF."""

    def forget(self) -> None:
        """The message that has begun, if any, is given up."""
