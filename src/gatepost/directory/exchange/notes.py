"""What is told of an import besides its result: what has no place in the file, and what can mean two things."""

from __future__ import annotations

from dataclasses import dataclass, field

from gatepost.directory.exchange.names import values_of


@dataclass
class Notes:
    """Collects it. `left_out`: names, case-folded, that the operator does not want to be looked at."""

    left_out: frozenset[str] = frozenset()
    not_mapped: list[str] = field(default_factory=list)
    ambiguous: list[str] = field(default_factory=list)

    def skips(self, name: str) -> bool:
        """Whether the operator has left this name out; noted."""
        if name.casefold() not in self.left_out:
            return False
        self.not_mapped.append(f"{name}: left out, as you said")
        return True

    def twice(self, kind: str, name: str, first: str, second: str) -> None:
        """Two objects of a kind, given by their distinguished names, have one name."""
        one, other = (" in ".join(values_of(dn)[1:3]) for dn in (first, second))
        self.ambiguous.append(
            f"there are two {kind} called {name}: in {one}, and in {other}. Rename one of the two, or leave both out "
            f'with --leave-out "{name}"'
        )
