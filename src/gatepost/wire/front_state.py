"""Where a front machine stands, whatever its protocol: the states that POP3 and submission go through."""

from __future__ import annotations

from enum import Enum, auto


class FrontState(Enum):
    """From the first command to the hand-over."""

    COMMAND = auto()
    SASL = auto()
    BEARER_ERROR = auto()
    STARTING_TLS = auto()
    PARKED = auto()
    SIGNED_IN = auto()
    CLOSED = auto()


class ImapState(Enum):
    """The same for IMAP."""

    COMMAND = auto()
    SASL = auto()
    DISMISSED = auto()
    """A bearer token was refused by a challenge; the client owes one line before its tagged answer."""
    PARKED = auto()
    TLS = auto()
    SIGNED_IN = auto()
    """What comes is only kept, for `rest`."""
    CLOSED = auto()


READING = (FrontState.COMMAND, FrontState.SASL, FrontState.BEARER_ERROR)
"""States in which the client's lines are read."""
