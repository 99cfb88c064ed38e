"""Where a relayed session may be ended, judged from the last bytes of each side.

A relay parses nothing. It keeps the end of what each side said and which of them said something last; that is enough
to see that a session is at rest, between two commands or waiting in IDLE. When it is not enough the answer is no: a
session that cannot be judged is ended later, by force. Nothing here makes a client's half-sent command look complete.
"""

from __future__ import annotations

import re

KEPT = 256
"""Bytes kept of each side's end: a command's tag and word, an answer's tag and status."""
SYNC = b"\x00\x00\xff\xff"
"""The end of what a compressing side has flushed (RFC 4978 section 4, RFC 1951 section 3.2.4)."""

_COMMAND = re.compile(
    rb"([^ \r\n*+]+) (?:APPEND|AUTHENTICATE|CAPABILITY|CHECK|CLOSE|COMPRESS|COPY|CREATE|DELETE|DELETEACL|ENABLE|EXAMINE"
    rb"|EXPUNGE|FETCH|GETACL|GETMETADATA|GETQUOTA|GETQUOTAROOT|ID|IDLE|LIST|LISTRIGHTS|LOGIN|LOGOUT|LSUB|MOVE|MYRIGHTS"
    rb"|NAMESPACE|NOOP|NOTIFY|RENAME|SEARCH|SELECT|SETACL|SETMETADATA|SETQUOTA|SORT|STARTTLS|STATUS|STORE|SUBSCRIBE"
    rb"|THREAD|UID|UNAUTHENTICATE|UNSELECT|UNSUBSCRIBE|XLIST)(?: |\Z)",
    re.IGNORECASE,
)
_TAGGED = re.compile(rb"([^ \r\n*+]+) (OK|NO|BAD)(?: |\Z)", re.IGNORECASE)
_IDLE = re.compile(rb"[^ \r\n*+]+ IDLE", re.IGNORECASE)
_LOGOUT = re.compile(rb"[^ \r\n*+]+ LOGOUT", re.IGNORECASE)
_COMPRESS = re.compile(rb"([^ \r\n*+]+) COMPRESS DEFLATE", re.IGNORECASE)
_LONG_ANSWERS = re.compile(rb"(?:RETR|TOP|CAPA)(?: .*)?|(?:LIST|UIDL) *", re.IGNORECASE)
_WEBSOCKET_LENGTHS = {126: 2, 127: 8}


def kept(tail: bytes, data: bytes) -> bytes:
    """The end of what one side said after `data`: its last line as far as that fits."""
    if len(data) >= KEPT:
        return data[-KEPT:]
    return (tail + data)[-KEPT:] if tail and tail[-1] != 10 else data


def imap_at_rest(client: bytes, server: bytes, *, server_spoke_last: bool) -> bool:
    """Whether an IMAP session is between two commands or in IDLE. The tails are as `kept` keeps them since its begin.

    The client must have had its answer: what it says after that, be it part of a line or of a literal, makes it the one
    who spoke last. Under COMPRESS only that is known.
    """
    if not client:
        return not server or server.endswith(b"\n")
    if not server_spoke_last:
        return False
    if is_compressed(client, server):
        return client.endswith(SYNC) or _COMPRESS.fullmatch(_last_line(client)) is not None
    if not client.endswith(b"\n") or not server.endswith(b"\n"):
        return False
    asked, answered = _last_line(client), _last_line(server)
    if _IDLE.fullmatch(asked) and answered.startswith((b"+", b"* ")):
        return True
    done = _TAGGED.match(answered)
    command = _COMMAND.match(asked)
    return done is not None and (command is None or command[1] == done[1])


def is_compressed(client: bytes, server: bytes) -> bool:
    """Whether the server's side is compressed (RFC 4978), judged when it is silent."""
    if server.endswith(SYNC):
        return True
    asked, done = _COMPRESS.match(_last_line(client)), _TAGGED.match(_last_line(server))
    return asked is not None and done is not None and asked[1] == done[1] and done[2].upper() == b"OK"


def imap_farewell(text: bytes, client: bytes, server: bytes) -> bytes:
    """`* BYE` with the response code UNAVAILABLE (RFC 5530), or nothing where a line of ours would be no line.

    Under COMPRESS it is a stored block, which fits behind everything flushed, and the last one (field case 51).
    """
    line = b"* BYE [UNAVAILABLE] %b\r\n" % text
    if is_compressed(client, server):
        size = len(line)
        return b"\x01" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + line
    if not server:
        return line
    last = _last_line(server)
    # After any other line the rest of a literal may have to follow.
    return line if server.endswith(b"\n") and (last.startswith(b"+") or _TAGGED.match(last) or _idles(client)) else b""


def imap_is_over(client: bytes, server: bytes) -> bool:
    """Whether the client has asked for the end, or the server has said BYE."""
    return _LOGOUT.match(_last_line(client)) is not None or b"* bye" in server.lower()


def _idles(client: bytes) -> bool:
    return client.endswith(b"\n") and _IDLE.fullmatch(_last_line(client)) is not None


def pop3_at_rest(client: bytes, server: bytes, *, server_spoke_last: bool) -> bool:
    """Whether a POP3 session is between two commands. What it has marked as deleted is not seen here."""
    if not client:
        return not server or server.endswith(b"\n")
    if not server_spoke_last or not client.endswith(b"\n") or not server.endswith(b"\n"):
        return False
    answered = _last_line(server)
    if _LONG_ANSWERS.fullmatch(_last_line(client)):
        return server.endswith(b"\n.\r\n") or server == b".\r\n" or answered[:4].upper() == b"-ERR"
    return answered[:3].upper() == b"+OK" or answered[:4].upper() == b"-ERR"


def pop3_deletes(client: bytes, *, before: bool) -> bool:
    """Whether messages are marked as deleted after the command lines in `client`; `before` says whether any were."""
    for line in client.upper().split(b"\n"):
        word = line.strip()
        if word.startswith(b"DELE"):
            before = True
        elif word == b"RSET":
            before = False
    return before


def _last_line(tail: bytes) -> bytes:
    return tail.removesuffix(b"\n").removesuffix(b"\r").rpartition(b"\n")[2]


class WebSocketFrames:
    """Counts frames of one side of a WebSocket (RFC 6455 section 5.2): only lengths are read."""

    __slots__ = ("_head", "_left", "closing")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self.closing = False
        """A close frame was seen: nothing may come after it."""

    @property
    def at_boundary(self) -> bool:
        """Whether the last frame is complete and another may follow, between the parts of a message as well."""
        return not self._left and not self._head and not self.closing

    def feed(self, data: bytes) -> None:
        """What the side said."""
        position = 0
        while position < len(data):
            if self._left:
                step = min(self._left, len(data) - position)
                self._left -= step
                position += step
                continue
            wanted = _head_size(self._head) - len(self._head)
            self._head += data[position : position + wanted]
            position += wanted
            if len(self._head) == _head_size(self._head):
                self._begin()

    def _begin(self) -> None:
        head, self._head = self._head, b""
        size = head[1] & 0x7F
        extended = _WEBSOCKET_LENGTHS.get(size, 0)
        self._left = int.from_bytes(head[2 : 2 + extended], "big") if extended else size
        self.closing = self.closing or head[0] & 0x0F == 0x8


def _head_size(head: bytes) -> int:
    """Octets of a frame's head, as far as its begin says."""
    if len(head) < 2:
        return 2
    return 2 + _WEBSOCKET_LENGTHS.get(head[1] & 0x7F, 0) + (4 if head[1] & 0x80 else 0)


def websocket_close(code: int, reason: bytes) -> bytes:
    """A server's close frame: not masked, `reason` at most 123 octets (RFC 6455 sections 5.5 and 5.5.1)."""
    payload = code.to_bytes(2, "big") + reason[:123]
    return bytes((0x88, len(payload))) + payload
