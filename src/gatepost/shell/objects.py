"""Cmdlets that look at, choose from and print whatever comes by the pipeline, and help."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from operator import ge, gt, le, lt

from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Cmdlets, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.syntax import Comparison, Scalar
from gatepost.shell.things import Cell, Text, Thing, as_json, listing, shown, table

ALIASES = {
    "ft": "Format-Table",
    "fl": "Format-List",
    "select": "Select-Object",
    "where": "Where-Object",
    "?": "Where-Object",
    "gcm": "Get-Command",
    "help": "Get-Help",
}

MAX_PATTERN = 1000
"""Characters of a regular expression."""


def object_cmdlets(all_of_them: Callable[[], Cmdlets]) -> list[Cmdlet]:
    """The cmdlets; `all_of_them` answers the whole table once it is made."""
    chosen = Parameter("Property", Kind.TEXTS, "The properties to show; * stands for any characters.", 0)
    return [
        Cmdlet("Format-Table", "Print objects as a table.", _format_table, (chosen,)),
        Cmdlet("Format-List", "Print objects with one property a line.", _format_list, (chosen,)),
        Cmdlet(
            "Select-Object",
            "Choose properties, or the first objects.",
            _select,
            (
                chosen,
                Parameter("First", Kind.NUMBER, "Only so many objects."),
                Parameter("ExpandProperty", Kind.TEXT, "Print this property's values alone."),
            ),
        ),
        Cmdlet("Where-Object", "Choose objects by one comparison.", _where, _WHERE),
        Cmdlet(
            "ConvertTo-Json",
            "Print objects as JSON.",
            _convert,
            (
                Parameter("Compress", Kind.SWITCH, "On one line."),
                Parameter("AsArray", Kind.SWITCH, "An array for one object too."),
            ),
        ),
        Cmdlet(
            "Get-Command",
            "List the commands.",
            lambda invocation: _commands(invocation, all_of_them()),
            (Parameter("Name", Kind.TEXT, "Only these; * stands for any characters.", 0),),
        ),
        Cmdlet(
            "Get-Help",
            "Describe a command.",
            lambda invocation: _help(invocation, all_of_them()),
            (Parameter("Name", Kind.TEXT, "The command.", 0),),
        ),
    ]


_WHERE = (Parameter("FilterScript", Kind.BLOCK, 'A comparison: { $_.Server -eq "CAS-01" }.', 0, required=True),)


def _things(invocation: Invocation) -> tuple[Thing, ...]:
    if invocation.given is None:
        raise ShellError("this goes behind a | after a command that answers objects")
    return invocation.given


def _format_table(invocation: Invocation) -> Iterator[Output]:
    yield Text(table(_things(invocation), invocation.bound.texts("Property")))


def _format_list(invocation: Invocation) -> Iterator[Output]:
    yield Text(listing(_things(invocation), invocation.bound.texts("Property")))


def _select(invocation: Invocation) -> Iterator[Output]:
    things = _things(invocation)[: invocation.bound.number("First")]
    expanded = invocation.bound.text("ExpandProperty")
    if expanded is not None:
        values = [thing.get(expanded) for thing in things]
        lines = [line for value in values for line in (value if isinstance(value, tuple) else (shown(value),))]
        yield Text("".join(f"{shown(line)}\n" for line in lines))
        return
    patterns = invocation.bound.texts("Property")
    yield from (thing.select(patterns) if patterns else thing for thing in things)


def _convert(invocation: Invocation) -> Iterator[Output]:
    bound = invocation.bound
    text = as_json(_things(invocation), always_list=bool(bound.flag("AsArray")), compact=bool(bound.flag("Compress")))
    yield Text(f"{text}\n")


def _where(invocation: Invocation) -> Iterator[Output]:
    things = _things(invocation)
    comparison = invocation.bound.values.get("FilterScript")
    if not isinstance(comparison, Comparison):
        raise ShellError('a comparison is needed: { $_.Server -eq "CAS-01" }')
    yield from (thing for thing in things if holds(comparison, thing.get(comparison.property)))


def holds(comparison: Comparison, cell: Cell) -> bool:
    """Whether a property's value fits. Case makes no difference; of a list, one fitting part is enough.

    Raises `ShellError` for what is no regular expression.
    """
    if comparison.operator in {"", "not"}:
        return bool(cell) == (comparison.operator == "")
    negated = comparison.operator.startswith("not") or comparison.operator == "ne"
    operator = comparison.operator.removeprefix("not")
    cells: Sequence[Cell] = cell if isinstance(cell, tuple) else (cell,)
    if operator == "ne":
        operator = "eq"
    if operator == "contains":
        operator = "eq"
    values = comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)
    fits = _FITS.get(operator, _equal)
    return any(fits(part, value) for part in cells for value in values) != negated


def _equal(cell: Cell, value: Scalar) -> bool:
    if cell is None or value is None:
        return cell is None and value is None
    return str(cell).casefold() == str(value).casefold()


def _like(cell: Cell, value: Scalar) -> bool:
    return fnmatchcase(_text(cell).casefold(), _text(value).casefold())


def _match(cell: Cell, value: Scalar) -> bool:
    pattern = _text(value)
    if len(pattern) > MAX_PATTERN:
        raise ShellError(f"the regular expression has more than {MAX_PATTERN} characters")
    try:
        return re.search(pattern, _text(cell), re.IGNORECASE) is not None
    except (re.error, RecursionError, OverflowError) as fault:
        raise ShellError(f"{pattern!r} is no regular expression: {fault}") from fault


def _text(value: Cell) -> str:
    return "" if value is None else str(value)


def _order(compare: Callable[[float, float], bool]) -> Callable[[Cell, Scalar], bool]:
    def fits(cell: Cell, value: Scalar) -> bool:
        try:
            wanted = float(_text(value))
        except ValueError as fault:
            raise ShellError(f"{_text(value)!r} is no number, and only numbers have an order here") from fault
        try:
            return compare(float(_text(cell)), wanted)
        except ValueError:
            return False

    return fits


_FITS: dict[str, Callable[[Cell, Scalar], bool]] = {
    "eq": _equal,
    "in": _equal,
    "like": _like,
    "match": _match,
    "gt": _order(gt),
    "ge": _order(ge),
    "lt": _order(lt),
    "le": _order(le),
}


def _commands(invocation: Invocation, cmdlets: Cmdlets) -> Iterator[Output]:
    pattern = (invocation.bound.text("Name") or "*").casefold()
    for name in cmdlets.names:
        if fnmatchcase(name.casefold(), pattern):
            yield Thing("Command", {"Name": name, "Summary": cmdlets.find(name).summary}, ("Name", "Summary"))


def _help(invocation: Invocation, cmdlets: Cmdlets) -> Iterator[Output]:
    name = invocation.bound.text("Name")
    if name is None:
        yield Text("Get-Command lists the commands, Get-Help NAME describes one.\n")
        return
    cmdlet = cmdlets.find(name)
    rows = []
    for parameter in cmdlet.parameters:
        takes = " | ".join(parameter.words) or parameter.kind.value
        values = {"Parameter": f"-{parameter.name}", "Takes": takes + (", $null" if parameter.null else "")}
        rows.append(Thing("Parameter", values | {"Meaning": parameter.help}))
    yield Text(f"\n{cmdlet.name}: {cmdlet.summary}\n{table(rows)}")
