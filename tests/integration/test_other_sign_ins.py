"""SCRAM, app passwords and clients' certificates as real clients use them, before real mailbox servers."""

from __future__ import annotations

import imaplib
import json
import signal
import smtplib
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from doors import FrontDoor, Servers, missing, start
from submission_stage import new_sink, submission_dovecot
from users_pki import Issued, UsersAuthority, upn

from gatepost.lab.servers.process import ServerMissing, free_ports, require_program
from gatepost.lab.toml_text import Table

HOST = "mail.contoso.com"
TLS_1_2 = "NORMAL:-VERS-TLS1.3"
OK = "a1 OK"


@dataclass
class Stage:
    """The door, and the authority of users' certificates."""

    door: FrontDoor
    users: UsersAuthority
    folder: Path

    def write_crl(self, *revoked: Issued) -> None:
        """Another CRL, as who fetches it would put it there."""
        new = self.folder / "users.crl.new"
        new.write_bytes(self.users.crl(*revoked))
        new.rename(self.folder / "users.crl")

    def imap(self) -> imaplib.IMAP4_SSL:
        """A client, greeted."""
        address, port = self.door.addresses["imaps"]
        return imaplib.IMAP4_SSL(address, port, ssl_context=self.door.client_context, timeout=20)

    def app_password(self, user: str, name: str, *options: str) -> str:
        """A new one."""
        return self.door.command("user", "app-password", "add", user, "--name", name, *options).strip()


@pytest.fixture(scope="module")
def stage(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Passwords are stored as SCRAM's keys; /owa takes certificates, /ews does not."""
    folder, users = tmp_path_factory.mktemp("users-pki"), UsersAuthority()
    (folder / "users-ca.pem").write_bytes(users.pem)
    (folder / "users.crl").write_bytes(users.crl())
    servers.dovecot("MBX-01")  # whose address the web part then has
    web = servers.mailbox_web("MBX-01")
    with new_sink(servers, "OSI-sink") as sink, submission_dovecot(servers, "OSI-01", sink) as submission:
        assert submission.submission is not None
        port = submission.submission.ports.submission

        def change(front_end: Table, organization: Table) -> None:
            front_end["limits"]["drain_seconds"] = 1.0
            front_end["scram"] = {"iterations": 4096}
            front_end["client_certificates"] = {
                "ca": str(folder / "users-ca.pem"), "crl": str(folder / "users.crl"), "optional": ["imap", "https"],
            }  # fmt: skip
            front = organization["servers"]["CAS-01"]
            front["endpoints"]["submission"] = {"port": free_ports(front["address"], 1)[0]}
            mailbox = organization["servers"]["MBX-01"]
            mailbox["endpoints"]["https"] = {"port": web.port}
            mailbox["endpoints"]["submission"] = {
                "address": submission.address, "port": port, "tls": "clear", "client_address": "xclient",
            }  # fmt: skip
            mailbox["sign_in"]["http"] = "header"
            organization["virtual_directories"] = [
                _directory("owa", "basic", "certificate"),
                _directory("ews", "basic"),
            ]

        with start(servers, change) as door:
            yield Stage(door, users, folder)


def _directory(service: str, *authentication: str) -> Table:
    return {
        "server": "CAS-01", "service": service, "internal_url": f"https://{HOST}/{service}",
        "authentication": ["integrated", *authentication],
    }  # fmt: skip


def _run(program: str, *arguments: str, said: str = "") -> tuple[int, str]:
    """Exit status and everything written."""
    try:
        found = require_program(program, (program,))
    except ServerMissing as error:
        missing(error)
    done = subprocess.run(
        [found, *arguments],
        input=said,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def _gsasl(stage: Stage, protocol: str, mechanism: str, password: str = "apw", *options: str) -> tuple[int, str]:
    address, port = stage.door.addresses[protocol]
    kind = "--smtp" if protocol == "submission" else "--imap"
    return _run(
        "gsasl", kind, f"--connect={address}:{port}", f"--hostname={HOST}", f"--mechanism={mechanism}",
        "--authentication-id=alice", "--authorization-id=", f"--password={password}",
        f"--x509-ca-file={stage.door.ca}", "--verbose", *options,
    )  # fmt: skip


# --- SCRAM


@pytest.mark.parametrize("protocol", ["imap", "submission"])
def test_gnu_sasl_signs_in(stage: Stage, protocol: str) -> None:
    status, said = _gsasl(stage, protocol, "SCRAM-SHA-256", "apw", "--no-cb")
    assert status == 0, said
    assert "apw" not in said.replace("--password=apw", "")


def test_gnu_sasl_binds_the_channel(stage: Stage) -> None:
    status, said = _gsasl(stage, "imap", "SCRAM-SHA-256-PLUS", "apw", f"--priority={TLS_1_2}")
    assert status == 0, said


def test_gnu_sasl_with_a_wrong_password(stage: Stage) -> None:
    status, said = _gsasl(stage, "imap", "SCRAM-SHA-256", "wrong", "--no-cb")
    assert status != 0
    assert "AUTHENTICATIONFAILED" in said


def test_plain_goes_on_against_the_same_keys(stage: Stage) -> None:
    client = stage.imap()
    assert client.login("alice", "apw")[0] == "OK"
    client.logout()
    shown = json.loads(stage.door.command("user", "show", "alice", "--json"))
    assert shown["password"] == "set, for SCRAM too"


# --- app passwords


def test_an_app_password_by_imap_submission_and_https(stage: Stage) -> None:
    secret = stage.app_password("alice", "phone")
    client = stage.imap()
    assert client.login("alice@contoso.com", secret)[0] == "OK"
    assert client.select("INBOX")[0] == "OK"
    client.logout()
    address, port = stage.door.addresses["submission"]
    with smtplib.SMTP(address, port, timeout=20) as submission:
        submission.starttls(context=_without_names(stage))
        submission.login("alice", secret)
    assert _curl(stage, "/ews/", "-u", f"alice:{secret}") == "200"
    assert _curl(stage, "/ews/", "-u", "alice:abcd-efgh-ijkl-mnop-qrst-uvwx-yz23") == "401"


def test_its_last_use_outlives_a_worker_that_ends(stage: Stage) -> None:
    """And is there within a minute, which this does not wait for."""
    secret = stage.app_password("bob", "reader", "--protocols", "imap")
    client = stage.imap()
    assert client.login("bob", secret)[0] == "OK"
    client.logout()
    assert _curl(stage, "/ews/", "-u", f"bob:{secret}") == "403"
    stage.door.process.signal(signal.SIGTERM)
    assert stage.door.process.wait(60) == 0
    (found,) = json.loads(stage.door.command("user", "app-password", "list", "bob", "--json"))
    assert (found["name"], found["used_protocol"]) == ("reader", "imap")
    assert found["used_address"].startswith("127.")
    stage.door.process.start()
    stage.door.process.wait_ready()


def test_a_removed_one_ends_its_sessions_at_once(stage: Stage) -> None:
    secret = stage.app_password("alice", "tablet")
    client, other = stage.imap(), stage.imap()
    assert client.login("alice", secret)[0] == "OK"
    assert other.login("alice", "apw")[0] == "OK"
    stage.door.command("user", "app-password", "remove", "alice", "--name", "tablet")
    _until(lambda: _is_over(client), "the session to end")
    _close(client)
    assert other.noop()[0] == "OK"
    other.logout()
    late = stage.imap()
    with pytest.raises(imaplib.IMAP4.error, match="AUTHENTICATIONFAILED"):
        late.login("alice", secret)
    _close(late)


# --- certificates


def test_curl_signs_in_by_its_certificate(stage: Stage) -> None:
    """HTTPS and IMAP; where the directory does not allow it, it is no identity."""
    shown = stage.users.issue(upn("alice@contoso.com")).write(stage.folder)
    assert _curl(stage, "/owa/", "--cert", shown) == "200"
    assert _curl(stage, "/ews/", "--cert", shown) == "401"
    status, said = _curl_imap(stage, shown)
    assert status == 0, said
    assert "INBOX" in said


def test_a_certificate_that_is_revoked_while_the_front_end_runs(stage: Stage) -> None:
    issued = stage.users.issue(upn("alice@contoso.com"))
    shown = issued.write(stage.folder)
    assert _curl(stage, "/owa/", "--cert", shown) == "200"
    stage.write_crl(issued)
    try:
        assert _curl(stage, "/owa/", "--cert", shown) == "401"
        status, said = _curl_imap(stage, shown)
        assert status == 67, said  # "the remote server denied curl to login"
        assert _curl(stage, "/owa/", "--cert", shown, "-u", "alice:apw") == "200", "the password still counts"
    finally:
        stage.write_crl()


def test_certificates_of_nobody_and_of_another_authority(stage: Stage) -> None:
    nobody = stage.users.issue(upn("nobody@contoso.com")).write(stage.folder, "nobody.pem")
    assert _curl(stage, "/owa/", "--cert", nobody) == "401"
    other = UsersAuthority("Other users").issue(upn("alice@contoso.com")).write(stage.folder, "other.pem")
    assert _curl(stage, "/owa/", "--cert", other) == "000"
    stage.door.process.wait_for_event("tls.handshake_refused")


def test_check_has_nothing_to_say(stage: Stage) -> None:
    said = stage.door.command("check", status=None)
    assert "client_certificates" not in said
    assert "scram" not in said


def _curl(stage: Stage, path: str, *options: str) -> str:
    """The status code; `000`: there was no answer."""
    address, port = stage.door.addresses["https"]
    _, said = _run(
        "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", str(stage.door.ca), "--max-time", "30",
        "--resolve", f"{HOST}:{port}:{address}", *options, f"https://{HOST}:{port}{path}",
    )  # fmt: skip
    return said[-3:]


def _curl_imap(stage: Stage, shown: str) -> tuple[int, str]:
    address, port = stage.door.addresses["imaps"]
    return _run(
        "curl", "-sS", "--cacert", str(stage.door.ca), "--max-time", "30", "--resolve", f"{HOST}:{port}:{address}",
        "--cert", shown, "--login-options", "AUTH=EXTERNAL", "-u", "alice@contoso.com:", f"imaps://{HOST}:{port}/",
    )  # fmt: skip


def _without_names(stage: Stage) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(stage.door.ca))
    context.check_hostname = False
    return context


def _close(client: imaplib.IMAP4_SSL) -> None:
    """Whatever has become of the connection."""
    with suppress(OSError, imaplib.IMAP4.error):
        client.shutdown()


def _is_over(client: imaplib.IMAP4_SSL) -> bool:
    try:
        client.noop()
    except (imaplib.IMAP4.abort, OSError):
        return True
    return False


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.05)
