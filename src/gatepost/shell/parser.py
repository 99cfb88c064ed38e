"""From text to statements. Pure, and whatever the text is: it parses, or `LanguageError` says where it does not."""

from __future__ import annotations

from collections.abc import Callable

from gatepost.shell.errors import Incomplete, LanguageError
from gatepost.shell.quoting import (
    BACKTICK,
    DOUBLE_QUOTES,
    SINGLE_QUOTES,
    read_double,
    read_escape,
    read_name,
    read_single,
)
from gatepost.shell.syntax import Command, Comparison, Conditions, Named, Positional, Scalar, Statement, Value

MAX_CHARACTERS = 256 * 1024
"""Of one text. A script that sets ten properties of a thousand directories is smaller."""
MAX_DEPTH = 16
"""Brackets within brackets; more would only exhaust the stack."""

DASHES = "-\u2013\u2014\u2015"
"""As in the source system: what a word processor makes of a hyphen still begins a parameter."""
ORDERS = ("gt", "ge", "lt", "le")
OPERATORS = ("eq", "ne", "like", "notlike", "match", "notmatch", "in", "notin", "contains", "notcontains", *ORDERS)
FILTER_OPERATORS = ("eq", "ne", *ORDERS, "like")

_ENDS_WORD = ";|,(){}\n\r"
_CONSTANTS: dict[str, Scalar] = {"true": True, "false": False, "null": None}


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of `text`. Raises `LanguageError`; `Incomplete` when more lines may complete it."""
    if len(text) > MAX_CHARACTERS:
        raise LanguageError(f"the text has more than {MAX_CHARACTERS} characters", "", 0)
    return _Parser(text).statements()


def parse_filter(text: str) -> Conditions:
    """The conditions of a filter that is given as text: `Status -eq 'Retry'`. Raises `LanguageError`."""
    return _Parser(text).filter_text()


class _Parser:
    """Recursive descent over the characters; `_at` is the next one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def statements(self) -> tuple[Statement, ...]:
        """All of them, up to the end of the text."""
        found: list[Statement] = []
        while True:
            self._skip(lines=True)
            if self._peek() == "":
                return tuple(found)
            if self._peek() == ";":
                self._at += 1
                continue
            found.append(self._statement())

    def _statement(self) -> Statement:
        commands = [self._command()]
        while self._peek() == "|":
            pipe = self._at
            self._at += 1
            self._skip(lines=True)
            if self._peek() == "":
                raise Incomplete("a command is missing after the |", self._text, pipe)
            commands.append(self._command())
        if self._peek() not in {"", ";", "\n", "\r"}:
            raise self._error(f"{self._peek()} is not expected here")
        return Statement(tuple(commands), self._text)

    def _command(self) -> Command:
        offset = self._at
        character = self._peek()
        if not (character.isalpha() or character == "?"):
            raise self._error("the name of a command is expected here, such as Get-OwaVirtualDirectory")
        name = self._word()
        elements: list[Named | Positional] = []
        while True:
            self._skip()
            if self._peek() in {"", ";", "|", "\n", "\r", ")", "}"}:
                return Command(name, tuple(elements), offset)
            elements.append(self._element())

    def _element(self) -> Named | Positional:
        offset = self._at
        name = self._parameter_name()
        if name is None:
            return Positional(self._values(), offset)
        if self._peek() != ":":
            return Named(name, offset)
        self._at += 1
        self._skip()
        if self._peek() in {"", ";", "|", "\n", "\r"}:
            raise LanguageError(f"a value is missing after -{name}:", self._text, offset)
        return Named(name, offset, self._values(), has_value=True)

    def _parameter_name(self) -> str | None:
        """The name after a dash; None, with nothing read, when this is a value such as `-5`."""
        if self._peek() not in DASHES or self._peek() == "":
            return None
        name = read_name(self._text, self._at + 1)
        after = self._text[self._at + 1 + len(name) : self._at + 2 + len(name)]
        if not name or not name[0].isalpha() or not (after in {"", ":"} or after.isspace() or after in _ENDS_WORD):
            return None
        self._at += 1 + len(name)
        return name

    # Values

    def _values(self) -> Value:
        """One value, or several with commas between them as one list."""
        first = self._value()
        if not self._comma():
            return first
        listed = list(self._listed(first))
        while True:
            self._skip(lines=True)
            if self._peek() == "":
                raise Incomplete("a value is missing after the comma", self._text, self._at)
            listed += self._listed(self._value())
            if not self._comma():
                return tuple(listed)

    def _comma(self) -> bool:
        before = self._at
        self._skip()
        if self._peek() != ",":
            self._at = before
            return False
        self._at += 1
        return True

    def _listed(self, value: Value) -> tuple[Scalar, ...]:
        """`value` as a part of a list; lists within lists are one list."""
        if isinstance(value, tuple):
            return value
        if value is None or isinstance(value, str | bool):
            return (value,)
        raise self._error("only texts, $true, $false and $null can be in a list")

    def _value(self) -> Value:
        character, following = self._peek(), self._text[self._at + 1 : self._at + 2]
        if character == "$":
            return self._variable()
        if character == "@" and following in {"(", "{"}:
            self._at += 1
            return self._nested(self._array if following == "(" else self._hash_table)
        if character == "(":
            return self._nested(self._array)
        if character == "{":
            return self._nested(self._block)
        if character == "@":
            raise self._error('@ begins a list, @("a","b"), or changes, @{Add="a"}: put other text in quotes')
        if character == "" or character in _ENDS_WORD:
            raise self._error("a value is expected here")
        if character in "<>":
            raise self._error(
                "output cannot be sent to a file here: use the system's shell, gatepost shell -c … > file"
            )
        return self._word()

    def _nested(self, read: Callable[[int], Value]) -> Value:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error("brackets are nested too deeply")
        opened = self._at
        self._at += 1
        value = read(opened)
        self._depth -= 1
        return value

    def _array(self, opened: int) -> tuple[Scalar, ...]:
        listed: list[Scalar] = []
        while True:
            self._skip(lines=True)
            character = self._peek()
            if character == ")":
                self._at += 1
                return tuple(listed)
            if character == "":
                raise Incomplete("the ( is not closed", self._text, opened)
            if character in {";", ","}:
                self._at += 1
                continue
            if character.isalpha():
                raise self._error("text in ( ) needs quotes; commands are not run there: put them before a |")
            listed += self._listed(self._value())

    def _hash_table(self, opened: int) -> dict[str, Scalar | tuple[Scalar, ...]]:
        table: dict[str, Scalar | tuple[Scalar, ...]] = {}
        while True:
            self._skip(lines=True)
            if self._peek() == "":
                raise Incomplete("the { is not closed", self._text, opened)
            if self._peek() in {";", "}"}:
                self._at += 1
                if self._text[self._at - 1] == "}":
                    return table
                continue
            key = self._key()
            value = self._values()
            if not (value is None or isinstance(value, str | bool | tuple)):
                raise self._error("only texts and lists of texts can be in @{ }")
            table[key] = value

    def _key(self) -> str:
        start = self._at
        key = read_name(self._text, self._at)
        self._at += len(key)
        self._skip()
        if not key or self._peek() not in {"=", ""}:
            self._at = start
            raise self._error("a name and = are expected here, as in @{Add='a'; Remove='b'}")
        if self._peek() == "":
            raise Incomplete("a value is missing", self._text, start)
        self._at += 1
        self._skip(lines=True)
        if self._peek() == "":
            raise Incomplete("a value is missing", self._text, start)
        return key

    def filter_text(self) -> Conditions:
        """The whole text as a filter's conditions."""
        found = self._conditions()
        if self._peek() != "":
            raise self._error(f"{self._peek()} is not expected in a filter")
        return found

    def _conditions(self) -> Conditions:
        """Comparisons of properties, joined by `-and`, up to what is none."""
        found: list[Comparison] = []
        while True:
            self._skip(lines=True)
            name = read_name(self._text, self._at)
            if not name:
                raise self._error('a comparison of a property is expected here: Status -eq "Retry"')
            self._at += len(name)
            self._skip(lines=True)
            operator, value = self._right_side(FILTER_OPERATORS)
            found.append(Comparison(name, operator, value))
            start = self._at
            joined = (self._parameter_name() or "").lower()
            if joined and joined != "and":
                raise LanguageError("comparisons of a filter are joined by -and", self._text, start)
            if not joined:
                return Conditions(tuple(found))

    def _block(self, opened: int) -> Comparison | Conditions:
        """One comparison, as `Where-Object` takes it, or a filter, which names properties without `$_`."""
        self._skip(lines=True)
        if self._peek().isalpha():
            found = self._conditions()
            if self._peek() != "}":
                raise self._unclosed(opened)
            self._at += 1
            return found
        operator, value = "", None
        if self._peek() == "!":
            self._at += 1
            operator = "not"
        elif (self._parameter_name() or "").lower() == "not":
            operator = "not"
        self._skip(lines=True)
        prefix = self._text[self._at : self._at + 3]
        if prefix != "$_.":
            if self._at >= len(self._text):
                raise Incomplete("the { is not closed", self._text, opened)
            raise self._error('a comparison of a property is expected here: { $_.Server -eq "CAS-01" }')
        name = read_name(self._text, self._at + 3)
        self._at += 3 + len(name)
        self._skip(lines=True)
        if name and not operator and self._peek() not in {"}", ""}:
            operator, value = self._right_side(OPERATORS)
        if self._peek() == "":
            raise Incomplete("the { is not closed", self._text, opened)
        if not name or self._peek() != "}":
            raise self._error("one comparison is all that is understood in { }; for two, use | Where-Object twice")
        self._at += 1
        return Comparison(name, operator, value)

    def _unclosed(self, opened: int) -> LanguageError:
        if self._peek() == "":
            return Incomplete("the { is not closed", self._text, opened)
        return self._error(f"{self._peek()} is not expected in a filter")

    def _right_side(self, operators: tuple[str, ...]) -> tuple[str, Scalar | tuple[Scalar, ...]]:
        start = self._at
        operator = (self._parameter_name() or "").lower()
        # -ieq and -eq are the same, as in the source system: case makes no difference.
        operator = operator[1:] if operator.startswith("i") and operator[1:] in operators else operator
        if operator not in operators:
            words = " ".join(f"-{word}" for word in operators)
            raise LanguageError(f"an operator is expected here, one of {words}", self._text, start)
        self._skip(lines=True)
        if self._peek() == "":
            raise Incomplete("a value is missing after the operator", self._text, start)
        value = self._values()
        if not (value is None or isinstance(value, str | bool | tuple)):
            raise LanguageError("a text or a list of texts is expected here", self._text, start)
        self._skip(lines=True)
        return operator, value

    def _variable(self) -> Scalar:
        name = read_name(self._text, self._at + 1)
        after = self._text[self._at + 1 + len(name) : self._at + 2 + len(name)]
        if name.lower() not in _CONSTANTS or (after in {".", "[", "("} and after):
            known = "$true, $false and $null are all there are"
            raise self._error(f"${name} is not known here: {known}; put other text in single quotes")
        self._at += 1 + len(name)
        return _CONSTANTS[name.lower()]

    def _word(self) -> str:
        """Bare characters and quoted parts up to the next space or separator, as one text."""
        parts: list[str] = []
        while (character := self._peek()) and not character.isspace() and character not in _ENDS_WORD:
            if character in SINGLE_QUOTES:
                part, self._at = read_single(self._text, self._at)
            elif character in DOUBLE_QUOTES:
                part, self._at = read_double(self._text, self._at)
            elif character == BACKTICK:
                part, self._at = read_escape(self._text, self._at)
            else:
                part = character
                self._at += 1
            parts.append(part)
        return "".join(parts)

    # Characters

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _error(self, message: str) -> LanguageError:
        return LanguageError(message, self._text, self._at)

    def _skip(self, *, lines: bool = False) -> None:
        """Pass spaces, comments and continued lines; with `lines` ends of lines too."""
        while character := self._peek():
            if character.isspace() and (lines or character not in "\n\r"):
                self._at += 1
            elif character == "#":
                self._at = self._end_of_line()
            elif self._text.startswith("<#", self._at):
                end = self._text.find("#>", self._at + 2)
                if end < 0:
                    raise Incomplete("the comment is not closed", self._text, self._at)
                self._at = end + 2
            elif character == BACKTICK and self._text[self._at + 1 : self._at + 2] in {"\n", "\r"}:
                self._at += 3 if self._text.startswith("\r\n", self._at + 1) else 2
            else:
                return

    def _end_of_line(self) -> int:
        ends = [end for end in (self._text.find(c, self._at) for c in "\n\r") if end >= 0]
        return min(ends, default=len(self._text))
