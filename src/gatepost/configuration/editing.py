"""Changing the text of an organization's file: comments, order and layout stay as the operator wrote them.

    text ─► OrganizationText ── set_keys, add_table, … ─► text

Every change is made twice, on the document that keeps the layout and on plain data, and `text` compares the two: what
is written is what was meant, or nothing.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, Table

from gatepost.configuration import layout
from gatepost.configuration.build import standard_set, usual_name
from gatepost.configuration.build_transport import standard_connectors
from gatepost.organization.addresses import normal_path
from gatepost.organization.model import Organization, VirtualDirectory, class_of_service
from gatepost.organization.transport import ReceiveAuthentication, ReceiveConnector
from gatepost.organization.transport_text import binding_text

Plain = str | bool | int | list[str] | list[dict[str, Any]] | dict[str, Any]
"""A value of the file."""
Keys = Mapping[str, Plain | None]
"""New values by key; None takes the key away, so that its default counts."""

DIRECTORIES = "virtual_directories"
CONNECTORS = "receive_connectors"


class EditingFault(Exception):
    """The file is written in a way that cannot be changed here safely. The message says what to do."""


class OrganizationText:
    """The text of an organization's file while it is changed. Objects are named as the file's keys are.

    Every method raises `EditingFault`; KeyError for an object that the file does not hold is the caller's bug.
    """

    def __init__(self, text: str) -> None:
        self._before = text
        self._document = tomlkit.parse(text)
        self.data: dict[str, Any] = tomllib.loads(text)
        """The file's tables as they will be, for looking things up. Change them by the methods only."""

    def text(self) -> str:
        """The new text. Raises `EditingFault` when it would not say what was meant."""
        try:
            text = layout.with_blank_lines(self._document.as_string(), self._before)
            same = tomllib.loads(text) == self.data
        except (TOMLKitError, ValueError, RecursionError) as fault:
            raise EditingFault(f"the change cannot be written: {fault}. {_BY_HAND}") from fault
        if not same:
            raise EditingFault(f"the change would alter something else in the file as well. {_BY_HAND}")
        return text

    # Tables such as ("servers", "CAS-01")

    def set_keys(self, path: tuple[str, ...], keys: Keys) -> None:
        """Set or take away keys of the table at `path`."""
        for root in self._both():
            _set(_at(root, path), keys)

    def set_inner_keys(self, path: tuple[str, ...], name: str, keys: Keys) -> None:
        """Set or take away keys of the table `name` inside the one at `path`; it is added where it is missing."""
        if name in _at(self.data, path):
            self.set_keys((*path, name), keys)
        elif given := _given(keys):
            self.set_keys(path, {name: given})

    def add_table(self, path: tuple[str, str], keys: Keys) -> None:
        """Add a table such as `[arrays.USA]` behind its like."""
        kind, name = path
        for root in self._both():
            if kind not in root:
                root[kind] = tomlkit.table(is_super_table=True) if root is self._document else {}
            root[kind][name] = layout.new_table(_given(keys)) if root is self._document else _given(keys)
        added = self._document[kind][name]
        assert isinstance(added, Table)
        layout.give_place(self._document, added)

    def remove_table(self, path: tuple[str, str]) -> None:
        """Take away a table with all below it."""
        kind, name = path
        gone = self._document[kind][name]
        if isinstance(gone, Table):
            layout.keep_surroundings(self._document, gone)
        for root in self._both():
            del root[kind][name]
            if not root[kind]:
                del root[kind]

    def set_copies(self, database: str, copies: Sequence[Mapping[str, Any]]) -> None:
        """Replace the copies of a database; what is the same keeps its layout."""
        plain = self.data["databases"][database]
        before: list[dict[str, Any]] = plain["copies"]
        after = [dict(entry) for entry in copies]
        if before == after:
            return
        table = _at(self._document, ("databases", database))
        if len(before) == len(after):
            for entry, new in zip(table["copies"], after, strict=True):
                _set(entry, new)
        else:
            table["copies"] = layout.copies(after)
        plain["copies"] = after

    # Virtual directories

    def entry(self, directory: VirtualDirectory) -> int | None:
        """The number of the directory's entry in the file; None when it is one of a standard set."""
        wanted = (directory.server, directory.path.casefold())
        found = (n for n, entry in enumerate(self._entries()) if _place(entry) == wanted)
        return next(found, None)

    def set_directory(self, directory: VirtualDirectory, keys: Keys, organization: Organization) -> None:
        """Set or take away keys of a directory's entry. A standard set is written out first: nothing is lost."""
        self.write_out(directory.server, organization)
        number = self._number(directory)
        for root in self._both():
            _set(root[DIRECTORIES][number], keys)

    def add_directory(self, keys: Keys, organization: Organization) -> None:
        """Add an entry, behind its server's others. A standard set is written out first."""
        server = str(keys["server"])
        self.write_out(server, organization)
        self._insert(server, keys)

    def put_directory(self, directory: VirtualDirectory, keys: Keys) -> None:
        """Set keys of a directory's entry, or add the entry behind its server's others, with no standard set."""
        if self.entry(directory) is None:
            self._insert(directory.server, directory_keys(directory) | dict(keys))
            return
        number = self._number(directory)
        for root in self._both():
            _set(root[DIRECTORIES][number], keys)

    def remove_directory(self, directory: VirtualDirectory, organization: Organization) -> None:
        """Take away an entry. Raises `EditingFault` for a server's last one: none would mean the standard set."""
        self.write_out(directory.server, organization)
        number = self._number(directory)
        if sum(entry.get("server") == directory.server for entry in self._entries()) == 1:
            server = organization.servers.get(directory.server)
            if server is not None and standard_set(server):
                raise EditingFault(
                    f"{directory.name} is the only virtual directory that the file lists for {directory.server}: "
                    f"without any, the server's standard set would count"
                )
        self._delete(number)

    def remove_directories_of(self, server: str) -> None:
        """Take away all entries of a server that is removed."""
        for number in reversed([n for n, e in enumerate(self._entries()) if e.get("server") == server]):
            self._delete(number)

    def write_out(self, server: str, organization: Organization) -> None:
        """Write the standard set of a server that lists no directory, as it counts now (SPEC O3)."""
        if any(entry.get("server") == server for entry in self._entries()):
            return
        for directory in standard_set(organization.servers[server]):
            self._insert(server, directory_keys(directory))

    # Receive connectors

    def write_out_connectors(self, server: str, organization: Organization) -> None:
        """Write the standard receive connectors of a server that lists none, as they count now (SPEC T1)."""
        if any(table.get("server") == server for table in self.data.get(CONNECTORS, {}).values()):
            return
        for connector in organization.receive_connectors_by_server.get(server, ()):
            self.add_table((CONNECTORS, connector.name), connector_keys(connector))

    def remove_connector(self, connector: ReceiveConnector, organization: Organization) -> None:
        """Take away a receive connector. Raises `EditingFault` for a server's last: none would mean standard ones."""
        self.write_out_connectors(connector.server, organization)
        server = organization.servers.get(connector.server)
        own = [table for table in self.data[CONNECTORS].values() if table.get("server") == connector.server]
        if len(own) == 1 and server is not None and standard_connectors(server):
            raise EditingFault(
                f"{connector.name} is the only receive connector that the file lists for {connector.server}: "
                f"without any, the server's standard ones would count. Set it not enabled instead"
            )
        self.remove_table((CONNECTORS, connector.name))

    def _number(self, directory: VirtualDirectory) -> int:
        number = self.entry(directory)
        if number is None:
            raise KeyError(directory.path)
        return number

    def _insert(self, server: str, keys: Keys) -> None:
        own = [number for number, entry in enumerate(self._entries()) if entry.get("server") == server]
        place = own[-1] + 1 if own else len(self._entries())
        self.data.setdefault(DIRECTORIES, []).insert(place, _given(keys))
        if DIRECTORIES not in self._document:
            self._document[DIRECTORIES] = AoT([])
        entries = self._document[DIRECTORIES]
        if isinstance(entries, AoT):
            entries.insert(place, layout.new_table(_given(keys)))
            layout.give_place(self._document, entries[place])
        else:  # written as one list of inline tables
            cast("Array", entries).insert(place, layout.inline(_given(keys)))

    def _delete(self, number: int) -> None:
        gone = self._document[DIRECTORIES][number]
        if isinstance(gone, Table):
            layout.keep_surroundings(self._document, gone)
        for root in self._both():
            del root[DIRECTORIES][number]
            if not root[DIRECTORIES]:
                del root[DIRECTORIES]

    def _entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.data.get(DIRECTORIES, [])
        return entries

    def _both(self) -> Iterator[MutableMapping[str, Any]]:
        yield self._document
        yield self.data


_BY_HAND = "Nothing was changed: change the file by hand."


def directory_keys(directory: VirtualDirectory) -> dict[str, Plain]:
    """The keys of an entry that means `directory`; what is the default is left out."""
    found: dict[str, Plain] = {"server": directory.server, "service": directory.service}
    if directory.path != normal_path(directory.service):
        found["path"] = directory.path
    for key in ("internal_url", "external_url", "internal_bypass_url"):
        url = getattr(directory, key)
        if url is not None:
            found[key] = url
    default = VirtualDirectory(directory.server, directory.service, directory.path)
    if directory.authentication != default.authentication:
        found["authentication"] = sorted(method.value for method in directory.authentication)
    if directory.name != usual_name(directory.service):
        found["name"] = directory.name
    if directory.path_class is not class_of_service(directory.service):
        found["path_class"] = directory.path_class.value
    if not directory.redirect_to_optimal_owa_server:
        found["redirect_to_optimal_owa_server"] = False
    if directory.cross_site_redirect is not default.cross_site_redirect:
        found["cross_site_redirect"] = directory.cross_site_redirect.value
    return found


def connector_keys(connector: ReceiveConnector) -> dict[str, Plain]:
    """The keys of a table that means `connector`, one of the standard ones: no more than those set are other."""
    implicit = [binding_text(binding) for binding in connector.bindings if binding.implicit_tls]
    found: dict[str, Plain] = {
        "server": connector.server,
        "bindings": [binding_text(binding) for binding in connector.bindings if not binding.implicit_tls],
        "permission_groups": sorted(group.value for group in connector.permission_groups),
        "authentication": [method.value for method in ReceiveAuthentication if method in connector.authentication],
    }
    return found | ({"implicit_tls_bindings": implicit} if implicit else {})


def _place(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Server and path of an entry: no server has a path twice."""
    path = normal_path(str(entry.get("path") or entry.get("service", "")))
    return str(entry.get("server", "")), path.casefold()


def _at(root: Mapping[str, Any], path: tuple[str, ...]) -> MutableMapping[str, Any]:
    for key in path:
        root = root[key]
    return cast("MutableMapping[str, Any]", root)


def _set(table: MutableMapping[str, Any], keys: Keys) -> None:
    for key, value in keys.items():
        if value is None:
            table.pop(key, None)
        elif key not in table or table[key] != value:
            layout.set_value(table, key, copy.deepcopy(value))


def _given(keys: Keys) -> dict[str, Any]:
    return {key: copy.deepcopy(value) for key, value in keys.items() if value is not None}
