"""Bearer tokens of a real OpenID provider at a whole front end, and users handed on to a real Dovecot by our word."""

from __future__ import annotations

import base64
import http.client
import imaplib
import json
import poplib
import signal
import smtplib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from doors import ACCOUNTS, FrontDoor, Servers, dovecot_tables, missing, start
from openid_provider import CLIENT, SECRET, OpenIdProvider
from submission_stage import new_sink

from gatepost.cli.assertion_key import command as assertion_key
from gatepost.lab.clients import imap_visit, pop3_visit
from gatepost.lab.servers.dovecot import Dovecot, Submission
from gatepost.lab.servers.gatepost import run_gatepost
from gatepost.lab.servers.ports import MailPorts, SubmissionPorts
from gatepost.lab.servers.process import ServerMissing, free_ports, require_program
from gatepost.lab.toml_text import Table
from gatepost.peers.login_token import LoginSigner, make_key
from gatepost.wire.sasl import bearer_message

PATIENCE_SECONDS = 40.0
HOST = "mail.contoso.com"
SERVER = "oauth-01.contoso.com"
KEYS_SECONDS = 0.5
"""How long the front end takes the provider's keys as they were: short, so that a test need not wait."""


@pytest.fixture(scope="module")
def provider(servers: Servers, scratch: Path) -> Iterator[OpenIdProvider]:
    address = servers.address()
    certificate = servers.authority.issue("openid", "id.contoso.com", address)
    with OpenIdProvider(scratch / "openid", address, certificate, servers.authority.certificate) as provider:
        provider.wait_ready()
        yield provider


def _oauth2(folder: Path, audience: str) -> str:
    """What Dovecot needs to believe our tokens, as in `docs/oauth.md`."""
    settings = folder / "dovecot-oauth2.conf.ext"
    settings.write_text(
        "introspection_mode = local\n"
        f"local_validation_key_dict = fs:posix:prefix={folder}/keys/\n"
        "username_attribute = sub\nusername_format = %Ln\n"
        f"client_id = {audience}\nissuers = gatepost\n"
    )
    return (
        "\nauth_mechanisms = plain login oauthbearer\n"
        f"passdb {{\n  driver = oauth2\n  mechanisms = oauthbearer\n  args = {settings}\n}}\n"
    )


class Stage:
    """A front end whose MBX-01 is a Dovecot that believes our tokens."""

    def __init__(self, door: FrontDoor, dovecot: Dovecot, folder: Path) -> None:
        self.door = door
        self.dovecot = dovecot
        self.folder = folder

    @property
    def signer(self) -> LoginSigner:
        """Signs as the front end does now."""
        path = self.door.organization["servers"]["MBX-01"]["sign_in"]["assertion_key_file"]
        return LoginSigner(Path(path).read_bytes())


@pytest.fixture(scope="module")
def stage(servers: Servers, scratch: Path, provider: OpenIdProvider) -> Iterator[Stage]:
    folder = scratch / "oauth"
    folder.mkdir(mode=0o755)
    scratch.chmod(0o711)
    secret = folder / "client-secret"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    web = servers.mailbox_web("OAUTH-01")
    address = servers.address()
    certificate = servers.authority.issue("oauth-01-mail", SERVER, address)
    with new_sink(servers, "OAUTH-sink") as sink:
        relay = Submission(SubmissionPorts.free(address), sink.address)
        try:
            dovecot = Dovecot(
                scratch / "OAUTH-01",
                address,
                MailPorts.free(address),
                ACCOUNTS,
                certificate,
                name="OAUTH-01",
                extra=_oauth2(folder, SERVER),
                submission=relay,
            )
        except ServerMissing as error:
            missing(error)
        for user in ACCOUNTS:
            dovecot.deliver(
                user, f"X-Mailbox-Server: OAUTH-01\r\nSubject: {user}\r\n\r\nThis mailbox is on OAUTH-01.\r\n".encode()
            )
        done = CliRunner().invoke(assertion_key, ["make", str(folder / "one.key")])
        assert done.exit_code == 0, done.output
        done = CliRunner().invoke(assertion_key, ["export", str(folder / "one.key"), str(folder / "keys")])
        assert done.exit_code == 0, done.output

        def change(front_end: Table, organization: Table) -> None:
            front_end["token_issuers"] = [
                {
                    "issuer": provider.issuer, "audiences": ["mail"], "ca": str(servers.authority.certificate),
                    "keys_seconds": KEYS_SECONDS, "seconds": 3.0, "token_types": ["at+jwt"], "scopes": ["mail"],
                    "protocol_scopes": {"https": ["web"]},
                },
            ]  # fmt: skip
            server = organization["servers"]["MBX-01"] = dovecot_tables(dovecot, tls=False)
            server["endpoints"]["submission"] = {
                "port": relay.ports.submission, "tls": "clear", "client_address": "xclient",
            }  # fmt: skip
            server["endpoints"]["https"] = {"address": web.address, "port": web.port}
            server["sign_in"] = {
                "form": "assertion", "assertion_key_file": str(folder / "one.key"), "http": "header",
            }  # fmt: skip
            server["fqdn"] = SERVER
            front = organization["servers"]["CAS-01"]
            front["endpoints"]["submissions"] = {"port": free_ports(front["address"], 1)[0]}
            organization["virtual_directories"] = [
                {"server": "CAS-01", "service": "owa", "authentication": ["basic", "oauth"]}
            ]

        with dovecot, start(servers, change) as door:
            dovecot.wait_ready()
            yield Stage(door, dovecot, folder)


def _web(door: FrontDoor, authorization: str, path: str = "/owa/") -> tuple[int, dict[str, str]]:
    address, port = door.addresses["https"]
    client = http.client.HTTPSConnection(address, port, context=door.client_context, timeout=30)
    client.request("GET", path, headers={"Authorization": authorization, "Host": HOST})
    answer = client.getresponse()
    answer.read()
    client.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}


def _imap(door: FrontDoor, token: str, user: str = "alice@contoso.com", mechanism: str = "OAUTHBEARER") -> str:
    """`OK`, or what the refusal says, with the error's JSON before it."""
    told: list[str] = []

    def answer(challenge: bytes) -> bytes:
        if challenge:
            told.append(challenge.decode())
            return b"\x01"
        return bearer_message(mechanism, user, token)

    address, port = door.addresses["imaps"]
    client = imaplib.IMAP4_SSL(address, port, ssl_context=door.client_context, timeout=30)
    try:
        client.authenticate(mechanism, answer)
    except imaplib.IMAP4.error as error:
        return f"{''.join(told)} {error}"
    finally:
        client.shutdown()
    return "OK"


def _pop3(door: FrontDoor, token: str) -> str:
    address, port = door.addresses["pop3s"]
    client: Any = poplib.POP3_SSL(address, port, context=door.client_context, timeout=30)
    try:
        message = bearer_message("XOAUTH2", "alice", token)
        client._putcmd(f"AUTH XOAUTH2 {base64.b64encode(message).decode()}")
        line = client._getline()[0]
        if line.startswith(b"+ "):
            client._putline(b"")
            line = client._getline()[0]
        return str(line.decode())
    finally:
        client.close()


def _submission(door: FrontDoor, token: str) -> tuple[int, str]:
    address, port = door.addresses["submissions"]
    with smtplib.SMTP_SSL(address, port, context=door.client_context, timeout=30) as client:
        client.ehlo("client.contoso.com")
        assert "OAUTHBEARER" in client.esmtp_features["auth"]
        message = base64.b64encode(bearer_message("OAUTHBEARER", "alice@contoso.com", token)).decode()
        code, text = client.docmd("AUTH", f"OAUTHBEARER {message}")
        if code == 334:
            code, text = client.docmd("AQ==")
        return code, text.decode()


def _until(found: Callable[[], object], wanted: Callable[[Any], bool]) -> Any:
    """What `found` gives once it is `wanted`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        value = found()
        if wanted(value) or time.monotonic() > deadline:
            assert wanted(value), value
            return value
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def _as_it_was(provider: OpenIdProvider) -> Iterator[None]:
    provider.control(keys=["one"], sign="one", fault="")
    yield
    provider.control(keys=["one"], sign="one", fault="")


def _well(stage: Stage, provider: OpenIdProvider) -> None:
    """Until the front end has the provider's usual keys again."""
    provider.control(keys=["one"], sign="one", fault="")
    token = provider.token("alice", scope="mail web")
    _until(lambda: _imap(stage.door, token), lambda said: said == "OK")


# --- signing in by tokens


def test_a_token_signs_in_everywhere_and_the_server_believes_our_word(stage: Stage, provider: OpenIdProvider) -> None:
    """IMAP, POP3 and submission end at a Dovecot that has never seen a password of hers; HTTP at a trusted header."""
    token = provider.token("alice", scope="mail web")
    assert _imap(stage.door, token) == "OK"
    assert _imap(stage.door, token, user="alice", mechanism="XOAUTH2") == "OK"
    assert _pop3(stage.door, token).startswith("+OK")
    assert _submission(stage.door, token)[0] == 235
    status, fields = _web(stage.door, f"Bearer {token}")
    assert (status, fields["x-beserver"]) == (200, "MBX-01")
    assert stage.dovecot.sign_in_with(user="alice", method="OAUTHBEARER")
    assert token not in stage.dovecot.log_text()


def test_who_comes_with_a_password_is_handed_on_in_the_same_way(stage: Stage) -> None:
    context = stage.door.client_context
    assert imap_visit(stage.door.addresses["imaps"], context, "alice@contoso.com", "apw").server == "OAUTH-01"
    assert pop3_visit(stage.door.addresses["pop3s"], context, "alice@contoso.com", "apw").server == "OAUTH-01"
    basic = base64.b64encode(b"alice@contoso.com:apw").decode()
    assert _web(stage.door, f"Basic {basic}")[0] == 200


def test_wrong_tokens_are_told_as_such(stage: Stage, provider: OpenIdProvider) -> None:
    good = provider.token("alice", scope="mail web")
    for wrong in (good[:-8] + "AAAAAAAA", provider.token("alice", scope="mail web", audience="files"), "rubbish"):
        said = _imap(stage.door, wrong)
        assert "AUTHENTICATIONFAILED" in said
        told = json.loads(said[said.index("{") : said.index("}") + 1])
        assert told["status"] == "invalid_token"
        assert told["openid-configuration"] == f"{provider.issuer}/.well-known/openid-configuration"
        assert _pop3(stage.door, wrong).startswith("-ERR [AUTH]")
        assert _submission(stage.door, wrong)[0] == 535
        status, fields = _web(stage.door, f"Bearer {wrong}")
        assert status == 401
        assert 'error="invalid_token"' in fields["www-authenticate"] or "Basic" in fields["www-authenticate"]
    assert "AUTHENTICATIONFAILED" in _imap(stage.door, good, user="bob@contoso.com")


def test_each_protocol_has_its_scopes(stage: Stage, provider: OpenIdProvider) -> None:
    token = provider.token("alice", scope="mail")
    assert _imap(stage.door, token) == "OK"
    assert _web(stage.door, f"Bearer {token}")[0] == 403
    said = _imap(stage.door, provider.token("alice", scope="web"))
    assert '"status": "insufficient_scope", "schemes": "bearer", "scope": "mail"' in said


# --- keys that change, and a provider that is not well


def test_the_provider_changes_its_key_while_clients_go_on(stage: Stage, provider: OpenIdProvider) -> None:
    old = provider.token("alice", scope="mail web")
    assert _imap(stage.door, old) == "OK"
    provider.control(keys=["one", "two"], sign="two")
    new = provider.token("alice", scope="mail web")
    _until(lambda: _imap(stage.door, new), lambda said: said == "OK")
    other = provider.token("bob", scope="mail web")
    assert _imap(stage.door, other, user="bob") == "OK"
    assert _imap(stage.door, old) == "OK"
    provider.control(keys=["two"], sign="one")
    withdrawn = provider.token("alice", scope="mail web")
    _until(lambda: _imap(stage.door, withdrawn), lambda said: "AUTHENTICATIONFAILED" in said)
    _well(stage, provider)


@pytest.mark.parametrize("fault", ["garbage", "huge", "slow", "frozen", "killed"])
def test_a_provider_that_is_not_well_makes_no_token_wrong(stage: Stage, provider: OpenIdProvider, fault: str) -> None:
    """Its keys are known: tokens go on being judged. What is signed by a new key is for later. Then it is back."""
    assert _imap(stage.door, provider.token("alice", scope="mail web")) == "OK"
    new = provider.token("alice", scope="mail web")
    provider.control(sign=fault)  # a key of that name, which nobody has seen yet
    unknown = provider.token("alice", scope="mail web")
    provider.control(sign="one")
    if fault == "frozen":
        provider.freeze()
    elif fault == "killed":
        provider.kill()
    else:
        provider.control(fault=fault)
    try:
        assert _imap(stage.door, new) == "OK"
        assert _web(stage.door, f"Bearer {new}")[0] == 200
        if fault != "slow":
            said = _imap(stage.door, unknown)
            assert "UNAVAILABLE" in said, said
            status, fields = _web(stage.door, f"Bearer {unknown}")
            assert status == 503
            assert int(fields["retry-after"]) > 0
            assert "SYS/TEMP" in _pop3(stage.door, unknown)
            assert _submission(stage.door, unknown)[0] == 454
    finally:
        if fault == "frozen":
            provider.thaw()
        elif fault == "killed":
            provider.start()
            provider.wait_ready()
    provider.control(fault="", keys=["one", fault])
    _until(lambda: _imap(stage.door, unknown), lambda said: said == "OK")
    _well(stage, provider)


# --- handing on


def _at_dovecot(stage: Stage, user: str, token: str) -> str:
    client = imaplib.IMAP4(stage.dovecot.address, stage.dovecot.ports.imap, timeout=30)
    try:
        client.authenticate("OAUTHBEARER", lambda told: b"\x01" if told else bearer_message("OAUTHBEARER", user, token))
    except imaplib.IMAP4.error as error:
        return str(error)
    finally:
        client.shutdown()
    return "OK"


def test_what_a_server_refuses_of_our_tokens(stage: Stage) -> None:
    """Another server's, one that is over, one for another user, one of a key that it has not."""
    signer = stage.signer
    now = time.time()
    assert _at_dovecot(stage, "alice", signer.token("alice", SERVER, now)) == "OK"
    for user, token in [
        ("alice", signer.token("alice", "mbx-02.contoso.com", now)),
        ("alice", signer.token("alice", SERVER, now - 3600)),
        ("bob", signer.token("alice", SERVER, now)),
        ("alice", _stranger().token("alice", SERVER, now)),
    ]:
        assert "AUTHENTICATIONFAILED" in _at_dovecot(stage, user, token)


def _stranger() -> LoginSigner:
    return LoginSigner(make_key())


def test_the_key_is_changed_without_anybody_noticing(stage: Stage) -> None:
    """Publish the new one, sign with it, withdraw the old one: `docs/oauth.md`."""
    door, folder = stage.door, stage.folder
    old = stage.signer
    for words in (["make", str(folder / "two.key")], ["export", str(folder / "two.key"), str(folder / "keys")]):
        done = CliRunner().invoke(assertion_key, words)
        assert done.exit_code == 0, done.output
    assert f"Also there: {old.kid}" in done.output
    door.organization["servers"]["MBX-01"]["sign_in"]["assertion_key_file"] = str(folder / "two.key")
    door.write()
    run_gatepost("check", str(door.process.configuration))
    door.process.signal(signal.SIGHUP)
    (folder / "keys" / "default" / "ES256" / old.kid).unlink()
    visit = lambda: imap_visit(door.addresses["imaps"], door.client_context, "alice@contoso.com", "apw").server  # noqa: E731
    _until(visit, lambda server: server == "OAUTH-01")


# --- introspection


def test_introspection_and_revocation(servers: Servers, provider: OpenIdProvider, stage: Stage) -> None:
    """Opaque tokens, judged by the provider; a revoked one is wrong; one that nobody can judge is temporary."""

    def change(front_end: Table, organization: Table) -> None:
        front_end["token_issuers"] = [
            {
                "issuer": provider.issuer, "audiences": ["mail"], "ca": str(servers.authority.certificate),
                "method": "introspection", "client_id": CLIENT, "introspection_seconds": 0.2, "seconds": 3.0,
                "client_secret_file": str(stage.folder / "client-secret"),
            },
        ]  # fmt: skip

    with start(servers, change) as door:
        token = provider.token("alice", opaque=True)
        assert _imap(door, token) == "OK"
        assert "AUTHENTICATIONFAILED" in _imap(door, token + "x")
        assert "AUTHENTICATIONFAILED" in _imap(door, provider.token("alice", opaque=True, audience="files"))
        provider.control(fault="garbage")
        other = provider.token("alice", opaque=True)
        assert "UNAVAILABLE" in _imap(door, other)
        provider.control(fault="")
        assert _imap(door, other) == "OK"
        provider.revoke(token)
        _until(lambda: _imap(door, token), lambda said: "AUTHENTICATIONFAILED" in said)


def test_curl_signs_in_by_its_token(stage: Stage, provider: OpenIdProvider) -> None:
    """The commands of `docs/oauth.md`."""
    try:
        program = require_program("curl", ("curl",))
    except ServerMissing as error:
        missing(error)
    token = provider.token("alice", scope="mail web")
    for endpoint, scheme, more in [
        ("imaps", "imaps", ["--user", "alice@contoso.com", "--oauth2-bearer", token]),
        ("https", "https", ["-H", f"Authorization: Bearer {token}", "-o", "/dev/null", "-w", "%{http_code}"]),
    ]:
        address, port = stage.door.addresses[endpoint]
        path = "owa/" if scheme == "https" else ""
        argv = [program, "-sS", "--max-time", "30", "--cacert", str(stage.door.ca), *more]
        done = subprocess.run(
            [*argv, "--resolve", f"{HOST}:{port}:{address}", f"{scheme}://{HOST}:{port}/{path}"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert ("INBOX" if scheme == "imaps" else "200") in done.stdout
