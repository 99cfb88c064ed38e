"""Signing in by Kerberos tickets of a real domain controller: HTTP Negotiate, IMAP, POP3, submission, and what fails."""

from __future__ import annotations

import base64
import http.client
import smtplib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import FrontDoor, Servers, missing, start
from kerberos_kit import HOST, Initiator, Realm, imap_sign_in, pop3_sign_in, require_gssapi

from gatepost.directory.kerberos import Kerberos
from gatepost.directory.kerberos_port import Accepted, Challenge
from gatepost.directory.port import SignInResult, Verdict
from gatepost.directory.settings import KerberosSettings
from gatepost.lab.servers.process import ServerMissing, require_program
from gatepost.lab.servers.samba import REALM
from gatepost.lab.toml_text import Table
from gatepost.organization.model import Protocol

PEER = "127.0.0.1"


@pytest.fixture(scope="module")
def door(servers: Servers, realm: Realm) -> Iterator[FrontDoor]:
    """A front door that takes tickets of the realm; alice's mailbox is on MBX-01, bob's on MBX-02."""
    servers.dovecot("MBX-01")  # whose address the web part then has
    web = servers.mailbox_web("MBX-01")

    def change(front_end: Table, organization: Table) -> None:
        front_end["kerberos"] = realm.kerberos_table()
        mailbox = organization["servers"]["MBX-01"]
        mailbox["endpoints"]["https"] = {"port": web.port}
        mailbox["sign_in"]["http"] = "header"

    with start(servers, change) as door:
        yield door


def _curl(door: FrontDoor, realm: Realm, user: str, *options: str, path: str = "/owa/") -> tuple[str, str]:
    """Status code of the last response, and all heads."""
    try:
        program = require_program("curl", ("curl",))
    except ServerMissing as error:
        missing(error)
    address, port = door.addresses["https"]
    environment = {**realm.environment, "KRB5CCNAME": f"FILE:{realm.cache(user)}"}
    argv = [program, "-sS", "-D-", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", str(door.ca), "--max-time", "20"]
    argv += ["--resolve", f"{HOST}:{port}:{address}", *options, f"https://{HOST}:{port}{path}"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=40)
    assert done.returncode == 0, done.stderr
    return done.stdout[-3:], done.stdout


def _ask(door: FrontDoor, *authorizations: str, path: str = "/owa/") -> list[tuple[int, list[str], str]]:
    """Requests on one connection: status, `WWW-Authenticate` fields and the mailbox server of each answer."""
    address, port = door.addresses["https"]
    client = http.client.HTTPSConnection(address, port, context=door.client_context, timeout=20)
    found = []
    for authorization in authorizations:
        client.request("GET", path, headers={"Authorization": authorization, "Host": HOST})
        answer = client.getresponse()
        answer.read()
        found.append((answer.status, answer.headers.get_all("WWW-Authenticate") or [], answer.headers.get("x-beserver", "")))
    client.close()
    return found


def _negotiate(token: bytes) -> str:
    return f"Negotiate {base64.b64encode(token).decode()}"


# --- HTTP


def test_curl_signs_in_by_its_ticket(door: FrontDoor, realm: Realm) -> None:
    code, heads = _curl(door, realm, "alice", "--negotiate", "-u", ":")
    assert code == "200", heads
    assert "x-beserver: MBX-01" in heads.lower().replace("mbx-01", "MBX-01")


def test_the_answer_proves_who_we_are(door: FrontDoor, realm: Realm) -> None:
    """Mutual authentication: the client completes its context with our token (RFC 4559 section 4.2)."""
    client = Initiator(realm, "HTTP")
    ((status, fields, server),) = _ask(door, _negotiate(client.respond()(b"")))
    assert (status, server) == (200, "MBX-01")
    (field,) = [field for field in fields if field.startswith("Negotiate ")]
    client.context.step(base64.b64decode(field.removeprefix("Negotiate ")))
    assert client.context.complete


def test_a_ticket_in_spnego_is_understood(door: FrontDoor, realm: Realm) -> None:
    (token,) = realm.tokens(f"HTTP@{HOST}", mechanism="spnego")
    assert _ask(door, _negotiate(token))[0][0] == 200


def test_a_third_token_may_follow_on_the_connection(door: FrontDoor, realm: Realm) -> None:
    """What DCE style needs: 401 with our token, then the client's last (RFC 4559 section 5)."""
    flag = require_gssapi().RequirementFlag
    client = Initiator(realm, "HTTP", flags=[flag.mutual_authentication, flag.dce_style])
    address, port = door.addresses["https"]
    connection = http.client.HTTPSConnection(address, port, context=door.client_context, timeout=20)
    connection.request("GET", "/owa/", headers={"Authorization": _negotiate(client.context.step())})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 401
    token = client.context.step(base64.b64decode(answer.headers["WWW-Authenticate"].removeprefix("Negotiate ")))
    connection.request("GET", "/owa/", headers={"Authorization": _negotiate(token)})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200


def test_each_request_shows_its_own_ticket(door: FrontDoor, realm: Realm) -> None:
    """Nothing is inherited from a connection, which may be a proxy's."""
    first, second = realm.tokens(f"HTTP@{HOST}", count=2)
    bob = realm.tokens(f"HTTP@{HOST}", "bob")[0]
    address, port = door.addresses["https"]
    connection = http.client.HTTPSConnection(address, port, context=door.client_context, timeout=20)
    statuses = []
    for headers in ({"Authorization": _negotiate(first)}, {}, {"Authorization": _negotiate(second)}):
        connection.request("GET", "/owa/", headers=headers)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    connection.close()
    assert statuses == [200, 401, 200]
    assert _ask(door, _negotiate(bob))[0][0] == 404  # his server has no web part


def test_who_shows_nothing_is_asked_for_a_ticket_or_a_password(door: FrontDoor) -> None:
    ((status, fields, _),) = _ask(door, "Bearer x")
    assert status == 401
    assert fields == ["Negotiate", 'Basic realm="contoso", charset="UTF-8"']


def test_basic_goes_on_beside_it(door: FrontDoor) -> None:
    basic = base64.b64encode(b"alice@contoso.com:apw").decode()
    assert _ask(door, f"Basic {basic}")[0][0] == 200


@pytest.mark.parametrize("scheme", ["NTLM", "Negotiate"])
def test_ntlm_is_refused_clearly(door: FrontDoor, scheme: str) -> None:
    token = b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2" + b"\0" * 20
    ((status, fields, _),) = _ask(door, f"{scheme} {base64.b64encode(token).decode()}")
    assert (status, fields[0]) == (401, "Negotiate")
    assert _told(door, "NTLM is not accepted")


# --- what is amiss with a ticket


def _told(door: FrontDoor, words: str, event: str = "http.refused") -> bool:
    """Whether the log has a refusal for this reason, or gets one soon."""
    deadline = time.monotonic() + 20
    while not any(words in str(entry["reason"]) for entry in door.process.events(event)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_replayed_ticket_is_refused(door: FrontDoor, realm: Realm) -> None:
    """Somebody has read the request of another and sends it again, on another connection."""
    (token,) = realm.tokens(f"HTTP@{HOST}")
    assert _ask(door, _negotiate(token))[0][0] == 200
    ((status, fields, _),) = _ask(door, _negotiate(token))
    assert (status, fields[0]) == (401, "Negotiate")
    assert _told(door, "replay")


def test_a_ticket_for_another_host_is_refused(door: FrontDoor, realm: Realm) -> None:
    (token,) = realm.tokens("HTTP@other.contoso.com")
    assert _ask(door, _negotiate(token))[0][0] == 401
    assert _told(door, "HTTP/other.contoso.com")


def test_a_ticket_for_another_protocol_is_refused(door: FrontDoor, realm: Realm) -> None:
    (token,) = realm.tokens(f"imap@{HOST}")
    assert _ask(door, _negotiate(token))[0][0] == 401
    assert _told(door, f"another service: imap/{HOST}")


def test_garbage_and_a_changed_ticket_are_refused(door: FrontDoor, realm: Realm) -> None:
    (token,) = realm.tokens(f"HTTP@{HOST}")
    stolen = token[:-30] + bytes(30)
    for bad in (b"x" * 300, stolen, token[:200]):
        assert _ask(door, _negotiate(bad))[0][0] == 401
    assert _ask(door, "Negotiate ???")[0][0] == 401
    assert _ask(door, _negotiate(token))[0][0] == 200


def test_a_principal_without_a_mailbox_is_refused(door: FrontDoor, realm: Realm) -> None:
    (token,) = realm.tokens(f"HTTP@{HOST}", "nobody")
    assert _ask(door, _negotiate(token))[0][0] == 401
    assert _told(door, "unknown user")


# --- IMAP, POP3, submission


def test_imap_by_a_ticket(door: FrontDoor, realm: Realm) -> None:
    status, text = imap_sign_in(door.addresses["imaps"], door.client_context, Initiator(realm, "imap").respond())
    assert status == "OK", text
    assert "MBX-01" in text


@pytest.mark.parametrize("name", [b"alice", b"alice@contoso.com", b"CONTOSO\\alice", b"alice@AD.CONTOSO.TEST"])
def test_names_of_the_own_user_beside_the_ticket(door: FrontDoor, realm: Realm, name: bytes) -> None:
    answer = Initiator(realm, "imap").respond(name)
    assert imap_sign_in(door.addresses["imaps"], door.client_context, answer)[0] == "OK"


@pytest.mark.parametrize("name", [b"bob@contoso.com", b"CONTOSO\\bob", b"ELSEWHERE\\alice", b"\xff"])
def test_nobody_acts_as_another(door: FrontDoor, realm: Realm, name: bytes) -> None:
    answer = Initiator(realm, "imap").respond(name)
    status, text = imap_sign_in(door.addresses["imaps"], door.client_context, answer)
    assert status == "NO"
    assert "AUTHENTICATIONFAILED" in text


def test_a_security_layer_is_refused(door: FrontDoor, realm: Realm) -> None:
    """None is offered: TLS protects the session."""
    answer = Initiator(realm, "imap").respond(layer=b"\4\0\x10\0")
    assert imap_sign_in(door.addresses["imaps"], door.client_context, answer)[0] == "NO"


def test_pop3_by_a_ticket(door: FrontDoor, realm: Realm) -> None:
    answer = Initiator(realm, "pop").respond()
    assert pop3_sign_in(door.addresses["pop3s"], door.client_context, answer).startswith("+OK")
    other = Initiator(realm, "imap").respond()
    assert pop3_sign_in(door.addresses["pop3s"], door.client_context, other).startswith("-ERR [AUTH]")


# --- our own faults, in the acceptor itself


def _settings(keytab: Path) -> KerberosSettings:
    return KerberosSettings(str(keytab), (f"HTTP/{HOST}", f"imap/{HOST}"), ((REALM, "contoso.com"),))


async def _judge(
    settings: KerberosSettings, token: bytes, protocol: Protocol = Protocol.HTTPS
) -> Accepted | Challenge | SignInResult:
    kerberos = Kerberos(settings, waiting_limit=8, per_address=8)
    try:
        return await kerberos.begin(protocol, PEER).step(token)
    finally:
        kerberos.close()


async def test_a_missing_keytab_is_a_fault_of_ours_until_it_comes(realm: Realm, tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    kerberos = Kerberos(_settings(keytab), waiting_limit=8, per_address=8)
    (token,) = realm.tokens(f"HTTP@{HOST}")
    outcome = await kerberos.begin(Protocol.HTTPS, PEER).step(token)
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.UNAVAILABLE
    assert "keytab" in outcome.reason
    keytab.write_bytes(realm.keytab.read_bytes())
    assert isinstance(await kerberos.begin(Protocol.HTTPS, PEER).step(token), Accepted)
    keytab.unlink()
    (token,) = realm.tokens(f"HTTP@{HOST}")
    outcome = await kerberos.begin(Protocol.HTTPS, PEER).step(token)
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.UNAVAILABLE
    kerberos.close()


async def test_keys_of_another_account_open_no_ticket(realm: Realm) -> None:
    outcome = await _judge(_settings(realm.folder / "other.keytab"), realm.tokens(f"HTTP@{HOST}")[0])
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.WRONG_CREDENTIALS


async def test_a_realm_that_is_not_ours(realm: Realm) -> None:
    settings = KerberosSettings(str(realm.keytab), (f"HTTP/{HOST}",), (("OTHER.TEST", "contoso.com"),))
    outcome = await _judge(settings, realm.tokens(f"HTTP@{HOST}")[0])
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.WRONG_CREDENTIALS
    assert "AD.CONTOSO.TEST is not one of ours" in outcome.reason
