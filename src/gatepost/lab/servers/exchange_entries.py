"""An Exchange organization in Active Directory, as LDIF: the figure of three sites with servers of each generation.

usa (hub site, Internet-facing) ── 10, for mail 5 ── europe ── 40 ── asia
EX-CAS-01, EX-CAS-02  2010, client access and hub      EX-OLD  2003, in no site
EX-MBX-01, EX-MBX-02  2010, DAG-01: DB01, DB02         EX-2000 of 2000, which nothing is made of
EX-16                 2016: DB16                       EX-07   2007, all roles, its database below itself
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

Values = Mapping[str, str | int | bytes | Sequence[str]]

SUBNETS = {"10.1.0.0/16": "usa", "10.2.0.0/16": "europe", "10.2.7.0/24": "asia", "fd00:3::/32": "asia"}
_EXCHANGE_2010, _EXCHANGE_2007 = "Version 14.3 (Build 30123.4)", "Version 8.3 (Build 30083.6)"
_CLIENT_ACCESS, _MAILBOX, _HUB = 4, 2, 32
_SERVERS: dict[str, tuple[str, str, int | None]] = {
    "EX-CAS-01": ("usa", _EXCHANGE_2010, _CLIENT_ACCESS | _HUB),
    "EX-CAS-02": ("europe", _EXCHANGE_2010, _CLIENT_ACCESS | _HUB),
    "EX-MBX-01": ("usa", _EXCHANGE_2010, _MAILBOX),
    "EX-MBX-02": ("europe", _EXCHANGE_2010, _MAILBOX),
    "EX-16": ("asia", "Version 15.1 (Build 32507.6)", 16439),
    "EX-07": ("asia", _EXCHANGE_2007, _CLIENT_ACCESS | _MAILBOX | _HUB),
    "EX-OLD": ("", "Version 6.5 (Build 7638.2: Service Pack 2)", None),
    "EX-2000": ("", "Version 6.0 (Build 6249.4: Service Pack 3)", None),
}
_KINDS = {
    "owa": "Owa", "ecp": "Ecp", "EWS": "WebServices", "Microsoft-Server-ActiveSync": "Mobile", "OAB": "OAB",
    "PowerShell": "PowerShell",
}  # fmt: skip
_METHODS = {"owa": 1 | 4, "ecp": 1 | 4, "EWS": 2 | 16 | 128}
"""Basic and forms; NTLM, Windows and WS-Security, which Gatepost has no word for."""


class ExchangeEntries:
    """The entries below the configuration partition of `domain`, the forest's root (`DC=…`)."""

    def __init__(self, domain: str) -> None:
        self._configuration = f"CN=Configuration,{domain}"
        self._sites = f"CN=Sites,{self._configuration}"
        self._root = f"CN=Microsoft Exchange,CN=Services,{self._configuration}"
        self._group = f"CN=Exchange Administrative Group (FYDIBOHF23SPDLT),CN=Administrative Groups,{self.organization}"

    @property
    def organization(self) -> str:
        """The distinguished name of the organization."""
        return f"CN=Contoso,{self._root}"

    def site(self, name: str) -> str:
        """A site's distinguished name."""
        return f"CN={name},{self._sites}"

    def link(self, name: str) -> str:
        """A site link's."""
        return f"CN={name},CN=IP,CN=Inter-Site Transports,{self._sites}"

    def server(self, name: str) -> str:
        """A server's."""
        return f"CN={name},CN=Servers,{self._group}"

    def database(self, name: str) -> str:
        """A database's, of 2010 or later."""
        return f"CN={name},CN=Databases,{self._group}"

    def directory(self, server: str, service: str) -> str:
        """A virtual directory's."""
        return f"CN={service} (Default Web Site),CN=HTTP,CN=Protocols,{self.server(server)}"

    def subnet(self, network: str) -> str:
        """A subnet's."""
        return f"CN={network},CN=Subnets,{self._sites}"

    def ldif(self) -> str:
        """All of it."""
        return "".join((*self._site_entries(), *self._server_entries(), *self._database_entries()))

    def _site_entries(self) -> list[str]:
        found = [
            entry(self.site(name), "site", {"msExchTransportSiteFlags": flags} if flags is not None else {})
            for name, flags in (("usa", 1), ("europe", 0), ("asia", None))
        ]
        found += [
            entry(self.subnet(network), "subnet", {"siteObject": self.site(site)}) for network, site in SUBNETS.items()
        ]
        found.append(entry(self.subnet("10.9.0.0/16"), "subnet", {}))
        links: tuple[tuple[str, tuple[str, ...], int, int | None], ...] = (
            ("usa-europe", ("usa", "europe"), 10, 5),
            ("europe-asia", ("europe", "asia"), 40, None),
        )
        for name, sites, cost, mail in links:
            values: dict[str, str | int | Sequence[str]] = {
                "siteList": [self.site(site) for site in sites],
                "cost": cost,
            }
            found.append(entry(self.link(name), "siteLink", values | ({"msExchCost": mail} if mail else {})))
        return found

    def _server_entries(self) -> list[str]:
        groups = self._group.partition(",")[2]
        found = [
            entry(self._root, "container", {}),
            entry(self.organization, "msExchOrganizationContainer", {}),
            *(entry(dn, "container", {}) for dn in (groups, self._group, f"CN=Servers,{self._group}")),
            *(
                entry(f"CN={name},{self._group}", "container", {})
                for name in ("Databases", "Database Availability Groups")
            ),
            entry(self._dag, "msExchMDBAvailabilityGroup", {}),
        ]
        for name, (site, version, roles) in _SERVERS.items():
            found += self.server_entries(name, site, version, roles)
        for server in ("EX-CAS-01", "EX-CAS-02", "EX-16"):
            for service in _KINDS:
                found.append(self._directory_entry(server, service))
        return found

    def server_entries(self, name: str, site: str, version: str, roles: int | None) -> list[str]:
        """A server's entry, and those that its virtual directories are in."""
        values: dict[str, str | int | Sequence[str]] = {
            "networkAddress": [f"ncacn_ip_tcp:{name.lower()}.contoso.com", f"netbios:{name}"],
            "serialNumber": version,
        }
        if site:
            values["msExchServerSite"] = self.site(site)
        if roles is not None:
            values["msExchCurrentServerRoles"] = roles
        if name.startswith("EX-MBX"):
            values["msExchMDBAvailabilityGroupLink"] = self._dag
        dn = self.server(name)
        return [
            entry(dn, "msExchExchangeServer", values),
            entry(f"CN=Protocols,{dn}", "container", {}),
            entry(f"CN=HTTP,CN=Protocols,{dn}", "container", {}),
        ]

    def _directory_entry(self, server: str, service: str) -> str:
        host = f"{server.lower()}.contoso.com"
        values: dict[str, str | int] = {
            "msExchInternalHostName": f"https://{host}/{service}",
            "msExchInternalAuthenticationMethods": _METHODS.get(service, 1 | 16),
        }
        if server == "EX-CAS-01":
            values["msExchExternalHostName"] = f"https://mail.contoso.com/{service}"
        kind = f"msExch{_KINDS[service]}VirtualDirectory"
        return entry(self.directory(server, service), kind, values)

    def _database_entries(self) -> list[str]:
        found = []
        for name, holders in (("DB01", (1, 2)), ("DB02", (2, 1)), ("DB16", ())):
            dn = self.database(name)
            found.append(entry(dn, "msExchPrivateMDB", {"msExchMasterServerOrAvailabilityGroup": self._dag}))
            servers = {f"EX-MBX-0{number}": place for place, number in enumerate(holders, 1)} or {"EX-16": 1}
            for server, preference in servers.items():
                values: Values = {
                    "msExchHostServerLink": self.server(server),
                    "msExchActivationPreference": preference,
                }
                found.append(entry(f"CN={server},{dn}", "msExchMDBCopy", values))
        store = f"CN=InformationStore,{self.server('EX-07')}"
        owner = {"msExchOwningServer": self.server("EX-07")}
        found += [
            entry(store, "container", {}),
            entry(f"CN=First Storage Group,{store}", "container", {}),
            entry(f"CN=Mailbox Database 07,CN=First Storage Group,{store}", "msExchPrivateMDB", owner),
        ]
        return found

    @property
    def _dag(self) -> str:
        return f"CN=DAG-01,CN=Database Availability Groups,{self._group}"


def entry(dn: str, kind: str, values: Values) -> str:
    """One entry of LDIF."""
    return f"dn: {dn}\nobjectClass: {kind}\n{_lines(values)}\n"


def change(dn: str, values: Mapping[str, str | int | bytes | Sequence[str] | None]) -> str:
    """A change of one entry, as LDIF: the attributes' new values; None takes an attribute away."""
    parts = [
        f"replace: {name}\n{_lines({name: value} if value is not None else {})}-\n" for name, value in values.items()
    ]
    return f"dn: {dn}\nchangetype: modify\n{''.join(parts)}\n"


def _lines(values: Values) -> str:
    found = []
    for name, value in values.items():
        for each in [value] if isinstance(value, (str, int, bytes)) else value:
            if isinstance(each, bytes):
                found.append(f"{name}:: {base64.b64encode(each).decode()}\n")
            else:
                found.append(f"{name}: {each}\n")
    return "".join(found)
