"""The servers of `sites.py` and the organization's tables that say what they are to each other."""

from __future__ import annotations

import base64

from activesync import PATH as PHONES
from bodies import BodyServer
from doors import ACCOUNTS, Servers, dovecot_tables

from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.servers.mailbox_web import MailboxWeb
from gatepost.lab.servers.ports import MailPorts
from gatepost.lab.servers.process import Address, free_ports
from gatepost.lab.toml_text import Table

DOMAIN = "contoso.com"
USA, EUROPE, ASIA = "usa", "europe", "asia"
FRONT_ENDS = {"CAS-01": USA, "CAS-02": EUROPE, "CAS-03": ASIA, "CAS-04": ASIA}
ARRAY = ("CAS-03", "CAS-04")
EXTERNAL = {"CAS-01": "www.usa.contoso.com", "CAS-02": "www.europe.contoso.com"}
FRONT_ENDPOINTS = ("imaps", "pop3s", "https", "peer")
ACTIVESYNC = PHONES.strip("/")
SERVICES = ("owa", ACTIVESYNC, "EWS", "AS")
OLD_WEB = {"EX10-USA": (USA, "2010"), "EX10-EUR": (EUROPE, "2010"), "EX10-ASIA": (ASIA, "2010")} | {
    "EX07-ASIA": (ASIA, "2007"),
    "EX03-EUR": (EUROPE, "2003"),
}
MODERN = {"MBX-21": USA, "MBX-22": EUROPE, "MBX-23": ASIA}
SOGO, BIG = "EX10-SOGO", "BIG-ASIA"
HOMES = dict(zip(("user1", "user2", "user3", "user4", "user5"), OLD_WEB, strict=True))
"""Users of old mailbox servers; each one's password is `NAME-pw`."""
USERS = [
    *(LabUser(f"{name}@{DOMAIN}", f"{name}-pw", home_server=server) for name, server in HOMES.items()),
    LabUser(f"dave@{DOMAIN}", "dave-pw", home_server=BIG),
    LabUser(f"alice@{DOMAIN}", ACCOUNTS["alice"], home_server=SOGO),
    LabUser(f"bob@{DOMAIN}", ACCOUNTS["bob"], database="DB21"),
    LabUser(f"carol@{DOMAIN}", ACCOUNTS["carol"], database="DB23"),
]


class Figure:
    """The mailbox servers, running, and where the front ends will be."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.webs: dict[str, MailboxWeb] = {}
        self.addresses = {name: servers.address() for name in FRONT_ENDS}
        self.ports = {
            name: dict(zip(FRONT_ENDPOINTS, free_ports(address, len(FRONT_ENDPOINTS)), strict=True))
            for name, address in self.addresses.items()
        }
        self.old_mail = self._old_mail()
        self.big = BodyServer(servers.address(), servers.authority)

    def place(self, front_end: str, endpoint: str = "https") -> Address:
        """Where a front end listens."""
        return self.addresses[front_end], self.ports[front_end][endpoint]

    def external_url(self, front_end: str, service: str) -> str:
        """What clients outside are told of an Internet-facing front end's service."""
        return f"https://{EXTERNAL[front_end]}:{self.ports[front_end]['https']}/{service}"

    def organization(self) -> Table:
        """The tables of the organization's file; starts the servers that do not run yet."""
        servers: Table = {
            name: {
                "site": site,
                "roles": ["client-access"],
                "address": self.addresses[name],
                "fqdn": f"{name.lower()}.{DOMAIN}",
                "endpoints": {endpoint: {"port": port} for endpoint, port in self.ports[name].items()},
            }
            for name, site in FRONT_ENDS.items()
        }
        tables: Table = {
            "organization": {"name": "contoso", "accepted_domains": [DOMAIN]},
            "sites": {USA: {"internet_facing": True}, EUROPE: {"internet_facing": True}, ASIA: {"through_peer": True}},
            "site_links": {"all": {"sites": [USA, EUROPE, ASIA], "cost": 10}},
            "servers": servers,
            "databases": {
                "DB21": {"copies": [{"server": "MBX-21"}, {"server": "MBX-22"}]},
                "DB23": {"copies": [{"server": "MBX-23"}]},
            },
            "arrays": {ASIA: {"site": ASIA, "fqdn": "asia.contoso.com", "members": list(ARRAY)}},
            "virtual_directories": [
                self._front_directory(name, service) for name in FRONT_ENDS for service in (*SERVICES, "SOGo")
            ],
        }
        self._add_old(tables)
        self._add_modern(tables)
        return tables

    def _front_directory(self, name: str, service: str) -> Table:
        table: Table = {
            "server": name,
            "service": service,
            "path": f"/{service}",
            "internal_url": f"https://{name.lower()}.{DOMAIN}:{self.ports[name]['https']}/{service}",
            "authentication": ["integrated", "basic", *(["forms"] if service == "owa" else [])],
        }
        if name in EXTERNAL:
            table["external_url"] = self.external_url(name, service)
        return table

    def _add_old(self, tables: Table) -> None:
        mail = {"imap": {"port": self.old_mail.ports.imap, "tls": "clear", "address": self.old_mail.address}}
        mail["pop3"] = {"port": self.old_mail.ports.pop3, "tls": "clear", "address": self.old_mail.address}
        for name, (site, version) in OLD_WEB.items():
            web = self.webs[name] = self.servers.mailbox_web(name, version, site)
            services = ("exchange", "public", ACTIVESYNC) if version == "2003" else SERVICES
            self._add(tables, name, site, version, (web.address, web.port), {s: f"/{s}" for s in services}, mail)
        self._add(tables, BIG, ASIA, "2010", self.big.place, {s: f"/{s}" for s in SERVICES}, {})
        place = self._sogo()
        inner = {ACTIVESYNC: f"/SOGo/{ACTIVESYNC}", "SOGo": "/SOGo"}
        self._add(tables, SOGO, USA, "2010", place, inner, {})

    def _add_modern(self, tables: Table) -> None:
        for name, site in MODERN.items():
            dovecot = self.servers.dovecot(name)
            web = self.webs[name] = self.servers.mailbox_web(name, "modern", site)
            table = dovecot_tables(dovecot, tls=False)
            self._add(tables, name, site, "modern", (web.address, web.port), {"owa": "/owa"}, table["endpoints"])
            tables["servers"][name]["sign_in"] |= table["sign_in"]

    @staticmethod
    def _add(
        tables: Table, name: str, site: str, version: str, web: Address, services: dict[str, str], mail: Table
    ) -> None:
        """A mailbox server. `services` maps a virtual directory's word to the path at the server."""
        fqdn = f"{name.lower()}.{DOMAIN}"
        tables["servers"][name] = {
            "site": site, "version": version, "roles": ["mailbox"], "address": web[0], "fqdn": fqdn,
            "endpoints": {"https": {"port": web[1]}} | mail, "sign_in": {"http": "header"},
        }  # fmt: skip
        tables["virtual_directories"] += [
            {"server": name, "service": service, "internal_url": f"https://{fqdn}:{web[1]}{path}"}
            for service, path in services.items()
        ]

    def _sogo(self) -> Address:
        """SOGo believes Basic only: an nginx that believes the header puts the password of the lab's accounts to it."""
        sogo = self.servers.sogo("MBX-04")
        keys = "".join(
            f'if ($http_x_remote_user ~ "^{name}(@|$)") {{ set $key '
            f'"{base64.b64encode(f"{name}:{password}".encode()).decode()}"; }}\n'
            for name, password in ACCOUNTS.items()
        )
        locations = (
            f'set $key "";\n{keys}'
            'location ~ . { if ($key = "") { return 401; }\n'
            'proxy_set_header Authorization "Basic $key"; proxy_set_header Host $http_host; proxy_http_version 1.1;\n'
            f"proxy_read_timeout 90s; proxy_pass http://{sogo.address}:{sogo.clear_port}; }}\n"
        )
        web = self.servers.nginx(SOGO, locations)
        return web.address, web.port

    def _old_mail(self) -> Dovecot:
        """The mail of all old servers: each user has an account of their own."""
        address = self.servers.address()
        names = [f"{server.lower()}.{DOMAIN}" for server in OLD_WEB]
        certificate = self.servers.authority.issue("old-mail", *names, address)
        accounts = {user: f"{user}-pw" for user in HOMES}
        directory = self.servers.scratch / "old"
        made = Dovecot(directory, address, MailPorts.free(address), accounts, certificate, name="old")
        for user, server in HOMES.items():
            made.deliver(user, f"Subject: {user} on {server}\r\nX-Mailbox-Server: {server}\r\n\r\nHello.\r\n".encode())
        made.start()
        made.wait_ready()
        return made
