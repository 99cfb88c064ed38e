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
from gatepost.cli.explain_health import add_mail_health, health_of
from gatepost.cli.explain_mail import DEFAULT_SIZE, MailQuestion, first_server, is_refused, mail_report, mail_text
from gatepost.cli.explain_report import Question, report, text
from gatepost.cli.options import Stores, config_option, open_stores
from gatepost.configuration.settings import Configuration
from gatepost.directory.port import User
from gatepost.organization.addresses import is_ip_address
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol, Role
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.organization.transport_text import read_size
from gatepost.routing.decision import Refuse
from gatepost.routing.outcome import Mailbox
from gatepost.wire.activesync import follows_451


@click.command("explain")
@click.argument("user", required=False)
@click.option("--protocol", type=click.Choice([p.value for p in CLIENT_PROTOCOLS]), default="imap", show_default=True)
@click.option("--path", default="/owa", show_default=True, help="Path of the request, for https.")
@click.option("--from", "front_end", help="Front end the client comes to; default: this one.")
@click.option("--client", metavar="ADDRESS", default="", help="The client's address: its site, and where it leads.")
@click.option("--device-version", metavar="N.N", default="", help="ActiveSync: the device's protocol version.")
@click.option("--mail", nargs=2, metavar="SENDER RECIPIENT", help="The way of a message, in place of a user's sign-in.")
@click.option("--size", metavar="SIZE", help="Of the message, such as 20MB.  [default: 10000]")
@click.option("--server", metavar="HUB", help="Where the message is; default: this machine, or the first hub.")
@click.option("--from-peer", is_flag=True, help="As if another front end had passed the request on.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@config_option
def command(
    user: str | None,
    protocol: str,
    path: str,
    front_end: str | None,
    client: str,
    device_version: str,
    config: str,
    mail: tuple[str, str] | None,
    size: str | None,
    server: str | None,
    *,
    from_peer: bool,
    as_json: bool,
) -> None:
    """Print the facts, each rule that was looked at, and what comes of them for USER.

    With --mail the way of a message from server to server: which queues it waits in, and who takes it next.

    Exit status: 0 the user is served, proxied or redirected, the message delivered or sent; 1 refused or unknown.
    """
    if (user is None) == (mail is None):
        raise click.UsageError("name either a USER or --mail SENDER RECIPIENT")
    if mail is not None:
        _explain_mail(open_stores(config), mail, size, server, as_json=as_json)
        return
    if size is not None or server is not None:
        raise click.UsageError("--size and --server go with --mail")
    assert user is not None, "one of the two is there"
    if client and not is_ip_address(client):
        raise click.BadParameter(f"{client} is no IP address", param_hint="--client")
    if device_version and not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", device_version, re.ASCII):
        raise click.BadParameter(f"{device_version} is no version such as 12.1", param_hint="--device-version")
    stores = open_stores(config)
    configuration = stores.configuration
    found = _find(stores, user)
    name = front_end or configuration.front_end.server
    found_server = configuration.organization.servers.get(name)
    if found_server is None or Role.CLIENT_ACCESS not in found_server.roles:
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


def _explain_mail(
    stores: Stores, mail: tuple[str, str], size: str | None, server: str | None, *, as_json: bool
) -> None:
    """Both addresses with or without brackets; an empty sender is a report's."""
    sender, recipient = (address.removeprefix("<").removesuffix(">") for address in mail)
    try:
        read = DEFAULT_SIZE if size is None else read_size(size)
    except ValueError as fault:
        raise click.BadParameter(f"{size} {fault}", param_hint="--size") from fault
    organization = stores.configuration.organization
    at = first_server(organization, server, stores.configuration.front_end.server)
    question = MailQuestion(sender, recipient, read, at, _mailbox(stores, recipient))
    active = {database: copy.server for database, copy in _view(stores).active.items()}
    found = mail_report(organization, question, active)
    add_mail_health(stores.configuration, found)
    click.echo(json.dumps(found) if as_json else "\n".join(mail_text(found)))
    if is_refused(found):
        raise click.exceptions.Exit(1)


def _mailbox(stores: Stores, recipient: str) -> Mailbox | None:
    """The recipient's mailbox, if the directory has the address."""
    try:
        name = canonical_login_name(recipient, stores.configuration.organization.default_domain)
    except BadLoginName:
        return None
    found = stores.find_user(name)
    return found.mailbox if found is not None else None


def _find(stores: Stores, user: str) -> User:
    try:
        name = canonical_login_name(user, stores.configuration.organization.default_domain)
    except BadLoginName as error:
        raise click.ClickException(f"{user}: no login name: {error}") from error
    found = stores.find_user(name)
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
