"""Header work on the way in (SPEC T13): the header is found in the stream, read, put right, and passed on.

`HeaderFilter` is fed the content of a message as it comes and answers what is to be kept of it. It holds back the
header, at most `max_size` octets, and nothing of the body. However the content is cut, what comes out is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from gatepost.transport.headers import kinds
from gatepost.transport.headers.kinds import (
    BLIND,
    DATE,
    FENCED,
    FROM,
    INVALID,
    MESSAGE_ID,
    RECEIVED,
    RETURN_PATH,
    SUBJECT,
)
from gatepost.transport.headers.trace import date
from gatepost.transport.headers.words import decoded, printable
from gatepost.wire.smtp_reply import Reply

BLANKS = frozenset(b" \t")
MAX_MESSAGE_ID = 512
MAX_FROM = 2048
MAX_OWN_HOPS = 4
"""Times that a message may have passed this hub before: content filters and gateways send mail back once or twice."""

TOO_LARGE = Reply(552, "Header is too large", "5.3.4")
TOO_MANY_HOPS = Reply(554, "Too many hops: this message is going round in a loop", "5.4.6")
BARE_LINE_END = Reply(550, "Header lines must end in CR LF", "5.6.0")


@dataclass(frozen=True, slots=True)
class HeaderPolicy:
    """What the way a message came by says of its header."""

    max_size: int = 256 * 1024
    """Octets of the header as it came, its empty line not counted."""
    max_hops: int = 100
    token: bytes = b""
    """`trace_token` of this hub; empty: its own fields are not told from others'."""
    max_own_hops: int = MAX_OWN_HOPS
    submission: bool = False
    """From a mail program: `Message-ID` and `Date` are added where they are missing, `Bcc` is taken out (RFC 6409)."""
    trusted: bool = False
    """From a server of the organization: the header firewall is open."""
    resubmission: bool = False
    """A shadow's server sends what its primary had: that this hub had it before is no loop."""


@dataclass(slots=True)
class HeaderFacts:
    """What the header said. Texts are safe to print and bounded; `size` is that of the header as it came."""

    size: int = 0
    hops: int = 0
    """`Received` fields."""
    own_hops: int = 0
    """Those among them that this hub wrote."""
    message_id: str = ""
    """With its angle brackets; for a submission without one, the one it was given."""
    subject: str = ""
    from_field: bytes = b""
    """The value of the first `From`, for `author_domain`."""
    from_fields: int = 0
    has_date: bool = False
    has_message_id: bool = False
    is_ascii: bool = True
    removed: int = 0
    """Fields that were taken out."""


class HeaderFilter:
    """One message's header. `received` is put before it; `message_id` is what a submission without one gets.

    When `refusal` is set the message is not to be taken: `feed` and `finish` answer nothing from then on.
    """

    __slots__ = ("_held", "_message_id", "_now", "_policy", "_received", "_searched", "done", "facts", "refusal")

    def __init__(self, policy: HeaderPolicy, received: bytes, now: float, message_id: str = "") -> None:
        self._policy = policy
        self._received = received
        self._now = now
        self._message_id = message_id
        self._held = b""
        self._searched = 0
        self.facts = HeaderFacts()
        self.refusal: Reply | None = None
        self.done = False
        """The header's end has been seen."""

    def feed(self, data: bytes) -> bytes:
        """What is to be written for these bytes: nothing while the header is held back, the rest as it comes."""
        if self.done:
            return b"" if self.refusal else data
        held = self._held + data if self._held else data
        end = 0 if held.startswith(b"\r\n") else held.find(b"\r\n\r\n", self._searched, self._policy.max_size + 2)
        if end >= 0:
            return self._settle(held, end + 2 if end else 0)
        if len(held) >= self._policy.max_size + 2:
            return self._settle(held, -1)
        self._held = held
        self._searched = max(0, len(held) - 3)
        return b""

    def finish(self) -> bytes:
        """The content has ended: what is left to be written. A message without a body gets its empty line."""
        return b"" if self.done else self._settle(self._held, len(self._held))

    def _settle(self, held: bytes, end: int) -> bytes:
        """The header is `held` up to `end`, or up to a line before it that is none of a header.

        -1: it has not ended within the bound. Such a line begins the body (as in mail without any header).
        """
        self.done = True
        self._held = b""
        bound = self._policy.max_size
        whole = 0 <= end <= bound
        if whole:
            block = held[:end]
        else:
            cut = held.rfind(b"\r\n", 0, bound)
            block = held[: cut + 2] if cut >= 0 else b""
        kept, at = self._read(block)
        if self.refusal is None and at == len(block) and not whole:
            self.refusal = TOO_LARGE
        self.facts.size = at
        if self.refusal is not None:
            return b""
        rest = held[at:]
        if whole and at == end and rest.startswith(b"\r\n"):
            return b"".join((self._received, *self._added(), kept, rest))
        ended = kept.endswith(b"\r\n") or not kept
        return b"".join((self._received, *self._added(), kept, b"\r\n" if ended else b"\r\n\r\n", rest))

    def _added(self) -> list[bytes]:
        facts, fields = self.facts, []
        if self._policy.submission:
            if not facts.has_message_id and self._message_id:
                facts.message_id = self._message_id
                fields.append(f"Message-ID: {self._message_id}\r\n".encode())
            if not facts.has_date:
                fields.append(f"Date: {date(self._now)}\r\n".encode())
        return fields

    def _read(self, block: bytes) -> tuple[bytes, int]:
        """The fields that are kept, and how far the header goes. Sets facts and refusal."""
        facts, policy = self.facts, self._policy
        if block.count(b"\n") != block.count(b"\r\n") or block.count(b"\r") != block.count(b"\n"):
            self.refusal = BARE_LINE_END
            return b"", 0
        facts.is_ascii = block.isascii()
        lines = block.split(b"\r\n")
        if not lines[-1]:
            lines.pop()
        gone: list[tuple[int, int]] = []
        known = kinds.remembered
        noted: list[tuple[int, int]] = []
        last = len(lines)
        for index, line in enumerate(lines):
            first = line[0]
            if first in BLANKS:
                if index:
                    continue
                last = 0
                break
            at = line.find(b":")
            name = line[:at] if at > 0 else b""
            kind = known.get(name)
            if kind is None:
                kind = kinds.kind(name)
                if kind == INVALID:
                    if index == 0 and line.startswith((b"From ", b">From ")):
                        # The envelope line of a mailbox file, as in mail that a program took from one.
                        noted.append((0, RETURN_PATH))
                        continue
                    last = index
                    break
            if kind:
                noted.append((index, kind))
        for index, kind in noted:
            if self._note(lines, index, kind, last):
                gone.append((index, _field_end(lines, index, last)))
        self._judge(policy)
        size = len(block) if last == len(lines) else sum(map(len, lines[:last])) + 2 * last
        if not gone:
            return (block if size == len(block) else block[:size]), size
        facts.removed = len(gone)
        fields: list[bytes] = []
        at = 0
        for begin, end in gone:
            fields += lines[at:begin]
            at = end
        fields += lines[at:last]
        kept = b"\r\n".join(fields)
        return (kept + b"\r\n" if kept else b""), size

    def _note(self, lines: list[bytes], index: int, kind: int, last: int) -> bool:
        """Read one field of a known kind; whether it is to go."""
        facts, policy = self.facts, self._policy
        if kind == RECEIVED:
            facts.hops += 1
            if policy.token and _holds(policy.token, lines, index, last):
                facts.own_hops += 1
        elif kind == MESSAGE_ID:
            if not facts.has_message_id:
                facts.has_message_id = True
                facts.message_id = printable(_value(lines, index, last).decode("utf-8", "replace"), MAX_MESSAGE_ID)
        elif kind == SUBJECT:
            if not facts.subject:
                facts.subject = decoded(_value(lines, index, last))
        elif kind == FROM:
            facts.from_fields += 1
            if facts.from_fields == 1:
                facts.from_field = _value(lines, index, last)[:MAX_FROM]
        elif kind == DATE:
            facts.has_date = True
        else:
            return (
                kind == RETURN_PATH or (kind == FENCED and not policy.trusted) or (kind == BLIND and policy.submission)
            )
        return False

    def _judge(self, policy: HeaderPolicy) -> None:
        facts = self.facts
        if facts.hops > policy.max_hops or (facts.own_hops > policy.max_own_hops and not policy.resubmission):
            self.refusal = TOO_MANY_HOPS


def _field_end(lines: list[bytes], index: int, last: int) -> int:
    """The line after the field that begins at `index`."""
    index += 1
    while index < last and lines[index][0] in BLANKS:
        index += 1
    return index


def _value(lines: list[bytes], index: int, last: int) -> bytes:
    end = _field_end(lines, index, last)
    value = lines[index] if end == index + 1 else b"".join(lines[index:end])
    return value[value.find(b":") + 1 :].strip()


def _holds(token: bytes, lines: list[bytes], index: int, last: int) -> bool:
    return any(token in line for line in lines[index : _field_end(lines, index, last)])
