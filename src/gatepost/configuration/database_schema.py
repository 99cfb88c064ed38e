"""The shape of `[databases.NAME]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gatepost.configuration.tables import MAX_COUNT, Table


class CopyTable(Table):
    """One copy of a database."""

    server: str = Field(examples=['"MBX-01"'])
    """The mailbox server that holds it."""
    preference: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = Field(default=None, examples=["1"])
    """Activation preference, 1 is the first choice. Default: its place in the list."""


class DatabaseTable(Table):
    """A mailbox database. The table's name is the database's."""

    copies: list[CopyTable] = Field(examples=['[{ server = "MBX-01", preference = 1 }]'])
    """Its copies. Each has the keys `server` and `preference`."""
