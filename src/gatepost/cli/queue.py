"""`gatepost queue`: the queues and messages of a transport that runs on this machine (SPEC T13).

A NAME is a queue's number or the domain of its next hop, `Submission`, `Unreachable` or `Poison`, and `*` for all
queues. QUEUE/NUMBER is a message in one queue, `*/NUMBER` all its copies, QUEUE/* all messages of a queue.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gatepost.cli.options import config_option
from gatepost.cli.queue_quarantine import forget, quarantined, release, salvage
from gatepost.cli.queue_words import moment
from gatepost.cli.transport_asking import ask, ask_each, every_option, server_option

SHOWN = 1000
"""Queues or messages shown where no other limit is given."""
MOST_LISTED = 100_000
_limit = click.option("--limit", type=click.IntRange(1, MOST_LISTED), default=SHOWN, help="How many are shown.")
_json = click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
_name = click.argument("name")
F = TypeVar("F", bound=Callable[..., Any])
_CONDITIONS = {
    "sender": ("FromAddress", "like"),
    "recipient": ("Recipients", "like"),
    "subject": ("Subject", "like"),
    "status": ("Status", "eq"),
    "larger": ("Size", "gt"),
    "from_address": ("SourceIP", "eq"),
}
"""What options mean as conditions (`transport.operator_filter`)."""


def _message_filters(function: F) -> F:
    """Adds the parameters of `_CONDITIONS`; `*` stands for any characters."""
    options = (
        click.option("--from", "sender", metavar="ADDRESS", help="Only messages of this sender, as *@example.com."),
        click.option("--to", "recipient", metavar="ADDRESS", help="Only those with this recipient in the queue."),
        click.option("--subject", metavar="TEXT", help="Only those with this subject, as *invoice*."),
        click.option("--status", metavar="WORD", help="Only Ready, Active, Retry or Suspended ones."),
        click.option("--larger", metavar="SIZE", help="Only those over this size, as 1MB."),
        click.option("--source", "from_address", metavar="IP", help="Only those that came from this client."),
    )
    for option in reversed(options):
        option(function)
    return function


def _conditions(given: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(*_CONDITIONS[name], value) for name, value in given.items() if value is not None]


@click.group("queue")
def command() -> None:
    """Queues of mail: what waits for whom, and why; hold it, try it now, send it elsewhere, delete it."""


@command.command("list")
@click.argument("name", default="*")
@click.option("--no-empty", is_flag=True, help="Only queues that have messages.")
@click.option("--status", metavar="WORD", help="Only Active, Connecting, Ready, Retry or Suspended ones.")
@_limit
@_json
@every_option
@server_option
@config_option
def list_(
    name: str, no_empty: bool, status: str | None, limit: int, as_json: bool, everyone: bool, server: str, config: str
) -> None:
    """List the queues, those with most messages first."""
    wanted = _conditions({"status": status})
    arguments = {"queue": name, "empty": not no_empty, "limit": limit, "conditions": wanted}
    answers = list(ask_each(config, server, "queues", arguments, everyone=everyone))
    if as_json:
        _print_json(answers)
        return
    click.echo(f"{'queue':>6} {'messages':>8} {'status':<10} {'next retry':<19} {'conn':>4} next hop")
    for asked, found in answers:
        if everyone:
            click.echo(f"{asked}:")
        _print_queues(found)


def _print_json(answers: list[tuple[str, list[dict[str, Any]]]]) -> None:
    found = [{"hub": asked, **entry} for asked, entries in answers for entry in entries]
    click.echo(json.dumps(found, ensure_ascii=False))


def _print_queues(found: list[dict[str, Any]]) -> None:
    for entry in found:
        head = f"{entry['identity']:>6} {entry['messages']:>8} {entry['status']:<10} {moment(entry['next_retry']):<19}"
        via = f" by {entry['next_hop_connector']}" if entry["next_hop_connector"] else ""
        error = f": {entry['last_error']}" if entry["last_error"] else ""
        kind = entry["delivery_type"]
        click.echo(f"{head} {entry['connections']:>4} {entry['next_hop_domain']} ({kind}{via}){error}")


@command.command("show")
@click.argument("name", default="*")
@_message_filters
@_limit
@_json
@every_option
@server_option
@config_option
def show(name: str, limit: int, as_json: bool, everyone: bool, server: str, config: str, **given: str | None) -> None:
    """Show messages with their recipients and the last word of a server: all, of a queue, or one by its number."""
    message = _message(name) if "/" in name or "\\" in name else f"{name}\\*"
    arguments = {"message": message, "limit": limit, "conditions": _conditions(given)}
    answers = list(ask_each(config, server, "messages", arguments, everyone=everyone))
    if as_json:
        _print_json(answers)
        return
    for asked, found in answers:
        if everyone:
            click.echo(f"{asked}:")
        _print_messages(found)


def _print_messages(found: list[dict[str, Any]]) -> None:
    for entry in found:
        place = f"{entry['queue']}/{entry['number']}"
        head = f"{place:<14} {entry['status']:<9} {entry['size']:>9} {moment(entry['received'])}"
        click.echo(f"{head} from <{entry['from']}> {entry['message_id']} {entry['subject']}".rstrip())
        for recipient in entry["recipients"]:
            said = f": {recipient['reply']}" if recipient["reply"] else ""
            where = f" at {recipient['server']}" if recipient["server"] else ""
            click.echo(f"    <{recipient['address']}> {recipient['state']}{where}{said}")


@command.command("freeze")
@_name
@_message_filters
@server_option
@config_option
def freeze(name: str, server: str, config: str, **given: str | None) -> None:
    """Hold a queue or a message: it stays until it is resumed. What is under way ends."""
    _change(config, server, "freeze", name, "held", _conditions(given))


@command.command("resume")
@_name
@_message_filters
@server_option
@config_option
def resume(name: str, server: str, config: str, **given: str | None) -> None:
    """Let a queue or a message go on."""
    _change(config, server, "resume", name, "going on", _conditions(given))


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
@_message_filters
@click.option("--no-report", is_flag=True, help="Do not tell the senders.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
@config_option
def drop(name: str, no_report: bool, yes: bool, server: str, config: str, **given: str | None) -> None:
    """Delete messages: QUEUE/NUMBER, */NUMBER or QUEUE/*. What is under way is not deleted."""
    message, wanted = _message(name), _conditions(given)
    if not yes:
        count = len(ask(config, server, "messages", message=message, limit=MOST_LISTED, conditions=wanted))
        if count and not click.confirm(f"Delete {name}, messages: {count}?", err=True):
            raise click.Abort
    arguments = {"message": message, "report": not no_report, "conditions": wanted}
    click.echo(f"messages: {ask(config, server, 'drop', **arguments)}")


@command.command("export")
@_name
@server_option
@config_option
def export(name: str, server: str, config: str) -> None:
    """Print a message as it would leave, to be kept in a file: QUEUE/NUMBER or its number alone."""
    at, more = 0, True
    while more:
        part = ask(config, server, "content", message=_message(name), offset=at)
        click.echo(part["data"], nl=False)
        at, more = at + len(part["data"]), part["more"]


def _change(config: str, server: str, verb: str, name: str, what: str, conditions: list[tuple[str, str, str]]) -> None:
    """Queues, or messages where the name or a filter says so."""
    if "/" in name or "\\" in name or conditions:
        message = _message(name) if "/" in name or "\\" in name else f"{name}\\*"
        count = ask(config, server, f"{verb}_message", message=message, conditions=conditions)
        click.echo(f"messages {what}: {count}")
    else:
        count = ask(config, server, f"{verb}_queue", queue=name)
        click.echo(f"queues {what}: {count}")


def _message(name: str) -> str:
    return name.replace("/", "\\") if "/" in name or "\\" in name else f"*\\{name}"


for _command in (quarantined, release, forget, salvage):
    command.add_command(_command)
