"""A mailbox with a server's session on it, and a client that believes what it is told. For tests of the carrying."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class Message:
    """Flags without `\\Recent`."""

    uid: int
    flags: frozenset[bytes] = frozenset()
    modseq: int = 1


@dataclass
class Mailbox:
    """What is stored."""

    messages: list[Message] = field(default_factory=list)
    uid_validity: int = 7
    uid_next: int = 1
    highest: int = 1
    keywords: bytes = b"\\Answered \\Seen"

    def copy(self) -> Mailbox:
        """A replica."""
        messages = [Message(m.uid, m.flags, m.modseq) for m in self.messages]
        return Mailbox(messages, self.uid_validity, self.uid_next, self.highest, self.keywords)

    def add(self, *flags: bytes) -> None:
        self.highest += 1
        self.messages.append(Message(self.uid_next, frozenset(flags), self.highest))
        self.uid_next += 1

    def expunge(self, index: int) -> None:
        self.highest += 1
        del self.messages[index]

    def flag(self, index: int, *flags: bytes) -> None:
        self.highest += 1
        message = self.messages[index]
        self.messages[index] = Message(message.uid, frozenset(flags), self.highest)


class ServerSession:
    """One session at a server: it sees the mailbox as of its last look. Takes the commands that the carrying sends."""

    def __init__(self, mailbox: Mailbox, *, recent: bool = False) -> None:
        self.mailbox = mailbox
        self.seen: list[Message] = []
        self.condstore = self.qresync = self.selected = False
        self.idling = b""
        self.recent = b" \\Recent" if recent else b""
        self.got: list[bytes] = []
        self.refuses: bytes = b""
        self.read_only = False

    def select(self) -> bytes:
        box = self.mailbox
        self.seen = list(box.messages)
        self.selected = True
        return (
            b"* FLAGS (%s)\r\n* %d EXISTS\r\n* 0 RECENT\r\n* OK [UIDVALIDITY %d] x\r\n* OK [UIDNEXT %d] x\r\n"
            b"* OK [HIGHESTMODSEQ %d] x\r\n"
            % (box.keywords, len(self.seen), box.uid_validity, box.uid_next, box.highest)
        )

    def news(self) -> bytes:
        """What the session has not been told yet."""
        said = b""
        now = {m.uid: m for m in self.mailbox.messages}
        for number in range(len(self.seen), 0, -1):
            uid = self.seen[number - 1].uid
            if uid not in now:
                said += b"* VANISHED %d\r\n" % uid if self.qresync else b"* %d EXPUNGE\r\n" % number
                del self.seen[number - 1]
        known = {m.uid for m in self.seen}
        fresh = [m for m in self.mailbox.messages if m.uid not in known]
        if fresh:
            self.seen += fresh
            said += b"* %d EXISTS\r\n" % len(self.seen)
        for number, message in enumerate(self.seen, 1):
            if message != now[message.uid]:
                said += self._fetch(number, now[message.uid], with_uid=self.qresync)
                self.seen[number - 1] = now[message.uid]
        return said

    def _fetch(self, number: int, message: Message, *, with_uid: bool = True) -> bytes:
        uid = b"UID %d " % message.uid if with_uid else b""
        modseq = b" MODSEQ (%d)" % message.modseq if self.condstore else b""
        flags = b" ".join(sorted(message.flags)) + self.recent
        return b"* %d FETCH (%sFLAGS (%s)%s)\r\n" % (number, uid, flags.strip(), modseq)

    def take(self, line: bytes) -> bytes:
        """One line from the client; what is answered."""
        self.got.append(line)
        if self.idling:
            tag, self.idling = self.idling, b""
            assert line == b"DONE\r\n", line
            return tag + b" OK Idle completed.\r\n"
        tag, _, rest = line.rstrip(b"\r\n").partition(b" ")
        word = b" ".join(rest.upper().split()[:2])
        done = tag + b" OK done\r\n"
        if self.refuses and word.startswith(self.refuses):
            return tag + b" NO no\r\n"
        if word == b"IDLE":
            self.idling = tag
            return b"+ idling\r\n"
        if word == b"NOOP":
            return self.news() + done
        if word == b"UID FETCH":
            return b"".join(self._fetch(n, m) for n, m in enumerate(self.seen, 1)) + done
        if word.startswith(b"ENABLE"):
            self.qresync = b"QRESYNC" in rest
            self.condstore = self.condstore or self.qresync or b"CONDSTORE" in rest
            return b"* ENABLED " + rest.partition(b" ")[2] + b"\r\n" + done
        if word.startswith((b"SELECT", b"EXAMINE")):
            self.condstore = self.condstore or rest.endswith(b"(CONDSTORE)")
            read_only = self.read_only or word.startswith(b"EXAMINE")
            return self.select() + tag + (b" OK [READ-ONLY] x\r\n" if read_only else b" OK [READ-WRITE] x\r\n")
        return tag + b" BAD what\r\n"


class Believer:
    """A client's idea of the mailbox: UIDs (None: not asked for yet) and flags by message number."""

    def __init__(self, seen: list[Message]) -> None:
        self.uids: list[int | None] = [m.uid for m in seen]
        self.flags: list[frozenset[bytes] | None] = [m.flags for m in seen]

    def told(self, text: bytes, *, idling: bool) -> None:
        """Believe whole lines; what may not be said now is an error."""
        assert text.endswith(b"\r\n") or not text
        for line in text.split(b"\r\n")[:-1]:
            if found := re.fullmatch(rb"\* (\d+) EXPUNGE", line):
                assert idling, "an EXPUNGE with no command under way"
                del self.uids[int(found[1]) - 1], self.flags[int(found[1]) - 1]
            elif found := re.fullmatch(rb"\* VANISHED ([0-9:,]+)", line):
                assert idling
                self._vanished(found[1])
            elif found := re.fullmatch(rb"\* (\d+) EXISTS", line):
                more = int(found[1]) - len(self.uids)
                assert more >= 0, "EXISTS may not shrink a mailbox"
                self.uids += [None] * more
                self.flags += [None] * more
            elif found := re.fullmatch(rb"\* (\d+) FETCH \((?:UID (\d+) )?FLAGS \((.*?)\)(?: MODSEQ \(\d+\))?\)", line):
                number = int(found[1]) - 1
                self.flags[number] = frozenset(found[3].split()) - {b"\\Recent"}
                if found[2]:
                    assert self.uids[number] in (None, int(found[2]))
                    self.uids[number] = int(found[2])
            else:
                assert re.match(rb"\* (OK |FLAGS \(|\d+ RECENT)", line), line

    def _vanished(self, uids: bytes) -> None:
        for part in uids.split(b","):
            first, _, last = part.partition(b":")
            for uid in range(int(first), int(last or first) + 1):
                at = self.uids.index(uid) if uid in self.uids else self._one_not_asked_for(uid)
                del self.uids[at], self.flags[at]

    def _one_not_asked_for(self, uid: int) -> int:
        """The number of a message whose UID it was never told, where `uid` may be: UIDs ascend."""
        known = [(at, other) for at, other in enumerate(self.uids) if other is not None]
        first = max((at for at, other in known if other < uid), default=-1)
        last = min((at for at, other in known if other > uid), default=len(self.uids))
        return self.uids.index(None, first + 1, last)

    def agrees_with(self, session: ServerSession) -> bool:
        """Whether everything that it believes is so at that server."""
        if len(self.uids) != len(session.seen):
            return False
        pairs = zip(self.uids, self.flags, session.seen, strict=True)
        return all(uid in (None, m.uid) and flags in (None, m.flags) for uid, flags, m in pairs)
