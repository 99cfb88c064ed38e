"""`gatepost log`: the transport's logs, read over their files."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from gatepost.transport.connectivity_log import DEFAULT_DIRECTORY, PREFIX
from gatepost.transport.log_files import LogFile, list_files

SHOWN_BEFORE = 10
"""Rows shown before one follows."""
POLL_SECONDS = 0.25


@click.group("log")
def command() -> None:
    """The transport's logs."""


@command.command("connectivity")
@click.option("--follow", is_flag=True, help=f"The last {SHOWN_BEFORE} rows, then new ones as they come, until ^C.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="Where the files are.",
)
def connectivity(follow: bool, directory: Path) -> None:
    """Show the connectivity log: connections, refusals, and servers marked unhealthy (look for MarkedUnhealthy).

    Columns are those of the source system's log. Nothing is there unless it is switched on: it is off by default.
    """
    if follow:
        for line in _followed(directory):
            click.echo(line, nl=False)
        return
    if not directory.is_dir():
        raise click.ClickException(f"{directory} does not exist: the connectivity log is off, or elsewhere")
    headed = False
    for file in list_files(directory, PREFIX):
        for line in _lines(file):
            if not line.startswith(b"#"):
                headed = True
            elif headed:
                continue  # the head of a later file: the fields are the same
            click.echo(line, nl=False)
        headed = True


def _lines(file: LogFile) -> Iterator[bytes]:
    """Its whole lines; none if it was removed in the meantime."""
    with suppress(FileNotFoundError), file.path.open("rb") as stream:
        yield from (line for line in stream if line.endswith(b"\n"))


def _followed(directory: Path) -> Iterator[bytes]:
    """Rows for ever: of the newest file, then of those that follow it. Also when there is no file yet."""
    place: LogFile | None = None
    offset = 0
    last: deque[bytes] = deque(maxlen=SHOWN_BEFORE)
    files = _listed(directory)
    if files:
        place = files[-1]
        for line in _lines(place):
            offset += len(line)
            if not line.startswith(b"#"):
                last.append(line)
    yield from last
    while True:
        newer = [file for file in _listed(directory) if place is None or file > place]
        if place is not None:  # looked at after the list was made: its last rows come before those of the next file
            for line in _from(place, offset):
                offset += len(line)
                if not line.startswith(b"#"):
                    yield line
        if newer:
            place, offset = newer[0], 0
        else:
            time.sleep(POLL_SECONDS)


def _from(file: LogFile, offset: int) -> Iterator[bytes]:
    with suppress(FileNotFoundError), file.path.open("rb") as stream:
        stream.seek(offset)
        yield from (line for line in stream if line.endswith(b"\n"))


def _listed(directory: Path) -> list[LogFile]:
    try:
        return list_files(directory, PREFIX)
    except FileNotFoundError:
        return []
