"""Who a request is from, once that is known, and how it became known."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from gatepost.directory.port import User


class Way(Enum):
    """How the user was recognised; the word of log lines."""

    BASIC = "basic"
    BY_APP = "app password"
    """By Basic credentials with an app password, which no server knows."""
    BEARER = "bearer"
    """By a token (RFC 6750)."""
    NEGOTIATE = "negotiate"
    """By a Kerberos ticket (RFC 4559)."""
    CERTIFICATE = "certificate"
    """By the certificate that the client showed to TLS."""
    FORMS = "forms"
    """By the sealed cookie of the sign-in page (SPEC B6)."""
    PEER = "peer"
    """By the assertion of another front end (SPEC C11)."""


@dataclass(eq=False, slots=True)  # not frozen, which would make it three times as dear to build
class Identity:
    """A signed-in user; only compared by `is`, and never changed but for `line`, which is worked out once.

    `password` is empty where it does not travel: a cookie without one, an assertion, an app password.
    """

    user: User
    way: Way
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """The user's own, where they came with one."""
    audiences: tuple[str, ...] = ()
    """Whom it is meant for."""
    via: tuple[str, ...] = ()
    """Front ends that the request has passed already."""
    line: bytes = field(default=b"", repr=False)
    """By which the destination `line_for` learns who the user is."""
    line_for: object = None
    app_password: int = 0
    """The number of the app password that was shown; 0: none."""
