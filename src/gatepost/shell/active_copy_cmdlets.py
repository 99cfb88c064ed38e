"""Cmdlets for which copy is active, how copies stand, and what operators allow: the registry changes, not the file.

Names, parameters and words are the source system's, as far as they mean anything without its servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from gatepost.activemanager.port import RegistryUnavailable, RegistryView, ServerWord
from gatepost.activemanager.selection import Lag
from gatepost.activemanager.standing import CopyStanding, copies_of
from gatepost.organization.model import Database, Role, Server
from gatepost.service.moving import MoveFailed, choose, lags, move
from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.database_cmdlets import (
    copies_in_order,
    find_copies,
    find_copy,
    find_databases,
    find_mailbox_server,
)
from gatepost.shell.errors import ShellError
from gatepost.shell.things import Cell, Thing

STATES = {"Active": ServerWord.UP, "Draining": ServerWord.DRAINING, "Inactive": ServerWord.MAINTENANCE}
"""The source system's states of a server's components, and the operator's words here."""
WHOLE_SERVER = "ServerWideOffline"
POLICIES = ("Unrestricted", "IntrasiteOnly", "Blocked")
DIALS = ("None", "Lossless", "GoodAvailability", "BestAvailability", "BestEffort")

_DATABASE = Parameter("Identity", Kind.TEXT, "The database.", 0)
_SERVER = Parameter("Identity", Kind.TEXT, "The mailbox server.", 0)
_OF_SERVER = Parameter("Server", Kind.TEXT, "The mailbox server.")
_COPY = Parameter("Identity", Kind.TEXT, "DATABASE\\SERVER.", 0)
_COPIES = Parameter("Identity", Kind.TEXT, "DATABASE\\SERVER, or DATABASE for all its copies.", 0)


def active_copy_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    return [
        Cmdlet(
            "Get-MailboxDatabaseCopyStatus", "Show how the copies of databases stand.", _status, (_COPIES, _OF_SERVER)
        ),
        Cmdlet("Move-ActiveMailboxDatabase", "Make another copy the active one.", _move, _MOVE, changes=True),
        Cmdlet(
            "Suspend-MailboxDatabaseCopy",
            "Keep a copy from being activated.",
            _suspend,
            (
                _COPY,
                Parameter("ActivationOnly", Kind.SWITCH, "Only activation: replication is the servers' own business."),
                Parameter("SuspendComment", Kind.TEXT, "Taken, and kept nowhere."),
            ),
            changes=True,
            asks=True,
        ),
        Cmdlet("Resume-MailboxDatabaseCopy", "Allow a copy to be activated again.", _resume, (_COPY,), changes=True),
        Cmdlet(
            "Set-MailboxServer",
            "Say what may be activated on mailbox servers.",
            _set_server,
            (
                _SERVER,
                Parameter("DatabaseCopyAutoActivationPolicy", Kind.TEXT, "Of all copies that it has.", words=POLICIES),
                Parameter(
                    "DatabaseCopyActivationDisabledAndMoveNow", Kind.FLAG, "Move its databases away, and let none come."
                ),
            ),
            changes=True,
        ),
        Cmdlet("Get-ServerComponentState", "Show whether mailbox servers are in use.", _get_state, (_SERVER,)),
        Cmdlet(
            "Set-ServerComponentState",
            "Take mailbox servers out of use, and back.",
            _set_state,
            (
                _SERVER,
                Parameter("Component", Kind.TEXT, "The whole server.", required=True, words=(WHOLE_SERVER,)),
                Parameter("State", Kind.TEXT, "Draining: its databases are moved away.", words=tuple(STATES)),
                Parameter("Requester", Kind.TEXT, "Taken, and kept nowhere."),
            ),
            changes=True,
        ),
    ]


_MOVE = (
    _DATABASE,
    Parameter("ActivateOnServer", Kind.TEXT, "The server whose copy becomes active. Default: the best copy.", 1),
    Parameter("Server", Kind.TEXT, "Move all databases away that are active on this server."),
    Parameter("MountDialOverride", Kind.TEXT, "How much may be lost. A move here waits until nothing is.", words=DIALS),
    Parameter("MoveComment", Kind.TEXT, "The reason, for the log."),
)


@contextmanager
def _registry_faults() -> Iterator[None]:
    try:
        yield
    except RegistryUnavailable as fault:
        raise ShellError(f"the registry does not answer: {fault}") from fault


def _view(invocation: Invocation) -> RegistryView:
    with _registry_faults():
        return invocation.session.registry.view()


# How copies stand


def _status(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    if not session.has_stores:
        raise ShellError("this needs the registry of a front end's configuration (--config FILE)")
    view = _view(invocation)
    measured: dict[str, dict[str, Lag]] = {}
    for database, server in find_copies(invocation):
        if database.name not in measured:
            measured[database.name] = lags(session.configuration, database, view.active.get(database.name))
        standing = next(copy for copy in copies_of(database, view) if copy.server == server)
        yield _thing_of_copy(database, standing, measured[database.name].get(server), view)


def _thing_of_copy(database: Database, copy: CopyStanding, lag: Lag | None, view: RegistryView) -> Thing:
    active, under_way = view.active.get(database.name), view.moves.get(database.name)
    status = copy.status
    if under_way is not None and copy.server in {under_way.source, under_way.target}:
        status = "Dismounting" if copy.server == under_way.source else "Mounting"
    fault = "" if copy.health in {"healthy", "not observed"} else copy.health
    if lag is not None and lag.behind is None:
        fault = f"{fault}; lag unknown: {lag.fault}".removeprefix("; ")
    queue = math.ceil(lag.behind) if lag is not None and lag.behind is not None else None
    properties: dict[str, Cell] = {
        "Name": f"{database.name}\\{copy.server}",
        "Status": status,
        "CopyQueueLength": 0 if copy.active else queue,
        "ActivationPreference": copy.preference,
        "ActivationSuspended": copy.blocked,
        "ActiveCopy": copy.active,
        "ActiveDatabaseCopy": active.server.casefold() if active else None,
        "ErrorMessage": fault or None,
        "ServerState": str(copy.word),
        "Epoch": active.epoch if active else 0,
        "DatabaseName": database.name,
        "MailboxServer": copy.server,
        "Identity": f"{database.name}\\{copy.server}",
    }
    columns = ("Name", "Status", "CopyQueueLength", "ActivationPreference", "ActivationSuspended", "Epoch")
    return Thing("MailboxDatabaseCopyStatus", properties, columns)


# Moving


def _to_move(invocation: Invocation) -> list[Database]:
    session, server = invocation.session, invocation.bound.text("Server")
    if server is None:
        return find_databases(invocation)
    if "Identity" in invocation.bound or invocation.given is not None:
        raise ShellError("name databases or -Server, not both")
    name, active = find_mailbox_server(session, server).name, _view(invocation).active
    return [d for d in session.organization.databases.values() if d.name in active and active[d.name].server == name]


def _move(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    to = bound.text("ActivateOnServer")
    wanted = find_mailbox_server(session, to).name if to else ""
    if bound.text("MountDialOverride") not in {None, "None", "Lossless"}:
        session.talk.warn("a move waits until the copy lacks nothing: -MountDialOverride changes nothing here")
    for database in _to_move(invocation):
        view = _view(invocation)
        before = view.active.get(database.name)
        if wanted and not database.has_copy_on(wanted):
            copies = ", ".join(copies_in_order(database))
            raise ShellError(f"{wanted} has no copy of {database.name}; copies are on {copies}")
        if before is not None and before.server == wanted:
            session.talk.warn(f"{database.name} is active on {wanted} already")
            continue
        try:
            target = choose(database, view, wanted).server
            if invocation.what_if:
                session.talk.say(f"What if: {database.name} would be active on {target}")
                continue
            if not invocation.agreed(f"Make {target} active for {database.name}?"):
                continue
            with _registry_faults():
                reason = bound.text("MoveComment") or ""
                now = move(session.configuration, session.registry, database.name, target, reason=reason)
        except MoveFailed as fault:
            raise ShellError(str(fault)) from fault
        properties: dict[str, Cell] = {
            "Identity": database.name,
            "ActiveServerAtStart": before.server if before else None,
            "ActiveServerAtEnd": now.server,
            "Status": "Succeeded",
            "Epoch": now.epoch,
        }
        columns = ("Identity", "ActiveServerAtStart", "ActiveServerAtEnd", "Status")
        yield Thing("DatabaseMoveResult", properties, columns)


# What the operator allows


def _suspend(invocation: Invocation) -> Iterator[Output]:
    if not invocation.bound.flag("ActivationOnly"):
        invocation.session.talk.warn("only activation is suspended: replication is the servers' own business")
    return _block(invocation, blocked=True)


def _resume(invocation: Invocation) -> Iterator[Output]:
    return _block(invocation, blocked=False)


def _block(invocation: Invocation, *, blocked: bool) -> Iterator[Output]:
    session = invocation.session
    for database, server in [find_copy(session, identity) for identity in invocation.identities()]:
        name = f"{database.name}\\{server}"
        what = f"Keep {name} from being activated" if blocked else f"Allow {name} to be activated"
        if invocation.what_if:
            session.talk.say(f"What if: {what}")
        elif invocation.agreed(f"{what}?"):
            with _registry_faults():
                session.registry.set_blocked(database.name, server, blocked=blocked)
    return iter(())


def _servers(invocation: Invocation) -> list[Server]:
    return [find_mailbox_server(invocation.session, identity) for identity in invocation.identities()]


def _set_server(invocation: Invocation) -> Iterator[Output]:
    bound = invocation.bound
    policy = bound.text("DatabaseCopyAutoActivationPolicy")
    away = bound.flag("DatabaseCopyActivationDisabledAndMoveNow")
    if policy is None and away is None:
        raise ShellError("say what to change")
    if policy == "IntrasiteOnly":
        raise ShellError("IntrasiteOnly means nothing here: block the copies that are far away, one by one")
    for server in _servers(invocation):
        if policy is not None:
            _set_policy(invocation, server, blocked=policy == "Blocked")
        if away is not None:
            _set_word(invocation, server, ServerWord.DRAINING if away else ServerWord.UP)
    return iter(())


def _set_policy(invocation: Invocation, server: Server, *, blocked: bool) -> None:
    session = invocation.session
    names = [d.name for d in session.organization.databases.values() if d.has_copy_on(server.name)]
    what = f"{'Block' if blocked else 'Unblock'} the copies on {server.name}: {', '.join(names) or 'none'}"
    if invocation.what_if:
        session.talk.say(f"What if: {what}")
    elif invocation.agreed(f"{what}?"):
        with _registry_faults():
            for name in names:
                session.registry.set_blocked(name, server.name, blocked=blocked)


def _set_word(invocation: Invocation, server: Server, word: ServerWord) -> None:
    session = invocation.session
    if invocation.what_if:
        session.talk.say(f"What if: {server.name} would be {word}")
    elif invocation.agreed(f"Have {server.name} be {word}?"):
        with _registry_faults():
            session.registry.set_word(server.name, word)
            if word is not ServerWord.UP and session.registry.view().manager is None:
                session.talk.warn(f"no manager runs: move the databases yourself (gatepost server drain {server.name})")


def _get_state(invocation: Invocation) -> Iterator[Output]:
    session, view = invocation.session, _view(invocation)
    named = "Identity" in invocation.bound or invocation.given is not None
    every = [s for s in session.organization.servers.values() if Role.MAILBOX in s.roles]
    words = {word: state for state, word in STATES.items()}
    for server in _servers(invocation) if named else every:
        state = words[view.words.get(server.name, ServerWord.UP)]
        properties: dict[str, Cell] = {
            "ServerFqdn": server.fqdn,
            "Component": WHOLE_SERVER,
            "State": state,
            "Identity": server.name,
        }
        yield Thing("ServerComponentState", properties, ("Identity", "Component", "State"))


def _set_state(invocation: Invocation) -> Iterator[Output]:
    word = STATES[invocation.bound.need("State")]
    for server in _servers(invocation):
        _set_word(invocation, server, word)
    return iter(())
