"""A real domain controller with Exchange's schema, an Exchange organization and users: one for all tests of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import pytest
from doors import Servers, missing
from ldap_kit import require_python_ldap

from gatepost.lab.servers.exchange_entries import ExchangeEntries, change
from gatepost.lab.servers.exchange_schema import schema_ldifs
from gatepost.lab.servers.process import ServerMissing
from gatepost.lab.servers.samba import ADMIN_PASSWORD, Samba

DOMAIN = "DC=ad,DC=contoso,DC=test"
USERS = f"CN=Users,{DOMAIN}"
PASSWORDS = {"alice": "Alice-pw1", "bob": "Bob-pw1", "carla": "Carla-pw1"}
SERVICE, SERVICE_PASSWORD = f"CN=gatepost,{USERS}", "Gatepost-pw1"
GUID = UUID("8bcbbad4-f3de-4d36-8d82-2779fbde431a")
"""Of Alice's mailbox."""
ADMINISTRATOR = f"administrator@{'.'.join(part[3:] for part in DOMAIN.split(','))}"


@dataclass
class Domain:
    """The controller, what is in its configuration partition, and what it is configured with."""

    server: Samba
    entries: ExchangeEntries
    ca: Path
    secret: Path

    def table(self, **more: Any) -> dict[str, Any]:
        """`[front_end.directories.ldap]`."""
        return {
            "preset": "active-directory", "servers": [self.server.url], "ca": str(self.ca), "base": DOMAIN,
            "netbios_domain": "CONTOSO", "bind_name": SERVICE, "bind_password_file": str(self.secret),
            "account_domains": ["contoso.com"], "changes_seconds": 0.2,
        } | more  # fmt: skip

    def settings(self, **more: Any) -> Any:
        """The same for the engine itself."""
        from dataclasses import replace

        from gatepost.directory.ldap.mapping import ACTIVE_DIRECTORY
        from gatepost.directory.settings import LdapServer, LdapSettings

        mapping = replace(ACTIVE_DIRECTORY, account_domains=("contoso.com",), netbios_domain="CONTOSO")
        server = LdapServer(self.server.url, ca=self.ca.read_bytes(), seconds=10.0)
        given = {"changes_seconds": 0.1, "seconds": 20.0, "try_seconds": 10.0} | more
        return LdapSettings((server,), DOMAIN, mapping, SERVICE, SERVICE_PASSWORD, **given)


class Administrator:
    """Changes entries while the controller runs, by LDAP and its rules."""

    def __init__(self, domain: Domain) -> None:
        ldap = require_python_ldap()
        self._ldap = ldap
        self._connection = ldap.initialize(domain.server.url)
        self._connection.set_option(ldap.OPT_X_TLS_CACERTFILE, str(domain.ca))
        self._connection.set_option(ldap.OPT_X_TLS_NEWCTX, 0)
        self._connection.simple_bind_s(ADMINISTRATOR, ADMIN_PASSWORD)

    def replace(self, dn: str, attribute: str, *values: str) -> None:
        self._connection.modify_s(dn, [(2, attribute, [value.encode() for value in values] or None)])

    def add(self, dn: str, values: dict[str, list[bytes]]) -> None:
        self._connection.add_s(dn, list(values.items()))

    def add_user(self, name: str, database: str) -> str:
        """A user without a password; the distinguished name."""
        dn = f"CN={name},{USERS}"
        values = {
            "objectClass": "user", "sAMAccountName": name, "userPrincipalName": f"{name}@contoso.com",
            "homeMDB": database,
        }  # fmt: skip
        self.add(dn, {key: [value.encode()] for key, value in values.items()})
        return dn

    def delete(self, dn: str) -> None:
        self._connection.delete_s(dn)

    def close(self) -> None:
        self._connection.unbind_s()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture(scope="session")
def domain(servers: Servers, scratch: Path) -> Iterator[Domain]:
    """The domain. Alice and Carla are in DB01, Bob in DB02; their names end with `@contoso.com`."""
    require_python_ldap()
    folder = scratch / "AD"
    folder.mkdir()
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(SERVICE_PASSWORD)
    address = servers.address()
    certificate = servers.authority.issue("AD-DC", "dc-ad.contoso.test", address)
    try:
        server = Samba(folder / "DC", address, name="DC-AD", certificate=certificate)
    except ServerMissing as error:
        missing(error)
    entries = ExchangeEntries(DOMAIN)
    server.add({**{name: (word, ()) for name, word in PASSWORDS.items()}, "gatepost": (SERVICE_PASSWORD, ())})
    server.load(*schema_ldifs(DOMAIN), entries.ldif(), "".join(map(_mailbox, PASSWORDS, ("DB01", "DB02", "DB01"))))
    with server:
        yield Domain(server, entries, servers.authority.certificate, secret)


def dn_of(name: str) -> str:
    return f"CN={name},{USERS}"


def _mailbox(name: str, database: str) -> str:
    entries = ExchangeEntries(DOMAIN)
    address = f"{name}@contoso.com"
    values: dict[str, Any] = {
        "userPrincipalName": address,
        "mail": address,
        "proxyAddresses": [f"SMTP:{address}", f"smtp:{name}.x@contoso.com", f"sip:{address}"],
        "homeMDB": entries.database(database),
        "msExchHomeServerName": "/o=Contoso/ou=Exchange/cn=Configuration/cn=Servers/cn=EX-MBX-01",
        "msExchVersion": 44220983382016,
    }
    if name == "alice":
        values["msExchMailboxGuid"] = GUID.bytes_le
    return change(dn_of(name), values)
