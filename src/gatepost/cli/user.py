"""`gatepost user`: the users of the embedded directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TextIO, TypedDict, TypeVar, Unpack

import click

from gatepost.cli.app_password import command as app_password
from gatepost.cli.app_password import remove_app_passwords
from gatepost.cli.options import Stores, config_option, open_stores, read_password
from gatepost.directory.editing import DirectoryError, Entry, UnknownUser
from gatepost.directory.passwords import BadPassword, has_other_cost, is_scram, make_hash
from gatepost.directory.port import User
from gatepost.directory.scram_keys import make_hash as make_scram_hash
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import Mailbox

_T = TypeVar("_T")
_Command = Callable[..., Any]


class _Options(TypedDict):
    """What `add` and `set` have in common; unset options are None, False or empty."""

    database: str | None
    home_server: str | None
    protocols: tuple[str, ...]
    login_at_server: str | None
    password_stdin: bool
    password_file: str | None
    no_password: bool


class _SetOptions(_Options):
    add_address: tuple[str, ...]
    remove_address: tuple[str, ...]
    add_send_as: tuple[str, ...]
    remove_send_as: tuple[str, ...]
    disabled: bool | None
    ask: bool


@click.group("user")
def command() -> None:
    """Users: who may sign in, with what, and where their mailboxes are.

    Running front ends see every change within a second.
    """


@contextmanager
def plain_faults() -> Iterator[None]:
    """Turns what the directory refuses into one line for the operator."""
    try:
        yield
    except (DirectoryError, BadPassword) as error:
        raise click.ClickException(str(error)) from error


def _mailbox_options(function: _Command) -> _Command:
    options = (
        click.option("--database", metavar="DB", help="The database that holds the mailbox."),
        click.option("--home-server", metavar="SERVER", help="For old servers: the one that holds the mailbox."),
        click.option(
            "--protocol",
            "protocols",
            multiple=True,
            type=click.Choice([p.value for p in CLIENT_PROTOCOLS]),
            help="A protocol that may be used; may be repeated. A new user may use all.",
        ),
        click.option("--login-at-server", metavar="LOGIN", help="The name used at the mailbox server, if another."),
        click.option("--password-stdin", is_flag=True, help="Read the password from standard input."),
        click.option("--password-file", metavar="FILE", help="Read the password from a file."),
        click.option("--no-password", is_flag=True, help="No password opens this account (tokens do)."),
    )
    for option in reversed(options):  # the last decorator applied is the first option shown
        function = option(function)
    return function


@command.command("add")
@click.argument("name")
@click.option("--address", "addresses", multiple=True, metavar="A", help="A further address; may be repeated.")
@click.option("--send-as", "grants", multiple=True, metavar="A", help="May send as this address or @domain too.")
@click.option("--disabled", is_flag=True, help="May not sign in for now.")
@_mailbox_options
@config_option
def add(
    name: str,
    config: str,
    addresses: tuple[str, ...],
    grants: tuple[str, ...],
    disabled: bool,
    **options: Unpack[_Options],
) -> None:
    """Add the user NAME. Without a domain, NAME gets the organization's first one.

    The password is asked for, or comes by --password-stdin or --password-file.
    """
    stores = open_stores(config)
    mailbox = _mailbox(stores, options)
    if mailbox is None:
        raise click.UsageError("say where the mailbox is: --database or --home-server")
    user = User(
        stores.canonical(name),
        mailbox,
        disabled=disabled,
        protocols=_protocols(options) or frozenset(CLIENT_PROTOCOLS),
        login_at_server=options["login_at_server"] or "",
        send_as=tuple(map(stores.grant, grants)),
    )
    others = tuple(stores.canonical(address) for address in addresses)
    with plain_faults():
        user = replace(user, password_hash=_password_hash(stores, options) or "")
        with stores.editor() as editor:
            editor.add(Entry(user, others))
    stores.warn_of_foreign_domains((user.name, *others))
    click.echo(f"added {user.name}")


@command.command("set")
@click.argument("name")
@click.option("--add-address", multiple=True, metavar="A", help="One more address; may be repeated.")
@click.option("--remove-address", multiple=True, metavar="A", help="An address no more; may be repeated.")
@click.option("--add-send-as", multiple=True, metavar="A", help="May send as this address or @domain too.")
@click.option("--remove-send-as", multiple=True, metavar="A", help="May no more.")
@click.option("--disabled/--enabled", default=None, help="May not, or may, sign in.")
@click.option("--password", "ask", is_flag=True, help="Ask for a new password.")
@_mailbox_options
@config_option
def set_(name: str, config: str, **options: Unpack[_SetOptions]) -> None:
    """Change the user NAME; what is not named stays."""
    if options["disabled"] is None and all(value in (None, False, ()) for value in options.values()):
        raise click.UsageError("say what to change")
    stores = open_stores(config)
    name = stores.canonical(name)
    with plain_faults():
        edit = _edit(stores, name, options)
        with stores.editor() as editor:
            try:
                editor.change(name, edit)
            except UnknownUser:
                raise _hint(editor.resolve(name).user.name, name) from None
    stores.warn_of_foreign_domains(stores.canonical(address) for address in options["add_address"])
    click.echo(f"changed {name}")


def _edit(stores: Stores, name: str, options: _SetOptions) -> Callable[[Entry], Entry]:
    """The change that the options ask for."""
    mailbox = _mailbox(stores, options)
    protocols = _protocols(options)
    new = [stores.canonical(address) for address in options["add_address"]]
    gone = {stores.canonical(address) for address in options["remove_address"]}
    granted = [stores.grant(word) for word in options["add_send_as"]]
    taken = {stores.grant(word) for word in options["remove_send_as"]}
    sets_password = any((options["ask"], options["password_stdin"], options["password_file"], options["no_password"]))
    password_hash = _password_hash(stores, options) if sets_password else None

    def edit(entry: Entry) -> Entry:
        missing = sorted(gone - set(entry.addresses))
        if missing:
            raise DirectoryError(f"{missing[0]} is not a further address of {name}")
        missing = sorted(taken - set(entry.user.send_as))
        if missing:
            raise DirectoryError(f"{name} has no grant to send as {missing[0]}")
        user = replace(
            entry.user,
            mailbox=mailbox or entry.user.mailbox,
            password_hash=_either(password_hash, entry.user.password_hash),
            protocols=protocols or entry.user.protocols,
            disabled=_either(options["disabled"], entry.user.disabled),
            login_at_server=_either(options["login_at_server"], entry.user.login_at_server),
            send_as=tuple(word for word in dict.fromkeys((*entry.user.send_as, *granted)) if word not in taken),
        )
        return replace(entry, user=user, addresses=tuple(a for a in (*entry.addresses, *new) if a not in gone))

    return edit


@command.command("remove")
@click.argument("name")
@config_option
def remove(name: str, config: str) -> None:
    """Remove the user NAME with all addresses. The mailbox itself is not touched."""
    stores = open_stores(config)
    name = stores.canonical(name)
    with plain_faults(), stores.editor() as editor:
        try:
            editor.remove(name)
        except UnknownUser:
            raise _hint(editor.resolve(name).user.name, name) from None
        remove_app_passwords(stores, name)
    click.echo(f"removed {name}")


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@config_option
def show(name: str, as_json: bool, config: str) -> None:
    """Show the user who has the name or address NAME."""
    stores = open_stores(config)
    with plain_faults(), stores.editor() as editor:
        found = describe(editor.resolve(stores.canonical(name)))
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    for key, value in found.items():
        shown = " ".join(value) if isinstance(value, list) else ("yes" if value is True else value)
        if shown not in ("", None, False):
            click.echo(f"{key.replace('_', ' ') + ':':<17} {shown}")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
@click.option("--database", metavar="DB", help="Only users of this database.")
@config_option
def list_(as_json: bool, database: str | None, config: str) -> None:
    """List the users by name."""
    stores = open_stores(config)
    with stores.editor() as editor:
        entries = list(editor.entries(database))
        if database is not None and not entries:  # one that is no more may still have users
            stores.require_database(database)
        if as_json:
            click.echo(json.dumps([describe(entry) for entry in entries], ensure_ascii=False))
            return
        for entry in entries:
            user = entry.user
            where = user.mailbox.database or f"server {user.mailbox.home_server}"
            protocols = ",".join(p.value for p in CLIENT_PROTOCOLS if p in user.protocols)
            state = "disabled" if user.disabled else "" if user.password_hash else "no password"
            click.echo(f"{user.name:<40} {where:<20} {protocols:<16} {state}".rstrip())


command.add_command(app_password)


@command.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8-sig", errors="strict"))
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--skip-faulty", is_flag=True, help="Import the good lines; by default one faulty line stops all.")
@config_option
def import_(file: TextIO, dry_run: bool, skip_faulty: bool, config: str) -> None:
    """Import users from a CSV file ("-": standard input), all of them or none.

    The first line names the columns: name; database or home_server; and, where wanted, addresses and protocols (several
    with spaces between), password or password_hash (argon2id), disabled (yes, no), login_at_server, send_as (as
    addresses).
    """
    from gatepost.cli.user_import import run_import

    run_import(open_stores(config), file, dry_run=dry_run, skip_faulty=skip_faulty)


def describe(entry: Entry) -> dict[str, object]:
    """A user for people and programs; the password's hash stays inside."""
    user = entry.user
    for_scram = ", for SCRAM too" if is_scram(user.password_hash) else ""
    old = " (with another cost than today's: best set again)" if has_cost(user) else ""
    return {
        "name": user.name,
        "addresses": list(entry.addresses),
        "database": user.mailbox.database,
        "home_server": user.mailbox.home_server,
        "protocols": [p.value for p in CLIENT_PROTOCOLS if p in user.protocols],
        "disabled": user.disabled,
        "login_at_server": user.login_at_server,
        "send_as": list(user.send_as),
        "password": f"set{for_scram}{old}" if user.password_hash else "none",
        "changed": datetime.fromtimestamp(entry.changed, UTC).isoformat(),
    }


def has_cost(user: User) -> bool:
    """Whether the user's password was hashed with another cost than today's."""
    return bool(user.password_hash) and has_other_cost(user.password_hash)


def _mailbox(stores: Stores, options: _Options) -> Mailbox | None:
    database, home_server = options["database"], options["home_server"]
    if database and home_server:
        raise click.UsageError("a mailbox is in a database or on a home server, not both")
    if database:
        return Mailbox(database=stores.require_database(database))
    return Mailbox(home_server=stores.require_server(home_server)) if home_server else None


def _protocols(options: _Options) -> frozenset[Protocol]:
    return frozenset(Protocol(word) for word in options["protocols"])


def _password_hash(stores: Stores, options: _Options) -> str:
    if options["no_password"]:
        return ""
    password = read_password(from_stdin=options["password_stdin"], file=options["password_file"])
    scram = stores.configuration.front_end.scram
    return make_hash(password) if scram is None else make_scram_hash(password, scram.iterations)


def _either(new: _T | None, old: _T) -> _T:
    return old if new is None else new


def _hint(owner: str, name: str) -> click.ClickException:
    return click.ClickException(f"{name} is an address of {owner}: name the user as {owner}")
