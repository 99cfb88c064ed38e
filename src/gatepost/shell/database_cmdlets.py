"""Cmdlets for mailbox databases, their copies, and which copy is active."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gatepost.activemanager.port import RegistryUnavailable
from gatepost.configuration.editing import OrganizationText, Plain
from gatepost.organization.model import Database, Organization, Role, Server
from gatepost.routing.decision import ActiveCopy
from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session, by_name, refuse_taken
from gatepost.shell.things import Cell, Thing

_IDENTITY = Parameter("Identity", Kind.TEXT, "The database.", 0)
_COPY = Parameter("Identity", Kind.TEXT, "DATABASE\\SERVER.", 0)
_COPIES = Parameter("Identity", Kind.TEXT, "DATABASE\\SERVER, or DATABASE for all its copies.", 0)
_PREFERENCE = Parameter("ActivationPreference", Kind.NUMBER, "1 is the first choice; the others move up or down.")
_SERVER = Parameter("Server", Kind.TEXT, "The mailbox server.")


def database_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    return [
        Cmdlet("Get-MailboxDatabase", "Show databases.", _get, (_IDENTITY, _SERVER)),
        Cmdlet(
            "New-MailboxDatabase",
            "Add a database with one copy.",
            _new,
            (Parameter("Name", Kind.TEXT, "Its name.", 0), _SERVER),
            changes=True,
        ),
        Cmdlet(
            "Set-MailboxDatabase",
            "Rename a database that has no mailboxes.",
            _set,
            (_IDENTITY, Parameter("Name", Kind.TEXT, "Its new name.")),
            changes=True,
        ),
        Cmdlet("Remove-MailboxDatabase", "Take databases away.", _remove, (_IDENTITY,), changes=True, asks=True),
        Cmdlet("Get-MailboxDatabaseCopy", "Show copies.", _get_copies, (_COPIES, _SERVER)),
        Cmdlet(
            "Add-MailboxDatabaseCopy",
            "Add a copy of a database.",
            _add_copy,
            (_IDENTITY, Parameter("MailboxServer", Kind.TEXT, "Where the copy is."), _PREFERENCE),
            changes=True,
        ),
        Cmdlet("Set-MailboxDatabaseCopy", "Change a copy's preference.", _set_copy, (_COPY, _PREFERENCE), changes=True),
        Cmdlet(
            "Remove-MailboxDatabaseCopy",
            "Take a copy away. The active one stays.",
            _remove_copy,
            (_COPY,),
            changes=True,
            asks=True,
        ),
    ]


# Databases


def find_database(session: Session, name: str) -> Database:
    """The database of that name, without regard to case. Raises `ShellError`."""
    return by_name(session.organization.databases, name, "database")


def find_databases(invocation: Invocation) -> list[Database]:
    """The databases meant. Raises `ShellError`."""
    return [find_database(invocation.session, identity) for identity in invocation.identities()]


def copies_in_order(database: Database) -> list[str]:
    """The servers of its copies by preference."""
    return [copy.server for copy in sorted(database.copies, key=lambda copy: copy.preference)]


def find_mailbox_server(session: Session, name: str) -> Server:
    """The mailbox server of that name. Raises `ShellError`."""
    server = session.server(name)
    if Role.MAILBOX not in server.roles:
        raise ShellError(f"{server.name} is no mailbox server")
    return server


def _active(session: Session) -> dict[str, ActiveCopy]:
    """Active copies by database; empty where there is no registry. Raises `ShellError` when it does not answer."""
    if not session.has_stores:
        return {}
    try:
        return dict(session.registry.view().active)
    except RegistryUnavailable as fault:
        raise ShellError(f"the registry cannot be read: {fault}") from fault


def _thing(database: Database, active: dict[str, ActiveCopy]) -> Thing:
    now = active.get(database.name)
    properties: dict[str, Cell] = {
        "Name": database.name,
        "Server": now.server if now else None,
        "Copies": tuple(copies_in_order(database)),
        "ActivationPreference": tuple(
            f"{c.server}={c.preference}" for c in sorted(database.copies, key=lambda c: c.preference)
        ),
        "Epoch": now.epoch if now else 0,
        "Identity": database.name,
    }
    return Thing("MailboxDatabase", properties, ("Name", "Server", "Copies"))


def _get(invocation: Invocation) -> Iterator[Output]:
    session, server = invocation.session, invocation.bound.text("Server")
    named = "Identity" in invocation.bound or invocation.given is not None
    found = find_databases(invocation) if named else list(session.organization.databases.values())
    wanted = find_mailbox_server(session, server).name if server else None
    active = _active(session)
    for database in found:
        if wanted is None or database.has_copy_on(wanted):
            yield _thing(database, active)


def _new(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    name = bound.need("Name")

    def find() -> list[Server]:
        refuse_taken(session.organization.databases, name, "database")
        return [find_mailbox_server(session, bound.need("Server"))]

    for server in invocation.change(find, lambda server: f"Add the database {name} on {server.name}?"):
        copies: list[dict[str, Any]] = [{"server": server.name, "preference": 1}]
        session.add_table(("databases", name), {"copies": copies})
        yield _thing(session.organization.databases[name], {})


def _refuse_with_mailboxes(session: Session, database: Database, what: str) -> None:
    """The directory names databases: one that holds mailboxes keeps its name and stays."""
    if not session.has_stores:
        session.talk.warn(f"no directory is at hand: whether {database.name} holds mailboxes was not looked at")
        return
    with session.directory() as directory:
        first = next(iter(directory.entries(database.name)), None)
    if first is not None:
        raise ShellError(
            f"{database.name} holds mailboxes, such as {first.user.name}, and cannot be {what}: move them first "
            f"(Get-Mailbox -Database {database.name} | Set-Mailbox -Database …)"
        )


def _set(invocation: Invocation) -> Iterator[Output]:
    session, new = invocation.session, invocation.bound.need("Name")
    for database in invocation.change(lambda: find_databases(invocation), lambda d: f"Rename {d.name} to {new}?"):
        if new.casefold() != database.name.casefold():
            refuse_taken(session.organization.databases, new, "database")
        _refuse_with_mailboxes(session, database, "renamed")

        def edit(text: OrganizationText, _: Organization, old: str = database.name) -> None:
            keys: dict[str, Plain | None] = dict(text.data["databases"][old])
            text.remove_table(("databases", old))
            text.add_table(("databases", new), keys)

        session.edit(edit)
    return iter(())


def _remove(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    for database in invocation.change(lambda: find_databases(invocation), lambda d: f"Remove the database {d.name}?"):
        _refuse_with_mailboxes(session, database, "removed")
        session.remove_table(("databases", database.name))
    return iter(())


# Copies


def find_copy(session: Session, identity: str) -> tuple[Database, str]:
    """Database and server of `DATABASE\\SERVER`. Raises `ShellError`."""
    name, backslash, server = identity.partition("\\")
    if not backslash:
        raise ShellError(f"a copy is named as DATABASE\\SERVER, not {identity!r}")
    database, found = find_database(session, name), session.server(server).name
    if not database.has_copy_on(found):
        raise ShellError(
            f"{found} has no copy of {database.name}; copies are on {', '.join(copies_in_order(database))}"
        )
    return database, found


def find_copies(invocation: Invocation) -> list[tuple[Database, str]]:
    """All copies meant, in order of preference: of the databases and copies named, or of all."""
    session, server = invocation.session, invocation.bound.text("Server")
    named = "Identity" in invocation.bound or invocation.given is not None
    found: list[tuple[Database, str]] = []
    for identity in invocation.identities() if named else list(session.organization.databases):
        if "\\" in identity:
            found.append(find_copy(session, identity))
        else:
            database = find_database(session, identity)
            found += [(database, name) for name in copies_in_order(database)]
    wanted = find_mailbox_server(session, server).name if server else None
    return [(database, name) for database, name in found if wanted in {None, name}]


def _preference(database: Database, server: str) -> int:
    return next(copy.preference for copy in database.copies if copy.server == server)


def _get_copies(invocation: Invocation) -> Iterator[Output]:
    for database, server in find_copies(invocation):
        yield Thing(
            "MailboxDatabaseCopy",
            {
                "Name": f"{database.name}\\{server}",
                "DatabaseName": database.name,
                "MailboxServer": server,
                "ActivationPreference": _preference(database, server),
                "Identity": f"{database.name}\\{server}",
            },
            ("Name", "MailboxServer", "ActivationPreference"),
        )


def _write(session: Session, database: Database, servers: Sequence[str], *, renumber: bool) -> None:
    """Write the copies in the order of `servers`; what is not renumbered keeps its preference and place."""
    if renumber:
        preferences = {server: number for number, server in enumerate(servers, 1)}
    else:
        preferences = {copy.server: copy.preference for copy in database.copies}

    def edit(text: OrganizationText, _: Organization) -> None:
        written: list[dict[str, Any]] = text.data["databases"][database.name]["copies"]
        kept = [entry | {"preference": preferences[entry["server"]]} for entry in written if entry["server"] in servers]
        there = {entry["server"] for entry in written}
        added = [{"server": s, "preference": preferences[s]} for s in servers if s not in there]
        text.set_copies(database.name, [*kept, *added])

    session.edit(edit)


def _at(servers: list[str], server: str, preference: int | None) -> list[str]:
    """`servers` with `server` at the place that its preference asks for."""
    others = [name for name in servers if name != server]
    if preference is not None and not 1 <= preference <= len(others) + 1:
        raise ShellError(f"-ActivationPreference is from 1 to the number of copies, {len(others) + 1}")
    place = len(others) if preference is None else preference - 1
    return [*others[:place], server, *others[place:]]


def _add_copy(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    for database in invocation.change(lambda: find_databases(invocation), lambda d: f"Add a copy of {d.name}?"):
        server = find_mailbox_server(session, bound.need("MailboxServer")).name
        if database.has_copy_on(server):
            raise ShellError(f"{server} has a copy of {database.name} already")
        _write(
            session,
            database,
            _at(copies_in_order(database), server, bound.number("ActivationPreference")),
            renumber=True,
        )
    return iter(())


def _meant(invocation: Invocation) -> list[tuple[Database, str]]:
    return [find_copy(invocation.session, identity) for identity in invocation.identities()]


def _set_copy(invocation: Invocation) -> Iterator[Output]:
    session, preference = invocation.session, invocation.bound.number("ActivationPreference")
    if preference is None:
        raise ShellError("say what to change: -ActivationPreference")
    for database, server in invocation.change(
        lambda: _meant(invocation), lambda c: f"Change the copy of {c[0].name} on {c[1]}?"
    ):
        before = session.organization
        _write(session, database, _at(copies_in_order(database), server, preference), renumber=True)
        if session.organization == before:
            session.talk.warn(f"the preference of {database.name}\\{server} is {preference} already")
    return iter(())


def _remove_copy(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    for database, server in invocation.change(
        lambda: _meant(invocation), lambda c: f"Remove the copy of {c[0].name} on {c[1]}?"
    ):
        if len(database.copies) == 1:
            raise ShellError(f"{database.name}\\{server} is the only copy: remove the database instead")
        now = _active(session).get(database.name)
        if now is not None and now.server == server:
            raise ShellError(f"{database.name}\\{server} is the active copy: activate another one first")
        current = find_database(session, database.name)
        _write(session, current, [name for name in copies_in_order(current) if name != server], renumber=False)
    return iter(())
