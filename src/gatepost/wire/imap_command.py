"""A client's commands, put together from lines and literals within bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from gatepost.wire import sasl
from gatepost.wire.imap_syntax import Arguments, LineBuffer, LineTooLong, Literal, announced

MAX_TAG = 1024
"""Tags are echoed exactly (field case 50); clients use some ten characters, nobody needs a line of them."""
MAX_COMMAND = sasl.MAX_INITIAL_RESPONSE + 4096
"""One command, literals included: the longest initial response with tag and words around it; two literals fit too."""
MAX_LITERAL = 8192
"""A name or password given as literal. Above the longest real ones, below what is worth keeping for a stranger."""

TAG = rb'[^\x00-\x20\x7f-\xff(){%*"\\+]{1,1024}'
_HEAD = re.compile(rb"(" + TAG + rb") ([A-Za-z]+)(?= |\Z)")
_ONLY_TAG = re.compile(rb"(" + TAG + rb")(?=[ \r\n]|\Z)")


@dataclass(frozen=True, slots=True)
class Command:
    """A command. `tag` is None when the line has none that could be echoed, `name` is upper case, empty when wrong."""

    tag: bytes | None
    name: bytes
    parts: list[bytes] = field(repr=False)

    @property
    def arguments(self) -> Arguments:
        """What follows the name. Only with a tag."""
        assert self.tag is not None
        return Arguments(self.parts, len(self.tag) + 1 + len(self.name))

    @property
    def is_clean(self) -> bool:
        """Neither NUL nor a lone CR outside its literals."""
        return not any(b"\0" in text or b"\r" in text for text in self.parts[::2])


@dataclass(frozen=True, slots=True)
class Fault:
    """A command that was not read to its end. `fatal`: the bytes behind it cannot be told from commands."""

    tag: bytes | None
    text: bytes
    fatal: bool


@dataclass(frozen=True, slots=True)
class LiteralWanted:
    """The client waits for a continuation before it sends its literal."""


class CommandReader:
    """Reads commands from `lines`."""

    def __init__(self, lines: LineBuffer) -> None:
        self._lines = lines
        self._parts: list[bytes] = []
        self._size = 0
        self._literal: int | None = None
        self._tag: bytes | None = None
        self._name = b""

    @property
    def in_command(self) -> bool:
        """Whether a part of a command was read already."""
        return bool(self._parts)

    def next(self, wants_literals: Callable[[bytes], bool]) -> Command | Fault | LiteralWanted | None:
        """The next thing to act on; None when more bytes are needed.

        `wants_literals` says by a command's name whether its literals are worth asking for: a command that is refused
        anyway is handed over as it stands and refused before its literal is sent.
        """
        while True:
            if self._literal is not None:
                octets = self._lines.octets(self._literal)
                if octets is None:
                    return None
                self._literal = None
                self._keep(octets)
            try:
                line = self._lines.line(MAX_COMMAND - self._size)
            except LineTooLong:
                if not self._parts:
                    self._note_head(self._lines.peek(MAX_TAG + 16))
                return self._fault(b"Command too long", fatal=True)
            if line is None:
                return None
            if not self._parts:
                self._note_head(line)
            self._keep(line)
            outcome = self._line_read(announced(line), wants_literals)
            if outcome is not None:
                return outcome

    def _line_read(
        self, literal: Literal | None, wants_literals: Callable[[bytes], bool]
    ) -> Command | Fault | LiteralWanted | None:
        if literal is None:
            return self._command()
        count = literal.count
        # The rest of the line needs two bytes at least.
        if count is None or count > MAX_LITERAL or self._size + count + 2 > MAX_COMMAND:
            # Bytes that are coming already must not be read as commands (field case 27).
            return self._fault(b"Literal too large", fatal=not literal.waits)
        if literal.waits and not wants_literals(self._name):
            return self._command()
        self._literal = count
        return LiteralWanted() if literal.waits else None

    def _command(self) -> Command:
        command = Command(self._tag, self._name, self._parts)
        self._parts, self._size = [], 0
        return command

    def _fault(self, text: bytes, *, fatal: bool) -> Fault:
        self._parts, self._size = [], 0
        return Fault(self._tag, text, fatal)

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)

    def _note_head(self, line: bytes) -> None:
        found = _HEAD.match(line) or _ONLY_TAG.match(line)
        self._tag = found[1] if found else None
        self._name = found[2].upper() if found and found.re is _HEAD else b""
