"""Mailbox databases and their copies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatabaseCopy:
    """One copy of a database. `preference` is its activation preference, 1 is the first choice."""

    server: str
    preference: int


@dataclass(frozen=True, slots=True)
class Database:
    """A mailbox database with its copies, in order of activation preference."""

    name: str
    copies: tuple[DatabaseCopy, ...]

    def has_copy_on(self, server: str) -> bool:
        """Whether `server` holds a copy."""
        return any(copy.server == server for copy in self.copies)
