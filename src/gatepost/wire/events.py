"""What sign-in machines say: events for whoever drives them.

Two kinds of machine speak these. A *front* machine holds the dialogue with the client before the hand-over, a
*back* machine holds the one with the mailbox server. Both take bytes and return events; neither does I/O. For every
way to split the input the concatenated output and the sequence of the other events are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol as Port


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StartTls:
    """Start TLS now, after everything sent so far. Bytes that came before the handshake are dropped (field case 79).

    The driver calls `tls_started()` when the handshake is done.
    """


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client signed in with. `authorization_id` is empty when it is the authentication identity itself."""

    mechanism: str
    """`LOGIN` (IMAP LOGIN, POP3 USER/PASS, SASL LOGIN), `PLAIN`, `XOAUTH2`, `OAUTHBEARER`, `GSSAPI`, or another that is
    led elsewhere (`sasl.LED_ELSEWHERE`)."""
    authentication_id: str
    authorization_id: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    audiences: tuple[str, ...] = ()
    """Whom the token is meant for, once it was found good."""


@dataclass(frozen=True, slots=True)
class TokenHelp:
    """Where clients get a token from: what a server tells of that when it refuses one (RFC 7628 section 3.2.2)."""

    scope: str = ""
    openid_configuration: str = ""


NO_HELP = TokenHelp()


@dataclass(frozen=True, slots=True)
class SignIn:
    """Check these credentials. The machine is parked until `signed_in` or `refuse` is called."""

    credentials: Credentials


@dataclass(frozen=True, slots=True)
class GssToken:
    """Judge this token of SASL GSSAPI (RFC 4752), or this message of another mechanism that is led elsewhere.

    The machine is parked until `challenge`, `signed_in` or `refuse`. `first`: an exchange begins; one that was under
    way is over, since the client gave it up.
    """

    token: bytes = field(repr=False)
    first: bool
    mechanism: str = "GSSAPI"


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection after everything sent so far. `reason` is for the log, in a few words."""

    reason: str


FrontEvent = Send | StartTls | SignIn | GssToken | Close


class Refusal(Enum):
    """Why a sign-in is refused; each protocol has its own words for it."""

    WRONG_CREDENTIALS = "wrong credentials"
    UNAVAILABLE = "unavailable"
    """A temporary fault: IMAP `NO [UNAVAILABLE]`, POP3 `-ERR [SYS/TEMP]`, SMTP `454`. Never looks like a wrong
    password."""
    BUSY = "busy"
    """The credentials were not judged: too many checks wait. Told like `UNAVAILABLE`, and counted as an attempt."""
    PROTOCOL_NOT_ALLOWED = "protocol not allowed"
    INSUFFICIENT_SCOPE = "insufficient scope"
    """A token of the right user that is not for this protocol; another one may be (RFC 7628 section 3.2.2)."""
    OTHER_SERVER = "other server"
    """This user must use another server, which the text names (SPEC C9)."""
    IN_USE = "in use"
    """The mailbox is locked by another session: POP3 `[IN-USE]` (RFC 2449), IMAP `[INUSE]` (RFC 5530)."""
    LIMIT = "limit"
    """Too many sessions: IMAP `[LIMIT]` (RFC 5530), POP3 `[SYS/TEMP]`."""


class FailureKind(Enum):
    """What went wrong at the mailbox server."""

    REFUSED = "refused"
    """It refused our sign-in. The credentials were judged before: a fault between servers (field case 76)."""
    IN_USE = "in use"
    LIMIT = "limit"
    UNAVAILABLE = "unavailable"
    """It said that it cannot serve now (`BYE`, `[UNAVAILABLE]`, `[SYS/TEMP]`)."""
    NOT_MINE = "not mine"
    """It has not the user's database, or not any more (`wire.fencing`)."""
    PROTOCOL = "protocol"
    """It broke the protocol or a bound of ours; also: TLS required but not offered, PREAUTH."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The mailbox server let the user in.

    `text` is the human text of its answer, `capabilities` its own list after the sign-in when it is known (IMAP).
    `untagged` are whole lines the client must see before the answer to its sign-in: an IMAP server's alerts (RFC 9051
    section 7.1), rebuilt and bounded. `rest` are bytes that came after its answer and belong to the client.
    """

    text: bytes
    capabilities: bytes | None = None
    rest: bytes = b""
    untagged: bytes = b""


@dataclass(frozen=True, slots=True)
class Failed:
    """The sign-in at the mailbox server failed. `text`, cleaned and bounded, is for the log, `kind` for the client."""

    kind: FailureKind
    text: str


BackEvent = Send | StartTls | SignedIn | Failed


FIRST_TTL = 5
"""Proxies that one session may pass, as Dovecot counts: where nobody has said how many are left it is these."""


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What a mailbox server may be told of the client's connection. Addresses are text without brackets."""

    address: str
    port: int
    local_address: str = ""
    local_port: int = 0
    tls: bool = False
    session: str = ""
    """The session id of our log; travels where the protocol has a place for it."""
    ttl: int = FIRST_TTL - 1
    """Proxies that may still hand the session on."""
    database: str = ""
    """The database that the session is for, where the server is to know (`wire.fencing`); empty: it is not."""
    epoch: int = 0


class BadChallenge(ValueError):
    """The server's challenge does not fit: it is not who it should be, or offers nothing that is taken."""


class SaslDialogue(Port):
    """The client's side of one exchange of a SASL mechanism whose responses follow from the server's challenges."""

    @property
    def complete(self) -> bool:
        """Whether all has been said, and the server has proved who it is: only then it may say that we are in."""
        ...

    def respond(self, challenge: bytes) -> bytes:
        """The response to a challenge; the first one is empty. Bounded in rounds. Raises `BadChallenge`."""
        ...


@dataclass(frozen=True, slots=True)
class BackSignIn:
    """How a back machine signs in. Made from the server's `SignIn` and the user's credentials.

    `mechanism` is `LOGIN` (user name and password, by whatever command fits), `PLAIN` (SASL with `authorization_id`),
    `XOAUTH2` or `OAUTHBEARER` (`token`), or `GSSAPI` (`dialogue`).
    """

    mechanism: str
    user: str
    password: str = field(default="", repr=False)
    authorization_id: str = ""
    token: str = field(default="", repr=False)
    starttls: bool = False
    """TLS is required and must be started by command first."""
    pipelined: bool = False
    client: ClientFacts | None = None
    """Sent by `ID` or `XCLIENT` when set; None where PROXY or nothing is used."""
    ttl: int | None = None
    """For another front end: the `ttl` that is sent where `client` is None, so that a loop of front ends ends (C11)."""
    client_id: tuple[tuple[str, str], ...] = ()
    """The client's own IMAP ID fields, forwarded after the sign-in (field case 42)."""
    utf8: bool = False
    """POP3: the client was promised UTF8 (RFC 6856), so the server must be asked for it before the sign-in."""
    helo: str = ""
    """Submission: the name that the client gave at EHLO."""
    login: str = ""
    """Submission: the server is told by XCLIENT that this user has signed in, and no AUTH follows."""
    extensions: tuple[str, ...] = ()
    """Submission: what the client was promised at its EHLO, in upper case; the server must have all of it."""
    dialogue: SaslDialogue | None = field(default=None, repr=False, compare=False)
    """What answers the server's challenges; serves one sign-in."""
