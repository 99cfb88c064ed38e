"""Writes the configuration of a lab as TOML: nested tables of plain values, in the order they were given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Table = dict[str, Any]
"""Keys to strings, numbers, booleans, moments, lists and tables."""


def toml_text(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """`table` as TOML. A table whose values are all plain and that is more than two levels deep is written inline."""
    plain = {key: value for key, value in table.items() if not _is_section(value, len(path))}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    if path and (lines or not table):
        lines.insert(0, f"\n[{'.'.join(map(_key, path))}]")
    parts = ["\n".join(lines)] if lines else []
    for key, value in table.items():
        if isinstance(value, Mapping) and key not in plain:
            parts.append(toml_text(value, (*path, key)))
        elif key not in plain:
            head = f"\n[[{'.'.join(map(_key, (*path, key)))}]]"
            parts += ["\n".join([head, *(f"{_key(k)} = {_value(v)}" for k, v in item.items())]) for item in value]
    return "\n".join(parts) + ("" if path else "\n")


def _is_section(value: object, depth: int) -> bool:
    """Whether this becomes `[table]` or `[[table]]`: deeper ones, such as endpoints, read better on one line."""
    if isinstance(value, Mapping):
        return depth < 2 or any(isinstance(v, Mapping) for v in value.values())
    return depth == 0 and isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else json.dumps(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False)
