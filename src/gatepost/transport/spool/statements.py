"""Statements for many rows at once: any number of rows is a few of a few sizes, and each text is prepared once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeVar

T = TypeVar("T")

SIZES = (64, 32, 16, 8, 4, 2, 1)
"""Rows of one statement."""


def parted(rows: Sequence[T]) -> list[Sequence[T]]:
    """In pieces of those sizes."""
    parts: list[Sequence[T]] = []
    at = 0
    for size in SIZES:
        while len(rows) - at >= size:
            parts.append(rows[at : at + size])
            at += size
    return parts


def flat(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The values of all rows, for the marks of a statement."""
    return list(chain.from_iterable(rows))


def listed(numbers: Sequence[int]) -> str:
    """For SQLite's `json_each`."""
    return f"[{','.join(map(str, numbers))}]"


@cache
def marks(columns: int, rows: int) -> str:
    """`(?,?),(?,?)`."""
    row = f"({','.join('?' * columns)})"
    return ",".join([row] * rows)


@cache
def inserted(table: str, columns: int, rows: int) -> str:
    """The statement that does it."""
    return f"INSERT INTO {table} VALUES {marks(columns, rows)}"  # noqa: S608 - names of ours
