"""`gatepost database`: where the active copies are, and moving them."""

from __future__ import annotations

import json

import click

from gatepost.activemanager.port import StaleEpoch
from gatepost.activemanager.seed import seed
from gatepost.cli.options import Stores, config_option, open_stores
from gatepost.routing.decision import ActiveCopy


@click.group("database")
def command() -> None:
    """Databases: which server holds the active copy of each, and moving it."""


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
        copies = [copy.server for copy in sorted(database.copies, key=lambda copy: copy.preference)]
        rows.append(
            {
                "database": database.name,
                "active": now.server if now else None,
                "epoch": now.epoch if now else 0,
                "copies": copies,
            }
        )
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row, database in zip(rows, organization.databases.values(), strict=True):
        foreign = "" if database.has_copy_on(str(row["active"])) else "  (the active server has no copy!)"
        copies = [copy.server for copy in sorted(database.copies, key=lambda copy: copy.preference)]
        where = f"active on {row['active'] or 'no server'}, epoch {row['epoch']}"
        click.echo(f"{database.name:<20} {where:<40} copies: {', '.join(copies) or 'none'}{foreign}")


@command.command("activate")
@click.argument("database")
@click.option("--server", required=True, help="The server whose copy becomes the active one.")
@click.option("--expected-epoch", type=click.IntRange(min=0), help="Only if this is still the epoch (0: never active).")
@config_option
def activate(database: str, server: str, expected_epoch: int | None, config: str) -> None:
    """Make the copy of DATABASE on a server the active one. New sessions go there at once."""
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
        now = stores.registry.activate(database, server, expected_epoch)
    except StaleEpoch as error:
        raise click.ClickException(f"{error}: somebody else has moved it; see `gatepost database list`") from error
    click.echo(f"{database}: {_place(before)} → {_place(now)}")


def _require_copy(stores: Stores, database: str, server: str) -> None:
    found = stores.configuration.organization.databases[stores.require_database(database)]
    if not found.has_copy_on(server):
        servers = ", ".join(copy.server for copy in found.copies) or "no server"
        raise click.ClickException(f"{server} has no copy of {database}; copies are on {servers}")


def _place(copy: ActiveCopy | None) -> str:
    return f"{copy.server} (epoch {copy.epoch})" if copy else "nowhere (epoch 0)"
