"""Loading a configuration: files → tables → frozen values, with every fault on the way, located.

    document.parse ─► shapes.shape ─► build + check ─► front_end ─► Loaded
      TOML, lines      words, ranges    references       files

Nothing here raises for what a file holds: whatever is wrong is a finding, and no fault hides another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from gatepost.configuration.build import build_organization, in_order_of_preference
from gatepost.configuration.document import Document, Findings, Read, parse, read_file
from gatepost.configuration.files import Files, Machine, ModeOf, Named
from gatepost.configuration.findings import ConfigurationError, LocatedFinding
from gatepost.configuration.front_end import FrontEndBuilder
from gatepost.configuration.schema import FrontEndFile, FrontEndTable, OrganizationFile, WholeFile
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.configuration.shapes import Shaped, shape
from gatepost.configuration.tables import Table
from gatepost.organization.check import check
from gatepost.organization.faults import error
from gatepost.organization.model import Organization, Severity

__all__ = ["ConfigurationError", "Loaded", "LocatedFinding", "Read", "load", "read_file"]

T = TypeVar("T", bound=Table)

MAX_FAULTS = 200
"""Faults of shape that are reported of one file; nobody reads more at a time."""


@dataclass(frozen=True)
class Loaded:
    """What came of loading. Without errors `configuration` is set; without a front end only `organization` can be."""

    configuration: Configuration | None
    findings: tuple[LocatedFinding, ...]
    organization: Organization | None = None

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(finding.is_error for finding in self.findings)

    def require(self) -> Configuration:
        """The configuration. Raises `ConfigurationError` when there is none."""
        if self.configuration is None:
            raise ConfigurationError(self.findings)
        return self.configuration


def load(
    path: str,
    read: Read = read_file,
    server: str | None = None,
    *,
    now: datetime | None = None,
    mode_of: ModeOf | None = None,
    machine: Machine | None = None,
    front_end_required: bool = True,
) -> Loaded:
    """The configuration in `path` and the files that it names, with all faults.

    `server` overrides `front_end.server`. `now` judges certificates. With `mode_of` the permissions of secret files are
    judged too, with `machine` whether it has the account and the folders. With `front_end_required` false a file that
    holds only an organization is no fault.
    """
    findings = Findings()
    files = Files(read, findings, now or datetime.now(UTC), mode_of, machine)
    main = parse(path, read, findings)
    if main is None:
        return Loaded(None, findings.sorted())
    organization, front_end = _Load(main, files, server, front_end_required).run()
    if findings.errors or organization is None:
        return Loaded(None, findings.sorted())
    configuration = Configuration(organization, front_end) if front_end else None
    return Loaded(configuration, findings.sorted(), organization)


def load_organization(path: str, read: Read = read_file) -> Loaded:
    """The organization that `path` holds or names, alone: no certificate and no secret is read, no front end built.

    For whoever works on the organization where those files are not.
    """
    findings = Findings()
    document = organization_document(path, read, findings)
    if document is None:
        return Loaded(None, findings.sorted())
    files = Files(read, findings, datetime.now(UTC))
    organization = _Load(document, files, None, front_end_required=False, alone=True).only_organization()
    return Loaded(None, findings.sorted(), None if findings.errors else organization)


def organization_document(path: str, read: Read, findings: Findings) -> Document | None:
    """The file with the organization's tables: `path`, or the one that its `front_end.organization` names."""
    main = parse(path, read, findings)
    front_end = main.data.get("front_end") if main else None
    other = front_end.get("organization") if isinstance(front_end, dict) else None
    if main is None or not isinstance(other, str) or not other:
        return main
    return parse(main.beside(other), read, findings, (main, ("front_end", "organization")))


@dataclass
class _Load:
    """One load of a main file."""

    main: Document
    files: Files
    server_option: str | None
    front_end_required: bool
    alone: bool = False
    """Whether files that the organization names are left unread."""

    def only_organization(self) -> Organization | None:
        """The organization of the main file, whatever front end is in it."""
        self.main.data.pop("front_end", None)
        organization, _ = self._organization(self.main, self._shape(OrganizationFile, self.main))
        return organization

    def run(self) -> tuple[Organization | None, FrontEnd | None]:
        """Organization and front end, each None when it is not there or cannot be built."""
        other = self._organization_path()
        if other is None:
            return self._one_file()
        shaped = self._shape(FrontEndFile, self._main_without_organization(other))
        document = parse(
            self.main.beside(other), self.files.read, self.files.findings, (self.main, ("front_end", "organization"))
        )
        organization: Organization | None = None
        authorities: dict[str, bytes] = {}
        if document is not None:
            # The shared file may be another front end's whole file.
            document.data.pop("front_end", None)
            shaped_organization = self._shape(OrganizationFile, document)
            organization, authorities = self._organization(document, shaped_organization)
        table = shaped.table.front_end if shaped.table else None
        return organization, self._front_end(table, organization, authorities)

    def _one_file(self) -> tuple[Organization | None, FrontEnd | None]:
        if "front_end" not in self.main.data and not self.front_end_required:
            organization, _ = self._organization(self.main, self._shape(OrganizationFile, self.main))
            return organization, None
        shaped = self._shape(WholeFile, self.main)
        organization, authorities = self._organization(self.main, shaped)
        # Where the table is missing altogether, that is the fault, and not each of its keys.
        there = shaped.table is not None and "front_end" in self.main.data
        table = shaped.table.front_end if shaped.table and there else None
        return organization, self._front_end(table, organization, authorities)

    def _organization_path(self) -> str | None:
        front_end = self.main.data.get("front_end")
        other = front_end.get("organization") if isinstance(front_end, dict) else None
        return other if isinstance(other, str) and other else None

    def _main_without_organization(self, other: str) -> Document:
        """The main file without tables that belong into the other one; each is a fault."""
        misplaced = [key for key in self.main.data if key in OrganizationFile.model_fields]
        for key in misplaced:
            message = f'table "{key}" is in this file, but front_end.organization names {other}'
            self.files.findings.add(self.main, error((key,), "the file", message, f"move it to {other}"))
        kept = {key: value for key, value in self.main.data.items() if key not in misplaced}
        return replace(self.main, data=kept)

    def _shape(self, kind: type[T], document: Document) -> Shaped[T]:
        shaped = shape(kind, document.data)
        self.files.findings.add_all(document, shaped.findings[:MAX_FAULTS])
        more = len(shaped.findings) - MAX_FAULTS
        if more > 0:
            remedy = "correct those first"
            self.files.findings.add(document, error((), "the file", f"has {more} more faults like these", remedy))
        # Of a virtual directory nothing else is judged: even its name comes from its keys.
        self.files.findings.faulty.update(
            path[:2] if path[:1] == ("virtual_directories",) else path for path in shaped.faulty
        )
        return shaped

    def _organization(self, document: Document, shaped: Shaped[Any]) -> tuple[Organization | None, dict[str, bytes]]:
        """The organization, and the authorities of servers that have their own."""
        table = shaped.table
        if not isinstance(table, OrganizationFile):
            return None, {}
        passwords = self._passwords(document, table)
        relay_passwords = self._relay_passwords(document, table)
        authorities = self._server_authorities(document, table)
        organization = build_organization(table, passwords, relay_passwords, self._assertion_keys(document, table))
        if len(shaped.faulty) > MAX_FAULTS or any(len(path) == 1 for path in shaped.faulty):
            # With a whole table unread, every reference into it would look wrong.
            return None, authorities
        for finding in check(organization):
            # Warnings judge the whole, so they wait until the shape is right.
            if not shaped.faulty or finding.severity is Severity.ERROR:
                self.files.findings.add(document, finding)
        return in_order_of_preference(organization), authorities

    def _passwords(self, document: Document, table: OrganizationFile) -> dict[str, str]:
        """The master users' passwords by server. A file at fault counts as faulty, so that this is said once."""
        found = {}
        for name, server in table.servers.items():
            path = server.sign_in.master_password_file
            if path and self.alone:
                found[name] = "unread"
            elif path:
                key = ("servers", name, "sign_in", "master_password_file")
                named = Named(document, key, path, f"server {name}", "the master password file")
                password = self.files.password(named)
                if password is None:
                    self.files.findings.faulty.add(key)
                found[name] = password or ""
        return found

    def _assertion_keys(self, document: Document, table: OrganizationFile) -> dict[str, bytes]:
        """The keys by which tokens for servers are signed, by server. A file at fault is said once."""
        found = {}
        for name, server in table.servers.items():
            path = server.sign_in.assertion_key_file
            if path and self.alone:
                found[name] = b"unread"
            elif path:
                key = ("servers", name, "sign_in", "assertion_key_file")
                found[name] = self.files.signing_key(Named(document, key, path, f"server {name}", "the assertion key"))
                if not found[name]:
                    self.files.findings.faulty.add(key)
        return found

    def _relay_passwords(self, document: Document, table: OrganizationFile) -> dict[str, str]:
        """The send connectors' passwords by connector."""
        found = {}
        for name, connector in table.send_connectors.items():
            if connector.password_file and self.alone:
                found[name] = "unread"
            elif connector.password_file:
                key = ("send_connectors", name, "password_file")
                named = Named(document, key, connector.password_file, f"send connector {name}", "the password file")
                password = self.files.password(named)
                if password is None:
                    self.files.findings.faulty.add(key)
                found[name] = password or ""
        return found

    def _server_authorities(self, document: Document, table: OrganizationFile) -> dict[str, bytes]:
        found = {}
        for name, server in table.servers.items():
            if server.server_ca and not self.alone:
                key = ("servers", name, "server_ca")
                named = Named(document, key, server.server_ca, f"server {name}", "the authorities' file")
                read = self.files.certificates(named)
                if read is not None:
                    found[name] = read[0]
        return found

    def _front_end(
        self, table: FrontEndTable | None, organization: Organization | None, authorities: dict[str, bytes]
    ) -> FrontEnd | None:
        if table is None:
            return None
        builder = FrontEndBuilder(self.main, table, self.files, organization, self.server_option)
        return replace(builder.build(), server_ca_by_server=authorities)
