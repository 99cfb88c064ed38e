"""What an IMAP session has told its server that another server must know, if the session goes on there.

That is the selected mailbox, what was enabled, and whether modification sequences are told. What stands in the way is
the `obstacle`: a command that is not known here is one as soon as it succeeds, for it may have left something behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

MAX_TAG = 64
MAX_WORD = 32
"""Bytes of a command's tag and word; both are a few."""
MAX_NAME = 2048
"""Bytes of a mailbox's name as it was sent."""
MAX_ENABLED = 32
"""Extensions that a client may enable; a dozen exist."""

_COMMAND = re.compile(rb'([^\x00-\x20\x7f(){%%*"\\+]{1,%d}) +([^\x00-\x20\x7f(){]{1,%d})' % (MAX_TAG, MAX_WORD))
_SELECT = re.compile(rb'[^ ]+ +[^ ]+ +("(?:[^"\\\x00\r\n]|\\["\\])*"|[^\x00-\x20\x7f"{()]+)( +\([^{]*\))? *\r?\n\Z')
_PARAMETERS = re.compile(rb" *\( *(?:CONDSTORE|QRESYNC)\b", re.IGNORECASE)
_EXISTS = re.compile(rb"\* ([0-9]{1,10}) EXISTS\r?\n", re.IGNORECASE)
_FLAGS = re.compile(rb"\* (FLAGS \([^\r\n(){]*\)) *\r?\n", re.IGNORECASE)
_ENABLED = re.compile(rb"\* ENABLED((?: +[^ \r\n]+)*) *\r?\n", re.IGNORECASE)
_CODE = re.compile(rb"\* OK \[([A-Z]+)(?: ([0-9]{1,20}|\([^\r\n(){\]]*\)))?\]", re.IGNORECASE)

_STATELESS = frozenset(
    b"NOOP CHECK CAPABILITY ID NAMESPACE LIST LSUB XLIST RLIST RLSUB STATUS CREATE DELETE RENAME SUBSCRIBE UNSUBSCRIBE "
    b"APPEND REPLACE EXPUNGE FETCH STORE COPY MOVE SEARCH ESEARCH SORT THREAD UID GETQUOTA GETQUOTAROOT SETQUOTA "
    b"GETACL SETACL DELETEACL LISTRIGHTS MYRIGHTS GETMETADATA SETMETADATA GETANNOTATION SETANNOTATION GENURLAUTH "
    b"URLFETCH RESETKEY IDLE ENABLE LOGOUT".split()
)
"""Commands that leave nothing behind in a session but what is read here."""
FATAL = frozenset(b"COMPRESS STARTTLS AUTHENTICATE LOGIN UNAUTHENTICATE".split())
"""After these the bytes may be in another language, or the session another user's."""
_SELECTING = frozenset({b"SELECT", b"EXAMINE"})
_ATTENTIVE = frozenset({b"SELECT", b"EXAMINE", b"ENABLE"})
"""Commands whose untagged answers matter."""
_SEARCHING = frozenset(b"SEARCH SORT THREAD UID ESEARCH".split())
_AT_ONCE = frozenset(word + end for w in (b"NOOP", b"CHECK") for word in (w, w.lower()) for end in (b"\r\n", b"\n"))
"""Commands without arguments and without consequences, as they are sent behind their tag."""
_PLAIN = frozenset(word for w in b"FETCH STORE SEARCH UID STATUS LIST COPY MOVE".split() for word in (w, w.lower()))
"""Commands whose consequences all show in a few words of their line."""
_MODSEQ_WORDS = (b"MODSEQ", b"EDSINCE", b"CONDSTORE", b"QRESYNC")
"""What makes a server tell modification sequences from then on (RFC 7162 section 3.1), CHANGEDSINCE among them."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected mailbox as the server told of it when it was selected; `name` as the client sent it."""

    name: bytes = b""
    examine: bool = False
    """The client asked for reading only."""
    read_only: bool = False
    uid_validity: int | None = None
    uid_next: int | None = None
    exists: int | None = None
    """Messages at that time, not now."""
    flags: bytes | None = None
    """`FLAGS (...)`."""
    permanent_flags: bytes | None = None
    """`(...)`."""
    highest_modseq: int | None = None


@dataclass(frozen=True, slots=True)
class ImapSession:
    """What another server must be told. `idle_tag` is set while the session is idling."""

    selected: Selected | None = None
    enabled: tuple[bytes, ...] = ()
    """Upper case, in the order in which they came."""
    condstore: bool = False
    """The client is told modification sequences."""
    idle_tag: bytes | None = None

    @property
    def qresync(self) -> bool:
        """Whether the client is told of expunged messages by UID (RFC 7162 section 3.2)."""
        return b"QRESYNC" in self.enabled


class Command:
    """A command under way. `waits`: the server has not said `+` to this IDLE yet."""

    __slots__ = ("attentive", "known_parameters", "mailbox", "tag", "waits", "word")

    def __init__(self, tag: bytes, word: bytes) -> None:
        self.tag = tag
        self.word = word
        self.attentive = word in _ATTENTIVE
        self.mailbox: bytes | None = None
        """SELECT: the mailbox's name as it was sent."""
        self.known_parameters = True
        self.waits = word == b"IDLE"


def command(line: bytes) -> Command | None:
    """The command that a line begins, or None when it begins none that we could name."""
    found = _COMMAND.match(line)
    if found is None:
        return None
    begun = Command(found[1], found[2].upper())
    if begun.word in _SELECTING:
        name = _SELECT.match(line)
        if name is not None and len(name[1]) <= MAX_NAME:
            begun.mailbox = name[1]
            begun.known_parameters = name[2] is None or _PARAMETERS.match(name[2]) is not None
    return begun


def is_harmless(line: bytes) -> bool:
    """Whether a command of one line, without its tag, is one that changes nothing in `SessionNotes`; told at a glance.

    False where a longer look may still find that it is.
    """
    if line in _AT_ONCE:
        return True
    if line.partition(b" ")[0] not in _PLAIN or b"{" in line:
        return False
    upper = line.upper()
    return not (
        b"MODSEQ" in upper or b"EDSINCE" in upper or b"RETURN" in upper or b"CONDSTORE" in upper or b"QRESYNC" in upper
    )


class SessionNotes:
    """Told of commands, of untagged answers to the attentive ones, and of how each ends."""

    __slots__ = ("_fresh", "_saved", "_unclear", "_unknown", "condstore", "enabled", "is_leaving", "selected")

    def __init__(self) -> None:
        self.selected: Selected | None = None
        self.enabled: tuple[bytes, ...] = ()
        self.condstore = False
        self._fresh = Selected()
        """What was told since the oldest SELECT under way began."""
        self.is_leaving = False
        """The client has said LOGOUT."""
        self._saved = False
        self._unclear = False
        self._unknown = ""

    @property
    def obstacle(self) -> str:
        """Why the session cannot go on at another server, in a few words; empty: it can."""
        if self.is_leaving:
            return "the client is leaving"
        if self._unknown:
            return f"{self._unknown} may have left something behind"
        if self._saved:
            return "a search result is saved"
        if self._unclear or (self.selected is not None and self.selected.uid_validity is None):
            return "it is not clear which mailbox is selected"
        return ""

    def fresh_start(self) -> None:
        """What is told from now on is of the next mailbox."""
        self._fresh = Selected()

    def said(self, begun: Command, line: bytes) -> None:
        """A line of a command. What its words switch on; one that stands there for something else does no harm."""
        upper = line.upper()
        if begun.word == b"LOGOUT":
            self.is_leaving = True
        if not self.condstore and any(word in upper for word in _MODSEQ_WORDS):
            self.condstore = True
        if b"RETURN" in upper and begun.word in _SEARCHING:
            if b"SAVE" in upper:
                self._saved = True
            if b"UPDATE" in upper or b"CONTEXT" in upper:
                self._unknown = "a search that goes on"

    def untagged(self, line: bytes) -> None:
        """An untagged line while an attentive command is under way."""
        if (found := _CODE.match(line)) is not None:
            self._code(found[1].upper(), found[2])
        elif (found := _EXISTS.match(line)) is not None:
            self._fresh = replace(self._fresh, exists=int(found[1]))
        elif (found := _FLAGS.match(line)) is not None:
            self._fresh = replace(self._fresh, flags=found[1])
        elif (found := _ENABLED.match(line)) is not None:
            self._enable(found[1].upper().split())

    def _enable(self, names: list[bytes]) -> None:
        self.enabled += tuple(dict.fromkeys(name for name in names if name not in self.enabled))
        if len(self.enabled) > MAX_ENABLED or b"UIDONLY" in names:
            self.enabled = self.enabled[:MAX_ENABLED]
            self._unknown = "ENABLE"
        if b"CONDSTORE" in names or b"QRESYNC" in names:
            self.condstore = True

    def _code(self, name: bytes, value: bytes | None) -> None:
        if name == b"CLOSED":
            self._fresh = Selected()
        elif value is None:
            return
        elif name == b"PERMANENTFLAGS":
            self._fresh = replace(self._fresh, permanent_flags=value)
        elif not value.isdigit():
            return
        elif name == b"UIDVALIDITY":
            self._fresh = replace(self._fresh, uid_validity=int(value))
        elif name == b"UIDNEXT":
            self._fresh = replace(self._fresh, uid_next=int(value))
        elif name == b"HIGHESTMODSEQ":
            self._fresh = replace(self._fresh, highest_modseq=int(value))

    def answered(self, ended: Command, status: bytes, code: bytes) -> None:
        """The tagged answer to a command; `status` and `code` (its first word) in upper case."""
        word = ended.word
        if word in _SELECTING:
            self._selection(ended, status, code)
        elif status != b"OK":
            return
        elif word in (b"CLOSE", b"UNSELECT"):
            self.selected = None
            self._saved = self._unclear = False
        elif word not in _STATELESS:
            self._unknown = word.decode("ascii", "replace")

    def _selection(self, ended: Command, status: bytes, code: bytes) -> None:
        self._saved = False
        self.selected = None
        # A refused SELECT leaves no mailbox; whether one that was not understood does, only the server knows.
        self._unclear = status == b"BAD"
        if status != b"OK":
            return
        if ended.mailbox is None or not ended.known_parameters:
            self._unclear = True
            return
        examine = ended.word == b"EXAMINE"
        self.selected = replace(
            self._fresh, name=ended.mailbox, examine=examine, read_only=examine or code == b"READ-ONLY"
        )
