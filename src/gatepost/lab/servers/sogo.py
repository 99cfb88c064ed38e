"""SOGo: webmail, ActiveSync and DAV on the mailboxes of a Dovecot, with nginx in front of it as it is usually run.

Behind nginx' TLS and clear port:

- `/SOGo/` the webmail, without a sign-in page of its own;
- `/Microsoft-Server-ActiveSync` (and `/SOGo/Microsoft-Server-ActiveSync`), protocol versions up to 14.1. A Ping is held
  for its heartbeat and occupies one of the `WORKERS` meanwhile;
- `/SOGo/dav/` calendars and contacts.

nginx checks Basic authentication (401 without, or with a wrong password), and SOGo believes it. Every response carries
`X-Sogo-Server` with the name. SOGo signs in to Dovecot with the user's own password, so the accounts of both must
agree; its users live in a table of PostgreSQL, its sessions in memcached.

Settings are given on the command line, where they win over `/etc/sogo/sogo.conf`, which stays as it is. Only Debian's
account `sogo` may read that file, and without it nothing starts: so this needs root.
"""

from __future__ import annotations

import imaplib
import json
import os
import shutil
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from gatepost.lab.servers.nginx import PACKAGES as NGINX_PACKAGES
from gatepost.lab.servers.nginx import Nginx
from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.postgresql import PACKAGES as POSTGRESQL_PACKAGES
from gatepost.lab.servers.postgresql import PostgreSQL
from gatepost.lab.servers.process import (
    Address,
    ServerMissing,
    ServerProcess,
    as_account,
    free_ports,
    require_program,
)

PACKAGES = ("sogo", "sogo-activesync", "memcached", *POSTGRESQL_PACKAGES, *NGINX_PACKAGES)
ACTIVESYNC_MODULE = Path("/usr/lib/GNUstep/SOGo/ActiveSync.SOGo")
RESOURCES = Path("/usr/lib/GNUstep/SOGo/WebServerResources")
ACCOUNT = "sogo"
MEMCACHED_ACCOUNT = "memcache"
NGINX_ACCOUNT = "nobody"
"""Of its workers, by its default."""
WORKERS = 6
"""Requests at once; each held Ping takes one. They are forked from one process and share its memory."""
LONGEST_PING_SECONDS = 60
"""What a heartbeat is cut to."""
IDLE_SECONDS = LONGEST_PING_SECONDS + 30
"""nginx waits so long for SOGo."""
PING_POLL_SECONDS = 5
"""Between two looks into the mailbox while a Ping is held. It sleeps five whatever it is told, and counts these."""
TERM_SECONDS = 0.5
"""From SIGTERM until SIGKILL: its workers end at once, their watchdog goes on waiting for them."""
IMAP_SECONDS = 20.0
"""For an answer of the mailbox server."""


class Sogo(ServerProcess):
    """One SOGo with its own database, cache and nginx. `port` is TLS, `clear_port` is not."""

    def __init__(
        self,
        directory: Path,
        address: str,
        accounts: Mapping[str, str],
        certificate: CertificateFiles,
        imap: Address,
        *,
        domain: str,
        name: str = "sogo",
    ) -> None:
        """`accounts` maps names without a domain to passwords; they are known as `name@domain` too.

        `imap` accepts IMAP without TLS with these names. Raises `ServerMissing`, also when not root.
        """
        program = require_program("sogod", PACKAGES)
        memcached = require_program("memcached", PACKAGES)
        if not ACTIVESYNC_MODULE.exists():
            raise ServerMissing("SOGo's ActiveSync", PACKAGES)
        if os.geteuid() != 0:
            raise ServerMissing("SOGo (for root only)", PACKAGES)
        for part in (directory, directory / "sogo"):
            part.mkdir(parents=True, exist_ok=True)
        shutil.chown(directory / "sogo", ACCOUNT, ACCOUNT)
        users = directory / "users"
        names = [(alias, password) for name, password in accounts.items() for alias in (name, f"{name}@{domain}")]
        users.touch(mode=0o600)
        users.write_text("".join(f"{alias}:{{PLAIN}}{password}\n" for alias, password in names))
        shutil.chown(users, NGINX_ACCOUNT)
        self.address = address
        self.port, self.clear_port, inner, database, cache = free_ports(address, 5)
        self.database = PostgreSQL(directory / "database", address, database, name=f"{name} database")
        keep = [memcached, "-l", address, "-p", str(cache), "-U", "0", "-m", "16"]
        self.cache = ServerProcess(f"{name} cache", as_account(MEMCACHED_ACCOUNT, keep), directory, [(address, cache)])
        self.nginx = Nginx(
            directory / "nginx",
            address,
            self.port,
            certificate,
            clear_port=self.clear_port,
            locations=_LOCATIONS.format(
                name=name, inner=f"{address}:{inner}", users=users, resources=RESOURCES, idle=IDLE_SECONDS
            ),
            name=name,
        )
        url = f"postgresql://{ACCOUNT}:trusted@{address}:{database}/{ACCOUNT}"
        settings = _settings(url, imap, domain) | {
            "WOPort": f"{address}:{inner}",
            "WOPidFile": str(directory / "sogo" / "pid"),
            "SOGoMemcachedHost": f"{address}:{cache}",
        }
        given = [word for key, value in settings.items() for word in (f"-{key}", value)]
        argv = ["/usr/bin/env", f"HOME={directory / 'sogo'}", program, *given]
        # Its workers end when it is gone, and by SIGTERM it might stay: see `TERM_SECONDS`.
        argv = as_account(ACCOUNT, argv, signal.SIGKILL)
        super().__init__(name, argv, directory, [(address, inner)])
        self.output = directory / "sogo.log"
        self.extra_logs.append(self.nginx.directory / "error.log")
        self._accounts = dict(accounts)
        self._domain = domain
        self._imap = imap

    @property
    def _others(self) -> tuple[ServerProcess, ...]:
        return (self.database, self.cache, self.nginx)

    def start(self) -> None:
        """Start its helpers, put the users into the table, start it.

        Raises `ServerNotStarted`; OSError or `imaplib.IMAP4.error` when the mailbox server refuses the users.
        """
        for other in self._others:
            if not other.running:
                other.start()
        for other in self._others:
            other.wait_ready()
        known = self.database.execute(f"SELECT 1 FROM pg_database WHERE datname = '{ACCOUNT}'")  # noqa: S608 - constant
        if not known:
            self.database.execute(f"CREATE ROLE {ACCOUNT} LOGIN; CREATE DATABASE {ACCOUNT} OWNER {ACCOUNT};")
            self.database.execute(_users_sql(self._accounts, self._domain), database=ACCOUNT, user=ACCOUNT)
            self._count_changes()
        super().start()

    def _count_changes(self) -> None:
        """Have Dovecot count each INBOX' changes, which it does once somebody has shown an interest (RFC 7162, 3.1).

        SOGo shows none, and takes a mailbox without a count for one in which nothing is new.
        """
        for name, password in self._accounts.items():
            with imaplib.IMAP4(*self._imap, timeout=IMAP_SECONDS) as mailbox:
                mailbox.login(name, password)
                mailbox.enable("CONDSTORE")
                mailbox.select("INBOX")

    def stop(self, seconds: float = TERM_SECONDS) -> None:
        """End it with its workers, then its helpers."""
        if self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGTERM)
        super().stop(seconds)
        for other in reversed(self._others):
            other.stop()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _users_sql(accounts: Mapping[str, str], domain: str) -> str:
    """The table as SOGo wants it: its column names."""
    rows = ((name, name, password, name.title(), f"{name}@{domain}") for name, password in accounts.items())
    values = ",\n".join(f"({', '.join(map(_quoted, row))})" for row in rows)
    columns = ("c_uid", "c_name", "c_password", "c_cn", "mail")
    return (
        f"CREATE TABLE users ({', '.join(f'{column} text NOT NULL' for column in columns)}, PRIMARY KEY (c_uid));\n"
        f"INSERT INTO users VALUES {values};\n"
    )


def _plist(values: Mapping[str, str | Iterable[str]]) -> str:
    """A GNUstep property list: `{ key = "value"; list = ("a", "b"); }`."""
    parts = []
    for key, value in values.items():
        text = json.dumps(value) if isinstance(value, str) else f"({', '.join(map(json.dumps, value))})"
        parts.append(f"{key} = {text};")
    return "{ " + " ".join(parts) + " }"


def _settings(url: str, imap: Address, domain: str) -> dict[str, str]:
    """sogod's settings that depend on no port of its own."""
    users: dict[str, str | tuple[str, ...]] = {
        "type": "sql",
        "id": "users",
        "viewURL": f"{url}/users",
        "canAuthenticate": "YES",
        "isAddressBook": "YES",
        "displayName": domain,
        "userPasswordAlgorithm": "none",
        "LoginFieldNames": ("c_uid", "mail"),
        "MailFieldNames": ("mail",),
    }
    tables = {
        "SOGoProfileURL": "profile",
        "OCSFolderInfoURL": "folder_info",
        "OCSSessionsFolderURL": "sessions",
        "OCSCacheFolderURL": "cache",
        "OCSStoreURL": "store",
        "OCSAclURL": "acl",
    }
    return {key: f"{url}/{ACCOUNT}_{table}" for key, table in tables.items()} | {
        "SOGoUserSources": f"({_plist(users)})",
        "SOGoIMAPServer": f"imap://{imap[0]}:{imap[1]}",
        "NGImap4ConnectionStringSeparator": "/",
        "SOGoMailDomain": domain,
        "SOGoLanguage": "English",
        "SOGoTimeZone": "UTC",
        "SOGoTrustProxyAuthentication": "YES",
        "SOGoMaximumPingInterval": str(LONGEST_PING_SECONDS),
        "SOGoMaximumSyncInterval": str(LONGEST_PING_SECONDS),
        "SOGoInternalSyncInterval": str(PING_POLL_SECONDS),
        "WOWorkersCount": str(WORKERS),
        "WONoDetach": "YES",
        "WOLogFile": "-",
    }


_LOCATIONS = """
    auth_basic SOGo;
    auth_basic_user_file {users};
    proxy_set_header x-webobjects-server-protocol HTTP/1.0;
    proxy_set_header x-webobjects-remote-host $remote_addr;
    proxy_set_header x-webobjects-server-name $host;
    proxy_set_header x-webobjects-server-port $server_port;
    proxy_set_header x-webobjects-server-url $scheme://$http_host;
    proxy_set_header x-webobjects-auth-type Basic;
    proxy_set_header x-webobjects-remote-user $remote_user;
    proxy_set_header Host $http_host;
    proxy_read_timeout {idle}s;
    client_max_body_size 100m;
    add_header X-Sogo-Server {name} always;
    types {{ text/html html; text/css css; text/javascript js; image/svg+xml svg; image/png png; font/woff2 woff2; }}
    location = / {{ return 302 /SOGo/; }}
    location /SOGo.woa/WebServerResources/ {{ auth_basic off; alias {resources}/; }}
    location /SOGo {{ proxy_pass http://{inner}; }}
    location /Microsoft-Server-ActiveSync {{ proxy_pass http://{inner}/SOGo/Microsoft-Server-ActiveSync; }}
"""
