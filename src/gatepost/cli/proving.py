"""`gatepost proving`: what this product promises, shown on this machine with real clients and servers."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path

import click

MISSED = 3
"""Exit status: it ran, and some goal was missed."""
_COUNTS = ("wrong", "appends", "submissions", "left", "left_out")
"""Keys of the report of a move that are lines of their own."""


@click.group("proving")
def command() -> None:
    """Show with real clients and servers that the promises are kept."""


@command.command("move")
@click.option("--lab", is_flag=True, required=True, help="On a part of the lab, started for it and ended after it.")
@click.option(
    "--sessions",
    type=click.IntRange(2, 20000),
    default=100,
    show_default=True,
    help="Clients of each protocol: IMAP (half idle, half busy), POP3, HTTP (half of them long polls), submission.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=3.0,
    show_default=True,
    help="How long clients work before and after.",
)
@click.option("--kill", is_flag=True, help="kill -9 of the mailbox server in place of planned moves.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object.")
def move(*, lab: bool, sessions: int, seconds: float, kill: bool, as_json: bool) -> int:  # noqa: ARG001 - required
    """Move databases, or kill their server, while clients work; say what the clients met.

    Goals: p99 under 2 s from "the new copy is active" to the first success there, no error of a wrong kind, nobody left
    at the old server, 95 % of idle IMAP carried over (planned), the death detected within 3 s (--kill). Exit status 0:
    all goals kept; 3: one missed; 1: it could not be run.
    """
    from gatepost.lab.servers.gatepost import CommandFailed
    from gatepost.lab.servers.process import ServerMissing, ServerNotStarted
    from gatepost.proving.run import ClientsFailed, prove_move

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    try:
        with tempfile.TemporaryDirectory(prefix="gatepost-proving-", ignore_cleanup_errors=True) as directory:
            report = prove_move(Path(directory), sessions=sessions, seconds=seconds, kill=kill, say=say)
    except (ServerMissing, ServerNotStarted, CommandFailed, ClientsFailed) as fault:
        raise click.ClickException(f"the proving could not be run: {fault}") from fault
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        for name, found in report["protocols"].items():
            click.echo(f"{name:<10} " + ", ".join(f"{key} {value}" for key, value in found.items()))
        for key in (
            "wrong",
            "appends",
            "submissions",
            "left_out",
            "left",
            "peak_sign_ins_per_second",
            "detection_seconds",
            "machine",
        ):
            click.echo(f"{key}: {report[key]}")
        click.echo(report["summary"])
    return 0 if report["ok"] else MISSED


@command.command("transport")
@click.option("--lab", is_flag=True, required=True, help="With a hub and a server of their own, ended after it.")
@click.option("--messages", type=click.IntRange(1, 10_000_000), default=100_000, show_default=True, help="To send.")
@click.option("--kills", type=click.IntRange(0, 100_000), default=200, show_default=True, help="kill -9 of the hub.")
@click.option("--sessions", type=click.IntRange(1, 500), default=20, show_default=True, help="Clients at a time.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another one: other moments.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object.")
def transport(*, lab: bool, messages: int, kills: int, sessions: int, seed: int, as_json: bool) -> int:  # noqa: ARG001
    """Kill a hub at random moments while it takes and sends mail; count what arrives.

    The next server is killed, busy, puts mail off and goes without an answer meanwhile; as root the hub's disk is full
    now and then. Goals: every message that was answered with 250 arrives at least once and whole, nobody is refused
    for good, and in the end nothing is left. What comes twice is counted. Exit status 0: all goals kept; 3: one
    missed; 1: it could not be run.
    """
    from gatepost.lab.servers.process import ServerNotStarted
    from gatepost.proving.transport import prove_transport

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)  # a file system has to be unmounted
    try:
        with tempfile.TemporaryDirectory(prefix="gatepost-proving-", dir=_disk(), ignore_cleanup_errors=True) as folder:
            report = prove_transport(
                Path(folder), messages=messages, kills=kills, sessions=sessions, seed=seed, say=say
            )
    except (ServerNotStarted, OSError) as fault:
        raise click.ClickException(f"the proving could not be run: {fault}") from fault
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        for key, found in report.items():
            if key != "summary":
                click.echo(f"{key}: {found}")
        click.echo(report["summary"])
    return 0 if report["ok"] else MISSED


@command.command("shadow")
@click.option("--lab", is_flag=True, required=True, help="With hubs and a server of their own, ended after it.")
@click.option("--runs", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="How many.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another one: other moments.")
@click.option("--stage", "only", multiple=True, metavar="NAME", help="Only runs of this stage; repeatable.")
@click.option("--off", is_flag=True, help="With shadow redundancy switched off: shows that losses are found.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object.")
def shadow(
    *,
    lab: bool,  # noqa: ARG001 - required
    runs: int,
    seed: int,
    only: tuple[str, ...],
    off: bool,
    as_json: bool,
) -> int:
    """Kill hubs of one site, with and without their disks, at every stage of a message; count what arrives.

    Each run sends some messages by two or three hubs and strikes one of them, or two in turn: kill -9, loss of the
    disk, a hang. Goals: every message that was answered with 250 arrives at least once and whole, also without the
    hub that is away. What comes twice is counted by stage. Exit status 0: all goals kept; 1: something was lost, or
    it could not be run; 3: another goal was missed.
    """
    from gatepost.lab.servers.process import ServerNotStarted
    from gatepost.proving.shadow import prove_shadow
    from gatepost.proving.shadow_plan import ANY
    from gatepost.proving.shadow_report import table
    from gatepost.proving.stages import STAGES

    names = [*(stage.name for stage in STAGES), ANY]
    if unknown := set(only).difference(names):
        raise click.UsageError(f"there is no stage {', '.join(sorted(unknown))}; there are: {', '.join(names)}")

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    try:
        with tempfile.TemporaryDirectory(prefix="gatepost-proving-", dir=_disk(), ignore_cleanup_errors=True) as folder:
            report = prove_shadow(Path(folder), runs=runs, seed=seed, only=only, shadows=not off, say=say)
    except (ServerNotStarted, OSError) as fault:
        raise click.ClickException(f"the proving could not be run: {fault}") from fault
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        click.echo("\n".join(table(report["stages"])))
        for key, found in report.items():
            if key not in {"summary", "stages"}:
                click.echo(f"{key}: {found}")
        click.echo(report["summary"])
    if report["lost"]:
        return 1
    return 0 if report["ok"] else MISSED


def _disk() -> str | None:
    """A folder on a disk where there is one: the temporary folder may be memory."""
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # noqa: S108 - a fresh folder of its own is made there
