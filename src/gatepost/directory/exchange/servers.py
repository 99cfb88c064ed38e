"""From entries to servers and their virtual directories."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from gatepost.directory.exchange.found import FoundDirectory, FoundServer, FoundSite
from gatepost.directory.exchange.names import Key, key, name_of, number_of, text_of, values_of
from gatepost.directory.exchange.notes import Notes
from gatepost.directory.exchange.reading import Entries
from gatepost.directory.ldap.entries import Entry, texts_of
from gatepost.organization.addresses import is_host_name, parse_http_url, path_fault
from gatepost.organization.model import AuthenticationMethod, Role, Version

SERVICES = {
    "msexchowavirtualdirectory": "owa",
    "msexchecpvirtualdirectory": "ecp",
    "msexchwebservicesvirtualdirectory": "EWS",
    "msexchmobilevirtualdirectory": "Microsoft-Server-ActiveSync",
    "msexchoabvirtualdirectory": "OAB",
    "msexchautodiscovervirtualdirectory": "Autodiscover",
    "msexchmapivirtualdirectory": "mapi",
}
"""The service of each class of virtual directories. Of an OWA directory the name says which of four it is (C7)."""
_OWA = ("owa", "exchange", "public", "exchweb")
_ROLES = {2: Role.MAILBOX, 4: Role.CLIENT_ACCESS, 32: Role.HUB_TRANSPORT, 64: Role.EDGE_TRANSPORT}
"""Bits of `msExchCurrentServerRoles`; 16 is Unified Messaging, 16384 the front part of 2013 and later."""
_METHODS = {
    1: AuthenticationMethod.BASIC,
    2: AuthenticationMethod.INTEGRATED,
    4: AuthenticationMethod.FORMS,
    16: AuthenticationMethod.INTEGRATED,
    4096: AuthenticationMethod.INTEGRATED,
    8192: AuthenticationMethod.INTEGRATED,
}
"""Bits of `msExchInternalAuthenticationMethods`: Basic, NTLM, forms, Windows, Kerberos, Negotiate."""
_TRANSPORT_SERVICE = "msexchexchangetransportserver"
"""The class of a part of a server that is no server of its own."""
_SERIAL = re.compile(r"Version (\d{1,3})\.(\d{1,3})", re.ASCII)
_TCP = "ncacn_ip_tcp:"


def servers_of(
    entries: Entries, sites: Mapping[Key, FoundSite], notes: Notes, said: Mapping[str, str], known: Mapping[str, str]
) -> dict[Key, FoundServer]:
    """The servers by distinguished name.

    `said` and `known` are sites by server (case-folded): what the operator says now, which counts before all, and what
    the file says already, which counts where nothing else is known.
    """
    found: dict[Key, FoundServer] = {}
    first: dict[str, str] = {}
    for entry in entries.servers:
        name, place = name_of(entry), key(entry[0])
        if _TRANSPORT_SERVICE in _classes(entry):
            continue
        if notes.skips("server", name):
            continue
        server = _server(entry, name, sites, notes, said, known)
        if server is None:
            continue
        if key(first.setdefault(name.casefold(), entry[0])) != place:
            notes.twice("servers", name, first[name.casefold()], entry[0])
        found[place] = server
    return found


def note_groups(entries: Entries, servers: Mapping[Key, FoundServer], notes: Notes) -> None:
    """Name the database availability groups: in the file their databases' copies say who belongs together."""
    members: dict[Key, list[str]] = {}
    for entry in entries.servers:
        server = servers.get(key(entry[0]))
        if server is not None:
            members.setdefault(key(text_of(entry, "msexchmdbavailabilitygrouplink")), []).append(server.name)
    for entry in entries.groups:
        names = ", ".join(sorted(members.get(key(entry[0]), []))) or "no servers"
        notes.not_mapped.append(f"{name_of(entry)}: {names}; as a group, since their databases' copies say the same")


def version_of(entry: Entry) -> tuple[int, int] | None:
    """Major and minor version of a server; None where neither `serialNumber` nor `versionNumber` says them.

    The number holds them as autodiscover's `ServerVersion` does: four bits, six of the major, six of the minor version,
    one, and fifteen of the build.
    """
    match = _SERIAL.match(text_of(entry, "serialnumber"))
    if match:
        return int(match[1]), int(match[2])
    number = number_of(entry, "versionnumber")
    return (number >> 22 & 63, number >> 16 & 63) if number and number > 0 and number >> 22 & 63 else None


def generation(version: tuple[int, int]) -> Version | None:
    """Gatepost's word for an Exchange version; None for those before 2003."""
    major, minor = version
    if major >= 15:
        return Version.MODERN
    return {8: Version.V2007, 14: Version.V2010}.get(major, Version.V2003 if (major, minor) == (6, 5) else None)


def directories_of(entries: Entries, servers: Mapping[Key, FoundServer], notes: Notes) -> tuple[FoundDirectory, ...]:
    """The virtual directories of these servers that have a service Gatepost knows, by server and path."""
    found: dict[tuple[str, str], FoundDirectory] = {}
    others: Counter[str] = Counter()
    for entry in entries.directories:
        service = _service(entry)
        server = servers.get(_server_key(entry[0]))
        if server is None or not service:
            others[name_of(entry).partition(" (")[0]] += server is not None
            continue
        directory = _directory(entry, server.name, service, notes)
        if directory is None:
            continue
        place = directory.server, directory.path.casefold()
        if place in found:
            # Two web sites of one machine; clients know the default one.
            kept, other = sorted((found[place], directory), key=lambda d: "(default web site)" not in d.name.casefold())
            notes.not_mapped.append(f"virtual directory {other.name} of {server.name}: {kept.name} has that path")
            directory = kept
        found[place] = directory
    notes.not_mapped += [f"virtual directories {name}: {n} of them; no service of Gatepost's" for name, n in
                         sorted(others.items()) if n]  # fmt: skip
    return tuple(found[place] for place in sorted(found))


def _server(
    entry: Entry,
    name: str,
    sites: Mapping[Key, FoundSite],
    notes: Notes,
    said: Mapping[str, str],
    known: Mapping[str, str],
) -> FoundServer | None:
    version = version_of(entry)
    kind = generation(version) if version is not None else None
    if kind is None:
        why = f"its version is {version[0]}.{version[1]}" if version else "its version is not known"
        notes.not_mapped.append(f"server {name}: {why}")
        return None
    roles = _roles(entry, kind)
    if not roles:
        why = "2013's client access, whose place is a front end's" if kind is Version.MODERN else "no role it has here"
        notes.not_mapped.append(f"server {name}: {why}")
        return None
    site = sites.get(key(text_of(entry, "msexchserversite")))
    fold = name.casefold()
    by_name = said.get(fold) or (site.name if site is not None else known.get(fold, ""))
    if not by_name:
        notes.not_mapped.append(f"server {name}: its site is not known; say it with --site {name}=SITE")
        return None
    fqdn = next(
        (text[len(_TCP) :] for text in texts_of(entry, "networkaddress") if text.lower().startswith(_TCP)), ""
    ).lower()
    if not is_host_name(fqdn):
        notes.not_mapped.append(f"server {name}: it has no full host name (networkAddress)")
        return None
    return FoundServer(name, fqdn, by_name, kind, roles)


def _roles(entry: Entry, version: Version) -> frozenset[Role]:
    """Of 2013 and later the mailbox alone: clients and mail come to it by Gatepost, which are the other roles."""
    if version is Version.V2003:
        return frozenset({Role.MAILBOX})
    bits = number_of(entry, "msexchcurrentserverroles") or 0
    roles = frozenset(role for bit, role in _ROLES.items() if bits & bit)
    return roles & {Role.MAILBOX, Role.EDGE_TRANSPORT} if version is Version.MODERN else roles


def _server_key(dn: str) -> Key:
    """The server's distinguished name in that of a virtual directory: what follows `CN=Protocols`."""
    values = key(dn)
    return values[values.index("protocols") + 1 :] if "protocols" in values else ()


def _classes(entry: Entry) -> set[str]:
    return {text.lower() for text in texts_of(entry, "objectclass")}


def _service(entry: Entry) -> str:
    service = next((word for kind, word in SERVICES.items() if kind in _classes(entry)), "")
    if service != "owa":
        return service
    word = name_of(entry).partition(" (")[0].casefold()
    return next((old for old in _OWA if old == word), "" if word == "exadmin" else "owa")


def _directory(entry: Entry, server: str, service: str, notes: Notes) -> FoundDirectory | None:
    name = values_of(entry[0])[0]
    word = name.partition(" (")[0].strip()
    who = f"virtual directory {name} of {server}"
    if not word or path_fault(f"/{word}"):
        notes.not_mapped.append(f"{who}: its name says no path")
        return None
    internal, external, bypass = (
        _url(entry, attribute, who, notes)
        for attribute in ("msExchInternalHostName", "msExchExternalHostName", "msExchInternalNLBBypassHostName")
    )
    bits = number_of(entry, "msexchinternalauthenticationmethods")
    methods = frozenset(method for bit, method in _METHODS.items() if bits and bits & bit)
    if bits and not methods:
        notes.not_mapped.append(f"{who}: its authentication methods ({bits})")
    return FoundDirectory(server, service, f"/{word}", name, internal, external, bypass, methods or None)


def _url(entry: Entry, attribute: str, who: str, notes: Notes) -> str | None:
    text = text_of(entry, attribute.lower()).rstrip("/")
    if not text:
        return None
    try:
        parse_http_url(text)
    except ValueError as fault:
        notes.not_mapped.append(f"{who}: the URL {text[:80]} ({attribute}) {fault}")
        return None
    return text
