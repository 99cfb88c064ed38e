"""What the shell and the plain commands for the same objects share: files, operator, running a cmdlet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from gatepost.cli.options import CONFIGURATION_VARIABLE, DEFAULT_CONFIGURATION, read_password
from gatepost.shell.binding import Bindable, Bound
from gatepost.shell.cmdlets import all_cmdlets
from gatepost.shell.errors import ShellError
from gatepost.shell.pipeline import invoke
from gatepost.shell.session import Session
from gatepost.shell.things import Thing, as_json, table

_Command = Callable[..., Any]


class Operator:
    """Who sits at the terminal. Without one, nothing is asked and what would ask fails."""

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal

    def say(self, text: str) -> None:
        """Print `text` to standard output."""
        click.echo(text)

    def warn(self, text: str) -> None:
        """Print a warning to standard error."""
        click.echo(f"WARNING: {text}", err=True)

    def confirm(self, question: str) -> bool:
        """Ask. Raises `ShellError` where nobody can answer."""
        if not self._terminal:
            raise ShellError(f"{question} Nobody can be asked here: add -Confirm:$false")
        return click.confirm(question, default=False, err=True)

    def new_password(self) -> str:
        """Ask for a password twice. Raises `ShellError` where nobody can answer."""
        if not self._terminal:
            raise ShellError("nobody can be asked for a password here: use gatepost user set NAME --password-stdin")
        return read_password(from_stdin=False, file=None)


def _config_option(*names: str) -> Callable[[_Command], _Command]:
    return click.option(
        *names,
        metavar="FILE",
        envvar=CONFIGURATION_VARIABLE,
        default=DEFAULT_CONFIGURATION,
        show_default=True,
        help=f"The front end's configuration; also by the environment variable {CONFIGURATION_VARIABLE}.",
    )


_FILES = (
    click.option(
        "--organization",
        metavar="FILE",
        help="Work on this file alone: no running front end is told, there are no users and no active copies.",
    ),
    click.option("--server", metavar="SERVER", help="Be this server's front end, whatever the file says."),
)


def with_options(function: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    """`function` with the options, shown in this order."""
    for option in reversed(options):
        function = option(function)
    return function


def file_options(function: _Command) -> _Command:
    """Adds `config`, `organization` and `server`: what a `Session` is made from. `-c` is left to the shell's own."""
    return with_options(function, (_config_option("--config"), *_FILES))


json_option = click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
what_if_option = click.option("--what-if", is_flag=True, help="Say what would change; change nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@dataclass(frozen=True)
class Work:
    """What a plain command works on. It runs the shell's cmdlet of the same meaning."""

    config: str
    organization: str | None
    server: str | None

    def run(self, cmdlet: str, values: Mapping[str, Bindable]) -> list[Thing]:
        """The cmdlet's objects. Values that are None were not given. Raises `click.ClickException`."""
        operator = Operator(terminal=sys.stdin.isatty())
        alone = self.organization is not None
        session = Session(self.organization or self.config, operator, alone=alone, server=self.server)
        given = {name: value for name, value in values.items() if value is not None}
        try:
            outputs = invoke(session, all_cmdlets().find(cmdlet), Bound(given))
        except ShellError as fault:
            raise click.ClickException(str(fault)) from fault
        finally:
            session.close()
        if session.written is not None:
            click.echo(f"changed {session.written}")
        return [output for output in outputs if isinstance(output, Thing)]

    def show(self, cmdlet: str, values: Mapping[str, Bindable], columns: Sequence[str], *, as_json: bool) -> None:
        """Run the cmdlet and print its objects."""
        things = self.run(cmdlet, values)
        if as_json:
            click.echo(as_json_text(things))
        else:
            click.echo(table(things, columns).strip("\n") or "none")


def as_json_text(things: Sequence[Thing]) -> str:
    """An array for programs."""
    return as_json(things, always_list=True, compact=True)


def work_options(function: _Command) -> _Command:
    """Adds the options of `file_options`, with the `-c` that other commands have, as one parameter `work`."""

    def wrapped(*args: object, config: str, organization: str | None, server: str | None, **options: object) -> object:
        return function(*args, work=Work(config, organization, server), **options)

    wrapped.__doc__, wrapped.__name__ = function.__doc__, function.__name__
    wrapped.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    return with_options(wrapped, (_config_option("-c", "--config"), *_FILES))
