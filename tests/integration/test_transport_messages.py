"""What becomes of single messages at a hub with real clients and servers: submission, DKIM, reports, content, moves.

client ── 587 ──► HUB-01 ──┬── LMTP ──► MBX-01, MBX-02, which share their mail
stranger ─ 25 ─► CAS-01 ───┤            outside: a sink; late.example: nobody; MX of all else: our name server
                  └──► HUB-02           HUB-01 asks rspamd, and signs for contoso.com
"""

from __future__ import annotations

import base64
import re
import smtplib
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

import dkim
import dns.resolver
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from doors import Servers, missing
from submission_stage import new_sink
from test_mail_clients import program, run
from transport_stage import SECONDS, STRANGER, TransportStage, mail, named, until

from gatepost.lab.servers.gatepost import Gatepost
from gatepost.lab.servers.name_server import NameServer
from gatepost.lab.servers.postfix import SmtpSink
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.servers.rspamd import GTUBE, Rspamd
from gatepost.lab.toml_text import Table, toml_text

SELECTOR = "2027a"


@dataclass
class Around:
    """See the module. `rspamd` is None where it is not installed."""

    stage: TransportStage
    front: Gatepost
    names: NameServer
    sink: SmtpSink
    rspamd: Rspamd | None

    def msmtp(self, subject: str, *recipients: str, notify: str = "", ret: str = "hdrs") -> None:
        """Submit a message of alice's by msmtp."""
        host, port = self.stage.places["HUB-01"]["submission"]
        arguments = [f"--host={host}", f"--port={port}", "--tls=on", "--tls-starttls=on", "--auth=plain"]
        arguments += [f"--tls-trust-file={self.stage.servers.authority.certificate}", "--user=alice@contoso.com"]
        arguments += ["--passwordeval=echo alice-pw", f"--source-ip={STRANGER}", "--from=alice@contoso.com"]
        if notify:
            arguments += [f"--dsn-notify={notify}", f"--dsn-return={ret}"]
        run(program("msmtp"), *arguments, *recipients, send=mail(subject, "alice@contoso.com"))

    def outside(self, subject: str) -> bytes:
        """The message as the sink outside took it; waits for it."""
        found: list[bytes] = until(lambda: named(subject, self.sink.messages()), f"{subject} outside")
        return found[0]

    def reports(self, subject: str) -> list[str]:
        """The delivery-status parts of the reports that alice has of a message."""
        found = []
        for content in self.stage.mailboxes["MBX-01"].mail("alice"):
            message = message_from_bytes(content)
            if message.get_content_type() == "multipart/report" and f"Subject: {subject}\n".encode() in content:
                (status,) = [p for p in message.walk() if p.get_content_type() == "message/delivery-status"]
                found.append("".join(str(part) for part in status.get_payload()))
        return found

    def report(self, subject: str, action: str) -> str:
        """The one report of that action; waits for it."""
        wanted = f"Action: {action}"
        until(lambda: [r for r in self.reports(subject) if wanted in r], f"{wanted} of {subject}")
        (found,) = [r for r in self.reports(subject) if wanted in r]
        return found


def _key(folder: Path) -> tuple[Path, str]:
    """A DKIM key: its file, and what is published."""
    key = rsa.generate_private_key(65537, 2048)
    file = folder / "dkim.pem"
    file.touch(mode=0o600)
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(key.private_bytes(*pem))
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return file, base64.b64encode(public).decode()


@pytest.fixture(scope="module")
def around(servers: Servers) -> Iterator[Around]:
    """All of it, running."""
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(servers.address()))
        sink = stack.enter_context(new_sink(servers, "messages-sink"))
        plain = stack.enter_context(new_sink(servers, "plain-sink", "-N"))  # makes no reports
        nobody = free_ports("127.0.0.1", 1)[0]
        rspamd, hook = _rspamd(servers, stack)
        key, public = _key(servers.scratch)
        names.add(f"{SELECTOR}._domainkey.contoso.com", "TXT", *_quoted(f"v=DKIM1; k=rsa; p={public}"))

        def change(tables: Table) -> None:
            def to(spaces: list[str], *hosts: str) -> Table:
                return {"address_spaces": spaces, "source_servers": ["HUB-01", "HUB-02"], "smart_hosts": list(hosts)}

            tables["send_connectors"] = {
                "Outside": to(["*.fabrikam.com"], "{}:{}".format(*sink.address)),
                "Plain": to(["tailspin.com"], "{}:{}".format(*plain.address)),
                "Late": to(["late.example"], f"127.0.0.1:{nobody}"),
                "Others": to(["*"]),
            }
            tables["servers"]["HUB-01"]["transport"] = {"delay_notification": 1, "message_expiration": 7}
            tables["servers"]["CAS-01"] = {
                "site": "usa",
                "roles": ["client-access"],
                "address": front,
                "fqdn": "cas-01.contoso.com",
                "endpoints": {"smtp": {"port": front_port}},
            }
            for name, told in (("HUB-01", "proxy-v2"), ("HUB-02", "xclient")):
                tables["servers"][name]["endpoints"]["smtp"]["client_address"] = told
                connectors = tables["receive_connectors"]
                # On loopback all servers come from one address: the front end, which says whom it speaks for.
                trusted = "proxy_protocol_from" if told == "proxy-v2" else "xclient_from"
                connectors[f"Default {name}"] |= {"remote_ranges": ["127.0.0.1"], trusted: ["127.0.0.1"]}
                balanced = connectors[f"Outside {name}"] | {"bindings": connectors[f"Default {name}"]["bindings"]}
                connectors[f"Balanced {name}"] = balanced

        front = servers.address()
        front_port = free_ports(front, 1)[0]
        transport: Table = {"resolvers": [f"{names.address}:{names.port}"], "content_hook": hook}
        transport["dkim"] = {"contoso.com": {"selector": SELECTOR, "private_key": str(key)}}
        stage = stack.enter_context(
            TransportStage(
                servers,
                {"HUB-01": "usa", "HUB-02": "usa"},
                {"MBX-01": "usa", "MBX-02": "usa"},
                change=change,
                settings={"transport": transport},
                copies={"DB01": ["MBX-01", "MBX-02"], "DB02": ["MBX-01", "MBX-02"]},
                shared_mail=True,
            )
        )
        stage.start()
        file = stage.folder / "cas-01.toml"
        front_end: Table = {"server": "CAS-01", "organization": "organization.toml", "workers": 1}
        front_end |= {name: f"state/{name}.sqlite" for name in ("directory", "registry")}
        front_end |= {"server_ca": str(servers.authority.certificate), "limits": {"probe_seconds": 0.5}}
        certificate = servers.authority.issue("messages-cas", "cas-01.contoso.com", front)
        front_end |= {"certificate": str(certificate.certificate), "private_key": str(certificate.private_key)}
        file.write_text(toml_text({"front_end": front_end}))
        door = Gatepost("CAS-01", stage.folder / "cas-01", file, {"smtp": (front, front_port)})
        stack.enter_context(door)
        yield Around(stage, door, names, sink, rspamd)


def _rspamd(servers: Servers, stack: ExitStack) -> tuple[Rspamd | None, Table]:
    """The content hook, which takes all mail unseen where rspamd is not installed."""
    address = servers.address()
    port = free_ports(address, 1)[0]
    hook: Table = {"url": f"http://{address}:{port}", "unavailable": "accept"}
    try:
        return stack.enter_context(Rspamd(servers.scratch / "hook", address, port)), hook
    except ServerMissing:
        return None, hook


def _quoted(text: str) -> list[str]:
    """A TXT record's strings, each of at most 255 characters, as one value."""
    return [" ".join(f'"{text[at : at + 200]}"' for at in range(0, len(text), 200))]


def swaks(around: Around, *arguments: str, port: str = "submission", server: str = "HUB-01") -> tuple[int, str]:
    """Exit status and dialogue."""
    host, number = around.stage.places[server][port]
    argv = [program("swaks"), "--server", host, "--port", str(number), "--local-interface", STRANGER, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS * 2, check=False)
    return done.returncode, done.stdout + done.stderr


# Submission


def test_a_user_submits_by_swaks_and_the_signature_is_good(around: Around) -> None:
    """STARTTLS, AUTH, relayed outside, signed: verified by another program with the record of the name server."""
    status, said = swaks(
        around, "--tls", "--auth", "PLAIN", "--auth-user", "alice@contoso.com", "--auth-password", "alice-pw",
        "--from", "alice@contoso.com", "--to", "x@fabrikam.com", "--header", "Subject: signed",
    )  # fmt: skip
    assert status == 0, said
    message = around.outside("signed")
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [around.names.address], around.names.port

    def text(name: bytes, timeout: int = 5) -> bytes:
        answer = resolver.resolve(name.decode(), "TXT", lifetime=timeout)
        return b"".join(answer[0].strings)

    content = message.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert f"s={SELECTOR}".encode() in content
    assert dkim.verify(content, dnsfunc=text)
    assert not dkim.verify(content.replace(b"Subject: signed", b"Subject: forged"), dnsfunc=text)
    assert b"X-Mail-Args: <alice@contoso.com>" in message


def test_a_wrong_password_is_535(around: Around) -> None:
    status, said = swaks(
        around, "--tls", "--auth", "LOGIN", "--auth-user", "alice@contoso.com", "--auth-password", "no",
        "--from", "alice@contoso.com", "--to", "x@fabrikam.com",
    )  # fmt: skip
    assert status == 28, said
    assert "535 5.7.8" in said


def test_who_has_not_signed_in_cannot_submit(around: Around) -> None:
    status, said = swaks(around, "--tls", "--from", "alice@contoso.com", "--to", "x@fabrikam.com")
    assert status != 0
    assert re.search(r"<\S* +5[35]0 5\.7\.", said), said


# Reports that a real client has asked for


def test_success_is_reported_of_a_mailbox(around: Around) -> None:
    """`delivered` by LMTP; the original's header comes back, not its body."""
    around.msmtp("success", "bob@contoso.com", notify="success")
    report = around.report("success", "delivered")
    assert "Final-Recipient: rfc822;bob@contoso.com" in report.replace("; ", ";")
    assert "Status: 2." in report
    (content,) = [m for m in around.stage.mailboxes["MBX-01"].mail("alice") if b"Action: delivered" in m]
    message = message_from_bytes(content)
    assert [part.get_content_type() for part in message.get_payload()] == [
        "text/plain",
        "message/delivery-status",
        "text/rfc822-headers",
    ]
    assert "Return-Path: <>" in content.decode()


def test_success_at_a_server_that_makes_no_reports_is_relayed(around: Around) -> None:
    around.msmtp("relayed", "x@tailspin.com", notify="success")
    assert "rfc822;x@tailspin.com" in around.report("relayed", "relayed").replace("; ", ";")


def test_a_server_that_makes_reports_is_left_to_make_them(around: Around) -> None:
    """The wish goes on to it."""
    around.msmtp("passed on", "x@fabrikam.com", notify="success,failure", ret="full")
    message = around.outside("passed on").decode()
    assert re.search(r"X-Rcpt-Args: <x@fabrikam.com> .*NOTIFY=SUCCESS,FAILURE", message), message
    assert re.search(r"X-Mail-Args: .*RET=FULL", message), message
    assert around.reports("passed on") == []


def test_failure_is_reported_only_if_it_was_asked_for(around: Around) -> None:
    """Both to a domain that does not exist; the report of the second never comes, that of a third does."""
    around.msmtp("failure", "x@nowhere.example", notify="failure")
    report = around.report("failure", "failed")
    assert "Status: 5.1.2" in report
    assert "Diagnostic-Code:" in report
    around.msmtp("silent", "x@nowhere.example", notify="never")
    around.msmtp("last", "x@nowhere.example")
    around.report("last", "failed")
    assert around.reports("silent") == []


def test_a_delay_is_reported_once_and_then_the_failure(around: Around) -> None:
    """`delay_notification` and `message_expiration` are seconds here instead of hours and days."""
    around.msmtp("late", "x@late.example", notify="delay,failure")
    delayed = around.report("late", "delayed")
    assert "Will-Retry-Until:" in delayed
    assert "Status: 4." in delayed
    assert "Status: 4.4.7" in around.report("late", "failed")
    assert len(around.reports("late")) == 2


# Content


def test_rspamd_refuses_a_message_at_its_end(around: Around) -> None:
    """GTUBE is answered 550 at DATA: nobody has to be told later."""
    if around.rspamd is None:
        missing(ServerMissing("rspamd", ("rspamd",)))
    common = ["--from", "s@fabrikam.com", "--to", "bob@contoso.com"]
    status, said = swaks(around, *common, "--body", GTUBE["reject"], "--h-Subject", "spam", port="outside")
    assert status == 26, said
    assert "550 5.7.1 Gtube pattern" in said
    status, said = swaks(around, *common, "--body", GTUBE["add header"], "--h-Subject", "marked", port="outside")
    assert status == 0, said
    assert b"\nX-Spam: Yes" in b"\n" + around.stage.arrived("MBX-01", "bob", "marked")
    assert not around.stage.has("MBX-01", "bob", "spam")


# Port 25 under one name


def test_a_front_end_shares_port_25_and_hubs_know_the_client(around: Around) -> None:
    """PROXY version 2 to HUB-01, XCLIENT to HUB-02: the trace has the client's own address."""
    host, port = around.front.addresses["smtp"]
    for number in range(4):
        with smtplib.SMTP(host, port, "client.example", SECONDS, (STRANGER, 0)) as client:
            client.sendmail("s@fabrikam.com", ["bob@contoso.com"], mail(f"shared {number}"))
    by = []
    for number in range(4):
        message = around.stage.arrived("MBX-01", "bob", f"shared {number}").decode()
        found = re.search(r"from client\.example \(\[([\d.]+)\]\)\s+by (hub-0\d)", message)
        assert found is not None, message
        assert found[1] == STRANGER
        by.append(found[2])
    assert sorted(by) == ["hub-01", "hub-01", "hub-02", "hub-02"]


def test_through_the_front_end_a_stranger_is_still_a_stranger(around: Around) -> None:
    """What comes through a balancer has no rights of the balancer's."""
    host, port = around.front.addresses["smtp"]
    for _ in range(2):
        with smtplib.SMTP(host, port, "client.example", SECONDS, (STRANGER, 0)) as client:
            refused = pytest.raises(smtplib.SMTPRecipientsRefused)
            with refused as fault:
                client.sendmail("s@fabrikam.com", ["x@elsewhere.example"], mail("no"))
            assert fault.value.recipients["x@elsewhere.example"][0] == 550


# A database that moves


def test_waiting_mail_follows_the_active_copy(around: Around) -> None:
    """MBX-01 is down and mail waits; the database is activated on MBX-02; the mail goes there at once."""
    stage = around.stage
    stage.mailboxes["MBX-01"].stop()
    try:
        stage.send("HUB-02", "bob@contoso.com", subject="follows")
        until(lambda: stage.hubs["HUB-02"].queues().get("DB02") == (1, "Retry"), "it waits for DB02")
        stage.hubs["HUB-02"].command("database", "activate", "DB02", "--server", "MBX-02")
        stage.arrived("MBX-02", "bob", "follows")
        assert "saved mail to INBOX" in stage.mailboxes["MBX-02"].log_text()
        assert stage.has("MBX-02", "bob", "follows") == 1
    finally:
        stage.start()
