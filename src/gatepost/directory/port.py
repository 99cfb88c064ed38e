"""The directory's port: what the front ends ask, whatever engine answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol as Port

from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import Mailbox
from gatepost.wire.events import TokenHelp

BY_DIRECTORY = "{DIRECTORY}"
"""What `User.password_hash` begins with where the directory judges. What follows changes with the password; nothing
follows where the directory does not tell of that."""


class DirectoryUnavailable(ConnectionError):
    """The directory did not answer. A temporary fault: clients are never told that a password is wrong."""


class DirectoryBusy(DirectoryUnavailable):
    """The directory has more questions than it can answer in time. It answers others; this one may come back."""


class NotAsked(DirectoryUnavailable):
    """What is known here does not say; the directory is being asked. `Directory.ask(name)` waits for its answer."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the directory is being asked for {name}")
        self.name = name


class TokenVerifierUnavailable(ConnectionError):
    """The token verifier did not answer. A temporary fault."""


@dataclass(frozen=True, slots=True)
class User:
    """One user. `name` is the canonical login name; `login_at_server` is the name used at mailbox servers."""

    name: str
    mailbox: Mailbox
    password_hash: str = field(default="", repr=False)
    """Argon2id in PHC string form, or another scheme that an engine lets through (`directory.schemes`). Empty: no
    password opens this account. With `BY_DIRECTORY` at its beginning the directory judges passwords itself."""
    protocols: frozenset[Protocol] = frozenset(CLIENT_PROTOCOLS)
    disabled: bool = False
    login_at_server: str = ""
    """Empty: the canonical name."""
    send_as: tuple[str, ...] = ()
    """Who else the user may send mail as: canonical addresses, each of which stands for all of its mailbox, and domains
    as `@contoso.com`."""
    directory: str = field(default="", compare=False)
    """Which of several directories has told of the user."""
    reference: str = field(default="", repr=False, compare=False)
    """What that directory knows the user by (LDAP: the distinguished name)."""
    groups: frozenset[str] = frozenset()
    """Groups that the sign-in policy may speak of, in lower case."""

    @property
    def judged_by_directory(self) -> bool:
        """Whether `Directory.opens` judges the user's passwords."""
        return self.password_hash.startswith(BY_DIRECTORY)

    @property
    def tells_of_password(self) -> bool:
        """Whether another password shows in `password_hash`, so that what was right before can be told to be void."""
        return self.password_hash != BY_DIRECTORY

    @property
    def server_login(self) -> str:
        """The name to use at the mailbox server."""
        return self.login_at_server or self.name


class Engine(Port):
    """A directory elsewhere, as its engine asks it: every call is a question, nothing is kept. Bounded in time."""

    async def find(self, canonical_name: str) -> User | None:
        """The user who has this name, address or alias. Raises `DirectoryUnavailable`."""
        ...

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        """Whether one of `tries` is the password of `user`, who came from `find`. Raises `DirectoryUnavailable`."""
        ...

    def on_invalid(self, callback: Callable[[str], None]) -> None:
        """Have `callback` called on the event loop when the engine is told of a change.

        It gets a name or a `User.reference`; empty for anything.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...


class Directory(Port):
    """Look-ups, with what is remembered of them."""

    def find(self, canonical_name: str) -> User | None:
        """The user who has this name, address or alias, as far as that is known here: answers at once.

        Raises `DirectoryUnavailable`; as `NotAsked` where the directory is elsewhere and is only now being asked.
        """
        ...

    async def ask(self, canonical_name: str) -> User | None:
        """As `find`, and waits for a directory that is elsewhere. Raises `DirectoryUnavailable`, never `NotAsked`."""
        ...

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        """Whether one of `tries` is the password of `user`, whom this directory judges (`judged_by_directory`).

        Raises `DirectoryUnavailable`.
        """
        ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called on the event loop after any change of the directory that is noticed."""
        ...


class OwnedDirectory(Directory, Port):
    """A directory with its life: who opens it closes it."""

    @property
    def available(self) -> bool:
        """Whether it answered when it was asked last."""
        ...

    @property
    def known_seconds(self) -> float:
        """How long an answer may be taken from memory elsewhere; infinite where every change is told at once."""
        ...

    def start(self) -> None:
        """Begin to notice changes. Faults are logged, not raised: it may come."""
        ...

    def close(self) -> None:
        """Let go of files and connections. Nothing is asked afterwards."""
        ...

    async def wait_closed(self) -> None:
        """Until everything is let go of, after `close`."""
        ...


@dataclass(frozen=True, slots=True)
class JudgedToken:
    """What was found of a bearer token. Without an `owner` it is not good, for `reason`."""

    owner: str = ""
    """The canonical login name that it speaks for."""
    reason: str = ""
    until: float | None = None
    """Until when it is good, as `time.time` has it; None: it does not say."""
    known_until: float | None = None
    """Until when this judgement may be taken from memory, as `time.time` has it; None: as long as the token is good."""
    audiences: tuple[str, ...] = ()
    lacks: str = ""
    """Scopes that the protocol needs and the token has not."""


class TokenVerifier(Port):
    """Judges bearer tokens (OAUTHBEARER, RFC 7628; XOAUTH2; HTTP Bearer, RFC 6750)."""

    async def verify(self, token: str, protocol: Protocol) -> JudgedToken:
        """What is found of the token, for use with `protocol`. Raises `TokenVerifierUnavailable`."""
        ...

    def help(self, protocol: Protocol) -> TokenHelp:
        """What clients are told of whom to get a token from."""
        ...

    def close(self) -> None:
        """Let go of connections. Nothing is asked afterwards."""
        ...


class Verdict(Enum):
    """What came of checking credentials."""

    SIGNED_IN = "signed in"
    WRONG_CREDENTIALS = "wrong credentials"
    """Unknown user, wrong password or disabled user: the client cannot tell which (field case 71)."""
    PROTOCOL_NOT_ALLOWED = "protocol not allowed"
    UNAVAILABLE = "unavailable"
    BUSY = "busy"
    """Too many password checks waiting; temporary."""


@dataclass(frozen=True, slots=True)
class SignInResult:
    """A verdict with the user, where there is one, and a reason for the log (never shown to the client)."""

    verdict: Verdict
    user: User | None = None
    reason: str = ""
    proof: bytes = field(default=b"", repr=False, compare=False)
    """What a right password is remembered by (`SignInService.still_right`); empty where none was judged right."""
    asking: bool = field(default=False, compare=False)
    """`UNAVAILABLE` only because the directory is being asked: `SignInService.learn` waits for it."""
    app_password: int = field(default=0, compare=False)
    """The number of the app password that opened; 0: it was none. A mailbox server knows no app passwords."""
    audiences: tuple[str, ...] = field(default=(), compare=False)
    """Whom a bearer token that was found good is meant for."""
    lacks: str = field(default="", compare=False)
    """`PROTOCOL_NOT_ALLOWED` because the token has not these scopes: another token of the same user may have them."""
