"""Whose requests give way when something scarce is all in use, and others wait for it (SPEC B4).

Turns in the queue are no help against one user who holds everything for an hour, with uploads that stand still.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

PARTS = 10
"""One part in ten is what a user can hold whatever happens: a program that works for many mailboxes needs some hundred
of 2000 connections."""
SMALL_SHARE = 10
"""Where a tenth is less than what one browser and two phones hold: this, or half of a very small bound."""


def share_of(limit: int) -> int:
    """How many of `limit` one user keeps while others wait."""
    return max(limit // PARTS, min(SMALL_SHARE, limit // 2), 1)


def giving_way(held: Mapping[str, Sequence[T]], waiting: Iterable[str], limit: int) -> list[T]:
    """Which of the things `held`, by user, must be given up for the users who wait (one entry for each wait).

    Whoever holds more than their share gives up the last of it, those with most first, one for each who waits and
    holds less than a share.
    """
    share = share_of(limit)
    needed = sum(len(held.get(user, ())) < share for user in waiting)
    given: list[T] = []
    for things in sorted(held.values(), key=len, reverse=True):
        more = min(len(things) - share, needed - len(given))
        if more <= 0:
            break
        given += things[-more:]
    return given
