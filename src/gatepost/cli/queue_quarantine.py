"""`gatepost queue quarantined|release|forget|salvage`: messages that were put aside, damaged spools (SPEC T2)."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gatepost.cli.options import config_option
from gatepost.cli.queue_words import moment
from gatepost.cli.transport_asking import ask, server_option

SHOWN_LOST = 20
"""Numbers of lost messages that are named one by one."""


@click.command("quarantined")
@click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
@server_option
@config_option
def quarantined(as_json: bool, server: str, config: str) -> None:
    """List messages that were put aside because their content or envelope on disk is damaged."""
    found = ask(config, server, "quarantined")
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    for entry in found:
        head = f"{entry['number']:>8} {moment(entry['at'])} {entry['size']:>9} from <{entry['from']}>"
        click.echo(f"{head} {entry['message_id']} {entry['subject']}".rstrip() + f": {entry['reason']}")
        for address in entry["recipients"]:
            click.echo(f"    <{address}>")


@click.command("release")
@click.argument("number", type=click.IntRange(1))
@server_option
@config_option
def release(number: int, server: str, config: str) -> None:
    """Queue message NUMBER again that was put aside; what is still damaged comes back there."""
    click.echo(f"messages: {ask(config, server, 'release', number=number)}")


@click.command("forget")
@click.argument("number", type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
@config_option
def forget(number: int, yes: bool, server: str, config: str) -> None:
    """Remove message NUMBER that was put aside, with its content. Its sender is not told."""
    if not yes and not click.confirm(f"Remove the quarantined message {number}?", err=True):
        raise click.Abort
    click.echo(f"messages: {ask(config, server, 'forget_message', number=number)}")


@click.command("salvage")
@click.argument("old", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("new", type=click.Path(file_okay=False, path_type=Path))
def salvage(old: Path, new: Path) -> int:
    """Take over what can be read from the spool OLD, whose database is damaged, into the spool NEW.

    No hub may run on either. OLD is not changed; NEW is made where it is missing, and keeps what it has. Messages get
    new numbers. Exit status 0: everything was taken; 3: some messages were lost, and their numbers in OLD are named.
    """
    from gatepost.store.sqlite import StoreUnavailable
    from gatepost.transport.spool.salvage import salvage as take_over

    if not (old / "queue.sqlite").is_file():
        raise click.ClickException(f"{old} is no spool: it has no queue.sqlite")
    if new.exists() and old.samefile(new):
        raise click.ClickException("OLD and NEW are the same directory")
    try:
        found = take_over(old, new)
    except (StoreUnavailable, OSError) as fault:
        raise click.ClickException(str(fault)) from fault
    click.echo(f"taken: {found.taken}")
    if not found.lost:
        return 0
    named = " ".join(map(str, found.lost[:SHOWN_LOST])) + (" …" if len(found.lost) > SHOWN_LOST else "")
    click.echo(f"lost: {len(found.lost)} (numbers in {old}: {named})")
    return 3
