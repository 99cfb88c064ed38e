"""Opens the directories that a configuration names: everybody who asks one comes here."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable

from gatepost.configuration.settings import FrontEnd
from gatepost.directory.cached import CachedDirectory
from gatepost.directory.kerberos_port import KerberosAcceptor
from gatepost.directory.port import Engine, OwnedDirectory, User
from gatepost.directory.settings import DirectorySettings, SqlKind
from gatepost.directory.several import DirectoriesInOrder, Part
from gatepost.directory.sign_in import SignInService
from gatepost.directory.sqlite import SqliteDirectory

_HASHES = ("gatepost.directory.schemes", "passlib.handlers.ldap_digests", "passlib.handlers.sha2_crypt")


def open_kerberos(front_end: FrontEnd) -> KerberosAcceptor | None:
    """What judges tickets, where the configuration says so. Belongs to the running loop."""
    if front_end.kerberos is None:
        return None
    from gatepost.directory.kerberos import Kerberos  # its library comes with the extra `kerberos`

    limits = front_end.limits
    return Kerberos(
        front_end.kerberos, waiting_limit=limits.password_checks, per_address=limits.password_checks_per_address
    )


def renew_kerberos(sign_in: SignInService, front_end: FrontEnd) -> None:
    """Judge tickets as this configuration says; exchanges under way are told to come again.

    Raises `ImportError` where the library is missing; then all stays as it was.
    """
    kerberos = open_kerberos(front_end)
    if sign_in.kerberos is not None:
        sign_in.kerberos.close()
    sign_in.kerberos = kerberos


def load_directories(front_end: FrontEnd) -> None:
    """Load all that the engines and Kerberos need, for who may not be able to read this program's files later."""
    if front_end.kerberos is not None:
        importlib.import_module("gatepost.directory.kerberos")
    for settings in front_end.directories:
        for module in _modules(settings):
            importlib.import_module(module)


def open_directory(front_end: FrontEnd, loop: asyncio.AbstractEventLoop) -> OwnedDirectory:
    """The directory of this front end for `loop`, not yet started; with several, all of them as one."""
    if not front_end.directories:
        return SqliteDirectory(front_end.directory, loop)
    return DirectoriesInOrder(
        [
            Part(settings.name, _open(settings, front_end, loop), frozenset(settings.domains))
            for settings in front_end.directories
        ]
    )


class WaitingDirectory:
    """The `Directory` of a command, which has no loop and asks little: `find` opens the directory and waits."""

    def __init__(self, front_end: FrontEnd) -> None:
        self._front_end = front_end

    def find(self, canonical_name: str) -> User | None:
        """The user who has this name, address or alias. Raises `DirectoryUnavailable`."""
        if not self._front_end.directories:
            return SqliteDirectory(self._front_end.directory).find(canonical_name)
        return asyncio.run(self.ask(canonical_name))

    async def ask(self, canonical_name: str) -> User | None:
        """As `find`, within a loop."""
        directory = open_directory(self._front_end, asyncio.get_running_loop())
        try:
            return await directory.ask(canonical_name)
        finally:
            directory.close()
            await directory.wait_closed()

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:  # noqa: ARG002
        """See `Directory`: a command judges no passwords."""
        return False

    def on_change(self, callback: Callable[[], None]) -> None:
        """See `Directory`: a command is over before anything changes."""


def _open(settings: DirectorySettings, front_end: FrontEnd, loop: asyncio.AbstractEventLoop) -> OwnedDirectory:
    if settings.is_file:
        return SqliteDirectory(front_end.directory, loop)
    return CachedDirectory(settings.name, _engine(settings), settings.ages)


def _engine(settings: DirectorySettings) -> Engine:
    """The engine; its libraries are only for those who need them."""
    if settings.ldap is not None:
        from gatepost.directory.ldap.engine import LdapEngine

        return LdapEngine(settings.name, settings.ldap)
    if settings.sql is not None:
        from gatepost.directory.sql.engine import SqlEngine

        return SqlEngine(settings.name, settings.sql)
    assert settings.http is not None
    from gatepost.directory.http_look_up import HttpEngine

    return HttpEngine(settings.name, settings.http)


def _modules(settings: DirectorySettings) -> tuple[str, ...]:
    if settings.ldap is not None:
        return ("gatepost.directory.ldap.engine",)
    if settings.sql is not None:
        word = "postgresql" if settings.sql.kind is SqlKind.POSTGRESQL else "mariadb"
        return ("gatepost.directory.sql.engine", f"gatepost.directory.sql.{word}", "encodings.idna", *_HASHES)
    if settings.http is not None:
        return (
            "gatepost.directory.http_look_up",
            "encodings.idna",
            *_HASHES,
        )
    return ()
