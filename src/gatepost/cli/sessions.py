"""`gatepost sessions`: who is connected to the front ends of this machine, and ending sessions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import click

from gatepost.access.sessions import MAX_LISTED, SessionFilter
from gatepost.cli.options import Stores, config_option, open_stores
from gatepost.service.asking import ANSWER_SECONDS, Filled, ask_all
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest

ASKED_FROM = 100
"""Sessions that are ended without a question (field case 8)."""
SHOWN = 20
"""Lines of a list that is for a look only."""


def _filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which sessions are meant, as the parameter `wanted`'s words."""
    for option in (
        click.option("--session", default="", help="The session with this id."),
        click.option(
            "--protocol",
            type=click.Choice(["imap", "pop3", "submission", "smtp", "https", "http"]),
            help="Of this protocol.",
        ),
        click.option("--server", default="", help="At this mailbox server."),
        click.option("--db", "database", default="", help="Of this database."),
        click.option("--ip", "address", default="", help="Of clients at this address, or in this network."),
        click.option("--user", default="", help="Of this user."),
    ):
        function = option(function)
    return function


@click.group("sessions")
def command() -> None:
    """Sessions of clients, over all workers of all front ends of this machine."""


@command.command("list")
@_filter_options
@click.option("--limit", type=click.IntRange(1, MAX_LISTED), default=MAX_LISTED, help="Sessions shown a front end.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object.")
@config_option
def list_(limit: int, as_json: bool, config: str, **words: str | None) -> int:
    """List the sessions that match all that is asked for."""
    stores = open_stores(config)
    wanted = _wanted(stores, words)
    found, unreachable = _found(stores, wanted, limit)
    if as_json:
        click.echo(json.dumps(_as_json(found, unreachable), ensure_ascii=False))
    else:
        _show(found, limit)
    return _told(unreachable, found)


@command.command("kick")
@_filter_options
@click.option("--all", "everything", is_flag=True, help="Every session; without it at least one must be named.")
@click.option("--reason", default="ended by the operator", show_default=True, help="For the log.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 300),
    default=10.0,
    show_default=True,
    help="Until then sessions are ended at the end of a command, afterwards at once.",
)
@click.option("--dry-run", is_flag=True, help="Only say which sessions would be ended.")
@click.option("--yes", is_flag=True, help=f"Do not ask, even for more than {ASKED_FROM}.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object.")
@config_option
def kick(
    everything: bool,
    reason: str,
    seconds: float,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    config: str,
    **words: str | None,
) -> int:
    """End the sessions that match all that is asked for, each in its protocol's words.

    A session counts as closed only when its client's connection is closed. Status 1: some session is not, or a front
    end or a worker did not answer.
    """
    stores = open_stores(config)
    wanted = _wanted(stores, words)
    if wanted.is_empty and not everything:
        raise click.UsageError("say which sessions (--user, --ip, --db, --server, --protocol, --session), or --all")
    found, unreachable = _found(stores, wanted, MAX_LISTED if as_json else SHOWN)
    total = sum(reply.total for reply in found.values())
    if dry_run:
        if as_json:
            click.echo(json.dumps(_as_json(found, unreachable), ensure_ascii=False))
        else:
            _show(found, SHOWN)
        return _told(unreachable, found)
    if total > ASKED_FROM and not yes and not click.confirm(f"End {total} sessions?", err=True):
        raise click.Abort
    message = Kick(wanted, reason, seconds, everything)
    answers, unreachable = _ask_all(stores, message, Kicked, seconds + ANSWER_SECONDS)
    return _report(answers, unreachable, as_json=as_json)


def _wanted(stores: Stores, words: Mapping[str, str | None]) -> SessionFilter:
    given = {name: word for name, word in words.items() if word}
    if "user" in given:
        given["user"] = stores.canonical(given["user"])
    try:
        return SessionFilter(**given)
    except ValueError as fault:
        raise click.BadParameter(str(fault), param_hint="--ip") from fault


def _found(stores: Stores, wanted: SessionFilter, limit: int) -> tuple[dict[str, SessionsReply], dict[str, str]]:
    return _ask_all(stores, SessionsRequest(wanted, limit), SessionsReply, ANSWER_SECONDS)


def _ask_all(
    stores: Stores, message: SessionsRequest | Kick, kind: type[Filled], seconds: float
) -> tuple[dict[str, Filled], dict[str, str]]:
    front_end = stores.configuration.front_end
    answers, silent = ask_all(front_end, message, kind, seconds)
    if not answers and not silent:
        _no_front_end(Path(front_end.registry).parent)
    return answers, silent


def _no_front_end(folder: Path) -> NoReturn:
    raise click.ClickException(f"no front end runs here: {folder} has no operators' socket")


def _as_json(found: Mapping[str, SessionsReply], unreachable: Mapping[str, str]) -> dict[str, Any]:
    sessions = [{"front_end": name, **entry} for name, reply in found.items() for entry in reply.sessions]
    protocols: dict[str, int] = {}
    for reply in found.values():
        for protocol, number in reply.protocols.items():
            protocols[protocol] = protocols.get(protocol, 0) + number
    return {
        "sessions": sessions,
        "total": sum(reply.total for reply in found.values()),
        "protocols": protocols,
        "unreachable": dict(unreachable),
        "workers_missing": {name: reply.missing for name, reply in found.items() if reply.missing},
    }


def _show(found: Mapping[str, SessionsReply], limit: int) -> None:
    for name, reply in found.items():
        kinds = ", ".join(f"{number} {protocol}" for protocol, number in sorted(reply.protocols.items()))
        click.echo(f"{name}: sessions: {reply.total}{f' ({kinds})' if kinds else ''}")
        for entry in reply.sessions[:limit]:
            click.echo("  " + _line(entry))
        if reply.total > len(reply.sessions[:limit]):
            click.echo(f"  and {reply.total - len(reply.sessions[:limit])} more")


def _line(entry: Mapping[str, Any]) -> str:
    since = datetime.fromtimestamp(float(entry["since"]), UTC).astimezone().isoformat(sep=" ", timespec="seconds")
    user = entry["user"] or ", ".join(entry.get("users", ())) or "-"
    place = f"{entry['database'] or '-'} (epoch {entry['epoch']}) at {entry['server']}" if entry["server"] else "-"
    head = f"{entry['session']:<18} {entry['protocol']:<5} {entry['phase']:<10} {entry['client']:<15}"
    return f"{head} {user}  {place}  {since}"


def _told(unreachable: Mapping[str, str], answers: Mapping[str, SessionsReply | Kicked]) -> int:
    """Name who did not answer; the exit status."""
    for name, reason in unreachable.items():
        click.echo(f"gatepost: {name} cannot be reached: {reason}", err=True)
    for name, answer in answers.items():
        if answer.missing:
            workers = ", ".join(map(str, answer.missing))
            click.echo(f"gatepost: {name}: these workers did not answer: {workers}", err=True)
    return 1 if unreachable or any(answer.missing for answer in answers.values()) else 0


def _report(answers: Mapping[str, Kicked], unreachable: Mapping[str, str], *, as_json: bool) -> int:
    left = [pair for answer in answers.values() for pair in answer.outcomes if pair[1] != "closed"]
    errors = {name: answer.error for name, answer in answers.items() if answer.error}
    if as_json:
        outcomes = [
            {"front_end": name, "session": session, "outcome": outcome}
            for name, answer in answers.items()
            for session, outcome in answer.outcomes
        ]
        missing = {name: answer.missing for name, answer in answers.items() if answer.missing}
        result = {"outcomes": outcomes, "unreachable": dict(unreachable), "workers_missing": missing, "errors": errors}
        click.echo(json.dumps(result, ensure_ascii=False))
    else:
        for name, answer in answers.items():
            closed = sum(outcome == "closed" for _, outcome in answer.outcomes)
            click.echo(f"{name}: closed: {closed} of {len(answer.outcomes)}")
        for session, outcome in left[:SHOWN]:
            click.echo(f"  {session}: {outcome}")
    for name, error in errors.items():
        click.echo(f"gatepost: {name}: {error}", err=True)
    return 1 if _told(unreachable, answers) or left or errors else 0
