"""Submission through the front door with real clients and servers: each user's mail goes by their own server (C10)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import Servers
from submission_stage import OUTSIDE, SubmissionStage, message, submission_stage
from test_mail_clients import program, run

from gatepost.access.leaving import MOVED

PASSWORDS = {"alice": "apw", "bob": "bpw", "carol": "cpw"}


@pytest.fixture(scope="module")
def stage(servers: Servers) -> Iterator[SubmissionStage]:
    """For tests that leave everything as it was."""
    with submission_stage(servers) as made:
        yield made


@pytest.fixture
def own_stage(servers: Servers) -> Iterator[SubmissionStage]:
    """For tests that move or stop things."""
    with submission_stage(servers) as made:
        yield made


def submit(client: smtplib.SMTP, user: str, subject: str) -> None:
    """Sign in and send one message."""
    client.login(f"{user}@contoso.com", PASSWORDS[user])
    assert client.sendmail(f"{user}@contoso.com", ["somebody@fabrikam.com"], message(subject)) == {}


@pytest.mark.parametrize("endpoint", ["submission", "submissions"])
@pytest.mark.parametrize("user", ["alice", "bob", "carol"])
def test_mail_goes_by_the_users_own_server(stage: SubmissionStage, user: str, endpoint: str) -> None:
    """Dovecot in clear, Dovecot by TLS behind PROXY, Postfix by STARTTLS: one front end, two doors."""
    subject = f"{user} {endpoint}"
    with stage.client(endpoint) as client:
        submit(client, user, subject)
        client.rset()
        submit_again = client.sendmail(f"{user}@contoso.com", ["b@fabrikam.com"], message(subject + " again"))
    assert submit_again == {}
    stage.arrived(subject)
    stage.arrived(subject + " again")
    line = stage.door.process.wait_for_event("submission.session", user=f"{user}@contoso.com", outcome="signed in")
    assert line["server"] == {"alice": "MBX-01", "bob": "MBX-02", "carol": "MBX-03"}[user]
    assert (line["client"], line["tls"]) == (OUTSIDE, True)


def test_servers_learn_the_clients_address(stage: SubmissionStage) -> None:
    """By XCLIENT, PROXY v2 and XCLIENT with LOGIN; their own logs say so."""
    for user in PASSWORDS:
        with stage.client() as client:
            submit(client, user, f"address {user}")
        stage.arrived(f"address {user}")
    for name, user in (("MBX-01", "alice"), ("MBX-02", "bob")):
        found = stage.dovecots[name].sign_in_with(user=user, rip=OUTSIDE)
        assert found["real_rip"] == "127.0.0.1"
    assert stage.postfix.clients()[-1] == OUTSIDE
    assert "sasl_method=XCLIENT, sasl_username=carol" in stage.postfix.log_text()


def test_the_name_at_ehlo_is_the_clients_own(stage: SubmissionStage) -> None:
    """The server's `Received` line names it, as if the client had come straight."""
    with stage.client() as client:
        client.ehlo("laptop.fabrikam.com")
        submit(client, "carol", "name")
    assert b"from laptop.fabrikam.com (" in stage.arrived("name")


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
def test_swaks(stage: SubmissionStage, mechanism: str) -> None:
    """With STARTTLS, and pipelining as the server was said to have it."""
    host, port = stage.door.addresses["submission"]
    subject = f"swaks {mechanism}"
    arguments = ["--server", host, "--port", port, "--tls", "--auth", mechanism, "--auth-user", "alice@contoso.com"]
    arguments += ["--auth-password", "apw", "--from", "alice@contoso.com", "--to", "a@fabrikam.com", "--pipeline"]
    arguments += ["--header", f"Subject: {subject}", "--local-interface", OUTSIDE]
    output = run(program("swaks"), *map(str, arguments))
    assert "235 2.7.0" in output
    stage.arrived(subject)


@pytest.mark.parametrize("tls", ["on", "off"])
def test_msmtp(stage: SubmissionStage, tls: str) -> None:
    """By implicit TLS and by STARTTLS."""
    host, port = stage.door.addresses["submission" if tls == "on" else "submissions"]
    arguments = [f"--host={host}", f"--port={port}", "--tls=on", f"--tls-starttls={tls}", "--auth=plain"]
    arguments += [f"--tls-trust-file={stage.door.ca}", "--user=bob@contoso.com", "--passwordeval=echo bpw"]
    arguments += [f"--source-ip={OUTSIDE}", "--from=bob@contoso.com", "a@fabrikam.com"]
    run(program("msmtp"), *arguments, send=message(f"msmtp {tls}"))
    stage.arrived(f"msmtp {tls}")


def test_curl(stage: SubmissionStage, tmp_path: Path) -> None:
    """Which gives its initial response with AUTH."""
    letter = tmp_path / "letter"
    letter.write_bytes(message("curl"))
    port = stage.door.addresses["submissions"][1]
    host = stage.door.addresses["submissions"][0]
    url = f"smtps://mail.contoso.com:{port}"
    resolve = ["--resolve", f"mail.contoso.com:{port}:{host}", "--interface", OUTSIDE]
    words = ["--mail-from", "alice@contoso.com", "--mail-rcpt", "a@fabrikam.com", "-u", "alice:apw", "-T", letter]
    run(program("curl"), "-sS", "--max-time", "20", "--cacert", stage.door.ca, *resolve, *words, url)
    stage.arrived("curl")


def test_a_wrong_password_is_535_and_nothing_else_is(stage: SubmissionStage) -> None:
    """The same for an unknown user, after the same dialogue (field case 71)."""
    answers = []
    for user in ("alice", "nobody"):
        with stage.client() as client, pytest.raises(smtplib.SMTPAuthenticationError) as refused:
            client.login(user, "wrong")
        answers.append((refused.value.smtp_code, refused.value.smtp_error))
    assert answers[0] == answers[1]
    assert answers[0] == (535, b"5.7.8 Authentication credentials invalid")


def test_who_may_not_submit_is_told_so(stage: SubmissionStage) -> None:
    """525, not 535; `explain` says where a user would go."""
    stage.door.command("user", "set", "carol", "--protocol", "imap")
    try:
        with stage.client() as client, pytest.raises(smtplib.SMTPAuthenticationError) as refused:
            client.login("carol", "cpw")
        assert refused.value.smtp_code == 525
    finally:
        stage.door.command("user", "set", "carol", "--protocol", "imap", "--protocol", "submission")
    with stage.client() as client:
        submit(client, "carol", "allowed again")
    assert "served by MBX-03" in stage.door.command("explain", "carol", "--protocol", "submission")


def test_nothing_before_the_sign_in(stage: SubmissionStage) -> None:
    """Mail is 530, in clear AUTH is not offered and not taken."""
    host, port = stage.door.addresses["submission"]
    with smtplib.SMTP(host, port, timeout=20) as client:
        client.ehlo()
        assert not client.has_extn("auth")
        assert client.docmd("MAIL FROM:<alice@contoso.com>")[0] == 530
        assert client.docmd("AUTH PLAIN AGFsaWNlAGFwdw==")[0] == 530
    with stage.client() as client:
        client.ehlo()
        assert client.has_extn("auth")
        assert client.docmd("MAIL FROM:<alice@contoso.com>") == (530, b"5.7.0 Authentication required")


def test_a_signed_in_client_cannot_be_somebody_else_by_xclient(stage: SubmissionStage) -> None:
    """The servers believe the front end's address, and would believe whoever speaks through it."""
    for user, password in PASSWORDS.items():
        with stage.client() as client:
            client.ehlo()
            client.login(user, password)
            assert client.docmd("XCLIENT LOGIN=bob ADDR=192.0.2.1")[0] in {500, 502, 550}


def test_a_server_that_would_take_it_from_the_client_is_not_used(stage: SubmissionStage) -> None:
    """From the front end's own address Postfix offers XCLIENT to the client itself: refused, with a line in the log."""
    with stage.client(address="127.0.0.1") as client, pytest.raises(smtplib.SMTPAuthenticationError) as refused:
        client.login("carol", "cpw")
    assert refused.value.smtp_code == 454
    line = stage.door.process.wait_for_event("submission.refused", user="carol@contoso.com")
    assert "XCLIENT" in line["reason"]


def test_a_large_message_passes_whole(stage: SubmissionStage) -> None:
    """Eight megabytes, dots and all."""
    body = "\r\n".join(f".{n} " + "x" * 70 for n in range(110_000))
    with stage.client("submissions") as client:
        client.login("bob", "bpw")
        assert client.sendmail("bob@contoso.com", ["a@fabrikam.com"], message("large", body)) == {}
    assert stage.arrived("large").count(b"x" * 70) == 110_000


def test_sessions_are_listed_and_ended_at_a_boundary(stage: SubmissionStage) -> None:
    """`421 4.3.2`, and never within a message."""
    with stage.client() as idle, stage.client() as busy:
        idle.login("alice", "apw")
        busy.login("alice", "apw")
        listed = json.loads(stage.door.command("sessions", "list", "--json", "--protocol", "submission"))
        assert [(entry["user"], entry["server"]) for entry in listed["sessions"]] == [
            ("alice@contoso.com", "MBX-01")
        ] * 2
        busy.docmd("MAIL FROM:<alice@contoso.com>")
        busy.docmd("RCPT TO:<a@fabrikam.com>")
        assert busy.docmd("DATA")[0] == 354
        busy.send(b"Subject: kicked\r\n\r\nhalf a line")
        kicked: list[str] = []
        words = ("sessions", "kick", "--user", "alice", "--yes", "--seconds", "15")
        thread = threading.Thread(target=lambda: kicked.append(stage.door.command(*words)))
        thread.start()
        assert idle.getreply() == (421, b"4.3.2 ended by the operator")
        time.sleep(0.5)
        busy.send(b"\r\n.\r\n")
        assert busy.getreply()[0] == 250
        assert busy.getreply() == (421, b"4.3.2 ended by the operator")
        thread.join()
    assert stage.count("kicked") == 1 or stage.arrived("kicked")


async def test_a_moved_database_takes_its_submission_sessions_along(own_stage: SubmissionStage) -> None:
    """Those between transactions are told `421 4.3.2`; who signs in again comes to the new server (B5)."""
    stage = own_stage
    idle = await asyncio.to_thread(stage.client)
    await asyncio.to_thread(idle.login, "alice", "apw")
    await asyncio.to_thread(stage.door.command, "database", "move", "DB01", "--to", "MBX-02")
    assert await asyncio.to_thread(idle.getreply) == (
        421,
        f"4.3.2 {MOVED}".encode(),
    )
    idle.close()

    def again() -> None:
        with stage.client() as client:
            submit(client, "alice", "moved")

    await asyncio.to_thread(again)
    stage.arrived("moved")
    assert stage.dovecots["MBX-02"].sign_in_with(user="alice", rip=OUTSIDE)


def test_a_server_killed_within_a_session(own_stage: SubmissionStage) -> None:
    """The client hears 421, signs in again as soon as the server is back, and meanwhile is never told 535."""
    stage = own_stage
    dovecot = stage.dovecots["MBX-01"]
    client = stage.client()
    client.login("alice", "apw")
    os.killpg(dovecot.pid, signal.SIGKILL)
    assert client.getreply()[0] == 421
    client.close()
    dovecot.wait(5)
    with stage.client() as client, pytest.raises(smtplib.SMTPAuthenticationError) as refused:
        client.login("alice", "apw")
    assert (refused.value.smtp_code, refused.value.smtp_error[:5]) == (454, b"4.7.0")
    dovecot.start()
    dovecot.wait_ready()
    with stage.client() as client:
        submit(client, "alice", "after the kill")
    stage.arrived("after the kill")


def test_starttls_drops_what_was_sent_before_it(stage: SubmissionStage) -> None:
    """Field case 79: a command injected in clear is not obeyed within TLS."""
    with socket.create_connection(stage.door.addresses["submission"], timeout=20) as sock:
        sock.recv(1000)
        sock.sendall(b"EHLO x\r\n")
        while b"250 " not in sock.recv(1000):
            pass
        sock.sendall(b"STARTTLS\r\nNOOP\r\n")
        assert sock.recv(1000).startswith(b"220 ")
        context = ssl.create_default_context(cafile=str(stage.door.ca))
        with context.wrap_socket(sock, server_hostname="mail.contoso.com") as tls:
            tls.sendall(b"HELP\r\n")
            assert tls.recv(1000).startswith(b"530 5.7.0")
