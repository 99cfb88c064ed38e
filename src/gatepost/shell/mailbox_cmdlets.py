"""Cmdlets for mailboxes: the users of the directory, and where their mailboxes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gatepost.directory.editing import DirectoryEditor, DirectoryError, Entry
from gatepost.directory.passwords import BadPassword, make_hash
from gatepost.directory.port import User
from gatepost.directory.scram_keys import make_hash as make_scram_hash
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.organization.names import BadLoginName, canonical_grant, canonical_login_name
from gatepost.routing.decision import Mailbox
from gatepost.shell.binding import Bound, Changes, Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session, by_name
from gatepost.shell.things import Cell, Thing

RESULT_SIZE = 1000
"""Mailboxes shown where `-ResultSize` says nothing, as in the source system."""

_IDENTITY = Parameter("Identity", Kind.TEXT, "A name or address of the user.", 0)
_ADDRESSES = Parameter("EmailAddresses", Kind.CHANGES, "Further addresses; @{Add='a'; Remove='b'} changes them.")
_SEND_AS = Parameter("SendAs", Kind.CHANGES, "Who else the user sends as: addresses, or domains as @contoso.com.")
_PROTOCOLS = Parameter(
    "Protocols", Kind.TEXTS, "The protocols that may be used.", words=tuple(p.value for p in CLIENT_PROTOCOLS)
)
_PASSWORD = Parameter("Password", Kind.SWITCH, "Ask for a password. It is never part of a command.")
_WHERE = (
    Parameter("Database", Kind.TEXT, "The database that holds the mailbox."),
    Parameter("HomeServer", Kind.TEXT, "For old servers: the one that holds it."),
)
_LOGIN = Parameter("LoginAtServer", Kind.TEXT, "The name used at the mailbox server, if another.", null=True)
_ENABLED = {
    "ImapEnabled": Protocol.IMAP,
    "PopEnabled": Protocol.POP3,
    "HttpsEnabled": Protocol.HTTPS,
    "SubmissionEnabled": Protocol.SUBMISSION,
}


def mailbox_cmdlets() -> list[Cmdlet]:
    """The cmdlets; those of CASMailbox are the same under the source system's second name."""
    flags = tuple(Parameter(name, Kind.FLAG, "Whether this protocol may be used.") for name in _ENABLED)
    of_set = (_IDENTITY, *_WHERE, _ADDRESSES, _SEND_AS, _PROTOCOLS, *flags, _LOGIN, _PASSWORD)
    size = Parameter("ResultSize", Kind.TEXT, f"Most mailboxes to show, or Unlimited. Default: {RESULT_SIZE}.")
    of_get = (_IDENTITY, Parameter("Database", Kind.TEXT, "Only those of this database."), size)
    return [
        Cmdlet("Get-Mailbox", "Show mailboxes.", _get, of_get),
        Cmdlet("Get-CASMailbox", "Show mailboxes with their protocols.", _get_protocols, of_get),
        Cmdlet("Set-Mailbox", "Change mailboxes.", _set, of_set, changes=True),
        Cmdlet("Set-CASMailbox", "Change mailboxes' protocols.", _set, (_IDENTITY, _PROTOCOLS, *flags), changes=True),
        Cmdlet(
            "New-Mailbox",
            "Add a mailbox and its user.",
            _new,
            (Parameter("Name", Kind.TEXT, "The login name.", 0), *_WHERE, _ADDRESSES, _PROTOCOLS, _LOGIN, _PASSWORD),
            changes=True,
        ),
        Cmdlet("Enable-Mailbox", "Let users sign in again.", _enable, (_IDENTITY,), changes=True),
        Cmdlet(
            "Disable-Mailbox", "Let users sign in no more. Nothing is deleted.", _disable, (_IDENTITY,), changes=True
        ),
        Cmdlet(
            "Remove-Mailbox",
            "Remove users from the directory. The mailbox itself is not touched.",
            _remove,
            (_IDENTITY,),
            changes=True,
            asks=True,
        ),
    ]


def _canonical(session: Session, name: str) -> str:
    try:
        return canonical_login_name(name, session.organization.default_domain)
    except BadLoginName as fault:
        raise ShellError(f"{name!r} is no login name or address: {fault}") from fault


def _thing(entry: Entry, kind: str, columns: tuple[str, ...]) -> Thing:
    user = entry.user
    properties: dict[str, Cell] = {
        "Name": user.name,
        "Database": user.mailbox.database,
        "HomeServer": user.mailbox.home_server,
        "EmailAddresses": entry.addresses,
        "SendAs": user.send_as,
        "Enabled": not user.disabled,
        **{name: protocol in user.protocols for name, protocol in _ENABLED.items()},
        "LoginAtServer": user.server_login,
        "HasPassword": bool(user.password_hash),
        "Identity": user.name,
    }
    return Thing(kind, properties, columns)


def _get(invocation: Invocation) -> Iterator[Output]:
    for entry in _entries(invocation):
        yield _thing(entry, "Mailbox", ("Name", "Database", "HomeServer", "Enabled"))


def _get_protocols(invocation: Invocation) -> Iterator[Output]:
    for entry in _entries(invocation):
        yield _thing(entry, "CASMailbox", ("Name", *_ENABLED))


def _entries(invocation: Invocation) -> list[Entry]:
    session, bound = invocation.session, invocation.bound
    database = bound.text("Database")
    wanted = by_name(session.organization.databases, database, "database").name if database else None
    with session.directory() as directory:
        if "Identity" in bound or invocation.given is not None:
            found = [directory.resolve(_canonical(session, name)) for name in invocation.identities()]
            return [entry for entry in found if wanted in {None, entry.user.mailbox.database}]
        return _limited(session, directory.entries(wanted), bound.text("ResultSize"))


def _limited(session: Session, entries: Iterator[Entry], size: str | None) -> list[Entry]:
    if size is not None and size.casefold() == "unlimited":
        return list(entries)
    if size is not None and not (size.isascii() and size.isdigit()):
        raise ShellError("-ResultSize is a number or Unlimited")
    limit = RESULT_SIZE if size is None else int(size)
    found: list[Entry] = []
    for entry in entries:
        if len(found) == limit:
            session.talk.warn(f"there are more than these {limit}: -ResultSize Unlimited shows all")
            break
        found.append(entry)
    return found


def _mailbox(session: Session, bound: Bound) -> Mailbox | None:
    database, server = bound.text("Database"), bound.text("HomeServer")
    if database and server:
        raise ShellError("a mailbox is in a database or on a home server, not both")
    if server:
        return Mailbox(home_server=session.server(server).name)
    return Mailbox(database=by_name(session.organization.databases, database, "database").name) if database else None


def _password_hash(session: Session, bound: Bound) -> str | None:
    if not bound.flag("Password"):
        return None
    try:
        scram, password = session.configuration.front_end.scram, session.talk.new_password()
        return make_hash(password) if scram is None else make_scram_hash(password, scram.iterations)
    except BadPassword as fault:
        raise ShellError(str(fault)) from fault


def _addresses(session: Session, bound: Bound) -> Changes | None:
    """The change of addresses, each in its canonical form. The `smtp:` of the source system may stand in front."""
    changes = bound.changes("EmailAddresses")
    if changes is None:
        return None

    def canonical(names: Sequence[str]) -> tuple[str, ...]:
        plain = (name[5:] if name[:5].casefold() == "smtp:" else name for name in names)
        return tuple(_canonical(session, name) for name in plain)

    new = None if changes.new is None else canonical(changes.new)
    return Changes(new, canonical(changes.add), canonical(changes.remove))


def _grants(session: Session, bound: Bound) -> Changes | None:
    """The change of whom the user sends as, each in its canonical form."""
    changes = bound.changes("SendAs")
    if changes is None:
        return None

    def canonical(words: Sequence[str]) -> tuple[str, ...]:
        try:
            return tuple(canonical_grant(word, session.organization.default_domain) for word in words)
        except BadLoginName as fault:
            raise ShellError(f"-SendAs: {', '.join(words)}: {fault}") from fault

    new = None if changes.new is None else canonical(changes.new)
    return Changes(new, canonical(changes.add), canonical(changes.remove))


@dataclass(frozen=True)
class _Change:
    """What becomes of an entry, and what to call it."""

    session: Session
    invocation: Invocation
    what: str

    def apply(self, edit: Callable[[Entry], Entry]) -> None:
        """To each mailbox meant, one after the other."""
        done = 0
        for name in self.invocation.identities():
            try:
                with self.session.directory() as directory:
                    own = directory.resolve(_canonical(self.session, name)).user.name
                    if self._wanted(directory, own, edit):
                        directory.change(own, edit)
                        done += 1
            except ShellError as fault:
                before = f" ({done} were changed before)" if done else ""
                raise ShellError(f"{fault}{before}") from fault

    def _wanted(self, directory: DirectoryEditor, name: str, edit: Callable[[Entry], Entry]) -> bool:
        if not self.invocation.what_if:
            return self.invocation.agreed(f"{self.what} {name}?")
        before, after = directory.get(name), edit(directory.get(name))
        old, new = _thing(before, "", ()).properties, _thing(after, "", ()).properties
        changes = [f"{key}: {old[key]} → {new[key]}" for key in old if old[key] != new[key]]
        if before.user.password_hash != after.user.password_hash:
            changes.append("another password")
        self.session.talk.say(f"What if: {self.what} {name}: {'; '.join(changes) or 'no change'}")
        return False


def _set(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    if not bound.values.keys() - {"Identity", "WhatIf", "Confirm"}:
        raise ShellError("say what to change, for example -Database")
    mailbox, addresses, grants = _mailbox(session, bound), _addresses(session, bound), _grants(session, bound)
    password_hash = _password_hash(session, bound)

    def edit(entry: Entry) -> Entry:
        user = entry.user
        protocols = frozenset(Protocol(word) for word in bound.texts("Protocols")) or user.protocols
        for name, protocol in _ENABLED.items():
            flag = bound.flag(name)
            if flag is not None:
                protocols = protocols | {protocol} if flag else protocols - {protocol}
        if not protocols:
            raise DirectoryError(f"{user.name} could use no protocol: disable the mailbox instead")
        login = (bound.text("LoginAtServer") or "") if "LoginAtServer" in bound else user.login_at_server
        changed = replace(
            user,
            mailbox=mailbox or user.mailbox,
            protocols=protocols,
            login_at_server=login,
            password_hash=user.password_hash if password_hash is None else password_hash,
            send_as=user.send_as if grants is None else tuple(grants.apply(user.send_as)),
        )
        others = entry.addresses if addresses is None else addresses.apply(entry.addresses)
        return replace(entry, user=changed, addresses=tuple(a for a in others if a != user.name))

    _Change(session, invocation, "Change").apply(edit)
    return iter(())


def _enable(invocation: Invocation) -> Iterator[Output]:
    _Change(invocation.session, invocation, "Enable").apply(lambda e: replace(e, user=replace(e.user, disabled=False)))
    return iter(())


def _disable(invocation: Invocation) -> Iterator[Output]:
    _Change(invocation.session, invocation, "Disable").apply(lambda e: replace(e, user=replace(e.user, disabled=True)))
    return iter(())


def _new(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    name = _canonical(session, bound.need("Name"))
    mailbox, addresses = _mailbox(session, bound), _addresses(session, bound)
    if mailbox is None:
        raise ShellError("say where the mailbox is: -Database")
    user = User(
        name,
        mailbox,
        protocols=frozenset(Protocol(word) for word in bound.texts("Protocols")) or frozenset(CLIENT_PROTOCOLS),
        login_at_server=bound.text("LoginAtServer") or "",
    )
    entry = Entry(user, addresses.apply(()) if addresses else ())
    if invocation.what_if:
        session.talk.say(f"What if: {name} would be added")
        return
    if not invocation.agreed(f"Add {name}?"):
        return
    entry = replace(entry, user=replace(user, password_hash=_password_hash(session, bound) or ""))
    with session.directory() as directory:
        directory.add(entry)
        added = directory.get(name)
    if not entry.user.password_hash:
        session.talk.warn(f"{name} has no password yet: gatepost user set {name} --password")
    yield _thing(added, "Mailbox", ("Name", "Database", "HomeServer", "Enabled"))


def _remove(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    for identity in invocation.identities():
        with session.directory() as directory:
            name = directory.resolve(_canonical(session, identity)).user.name
            if invocation.what_if:
                session.talk.say(f"What if: {name} would be removed")
            elif invocation.agreed(f"Remove {name}?"):
                directory.remove(name)
    return iter(())
