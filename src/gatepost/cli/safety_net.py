"""`gatepost safety-net`: delivered messages that hubs keep for a while, and have delivered again (SPEC S)."""

from __future__ import annotations

import json
from typing import Any

import click

from gatepost.cli.moments import read_moment
from gatepost.cli.options import config_option
from gatepost.cli.queue_words import moment
from gatepost.cli.transport_asking import ask, ask_each, every_option, server_option

NOT_REACHED = 3
_json = click.option("--json", "as_json", is_flag=True, help="For programs.")


@click.group("safety-net")
def command() -> None:
    """The safety net: mail that was delivered, and can be delivered again where a mailbox server lost it."""


@command.command("list")
@click.argument("database", default="*")
@_json
@every_option
@server_option
@config_option
def list_(database: str, as_json: bool, everyone: bool, server: str, config: str) -> None:
    """Show what is kept for each database, and the requests to deliver again."""
    answers = list(ask_each(config, server, "safety_net", {"database": database}, everyone=everyone))
    if as_json:
        click.echo(json.dumps([{"hub": asked, **found} for asked, found in answers], ensure_ascii=False))
        return
    for asked, found in answers:
        if everyone:
            click.echo(f"{asked}:")
        _print(found)


def _print(found: dict[str, Any]) -> None:
    if not found["kept"]:
        click.echo("nothing is kept: mail stays for a while that went to databases with several copies")
    for entry in found["kept"]:
        others = f", of those other hubs deliver again: {entry['of_others']}" if entry["of_others"] else ""
        until = moment(entry["until"])
        click.echo(f"{entry['database']}: messages: {entry['messages']}{others}; the oldest is kept until {until}")
    for request in found["requests"]:
        of, to = moment(request["since"]), moment(request["until"])
        click.echo(f"request {request['request']}: {request['database']}, delivered from {of} to {to}")
        state = f"  {request['state']}: {request['redelivered']} delivered again"
        click.echo(state if request["state"] == "done" else f"{state}, {request['found']} found at its beginning")
        for hub, why in request["not_reached"].items():
            click.echo(f"  {hub} is still to be told: {why}")


@command.command("redeliver")
@click.option("--database", required=True, help="Whose mailboxes get it.")
@click.option("--since", required=True, metavar="TIME", help='Delivered from then on: "2026-11-30 16:00", or 2h ago.')
@click.option("--until", metavar="TIME", help="Delivered up to then. Default: now.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_json
@server_option
@config_option
def redeliver(database: str, since: str, until: str | None, yes: bool, as_json: bool, server: str, config: str) -> None:
    """Deliver again what the hubs of the database's sites have for it. One hub asks the others.

    What the mailbox server has not lost comes a second time. Exit status: 0 all hubs have answered; 3 some are told
    when they can be reached, within 12 hours.
    """
    first, last = read_moment(since), read_moment(until) if until is not None else 0.0
    if not yes:
        to = moment(last) if last else "now"
        if not click.confirm(f"Deliver again what {database} got from {moment(first)} to {to}?", err=True):
            raise click.Abort
    found = ask(config, server, "safety_net_redeliver", database=database, since=first, until=last)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        click.echo(f"request {found['request']}")
        for entry in found["hubs"]:
            said = (
                f"not reached, told later: {entry['error']}" if "error" in entry else f"messages: {entry['messages']}"
            )
            click.echo(f"  {entry['hub']}: {said}")
    if any("error" in entry for entry in found["hubs"]):
        raise click.exceptions.Exit(NOT_REACHED)
