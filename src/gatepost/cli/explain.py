"""`gatepost explain`: why a user goes where they go, step by step (SPEC C13)."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import click

from gatepost.access.router import Router
from gatepost.activemanager.port import RegistryView
from gatepost.activemanager.seed import first_choice
from gatepost.cli.options import Stores, config_option, open_stores
from gatepost.configuration.settings import Configuration
from gatepost.directory.port import User
from gatepost.organization.model import Protocol, Role
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.routing.decision import Decision, Proxy, Redirect, Refuse, Serve


@click.command("explain")
@click.argument("user")
@click.option("--protocol", type=click.Choice([p.value for p in Protocol]), default="imap", show_default=True)
@click.option("--path", default="/owa", show_default=True, help="Path of the request, for https.")
@click.option("--from", "front_end", help="Front end the client comes to; default: this one.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@config_option
def command(user: str, protocol: str, path: str, front_end: str | None, as_json: bool, config: str) -> None:
    """Print each step of the decision for USER, with its rule.

    Exit status: 0 the user is served or proxied, 1 refused or unknown.
    """
    stores = open_stores(config)
    configuration = stores.configuration
    path = "/" + path.lstrip("/")
    found = _find(stores, user)
    name = front_end or configuration.front_end.server
    server = configuration.organization.servers.get(name)
    if server is None or Role.CLIENT_ACCESS not in server.roles:
        raise click.ClickException(f"{name} is not a client access server of the organization")
    wanted = Protocol(protocol)
    decision = _decide(configuration, stores, found, name, wanted, path)
    allowed = wanted in found.protocols and not found.disabled
    if as_json:
        click.echo(json.dumps(_report(found, name, wanted, decision, allowed=allowed)))
    else:
        _print(found, name, wanted, decision, allowed=allowed)
    if not allowed or not isinstance(decision, Serve | Proxy):
        raise click.exceptions.Exit(1)


def _find(stores: Stores, user: str) -> User:
    try:
        name = canonical_login_name(user, stores.configuration.organization.default_domain)
    except BadLoginName as error:
        raise click.ClickException(f"{user}: no login name: {error}") from error
    found = stores.directory.find(name)
    if found is None:
        raise click.ClickException(f"{name} is not in the directory")
    return found


def _decide(
    configuration: Configuration, stores: Stores, user: User, front_end: str, protocol: Protocol, path: str
) -> Decision:
    """The front ends' own decision, as if this machine were `front_end`."""
    there = replace(configuration, front_end=replace(configuration.front_end, server=front_end))
    router = Router(there, _view(stores))
    return router.decide_anew(protocol, user.mailbox, path if protocol is Protocol.HTTPS else "")


def _view(stores: Stores) -> RegistryView:
    """The registry's word, and for databases it has never heard of what `serve` will make of them at its start."""
    view = stores.registry.view()
    databases = stores.configuration.organization.databases.values()
    expected = {found.database: found for database in databases if (found := first_choice(database))}
    return replace(view, active=MappingProxyType(expected | dict(view.active)))


def _outcome(decision: Decision) -> str:
    match decision:
        case Serve(target=target):
            return f"serve from {target.server}"
        case Proxy(target=target):
            return f"proxy to {target.server}"
        case Redirect(location=location):
            return f"redirect to {location}"
        case Refuse(message=message):
            return f"refuse: {message}"


def _report(user: User, front_end: str, protocol: Protocol, decision: Decision, *, allowed: bool) -> dict[str, Any]:
    report: dict[str, Any] = {
        "user": user.name,
        "protocol": protocol.value,
        "front_end": front_end,
        "database": user.mailbox.database,
        "home_server": user.mailbox.home_server,
        "allowed": allowed,
        "outcome": type(decision).__name__.lower(),
        "steps": [{"rule": step.rule, "text": step.text} for step in decision.steps],
    }
    if isinstance(decision, Serve | Proxy):
        endpoint = decision.target.endpoint
        report["target"] = {
            "server": decision.target.server,
            "address": endpoint.address,
            "port": endpoint.port,
            "tls": endpoint.tls.value,
            "epoch": decision.epoch,
        }
    elif isinstance(decision, Refuse):
        report["refusal"] = {"cause": decision.cause.value, "message": decision.message}
    return report


def _print(user: User, front_end: str, protocol: Protocol, decision: Decision, *, allowed: bool) -> None:
    where = f"database {user.mailbox.database}" if user.mailbox.database else f"home server {user.mailbox.home_server}"
    click.echo(f"{user.name} ({where}) by {protocol.value} at {front_end}")
    for number, step in enumerate(decision.steps, 1):
        click.echo(f"  {number}. {step.rule:<6} {step.text}")
    if user.disabled:
        click.echo("  The user is disabled: every sign-in is refused like a wrong password.")
    elif not allowed:
        click.echo(f"  The user may not use {protocol.value}: the sign-in is refused.")
    click.echo(f"  => {_outcome(decision) if allowed else 'refuse: the sign-in'}")
