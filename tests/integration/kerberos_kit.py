"""A real domain controller, tickets of its users, and clients that show them: for tests of Kerberos sign-in."""

from __future__ import annotations

import base64
import imaplib
import os
import poplib
import smtplib
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from doors import Servers, missing

from gatepost.lab.servers.process import Address, ServerMissing, require_program
from gatepost.lab.servers.samba import REALM, Samba

HOST = "mail.contoso.com"
"""What clients call the front door: it is in its certificate."""
PRINCIPALS = tuple(f"{service}/{HOST}" for service in ("HTTP", "imap", "pop", "smtp"))
OTHER = "HTTP/other.contoso.com"
"""A service of the realm whose key the front door has not."""
USERS = {"alice": "Alice-pw1", "bob": "Bob-pw1", "nobody": "Nobody-pw1"}
"""`nobody` has an account in the realm and no mailbox."""
_CLIENT = """\
import base64, sys
import gssapi
service, mechanism, cache, count = sys.argv[1:]
oid = gssapi.MechType.kerberos if mechanism == "krb5" else gssapi.OID.from_int_seq("1.3.6.1.5.5.2")
credentials = gssapi.Credentials(usage="initiate", store={"ccache": "FILE:" + cache})
name = gssapi.Name(service, gssapi.NameType.hostbased_service)
for _ in range(int(count)):
    context = gssapi.SecurityContext(name=name, creds=credentials, usage="initiate", mech=oid)
    print(base64.b64encode(context.step()).decode())
"""


@dataclass
class Realm:
    """The controller, a folder of its clients, and the keytab of the front door."""

    server: Samba
    folder: Path
    keytab: Path

    def cache(self, user: str) -> Path:
        """The user's ticket cache."""
        return self.folder / f"cc-{user}"

    @property
    def environment(self) -> dict[str, str]:
        """Of Kerberos clients."""
        return {**os.environ, "KRB5_CONFIG": str(self.server.krb5_conf)}

    def tokens(
        self, service: str, user: str = "alice", mechanism: str = "krb5", count: int = 1, cache: Path | None = None
    ) -> list[bytes]:
        """First tokens for `service@host`, made in a process of their own; `cache` may be another than the user's."""
        arguments = [service, mechanism, str(cache or self.cache(user)), str(count)]
        argv = [sys.executable, "-c", _CLIENT, *arguments]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return [base64.b64decode(line) for line in done.stdout.split()]

    def kerberos_table(self, keytab: Path | None = None) -> dict[str, Any]:
        """`[front_end.kerberos]`."""
        return {
            "keytab": str(keytab or self.keytab),
            "service_principals": list(PRINCIPALS),
            "realms": {REALM: "contoso.com"},
            "netbios_domains": {"CONTOSO": "contoso.com"},
        }


def require_gssapi() -> Any:
    """python-gssapi; its absence is dealt with as a missing server's."""
    try:
        import gssapi
    except ImportError:
        missing(ServerMissing("python-gssapi", ("libkrb5-dev", "gcc")))
    return gssapi


@pytest.fixture(scope="session")
def realm(servers: Servers, scratch: Path) -> Iterator[Realm]:
    """A domain controller with users, the front door's service principals, and tickets of the users."""
    require_gssapi()
    folder = scratch / "realm"
    folder.mkdir()
    try:
        require_program("kinit", ("krb5-user",))
        server = Samba(scratch / "DC-01", servers.address())
    except ServerMissing as error:
        missing(error)
    # The library's replay cache is one file for all programs of an account. Where other test runs write to it too, a
    # ticket may wait for their disk, and longer than a front door waits (`STEP_SECONDS`).
    caches = folder / "replay-caches"
    caches.mkdir()
    caches.chmod(0o1777)
    os.environ["KRB5RCACHEDIR"] = str(caches)
    keytab = folder / "mail.keytab"
    accounts = {name: (password, ()) for name, password in USERS.items()}
    services = {"svc-mail": ("Svc-pw1", PRINCIPALS), "svc-other": ("Svc-pw1", (OTHER,))}
    server.add({**accounts, **services}, {keytab: PRINCIPALS, folder / "other.keytab": (OTHER,)})
    with server:
        found = Realm(server, folder, keytab)
        for user, password in USERS.items():
            server.kinit(user, password, found.cache(user))
        yield found


class Initiator:
    """The client's side of an exchange in this process, for SASL GSSAPI or HTTP."""

    def __init__(self, realm: Realm, service: str, user: str = "alice", flags: Any = None) -> None:
        gssapi = require_gssapi()
        os.environ["KRB5_CONFIG"] = str(realm.server.krb5_conf)
        credentials = gssapi.Credentials(usage="initiate", store={"ccache": f"FILE:{realm.cache(user)}"})
        name = gssapi.Name(f"{service}@{HOST}", gssapi.NameType.hostbased_service)
        more = {} if flags is None else {"flags": flags}
        self.context = gssapi.SecurityContext(
            name=name, creds=credentials, usage="initiate", mech=gssapi.MechType.kerberos, **more
        )
        self._begun = False

    def respond(self, authorization: bytes = b"", layer: bytes = b"\1\0\0\0") -> Callable[[bytes], bytes]:
        """What answers a server's challenges (RFC 4752 section 3.1)."""

        def answer(challenge: bytes) -> bytes:
            if not self.context.complete:
                token = self.context.step(challenge if self._begun else None) or b""
                self._begun = True
                return token
            offered = self.context.unwrap(challenge).message
            assert offered == b"\1\0\0\0", offered
            return self.context.wrap(layer + authorization, False).message

        return answer


def imap_sign_in(address: Address, context: ssl.SSLContext, answer: Callable[[bytes], bytes]) -> tuple[str, str]:
    """Status and text of AUTHENTICATE, then the subject of the mailbox's first message."""
    client = imaplib.IMAP4_SSL(address[0], address[1], ssl_context=context, timeout=20)
    try:
        assert "AUTH=GSSAPI" in client.capabilities
        try:
            client.authenticate("GSSAPI", answer)
        except imaplib.IMAP4.error as error:
            return "NO", str(error)
        client.select("INBOX", readonly=True)
        return "OK", str(client.fetch("1", "(BODY[HEADER.FIELDS (SUBJECT)])"))
    finally:
        client.shutdown()


def pop3_sign_in(address: Address, context: ssl.SSLContext, answer: Callable[[bytes], bytes]) -> str:
    """The last line: `+OK …` or `-ERR …`."""
    client = poplib.POP3_SSL(address[0], address[1], context=context, timeout=20)
    try:
        assert "GSSAPI" in client.capa()["SASL"]
        client._putcmd("AUTH GSSAPI")  # type: ignore[attr-defined]
        while (line := client._getline()[0]).startswith(b"+ "):  # type: ignore[attr-defined]
            client._putline(base64.b64encode(answer(base64.b64decode(line[2:]))))  # type: ignore[attr-defined]
        return str(line.decode())
    finally:
        client.close()


def smtp_sign_in(client: smtplib.SMTP, answer: Callable[[bytes], bytes], *, initial: bool = True) -> tuple[int, str]:
    """Code and text at the end of AUTH."""
    client.ehlo("client.contoso.com")
    assert "GSSAPI" in client.esmtp_features["auth"]
    first = " " + base64.b64encode(answer(b"")).decode() if initial else ""
    code, text = client.docmd("AUTH", f"GSSAPI{first}")
    while code == 334:
        code, text = client.docmd(base64.b64encode(answer(base64.b64decode(text))).decode())
    return code, text.decode()
