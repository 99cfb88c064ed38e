"""Users in a real slapd, for tests: one process a fixture, entries changed while it runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from doors import Servers, missing

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.ldap.mapping import OPENLDAP_MAIL, Mapping
from gatepost.directory.port import User
from gatepost.directory.settings import Ages
from gatepost.lab.servers.process import ServerMissing
from gatepost.lab.servers.slapd import ADMIN, ADMIN_PASSWORD, SUFFIX, TOP, Slapd
from gatepost.organization.model import CLIENT_PROTOCOLS

QUICK = Ages(positive_seconds=0.1, negative_seconds=0.1, outage_seconds=3600.0)
"""So that changes are seen in a test's time."""
PASSWORD = "apw"
SERVICE = f"cn=gatepost,{SUFFIX}"
SERVICE_PASSWORD = "svcpw"
SERVICE_ENTRY = (
    f"dn: {SERVICE}\nobjectClass: applicationProcess\nobjectClass: simpleSecurityObject\ncn: gatepost\n"
    f"userPassword: {SERVICE_PASSWORD}\n\n"
)
MAIL = Mapping(
    filter=OPENLDAP_MAIL.filter,
    logins=OPENLDAP_MAIL.logins,
    name="mail",
    account_domains=("contoso.com",),
    database="mailDatabase",
    home_server="mailHost",
    login_at_server="mailLogin",
    version="entryCSN",
    disabled="accountStatus",
    disabled_values=OPENLDAP_MAIL.disabled_values,
    protocols="mailProtocols",
    denied_protocols="mailProtocolsDenied",
)
_numbers = itertools.count(1)


def require_python_ldap() -> Any:
    """python-ldap, which the LDAP engine needs; its absence is dealt with as a missing server's."""
    try:
        import ldap
    except ImportError:
        missing(ServerMissing("python-ldap", ("libldap2-dev", "libsasl2-dev", "gcc")))
    return ldap


def entry_of(user: User, addresses: tuple[str, ...] = (), password: str = PASSWORD) -> dict[str, list[bytes]]:
    """A user as an entry with the schema of `MAIL`."""
    local = user.name.partition("@")[0]
    values: dict[str, list[str]] = {
        "objectClass": ["inetOrgPerson", "qmailUser"],
        "cn": [local],
        "sn": [local],
        "uid": [local],
        "mail": [user.name],
        "userPassword": [password],
        "mailAlternateAddress": list(addresses),
        "mailDatabase": [user.mailbox.database] if user.mailbox.database else [],
        "mailHost": [user.mailbox.home_server] if user.mailbox.home_server else [],
        "mailLogin": [user.login_at_server] if user.login_at_server else [],
        "accountStatus": ["disabled" if user.disabled else "active"],
        "mailProtocols": [p.value for p in CLIENT_PROTOCOLS if p in user.protocols],
    }
    return {name: [v.encode() for v in each] for name, each in values.items() if each}


def dn_of(name: str) -> str:
    return f"cn={name.partition('@')[0]},{SUFFIX}"


@contextmanager
def running(servers: Servers, folder: Path, ldif: str = "", extra: str = "") -> Iterator[Slapd]:
    """A slapd with the service's account and the entries of `ldif`."""
    address = servers.address()
    certificate = servers.authority.issue(f"slapd-{next(_numbers)}", "ldap.contoso.com", address)
    try:
        server = Slapd(folder / f"slapd-{address}", address, certificate, extra=extra)
    except ServerMissing as error:
        missing(error)
    server.load(TOP + SERVICE_ENTRY + ldif)
    with server:
        yield server


class Changing:
    """Changes entries of a slapd, as its administrator."""

    def __init__(self, server: Slapd) -> None:
        ldap = require_python_ldap()
        self._connection = ldap.initialize(server.url)
        self._connection.simple_bind_s(ADMIN, ADMIN_PASSWORD)

    def put(self, user: User, addresses: tuple[str, ...] = (), password: str = PASSWORD) -> None:
        self.remove(user.name)
        self.add(dn_of(user.name), entry_of(user, addresses, password))

    def add(self, dn: str, values: dict[str, list[bytes]]) -> None:
        self._connection.add_s(dn, list(values.items()))

    def replace(self, dn: str, attribute: str, *values: str) -> None:
        self._connection.modify_s(dn, [(2, attribute, [v.encode() for v in values] or None)])

    def remove(self, name: str) -> None:
        ldap = require_python_ldap()
        with suppress(ldap.NO_SUCH_OBJECT):
            self._connection.delete_s(dn_of(name))

    def close(self) -> None:
        self._connection.unbind_s()


def settings(*servers: Slapd, mapping: Mapping = MAIL, ca: bytes = b"", **more: Any) -> Any:
    """Settings for these servers by TLS."""
    require_python_ldap()
    from gatepost.directory.settings import LdapServer, LdapSettings

    times = {"seconds": 6.0, "try_seconds": 1.5} | more
    each = tuple(LdapServer(server.tls_url, ca=ca, seconds=times["try_seconds"]) for server in servers)
    return LdapSettings(each, SUFFIX, mapping, SERVICE, SERVICE_PASSWORD, **times)


def opened(given: Any, ages: Ages = QUICK) -> CachedDirectory:
    """The directory of these settings. Close it, and wait for that."""
    from gatepost.directory.ldap.engine import LdapEngine

    return CachedDirectory("corp", LdapEngine("corp", given), ages, probe_seconds=0.1)
