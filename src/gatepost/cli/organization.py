"""`gatepost organization`: the organization's file as a whole."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gatepost.cli.options import CONFIGURATION_VARIABLE, DEFAULT_CONFIGURATION, load_configuration, read_password
from gatepost.configuration.findings import printable

if TYPE_CHECKING:  # imported on use: the LDAP library is an extra
    from gatepost.directory.exchange.found import Found
    from gatepost.directory.exchange.reading import Entries
    from gatepost.directory.settings import LdapSettings
    from gatepost.shell.session import Session

READ_SECONDS = 30.0
"""For each page: whole partitions take longer than one user."""
NEW_NAME = "exchange"
"""Name of a new file's organization where Active Directory has none."""


@click.group("organization")
def command() -> None:
    """The organization as a whole."""


@dataclass
class _Operator:
    """Collects what the shell says; the command prints it in its own order."""

    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        if text not in self.warned:
            self.warned.append(text)

    def confirm(self, question: str) -> bool:  # noqa: ARG002
        return True

    def new_password(self) -> str:
        raise click.ClickException("no password is needed here")


@command.command("import-ad")
@click.option(
    "-c",
    "--config",
    metavar="FILE",
    envvar=CONFIGURATION_VARIABLE,
    default=DEFAULT_CONFIGURATION,
    show_default=True,
    help=f"The front end's configuration; also by the environment variable {CONFIGURATION_VARIABLE}.",
)
@click.option("--organization", metavar="FILE", help="Work on this file alone; it is made where it is missing.")
@click.option("--directory", metavar="NAME", help="Which of the configured directories; default: the first in LDAP.")
@click.option(
    "--ldap", "urls", multiple=True, metavar="URL", help="A domain controller (ldaps://…), instead. Repeat it."
)
@click.option("--ca", metavar="FILE", type=click.Path(), help="With --ldap: what signs its certificate.")
@click.option("--bind-name", metavar="NAME", help="With --ldap: the account that reads.")
@click.option("--bind-password-file", metavar="FILE", help="With --ldap: its password; default: it is asked for.")
@click.option("--site", "sites", multiple=True, metavar="SERVER=SITE", help="The site of a server of 2003. Repeat it.")
@click.option("--leave-out", multiple=True, metavar="NAME", help="Do not look at what has this name. Repeat it.")
@click.option("--only-sites", is_flag=True, help="Sites, subnets and site links; nothing of Exchange.")
@click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def import_ad(
    config: str,
    organization: str | None,
    directory: str | None,
    urls: tuple[str, ...],
    ca: str | None,
    bind_name: str | None,
    bind_password_file: str | None,
    sites: tuple[str, ...],
    leave_out: tuple[str, ...],
    *,
    only_sites: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Bring an Exchange organization from Active Directory into the organization's file.

    Active Directory is only read. Sites, servers, databases and virtual directories are added or brought up to date;
    what only the file has stays. The change is shown first.

    Exit status: 0 done or nothing to do; 1 nothing was changed.
    """
    settings = _settings(urls, ca, bind_name, bind_password_file) if urls else _configured(config, directory)
    said = dict(_server_site(text) for text in sites)
    entries = _read(settings, only_sites=only_sites)
    if not entries.organizations and not only_sites:
        raise click.ClickException(
            "there is no Exchange organization in this forest that the account may read; for the sites alone: "
            "--only-sites"
        )
    with _session_on(organization, config, entries, keep=not dry_run) as (session, operator):
        found = _found(session, entries, leave_out, said)
        changes = _change(session, operator, found, show=True)
        if dry_run or not changes:
            return
        if not yes and not (sys.stdin.isatty() and click.confirm("Write this?", default=False, err=True)):
            raise click.ClickException("nothing was changed" + ("" if sys.stdin.isatty() else ": add --yes"))
        _change(session, operator, found, show=False)
    click.echo(f"changed {session.written}")


def _settings(urls: tuple[str, ...], ca: str | None, bind_name: str | None, password_file: str | None) -> LdapSettings:
    """Settings for these servers. TLS is always verified."""
    from gatepost.directory.ldap.mapping import ACTIVE_DIRECTORY
    from gatepost.directory.settings import LdapServer, LdapSettings

    for url in urls:
        if not url.startswith(("ldaps://", "ldap://")):
            raise click.BadParameter(f"{url}: write it like ldaps://dc-01.contoso.com", param_hint="--ldap")
    pem = Path(ca).read_bytes() if ca else b""
    password = read_password(from_stdin=False, file=password_file) if bind_name else ""
    servers = tuple(LdapServer(url.rstrip("/"), url.startswith("ldap:"), pem) for url in urls)
    return LdapSettings(servers, "", ACTIVE_DIRECTORY, bind_name or "", password)


def _configured(config: str, name: str | None) -> LdapSettings:
    directories = load_configuration(config).front_end.directories
    found = [each for each in directories if each.ldap is not None and name in (None, each.name)]
    if not found:
        which = f"no directory {name} in LDAP" if name else "no directory in LDAP"
        raise click.ClickException(f"{config} has {which}: name a domain controller with --ldap")
    settings = found[0].ldap
    assert settings is not None, "those without were left out"
    return settings


def _server_site(text: str) -> tuple[str, str]:
    server, equals, site = text.partition("=")
    if not equals or not server or not site:
        raise click.BadParameter(f"{text}: write it like EX-01=usa", param_hint="--site")
    return server, site


def _read(settings: LdapSettings, *, only_sites: bool) -> Entries:
    try:
        from gatepost.directory.exchange.reading import read_directory
    except ImportError as fault:
        raise click.ClickException(f"this needs {fault.name}: pip install gatepost[ldap]") from fault

    servers = tuple(replace(server, seconds=READ_SECONDS) for server in settings.servers)
    return asyncio.run(read_directory(replace(settings, servers=servers), only_sites=only_sites))


@contextmanager
def _session_on(
    organization: str | None, config: str, entries: Entries, *, keep: bool
) -> Iterator[tuple[Session, _Operator]]:
    """A session on the file; on a new one, which stays only if the import is written."""
    import tomlkit

    from gatepost.directory.exchange.names import name_of
    from gatepost.shell.session import Session

    operator = _Operator()
    if organization is None or Path(organization).exists():
        session = Session(organization or config, operator, alone=organization is not None)
        try:
            yield session, operator
        finally:
            session.close()
        return
    name = next((name_of(entry) for entry in entries.organizations), NEW_NAME)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / Path(organization).name
        draft.write_text(f"[organization]\nname = {tomlkit.item(name).as_string()}\n")
        session = Session(str(draft), operator, alone=True)
        yield session, operator
        if keep and session.written is not None:
            with Path(organization).open("x") as file:  # whoever has made it meanwhile keeps theirs
                file.write(draft.read_text())
            session.written = Path(organization)


def _found(session: Session, entries: Entries, leave_out: tuple[str, ...], said: dict[str, str]) -> Found:
    from gatepost.directory.exchange.found import Ambiguous
    from gatepost.directory.exchange.mapping import found_in
    from gatepost.shell.errors import ShellError

    try:
        known = {server.name: server.site for server in session.organization.servers.values()}
        return found_in(entries, leave_out=leave_out, said_sites=said, known_sites=known)
    except Ambiguous as fault:
        for line in fault.faults:
            click.echo(printable(line), err=True)
        raise click.ClickException("nothing was changed: this could mean two things") from fault
    except ShellError as fault:
        raise click.ClickException(str(fault)) from fault


def _change(session: Session, operator: _Operator, found: Found, *, show: bool) -> bool:
    """Show the change, or make it. Whether there is one."""
    from gatepost.shell.errors import ShellError
    from gatepost.shell.importing import Import

    running = Import(found)
    operator.said.clear()
    try:
        with session.statement():
            running.run(session, what_if=show)
    except ShellError as fault:
        raise click.ClickException(str(fault)) from fault
    if show:
        for text in operator.said:
            click.echo("\n".join(map(printable, text.splitlines())))
        if not operator.said:
            click.echo("nothing to change")
        for line in (*(f"not mapped: {line}" for line in found.not_mapped), *running.notes):
            click.echo(printable(line), err=True)
        for line in operator.warned:
            click.echo(f"WARNING: {printable(line)}", err=True)
    return bool(operator.said)
