"""From the keys that lead to a value to the line it stands on, so that every fault can point at the file.

`tomllib` reads values but forgets places; tree-sitter keeps places and never fails. It only serves messages: a place
that is not found falls back to the nearest table around it.
"""

from __future__ import annotations

import tomllib
from functools import cache

import tree_sitter_toml
from tree_sitter import Language, Node, Parser

Path = tuple[str | int, ...]

MAX_DEPTH = 64
"""Nested values beyond this have no place of their own; no table of ours is deeper than 6."""

_KEYS = {"bare_key", "quoted_key", "dotted_key"}


@cache
def _language() -> Language:
    return Language(tree_sitter_toml.language())


class Lines:
    """The lines of one file's keys, tables and array entries. `Lines(b"")` knows none."""

    def __init__(self, content: bytes) -> None:
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        for node in Parser(_language()).parse(content).root_node.named_children:
            self._statement(node)

    def of(self, path: Path) -> int:
        """The line (from 1) of `path` or of the nearest place around it; 0 when nothing of it is in the file."""
        for length in range(len(path), 0, -1):
            line = self._lines.get(path[:length])
            if line is not None:
                return line
        return 0

    def _statement(self, node: Node) -> None:
        if node.type == "pair":
            self._pair(node, (), 0)
        if node.type not in {"table", "table_array_element"}:
            return
        key, pairs = _key_and_rest(node)
        if key is None:
            return
        base = self._inside_last_entries(_names(key))
        if node.type == "table_array_element":
            count = self._counts.get(base, 0)
            self._counts[base] = count + 1
            base = (*base, count)
        for length in range(1, len(base) + 1):  # [a.b.c] is the place of a and a.b too, if they have no other
            self._note(base[:length], node)
        for pair in pairs:
            if pair.type == "pair":
                self._pair(pair, base, 0)

    def _inside_last_entries(self, names: Path) -> Path:
        """`names` with the index of the last entry after each array of tables (but not after the last name)."""
        base: Path = ()
        for name in names:
            if base in self._counts:
                base = (*base, self._counts[base] - 1)
            base = (*base, name)
        return base

    def _pair(self, node: Node, base: Path, depth: int) -> None:
        key, rest = _key_and_rest(node)
        if key is None:
            return
        for name in _names(key):
            base = (*base, name)
            self._note(base, node)
        for value in rest:
            self._value(value, base, depth + 1)

    def _value(self, node: Node, base: Path, depth: int) -> None:
        if depth > MAX_DEPTH:
            return
        if node.type == "inline_table":
            for child in node.named_children:
                if child.type == "pair":
                    self._pair(child, base, depth)
        elif node.type == "array":
            entries = [child for child in node.named_children if child.type not in {"comment", "ERROR"}]
            for index, child in enumerate(entries):
                self._note((*base, index), child)
                self._value(child, (*base, index), depth + 1)

    def _note(self, path: Path, node: Node) -> None:
        self._lines.setdefault(path, node.start_point[0] + 1)


def _key_and_rest(node: Node) -> tuple[Node | None, list[Node]]:
    children = node.named_children
    for index, child in enumerate(children):
        if child.type in _KEYS:
            return child, children[index + 1 :]
    return None, []


def _names(key: Node) -> Path:
    """The names in a key; a quoted one is read as TOML reads it."""
    if key.type == "dotted_key":
        return tuple(name for child in key.named_children if child.type in _KEYS for name in _names(child))
    text = (key.text or b"").decode("utf-8", "replace")
    if key.type == "quoted_key":
        try:
            return tuple(tomllib.loads(f"{text} = 0"))
        except ValueError:
            return (text,)
    return (text,)
