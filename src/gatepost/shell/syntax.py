"""What a text of the shell consists of. Immutable; made by `parser.parse`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Scalar = str | bool | None
"""`$true`, `$false`, `$null` and everything else as text: a parameter's kind says what a number is."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`{ $_.Server -eq "CAS-01" }`. `operator` is in lower case without its dash.

    Without an operator (`{ $_.BasicAuthentication }`) it is empty, or `not` after a `-not` or `!`.
    """

    property: str
    operator: str
    value: Scalar | tuple[Scalar, ...] = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """`{ Status -eq "Retry" -and MessageCount -gt 10 }`: what a `-Filter` takes. All of them must fit."""

    comparisons: tuple[Comparison, ...]


Value = Scalar | tuple[Scalar, ...] | Mapping[str, Scalar | tuple[Scalar, ...]] | Comparison | Conditions
"""A single value, a list (`"a","b"` or `@("a","b")`), a hash table (`@{Add="a"}`), a script block or a filter."""


@dataclass(frozen=True, slots=True)
class Named:
    """`-Name` alone (`has_value` false) or `-Name:value`. Whether what follows is its value is for `binding` to say."""

    name: str
    offset: int
    value: Value = None
    has_value: bool = False


@dataclass(frozen=True, slots=True)
class Positional:
    """A value: of the parameter before it, or by its position."""

    value: Value
    offset: int


@dataclass(frozen=True, slots=True)
class Command:
    """A cmdlet's name with what follows it."""

    name: str
    elements: tuple[Named | Positional, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Statement:
    """Commands joined by `|`; `text` is the whole text they were read from, for error messages."""

    commands: tuple[Command, ...]
    text: str
