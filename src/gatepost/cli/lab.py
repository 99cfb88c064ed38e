"""`gatepost lab`: a small organization on this machine, to try things by hand or to be shown around."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from gatepost.lab import figure
from gatepost.lab.fleet import Fleet
from gatepost.lab.servers import dovecot
from gatepost.lab.servers.gatepost import CommandFailed
from gatepost.lab.servers.process import ServerMissing, ServerNotStarted

CANNOT_START = 1
DIFFERS = 3
"""Exit status of a tour on which something else came than was expected."""


@click.command("lab")
@click.option("--tour", is_flag=True, help="Try everything, step by step, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --tour: one JSON object at the end instead of the steps.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="For its files: a new or empty directory, which is kept. Default: a temporary one, removed in the end.",
)
@click.option("--built-in", is_flag=True, help="Use the lab's own mailbox servers even where Dovecot is installed.")
def command(*, tour: bool, as_json: bool, directory: Path | None, built_in: bool) -> None:
    """Run three sites with front ends and mailbox servers as real processes on loopback addresses.

    Prints what to try and runs until Enter or Ctrl-C; nothing is left behind. Exit status of a tour: 0 all came as
    expected, 3 something differed, 1 the lab did not start.
    """
    begun = time.monotonic()
    builtin = built_in or not dovecot.installed()
    status = 0
    with _end_on_signals(), _place(directory) as place:
        ports = figure.choose_ports(root=os.geteuid() == 0)
        try:
            with Fleet(place, ports, builtin=builtin) as fleet:
                if not as_json:
                    click.echo("Starting front ends, mailbox servers and web servers …")
                fleet.start()
                if tour:
                    status = _tour(fleet, begun, as_json=as_json)
                else:
                    _show(fleet, begun)
        except (ServerMissing, ServerNotStarted, CommandFailed) as error:
            raise click.ClickException(f"the lab did not start: {error}") from error
        except KeyboardInterrupt:
            click.echo("\nEnded.")
    if status:
        raise SystemExit(status)


def _tour(fleet: Fleet, begun: float, *, as_json: bool) -> int:
    from gatepost.lab import steps_active_manager, steps_client_access, steps_mail, steps_running, steps_sign_in, tour

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    for note in fleet.ports.notes:
        say(note)
    parts = (steps_sign_in, steps_client_access, steps_active_manager, steps_mail, steps_running)
    results = tour.take(fleet, [step for part in parts for step in part.steps()], say)
    fleet.stop()
    results.append(tour.nothing_left(fleet, say))
    kind = "built-in" if fleet.builtin else "dovecot"
    report = tour.summary(results, time.monotonic() - begun, kind)
    failed = [result.title for result in results if not result.ok]
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        outcome = "all as expected" if not failed else f"{len(failed)} FAILED: {'; '.join(failed)}"
        click.echo(f"\n{len(results)} steps in {report['seconds']:.1f} s: {outcome}")
    return DIFFERS if failed else 0


def _show(fleet: Fleet, begun: float) -> None:
    from gatepost.lab.guide import guide

    click.echo(guide(fleet))
    click.echo(f"\nUp after {time.monotonic() - begun:.1f} s. Enter or Ctrl-C ends it.")
    _wait_for_enter(fleet)


def _wait_for_enter(fleet: Fleet) -> None:
    """Until a line comes on the terminal, or a signal; without a terminal until a signal."""
    said: set[str] = set()
    while True:
        if sys.stdin is not None and sys.stdin.isatty():
            if select.select([sys.stdin], [], [], 1.0)[0]:
                return
        else:
            time.sleep(1.0)
        for server in fleet.processes:
            if not server.running and server.name not in said:
                said.add(server.name)
                click.echo(f"{server.name} has ended.\n{server.log_tail()}", err=True)


@contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    """The lab's directory; a temporary one goes in the end, even after kill -9. Raises `click.ClickException`."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise click.ClickException(f"{directory} is not empty: name a new directory, or remove what is in it")
        yield directory.resolve()
        return
    made = Path(tempfile.mkdtemp(prefix="gatepost-lab-"))
    with _removed_at_the_end(made):
        yield made


@contextmanager
def _removed_at_the_end(made: Path) -> Iterator[None]:
    """Remove `made` afterwards. A helper does it: it notices our end by end of file, also after kill -9."""
    script = 'read -r _; sleep "${1}"; rm -rf -- "${2}"'
    grace = "2"
    helper = subprocess.Popen(  # noqa: S603 - arguments are ours
        ["/bin/sh", "-c", script, "gatepost-lab-remover", grace, str(made)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        helper.kill()
        helper.wait()
        if helper.stdin is not None:
            helper.stdin.close()
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _end_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the lab as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
