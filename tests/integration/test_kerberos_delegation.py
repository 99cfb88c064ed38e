"""Users' tickets at mailbox servers by constrained delegation: a real domain controller, Dovecot and Apache."""

from __future__ import annotations

import base64
import http.client
import imaplib
import os
import smtplib
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import FrontDoor, Servers, missing, start
from kerberos_kit import HOST, Initiator, Realm, pop3_sign_in, smtp_sign_in
from onward_kit import DELEGATING, MAILBOX, Onward
from submission_stage import new_sink, submission_dovecot

from gatepost.lab.servers.apache import Apache
from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.servers.samba import REALM
from gatepost.lab.toml_text import Table

_GSSAPI = """
import_environment = TZ CORE_OUTOFMEM CORE_ERROR KRB5_CONFIG
auth_mechanisms = plain login gssapi
auth_gssapi_hostname = {host}
auth_krb5_keytab = {keytab}
auth_realms = {realm}
passdb {{
  driver = static
  args = nopassword=y
  mechanisms = gssapi
}}
"""
GSSAPI_MODULE = Path("/usr/lib/dovecot/modules/auth/libmech_gssapi.so")


@pytest.fixture(scope="module")
def dovecot(servers: Servers, onward: Onward) -> Iterator[Dovecot]:
    """MBX-51, which takes tickets, and submissions."""
    if not GSSAPI_MODULE.exists():
        missing(ServerMissing("Dovecot's GSSAPI", ("dovecot-gssapi",)))
    with new_sink(servers, "KRB-onward-sink") as sink:
        server = submission_dovecot(servers, "MBX-51", sink)
        configuration = server.directory / "dovecot.conf"
        keytab = server.directory / "mailbox.keytab"
        keytab.write_bytes(onward.mailbox.read_bytes())
        keytab.chmod(0o644)  # for Dovecot's own account
        more = _GSSAPI.format(host=MAILBOX, keytab=keytab, realm=REALM)
        configuration.write_text(configuration.read_text() + more)
        server.environment["KRB5_CONFIG"] = str(onward.realm.server.krb5_conf)
        with server:
            yield server


@pytest.fixture(scope="module")
def apache(servers: Servers, onward: Onward, dovecot: Dovecot) -> Iterator[Apache]:
    """The web part of MBX-51, which takes tickets only."""
    certificate = servers.authority.issue("MBX-51-web", MAILBOX, dovecot.address)
    directory = servers.scratch / "MBX-51-web"
    port = free_ports(dovecot.address, 1)[0]
    try:
        server = Apache(directory, dovecot.address, port, certificate, onward.mailbox, host=MAILBOX)
    except ServerMissing as error:
        missing(error)
    server.environment["KRB5_CONFIG"] = str(onward.realm.server.krb5_conf)
    with server:
        yield server


def _front(servers: Servers, onward: Onward, dovecot: Dovecot, apache: Apache, **kerberos: str) -> FrontDoor:
    def change(front_end: Table, organization: Table) -> None:
        front_end["kerberos"] = onward.realm.kerberos_table(onward.keytab) | {"delegation_principal": DELEGATING}
        front_end["kerberos"] |= kerberos
        mailbox = organization["servers"]["MBX-01"]
        mailbox["fqdn"] = MAILBOX
        mailbox["address"] = dovecot.address
        assert dovecot.submission is not None
        mailbox["endpoints"] = {
            "imap": {"port": dovecot.ports.imap, "tls": "starttls"},
            "pop3": {"port": dovecot.ports.pop3, "tls": "clear"},
            "submission": {"port": dovecot.submission.ports.submission, "tls": "clear", "client_address": "xclient"},
            "https": {"port": apache.port},
        }
        mailbox["sign_in"] = {"form": "kerberos", "http": "kerberos"}
        front = organization["servers"]["CAS-01"]
        front["endpoints"]["submissions"] = {"port": free_ports(front["address"], 1)[0]}

    os.environ["KRB5_CONFIG"] = str(onward.realm.server.krb5_conf)
    return start(servers, change)


@pytest.fixture(scope="module")
def door(servers: Servers, onward: Onward, dovecot: Dovecot, apache: Apache) -> Iterator[FrontDoor]:
    """A front door whose MBX-01 is that Dovecot and that Apache; bob's MBX-02 wants no tickets."""
    with _front(servers, onward, dovecot, apache) as door:
        yield door


def test_imap_by_password_goes_on_by_a_ticket(door: FrontDoor, dovecot: Dovecot) -> None:
    host, port = door.addresses["imaps"]
    with imaplib.IMAP4_SSL(host, port, ssl_context=door.client_context, timeout=20) as client:
        client.login("alice@contoso.com", "apw")
        assert client.select("INBOX")[0] == "OK"
    assert dovecot.sign_in_with(method="GSSAPI", user="alice"), dovecot.log_text()


def test_pop3_by_a_ticket_goes_on_by_another(door: FrontDoor, dovecot: Dovecot, realm: Realm) -> None:
    """What the user has shown is evidence; our own account carries it on."""
    answer = Initiator(realm, "pop").respond()
    assert pop3_sign_in(door.addresses["pop3s"], door.client_context, answer).startswith("+OK")


def test_submission_by_a_ticket(door: FrontDoor, realm: Realm) -> None:
    host, port = door.addresses["submissions"]
    with smtplib.SMTP_SSL(host, port, timeout=20, context=door.client_context) as client:
        assert smtp_sign_in(client, Initiator(realm, "smtp").respond())[0] == 235
        assert client.mail("alice@contoso.com")[0] == 250


def _visit(door: FrontDoor, *headers: str, path: str = "/owa/") -> list[tuple[int, str]]:
    """Requests on one connection, each with its Authorization: status, and whom the server took them for."""
    address, port = door.addresses["https"]
    client = http.client.HTTPSConnection(address, port, context=door.client_context, timeout=20)
    found = []
    for authorization in headers:
        client.request("GET", path, headers={"Authorization": authorization, "Host": HOST})
        answer = client.getresponse()
        answer.read()
        assert "www-authenticate" not in answer.headers or answer.status == 401
        found.append((answer.status, answer.headers.get("X-User", "")))
    client.close()
    return found


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}@contoso.com:{password}".encode()).decode()


def test_http_by_password_goes_on_by_a_ticket(door: FrontDoor, apache: Apache) -> None:
    found = _visit(door, _basic("alice", "apw"), _basic("alice", "apw"))
    assert found == [(200, f"alice@{REALM}")] * 2, (door.process.events("http.refused"), apache.requests())
