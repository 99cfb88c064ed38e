"""Opens the directories that a configuration names: everybody who asks one comes here."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from gatepost.configuration.settings import FrontEnd
from gatepost.directory.app_password_store import AppPasswords
from gatepost.directory.cached import CachedDirectory
from gatepost.directory.certificates import Certificates
from gatepost.directory.kerberos_port import KerberosAcceptor, KerberosOnward
from gatepost.directory.port import Engine, OwnedDirectory, User
from gatepost.directory.settings import DirectorySettings, SqlKind
from gatepost.directory.several import DirectoriesInOrder, Part
from gatepost.directory.sign_in import SignInService
from gatepost.directory.sqlite import SqliteDirectory

if TYPE_CHECKING:
    from gatepost.directory.tokens.verifier import Tokens

_HTTP_CLIENT = (
    "anyio._backends._asyncio", "httpcore2._async.http11", "httpcore2._backends.anyio", "truststore", "encodings.idna",
)  # fmt: skip
"""What the HTTP client loads with its first connection."""
_HASHES = ("gatepost.directory.schemes", "passlib.handlers.ldap_digests", "passlib.handlers.sha2_crypt")


def open_kerberos(sign_in: SignInService, front_end: FrontEnd) -> None:
    """Judge tickets as this configuration says, and ask for those that it wants; exchanges under way come again.

    Belongs to the running loop. Raises `ImportError` where the library is missing; then all stays as it was.
    """
    kerberos: KerberosAcceptor | None = None
    onward: KerberosOnward | None = None
    settings = front_end.kerberos
    if settings is not None:
        from gatepost.directory.kerberos import Kerberos  # its library comes with the extra `kerberos`
        from gatepost.directory.kerberos_onward import OnwardTickets

        limits = front_end.limits
        onward = tickets = OnwardTickets(settings) if settings.asks else None
        kerberos = Kerberos(
            settings,
            waiting_limit=limits.password_checks,
            per_address=limits.password_checks_per_address,
            onward=tickets,
        )
    for old in (sign_in.kerberos, sign_in.onward):
        if old is not None:
            old.close()
    sign_in.kerberos, sign_in.onward = kerberos, onward


def open_app_passwords(front_end: FrontEnd, loop: asyncio.AbstractEventLoop) -> AppPasswords | None:
    """The app passwords of this front end, followed from now on; None where there are none."""
    if not front_end.app_passwords:
        return None
    app_passwords = AppPasswords(front_end.app_passwords, loop)
    app_passwords.start()
    return app_passwords


def use_other_ways(sign_in: SignInService, front_end: FrontEnd) -> None:
    """Offer SCRAM, and judge clients' certificates, as this configuration says.

    Made-up keys come from the certificate's private key, which front ends of one name share, so that all of them
    answer alike.
    """
    sign_in.scram = front_end.scram
    sign_in.certificates = Certificates(front_end.client_certificates) if front_end.client_certificates else None
    if front_end.scram is not None and front_end.private_key:
        key = load_pem_private_key(front_end.private_key, None)
        octets = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        sign_in.scram_decoys = blake2b(octets, digest_size=32, person=b"scram decoys").digest()


def open_tokens(front_end: FrontEnd, default_domain: str) -> Tokens | None:
    """What judges bearer tokens, where the configuration says so. Belongs to the running loop.

    Raises ValueError when the key of an issuer cannot be used.
    """
    if not front_end.token_issuers:
        return None
    from gatepost.directory.tokens.verifier import Tokens  # its libraries are large; most front ends take no tokens

    tokens = Tokens(front_end.token_issuers, default_domain)
    tokens.start()
    return tokens


def load_directories(front_end: FrontEnd) -> None:
    """Load all that engines, Kerberos and tokens need, for who may not be able to read this program's files later."""
    if front_end.token_issuers:
        for module in ("gatepost.directory.tokens.verifier", *_HTTP_CLIENT):
            importlib.import_module(module)
    if front_end.kerberos is not None:
        importlib.import_module("gatepost.directory.kerberos")
        importlib.import_module("gatepost.directory.kerberos_onward")
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
        directory = open_directory(_untold(self._front_end), asyncio.get_running_loop())
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


def _untold(front_end: FrontEnd) -> FrontEnd:
    """With directories that are asked and do not tell of changes: for who is over before anything changes."""
    return replace(
        front_end,
        directories=tuple(
            replace(
                each,
                ldap=replace(each.ldap, changes_seconds=0.0) if each.ldap is not None else None,
                sql=replace(each.sql, notify="") if each.sql is not None else None,
            )
            for each in front_end.directories
        ),
    )


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
