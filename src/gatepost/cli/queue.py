"""`gatepost queue`: the queues and messages of a transport that runs on this machine (SPEC T13).

A NAME is a queue's number or the domain of its next hop, `Submission`, `Unreachable` or `Poison`, and `*` for all
queues. QUEUE/NUMBER is a message in one queue, `*/NUMBER` all its copies, QUEUE/* all messages of a queue.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from gatepost.cli.options import config_option
from gatepost.cli.transport_asking import ask, server_option

SHOWN = 1000
"""Queues or messages shown where no other limit is given."""
_limit = click.option("--limit", type=click.IntRange(1, 100_000), default=SHOWN, help="How many are shown.")
_json = click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
_name = click.argument("name")


@click.group("queue")
def command() -> None:
    """Queues of mail: what waits for whom, and why; hold it, try it now, send it elsewhere, delete it."""


@command.command("list")
@click.argument("name", default="*")
@click.option("--no-empty", is_flag=True, help="Only queues that have messages.")
@_limit
@_json
@server_option
@config_option
def list_(name: str, no_empty: bool, limit: int, as_json: bool, server: str, config: str) -> None:
    """List the queues, those with most messages first."""
    found = ask(config, server, "queues", queue=name, empty=not no_empty, limit=limit)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    click.echo(f"{'queue':>6} {'messages':>8} {'status':<10} {'next retry':<19} {'conn':>4} next hop")
    for entry in found:
        head = f"{entry['identity']:>6} {entry['messages']:>8} {entry['status']:<10} {_time(entry['next_retry']):<19}"
        via = f" by {entry['next_hop_connector']}" if entry["next_hop_connector"] else ""
        error = f": {entry['last_error']}" if entry["last_error"] else ""
        kind = entry["delivery_type"]
        click.echo(f"{head} {entry['connections']:>4} {entry['next_hop_domain']} ({kind}{via}){error}")


@command.command("show")
@_name
@_limit
@_json
@server_option
@config_option
def show(name: str, limit: int, as_json: bool, server: str, config: str) -> None:
    """Show messages with their recipients and the last word of a server: of a queue, or one by its number."""
    message = _message(name) if "/" in name or "\\" in name else f"{name}\\*"
    found = ask(config, server, "messages", message=message, limit=limit)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    for entry in found:
        place = f"{entry['queue']}/{entry['number']}"
        head = f"{place:<14} {entry['status']:<9} {entry['size']:>9} {_time(entry['received'])}"
        click.echo(f"{head} from <{entry['from']}> {entry['message_id']} {entry['subject']}".rstrip())
        for recipient in entry["recipients"]:
            said = f": {recipient['reply']}" if recipient["reply"] else ""
            where = f" at {recipient['server']}" if recipient["server"] else ""
            click.echo(f"    <{recipient['address']}> {recipient['state']}{where}{said}")


@command.command("freeze")
@_name
@server_option
@config_option
def freeze(name: str, server: str, config: str) -> None:
    """Hold a queue or a message: it stays until it is resumed. What is under way ends."""
    _change(config, server, "freeze", name, "held")


@command.command("resume")
@_name
@server_option
@config_option
def resume(name: str, server: str, config: str) -> None:
    """Let a queue or a message go on."""
    _change(config, server, "resume", name, "going on")


@command.command("retry")
@_name
@click.option("--resubmit", is_flag=True, help="Find the way of each message anew.")
@server_option
@config_option
def retry(name: str, resubmit: bool, server: str, config: str) -> None:
    """Try a queue now instead of at its time."""
    count = ask(config, server, "resubmit_queue" if resubmit else "retry_queue", queue=name)
    click.echo(f"queues: {count}")


@command.command("redirect")
@click.argument("target")
@click.option("--queue", "name", default="*", show_default=True, help="Of this queue only.")
@server_option
@config_option
def redirect(target: str, name: str, server: str, config: str) -> None:
    """Hand what waits to TARGET, another server of the organization, as before a maintenance."""
    click.echo(f"messages: {ask(config, server, 'redirect', target=target, queue=name)}")


@command.command("drop")
@_name
@click.option("--no-report", is_flag=True, help="Do not tell the senders.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
@config_option
def drop(name: str, no_report: bool, yes: bool, server: str, config: str) -> None:
    """Delete messages: QUEUE/NUMBER, */NUMBER or QUEUE/*. What is under way is not deleted."""
    message = _message(name)
    if not yes and not click.confirm(f"Delete {name}?", err=True):
        raise click.Abort
    click.echo(f"messages: {ask(config, server, 'drop', message=message, report=not no_report)}")


def _change(config: str, server: str, verb: str, name: str, what: str) -> None:
    if "/" in name or "\\" in name:
        count = ask(config, server, f"{verb}_message", message=_message(name))
        click.echo(f"messages {what}: {count}")
    else:
        count = ask(config, server, f"{verb}_queue", queue=name)
        click.echo(f"queues {what}: {count}")


def _message(name: str) -> str:
    return name.replace("/", "\\") if "/" in name or "\\" in name else f"*\\{name}"


def _time(seconds: float) -> str:
    if not seconds or seconds == float("inf"):
        return "-"
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
