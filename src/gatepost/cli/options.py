"""What the commands share: the configuration option, the stores it names, words for faults."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gatepost.configuration.settings import Configuration
from gatepost.organization.names import BadLoginName, canonical_grant, canonical_login_name

if TYPE_CHECKING:  # imported on use: `gatepost --help` needs neither SQLite nor argon2
    from gatepost.activemanager.port import OwnedRegistry
    from gatepost.directory.app_password_store import AppPasswordEditor
    from gatepost.directory.editing import DirectoryEditor
    from gatepost.directory.open import WaitingDirectory

DEFAULT_CONFIGURATION = "/etc/gatepost/gatepost.toml"
CONFIGURATION_VARIABLE = "GATEPOST_CONFIG"

SHOWN_FAULTS = 20
"""Lines of a list of faults; more scroll the first ones away."""

config_option = click.option(
    "-c",
    "--config",
    "config",
    metavar="FILE",
    envvar=CONFIGURATION_VARIABLE,
    default=DEFAULT_CONFIGURATION,
    show_default=True,
    help=f"The configuration; also by the environment variable {CONFIGURATION_VARIABLE}.",
)
"""Adds the parameter `config`, the path of the configuration file."""


class UnknownName(click.ClickException):
    """A name that nothing has or can have: the command fails (status 1), it was not used wrongly."""


@dataclass(frozen=True)
class Stores:
    """A configuration and the stores it names, each opened when it is first used."""

    configuration: Configuration

    @cached_property
    def directory(self) -> WaitingDirectory:
        """The directory for look-ups, whichever it is; `find` waits."""
        from gatepost.directory.open import WaitingDirectory

        return WaitingDirectory(self.configuration.front_end)

    @cached_property
    def registry(self) -> OwnedRegistry:
        """The registry, until the command ends."""
        from gatepost.activemanager.open import open_registry

        registry = open_registry(self.configuration.front_end)
        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(registry.close)
        return registry

    def editor(self) -> DirectoryEditor:
        """The embedded directory for changes; a context manager.

        Raises `DirectoryUnavailable`, and `click.ClickException` where users are elsewhere.
        """
        from gatepost.directory.editing import DirectoryEditor

        front_end = self.configuration.front_end
        if not front_end.uses_directory_file:
            names = ", ".join(each.name for each in front_end.directories)
            raise click.ClickException(f"users are kept in the directory {names}: add and change them there")
        return DirectoryEditor(self.configuration.front_end.directory)

    def app_passwords(self) -> AppPasswordEditor:
        """The file of app passwords for changes; a context manager. Raises `DirectoryUnavailable`."""
        from gatepost.directory.app_password_store import AppPasswordEditor

        return AppPasswordEditor(self.configuration.front_end.app_passwords)

    def canonical(self, name: str) -> str:
        """`name` as the directory spells it. Raises `UnknownName`."""
        try:
            return canonical_login_name(name, self.configuration.organization.default_domain)
        except BadLoginName as error:
            raise UnknownName(f"{name!r} is no login name: {error}") from error

    def grant(self, text: str) -> str:
        """An address or `@domain` that a user may send as, as the directory spells it. Raises `UnknownName`."""
        try:
            return canonical_grant(text, self.configuration.organization.default_domain)
        except BadLoginName as error:
            raise UnknownName(f"{text!r} is no address and no domain (@contoso.com): {error}") from error

    def require_database(self, name: str) -> str:
        """`name` if the organization has this database. Raises `UnknownName`."""
        return _require("database", name, self.configuration.organization.databases)

    def require_server(self, name: str) -> str:
        """`name` if the organization has this server. Raises `UnknownName`."""
        return _require("server", name, self.configuration.organization.servers)

    def warn_of_foreign_domains(self, names: Iterable[str]) -> None:
        """Say which domains of `names` are not accepted ones: such users are there, but no mail comes for them."""
        accepted = [domain.lower() for domain in self.configuration.organization.accepted_domains]
        foreign = sorted({name.partition("@")[2] for name in names} - set(accepted))
        if accepted and foreign:
            shown = ", ".join(foreign[:SHOWN_FAULTS]) + (" and more" if len(foreign) > SHOWN_FAULTS else "")
            text = f"warning: not an accepted domain: {shown} (accepted_domains has: {', '.join(accepted)})"
            click.echo(text, err=True)


def open_stores(config: str) -> Stores:
    """The stores of the configuration file `config`. Raises `click.ClickException`."""
    return Stores(load_configuration(config))


def load_configuration(config: str) -> Configuration:
    """The configuration in the file `config`. Raises `click.ClickException` with all its faults."""
    from gatepost.configuration.load import load

    loaded = load(config)
    if loaded.configuration is not None:
        return loaded.configuration
    errors = [finding for finding in loaded.findings if finding.is_error]
    for finding in errors[:SHOWN_FAULTS]:
        click.echo(str(finding), err=True)
    raise click.ClickException(f"{config} cannot be used, errors: {len(errors)}")


def read_password(*, from_stdin: bool, file: str | None) -> str:
    """A password from standard input, a file or a prompt: never from the command line, where others can see it.

    One line break at its end is not part of it. Raises `click.ClickException`.
    """
    if from_stdin:
        data = sys.stdin.buffer.read(_READ_LIMIT)
    elif file is not None:
        with Path(file).open("rb") as opened:
            data = opened.read(_READ_LIMIT)
    elif sys.stdin.isatty():
        prompted: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return prompted
    else:
        raise click.UsageError("no terminal to ask for a password: use --password-stdin or --password-file")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise click.ClickException("the password is not UTF-8") from error


_READ_LIMIT = 4096
"""Bytes read of a password; more than `passwords.MAX_PASSWORD_BYTES`, so that a longer one is refused, not cut."""


def _require(what: str, name: str, known: Collection[str]) -> str:
    if name not in known:
        names = ", ".join(sorted(known)[:SHOWN_FAULTS]) or "none"
        raise UnknownName(f"the organization has no {what} {name} (it has: {names})")
    return name
