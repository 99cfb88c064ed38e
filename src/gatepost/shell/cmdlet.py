"""What a cmdlet is, and the table of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from gatepost.shell.binding import Bound, Kind, Parameter
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session
from gatepost.shell.things import Text, Thing

Output = Thing | Text
T = TypeVar("T")

WHAT_IF = Parameter("WhatIf", Kind.SWITCH, "Say what would change; change nothing.", aliases=("wi",))
CONFIRM = Parameter("Confirm", Kind.SWITCH, "Ask before the change; -Confirm:$false does not ask.", aliases=("cf",))
NEAR_NAMES = 4
"""Names that an unknown one may have been meant to be."""


@dataclass(frozen=True)
class Invocation:
    """One run of a cmdlet. `given` are the objects of the pipeline before it; None where it stands first."""

    cmdlet: Cmdlet
    session: Session
    bound: Bound
    given: tuple[Thing, ...] | None = None

    @property
    def what_if(self) -> bool:
        """Whether nothing may be changed."""
        return bool(self.bound.flag("WhatIf"))

    def identities(self) -> list[str]:
        """The objects meant: by `-Identity`, else those of the pipeline. Raises `ShellError` when there are none."""
        named = self.bound.text("Identity")
        if named is not None and self.given is not None:
            raise ShellError("the object comes by the pipeline: leave -Identity out")
        if named:
            return [named]
        if self.given is None:
            raise ShellError("-Identity is needed, or objects by the pipeline")
        return [str(thing.get("Identity")) for thing in self.given]

    def change(self, find: Callable[[], Sequence[T]], question: Callable[[T], str]) -> list[T]:
        """What `find` answers, as far as the operator agrees to the change; then the file is held.

        Nobody else waits for the operator's answer: where one is needed, the file is taken hold of after it.
        """
        if not self._asks:
            self.session.begin_change(what_if=self.what_if)
            return list(find())
        found = [each for each in find() if self.session.talk.confirm(question(each))]
        self.session.begin_change(what_if=self.what_if)
        return found

    def agreed(self, question: str) -> bool:
        """Whether the operator agrees to a change that is no change of the file."""
        return not self._asks or self.session.talk.confirm(question)

    @property
    def _asks(self) -> bool:
        """`-WhatIf` and `-Confirm:$false` ask nothing."""
        asks = self.bound.flag("Confirm")
        return not self.what_if and (self.cmdlet.asks if asks is None else asks)


@dataclass(frozen=True)
class Cmdlet:
    """A command. `changes` adds `-WhatIf` and `-Confirm`; `asks` asks unless `-Confirm:$false` is given."""

    name: str
    summary: str
    run: Callable[[Invocation], Iterable[Output]]
    own: tuple[Parameter, ...] = ()
    changes: bool = False
    asks: bool = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters."""
        return (*self.own, WHAT_IF, CONFIRM) if self.changes else self.own


class Cmdlets:
    """The cmdlets by name, without regard to case."""

    def __init__(self, cmdlets: Sequence[Cmdlet], aliases: dict[str, str]) -> None:
        self._by_name = {cmdlet.name.casefold(): cmdlet for cmdlet in cmdlets}
        self._aliases = aliases

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(cmdlet.name for cmdlet in self._by_name.values())

    def find(self, name: str) -> Cmdlet:
        """The cmdlet called `name` or by its alias. Raises `ShellError` with names near it."""
        wanted = name.casefold()
        found = self._by_name.get(self._aliases.get(wanted, wanted).casefold())
        if found is None:
            raise ShellError(f"there is no command {name!r} here. {self._near(wanted)}")
        return found

    def _near(self, wanted: str) -> str:
        near = [self._by_name[n].name for n in get_close_matches(wanted[:60], self._by_name, NEAR_NAMES, 0.6)]
        noun = wanted.partition("-")[2]
        near += [c.name for key, c in self._by_name.items() if noun and key.partition("-")[2] == noun]
        if not near:
            return "Get-Command lists those that there are."
        return f"Near ones are {', '.join(dict.fromkeys(near[: 2 * NEAR_NAMES]))}; Get-Command lists all."
