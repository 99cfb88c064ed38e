"""`gatepost user app-password`: secrets for single programs and devices of a user, whichever directory has the user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import click

from gatepost.cli.options import Stores, UnknownName, config_option, open_stores
from gatepost.directory.app_passwords import WORDS, AppPassword, in_order
from gatepost.directory.editing import DirectoryError
from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.model import Network

_DAY = "%Y-%m-%d"


@click.group("app-password")
def command() -> None:
    """App passwords: one for each program or device, for the protocols that it speaks.

    They open no sign-in page, and mailbox servers do not know them. A change counts at once.
    """


@contextmanager
def _plain_faults() -> Iterator[None]:
    try:
        yield
    except (DirectoryError, DirectoryUnavailable) as fault:
        raise click.ClickException(str(fault)) from fault


@command.command("add")
@click.argument("name")
@click.option("--name", "title", required=True, metavar="TEXT", help='What it is for, as "phone".')
@click.option(
    "--protocols", metavar="LIST", default="", help=f"Where it counts, with commas: {', '.join(WORDS)}. Default: all."
)
@click.option("--expires", metavar="WHEN", default="", help="A day (2027-01-31) or a number of days (90d).")
@click.option("--networks", metavar="LIST", default="", help="Where it may come from: 10.0.0.0/8,2001:db8::/32.")
@config_option
def add(name: str, title: str, protocols: str, expires: str, networks: str, config: str) -> None:
    """Make an app password for the user NAME. It is shown now and never again."""
    stores = open_stores(config)
    words = _words(protocols)
    allowed = _networks(networks)
    until = _moment(expires)
    with _plain_faults():
        user = stores.directory.find(stores.canonical(name))
        if user is None:
            raise click.ClickException(f"no user has the name or address {stores.canonical(name)}")
        with stores.app_passwords() as editor:
            secret = editor.add(user.name, title, words, allowed, until)
    click.echo(f"app password {title} of {user.name}, shown once:", err=True)
    click.echo(secret)


@command.command("list")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
@config_option
def list_(name: str | None, as_json: bool, config: str) -> None:
    """List the app passwords of the user NAME, or all: where they count, and when and whence they were used last."""
    stores = open_stores(config)
    with _plain_faults(), stores.app_passwords() as editor:
        found = editor.list(None if name is None else _owner(stores, name))
    if as_json:
        click.echo(json.dumps([_described(each) for each in found], ensure_ascii=False))
        return
    for each in found:
        used = f"used {_shown(each.used)} {each.used_word} {each.used_address}" if each.used else "never used"
        ends = f"expires {_shown(each.expires)}" if each.expires else ""
        words = ",".join(in_order(each.words)) or "all"
        whence = ",".join(map(str, each.networks))
        line = f"{each.user:<32} {each.name:<20} {words:<20} made {_shown(each.made)} {used} {ends} {whence}"
        click.echo(line.rstrip())


@command.command("remove")
@click.argument("name")
@click.option("--name", "title", metavar="TEXT", help="Which one.")
@click.option("--all", "everything", is_flag=True, help="All of this user.")
@config_option
def remove(name: str, title: str | None, everything: bool, config: str) -> None:
    """Remove an app password of the user NAME. It opens nothing from now on, and sessions that it began end."""
    if (title is None) != everything:
        raise click.UsageError("say which one: --name, or --all")
    stores = open_stores(config)
    with _plain_faults(), stores.app_passwords() as editor:
        user = _owner(stores, name)
        count = editor.remove(user, title)
    if not count and title is not None:
        raise click.ClickException(f"{user} has no app password called {title!r}")
    click.echo(f"removed {count} of {user}")


def remove_app_passwords(stores: Stores, user: str) -> None:
    """All of `user` (canonical), who is no more: whoever has the name next has none of them."""
    with _plain_faults(), stores.app_passwords() as editor:
        editor.remove(user, None)


def _owner(stores: Stores, name: str) -> str:
    """The canonical name of who has this name or address; of nobody: the name itself, for users who are gone."""
    canonical = stores.canonical(name)
    try:
        user = stores.directory.find(canonical)
    except DirectoryUnavailable:
        return canonical
    return canonical if user is None else user.name


def _words(text: str) -> frozenset[str]:
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in WORDS:
            raise UnknownName(f"{word!r} is no protocol or service (there are: {', '.join(WORDS)})")
    return frozenset(words)


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as fault:
        raise UnknownName(f"a network: {fault}") from fault


def _moment(text: str) -> int:
    """Seconds since 1970; 0: never. A day ends at midnight UTC."""
    if not text:
        return 0
    try:
        if text.endswith("d"):
            return int((datetime.now(UTC) + timedelta(days=int(text[:-1]))).timestamp())
        return int((datetime.strptime(text, _DAY).replace(tzinfo=UTC) + timedelta(days=1)).timestamp())
    except (ValueError, OverflowError) as fault:
        raise UnknownName(f"{text!r} is no day (2027-01-31) and no number of days (90d)") from fault


def _shown(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _described(found: AppPassword) -> dict[str, object]:
    return {
        "user": found.user,
        "name": found.name,
        "protocols": in_order(found.words),
        "networks": [str(network) for network in found.networks],
        "made": _shown(found.made),
        "expires": _shown(found.expires) if found.expires else None,
        "used": _shown(found.used) if found.used else None,
        "used_protocol": found.used_word or None,
        "used_address": found.used_address or None,
    }
