"""From entries to databases and their copies."""

from __future__ import annotations

from collections.abc import Mapping

from gatepost.directory.exchange.found import FoundDatabase, FoundServer
from gatepost.directory.exchange.names import Key, is_conflict, key, name_of, number_of, text_of
from gatepost.directory.exchange.notes import Notes
from gatepost.directory.exchange.reading import Entries
from gatepost.directory.ldap.entries import Entry
from gatepost.organization.model import Role


def databases_of(entries: Entries, servers: Mapping[Key, FoundServer], notes: Notes) -> dict[str, FoundDatabase]:
    """The databases by name: users are placed by that name, so no two may have one."""
    copies: dict[Key, list[Entry]] = {}
    for entry in entries.copies:
        copies.setdefault(key(entry[0])[1:], []).append(entry)
    found: dict[str, FoundDatabase] = {}
    first: dict[str, str] = {}
    for entry in entries.databases:
        name, place = name_of(entry), key(entry[0])
        if notes.skips("database", name):
            continue
        if key(first.setdefault(name.casefold(), entry[0])) != place:
            notes.twice("databases", name, first[name.casefold()], entry[0])
            continue
        kept = _copies(entry, name, copies.get(place, []), servers, notes)
        if kept:
            found[name] = FoundDatabase(name, kept)
        else:
            notes.not_mapped.append(f"database {name}: none of its servers is in the file")
    return found


def _copies(
    entry: Entry, name: str, copies: list[Entry], servers: Mapping[Key, FoundServer], notes: Notes
) -> tuple[tuple[str, int], ...]:
    if not copies:  # of 2007 and older, whose databases are on one server
        owner = servers.get(key(text_of(entry, "msexchowningserver")))
        return ((owner.name, 1),) if owner is not None and Role.MAILBOX in owner.roles else ()
    found: dict[int, str] = {}
    for copy in copies:
        holder = name_of(copy)
        server = servers.get(key(text_of(copy, "msexchhostserverlink")))
        if is_conflict(holder) or server is None or Role.MAILBOX not in server.roles:
            notes.not_mapped.append(f"database {name}: its copy on {holder.splitlines()[0]}, which is not in the file")
            continue
        preference = number_of(copy, "msexchactivationpreference")
        if preference is None and len(copies) == 1:
            preference = 1
        if preference is None or preference < 1:
            notes.ambiguous.append(f"database {name}: its copy on {server.name} has no activation preference")
        elif found.setdefault(preference, server.name) != server.name:
            notes.ambiguous.append(
                f"database {name}: the copies on {found[preference]} and {server.name} have both the activation "
                f"preference {preference}"
            )
    return tuple((found[preference], preference) for preference in sorted(found))
