"""`gatepost shadow`: the shadows that a transport on this machine keeps of other hubs' messages (SPEC S, V3).

A NAME is a primary, by its name, its full host name or the number of its shadow queue, and `*` for all; NAME/NUMBER is
one message.
"""

from __future__ import annotations

import json
from typing import Any

import click

from gatepost.cli.options import config_option, load_configuration
from gatepost.cli.queue_words import moment
from gatepost.cli.transport_asking import ask, ask_each, every_option, server_option

SHOWN = 1000
MOST_SHOWN = 100_000
_name = click.argument("name", default="*")
_json = click.option("--json", "as_json", is_flag=True, help="For programs: one array.")


@click.group("shadow")
def command() -> None:
    """Shadow queues: messages that other hubs are responsible for, kept here until those have delivered them."""


@command.command("list")
@_name
@_json
@every_option
@server_option
@config_option
def list_(name: str, as_json: bool, everyone: bool, server: str, config: str) -> None:
    """List the shadow queues, one for each primary: what is kept of it, and when it was heard of."""
    answers = list(ask_each(config, server, "shadow_queues", {"primary": _primary(config, name)}, everyone=everyone))
    if as_json:
        _print_json(answers)
        return
    click.echo(f"{'queue':>6} {'messages':>8} {'status':<7} {'oldest':<19} {'last contact':<19} {'failed':>6} primary")
    for asked, found in answers:
        if everyone:
            click.echo(f"{asked}:")
        for entry in found:
            _print_queue(entry)


def _print_queue(entry: dict[str, Any]) -> None:
    taking = f", being taken over: {entry['taking_over']}" if entry["taking_over"] else ""
    click.echo(
        f"{entry['number']:>6} {entry['messages']:>8} {entry['status']:<7} {moment(entry['oldest']):<19}"
        f" {moment(entry['heard']):<19} {entry['failures']:>6} {entry['server']}{taking}"
    )


@command.command("show")
@_name
@click.option("--limit", type=click.IntRange(1, MOST_SHOWN), default=SHOWN, help="How many are shown.")
@_json
@every_option
@server_option
@config_option
def show(name: str, limit: int, as_json: bool, everyone: bool, server: str, config: str) -> None:
    """Show the messages of a shadow queue, or one, with what its primary has said of the recipients."""
    arguments: dict[str, Any] = {**_parts(config, name), "limit": limit}
    answers = list(ask_each(config, server, "shadow_messages", arguments, everyone=everyone))
    if as_json:
        _print_json(answers)
        return
    for asked, found in answers:
        if everyone:
            click.echo(f"{asked}:")
        for entry in found:
            _print_message(entry)


def _print_message(entry: dict[str, Any]) -> None:
    place = f"{entry['queue']}/{entry['number']}"
    head = f"{place:<14} {entry['server']} since {moment(entry['since'])} {entry['size']:>9}"
    click.echo(f"{head} from <{entry['from']}> {entry['message_id']} {entry['subject']}".rstrip())
    for recipient in entry["recipients"]:
        click.echo(f"    <{recipient['address']}> {recipient['state']}")


@command.command("resubmit")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
@config_option
def resubmit(name: str, yes: bool, server: str, config: str) -> None:
    """Deliver from here what a primary was to deliver: all of it, or NAME/NUMBER.

    For a hub that is gone for good. If it is alive its recipients may get the messages twice.
    """
    arguments = _parts(config, name)
    if not yes:
        count = len(ask(config, server, "shadow_messages", **arguments, limit=MOST_SHOWN))
        if not click.confirm(f"Take over {name}, messages: {count}?", err=True):
            raise click.Abort
    click.echo(f"messages: {ask(config, server, 'shadow_resubmit', **arguments)}")


def _parts(config: str, name: str) -> dict[str, Any]:
    queue, parted, number = name.rpartition("/")
    if not parted:
        return {"primary": _primary(config, name)}
    if not number.isdecimal():
        raise click.BadParameter(f"{name} is no message: write NAME/NUMBER", param_hint="NAME")
    return {"primary": _primary(config, queue), "message": int(number)}


def _primary(config: str, name: str) -> str:
    """A full host name stands for its server."""
    servers = load_configuration(config).organization.servers.values()
    return next((s.name for s in servers if s.fqdn.casefold() == name.casefold()), name)


def _print_json(answers: list[tuple[str, list[dict[str, Any]]]]) -> None:
    found = [{"hub": asked, **entry} for asked, entries in answers for entry in entries]
    click.echo(json.dumps(found, ensure_ascii=False))
