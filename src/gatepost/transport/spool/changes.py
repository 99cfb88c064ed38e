"""What is asked of the spool's database, one thing at a time, and how a group is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from gatepost.transport.spool.aside import Moves, Rows
from gatepost.transport.spool.database import Group


class Kind(Enum):
    """What is asked of the thread."""

    COMMIT = auto()
    UPDATE = auto()
    REMOVE = auto()
    PUT = auto()
    QUARANTINE = auto()
    RESUME = auto()
    FORGET = auto()
    KEEP = auto()
    """A new message that is not queued."""
    SET_ASIDE = auto()
    TAKE_BACK = auto()
    LET_GO = auto()
    EXPIRE = auto()
    DISCARDS = auto()
    """Discard events, noted or forgotten."""
    PROBE = auto()
    """Nothing, to see whether the disk is well."""
    RESERVE = auto()
    """Make the reserve anew, if it is gone."""
    STOP = auto()


@dataclass(slots=True, eq=False)
class Change:
    """One thing to write. `blob` is the envelope or the fact's value, `body` a small content, `size` a large one's."""

    kind: Kind
    future: asyncio.Future[Any] | None = None
    number: int = 0
    blob: bytes | None = None
    body: bytes | None = None
    size: int = 0
    crc: int = 0
    """Of a large content."""
    text: str = ""
    """A fact's name, or the reason of a quarantine."""


@dataclass(slots=True, eq=False)
class Move(Change):
    """A change that concerns what is kept beside the queue (`aside.Moves`)."""

    rows: Rows = field(default_factory=Rows)
    """For what a message is kept."""
    keys: Sequence[tuple[int, str]] = ()
    """Number and key of what nothing is kept of any more."""
    expire: tuple[float, int] | None = None
    discards: dict[tuple[str, str], tuple[int, bytes] | None] = field(default_factory=dict)
    weight: int = 2
    """How many removals change as many pages."""


NEW = frozenset({Kind.COMMIT, Kind.KEEP})
"""Messages that are refused when the disk does not take them: who sent them still has them."""

_STEPS = {Kind.UPDATE: 1, Kind.TAKE_BACK: 2, Kind.SET_ASIDE: 3, Kind.LET_GO: 4}
"""The order in which a group is done. New messages are first, all else is last."""
_LAST = 5


def grouped(changes: Iterable[Change]) -> Group:
    """One group; others follow it where a message is asked to go back on its way."""
    group = first = Group()
    moved: dict[int, int] = {}
    for change in changes:
        if moved or isinstance(change, Move):
            step = _STEPS.get(change.kind, 0 if change.kind in NEW else _LAST)
            numbers = (
                [number for number, _ in change.keys] if isinstance(change, Move) and change.keys else (change.number,)
            )
            if any(moved.get(number, 0) > step for number in numbers):
                group.then = group = Group()
                moved.clear()
            if 1 < step < _LAST:
                moved |= dict.fromkeys(numbers, step)
        _add(group, change)
    return first


def _add(group: Group, change: Change) -> None:
    match change.kind:
        case Kind.COMMIT:
            group.messages.append((change.number, change.blob or b""))
            _add_content(group, change)
        case Kind.UPDATE:
            group.updates[change.number] = change.blob or b""
        case Kind.REMOVE:
            group.removals.append(change.number)
        case Kind.PUT:
            group.facts[change.text] = change.blob
        case Kind.QUARANTINE:
            group.quarantined.append((change.number, change.text))
        case Kind.RESUME:
            group.resumed.append(change.number)
        case Kind.FORGET:
            group.forgotten.append(change.number)
        case _ if isinstance(change, Move):
            _add_move(group, change)
        case _:
            group.probed = True


def _add_content(group: Group, change: Change) -> None:
    if change.body is None:
        group.files.append((change.number, change.size, change.crc))
    else:
        group.contents.append((change.number, change.body))


def _add_move(group: Group, move: Move) -> None:
    moves = group.moves
    if moves is None:
        moves = group.moves = Moves()
    match move.kind:
        case Kind.KEEP:
            _add_content(group, move)
            moves.new.append((move.number, move.blob or b""))
            moves.new_rows.append(move.rows)
        case Kind.SET_ASIDE:
            moves.set_aside[move.number] = (move.blob or b"", move.rows)
        case Kind.TAKE_BACK:
            moves.taken_back[move.number] = move.blob or b""
        case Kind.LET_GO:
            moves.let_go += move.keys
        case Kind.EXPIRE:
            moves.expire = move.expire
        case _:
            moves.discards.update(move.discards)
