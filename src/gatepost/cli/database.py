"""`gatepost database`: where the active copies are, moving them, and what the operator allows of each copy."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import click

from gatepost.activemanager.port import Dial, RegistryView, StaleEpoch
from gatepost.activemanager.seed import seed
from gatepost.activemanager.selection import Lag
from gatepost.activemanager.standing import CopyStanding, copies_of, move_in_words, ordered
from gatepost.cli.database_move import move
from gatepost.cli.moments import read_moment
from gatepost.cli.options import Stores, config_option, open_stores
from gatepost.cli.queue_words import moment
from gatepost.configuration.manager_settings import HookKind
from gatepost.organization.model import Database
from gatepost.routing.decision import ActiveCopy

DIALS = {
    "lossless": Dial.LOSSLESS,
    "good": Dial.GOOD_AVAILABILITY,
    "best": Dial.BEST_AVAILABILITY,
}


@click.group("database")
def command() -> None:
    """Databases: which server holds the active copy of each, and moving it."""


command.add_command(move)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
@config_option
def list_(as_json: bool, config: str) -> None:
    """List the databases with their active server, epoch and copies.

    A database that was never active is activated on the copy with preference 1.
    """
    stores = open_stores(config)
    organization = stores.configuration.organization
    seed(stores.registry, organization)
    active = stores.registry.view().active
    rows: list[dict[str, object]] = []
    for database in organization.databases.values():
        now = active.get(database.name)
        rows.append(
            {
                "database": database.name,
                "active": now.server if now else None,
                "epoch": now.epoch if now else 0,
                "copies": [copy.server for copy in ordered(database)],
            }
        )
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row, database in zip(rows, organization.databases.values(), strict=True):
        foreign = "" if database.has_copy_on(str(row["active"])) else "  (the active server has no copy!)"
        copies = [copy.server for copy in ordered(database)]
        where = f"active on {row['active'] or 'no server'}, epoch {row['epoch']}"
        click.echo(f"{database.name:<20} {where:<40} copies: {', '.join(copies) or 'none'}{foreign}")


# How they stand


@command.command("status")
@click.argument("databases", nargs=-1, metavar="[DATABASE]...")
@click.option("--no-lag", is_flag=True, help="Do not run the lag hooks of this configuration.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object.")
@config_option
def status(databases: tuple[str, ...], no_lag: bool, as_json: bool, config: str) -> None:
    """Show how every copy stands: what was observed of it, and what the operator said of it."""
    stores = open_stores(config)
    organization = stores.configuration.organization
    wanted = [organization.databases[stores.require_database(name)] for name in databases or organization.databases]
    seed(stores.registry, organization)
    view = stores.registry.view()
    rows = [_status(stores, database, view, ask_lag=not no_lag) for database in wanted]
    if as_json:
        held = {"holder": view.manager.holder, "term": view.manager.term} if view.manager else None
        click.echo(json.dumps({"manager": held, "databases": rows}, ensure_ascii=False))
        return
    if view.manager is not None:
        click.echo(f"manager: {view.manager.holder}, term {view.manager.term}")
    else:
        click.echo("manager: none holds the lease: what was observed may be old, and no failure moves anything")
    for row in rows:
        _show(row)


def _status(stores: Stores, database: Database, view: RegistryView, *, ask_lag: bool) -> dict[str, Any]:
    from gatepost.service.moving import lags

    active, under_way = view.active.get(database.name), view.moves.get(database.name)
    behind = lags(stores.configuration, database, active) if ask_lag else {}
    return {
        "database": database.name,
        "active": active.server if active else None,
        "epoch": active.epoch if active else 0,
        "dial": str(view.dials.get(database.name, Dial.GOOD_AVAILABILITY)),
        "move": None
        if under_way is None
        else {
            "source": under_way.source,
            "target": under_way.target,
            "started": under_way.started,
            "reason": under_way.reason,
            "words": move_in_words(under_way),
        },
        "losses": [
            {"epoch": loss.epoch, "since": loss.since, "until": loss.until}
            for loss in view.losses.get(database.name, ())
        ],
        "copies": [_copy(copy, behind.get(copy.server)) for copy in copies_of(database, view)],
    }


def _copy(copy: CopyStanding, lag: Lag | None) -> dict[str, Any]:
    return {
        "server": copy.server,
        "preference": copy.preference,
        "active": copy.active,
        "status": copy.status,
        "word": str(copy.word),
        "blocked": copy.blocked,
        "lag": None if lag is None else lag.behind if lag.behind is not None else f"unknown ({lag.fault})",
        "health": copy.health,
    }


def _show(row: dict[str, Any]) -> None:
    click.echo(f"{row['database']}: active on {row['active'] or 'no server'}, epoch {row['epoch']}, dial {row['dial']}")
    if row["move"] is not None:
        since = datetime.fromtimestamp(row["move"]["started"], UTC).astimezone().isoformat(" ", "seconds")
        click.echo(f"  move under way since {since} {row['move']['words']}")
    for loss in row["losses"][-1:]:
        since, until = moment(loss["since"]), moment(loss["until"])
        click.echo(f"  epoch {loss['epoch']} may have lost mail from {since} to {until}: hubs deliver that again")
    for copy in row["copies"]:
        words = [copy["health"]]
        words += [f"server {copy['word']}"] if copy["word"] != "up" else []
        words += ["blocked"] if copy["blocked"] else []
        if (lag := copy["lag"]) is not None:
            words.append(f"lag {lag:g}" if isinstance(lag, float) else f"lag {lag}")
        active = "*" if copy["active"] else " "
        click.echo(f"  {active} {copy['preference']} {copy['server']:<16} {copy['status']:<12} {', '.join(words)}")


# What the operator says


@command.command("activate")
@click.argument("database")
@click.option("--server", required=True, help="The server whose copy becomes the active one.")
@click.option("--expected-epoch", type=click.IntRange(min=0), help="Only if this is still the epoch (0: never active).")
@click.option(
    "--lost-since",
    metavar="TIME",
    help='The copy may lack mail from then on ("2026-11-30 16:00", or 2h ago): hubs deliver it again.',
)
@config_option
def activate(database: str, server: str, expected_epoch: int | None, lost_since: str | None, config: str) -> None:
    """Make the copy of DATABASE on a server the active one, at once: no hooks, no questions.

    For when the mail is where it should be already. `gatepost database move` does it in good order.
    """
    stores = open_stores(config)
    _require_copy(stores, database, server)
    before = stores.registry.view().active.get(database)
    if expected_epoch is None:
        if before is not None and before.server == server:
            click.echo(f"{database} is active on {server} already, epoch {before.epoch}")
            return
        # Between the look and the change another operator may have moved it: then say so rather than undo that.
        expected_epoch = before.epoch if before else 0
    try:
        lost = None if lost_since is None else max(0.0, time.time() - read_moment(lost_since))
        now = stores.registry.activate(database, server, expected_epoch, lost_seconds=lost)
    except StaleEpoch as error:
        raise click.ClickException(f"{error}: somebody else has moved it; see `gatepost database list`") from error
    click.echo(f"{database}: {_place(before)} → {_place(now)}")
    if lost is not None:
        click.echo(f"hubs deliver again what {database} got in the last {lost / 60:.0f} min: gatepost safety-net list")


@command.command("block")
@click.argument("database")
@click.argument("server")
@config_option
def block(database: str, server: str, config: str) -> None:
    """Never make the copy of DATABASE on SERVER the active one, unless by `activate`. It stays active if it is."""
    _set_blocked(database, server, config, blocked=True)


@command.command("unblock")
@click.argument("database")
@click.argument("server")
@config_option
def unblock(database: str, server: str, config: str) -> None:
    """Allow the copy of DATABASE on SERVER to become the active one again."""
    _set_blocked(database, server, config, blocked=False)


def _set_blocked(database: str, server: str, config: str, *, blocked: bool) -> None:
    stores = open_stores(config)
    _require_copy(stores, database, server)
    was = (database, server) in stores.registry.view().blocked
    stores.registry.set_blocked(database, server, blocked=blocked)
    word = "blocked" if blocked else "not blocked"
    click.echo(f"{database} on {server}: {word}{' already' if was == blocked else ''}")


@command.command("dial")
@click.argument("database")
@click.argument("dial", required=False, type=click.Choice(list(DIALS)))
@config_option
def dial(database: str, dial: str | None, config: str) -> None:
    """Show or set how much lag a copy of DATABASE may have and still be activated when the active one fails.

    lossless: none; good: 6; best: 12, and a copy whose lag is unknown. The units are those of the lag hook.
    """
    stores = open_stores(config)
    found = stores.configuration.organization.databases[stores.require_database(database)]
    if dial is not None:
        stores.registry.set_dial(database, DIALS[dial])
        _warn_of_unmeasured(stores, found, DIALS[dial])
    click.echo(f"{database}: {stores.registry.view().dials.get(database, Dial.GOOD_AVAILABILITY)}")


def _warn_of_unmeasured(stores: Stores, database: Database, dial: Dial) -> None:
    """What is lossless must be measured; an operator should not learn that on the day of the failure."""
    settings = stores.configuration.front_end.manager
    unmeasured = [
        c.server for c in ordered(database) if settings is None or settings.hook(HookKind.LAG, c.server) is None
    ]
    if dial is Dial.LOSSLESS and unmeasured:
        click.echo(
            f"warning: no lag hook is configured for {', '.join(unmeasured)}: where the manager has none either, "
            f"no failure makes a copy of {database.name} there active",
            err=True,
        )


def _require_copy(stores: Stores, database: str, server: str) -> None:
    found = stores.configuration.organization.databases[stores.require_database(database)]
    if not found.has_copy_on(server):
        servers = ", ".join(copy.server for copy in found.copies) or "no server"
        raise click.ClickException(f"{server} has no copy of {database}; copies are on {servers}")


def _place(copy: ActiveCopy | None) -> str:
    return f"{copy.server} (epoch {copy.epoch})" if copy else "nowhere (epoch 0)"
