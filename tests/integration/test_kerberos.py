"""Signing in by tickets of a real domain controller: HTTP Negotiate, IMAP, POP3, submission, and what fails."""

from __future__ import annotations

import base64
import http.client
import imaplib
import os
import signal
import smtplib
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doors import FrontDoor, Servers, missing, start
from kerberos_kit import HOST, USERS, Initiator, Realm, imap_sign_in, pop3_sign_in, require_gssapi, smtp_sign_in
from submission_stage import new_sink, submission_dovecot
from transport_stage import TransportStage, mail

from conftest import StartFrontDoor
from gatepost.directory.kerberos import Kerberos
from gatepost.directory.kerberos_port import Accepted, Challenge
from gatepost.directory.port import SignInResult, Verdict
from gatepost.directory.settings import KerberosSettings
from gatepost.lab.servers.process import ServerMissing, free_ports, require_program
from gatepost.lab.servers.samba import REALM
from gatepost.lab.toml_text import Table
from gatepost.organization.model import Protocol

PEER = "127.0.0.1"


@pytest.fixture(scope="module")
def door(servers: Servers, realm: Realm) -> Iterator[FrontDoor]:
    """A front door that takes tickets of the realm; alice's mailbox is on MBX-01, bob's on MBX-02."""
    servers.dovecot("MBX-01")  # whose address the web part then has
    web = servers.mailbox_web("MBX-01")
    with new_sink(servers, "KRB-sink") as sink, submission_dovecot(servers, "KRB-01", sink) as submission:
        assert submission.submission is not None
        port = submission.submission.ports.submission

        def change(front_end: Table, organization: Table) -> None:
            front_end["kerberos"] = realm.kerberos_table()
            front = organization["servers"]["CAS-01"]
            front["endpoints"]["submissions"] = {"port": free_ports(front["address"], 1)[0]}
            mailbox = organization["servers"]["MBX-01"]
            mailbox["endpoints"]["https"] = {"port": web.port}
            mailbox["endpoints"]["submission"] = {
                "address": submission.address, "port": port, "tls": "clear", "client_address": "xclient",
            }  # fmt: skip
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
    argv = [
        program,
        "-sS",
        "-D-",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--cacert",
        str(door.ca),
        "--max-time",
        "20",
    ]
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
        found.append(
            (answer.status, answer.headers.get_all("WWW-Authenticate") or [], answer.headers.get("x-beserver", ""))
        )
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
    status, text = imap_sign_in(door.addresses["imaps"], door.client_context, answer)
    assert status == "OK", f"{text} {door.process.events('imap.refused')[-1:]}"


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


@pytest.mark.parametrize("initial", [True, False])
def test_submission_by_a_ticket(door: FrontDoor, realm: Realm, initial: bool) -> None:
    """Also without an initial response; then the server asks first."""
    host, port = door.addresses["submissions"]
    with smtplib.SMTP_SSL(host, port, timeout=20, context=door.client_context) as client:
        answer = Initiator(realm, "smtp").respond()
        assert smtp_sign_in(client, answer, initial=initial)[0] == 235
        assert client.mail("alice@contoso.com")[0] == 250  # by the user's own server
    with smtplib.SMTP_SSL(host, port, timeout=20, context=door.client_context) as client:
        assert smtp_sign_in(client, Initiator(realm, "imap").respond())[0] == 535
        assert client.docmd("AUTH", "GSSAPI")[0] == 334
        assert client.docmd("*")[0] == 501


def test_curl_reads_mail_by_its_ticket(door: FrontDoor, realm: Realm) -> None:
    program = require_program("curl", ("curl",))
    address, port = door.addresses["imaps"]
    argv = [program, "-sS", "--cacert", str(door.ca), "--resolve", f"{HOST}:{port}:{address}", "--max-time", "20"]
    argv += ["-u", "alice@contoso.com:", "--login-options", "AUTH=GSSAPI", f"imaps://{HOST}:{port}/"]
    environment = {**realm.environment, "KRB5CCNAME": f"FILE:{realm.cache('alice')}"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=40)
    assert "INBOX" in done.stdout, done.stderr


def test_a_hubs_users_sign_in_by_tickets(servers: Servers, realm: Realm) -> None:
    """By a receive connector with the word `kerberos`; another one does not offer it."""

    def change(tables: Table) -> None:
        tables["receive_connectors"]["Client HUB-01"]["authentication"].append("kerberos")

    settings = {"kerberos": realm.kerberos_table()}
    with TransportStage(servers, {"HUB-01": "usa"}, {"MBX-01": "usa"}, change=change, settings=settings) as stage:
        stage.start()
        context = ssl.create_default_context(cafile=str(servers.authority.certificate))
        context.check_hostname = False
        with stage.client("HUB-01", "submission") as client:
            client.starttls(context=context)
            assert smtp_sign_in(client, Initiator(realm, "smtp").respond(b"bob"))[0] == 535
            assert smtp_sign_in(client, Initiator(realm, "smtp").respond(b"CONTOSO\\alice"))[0] == 235
            client.sendmail("alice@contoso.com", ["alice@contoso.com"], mail("by ticket", "alice@contoso.com"))
        assert stage.arrived("MBX-01", "alice", "by ticket")
        with stage.client("HUB-01", "smtp") as client:
            client.starttls(context=context)
            client.ehlo()
            assert client.esmtp_features["auth"].split() == ["PLAIN", "LOGIN"]


def test_tickets_are_taken_after_a_reload_and_no_more_after_another(
    start_front_door: StartFrontDoor, servers: Servers, realm: Realm
) -> None:
    door = start_front_door()
    context, address = door.client_context, door.addresses["imaps"]
    assert not _offered(door)
    door.front_end["kerberos"] = realm.kerberos_table()
    _reload(door)
    _wait_until(lambda: _offered(door))
    assert imap_sign_in(address, context, Initiator(realm, "imap").respond())[0] == "OK"
    del door.front_end["kerberos"]
    _reload(door)
    _wait_until(lambda: not _offered(door))


def _offered(door: FrontDoor) -> bool:
    with imaplib.IMAP4_SSL(*door.addresses["imaps"], ssl_context=door.client_context, timeout=20) as client:
        return "AUTH=GSSAPI" in client.capabilities


def _wait_until(condition: Callable[[], bool]) -> None:
    """The changed file is taken once more by itself: the event of a reload may be that of the one before."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _reload(door: FrontDoor) -> None:
    before = len(door.process.events("configuration.reloaded"))
    door.write()
    door.process.signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while len(door.process.events("configuration.reloaded")) == before:
        assert time.monotonic() < deadline, door.process.log_tail()
        time.sleep(0.02)


def test_a_keytab_that_disappears_is_told_as_a_temporary_fault(door: FrontDoor, realm: Realm) -> None:
    """In each protocol's words, and it serves again when it is back."""
    away = realm.keytab.with_suffix(".away")
    tokens = realm.tokens(f"HTTP@{HOST}", count=2)
    realm.keytab.rename(away)
    try:
        assert _ask(door, _negotiate(tokens[0]))[0][0] == 503
        answer = Initiator(realm, "imap").respond()
        assert "[UNAVAILABLE]" in imap_sign_in(door.addresses["imaps"], door.client_context, answer)[1]
        answer = Initiator(realm, "pop").respond()
        assert "[SYS/TEMP]" in pop3_sign_in(door.addresses["pop3s"], door.client_context, answer)
    finally:
        away.rename(realm.keytab)
    assert _ask(door, _negotiate(tokens[1]))[0][0] == 200


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


_JUDGE = """\
import asyncio, sys
from gatepost.directory.kerberos import Kerberos
from gatepost.directory.settings import KerberosSettings
from gatepost.organization.model import Protocol
keytab, realm = sys.argv[1:]
async def judge():
    settings = KerberosSettings(keytab, ("HTTP/mail.contoso.com",), ((realm, "contoso.com"),))
    kerberos = Kerberos(settings, waiting_limit=8, per_address=8)
    outcome = await kerberos.begin(Protocol.HTTPS, "127.0.0.1").step(sys.stdin.buffer.read())
    print(getattr(outcome, "reason", "taken"), getattr(outcome, "verdict", ""))
    kerberos.close()
asyncio.run(judge())
"""


def _judge_elsewhere(realm: Realm, folder: Path, token: bytes, clock: str = "", rcache: str = "") -> str:
    """The outcome in a process with another clock, or another place for the replay cache."""
    try:
        before = [require_program("faketime", ("faketime",)), "-f", clock] if clock else []
    except ServerMissing as error:
        missing(error)
    argv = [*before, sys.executable, "-c", _JUDGE, str(realm.keytab), REALM]
    environment = {**realm.environment, "KRB5RCACHEDIR": rcache or str(folder)}
    done = subprocess.run(argv, input=token, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_a_clock_that_differs(realm: Realm, tmp_path: Path) -> None:
    """Either way; a few minutes are allowed."""
    tokens = realm.tokens(f"HTTP@{HOST}", count=3)
    assert "Clock skew too great" in _judge_elsewhere(realm, tmp_path, tokens[0], "+20m")
    assert "Ticket not yet valid" in _judge_elsewhere(realm, tmp_path, tokens[1], "-20m")
    assert _judge_elsewhere(realm, tmp_path, tokens[2], "+3m").startswith("taken")


def test_an_expired_ticket(realm: Realm, tmp_path: Path) -> None:
    cache = tmp_path / "cc-short"
    realm.server.kinit("alice", USERS["alice"], cache, "-l", "10m")
    first, second = realm.tokens(f"HTTP@{HOST}", cache=cache, count=2)
    assert _judge_elsewhere(realm, tmp_path, first).startswith("taken")
    assert "Ticket expired" in _judge_elsewhere(realm, tmp_path, second, "+20m")


def test_a_replay_cache_that_cannot_be_written_is_a_fault_of_ours(realm: Realm, tmp_path: Path) -> None:
    (token,) = realm.tokens(f"HTTP@{HOST}")
    assert "UNAVAILABLE" in _judge_elsewhere(realm, tmp_path, token, rcache=str(tmp_path / "none"))


_HOLD = """\
import fcntl, os, struct, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.fcntl(file, 38, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLKW, as the library has it
print("held", flush=True)
sys.stdin.read()
"""


def test_a_replay_cache_that_another_holds_is_a_fault_of_ours(realm: Realm, tmp_path: Path) -> None:
    """All programs of an account share the file: one that waits for its disk would hold every sign-in up."""
    (token,) = realm.tokens(f"HTTP@{HOST}")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    hold = [sys.executable, "-c", _HOLD, str(tmp_path / f"krb5_{os.geteuid()}.rcache2")]
    judge = [sys.executable, "-u", "-c", _JUDGE, str(realm.keytab), REALM]
    environment = {**realm.environment, "KRB5RCACHEDIR": str(tmp_path)}
    with (
        subprocess.Popen(judge, env=environment, **pipes) as judging,
        subprocess.Popen(hold, **pipes) as holder,
    ):
        assert holder.stdout.readline() == b"held\n"
        judging.stdin.write(token)
        judging.stdin.close()
        outcome = judging.stdout.readline().decode()
        holder.stdin.close()
    assert "took too long" in outcome
    assert "UNAVAILABLE" in outcome


def test_tickets_are_judged_without_the_domain_controller(door: FrontDoor, realm: Realm) -> None:
    """Whoever has a ticket goes on while it is down; nothing of it looks like a wrong password."""
    (token,) = realm.tokens(f"HTTP@{HOST}")
    realm.server.stop()
    try:
        assert _ask(door, _negotiate(token))[0][0] == 200
    finally:
        realm.server.start()
        realm.server.wait_ready()
