"""Parameters that are one key of the file each: how a cmdlet takes them, writes them and shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from gatepost.configuration.editing import Plain
from gatepost.organization.transport_text import read_size, read_span, size_shown, size_text, span_text
from gatepost.shell.binding import Bound, Changes, Kind, Parameter
from gatepost.shell.errors import ShellError
from gatepost.shell.things import Cell

V = TypeVar("V")
Keys = dict[str, Plain | None]


class Form(Enum):
    """What a setting is."""

    TEXT = "text"
    FLAG = "flag"
    NUMBER = "number"
    SIZE = "size"
    SPAN = "span"


_KINDS = {Form.FLAG: Kind.FLAG, Form.NUMBER: Kind.NUMBER}
_HINTS = {Form.SIZE: " Such as 35MB.", Form.SPAN: " As dd.hh:mm:ss."}


@dataclass(frozen=True, slots=True)
class Setting:
    """One parameter with the source system's name, and its key in the file. `$null` brings the default back."""

    name: str
    key: str
    form: Form
    help: str
    aliases: tuple[str, ...] = ()

    @property
    def parameter(self) -> Parameter:
        """As a cmdlet has it."""
        text = f"{self.help}{_HINTS.get(self.form, '')}"
        return Parameter(self.name, _KINDS.get(self.form, Kind.TEXT), text, null=True, aliases=self.aliases)

    def written(self, bound: Bound) -> Plain | None:
        """The value for the file. Raises `ShellError`."""
        if bound.values[self.name] is None:
            return None
        if self.form is Form.FLAG:
            return bool(bound.flag(self.name))
        if self.form is Form.NUMBER:
            return bound.number(self.name)
        text = bound.text(self.name) or ""
        if self.form is Form.SIZE:
            return size_text(understood(read_size, text, self.name))
        return span_text(understood(read_span, text, self.name)) if self.form is Form.SPAN else text

    def shown(self, value: object) -> Cell:
        """The value as an object's property."""
        if self.form is Form.SIZE and isinstance(value, int):
            return size_shown(value)
        if self.form is Form.SPAN and isinstance(value, int | float):
            return span_text(value)
        return value if isinstance(value, str | int | bool) else str(value)


def parameters(settings: Sequence[Setting]) -> tuple[Parameter, ...]:
    """Those of a cmdlet."""
    return tuple(setting.parameter for setting in settings)


def changed(settings: Sequence[Setting], bound: Bound) -> Keys:
    """The keys of the settings that were given. Raises `ShellError`."""
    return {setting.key: setting.written(bound) for setting in settings if setting.name in bound}


def properties(settings: Sequence[Setting], thing: object) -> dict[str, Cell]:
    """What `thing`, a value of the organization, says of them."""
    return {setting.name: setting.shown(getattr(thing, setting.key)) for setting in settings}


def understood(read: Callable[[str], V], text: str, name: str) -> V:
    """`text` of the parameter `name` as `read` understands it. Raises `ShellError`."""
    try:
        return read(text)
    except ValueError as fault:
        raise ShellError(f"-{name}: {text!r} {fault}") from fault


def listed(
    bound: Bound, name: str, old: Sequence[V], read: Callable[[str], V], write: Callable[[V], str]
) -> list[str] | None:
    """A list after the changes that the parameter asks for, as the file has it; None when it was not given.

    What is added and removed is understood before it is compared. Raises `ShellError`.
    """
    changes = bound.changes(name)
    if changes is None:
        return None

    def normal(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(write(understood(read, text, name)) for text in texts)

    new = None if changes.new is None else normal(changes.new)
    return list(Changes(new, normal(changes.add), normal(changes.remove)).apply([write(each) for each in old]))


def words(bound: Bound, name: str, meaning: Mapping[str, str]) -> list[str] | None:
    """A list of words as the file has them; None when it was not given. `None` is the empty list.

    As in the source system, they may stand in one text with commas. Raises `ShellError`.
    """
    if name not in bound:
        return None
    given = [word.strip() for text in bound.texts(name) for word in text.split(",") if word.strip()]
    by_fold = {word.casefold(): value for word, value in meaning.items()}
    found: list[str] = []
    for word in given:
        if word.casefold() == "none" and len(given) == 1:
            return []
        if word.casefold() not in by_fold:
            raise ShellError(f"-{name} takes {', '.join(meaning)} or None, not {word!r}")
        found.append(by_fold[word.casefold()])
    return list(dict.fromkeys(found))


def spelled(values: frozenset[V], meaning: Mapping[str, str]) -> tuple[str, ...]:
    """The source system's words for what the file says, in their order."""
    return tuple(word for word, value in meaning.items() if value in {str(each) for each in values})
