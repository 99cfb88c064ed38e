"""What shows in the bytes of a relayed IMAP session without a parser: announced literals, and whole answers."""

from __future__ import annotations

import re

from gatepost.wire.imap_session import MAX_TAG, is_harmless
from gatepost.wire.imap_syntax import LITERAL_DIGITS

MAX_AT_ONCE = 8192
"""Bytes of an answer that is looked at in one piece."""
TAIL = 32
"""Bytes at a line's end in which an announced literal shows."""

CLIENT_LITERAL = re.compile(rb"[ (~]\{([0-9]{1,19})(\+?)\}\r?\n\Z")
SERVER_LITERAL = re.compile(rb"[ (~]\{([0-9]{1,19})\+?\}\r?\n\Z")
STATUS = re.compile(rb"(?:\* (?:OK|NO|BAD|BYE|PREAUTH)(?![^ \r\n])|[^*])", re.IGNORECASE)
"""The head of a line that ends in a text for people, in which `{5}` announces nothing."""
HOP = re.compile(rb'[^\r\n{}]*\r?\n\* [0-9]{1,10} FETCH [^\r\n{}"]*[ (]\{([0-9]{1,10})\}\r\n').match
"""From the end of one literal to the begin of the next: what the download of a mailbox consists of."""


def next_literal(data: bytes, at: int) -> tuple[int, re.Match[bytes] | None]:
    """The next literal a server announces in a complete line, and where that line begins; else where the last ends."""
    brace = data.find(b"}", at)
    while brace >= 0:
        end = data.find(b"\n", brace, brace + 3) + 1
        if end:
            begin = data.rfind(b"\n", at, brace) + 1 or at
            literal = SERVER_LITERAL.search(data, max(begin, end - TAIL), end)
            if literal is not None and not STATUS.match(data, begin):
                return begin, literal if len(literal[1]) <= LITERAL_DIGITS else None
        brace = data.find(b"}", brace + 1)
    return data.rfind(b"\n", at) + 1 or at, None


def is_answer(data: bytes, tag: bytes, command: bytes) -> bool:
    """Whether `data` is all of the answer to a usual command, so that nobody need read the two.

    `tag` is with its space. Says so only where the long way would come to the same.
    """
    last = data.rfind(b"\n", 0, -1) + 1
    if not data.startswith(tag + b"OK ", last) or len(data) > MAX_AT_ONCE or data[-1] != 10:
        return False
    if not tag[:-1].isalnum() or len(tag) > MAX_TAG:
        return False
    if last and (b"}" in data or data.startswith(tag) or data.find(b"\n" + tag) != last - 1):
        return False
    return is_harmless(command)
