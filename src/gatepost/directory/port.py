"""The directory's port: what the front ends ask, whatever engine answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol as Port

from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import Mailbox


class DirectoryUnavailable(ConnectionError):
    """The directory did not answer. A temporary fault: clients are never told that a password is wrong."""


class TokenVerifierUnavailable(ConnectionError):
    """The token verifier did not answer. A temporary fault."""


@dataclass(frozen=True, slots=True)
class User:
    """One user. `name` is the canonical login name; `login_at_server` is the name used at mailbox servers."""

    name: str
    mailbox: Mailbox
    password_hash: str = field(default="", repr=False)
    """Argon2id in PHC string form; empty: no password opens this account."""
    protocols: frozenset[Protocol] = frozenset(CLIENT_PROTOCOLS)
    disabled: bool = False
    login_at_server: str = ""
    """Empty: the canonical name."""
    send_as: tuple[str, ...] = ()
    """Who else the user may send mail as: canonical addresses, each of which stands for all of its mailbox, and domains
    as `@contoso.com`."""

    @property
    def server_login(self) -> str:
        """The name to use at the mailbox server."""
        return self.login_at_server or self.name


class Directory(Port):
    """Look-ups. `find` is called on the event loop and must answer at once (a local file) or from a cache."""

    def find(self, canonical_name: str) -> User | None:
        """The user who has this name, address or alias. Raises `DirectoryUnavailable`."""
        ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called on the event loop after any change of the directory."""
        ...


class TokenVerifier(Port):
    """Judges bearer tokens (OAUTHBEARER, RFC 7628; XOAUTH2)."""

    async def verify(self, user_name: str, token: str) -> str | None:
        """The canonical login name that the token speaks for, or None. Raises `TokenVerifierUnavailable`.

        `user_name` is what the client claims (may be empty); a verifier answers None when the token belongs to another.
        """
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
