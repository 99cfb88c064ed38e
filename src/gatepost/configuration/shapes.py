"""From a file's data to its table, with every fault of shape in plain words.

A faulty value does not hide the faults behind it: a neutral one takes its place (its default, or an empty one where a
value is required), and the rest of the file is still judged. `Shaped.faulty` are the places where that happened, so
that what only follows from them can be left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gatepost.configuration.tables import Table
from gatepost.configuration.words import FAULT
from gatepost.organization.faults import Path, error, nearest, quoted
from gatepost.organization.model import Finding

T = TypeVar("T", bound=Table)

MAX_ROUNDS = 6
"""A replaced value can only uncover faults one level up; the tables are not nested deeper than this."""

_KINDS = {
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "list_type": "must be a list in brackets",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "make it {} or more"),
    "less_than_equal": ("le", "make it {} or less"),
    "greater_than": ("gt", "make it more than {}"),
    "less_than": ("lt", "make it less than {}"),
}


@dataclass
class Shaped(Generic[T]):
    """What came of a file's data: its table (None when it is beyond repair) and its faults."""

    table: T | None
    findings: list[Finding] = field(default_factory=list)
    faulty: set[Path] = field(default_factory=set)


def shape(kind: type[T], data: dict[str, Any]) -> Shaped[T]:
    """`data` as a table of `kind`; never raises."""
    shaped: Shaped[T] = Shaped(None)
    for _ in range(MAX_ROUNDS):
        try:
            shaped.table = kind.model_validate(data)
        except ValidationError as failure:
            faults = failure.errors(include_url=False, include_input=False)
        else:
            break
        if not shaped.findings:
            data = copy.deepcopy(data)  # the caller's stays as the operator wrote it
        # Unknown keys first: a key that is missing because it is misspelt is one fault, not two.
        for details in sorted(faults, key=lambda details: details["type"] != "extra_forbidden"):
            _record(shaped, kind, data, details)
        # Entries are removed from the end, so that the numbers of those before stay true.
        for path in sorted(map(_path, faults), key=_number, reverse=True):
            _neutralise(kind, data, path)
    return shaped


def _path(details: ErrorDetails) -> Path:
    return tuple(part for part in details["loc"] if part != "[key]")


def _number(path: Path) -> int:
    return path[-1] if path and isinstance(path[-1], int) else -1


def _record(shaped: Shaped[T], kind: type[Table], data: dict[str, Any], details: ErrorDetails) -> None:
    """Report a fault, unless it only follows from a value that was replaced."""
    path = _path(details)
    if any(path[:length] in shaped.faulty for length in range(len(path) + 1)):
        return
    shaped.faulty.add(path)
    if details["type"] == "extra_forbidden" and (meant := _meant(kind, path)) is not None:
        shaped.faulty.add((*path[:-1], meant))
    message, remedy = _words(kind, path, details)
    shaped.findings.append(error(path, object_name(path, data), message, remedy))


def _words(kind: type[Table], path: Path, details: ErrorDetails) -> tuple[str, str]:
    """Message and remedy for one fault of shape."""
    name, context, code = _name(path), details.get("ctx", {}), details["type"]
    if code == FAULT:
        return f"{name} {context['message']}", str(context["remedy"])
    if code == "missing":
        return f"{name} is missing", f"add {_example(kind, path)}"
    if code == "extra_forbidden":
        return f"unknown key {name}", _known_keys(kind, path)
    if code in _BOUNDS:
        bound, remedy = _BOUNDS[code]
        return f"{name} is out of range", remedy.format(f"{context[bound]:.12g}" if bound in context else "that")
    return f"{name} {_KINDS.get(code, 'is not a value that fits here')}", f"for example {_example(kind, path)}"


def _name(path: Path) -> str:
    if path and isinstance(path[-1], int):
        return f"entry {path[-1] + 1} of {quoted(path[-2])}" if len(path) > 1 else "the entry"
    return quoted(path[-1]) if path else "the file"


def _example(kind: type[Table], path: Path) -> str:
    """The key as it could stand in the file."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    parent = _table_at(kind, path[:-1])
    info = parent.model_fields.get(str(path[-1])) if parent and path else None
    if info is not None and info.examples:
        return f"{path[-1]} = {info.examples[0]}"
    header = ".".join(str(part) for part in path)
    return f"[[{header}]]" if info is not None and get_origin(info.annotation) is list else f"[{header}]"


def _known_keys(kind: type[Table], path: Path) -> str:
    parent, meant = _table_at(kind, path[:-1]), _meant(kind, path)
    if parent is None:
        return "remove it"
    keys = ", ".join(parent.model_fields)
    return f'did you mean "{meant}"? Keys here are: {keys}' if meant else f"keys here are: {keys}"


def _meant(kind: type[Table], path: Path) -> str | None:
    """The key that the unknown one at `path` probably was to be."""
    parent = _table_at(kind, path[:-1])
    return nearest(str(path[-1]), parent.model_fields) if parent else None


def _annotation_at(kind: type[Table], path: Path) -> Any:  # noqa: ANN401 - annotations have no common type
    """The type of what stands at `path`, None where nothing is known."""
    annotation: Any = kind
    for part in path:
        if get_origin(annotation) in {list, dict}:
            annotation = get_args(annotation)[-1]
        elif _is_table(annotation):
            info = annotation.model_fields.get(str(part))
            annotation = info.annotation if info else None
        else:
            return None
        if get_args(annotation)[1:] == (type(None),):
            annotation = get_args(annotation)[0]
    return annotation


def _is_table(annotation: Any) -> bool:  # noqa: ANN401
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _table_at(kind: type[Table], path: Path) -> type[BaseModel] | None:
    """The table class that stands at `path`."""
    annotation = _annotation_at(kind, path)
    return annotation if _is_table(annotation) else None


def _neutralise(kind: type[Table], data: dict[str, Any], path: Path) -> None:
    """Take the faulty value out; what must be there gets an empty value of its type."""
    holder: Any = data
    for part in path[:-1]:
        try:
            holder = holder[part]
        except (KeyError, IndexError, TypeError):
            return
    if not path or not isinstance(holder, dict | list):
        return
    last: Any = path[-1]
    parent = _table_at(kind, path[:-1])
    info = parent.model_fields.get(str(last)) if parent else None
    needed = info.is_required() if info else parent is None
    annotation = _annotation_at(kind, path)
    if needed and (_is_table(annotation) or isinstance(holder, dict)):
        # Entries that are tables stay, since findings point at them by their number.
        holder[last] = _empty(annotation)
    elif isinstance(holder, dict):
        holder.pop(last, None)
    elif last < len(holder):
        del holder[last]


def _empty(annotation: Any) -> str | list[Any] | dict[str, Any]:  # noqa: ANN401
    if get_origin(annotation) is list:
        return []
    return "" if annotation is str else {}


_WORDS = {
    "sites": "site", "site_links": "site link", "servers": "server", "databases": "database", "arrays": "array",
    "receive_connectors": "receive connector", "send_connectors": "send connector",
}  # fmt: skip


def object_name(path: Path, data: Mapping[str, Any]) -> str:
    """The object that `path` belongs to, as messages name it."""
    names = list(_object_parts(path, data))
    return " ".join(names) if names else "the file"


def _object_parts(path: Path, data: Mapping[str, Any]) -> Iterator[str]:
    match path:
        case (str(table), str(name), *_) if table in _WORDS:
            yield from (_WORDS[table], name)
        case ("virtual_directories", int(index), *_):
            entries = data.get("virtual_directories")
            entry = entries[index] if isinstance(entries, list) and index < len(entries) else None
            server = entry.get("server") if isinstance(entry, dict) else None
            yield f"virtual directory {index + 1}"
            if isinstance(server, str):
                yield f"of {server}"
        case ("front_end", *_):
            yield "front end"
        case ("organization", *_):
            yield "organization"
