"""How changed TOML looks: blank lines and comments of a tomlkit document around tables that come and go.

tomlkit keeps what stands between two tables at the end of the first one. So a comment above a table belongs to the one
before it, and a key or table that is added must come before such a comment, not behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.items import AoT, Array, InlineTable, Item, Key, Table, Trivia

LINE_WIDTH = 110
"""A list of copies that would be longer is written with one copy a line."""

Body = list[tuple[Key | None, Item]]


def new_table(values: Mapping[str, Any]) -> Table:
    """A table with `values` in their order."""
    table = tomlkit.table()
    for key, value in values.items():
        table[key] = copies(value) if key == "copies" else inline(value) if isinstance(value, dict) else value
    return table


def inline(values: Mapping[str, Any]) -> InlineTable:
    """`{ a = 1, b = {} }`, with spaces as people write it."""
    parsed = tomlkit.parse(f"x = {_inline_text(values)}")["x"]
    assert isinstance(parsed, InlineTable)
    return parsed


def _inline_text(value: Any) -> str:  # noqa: ANN401 - any value of the file
    if not isinstance(value, dict):
        return str(tomlkit.item(value).as_string())
    text = ", ".join(f"{tomlkit.key(k).as_string()} = {_inline_text(v)}" for k, v in value.items())
    return f"{{ {text} }}" if text else "{}"


def copies(entries: Sequence[Mapping[str, Any]]) -> Array:
    """A list of inline tables: on one line while that is readable."""
    array = Array([], Trivia())
    for entry in entries:
        array.append(inline(entry))
    array.multiline(len(array.as_string()) > LINE_WIDTH)
    return array


def set_value(table: MutableMapping[str, Any], key: str, value: Any) -> None:  # noqa: ANN401 - any value of the file
    """Set a key; a new one comes behind the table's last key, before what stands above the next table."""
    if isinstance(value, dict):
        value = inline(value) if isinstance(table, Item) else value
    if key in table or not isinstance(table, Table):
        table[key] = value
        return
    body = table.value.body
    aside = _take_trailing(body)
    table[key] = value
    body.extend(aside)


def give_place(document: Container, table: Table) -> None:
    """After `table` was added: what stands at the end of the table before it belongs to what follows both."""
    before = _body_before(document, table)
    aside = _take_trailing(before) if before is not None else []
    table.value.body.extend(aside)


def keep_surroundings(document: Container, table: Table) -> None:
    """Before `table` is removed: what stands at its end, such as the next table's comment, goes to the one before."""
    before = _body_before(document, table)
    if before is not None:
        last = next(_bodies(table))
        _take_trailing(before, comments=False)
        before.extend(_take_trailing(last))


def with_blank_lines(text: str, before: str) -> str:
    """`text` with a blank line above each table, and its comment, that was put below another line by the change."""
    known = {(upper, lower) for _, upper, lower in _tight_heads(before)}
    lines = text.splitlines(keepends=True)
    for number, upper, lower in reversed(_tight_heads(text)):
        if (upper, lower) not in known:
            lines.insert(number, "\n")
    joined = "".join(lines)
    return joined if before.endswith("\n\n") else joined.rstrip("\n") + "\n"


def _tight_heads(text: str) -> list[tuple[int, str, str]]:
    """Where a table, or the comment above it, stands right below a line: its number, the line above, itself."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        if line.startswith("["):
            first = number
            while first and lines[first - 1].startswith("#"):
                first -= 1
            if first and lines[first - 1].strip():
                found.append((first, lines[first - 1], lines[first]))
    return found


def _take_trailing(body: Body, *, comments: bool = True) -> Body:
    """Takes blank lines, and with `comments` comments, from behind the last key."""
    end = len(body)
    while end and body[end - 1][0] is None and (comments or not body[end - 1][1].as_string().strip()):
        end -= 1
    taken = body[end:]
    del body[end:]
    return taken


def _body_before(document: Container, table: Table) -> Body | None:
    """What stands before `table` in the document; None for the first table."""
    found = False
    for body in _from_the_end(document):  # where a new table usually is
        if found:
            return body
        found = body is table.value.body
    return None


def _bodies(table: Table) -> Iterator[Body]:
    """The bodies of a table and those below it, as they follow each other in the text from its end."""
    yield from _from_the_end(table.value)
    if not table.is_super_table():  # that one has no line of its own
        yield table.value.body


def _from_the_end(container: Container) -> Iterator[Body]:
    for _, item in reversed(container.body):
        if isinstance(item, Table):
            yield from _bodies(item)
        elif isinstance(item, AoT):
            for entry in reversed(item.body):
                yield from _bodies(entry)
