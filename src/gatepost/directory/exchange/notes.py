"""What is told of an import besides its result: what has no place in the file, and what can mean two things."""

from __future__ import annotations

from dataclasses import dataclass, field

from gatepost.directory.exchange.names import is_conflict, values_of
from gatepost.organization.check import MAX_NAME


@dataclass
class Notes:
    """Collects it. `left_out`: names, case-folded, that the operator does not want to be looked at."""

    left_out: frozenset[str] = frozenset()
    not_mapped: list[str] = field(default_factory=list)
    ambiguous: list[str] = field(default_factory=list)

    def skips(self, kind: str, name: str) -> bool:
        """Whether an object of this name is not looked at, which is noted: an odd one, or left out by the operator."""
        if is_conflict(name):
            why = "the rest of a replication conflict"
        elif not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
            why = "its name is none that the file can hold"
        elif name.casefold() in self.left_out:
            why = "left out, as you said"
        else:
            return False
        self.not_mapped.append(f"{kind} {' '.join(name.split())[:MAX_NAME]}: {why}")
        return True

    def twice(self, kind: str, name: str, first: str, second: str) -> None:
        """Two objects of a kind, given by their distinguished names, have one name."""
        one, other = (" in ".join(values_of(dn)[1:3]) for dn in (first, second))
        self.ambiguous.append(
            f"there are two {kind} called {name}: in {one}, and in {other}. Rename one of the two, or leave both out "
            f'with --leave-out "{name}"'
        )
