"""`gatepost explain`: why a user goes where they go, step by step (SPEC C13)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import MappingProxyType

import click

from gatepost.access.router import Router
from gatepost.activemanager.port import RegistryView
from gatepost.activemanager.seed import first_choice
from gatepost.cli.explain_health import health_of
from gatepost.cli.explain_report import Question, report, text
from gatepost.cli.options import Stores, config_option, open_stores
from gatepost.configuration.settings import Configuration
from gatepost.directory.port import User
from gatepost.organization.addresses import is_ip_address
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol, Role
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.routing.decision import Refuse
from gatepost.wire.activesync import follows_451


@click.command("explain")
@click.argument("user")
@click.option("--protocol", type=click.Choice([p.value for p in CLIENT_PROTOCOLS]), default="imap", show_default=True)
@click.option("--path", default="/owa", show_default=True, help="Path of the request, for https.")
@click.option("--from", "front_end", help="Front end the client comes to; default: this one.")
@click.option("--client", metavar="ADDRESS", default="", help="The client's address: its site, and where it leads.")
@click.option("--device-version", metavar="N.N", default="", help="ActiveSync: the device's protocol version.")
@click.option("--from-peer", is_flag=True, help="As if another front end had passed the request on.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@config_option
def command(
    user: str,
    protocol: str,
    path: str,
    front_end: str | None,
    client: str,
    device_version: str,
    config: str,
    *,
    from_peer: bool,
    as_json: bool,
) -> None:
    """Print the facts, each rule that was looked at, and what comes of them for USER.

    Exit status: 0 the user is served, proxied or redirected, 1 refused or unknown.
    """
    if client and not is_ip_address(client):
        raise click.BadParameter(f"{client} is no IP address", param_hint="--client")
    if device_version and not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", device_version, re.ASCII):
        raise click.BadParameter(f"{device_version} is no version such as 12.1", param_hint="--device-version")
    stores = open_stores(config)
    configuration = stores.configuration
    found = _find(stores, user)
    name = front_end or configuration.front_end.server
    server = configuration.organization.servers.get(name)
    if server is None or Role.CLIENT_ACCESS not in server.roles:
        raise click.ClickException(f"{name} is not a client access server of the organization")
    wanted = Protocol(protocol)
    path = "/" + path.lstrip("/") if wanted is Protocol.HTTPS else ""
    question = Question(found, wanted, name, path, client, from_peer)
    view = _view(stores)
    decision = _router(configuration, view, name).decide_anew(
        wanted, found.mailbox, path, follows_451=follows_451(device_version.encode()), from_peer=from_peer
    )
    active = view.active.get(found.mailbox.database) if found.mailbox.database else None
    health = health_of(configuration, question)
    everything = report(configuration.organization, question, decision, active, health)
    click.echo(json.dumps(everything) if as_json else "\n".join(text(everything)))
    if not question.allowed or isinstance(decision, Refuse):
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


def _router(configuration: Configuration, view: RegistryView, front_end: str) -> Router:
    """The front ends' own decisions, as if this machine were `front_end`."""
    return Router(replace(configuration, front_end=replace(configuration.front_end, server=front_end)), view)


def _view(stores: Stores) -> RegistryView:
    """The registry's word, and for databases it has never heard of what `serve` will make of them at its start."""
    view = stores.registry.view()
    databases = stores.configuration.organization.databases.values()
    expected = {found.database: found for database in databases if (found := first_choice(database))}
    return replace(view, active=MappingProxyType(expected | dict(view.active)))
