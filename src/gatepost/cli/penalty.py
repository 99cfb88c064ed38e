"""`gatepost penalty`: what is held against an address or a user for wrong passwords, and forgiving it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import click

from gatepost.cli.options import config_option, open_stores

if TYPE_CHECKING:
    from gatepost.configuration.settings import Configuration
    from gatepost.directory.policy.penalty import Account

STORE_SECONDS = 5.0


class Unreachable(click.ClickException):
    """Accounts cannot be read or changed: the message says where, and why."""


def _who(function: click.decorators.FC) -> click.decorators.FC:
    function = click.option("--user", default="", help="This user (with --ip: at that address).")(function)
    return click.option("--ip", "address", default="", help="This client address.")(function)


@click.group("penalty")
def command() -> None:
    """What wrong passwords have cost: at this machine's front ends, or at all that share a store."""


@command.command("show")
@_who
@click.option("--json", "as_json", is_flag=True, help="For programs: one object.")
@config_option
def show(address: str, user: str, as_json: bool, config: str) -> int:
    """Show how many wrong passwords are held against an address, a user, or a user at an address."""
    found = _held(open_stores(config).configuration, address, user, clear=False)
    if as_json:
        told = {key: {"failures": account.count, "last": account.used} for key, account in found.items()}
        click.echo(json.dumps(told, ensure_ascii=False))
        return 0
    for key, account in found.items():
        ago = max(time.time() - account.used, 0.0)
        click.echo(f"{key}: {account.count} wrong passwords, the last {ago:.0f} s ago")
    if not found:
        click.echo("Nothing is held.")
    return 0


@command.command("clear")
@_who
@config_option
def clear(address: str, user: str, config: str) -> int:
    """Forgive the wrong passwords of an address, a user, or both: the next sign-in is judged at once."""
    found = _held(open_stores(config).configuration, address, user, clear=True)
    for key, account in found.items():
        click.echo(f"{key}: {account.count} wrong passwords forgiven")
    if not found:
        click.echo("Nothing was held.")
    return 0


def _held(configuration: Configuration, address: str, user: str, *, clear: bool) -> dict[str, Account]:
    keys = _keys(configuration, address, user)
    return asyncio.run(_ask(configuration, keys, clear=clear))


def _keys(configuration: Configuration, address: str, user: str) -> list[str]:
    from gatepost.directory.policy.policy import attempt_of
    from gatepost.directory.policy.rules import parse_client
    from gatepost.directory.policy.settings import Penalty
    from gatepost.organization.names import BadLoginName, canonical_login_name

    if not address and not user:
        raise click.UsageError("whose? Give --ip, --user or both")
    if address and parse_client(address) is None:
        raise click.UsageError(f"{address!r} is no address")
    try:
        name = canonical_login_name(user, configuration.organization.default_domain) if user else ""
    except BadLoginName as fault:
        raise click.UsageError(f"{user!r} can be nobody's name: {fault}") from fault
    attempt = attempt_of(name, address, b"", configuration.front_end.policy.penalty or Penalty())
    keys = [attempt.address] if address else []
    if name:
        keys.append(f"user {name}")
    return [*keys, attempt.pair] if address and name else keys


async def _ask(configuration: Configuration, keys: list[str], *, clear: bool) -> dict[str, Account]:
    """Of the own file, and of the shared store; where both hold something, joined."""
    from gatepost.directory.policy.penalty import joined
    from gatepost.sharedstate.penalties import open_ledger
    from gatepost.sharedstate.store.ledger import held
    from gatepost.sharedstate.store.names import Names
    from gatepost.sharedstate.store.open import RedisMissing, open_store
    from gatepost.sharedstate.store.port import StoreAway

    front_end = configuration.front_end
    ledger, writer = open_ledger(front_end.shared_state, asyncio.get_running_loop())
    try:
        found = await ledger.held(keys, clear=clear)
        if found is None:
            raise Unreachable(f"the shared state cannot be written: {writer.fault}")
    finally:
        writer.close()
    settings = front_end.shared_store
    if settings is None:
        return found
    try:
        store = open_store(settings)
    except RedisMissing as fault:
        raise Unreachable(str(fault)) from fault
    try:
        async with asyncio.timeout(STORE_SECONDS):
            there = await held(store, Names(settings.prefix, settings.secret), keys, clear=clear)
    except (StoreAway, TimeoutError) as fault:
        reason = str(fault) or f"no answer within {STORE_SECONDS:g} s"
        raise Unreachable(f"the shared store {store.where} cannot be reached: {reason}") from fault
    finally:
        await store.close()
    for key, account in there.items():
        found[key] = joined(found[key], account) if key in found else account
    return found
