"""The `gatepost` command: a group whose sub-commands are imported when they are used, so that it starts fast.

Exit statuses are fit for scripts: 0 done, 1 failed (with one line on standard error), 2 wrong usage.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from gatepost import __version__

COMMANDS = {
    "check": "Check a configuration and name every fault in it.",
    "user": "Add, change, list, remove and import users.",
    "directory": "Ask the directories that users are in, server by server.",
    "database": "Show the databases and move their active copies.",
    "queue": "Show the mail that waits; hold it, try it now, send it elsewhere, delete it.",
    "shadow": "Show the copies kept of other hubs' mail; deliver it from here.",
    "safety-net": "Show the delivered mail that is kept; have it delivered again.",
    "penalty": "Show what wrong passwords have cost, and forgive them.",
    "sessions": "Show the clients that are connected, and end their sessions.",
    "explain": "Say where a user would be sent, and by which rules.",
    "ca": "Make the certificates by which front ends, hubs and edges know each other.",
    "assertion-key": "Make the keys by which users are signed in at mailbox servers without their passwords.",
    "shell": "The management shell: the source system's commands, such as Set-OwaVirtualDirectory.",
    "organization": "Bring an Exchange organization from Active Directory into the file.",
    "server": "Show the servers; drain one for maintenance.",
    "virtual-directory": "Show and change the paths that servers serve over HTTP.",
    "array": "Show and change client access arrays.",
    "serve": "Run the front end.",
    "transport": "Mail transport: when servers that are down are tried.",
    "log": "Show the transport's logs.",
    "director": "The verbs of `doveadm director`, for who knows them.",
    "manager": "Run an active manager alone, beside front ends that run elsewhere.",
    "status": "Show what the running front end does: workers, sessions, what is down.",
    "lab": "Run a small organization on this machine to try things out.",
    "proving": "Show with real clients and servers that the promises are kept.",
}
"""Names and one-line helps; each is a module `gatepost.cli.<name>` (_ for -) that has a click command `command`."""

FAILED = 1
USAGE = 2
INTERRUPTED = 130
"""128 + SIGINT, as shells expect."""


class _LazyGroup(click.Group):
    """Imports a sub-command's module only when that command runs; the list of commands costs no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(f"gatepost.cli.{cmd_name.replace('-', '_')}").command
        if not isinstance(found, click.Command):
            raise TypeError(f"gatepost.cli.{cmd_name}.command is not a click command")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gatepost", message="%(prog)s %(version)s")
def command() -> None:
    """The front door of a mail fleet."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and answer the exit status. Expected faults become one line, never a traceback.

    Sub-commands raise `click.ClickException` for faults that they understand. `OSError` (and with it every
    `…Unavailable` of the stores) is a fault of the surroundings; anything else is a bug and shows its traceback.
    """
    try:
        result: Any = command.main(args=arguments, prog_name="gatepost", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("gatepost: interrupted", err=True)
        return INTERRUPTED
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        click.echo(f"gatepost: {error.format_message()}", err=True)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output went away: as `head` does
        _forget_output()
        return FAILED
    except OSError as error:
        click.echo(f"gatepost: {error}", err=True)
        return FAILED
    return result if isinstance(result, int) else 0


def _forget_output() -> None:
    """Keep the interpreter from complaining about the broken pipe once more when it flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def main() -> None:
    """Entry point of the `gatepost` script."""
    sys.exit(run())
