"""What commands answer: objects with named properties, and how they read as a table, a list or JSON."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gatepost.configuration.findings import printable
from gatepost.shell.errors import ShellError

Cell = str | bool | int | None | tuple[str, ...]
"""A property's value."""

LIST_WHEN_MORE = 4
"""Chosen columns up to this number make a table, more a list: as in the source system."""


@dataclass(frozen=True, slots=True)
class Thing:
    """An object of a pipeline. `columns` are the properties of its usual table; names ignore case."""

    kind: str
    properties: Mapping[str, Cell]
    columns: tuple[str, ...] = ()

    def name_of(self, name: str) -> str | None:
        """The property that `name` means, as it is spelled; None when there is none."""
        return next((known for known in self.properties if known.casefold() == name.casefold()), None)

    def get(self, name: str) -> Cell:
        """The value of a property. Raises `ShellError` when there is none of this name."""
        known = self.name_of(name)
        if known is None:
            raise ShellError(f"{self.kind} has no property {name!r}; it has {', '.join(self.properties)}")
        return self.properties[known]

    def select(self, patterns: Sequence[str]) -> Thing:
        """The thing with the properties that `patterns` name, in their order; `*` stands for any characters.

        Raises `ShellError` when a pattern fits none.
        """
        chosen: dict[str, Cell] = {}
        for pattern in patterns:
            fitting = [n for n in self.properties if fnmatch.fnmatchcase(n.casefold(), pattern.casefold())]
            if not fitting:
                self.get(pattern)
            chosen |= {name: self.properties[name] for name in fitting}
        return Thing(self.kind, chosen, tuple(chosen))


@dataclass(frozen=True, slots=True)
class Text:
    """What a formatting command answers: text that is printed as it is."""

    text: str


def shown(value: Cell) -> str:
    """A value in a table or list; lists as `{a, b}`, nothing for null."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "{" + ", ".join(printable(part) for part in value) + "}"
    return printable(str(value))


def table(things: Sequence[Thing], patterns: Sequence[str] = ()) -> str:
    """A table with a line of dashes below its header. A thing that lacks a column leaves it empty."""
    if not things:
        return ""
    columns = _columns(things, patterns)
    rows = [[_cell(thing, column) for column in columns] for thing in things]
    widths = [max(len(column), *(len(row[n]) for row in rows)) for n, column in enumerate(columns)]
    lines = [columns, ["-" * len(column) for column in columns], *rows]
    text = "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
    return f"\n{text}\n"


def listing(things: Sequence[Thing], patterns: Sequence[str] = ()) -> str:
    """Each thing with one property a line."""
    blocks = []
    for thing in things:
        chosen = thing.select(patterns) if patterns else thing
        width = max((len(name) for name in chosen.properties), default=0)
        blocks.append("\n".join(f"{n.ljust(width)} : {shown(v)}".rstrip() for n, v in chosen.properties.items()))
    return "".join(f"\n{block}\n" for block in blocks)


def as_json(things: Sequence[Thing], *, always_list: bool, compact: bool = False) -> str:
    """JSON: an object for one thing (unless `always_list`), else an array of objects."""
    data = [dict(thing.properties) for thing in things]
    value = data[0] if len(data) == 1 and not always_list else data
    return json.dumps(value, ensure_ascii=False, indent=None if compact else 2)


def usual(things: Sequence[Thing]) -> str:
    """How things are printed where no formatting command is: a table for each kind, by its usual columns."""
    text = ""
    run: list[Thing] = []
    for thing in [*things, None]:
        if run and (thing is None or (thing.kind, thing.columns) != (run[0].kind, run[0].columns)):
            columns = run[0].columns
            text += listing(run, columns) if len(columns) > LIST_WHEN_MORE + 2 else table(run, columns)
            run = []
        if thing is not None:
            run.append(thing)
    return text


def _columns(things: Sequence[Thing], patterns: Sequence[str]) -> list[str]:
    chosen: dict[str, None] = {}
    for thing in things:
        names = thing.select(patterns).properties if patterns else (thing.columns or tuple(thing.properties))
        chosen |= dict.fromkeys(names)
    return list(chosen)


def _cell(thing: Thing, column: str) -> str:
    return shown(thing.properties.get(column))
