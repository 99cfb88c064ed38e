"""What every content hook is asked and answers. Answers are bounded, and made safe before they get into a message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from gatepost.transport.headers import kinds
from gatepost.transport.headers.words import encoded, folded, printable, printable_ascii
from gatepost.transport.message import Envelope
from gatepost.wire.smtp_reply import Reply

MAX_FIELDS = 32
MAX_FIELD = 2000
"""Characters of the value of a field that a hook adds."""
MAX_TEXT = 200
"""Characters of a hook's words to the client."""
MAX_ANSWER = 256 * 1024
"""Octets of a hook's whole answer."""


class HookAction(Enum):
    """What is to become of a message."""

    ACCEPT = "accept"
    DEFER = "defer"
    REJECT = "reject"


class OnFailure(StrEnum):
    """What becomes of a message when the hook cannot be asked."""

    ACCEPT = "accept"
    """Taken as it is."""
    DEFER = "defer"
    """Refused for the moment: 451 4.7.1."""


class HookFault(Exception):
    """The hook could not be asked, or did not answer as it should. The text is for the log."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a hook is told of a message beside its content. `size` is the content's in octets, where it is known."""

    queue_id: str
    envelope: Envelope
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A hook's answer. `reply` is for the client, when the message is not taken.

    Fields in `before` are put in front of the content, those named in `without` (lower case) left out of it:
    see `headers.edits`.
    """

    action: HookAction
    reply: Reply | None = None
    before: bytes = b""
    without: frozenset[bytes] = frozenset()
    asked: bool = True
    """False: it could not be asked; `note` says why."""
    note: str = ""
    """For the log."""


class ContentHook(Protocol):
    """Something that judges messages."""

    async def check(self, question: Question, chunks: AsyncIterator[bytes]) -> Verdict:
        """Judge one message, within a time. Never raises for a fault of the hook; raises what `chunks` raises."""

    async def close(self) -> None:
        """Let connections and processes go."""


def rejected(text: str, note: str = "") -> Verdict:
    """Refused for good, with the hook's own words or ours."""
    words = printable_ascii(text, MAX_TEXT) or "Message refused by content policy"
    return Verdict(HookAction.REJECT, Reply(550, words, "5.7.1"), note=note)


def deferred(text: str, note: str = "") -> Verdict:
    """Refused for the moment."""
    words = printable_ascii(text, MAX_TEXT) or "Try again later"
    return Verdict(HookAction.DEFER, Reply(451, words, "4.7.1"), note=note)


def not_asked(on_failure: OnFailure, why: str) -> Verdict:
    """The verdict where the hook could not be asked. A fault of it never refuses a message for good."""
    note = printable(why, MAX_TEXT)
    if on_failure is OnFailure.ACCEPT:
        return Verdict(HookAction.ACCEPT, asked=False, note=note)
    reply = Reply(451, "The message cannot be examined at the moment, try again later", "4.7.1")
    return Verdict(HookAction.DEFER, reply, asked=False, note=note)


def safe_fields(fields: Iterable[tuple[str, str]]) -> bytes:
    """Fields of a hook as they are written into a header: at most `MAX_FIELDS`, names checked, values on safe lines."""
    written: list[str] = []
    for name, value in fields:
        if len(written) == MAX_FIELDS:
            break
        if safe_name(name):
            written.append(folded(name, encoded(printable(value, MAX_FIELD))))
    return "".join(written).encode()


def safe_name(name: str) -> bytes:
    """The name of a field in lower case; empty when it is none."""
    octets = name.encode("utf-8", "replace")
    return b"" if kinds.kind(octets) == kinds.INVALID else octets.lower()
