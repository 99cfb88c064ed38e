"""From what was typed after a cmdlet's name to the values of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from gatepost.shell.errors import LanguageError, ShellError
from gatepost.shell.parser import parse_filter
from gatepost.shell.syntax import Command, Comparison, Conditions, Named, Positional, Scalar, Value


class Kind(Enum):
    """What a parameter takes."""

    TEXT = "a text"
    TEXTS = "a text or a list of texts"
    CHANGES = "a list of texts, or changes such as @{Add='a'; Remove='b'}"
    FLAG = "$true or $false"
    SWITCH = "nothing"
    NUMBER = "a whole number"
    BLOCK = 'a comparison in { }, such as { $_.Server -eq "CAS-01" }'
    FILTER = 'comparisons joined by -and, in { } or in quotes, such as { Status -eq "Retry" }'


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a cmdlet. With `position` (from 0) its name may be left out; `null` allows `$null`.

    `words` are the only values it takes, spelled as they are handed on; `help` is its line in `Get-Help`.
    """

    name: str
    kind: Kind = Kind.TEXT
    help: str = ""
    position: int | None = None
    required: bool = False
    null: bool = False
    words: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """What a `CHANGES` parameter asks for: `new` replaces the list, else `add` and `remove` change it."""

    new: tuple[str, ...] | None = None
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def apply(self, old: Sequence[str]) -> tuple[str, ...]:
        """`old` changed, without regard to case. Raises `ShellError` when what is to be removed is not there."""
        if self.new is not None:
            return self.new
        known = {text.casefold() for text in old}
        for text in self.remove:
            if text.casefold() not in known:
                raise ShellError(f"{text!r} cannot be removed: it is not in the list ({', '.join(old) or 'empty'})")
        gone = {text.casefold() for text in self.remove}
        added = [text for text in self.add if text.casefold() not in known]
        return tuple(text for text in (*old, *added) if text.casefold() not in gone)


Bindable = str | bool | int | None | tuple[str, ...] | Changes | Comparison | Conditions


@dataclass(frozen=True)
class Bound:
    """The values given, by the parameters' names. A parameter that was not given is not in it."""

    values: Mapping[str, Bindable] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str | None:
        """A text; None when it was not given or is null."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def need(self, name: str) -> str:
        """A text that must be there. Raises `ShellError`."""
        value = self.text(name)
        if not value:
            raise ShellError(f"-{name} is needed")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list; empty when it was not given."""
        value = self.values.get(name)
        return value if isinstance(value, tuple) else ()

    def flag(self, name: str) -> bool | None:
        """A truth value; None when it was not given."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else None

    def number(self, name: str) -> int | None:
        """A number; None when it was not given."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def conditions(self, name: str) -> tuple[Comparison, ...]:
        """A filter's comparisons; empty when it was not given."""
        value = self.values.get(name)
        return value.comparisons if isinstance(value, Conditions) else ()

    def changes(self, name: str) -> Changes | None:
        """Changes of a list; None when it was not given."""
        value = self.values.get(name)
        return value if isinstance(value, Changes) else None


def bind(parameters: Sequence[Parameter], command: Command, text: str) -> Bound:
    """The values for `parameters`. Raises `LanguageError` at the element that does not fit."""
    values: dict[str, Bindable] = {}
    elements = list(command.elements)
    loose: list[Positional] = []
    while elements:
        element = elements.pop(0)
        if isinstance(element, Positional):
            loose.append(element)
            continue
        parameter = find_parameter(parameters, element.name, text, element.offset)
        if parameter.name in values:
            raise LanguageError(f"-{parameter.name} is given twice", text, element.offset)
        values[parameter.name] = _value_of(parameter, element, elements, text)
    _bind_positions(parameters, command, loose, values, text)
    return Bound(values)


def _value_of(parameter: Parameter, named: Named, rest: list[Named | Positional], text: str) -> Bindable:
    """The value of a parameter that was named; taken from `rest` when it follows."""
    if parameter.kind is Kind.SWITCH:
        if named.has_value:
            return _converted(parameter, named.value, text, named.offset)
        if rest and isinstance(rest[0], Positional) and isinstance(rest[0].value, bool):
            word = "$true" if rest[0].value else "$false"
            raise LanguageError(f"write -{parameter.name}:{word}, with a colon", text, rest[0].offset)
        return True
    if named.has_value:
        return _converted(parameter, named.value, text, named.offset)
    if rest and isinstance(rest[0], Positional):
        following = rest.pop(0)
        assert isinstance(following, Positional)
        return _converted(parameter, following.value, text, following.offset)
    raise LanguageError(f"-{parameter.name} takes {_what(parameter)}", text, named.offset)


def _bind_positions(
    parameters: Sequence[Parameter],
    command: Command,
    loose: list[Positional],
    values: dict[str, Bindable],
    text: str,
) -> None:
    free = sorted((p for p in parameters if p.position is not None and p.name not in values), key=_position)
    for element in loose:
        if not free:
            raise LanguageError(f"{command.name} takes no value here without a parameter's name", text, element.offset)
        parameter = free.pop(0)
        values[parameter.name] = _converted(parameter, element.value, text, element.offset)


def _position(parameter: Parameter) -> int:
    return parameter.position or 0


def find_parameter(parameters: Sequence[Parameter], name: str, text: str, offset: int) -> Parameter:
    """The parameter that `name` means: its name, an alias, or the beginning of exactly one. Raises `LanguageError`."""
    wanted = name.casefold()
    for parameter in parameters:
        if wanted in {word.casefold() for word in (parameter.name, *parameter.aliases)}:
            return parameter
    found = [p for p in parameters if p.name.casefold().startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"-{p.name}" for p in found)
        raise LanguageError(f"-{name} may be any of {names}: write more of it", text, offset)
    names = ", ".join(f"-{p.name}" for p in parameters) or "none"
    raise LanguageError(f"there is no parameter -{name} here; there are {names}", text, offset)


def _converted(parameter: Parameter, value: Value, text: str, offset: int) -> Bindable:
    """`value` as the parameter's kind. Raises `LanguageError`."""
    if value is None and parameter.null:
        return None
    converted = _CONVERTERS[parameter.kind](value)
    if converted is None:
        raise LanguageError(f"-{parameter.name} takes {_what(parameter)}", text, offset)
    if parameter.words:
        return _words(parameter, converted, text, offset)
    return converted


def _words(parameter: Parameter, value: Bindable, text: str, offset: int) -> Bindable:
    spelled = {word.casefold(): word for word in parameter.words}
    given = value if isinstance(value, tuple) else (str(value),)
    for word in given:
        if word.casefold() not in spelled:
            raise LanguageError(f"-{parameter.name} takes {_what(parameter)}, not {word!r}", text, offset)
    found = tuple(spelled[word.casefold()] for word in given)
    return found if isinstance(value, tuple) else found[0]


def _what(parameter: Parameter) -> str:
    what = f"one of {', '.join(parameter.words)}" if parameter.words else parameter.kind.value
    return f"{what}, or $null" if parameter.null else what


def _text(value: Value) -> Bindable:
    return value if isinstance(value, str) else None


def _texts(value: Value) -> tuple[str, ...] | None:
    listed: tuple[Scalar, ...]
    if isinstance(value, str):
        listed = (value,)
    elif isinstance(value, tuple):
        listed = value
    else:
        return None
    texts = tuple(part for part in listed if isinstance(part, str))
    return texts if len(texts) == len(listed) else None


def _changes(value: Value) -> Bindable:
    if value is None:
        return Changes(new=())
    if not isinstance(value, Mapping):
        texts = _texts(value)
        return None if texts is None else Changes(new=texts)
    parts: dict[str, tuple[str, ...]] = {}
    for key, listed in value.items():
        texts = _texts(listed)
        if texts is None or key.lower() not in {"add", "remove"}:
            return None
        parts[key.lower()] = texts
    return Changes(add=parts.get("add", ()), remove=parts.get("remove", ()))


def _flag(value: Value) -> Bindable:
    if isinstance(value, str):
        return {"1": True, "0": False}.get(value)
    return value if isinstance(value, bool) else None


def _number(value: Value) -> Bindable:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
        return int(value)
    return None


def _block(value: Value) -> Bindable:
    return value if isinstance(value, Comparison) else None


def _filter(value: Value) -> Bindable:
    if isinstance(value, str):
        return parse_filter(value)
    return value if isinstance(value, Conditions) else None


_CONVERTERS = {
    Kind.TEXT: _text,
    Kind.TEXTS: _texts,
    Kind.CHANGES: _changes,
    Kind.FLAG: _flag,
    Kind.SWITCH: _flag,
    Kind.NUMBER: _number,
    Kind.BLOCK: _block,
    Kind.FILTER: _filter,
}

MAX_DIGITS = 9
"""Of a number; larger ones mean nothing here."""
