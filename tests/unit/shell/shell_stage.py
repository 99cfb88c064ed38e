"""A shell on a copy of an organization, with an operator that answers what the test says."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gatepost.shell.cmdlets import all_cmdlets
from gatepost.shell.errors import ShellError
from gatepost.shell.parser import parse
from gatepost.shell.pipeline import run
from gatepost.shell.session import Session
from gatepost.shell.things import Text, Thing

EXAMPLES = Path(__file__).parents[3] / "examples"
PRINTED = 'set-owavirtualdirectory "owa (default web site)" -RedirectToOptimalOWAServer $false'
"""The source's line."""


@dataclass
class Operator:
    """Notes what is said. `answer` is what a question gets; None: nobody is there."""

    answer: bool | None = None
    password: str | None = None
    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def confirm(self, question: str) -> bool:
        self.asked.append(question)
        if self.answer is None:
            raise ShellError("nobody can be asked")
        return self.answer

    def new_password(self) -> str:
        if self.password is None:
            raise ShellError("nobody can be asked")
        return self.password


@dataclass
class Stage:
    """A file, a session on it, and its operator."""

    path: Path
    session: Session
    operator: Operator

    @property
    def text(self) -> str:
        return self.path.read_text()

    def run(self, text: str) -> list[Thing]:
        """The objects that the last statement answers."""
        return [each for each in self.outputs(text) if isinstance(each, Thing)]

    def printed(self, text: str) -> str:
        """The texts that the last statement answers."""
        return "".join(each.text for each in self.outputs(text) if isinstance(each, Text))

    def outputs(self, text: str) -> Sequence[Thing | Text]:
        found: Sequence[Thing | Text] = ()
        for statement in parse(text):
            found = run(self.session, all_cmdlets(), statement)
        return found

    def values(self, text: str, name: str) -> list[object]:
        """One property of the objects that the last statement answers."""
        return [thing.get(name) for thing in self.run(text)]


def contoso(folder: Path, server: str | None = None) -> Stage:
    """The example, alone: CAS-01 is its front end."""
    path = folder / "contoso.toml"
    if not path.exists():
        shutil.copy(EXAMPLES / "contoso.toml", path)
    operator = Operator()
    return Stage(path, Session(str(path), operator, alone=True, server=server), operator)
