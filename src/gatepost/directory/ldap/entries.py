"""From an LDAP entry to a `User`. Whatever a server answers is judged here, and nothing of it is obeyed."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Values
from hashlib import blake2b
from uuid import UUID

import ldap
from ldap.dn import str2dn
from ldap.filter import escape_filter_chars

from gatepost.directory.ldap.mapping import Login, Mapping
from gatepost.directory.port import BY_DIRECTORY, User
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.routing.outcome import Mailbox

MAX_VALUE_BYTES = 4096
"""A longer value of an attribute that we read is none."""
MAX_VALUES = 1000
"""Addresses of one user that are compared."""
_SETTINGS_SIGN = "§"
_SETTINGS = {"imap4": Protocol.IMAP, "pop3": Protocol.POP3, "http": Protocol.HTTPS, "owa": Protocol.HTTPS}
"""What `protocolSettings` calls protocols."""

Entry = tuple[str, Values[str, list[bytes]]]
"""A distinguished name, and the values of attributes by their names in lower case."""


class NoUser(ValueError):
    """The entry is nobody who can sign in or get mail. The message is for the log."""


class Ambiguous(ValueError):
    """Two entries have the name alike. The message is for the log."""


def choose(mapping: Mapping, canonical_name: str, entries: Iterable[Entry]) -> Entry | None:
    """The entry that has the name in the earliest of `mapping.logins`. Raises `Ambiguous`.

    An entry that does not have the name at all is not taken, whatever the server thinks: it would be another user.
    """
    wanted = mapping.wanted(canonical_name)
    found: dict[int, list[Entry]] = {}
    for entry in entries:
        for rank, (login, value) in enumerate(wanted):
            if _has(entry, login, value):
                found.setdefault(rank, []).append(entry)
                break
    if not found:
        return None
    first = found[min(found)]
    if len(first) > 1:
        raise Ambiguous(f"{canonical_name} is {' and '.join(dn for dn, _ in first)}")
    return first[0]


def user_of(mapping: Mapping, entry: Entry) -> User:
    """The user that an entry describes. Raises `NoUser`."""
    dn, _ = entry
    return User(
        name=_name(mapping, entry),
        mailbox=_mailbox(mapping, entry),
        password_hash=_version(mapping, entry),
        protocols=_protocols(mapping, entry),
        disabled=_is_disabled(mapping, entry),
        login_at_server=_text(entry, mapping.login_at_server),
        send_as=tuple(sorted(_words(texts_of(entry, mapping.send_as.lower())))) if mapping.send_as else (),
        groups=_groups(mapping, entry),
        reference=dn,
    )


def question(mapping: Mapping, canonical_name: str) -> str:
    """The filter for this name (RFC 4515); empty when nobody can have it.

    What comes from outside becomes part of a filter through the library's `escape_filter_chars` here and nowhere else:
    whatever a name holds, it is compared, not obeyed.
    """
    parts = [
        f"({login.attribute}={_escaped_guid(value) if login.is_guid else escape_filter_chars(value)})"
        for login, value in mapping.wanted(canonical_name)
    ]
    return f"(&{mapping.filter}(|{''.join(parts)}))" if parts else ""


def common_name(dn: str) -> str:
    """The value that a distinguished name begins with (RFC 4514); the text itself where it is none."""
    try:
        return str(str2dn(dn)[0][0][1])
    except (ldap.DECODING_ERROR, IndexError):
        return dn


def _has(entry: Entry, login: Login, value: str) -> bool:
    """Whether the entry has this value in that attribute."""
    attribute = login.attribute.lower()
    if login.is_guid:
        return UUID(value).bytes_le in entry[1].get(attribute, [])
    return any(text.casefold() == value.casefold() for text in texts_of(entry, attribute))


def _escaped_guid(guid: str) -> str:
    """A GUID's octets as they are stored, in a filter: its first three parts with the least octet first."""
    return "".join(f"\\{octet:02x}" for octet in UUID(guid).bytes_le)


def _name(mapping: Mapping, entry: Entry) -> str:
    # Values have no order: of several the first by the alphabet, so that it is always the same.
    for text in sorted(texts_of(entry, mapping.name.lower())):
        try:
            return canonical_login_name(text, mapping.account_domains[0] if mapping.account_domains else "")
        except BadLoginName:
            continue
    raise NoUser(f"{entry[0]} has no {mapping.name} that is a login name")


def _mailbox(mapping: Mapping, entry: Entry) -> Mailbox:
    database = common_name(_text(entry, mapping.database))
    if database:
        return Mailbox(database)
    home_server = _text(entry, mapping.home_server)
    if home_server:
        # Exchange's own form ends with the server: /o=Contoso/ou=…/cn=Servers/cn=EX-01.
        return Mailbox(home_server=common_name(home_server.rpartition("/")[2]))
    if mapping.default_database:
        return Mailbox(mapping.default_database)
    raise NoUser(f"{entry[0]} has no mailbox: no {mapping.database or 'database'}")


def _version(mapping: Mapping, entry: Entry) -> str:
    """What changes with the password: with the entry's name, so that another entry is another password."""
    version = _text(entry, mapping.version)
    if not version:
        return BY_DIRECTORY
    digest = blake2b(f"{entry[0]}\0{version}".encode(), digest_size=16, person=b"ldap password")
    return BY_DIRECTORY + digest.hexdigest()


def _is_disabled(mapping: Mapping, entry: Entry) -> bool:
    texts = texts_of(entry, mapping.disabled.lower()) if mapping.disabled else []
    if mapping.disabled_bit:
        return any(text.lstrip("-").isdigit() and int(text) & mapping.disabled_bit for text in texts)
    return any(text.lower() in mapping.disabled_values for text in texts)


def _protocols(mapping: Mapping, entry: Entry) -> frozenset[Protocol]:
    allowed = set(CLIENT_PROTOCOLS)
    if mapping.protocols and (words := _words(texts_of(entry, mapping.protocols.lower()))):
        allowed = {protocol for protocol in CLIENT_PROTOCOLS if protocol.value in words}
    if mapping.denied_protocols:
        words = _words(texts_of(entry, mapping.denied_protocols.lower()))
        allowed = {protocol for protocol in allowed if protocol.value not in words}
    if mapping.protocol_settings:
        for text in texts_of(entry, mapping.protocol_settings.lower()):
            parts = text.split(_SETTINGS_SIGN)
            if len(parts) > 1 and parts[1] == "0" and parts[0].lower() in _SETTINGS:
                allowed.discard(_SETTINGS[parts[0].lower()])
    return frozenset(allowed)


def _groups(mapping: Mapping, entry: Entry) -> frozenset[str]:
    """Each group by its name, and by its distinguished name where that is what stands there."""
    texts = texts_of(entry, mapping.groups.lower()) if mapping.groups else []
    return frozenset(name.lower() for text in texts for name in (text, common_name(text)))


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in text.lower().replace(",", " ").split()}


def _text(entry: Entry, attribute: str) -> str:
    texts = texts_of(entry, attribute.lower()) if attribute else []
    return texts[0] if texts else ""


def texts_of(entry: Entry, attribute: str) -> list[str]:
    """The values of an attribute, which is in lower case, that are text of bearable length."""
    texts = []
    for value in entry[1].get(attribute, [])[:MAX_VALUES]:
        if len(value) <= MAX_VALUE_BYTES:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                continue
            if text:
                texts.append(text)
    return texts
