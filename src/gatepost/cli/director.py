"""`gatepost director`: the verbs that administrators of a Dovecot director know, as aliases of this program's own.

Each prints, on standard error, the command that it stands for. What has no meaning here says so and changes nothing:
a director spreads users over servers and remembers where; here each user's database says it.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from gatepost.cli.options import Stores, UnknownName, config_option, open_stores


@click.group("director")
def command() -> None:
    """`doveadm director`'s verbs, for who knows them.

    HOST is a server's name, full host name or address. A USER is a user, also if it looks like a number or an address.
    """


_yes = click.option("--yes", is_flag=True, help="Do it; without it only what would be done is said.")


@command.command("status")
@click.argument("user", required=False)
@config_option
def status(user: str | None, config: str) -> int:
    """The servers with their state; with USER where that user's sessions would go."""
    return _native(("server", "list") if user is None else ("explain", "--protocol", "imap", "--", user), config)


@command.command("map")
@click.argument("host", required=False)
@click.option("-u", "--user", help="Only this user.")
@config_option
def map_(host: str | None, user: str | None, config: str) -> int:
    """Which users are at which server: the sessions that there are."""
    words = ["sessions", "list"]
    if host is not None:
        words.append(f"--server={_host(open_stores(config), host)}")
    if user is not None:
        words.append(f"--user={user}")
    return _native(words, config)


@command.command("move")
@click.argument("user")
@click.argument("host")
@click.option("--with-database", is_flag=True, help="Move USER's whole database to HOST, with all of its users.")
@click.option("--wait", is_flag=True, help="Until no session is on the old server.")
@config_option
def move(user: str, host: str, with_database: bool, wait: bool, config: str) -> int:
    """Move USER to HOST. A user goes where the database is, so the whole database moves, if you say so."""
    stores = open_stores(config)
    server = _host(stores, host)
    found = stores.find_user(stores.canonical(user))
    if found is None:
        raise UnknownName(f"there is no user {user}")
    database = found.mailbox.database
    if not database:
        raise click.ClickException(f"{found.name} has no database: the mailbox is on one server, and stays there")
    words = ("database", "move", f"--to={server}", *(["--wait"] if wait else []), "--", database)
    if not with_database:
        raise click.ClickException(
            f"{found.name} is where {database} is active, with all of its users; nothing was changed. "
            f"To move the database: {_shown(words)} (or add --with-database)"
        )
    return _native(words, config)


@command.command("kick")
@click.argument("user")
@config_option
def kick(user: str, config: str) -> int:
    """End all sessions of USER."""
    return _native(("sessions", "kick", f"--user={user}"), config)


@command.command("flush")
@click.argument("host")
@_yes
@config_option
def flush(host: str, yes: bool, config: str) -> int:
    """End all sessions at HOST, or at all servers where HOST is `all`: clients come back to where their databases are.

    Without --yes it only says which sessions it would end.
    """
    which = "--all" if host.casefold() == "all" else f"--server={_host(open_stores(config), host)}"
    status = _native(("sessions", "kick", which, "--yes" if yes else "--dry-run"), config)
    if not yes:
        click.echo("nothing was ended: add --yes to end them", err=True)
    return status


@command.command("add")
@click.argument("host")
@click.argument("vhost_count", required=False, type=click.IntRange(min=0))
@config_option
def add(host: str, vhost_count: int | None, config: str) -> int:
    """Let HOST, which the organization has, hold active copies (again). With a VHOST_COUNT of 0: as `down`."""
    return _weighed(host, vhost_count, config)


@command.command("update")
@click.argument("host")
@click.argument("vhost_count", type=click.IntRange(min=0))
@config_option
def update(host: str, vhost_count: int, config: str) -> int:
    """With a VHOST_COUNT of 0 as `remove`, else as `up`: servers have no weight here."""
    return _weighed(host, vhost_count, config)


@command.command("remove")
@click.argument("host")
@click.option("--wait", is_flag=True, help="Until no session is there.")
@config_option
def remove(host: str, wait: bool, config: str) -> int:
    """Move all databases away from HOST."""
    return _native(("server", "drain", *(["--wait"] if wait else []), "--", _host(open_stores(config), host)), config)


@command.command("up")
@click.argument("host")
@config_option
def up(host: str, config: str) -> int:
    """HOST may hold active copies again."""
    return _native(("server", "resume", "--", _host(open_stores(config), host)), config)


@command.command("down")
@click.argument("host")
@config_option
def down(host: str, config: str) -> int:
    """HOST is to be switched off: its databases are moved away, and no fault of it means anything."""
    return _native(("server", "maintenance", "--", _host(open_stores(config), host)), config)


def _weighed(host: str, vhost_count: int | None, config: str) -> int:
    stores = open_stores(config)
    try:
        server = _host(stores, host)
    except UnknownName as fault:
        raise UnknownName(
            f"{fault.message}. A new server is added to the organization's file with its copies: "
            "[servers.NAME] and [databases.NAME], then gatepost check and SIGHUP"
        ) from fault
    if vhost_count == 0:
        return _native(("server", "drain", "--", server), config)
    if vhost_count is not None:
        click.echo(
            f"a weight of {vhost_count} means nothing here: databases say which server has which users", err=True
        )
    return _native(("server", "resume", "--", server), config)


def _no_meaning(name: str, why: str) -> None:
    @command.command(name, hidden=True, context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1)
    def refuse(words: tuple[str, ...]) -> None:  # noqa: ARG001 - whatever they were, they mean nothing
        raise click.ClickException(f"director {name} means nothing here: {why}")

    refuse.help = f"Means nothing here: {why}"


_no_meaning("ring", "front ends are no ring; who acts is agreed on in the registry (gatepost database status)")
_no_meaning("dump", "nothing is remembered of users; databases are in the registry (gatepost database status --json)")


def _host(stores: Stores, name: str) -> str:
    """The server that `name` means. Raises `UnknownName`."""
    wanted = name.casefold()
    for server in stores.configuration.organization.servers.values():
        if wanted in {server.name.casefold(), server.fqdn.casefold(), (server.address or "").casefold()}:
            return server.name
    return stores.require_server(name)


def _shown(words: Sequence[str]) -> str:
    return " ".join(["gatepost", *(word for word in words if word != "--")])


def _native(words: Sequence[str], config: str) -> int:
    """Say which command it is, and run it; its exit status."""
    from gatepost.cli.main import command as gatepost

    click.echo(f"= {_shown(words)}", err=True)
    head = 1 if words[0] == "explain" else 2
    arguments = [*words[:head], "--config", config, *words[head:]]
    result = gatepost.main(args=arguments, prog_name="gatepost", standalone_mode=False)
    return result if isinstance(result, int) else 0
