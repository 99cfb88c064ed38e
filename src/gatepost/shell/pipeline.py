"""Running statements."""

from __future__ import annotations

from collections.abc import Sequence

from gatepost.shell.binding import Bound, bind
from gatepost.shell.cmdlet import Cmdlet, Cmdlets, Invocation, Output
from gatepost.shell.errors import LanguageError, ShellError
from gatepost.shell.session import Session
from gatepost.shell.syntax import Command, Statement
from gatepost.shell.things import Text, Thing


class CommandFailed(ShellError):
    """A cmdlet's fault, with its name in front."""


def run(session: Session, cmdlets: Cmdlets, statement: Statement) -> list[Output]:
    """The statement's objects and texts. Raises `ShellError`, OSError; then nothing of the organization was changed."""
    # All is understood before any of it runs.
    prepared = [_prepare(cmdlets, command, statement.text) for command in statement.commands]
    with session.statement():
        outputs: Sequence[Output] | None = None
        for cmdlet, bound in prepared:
            outputs = _run_one(session, cmdlet, bound, outputs)
        return list(outputs or ())


def invoke(session: Session, cmdlet: Cmdlet, values: Bound) -> list[Output]:
    """One cmdlet with values that need no reading: what plain commands do."""
    with session.statement():
        return list(cmdlet.run(Invocation(cmdlet, session, values)))


def _prepare(cmdlets: Cmdlets, command: Command, text: str) -> tuple[Cmdlet, Bound]:
    try:
        cmdlet = cmdlets.find(command.name)
    except ShellError as fault:
        raise LanguageError(str(fault), text, command.offset) from fault
    return cmdlet, bind(cmdlet.parameters, command, text)


def _run_one(session: Session, cmdlet: Cmdlet, bound: Bound, outputs: Sequence[Output] | None) -> list[Output]:
    given: tuple[Thing, ...] | None = None
    if outputs is not None:
        if any(isinstance(output, Text) for output in outputs):
            raise CommandFailed(f"{cmdlet.name}: what comes by the pipeline is text already: format it last")
        given = tuple(output for output in outputs if isinstance(output, Thing))
    try:
        return list(cmdlet.run(Invocation(cmdlet, session, bound, given)))
    except CommandFailed:
        raise
    except ShellError as fault:
        raise CommandFailed(f"{cmdlet.name}: {fault}") from fault
