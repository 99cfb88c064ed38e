"""How a database's copies stand, from one picture of the registry: for operators, and for choosing a move's target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gatepost.activemanager.asking import PROMOTING, REFUSED, copy_service, failed_services, is_of_copy
from gatepost.activemanager.port import Dial, Move, Observation, RegistryView, ServerWord
from gatepost.activemanager.selection import CopyFacts, Facts, Health
from gatepost.organization.model import Database, DatabaseCopy


@dataclass(frozen=True, slots=True)
class CopyStanding:
    """One copy. `failed` are protocols of its server that fail, `seen` those that were looked at by a manager."""

    server: str
    preference: int
    active: bool
    blocked: bool
    word: ServerWord
    failed: Mapping[str, str] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    note: Observation | None = None
    """What came of activating it, the last time a manager did."""

    @property
    def status(self) -> str:
        """The source system's word for it, as far as it can be known from outside of the server: `Mounted` for the
        active one; `ServiceDown` where its server fails; `Failed` where it could not be promoted; `Healthy` where its
        server answers; `Passive` where nobody looks."""
        if self.failed:
            return "ServiceDown"
        if self.active:
            return "Mounted"
        if self._fault.startswith(PROMOTING):
            return "Failed"
        return "Healthy" if self.seen else "Passive"

    @property
    def health(self) -> str:
        """In words: what was observed of it."""
        if self.failed:
            return ", ".join(f"{service} fails ({reason})" for service, reason in self.failed.items())
        if self._fault:
            return f"the last move failed: {self._fault}"
        return "healthy" if self.seen else "not observed"

    @property
    def _fault(self) -> str:
        """Why the last move to it came to nothing; not that it was refused before anything was tried."""
        if self.active or self.note is None or self.note.healthy or self.note.reason.startswith(f"{REFUSED}: "):
            return ""
        return self.note.reason


def copies_of(database: Database, view: RegistryView) -> list[CopyStanding]:
    """The copies in the order of preference."""
    active = view.active.get(database.name)
    return [_standing(database.name, copy, view, active.server if active else "") for copy in ordered(database)]


def ordered(database: Database) -> list[DatabaseCopy]:
    """The copies in the order of preference."""
    return sorted(database.copies, key=lambda copy: (copy.preference, copy.server))


def _standing(database: str, copy: DatabaseCopy, view: RegistryView, active: str) -> CopyStanding:
    return CopyStanding(
        copy.server,
        copy.preference,
        copy.server == active,
        (database, copy.server) in view.blocked,
        view.words.get(copy.server, ServerWord.UP),
        failed_services(view.observed, copy.server),
        frozenset(word for server, word in view.observed if server == copy.server and not is_of_copy(word)),
        view.observed.get((copy.server, copy_service(database))),
    )


def server_health(view: RegistryView, server: str) -> str:
    """What a manager sees of `server`, in words; empty where none looks."""
    failed = failed_services(view.observed, server)
    if failed:
        return ", ".join(f"{service} fails ({reason})" for service, reason in failed.items())
    return "healthy" if any(s == server and not is_of_copy(word) for s, word in view.observed) else ""


def facts_of(database: Database, view: RegistryView) -> Facts:
    """What decides on the target of a planned move. What a manager saw counts while one is there to see more."""
    active = view.active.get(database.name)
    copies = tuple(
        CopyFacts(
            copy.server,
            copy.preference,
            copy.word,
            copy.blocked,
            Health(frozenset(copy.failed)) if view.manager is not None else Health(),
        )
        for copy in copies_of(database, view)
    )
    dial = view.dials.get(database.name, Dial.GOOD_AVAILABILITY)
    return Facts(database.name, active.server if active else "", copies, dial, lossless=True)


def move_in_words(move: Move) -> str:
    """A move under way, for operators."""
    return f"from {move.source or 'nowhere'} to {move.target}: {move.reason or 'no reason given'}"
