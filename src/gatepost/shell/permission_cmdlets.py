"""Get-, Add- and Remove-ADPermission: who may send as whom, on connectors and mailboxes (exchange-facts 4.9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.organization.model import Organization
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.organization.transport import PermissionGroup, ReceiveConnector
from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.receive_connector_cmdlets import change_connector, find_connector
from gatepost.shell.session import Session
from gatepost.shell.settings import Keys
from gatepost.shell.things import Thing

ANY_SENDER = "ms-Exch-SMTP-Accept-Any-Sender"
OWN_DOMAINS = "ms-Exch-SMTP-Accept-Authoritative-Domain-Sender"
SEND_AS = "Send As"
USERS, STRANGERS = r"NT AUTHORITY\Authenticated Users", r"NT AUTHORITY\ANONYMOUS LOGON"
_ALIASES = {"exchangeusers": USERS, "anonymoususers": STRANGERS, "send-as": SEND_AS}

KEYS = {(ANY_SENDER, USERS): "accept_any_sender", (OWN_DOMAINS, STRANGERS): "accept_authoritative_domain_sender"}
"""What of a connector's rights is a choice, and the key that says so."""

_IDENTITY = Parameter("Identity", Kind.TEXT, "A receive connector, or the mailbox that is sent as.", 0)
_USER = Parameter("User", Kind.TEXT, f"Who gets the right: a user, or {USERS}, {STRANGERS} on connectors.")
_RIGHTS = Parameter("ExtendedRights", Kind.TEXTS, f"{SEND_AS} on mailboxes; {ANY_SENDER}, {OWN_DOMAINS} on connectors.")
_COLUMNS = ("Identity", "User", "ExtendedRights")


def permission_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    own = (_IDENTITY, _USER, _RIGHTS)
    return [
        Cmdlet("Get-ADPermission", "Show who may send as whom.", _get, (_IDENTITY,)),
        Cmdlet("Add-ADPermission", "Let somebody send as others.", partial(_set, True), own, changes=True),
        Cmdlet("Remove-ADPermission", "Let them no more.", partial(_set, False), own, changes=True, asks=True),
    ]


def _get(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    for identity in invocation.identities():
        connector = _connector(session, identity)
        if connector is not None:
            name = f"{connector.server}\\{connector.name}"
            for (right, user), key in KEYS.items():
                if _has(connector, key):
                    yield Thing("ADPermission", {"Identity": name, "User": user, "ExtendedRights": right}, _COLUMNS)
            continue
        with session.directory() as directory:
            owner = directory.resolve(_canonical(session, identity)).user.name
            # Only what was given by the mailbox's own name or domain: an address of it is shown by Get-Mailbox.
            wanted = {owner, f"@{owner.rpartition('@')[2]}"}
            found = [entry.user.name for entry in directory.entries() if wanted & set(entry.user.send_as)]
        for user in found:
            yield Thing("ADPermission", {"Identity": owner, "User": user, "ExtendedRights": SEND_AS}, _COLUMNS)


def _set(granted: bool, invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    user, rights = bound.need("User"), [_spelled(right) for right in bound.texts("ExtendedRights")]
    if not rights:
        raise ShellError(f"-ExtendedRights is needed: {_RIGHTS.help}")
    connectors = []
    for identity in invocation.identities():
        connector = _connector(session, identity)
        if connector is not None:
            connectors.append(connector)
        elif rights == [SEND_AS]:
            _set_on_mailbox(invocation, identity, granted, user)
        else:
            raise ShellError(f"a mailbox has the right {SEND_AS} only; {identity!r} is no receive connector")
    if connectors:
        _set_on_connectors(invocation, connectors, granted, _spelled(user), rights)
    return iter(())


def _set_on_connectors(
    invocation: Invocation, connectors: list[ReceiveConnector], granted: bool, user: str, rights: list[str]
) -> None:
    keys: Keys = {}
    for right in rights:
        key = next((key for (r, u), key in KEYS.items() if (r.casefold(), u.casefold()) == (right, user)), None)
        if key is None:
            choices = "; ".join(f"{right} for {user}" for right, user in KEYS)
            raise ShellError(f"that right is no choice here: what there is follows from the groups, but for {choices}")
        keys[key] = granted
    word = "Let" if granted else "No more let"
    for each in invocation.change(lambda: connectors, lambda c: f"{word} {user} send as others at {c.name}?"):
        invocation.session.edit(partial(change_connector, each, keys))


def _set_on_mailbox(invocation: Invocation, identity: str, granted: bool, user: str) -> None:
    session = invocation.session
    with session.directory() as directory:
        owner = directory.resolve(_canonical(session, identity)).user.name
        trustee = directory.resolve(_canonical(session, user)).user.name
        what = f"{trustee} may {'' if granted else 'no more '}send as {owner}"
        has = owner in directory.get(trustee).user.send_as
        if invocation.what_if:
            session.talk.say(f"What if: {what}{'; no change' if has == granted else ''}")
        elif has == granted:
            session.talk.warn(f"nothing was changed: {what} already")
        elif invocation.agreed(f"{what}?"):
            _change(directory, trustee, owner, granted)


def _change(directory: DirectoryEditor, trustee: str, owner: str, granted: bool) -> None:
    def edit(entry: Entry) -> Entry:
        kept = tuple(word for word in entry.user.send_as if word != owner)
        return replace(entry, user=replace(entry.user, send_as=(*kept, owner) if granted else kept))

    directory.change(trustee, edit)


def _has(connector: ReceiveConnector, key: str) -> bool:
    if key == "accept_any_sender":
        return connector.accept_any_sender and PermissionGroup.USERS in connector.permission_groups
    return connector.takes_own_domains


def _connector(session: Session, identity: str) -> ReceiveConnector | None:
    """The receive connector of that name; None: it is no connector's. Raises `ShellError`."""
    organization: Organization = session.organization
    name = identity.rpartition("\\")[2].casefold()
    if "\\" not in identity and name not in {known.casefold() for known in organization.receive_connectors}:
        return None
    return find_connector(session, identity)


def _canonical(session: Session, name: str) -> str:
    try:
        return canonical_login_name(name, session.organization.default_domain)
    except BadLoginName as fault:
        raise ShellError(f"{name!r} is no login name or address: {fault}") from fault


def _spelled(word: str) -> str:
    """A right or a group, its other spellings put into one; folded, but for `SEND_AS`."""
    found = _ALIASES.get(word.casefold(), word)
    return SEND_AS if found.casefold() == SEND_AS.casefold() else found.casefold()
