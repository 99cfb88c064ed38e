"""A mailbox as an IMAP session sees it, and what has to be said when another server shows it differently.

The view is what `UID FETCH 1:* (UID FLAGS)` answers: by message number a UID and flags, with modification sequences
where the client is told them. Two views that say the same, byte for byte, are the usual case and are not read at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from gatepost.wire.imap_session import ImapSession, Selected

MAX_MESSAGES = 20_000
"""Of one mailbox: they take about 2 MB and 50 ms at each server; a larger one is not worth it."""

_UID = re.compile(rb"(?:\A| )UID ([0-9]{1,10})(?= |\Z)", re.IGNORECASE)
_FLAGS = re.compile(rb"(?:\A| )FLAGS \(([^()\r\n]*)\)", re.IGNORECASE)
_MODSEQ = re.compile(rb"(?:\A| )MODSEQ \(([0-9]{1,20})\)", re.IGNORECASE)
_RECENT = re.compile(rb"\\recent *| *\\recent(?=\))", re.IGNORECASE)


class ViewsDiffer(Exception):
    """The client cannot be told how the views differ; says why."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a view. `flags` as the server wrote them, without `\\Recent`."""

    uid: int
    flags: bytes
    modseq: int | None

    def same_flags(self, other: Message) -> bool:
        """Whether both have the same flags, in whatever order and case."""
        return self.flags == other.flags or _words(self.flags) == _words(other.flags)


class View:
    """Collects the answers to the FETCH."""

    __slots__ = ("_items", "disturbed", "exists", "recent")

    def __init__(self) -> None:
        self._items: dict[int, bytes] = {}
        self.exists: int | None = None
        """The last count that was told, if one was."""
        self.recent: int | None = None
        self.disturbed = False
        """Message numbers have moved meanwhile: the answers do not fit together."""

    def again(self) -> None:
        """Before the same FETCH is sent once more."""
        self._items.clear()
        self.disturbed = False

    def fetched(self, number: int, items: bytes) -> bool:
        """Take what is between the parentheses of a FETCH response; whether it was the answer for that message.

        Another one for the same message, or one without a UID, is news that nobody asked for. Raises `ViewsDiffer`.
        """
        known = self._items.get(number)
        if known is None:
            if _UID.search(items) is None:
                return False
            if len(self._items) >= MAX_MESSAGES:
                raise ViewsDiffer("the mailbox has too many messages")
            # Whether a message is recent is each session's own matter (RFC 3501 section 2.3.2).
            self._items[number] = _RECENT.sub(b"", items) if b"ecent" in items.lower() else items
            return True
        news, before = _message(items + b" " + known), _message(known)
        # The first of two in one line counts, and it is the news.
        merged = b"UID %d FLAGS (%s)" % (before.uid, news.flags)
        self._items[number] = merged if news.modseq is None else merged + b" MODSEQ (%d)" % news.modseq
        return False

    @property
    def complete(self) -> bool:
        """Whether every message that is there has been told, and nothing moved meanwhile."""
        count = len(self._items)
        if self.disturbed or (self.exists is not None and self.exists != count):
            return False
        return count == 0 or (1 in self._items and max(self._items) == count)

    def same_as(self, other: View) -> bool:
        """Whether both servers said the same."""
        return self._items == other._items

    def messages(self) -> list[Message]:
        """All of them by number. Raises `ViewsDiffer` when they cannot be read, or their UIDs do not grow."""
        found = [_message(self._items[number]) for number in range(1, len(self._items) + 1)]
        if any(a.uid >= b.uid for a, b in pairwise(found)):
            raise ViewsDiffer("UIDs do not grow with message numbers")
        return found


def _message(items: bytes) -> Message:
    uid, flags, modseq = _UID.search(items), _FLAGS.search(items), _MODSEQ.search(items)
    if uid is None or flags is None:
        raise ViewsDiffer("an answer to FETCH that cannot be read")
    return Message(int(uid[1]), _RECENT.sub(b"", flags[1]).strip(), int(modseq[1]) if modseq else None)


def _words(flags: bytes) -> frozenset[bytes]:
    return frozenset(flags.lower().split())


def announcements(session: ImapSession, before: View, after: View, now: Selected) -> Iterator[bytes]:
    """The untagged responses that take a client from the view `before` to the view `after`.

    `session` is as at the old server, `now` the mailbox as the new one told of it. Raises `ViewsDiffer` when it is
    another mailbox, an older state of it, or when what must be said may not be said now: an EXPUNGE is only legal while
    a command is under way (RFC 9051 section 7.5.1), which for the client is so when it is idling.
    """
    was = session.selected
    assert was is not None
    if now.uid_validity != was.uid_validity:
        raise ViewsDiffer("another UIDVALIDITY")
    if now.read_only != was.read_only:
        raise ViewsDiffer("read-only at one of the servers")
    if was.uid_next is not None and now.uid_next is not None and now.uid_next < was.uid_next:
        raise ViewsDiffer("the new server's mailbox is behind")
    if session.condstore and (now.highest_modseq is None or now.highest_modseq < (was.highest_modseq or 0)):
        raise ViewsDiffer("the new server's modification sequences are behind")
    lines = [] if before.same_as(after) else list(_differences(session, before.messages(), after, now))
    yield from lines
    if now.flags is not None and _words(now.flags) != _words(was.flags or b""):
        yield b"* " + now.flags
    if now.permanent_flags is not None and _words(now.permanent_flags) != _words(was.permanent_flags or b""):
        yield b"* OK [PERMANENTFLAGS %s] Flags permitted." % now.permanent_flags


def _differences(session: ImapSession, old: list[Message], after: View, now: Selected) -> Iterator[bytes]:
    new = after.messages()
    known = {message.uid: message for message in old}
    still = {message.uid for message in new}
    last = old[-1].uid if old else 0
    if now.uid_next is not None and now.uid_next <= last:
        raise ViewsDiffer("the new server's mailbox is behind")
    if session.condstore and max((m.modseq or 0 for m in old), default=0) > (now.highest_modseq or 0):
        raise ViewsDiffer("the new server's modification sequences are behind")
    added = [message.uid for message in new if message.uid not in known]
    first_new = max(last + 1, (session.selected.uid_next or 0) if session.selected else 0)
    if added and added[0] < first_new:
        raise ViewsDiffer("messages are back that were gone")
    gone = [(number, message.uid) for number, message in enumerate(old, 1) if message.uid not in still]
    if gone and session.idle_tag is None:
        raise ViewsDiffer("messages are gone, which cannot be said between commands")
    yield from _expunged(gone, by_uid=session.qresync)
    if added:
        yield b"* %d EXISTS" % len(new)
        if after.recent is not None:
            yield b"* %d RECENT" % after.recent
    for number, message in enumerate(new, 1):
        if message.uid in known and _changed(known[message.uid], message, condstore=session.condstore):
            yield _flags_line(number, message, condstore=session.condstore)


def _expunged(gone: list[tuple[int, int]], *, by_uid: bool) -> Iterator[bytes]:
    if by_uid and gone:
        yield b"* VANISHED " + _uid_set(uid for _, uid in gone)
    elif gone:
        # From the last one on, so that no number is moved by the one before it.
        yield from (b"* %d EXPUNGE" % number for number, _ in reversed(gone))


def _uid_set(uids: Iterable[int]) -> bytes:
    """Ascending UIDs as a set."""
    ranges: list[list[int]] = []
    for uid in uids:
        if ranges and ranges[-1][1] == uid - 1:
            ranges[-1][1] = uid
        else:
            ranges.append([uid, uid])
    return b",".join(b"%d" % a if a == b else b"%d:%d" % (a, b) for a, b in ranges)


def _changed(was: Message, now: Message, *, condstore: bool) -> bool:
    if not condstore:
        return not was.same_flags(now)
    if was.modseq is None or now.modseq is None or now.modseq < was.modseq:
        raise ViewsDiffer("the new server's modification sequences are behind")
    if now.modseq == was.modseq and not was.same_flags(now):
        raise ViewsDiffer("flags differ at one modification sequence")
    return now.modseq != was.modseq


def _flags_line(number: int, message: Message, *, condstore: bool) -> bytes:
    if not condstore:
        return b"* %d FETCH (FLAGS (%s))" % (number, message.flags)
    assert message.modseq is not None
    return b"* %d FETCH (UID %d FLAGS (%s) MODSEQ (%d))" % (number, message.uid, message.flags, message.modseq)
