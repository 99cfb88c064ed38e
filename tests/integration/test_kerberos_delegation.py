"""Users' tickets at mailbox servers by constrained delegation: a real domain controller, Dovecot and Apache."""

from __future__ import annotations

import base64
import http.client
import imaplib
import os
import signal
import smtplib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import FrontDoor, Servers, missing, start
from kerberos_kit import HOST, USERS, Initiator, Realm, pop3_sign_in, smtp_sign_in
from onward_kit import DELEGATING, EVIDENCE_HOST, FORBIDDEN, KERBEROS_ONLY, MAILBOX, SERVICES, Onward, patiently
from submission_stage import new_sink, submission_dovecot

from gatepost.directory.kerberos import Kerberos
from gatepost.directory.kerberos_onward import OnwardTickets
from gatepost.directory.kerberos_port import Accepted, Challenge, NoTicket
from gatepost.directory.port import SignInResult, Verdict
from gatepost.directory.settings import KerberosSettings
from gatepost.lab.servers.apache import Apache
from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.servers.samba import REALM
from gatepost.lab.toml_text import Table
from gatepost.organization.model import Protocol

_GSSAPI = """
import_environment = TZ CORE_OUTOFMEM CORE_ERROR KRB5_CONFIG
auth_mechanisms = plain login gssapi
auth_gssapi_hostname = "$ALL"
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
        more = _GSSAPI.format(keytab=keytab, realm=REALM)
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
    assert _imap_by_password(door) == "OK"
    assert dovecot.sign_in_with(method="GSSAPI", user="alice"), dovecot.log_text()


def test_pop3_by_a_ticket_goes_on_by_another(door: FrontDoor, dovecot: Dovecot, realm: Realm) -> None:
    """What the user has shown is evidence; our own account carries it on."""

    def attempt() -> str:
        answer = Initiator(realm, "pop").respond()
        return pop3_sign_in(door.addresses["pop3s"], door.client_context, answer)

    assert patiently(attempt, lambda line: line.startswith("+OK")).startswith("+OK")


def test_submission_by_a_ticket(door: FrontDoor, realm: Realm) -> None:
    host, port = door.addresses["submissions"]

    def attempt() -> list[int]:
        with smtplib.SMTP_SSL(host, port, timeout=20, context=door.client_context) as client:
            code, _ = smtp_sign_in(client, Initiator(realm, "smtp").respond())
            return [code, client.mail("alice@contoso.com")[0] if code == 235 else 0]

    assert patiently(attempt, lambda codes: codes[0] == 235) == [235, 250], told(door, "submission.refused")


def told(door: FrontDoor, event: str, words: str = "") -> str:
    """The reason of a refusal with these words; empty: none comes."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for entry in reversed(door.process.events(event)):
            if words in str(entry.get("reason")):
                return str(entry["reason"])
        time.sleep(0.02)
    return ""


def _visit(door: FrontDoor, *headers: str, path: str = "/owa/") -> list[tuple[int, str]]:
    """Requests on one connection, each with its Authorization: status, and whom the server took them for.

    Once more where one is told to come again.
    """
    return patiently(lambda: _visit_once(door, *headers, path=path), lambda all_: all(code != 503 for code, _ in all_))


def _visit_once(door: FrontDoor, *headers: str, path: str = "/owa/") -> list[tuple[int, str]]:
    address, port = door.addresses["https"]
    client = http.client.HTTPSConnection(address, port, context=door.client_context, timeout=20)
    found = []
    for authorization in headers:
        client.request("GET", path, headers={"Authorization": authorization, "Host": HOST})
        answer = client.getresponse()
        answer.read()
        found.append((answer.status, answer.headers.get("X-User", "")))
    client.close()
    return found


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}@contoso.com:{password}".encode()).decode()


def test_http_by_password_goes_on_by_a_ticket(door: FrontDoor, apache: Apache) -> None:
    found = _visit(door, _basic("alice", "apw"), _basic("alice", "apw"))
    assert found == [(200, f"alice@{REALM}")] * 2, (door.process.events("http.refused"), apache.requests())


def test_http_by_a_ticket_goes_on_by_another(door: FrontDoor, realm: Realm) -> None:

    def attempt() -> list[tuple[int, str]]:
        tokens = realm.tokens(f"HTTP@{HOST}", count=2)
        return _visit_once(door, *(f"Negotiate {base64.b64encode(token).decode()}" for token in tokens))

    found = patiently(attempt, lambda all_: all(code != 503 for code, _ in all_))
    assert found == [(200, f"alice@{REALM}")] * 2


def test_no_connection_to_a_server_is_used_for_two_users(door: FrontDoor, apache: Apache) -> None:
    """The server may take a ticket for the whole connection (RFC 4559 section 6)."""
    alice = _basic("alice", "apw")
    before = len(apache.requests())
    assert _visit(door, alice) == [(200, f"alice@{REALM}")]
    assert _visit(door, alice) == [(200, f"alice@{REALM}")]
    # Its log is written when the answers have gone.
    lines = patiently(apache.requests, lambda found: len(found) >= before + 2)
    assert [line.split()[4] for line in lines[before : before + 2]] == ["0", "0"], lines


def test_explain_says_it(door: FrontDoor) -> None:
    said = door.command("explain", "alice@contoso.com", "--protocol", "imap", status=None)
    assert f"signs in there by Kerberos, with a ticket of the user for imap/{MAILBOX}" in said


def _restart(door: FrontDoor) -> None:
    """With the changed tables: another configuration, another process."""
    before = len(door.process.events("configuration.reloaded"))
    door.write()
    door.process.signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while len(door.process.events("configuration.reloaded")) == before:
        assert time.monotonic() < deadline, door.process.log_tail()
        time.sleep(0.02)


def _imap_by_password(door: FrontDoor) -> str:
    """`OK`, once more where one is told to come again."""
    return patiently(lambda: _imap_once(door), lambda text: text == "OK")


def _imap_once(door: FrontDoor) -> str:
    host, port = door.addresses["imaps"]
    with imaplib.IMAP4_SSL(host, port, ssl_context=door.client_context, timeout=20) as client:
        try:
            client.login("alice@contoso.com", "apw")
        except imaplib.IMAP4.error as error:
            return str(error)
    return "OK"


def _refused(door: FrontDoor, words: str) -> str:
    """What the client is told when the log says these words.

    The changed file is taken once more by itself: the event of a reload may be that of the one before.
    """

    def attempt() -> tuple[str, bool]:
        text = _imap_once(door)
        return text, any(words in str(entry["reason"]) for entry in door.process.events("imap.refused"))

    found, logged = patiently(attempt, lambda both: both[1])
    assert logged, door.process.log_tail()
    return found


def test_what_the_realm_does_not_allow_is_told_to_the_log_and_no_wrong_password(
    door: FrontDoor, dovecot: Dovecot
) -> None:
    """A service that the account may not carry tickets on to, and one that nobody has."""
    sign_in = door.organization["servers"]["MBX-01"]["sign_in"]
    try:
        sign_in["kerberos_host"] = FORBIDDEN.partition("/")[2]
        _restart(door)
        assert "[UNAVAILABLE]" in _refused(door, f"configuration: {DELEGATING} may not get a ticket to {FORBIDDEN}")
        assert _visit_once(door, _basic("alice", "apw"))[0][0] == 503
        sign_in["kerberos_host"] = "nobody.contoso.com"
        _restart(door)
        assert "[UNAVAILABLE]" in _refused(door, "the realm has no service principal imap/nobody.contoso.com")
    finally:
        del sign_in["kerberos_host"]
        _restart(door)
    assert _imap_by_password(door) == "OK"


def test_evidence_alone_will_do(door: FrontDoor, onward: Onward, realm: Realm) -> None:
    """An account without protocol transition carries on the tickets that users show it; by password there is none."""
    before = door.front_end["kerberos"]
    door.front_end["kerberos"] = before | {
        "keytab": str(onward.evidence),
        "delegation_principal": KERBEROS_ONLY,
        "service_principals": [f"imap/{EVIDENCE_HOST}", f"HTTP/{EVIDENCE_HOST}"],
    }
    try:
        _restart(door)
        assert "[UNAVAILABLE]" in _refused(door, f"configuration: {KERBEROS_ONLY} may not get a ticket")

        def attempt() -> list[tuple[int, str]]:
            (token,) = realm.tokens(f"HTTP@{EVIDENCE_HOST}")
            return _visit_once(door, f"Negotiate {base64.b64encode(token).decode()}")

        found = patiently(attempt, lambda all_: all_[0][0] != 503)
        assert found == [(200, f"alice@{REALM}")], told(door, "http.refused")
    finally:
        door.front_end["kerberos"] = before
        _restart(door)
    assert _imap_by_password(door) == "OK"


def test_a_servers_new_key_counts_without_a_restart(
    door: FrontDoor, onward: Onward, dovecot: Dovecot, apache: Apache
) -> None:
    """Its keytab has the new key only: the ticket in memory is refused once, and never taken for a wrong password."""
    assert _imap_by_password(door) == "OK"
    new = onward.realm.folder / f"rolled-{time.monotonic_ns()}.keytab"
    onward.realm.server.set_password("svc-mbx", f"Rolled-{time.monotonic_ns()}", new, SERVICES)
    for keytab in (dovecot.directory / "mailbox.keytab", apache.keytab):
        keytab.write_bytes(new.read_bytes())
    first = _imap_once(door)
    assert first == "OK" or "[UNAVAILABLE]" in first
    assert _imap_by_password(door) == "OK"
    assert _visit(door, _basic("alice", "apw")) == [(200, f"alice@{REALM}")]


async def test_a_front_ends_new_key_counts_without_a_restart(onward: Onward) -> None:
    """Both keys in the keytab: tickets with the old number and the new are good. Then the new one alone."""
    realm, keytab = onward.realm, onward.peer("cas-43")
    names = ("cas-43", "HTTP/cas-43.contoso.com")
    settings = KerberosSettings(str(keytab), (names[1],), ((REALM, "contoso.com"),))
    kerberos = Kerberos(settings, waiting_limit=8, per_address=8)

    def cache(name: str) -> Path:
        found = realm.folder / f"cc-{name}"
        realm.server.kinit("alice", USERS["alice"], found)
        return found

    async def judge(of: Path) -> Accepted | Challenge | SignInResult:
        (token,) = realm.tokens("HTTP@cas-43.contoso.com", cache=of)
        return await kerberos.begin(Protocol.HTTPS, "127.0.0.1").step(token)

    old = cache("old-key")
    assert isinstance(await judge(old), Accepted)
    realm.server.set_password("cas-43", "Rolled-pw1", keytab, names)
    assert isinstance(await judge(old), Accepted)
    assert isinstance(await judge(cache("new-key")), Accepted)
    only = keytab.with_suffix(".new")
    realm.server.set_password("cas-43", "Rolled-pw2", only, names)
    only.replace(keytab)
    assert isinstance(await judge(cache("newest-key")), Accepted)
    outcome = await judge(old)
    kerberos.close()
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.WRONG_CREDENTIALS
    assert "kvno" in outcome.reason or "keytab" in outcome.reason


async def test_a_realm_that_hangs_holds_nobody_up(onward: Onward, tmp_path: Path) -> None:
    """It takes connections and says nothing: whoever has tickets goes on, others are told to come again."""
    realm = onward.realm
    settings = KerberosSettings(str(onward.keytab), (), ((REALM, "contoso.com"),), delegation_principal=DELEGATING)
    tickets = OnwardTickets(settings)
    try:
        service = f"imap/{MAILBOX}"
        await _had(tickets, "alice@contoso.com", service)
        os.killpg(realm.server.pid, signal.SIGSTOP)
        try:
            assert (await tickets.dialogue("alice@contoso.com", service)).respond(b"")
            with pytest.raises(NoTicket, match="no ticket within"):
                await tickets.dialogue("bob@contoso.com", service)
            assert (await tickets.dialogue("alice@contoso.com", service)).respond(b"")
        finally:
            os.killpg(realm.server.pid, signal.SIGCONT)
        await _had(tickets, "bob@contoso.com", service)
    finally:
        tickets.close()


async def _had(tickets: OnwardTickets, user: str, service: str) -> None:
    """Wait until this ticket is to be had."""
    deadline = time.monotonic() + 60
    while True:
        try:
            assert (await tickets.dialogue(user, service)).respond(b"")
            return
        except NoTicket:
            assert time.monotonic() < deadline


async def test_faults_of_ours_are_told_as_such(onward: Onward, tmp_path: Path) -> None:
    realms = ((REALM, "contoso.com"),)
    service = f"imap/{MAILBOX}"
    for settings, user, words in (
        (KerberosSettings(str(tmp_path / "none"), (), realms, delegation_principal=DELEGATING), "alice@contoso.com",
         "no ticket to"),
        (KerberosSettings(str(onward.keytab), (), realms), "alice@contoso.com", "no delegation_principal"),
        (KerberosSettings(str(onward.keytab), (), realms, delegation_principal=DELEGATING), "a@elsewhere.com",
         "no realm stands for elsewhere.com"),
        (KerberosSettings(str(onward.keytab), (), realms, delegation_principal=DELEGATING), "ghost@contoso.com",
         "does not know an account"),
    ):  # fmt: skip
        tickets = OnwardTickets(settings)
        with pytest.raises(NoTicket, match=words):
            await tickets.dialogue(user, service)
        tickets.close()
