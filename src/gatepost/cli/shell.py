"""`gatepost shell`: the management shell (SPEC V1), for a terminal and for scripts."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gatepost.cli.shell_options import Operator, file_options
from gatepost.shell.cmdlet import Cmdlets, Output
from gatepost.shell.cmdlets import all_cmdlets
from gatepost.shell.errors import Incomplete, LanguageError, ShellError
from gatepost.shell.parser import MAX_CHARACTERS, parse
from gatepost.shell.pipeline import run
from gatepost.shell.session import Session
from gatepost.shell.things import Text, Thing, as_json, listing, usual

PROMPT = "gatepost> "
CONTINUED = ">> "
HISTORY_LINES = 1000
"""Kept in the file of `--history`."""
FAILED = 1


@click.command("shell")
@click.option("-c", "text", metavar="TEXT", help="Run these commands and end.")
@file_options
@click.option(
    "--output",
    type=click.Choice(["table", "list", "json"]),
    default="table",
    show_default=True,
    help="How objects are printed where no command of the pipeline says it.",
)
@click.option("--history", metavar="FILE", help="Keep the lines typed in this file. By default they are kept nowhere.")
@click.pass_context
def command(
    ctx: click.Context,
    text: str | None,
    config: str,
    organization: str | None,
    server: str | None,
    output: str,
    history: str | None,
) -> None:
    """The management shell: the source system's commands, such as Set-OwaVirtualDirectory.

    Without -c the commands come from the terminal, or from standard input where that is none. Get-Command lists them,
    Get-Help NAME describes one. The first command that fails ends the run with exit status 1; those before it count.
    """
    terminal = sys.stdin.isatty()
    session = Session(
        organization or config, Operator(terminal=terminal), alone=organization is not None, server=server
    )
    ctx.call_on_close(session.close)
    cmdlets = all_cmdlets()
    if text is None and terminal:
        _interactive(session, cmdlets, output, history)
        return
    script = sys.stdin.read(MAX_CHARACTERS + 1) if text is None else text
    ctx.exit(0 if _run(session, cmdlets, script, output) else FAILED)


def _run(session: Session, cmdlets: Cmdlets, text: str, output: str) -> bool:
    """Run all statements of `text` up to the first that fails; whether none did."""
    try:
        for statement in parse(text):
            outputs = run(session, cmdlets, statement)
            if outputs or not cmdlets.find(statement.commands[-1].name).changes:
                _print(outputs, output)
    except (ShellError, OSError) as fault:
        click.echo(f"gatepost: {fault}", err=True)
        return False
    return True


def _print(outputs: Sequence[Output], output: str) -> None:
    texts = [each.text for each in outputs if isinstance(each, Text)]
    if texts:
        click.echo("".join(texts), nl=False)
        return
    things = [each for each in outputs if isinstance(each, Thing)]
    if output == "json":
        click.echo(as_json(things, always_list=True))
    elif things:
        click.echo(listing(things) if output == "list" else usual(things), nl=False)


# The terminal


def _interactive(session: Session, cmdlets: Cmdlets, output: str, history: str | None) -> None:
    import readline

    readline.set_completer(Completer(cmdlets).complete)
    readline.set_completer_delims(" \t\n|;")
    readline.parse_and_bind("tab: complete")
    if history and Path(history).exists():
        readline.read_history_file(history)
    click.echo("Get-Command lists the commands, Get-Help NAME describes one, exit ends.")
    try:
        while (text := _read_statements()) is not None:
            if text.strip().casefold() in {"exit", "quit"}:
                break
            _run(session, cmdlets, text, output)
    finally:
        if history:
            readline.set_history_length(HISTORY_LINES)
            readline.write_history_file(history)
            Path(history).chmod(0o600)


def _read_statements() -> str | None:
    """A text that is complete, over as many lines as it takes; None at the end of the input."""
    lines: list[str] = []
    while True:
        try:
            lines.append(input(CONTINUED if lines else PROMPT))
        except EOFError:
            click.echo()
            return None
        except KeyboardInterrupt:
            click.echo()
            return ""
        text = "\n".join(lines)
        try:
            parse(text)
        except Incomplete:
            # An empty line ends the waiting: the fault is shown then.
            if lines[-1]:
                continue
        except LanguageError:
            pass  # it is shown when it runs
        return text


class Completer:
    """Completes cmdlets' names, and parameters of the cmdlet before them."""

    def __init__(self, cmdlets: Cmdlets) -> None:
        self._cmdlets = cmdlets

    def complete(self, word: str, state: int) -> str | None:
        """What readline asks for: the `state`-th word that begins with `word`."""
        import readline

        found = self.candidates(readline.get_line_buffer()[: readline.get_begidx()], word)
        return found[state] if state < len(found) else None

    def candidates(self, before: str, word: str) -> list[str]:
        """The words that may stand where `word` is, behind `before`."""
        current = re.split(r"[|;\n]", before)[-1].split()
        if not current:
            return [name for name in self._cmdlets.names if name.casefold().startswith(word.casefold())]
        if not word.startswith("-"):
            return []
        try:
            cmdlet = self._cmdlets.find(current[0])
        except ShellError:
            return []
        return [f"-{p.name}" for p in cmdlet.parameters if f"-{p.name}".casefold().startswith(word.casefold())]
