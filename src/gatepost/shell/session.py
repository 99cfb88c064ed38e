"""What cmdlets work on: the organization and its file, the registry, the directory, and the operator to talk to.

    statement ─► organization (as the file says it, with what this statement has changed so far)
              └► edit … edit ─► check the whole ─► write ─► tell the front ends

One statement is one change: all its edits are written together, or none.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from gatepost.activemanager.open import open_registry
from gatepost.activemanager.port import OwnedRegistry, RegistryUnavailable
from gatepost.configuration.document import Findings, parse, read_file
from gatepost.configuration.editing import EditingFault, Keys, OrganizationText
from gatepost.configuration.findings import LocatedFinding
from gatepost.configuration.load import Loaded, load, load_organization, organization_document
from gatepost.configuration.saving import Held, held
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.directory.editing import DirectoryEditor, DirectoryError
from gatepost.organization.faults import listed, suggestion
from gatepost.organization.model import ClientAccessArray, Database, Organization, Server, Site, SiteLink
from gatepost.organization.transport import ReceiveConnector, SendConnector
from gatepost.shell.errors import ShellError

Edit = Callable[[OrganizationText, Organization], None]
"""A change of the file's text; sees the organization as it was before this edit."""

SHOWN_FINDINGS = 20
"""Faults of a refused change; more scroll the first ones away."""
REFUSED = "The change is refused, nothing was written"
_BOM = b"\xef\xbb\xbf"


T = TypeVar("T", Server, Site, SiteLink, Database, ClientAccessArray, ReceiveConnector, SendConnector)


def by_name(things: Mapping[str, T], name: str, what: str) -> T:
    """The one of `things` called `name`, without regard to case, by its name or full host name. Raises `ShellError`.

    `what` is their word, such as `server`.
    """
    for thing in things.values():
        if name.casefold() in {thing.name.casefold(), getattr(thing, "fqdn", "").casefold()}:
            return thing
    raise ShellError(f"there is no {what} {name!r}; {suggestion(name, things, what.rsplit(maxsplit=1)[-1] + 's')}")


def refuse_taken(things: Iterable[str], name: str, what: str) -> None:
    """Raises `ShellError` when one of `things` has the name but for case."""
    taken = [other for other in things if other.casefold() == name.casefold()]
    if taken:
        raise ShellError(f"there is a {what} {listed(taken)} already")


class Talk(Protocol):
    """The operator, as the command line or a test stands for them."""

    def say(self, text: str) -> None:
        """Something the operator asked for, such as what `-WhatIf` found."""
        ...

    def warn(self, text: str) -> None:
        """Something to know; the command goes on."""
        ...

    def confirm(self, question: str) -> bool:
        """Whether to go on. Raises `ShellError` when nobody can be asked."""
        ...

    def new_password(self) -> str:
        """A password that the operator types in. Raises `ShellError` when nobody can be asked."""
        ...


@dataclass
class _Draft:
    """The file's text while a statement changes it."""

    file: Held
    text: OrganizationText
    before: str
    what_if: bool = False


class Session:
    """One shell. `path` is a front end's configuration or, with `alone`, a file with an organization and nothing else
    that counts: no registry and no directory are used then. `server` overrides `front_end.server`.
    """

    def __init__(self, path: str, talk: Talk, *, alone: bool = False, server: str | None = None) -> None:
        self.talk = talk
        self.written: Path | None = None
        """The file that the last statement changed, if it did."""
        self._path = path
        self._alone = alone
        self._server_option = server
        self._loaded: Loaded | None = None
        self._base: Loaded | None = None
        self._draft: _Draft | None = None
        self._registry: tuple[FrontEnd, OwnedRegistry] | None = None
        self._stack = ExitStack()

    # Looking

    @property
    def organization(self) -> Organization:
        """The organization, with the edits of this statement. Raises `ShellError`."""
        organization = self._load().organization
        assert organization is not None, "errors were raised"
        return organization

    @property
    def this_server(self) -> str | None:
        """The server whose front end the configuration is for; None where it names none. Raises `ShellError`."""
        if self._server_option is not None:
            return self.server(self._server_option).name
        configuration = self._load().configuration
        if configuration is not None:
            return configuration.front_end.server
        main = parse(self._path, read_file, Findings())
        front_end = main.data.get("front_end") if main else None
        named = front_end.get("server") if isinstance(front_end, dict) else None
        return named if isinstance(named, str) and named in self.organization.servers else None

    def server(self, name: str) -> Server:
        """The server called `name`, without regard to case, by its name or full host name. Raises `ShellError`."""
        return by_name(self.organization.servers, name, "server")

    @property
    def registry(self) -> OwnedRegistry:
        """The registry. Raises `ShellError` where the session is about a file alone."""
        front_end = self.configuration.front_end
        if self._registry is None or self._registry[0] != front_end:
            self.close()
            self._registry = front_end, open_registry(front_end)
        return self._registry[1]

    def close(self) -> None:
        """Let go of the registry."""
        if self._registry is not None:
            self._registry[1].close()
            self._registry = None

    @property
    def has_stores(self) -> bool:
        """Whether there are a registry and a directory."""
        return not self._alone

    @contextmanager
    def directory(self) -> Iterator[DirectoryEditor]:
        """The embedded directory of users. What it refuses is a `ShellError`, and that users are elsewhere."""
        front_end = self.configuration.front_end
        if not front_end.uses_directory_file:
            names = ", ".join(each.name for each in front_end.directories)
            raise ShellError(f"users are kept in the directory {names}: add and change them there")
        try:
            with DirectoryEditor(self.configuration.front_end.directory) as editor:
                yield editor
        except DirectoryError as fault:
            raise ShellError(str(fault)) from fault

    @property
    def configuration(self) -> Configuration:
        """The front end's. Raises `ShellError` where the session is about a file alone."""
        configuration = self._load().configuration
        if configuration is None:
            raise ShellError("this needs a front end's configuration (--config FILE): a file alone has no users")
        return configuration

    # Changing

    @contextmanager
    def statement(self) -> Iterator[None]:
        """One statement: its edits are written at the end of the block; none, when it raises. Raises `ShellError`."""
        self._loaded = self._base = self._draft = self.written = None
        with self._stack:
            try:
                yield
                self._commit()
            except EditingFault as fault:
                raise ShellError(str(fault)) from fault
            finally:
                self._draft = None

    def begin_change(self, *, what_if: bool = False) -> None:
        """Take hold of the file, before anything is looked up for a change of it. Raises `ShellError`, OSError."""
        if self._draft is None:
            known = self._loaded
            file = self._stack.enter_context(held(self._organization_path()))
            text = file.content.removeprefix(_BOM).decode()
            self._loaded = self._base = None
            if known is not None and self._load().organization != known.organization:
                raise ShellError("the file was changed by somebody else meanwhile. Nothing was written: try again.")
            self._draft = _Draft(file, OrganizationText(text), text)
        self._draft.what_if |= what_if

    def edit(self, edit: Edit) -> None:
        """Change the file's text. What is looked up afterwards sees the change. After `begin_change`."""
        assert self._draft is not None, "begin_change comes first"
        edit(self._draft.text, self.organization)
        self._loaded = None

    def add_table(self, path: tuple[str, str], keys: Keys) -> None:
        """Add a table such as `("arrays", "USA")`. After `begin_change`."""
        self.edit(lambda text, _: text.add_table(path, keys))

    def remove_table(self, path: tuple[str, str]) -> None:
        """Take a table away. After `begin_change`."""
        self.edit(lambda text, _: text.remove_table(path))

    def set_keys(self, path: tuple[str, str], keys: Keys, who: str) -> None:
        """Change a table's keys; warns when all is so already. After `begin_change`. Raises `ShellError`."""
        if not keys:
            raise ShellError("say what to change")
        before = self.organization
        self.edit(lambda text, _: text.set_keys(path, keys))
        if self.organization == before:
            self.talk.warn(f"no setting of {who} was changed: it is so already")

    def _commit(self) -> None:
        draft = self._draft
        if draft is None:
            return
        text = draft.text.text()
        if text == draft.before:
            return
        self._loaded = None
        after = self._load()
        self._warn_of_news(after)
        if draft.what_if:
            self.talk.say(_difference(draft, text))
            return
        bom = _BOM if draft.file.content.startswith(_BOM) else b""
        draft.file.replace(bom + text.encode())
        self.written = draft.file.path
        if not self._alone:
            self._tell()

    def _tell(self) -> None:
        """Have the running front ends read the file: they watch this number."""
        try:
            registry = self.registry
            registry.set_organization_version(registry.view().organization_version + 1)
        except RegistryUnavailable as fault:
            raise ShellError(
                f"The file was changed, but running front ends could not be told: {fault}. Reload them (SIGHUP)."
            ) from fault

    def _warn_of_news(self, after: Loaded) -> None:
        """Warnings that the change brings; those of before are `gatepost check`'s matter."""
        assert self._base is not None
        old = {(f.finding.object_name, f.finding.message) for f in self._base.findings}
        for finding in after.findings:
            if (finding.finding.object_name, finding.finding.message) not in old:
                self.talk.warn(f"{finding.finding.object_name}: {finding.finding.message}; {finding.finding.remedy}")

    def _organization_path(self) -> str:
        findings = Findings()
        document = organization_document(self._path, read_file, findings)
        if document is None:
            raise _refusal(f"{self._path} cannot be used", tuple(findings.found))
        return document.path

    def _load(self) -> Loaded:
        if self._loaded is None:
            loaded = self._read_and_check()
            if loaded.organization is None:
                raise _refusal(REFUSED if self._draft else f"{self._path} cannot be used", loaded.findings)
            self._loaded = loaded
            self._base = self._base or loaded
        return self._loaded

    def _read_and_check(self) -> Loaded:
        if self._alone:
            return load_organization(self._path, self._read)
        return load(self._path, self._read, self._server_option)

    def _read(self, path: str) -> bytes:
        """A file's content; of the organization's file what this statement has made of it."""
        if self._draft is not None and os.path.realpath(path) == str(self._draft.file.path):
            return self._draft.text.text().encode()
        return read_file(path)


def _refusal(what: str, findings: tuple[LocatedFinding, ...]) -> ShellError:
    errors = [str(finding) for finding in findings if finding.is_error]
    more = len(errors) - SHOWN_FINDINGS
    lines = [f"{what}, errors: {len(errors)}", *errors[:SHOWN_FINDINGS], *([f"and {more} more"] if more > 0 else [])]
    return ShellError("\n".join(lines))


def _difference(draft: _Draft, text: str) -> str:
    name = Path(draft.file.path).name
    lines = difflib.unified_diff(draft.before.splitlines(), text.splitlines(), name, f"{name} (what if)", lineterm="")
    return "\n".join(lines)
