"""Programs that people use, through the front door: curl, mbsync, fetchmail, openssl s_client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from doors import REQUIRED, FrontDoor

PACKAGES = {"mbsync": "isync"}
SECONDS = 30


def program(name: str) -> str:
    """Its path; the test is skipped when it is not installed, and fails where everything must be there."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is missing: apt-get install {PACKAGES.get(name, name)}"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def run(*arguments: str | Path, status: int = 0, send: bytes = b"") -> str:
    """Run a program; its output."""
    done = subprocess.run([*map(str, arguments)], input=send, capture_output=True, timeout=SECONDS)
    output = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == status, output
    return output


def run_where_the_name_is_known(address: str, directory: Path, command: str) -> str:
    """Run a shell command in a mount namespace of its own, where `mail.contoso.com` is `address`."""
    hosts = directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{address} mail.contoso.com\n")
    script = f"mount --bind {hosts} /etc/hosts && exec {command}"
    return run("unshare", "-m", "--propagation", "private", "sh", "-c", script)


def curl(door: FrontDoor, *arguments: str, status: int = 0) -> str:
    """Curl that trusts the lab's authority and knows the front door by its name."""
    resolve = [a for host, port in door.addresses.values() for a in ("--resolve", f"mail.contoso.com:{port}:{host}")]
    return run(program("curl"), "-sS", "--max-time", "20", "--cacert", door.ca, *resolve, *arguments, status=status)


@pytest.mark.parametrize("endpoint", ["imap", "imaps", "pop3", "pop3s"])
@pytest.mark.parametrize(("user", "password", "server"), [("alice", "apw", "MBX-01"), ("bob", "bpw", "MBX-02")])
@pytest.mark.parametrize("how", [[], ["--login-options", "AUTH=PLAIN", "--sasl-ir"], ["--login-options", "AUTH=LOGIN"]])
def test_curl_fetches_a_message(
    front_door: FrontDoor, endpoint: str, user: str, password: str, server: str, how: list[str]
) -> None:
    """By every protocol, TLS mode and mechanism."""
    port = front_door.addresses[endpoint][1]
    path = "INBOX;MAILINDEX=1" if endpoint.startswith("imap") else "1"
    url = f"{endpoint}://mail.contoso.com:{port}/{path}"
    output = curl(front_door, "--ssl-reqd", "-u", f"{user}:{password}", *how, url)
    assert f"This mailbox is on {server}." in output


def test_curl_is_told_of_a_wrong_password(front_door: FrontDoor) -> None:
    """Its status 67 means "login denied"."""
    port = front_door.addresses["imaps"][1]
    curl(front_door, "-u", "alice:wrong", f"imaps://mail.contoso.com:{port}/INBOX", status=67)


@pytest.mark.parametrize("tls", ["STARTTLS", "IMAPS"])
def test_mbsync_copies_a_mailbox(front_door: FrontDoor, tmp_path: Path, tls: str) -> None:
    """All folders arrive."""
    port = front_door.addresses["imap" if tls == "STARTTLS" else "imaps"][1]
    tunnel = front_door.addresses["imap"][0]
    mail = tmp_path / "mail"
    mail.mkdir()
    configuration = tmp_path / "mbsyncrc"
    configuration.write_text(
        f"IMAPAccount x\nHost mail.contoso.com\nPort {port}\nUser bob\nPass bpw\nSSLType {tls}\n"
        f"CertificateFile {front_door.ca}\n\n"
        f"IMAPStore r\nAccount x\n\nMaildirStore l\nPath {mail}/\nInbox {mail}/INBOX\nSubFolders Verbatim\n\n"
        f"Channel c\nFar :r:\nNear :l:\nPatterns INBOX\nCreate Near\nSyncState *\n"
    )
    run_where_the_name_is_known(tunnel, tmp_path, f"{program('mbsync')} -c {configuration} -a")
    messages = [p for p in (mail / "INBOX").rglob("*") if p.is_file() and p.parent.name in {"new", "cur"}]
    assert any(b"bob on MBX-02" in message.read_bytes() for message in messages)


def test_fetchmail_takes_a_maildrop(front_door: FrontDoor, tmp_path: Path) -> None:
    """By POP3 with STLS, handed to a program."""
    host, port = front_door.addresses["pop3"]
    configuration = tmp_path / "fetchmailrc"
    drop = tmp_path / "drop"
    configuration.write_text(
        "set no bouncemail\n"
        f'poll mail.contoso.com service {port} protocol POP3 user "alice" password "apw" sslproto "TLS1.2+" '
        f'sslcertfile "{front_door.ca}" mda "/bin/sh -c \'cat >> {drop}\'" fetchall keep\n'
    )
    configuration.chmod(0o600)
    files = f"-i {tmp_path / 'ids'} --pidfile {tmp_path / 'pid'}"
    run_where_the_name_is_known(host, tmp_path, f"{program('fetchmail')} -f {configuration} --nosyslog {files}")
    assert b"alice on MBX-01" in drop.read_bytes()


def test_openssl_speaks_by_hand(front_door: FrontDoor) -> None:
    """STARTTLS by s_client, the certificate verified, ALPN agreed."""
    host, port = front_door.addresses["imap"]
    lines = b"a LOGIN alice apw\r\nb LOGOUT\r\n"
    output = run(
        program("openssl"), "s_client", "-connect", f"{host}:{port}", "-starttls", "imap", "-CAfile", front_door.ca,
        "-verify_return_error", "-alpn", "imap", "-quiet", "-ign_eof", send=lines,
    )  # fmt: skip
    assert "a OK" in output
    assert "b OK" in output
    host, port = front_door.addresses["imaps"]
    output = run(
        program("openssl"), "s_client", "-connect", f"{host}:{port}", "-CAfile", front_door.ca, "-alpn", "imap"
    )
    assert "ALPN protocol: imap" in output
    assert "Verify return code: 0" in output
