"""`gatepost server`: the organization's servers, and the operator's word on them."""

from __future__ import annotations

import time
from contextlib import suppress

import click

from gatepost.activemanager.port import Registry, RegistryUnavailable, ServerWord
from gatepost.activemanager.seed import seed
from gatepost.cli.database_move import (
    LEFT,
    Told,
    dry_run_option,
    move_one,
    seconds_option,
    tell_left,
    tell_sessions,
    wait_option,
)
from gatepost.cli.options import Stores, config_option, open_stores
from gatepost.cli.shell_options import Work, json_option, work_options
from gatepost.organization.model import Role

POLL_SECONDS = 0.2


@click.group("server")
def command() -> None:
    """The organization's servers."""


@command.command("list")
@click.argument("name", required=False)
@json_option
@work_options
def list_(name: str | None, as_json: bool, work: Work) -> None:
    """List the servers: site, roles, version, the operator's word and what the active manager sees."""
    columns = ("Name", "Site", "ServerRole", "AdminDisplayVersion", "State", "Health", "Fqdn")
    work.show("Get-ExchangeServer", {"Identity": name}, columns, as_json=as_json)


@command.command("drain")
@click.argument("server")
@dry_run_option
@wait_option
@seconds_option
@json_option
@config_option
def drain(server: str, dry_run: bool, wait: bool, seconds: float, as_json: bool, config: str) -> int:
    """Move every database away from SERVER, and let none come.

    The manager moves them where one runs, else this command does, one after the other. Exit status 3: some database
    or, with --wait, some session is still there.
    """
    return _away(server, ServerWord.DRAINING, config, Told(as_json), dry_run=dry_run, wait=wait, seconds=seconds)


@command.command("maintenance")
@click.argument("server")
@dry_run_option
@wait_option
@seconds_option
@json_option
@config_option
def maintenance(server: str, dry_run: bool, wait: bool, seconds: float, as_json: bool, config: str) -> int:
    """As `drain`, and no fault of SERVER means anything until `resume`: it may be restarted, or switched off."""
    return _away(server, ServerWord.MAINTENANCE, config, Told(as_json), dry_run=dry_run, wait=wait, seconds=seconds)


@command.command("resume")
@click.argument("server")
@config_option
def resume(server: str, config: str) -> None:
    """SERVER may hold active copies again. What was moved away stays where it is, unless by preference."""
    stores = open_stores(config)
    _require_mailbox_server(stores, server)
    before = stores.registry.view().words.get(server, ServerWord.UP)
    stores.registry.set_word(server, ServerWord.UP)
    click.echo(f"{server}: {before} → {ServerWord.UP}")


def _away(server: str, word: ServerWord, config: str, told: Told, *, dry_run: bool, wait: bool, seconds: float) -> int:
    from gatepost.service.moving import wait_until_off

    began = time.monotonic()
    stores = open_stores(config)
    _require_mailbox_server(stores, server)
    seed(stores.registry, stores.configuration.organization)
    before = stores.registry.view().words.get(server, ServerWord.UP)
    held = _held(stores.registry, server)
    told.say(f"databases active on {server}: {', '.join(held) or 'none'}", server=server, databases=held)
    tell_sessions(stores, "", server, told)
    if dry_run:
        told.say("dry run: nothing was changed", dry_run=True)
        told.end()
        return 0
    stores.registry.set_word(server, word)
    told.say(f"{server}: {before} → {word}", word=str(word))
    status = _moved(stores, server, held, told, seconds)
    if wait and status == 0:
        left = max(0.0, seconds - (time.monotonic() - began))
        status = tell_left(lambda: wait_until_off(stores.configuration.front_end, "", server, left), server, told)
    told.end()
    return status


def _moved(stores: Stores, server: str, held_before: list[str], told: Told, seconds: float) -> int:
    """Have its databases moved; the exit status."""
    deadline = time.monotonic() + seconds
    manager = stores.registry.view().manager
    if manager is not None:
        told.say(f"the manager {manager.holder} moves its databases")
        left = held_before
        while left and time.monotonic() < deadline:
            with suppress(RegistryUnavailable):  # for a moment, perhaps; the command began with an answer
                left = _held(stores.registry, server)
            time.sleep(POLL_SECONDS if left else 0)
    else:
        for database in _held(stores.registry, server):
            try:
                move_one(stores, database, "", Told(told.as_json), reason=f"{server} is drained", seconds=seconds)
            except click.ClickException as fault:
                told.say(f"{fault.message}")
        left = _held(stores.registry, server)
    told.facts["databases_left"] = left
    if not left:
        told.say(f"no database is active on {server}")
        return 0
    told.say(f"still active on {server}: {', '.join(left)} (gatepost database status, and the manager's log, say why)")
    return LEFT


def _held(registry: Registry, server: str) -> list[str]:
    return sorted(name for name, active in registry.view().active.items() if active.server == server)


def _require_mailbox_server(stores: Stores, name: str) -> None:
    server = stores.configuration.organization.servers[stores.require_server(name)]
    if Role.MAILBOX not in server.roles:
        raise click.ClickException(f"{name} is no mailbox server: front ends are drained by SIGTERM (docs/running.md)")
