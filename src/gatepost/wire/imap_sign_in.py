"""Which command signs in at a mailbox server, and what it is followed by."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from gatepost.wire import sasl
from gatepost.wire.events import BackSignIn
from gatepost.wire.imap_syntax import has_capability, is_quotable, quote

MAX_INITIAL_COMMAND = 512
"""A command line with an initial response; longer ones take the challenge form (field case 53)."""
MAX_LOGIN_COMMAND = 1000
"""A LOGIN line; longer ones go by AUTHENTICATE (RFC 2683 section 3.2.1.5 keeps lines below 1000 bytes)."""

_TAG_AND_END = 10
"""Bytes around a command: our tag, a space, CRLF."""
_DISMISSALS = {"XOAUTH2": b"", "OAUTHBEARER": base64.b64encode(b"\x01")}
"""The line owed after a refused token's challenge (RFC 7628 section 3.2.3)."""


class CannotSignIn(ValueError):
    """No command can say these credentials to this server."""


@dataclass(frozen=True, slots=True)
class SignInCommand:
    """`command` has no tag. `response` is owed to the first continuation, `dismissal` to one that refuses a token.

    Where the sign-in has a dialogue, that says what continuations are owed.
    """

    command: bytes = field(repr=False)
    response: bytes | None = field(default=None, repr=False)
    dismissal: bytes | None = None

    @property
    def is_one_line(self) -> bool:
        """Whether no continuation can come, so that further commands may be sent behind it."""
        return self.response is None and self.dismissal is None


def sign_in_command(wanted: BackSignIn, capabilities: bytes | None) -> SignInCommand:
    """The command for these credentials; `capabilities` is what the server said before, if anything.

    LOGIN where it can say them in a plain line, else AUTHENTICATE; with the response in it (RFC 4959) where the server
    is known to take that and the line stays short. Raises `CannotSignIn`.
    """
    words = wanted.user + wanted.password + wanted.authorization_id + wanted.token
    if "\0" in words or "\r" in words or "\n" in words:
        raise CannotSignIn("a control character in the credentials")
    if wanted.dialogue is not None:
        return SignInCommand(b"AUTHENTICATE %s" % wanted.mechanism.encode(), response=b"")
    disabled = has_capability(capabilities, b"LOGINDISABLED")
    command = None if disabled else _login(wanted)
    if command is not None:
        return SignInCommand(command)
    mechanism = "PLAIN" if wanted.mechanism == "LOGIN" else wanted.mechanism
    if disabled and not has_capability(capabilities, b"AUTH=" + mechanism.encode()):
        raise CannotSignIn("the server takes no sign-in without TLS")
    response = _response(mechanism, wanted)
    command = b"AUTHENTICATE %s" % mechanism.encode()
    dismissal = _DISMISSALS.get(mechanism)
    whole = b"%s %s" % (command, response)
    if len(whole) + _TAG_AND_END <= MAX_INITIAL_COMMAND and has_capability(capabilities, b"SASL-IR"):
        return SignInCommand(whole, dismissal=dismissal)
    return SignInCommand(command, response, dismissal)


def _login(wanted: BackSignIn) -> bytes | None:
    if wanted.mechanism != "LOGIN" or wanted.authorization_id:
        return None
    if not (is_quotable(wanted.user) and is_quotable(wanted.password)):
        return None
    command = b"LOGIN %s %s" % (quote(wanted.user), quote(wanted.password))
    return command if len(command) + _TAG_AND_END <= MAX_LOGIN_COMMAND else None


def _response(mechanism: str, wanted: BackSignIn) -> bytes:
    if mechanism in _DISMISSALS:
        return base64.b64encode(sasl.bearer_message(mechanism, wanted.user, wanted.token))
    return base64.b64encode(sasl.plain_message(wanted.user, wanted.password, wanted.authorization_id))


def secrets(wanted: BackSignIn) -> tuple[bytes, ...]:
    """Every form in which the secret is sent: none of them may be seen in a log."""
    secret = (wanted.token or wanted.password).encode("utf-8", "replace")
    if not secret:
        return ()
    escaped = secret.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    mechanism = "PLAIN" if wanted.mechanism == "LOGIN" else wanted.mechanism
    return (secret, escaped, base64.b64encode(secret), _response(mechanism, wanted))
