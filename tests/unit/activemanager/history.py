"""The history checker: reads a registry's log, in the registry's order, and names what must never be in one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """`what`: taken, kept, given back (a lease), activated. Times by the registry's clock."""

    time: float
    what: str
    holder: str = ""
    term: int = 0
    seconds: float = 0.0
    database: str = ""
    server: str = ""
    epoch: int = 0
    sound: bool = True
    """Whether the server was neither blocked nor draining for long."""


def violations(log: list[Entry]) -> list[str]:
    """Everything in the log that breaks a promise."""
    found: list[str] = []
    epochs: dict[str, int] = {}
    term, holder, until = 0, "", float("-inf")
    for entry in log:
        if entry.what == "taken":
            if entry.time < until:
                found.append(f"{entry.time:.2f}: term {entry.term} began while {holder} held term {term}")
            if entry.term <= term:
                found.append(f"{entry.time:.2f}: term {entry.term} after term {term}")
            term, holder, until = entry.term, entry.holder, entry.time + entry.seconds
        elif entry.what == "kept":
            if (entry.term, entry.holder) != (term, holder) or entry.time >= until:
                found.append(f"{entry.time:.2f}: {entry.holder} kept term {entry.term}, which had ended")
            until = entry.time + entry.seconds
        elif entry.what == "given back":
            until = min(until, entry.time) if entry.term == term else until
        elif entry.what == "activated":
            before = epochs.get(entry.database, 0)
            if entry.epoch != before + 1:
                found.append(f"{entry.time:.2f}: {entry.database} went from epoch {before} to {entry.epoch}")
            epochs[entry.database] = entry.epoch
            if entry.term and (entry.term != term or entry.holder != holder or entry.time >= until):
                found.append(f"{entry.time:.2f}: {entry.holder} acted in term {entry.term}, which had ended")
            if entry.term and not entry.sound:
                found.append(f"{entry.time:.2f}: {entry.database} went to {entry.server}, which was no choice")
    return found
