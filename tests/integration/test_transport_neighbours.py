"""Postfix and Exim as neighbours of a hub, both ways, found by a name server of our own (SPEC T3, T4; smtp-facts d.1).

one.example      10 Postfix                   two.example     10 Postfix, 10 Exim
failover.example 10 nobody there, 20 Postfix  null.example    "." at preference 0
loop.example     10 this hub                  gone.example    no such name
slow.example     SERVFAIL at first            circle.example  a smart host that sends it back
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from doors import Servers, missing
from submission_stage import new_sink
from test_mail_clients import program
from transport_stage import STRANGER, TransportStage, mail, named, until

from gatepost.lab.servers.exim import Exim
from gatepost.lab.servers.name_server import NameServer
from gatepost.lab.servers.postfix import Postfix, SmtpSink
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.toml_text import Table

EXIM_DOMAINS = ("contoso.com", "two.example", "exim.example")
POSTFIX_DOMAINS = ("one.example", "two.example", "failover.example", "slow.example", "circle.example")


@dataclass
class Neighbours:
    """The hub HUB-01 with alice's mailbox, and who is around it. What Postfix takes ends in `sink`."""

    stage: TransportStage
    names: NameServer
    postfix: Postfix
    exim: Exim
    sink: SmtpSink
    six: SmtpSink
    """At ::1."""

    def submit(self, *recipients: str, subject: str, sender: str = "alice@contoso.com", **how: list[str]) -> None:
        """A user's message to whom it may concern."""
        with self.stage.client("HUB-01", "submission") as client:
            client.starttls()
            client.login("alice@contoso.com", "alice-pw")
            assert client.sendmail(sender, list(recipients), mail(subject, sender), **how) == {}

    def in_sink(self, subject: str) -> bytes:
        """The message as Postfix handed it on; waits for it."""
        found: list[bytes] = until(lambda: named(subject, self.sink.messages()), f"{subject} in the sink")
        return found[0]

    def report(self, subject: str) -> str:
        """The report that alice gets about a message; waits for it."""
        dovecot = self.stage.mailboxes["MBX-01"]

        def found() -> list[bytes]:
            wanted = f"Subject: {subject}".encode()
            return [m for m in dovecot.mail("alice") if b"multipart/report" in m and wanted in m]

        until(found, f"a report about {subject}")
        return found()[0].decode()


@pytest.fixture(scope="module")
def around(servers: Servers) -> Iterator[Neighbours]:
    """All of it, running."""
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(servers.address()))
        addresses = {who: servers.address() for who in ("postfix", "exim")}
        port = free_ports(addresses["postfix"], 1)[0]  # one for all: a send connector has one for its MX
        sink = stack.enter_context(new_sink(servers, "neighbours-sink"))
        try:
            six = stack.enter_context(SmtpSink(servers.scratch / "six", "::1", port, "six"))
        except ServerMissing as error:
            missing(error)

        def change(tables: Table) -> None:
            tables["send_connectors"]["Internet"] = {
                "address_spaces": ["*"],
                "source_servers": ["HUB-01"],
                "port": port,
                "allow_private": True,
                "max_messages_per_connection": 1,
            }
            tables["send_connectors"]["Circle"] = {
                "address_spaces": ["circle.example"],
                "source_servers": ["HUB-01"],
                "smart_hosts": [f"{addresses['postfix']}:{port}"],
            }
            tables["organization"]["accepted_domains"].append("circle.example")
            tables["organization"]["accepted_domain_kinds"] = {"circle.example": "external-relay"}
            tables["servers"]["HUB-01"]["transport"] = {
                "queue_glitch_retry_interval": 1,
                "queue_glitch_retry_count": 15,
            }

        stage = stack.enter_context(
            TransportStage(
                servers,
                {"HUB-01": "usa"},
                {"MBX-01": "usa"},
                change=change,
                settings={"transport": {"resolvers": [f"{names.address}:{names.port}"]}},
            )
        )
        outside = stage.places["HUB-01"]["outside"]
        certificate = servers.authority.issue("neighbours", *addresses.values())
        ours = ", ".join(f"{domain}=smtp:[{outside[0]}]:{outside[1]}" for domain in ("contoso.com", "circle.example"))
        settings = f"relay_domains = contoso.com, {', '.join(POSTFIX_DOMAINS)}\ntransport_maps = inline:{{ {ours} }}\n"
        try:
            postfix = Postfix(
                servers.scratch / "neighbour", addresses["postfix"], {port: []}, sink.address, name="neighbour",
                certificate=certificate, settings=settings + "smtp_tls_security_level = may\n",
            )  # fmt: skip
            exim = Exim(
                servers.scratch / "neighbour-exim", addresses["exim"], port, certificate, name="neighbour-exim",
                domains=EXIM_DOMAINS, relay=outside,
            )  # fmt: skip
        except ServerMissing as error:
            missing(error)
        for server in (postfix, exim):
            stack.enter_context(server)
        stage.start()
        _tell(names, addresses, stage)
        yield Neighbours(stage, names, postfix, exim, sink, six)


def _tell(names: NameServer, addresses: dict[str, str], stage: TransportStage) -> None:
    names.add("mx-postfix.example", "A", addresses["postfix"])
    names.add("mx-exim.example", "A", addresses["exim"])
    names.add("mx-nobody.example", "A", "127.9.9.1")
    names.add("mx-ours.example", "A", stage.places["HUB-01"]["smtp"][0])
    names.add("one.example", "MX", "10 mx-postfix.example.")
    names.add("exim.example", "MX", "10 mx-exim.example.")
    names.add("two.example", "MX", "10 mx-postfix.example.", "10 mx-exim.example.")
    names.add("failover.example", "MX", "10 mx-nobody.example.", "20 mx-postfix.example.")
    names.add("null.example", "MX", "0 .")
    names.add("loop.example", "MX", "10 mx-ours.example.", "20 mx-postfix.example.")
    names.fail("slow.example")


def from_outside(server: Postfix | Exim, subject: str) -> None:
    """swaks hands a message for alice to a neighbour."""
    host, port = server.ready[0]
    arguments = ["--server", host, "--port", port, "--from", "s@sends.example", "--to", "alice@contoso.com"]
    arguments += ["--header", f"Subject: {subject}", "--local-interface", STRANGER]
    argv = [program("swaks"), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_postfix_relays_to_us_within_tls(around: Neighbours) -> None:
    from_outside(around.postfix, "by postfix")
    message = around.stage.arrived("MBX-01", "alice", "by postfix").decode()
    assert f"from neighbour.contoso.com ([{around.postfix.address}])" in message, message
    assert "ESMTPS" in message.partition("by hub-01")[2].partition("\n\n")[0], message


def test_exim_relays_to_us_within_tls(around: Neighbours) -> None:
    from_outside(around.exim, "by exim")
    message = around.stage.arrived("MBX-01", "alice", "by exim").decode()
    assert "from neighbour-exim.contoso.com" in message, message
    assert "ESMTPS" in message.partition("by hub-01")[2].partition("\n\n")[0], message


def test_we_relay_to_postfix_by_its_exchanger_within_tls(around: Neighbours) -> None:
    around.submit("x@one.example", subject="to postfix")
    assert b"X-Rcpt-Args: <x@one.example>" in around.in_sink("to postfix")
    assert around.names.asked("one.example", "MX") == 1


def test_we_relay_to_exim_by_its_exchanger_within_tls(around: Neighbours) -> None:
    before = len(around.exim.arrivals())
    around.submit("x@exim.example", subject="to exim")
    until(lambda: len(around.exim.arrivals()) > before, "the message is in Exim's log")
    line = around.exim.arrivals()[-1]
    assert line["P"] == "esmtps"
    assert line["X"].startswith("TLS1.3")


def test_equal_exchangers_share_the_mail(around: Neighbours) -> None:
    exim = len(around.exim.arrivals())
    for number in range(12):
        around.submit("x@two.example", subject=f"shared {number}")

    def at() -> tuple[int, int]:
        postfix = sum(bool(named(f"shared {number}", around.sink.messages())) for number in range(12))
        return postfix, len(around.exim.arrivals()) - exim

    until(lambda: sum(at()) == 12, "all have arrived at one of them")
    assert min(at()) >= 4, at()


def test_a_dead_exchanger_gives_way_to_the_next_preference(around: Neighbours) -> None:
    around.submit("x@failover.example", subject="failover")
    around.in_sink("failover")


def test_an_address_in_brackets_is_taken_at_its_word(around: Neighbours) -> None:
    around.submit("x@[IPv6:::1]", subject="literal")
    until(lambda: named("literal", around.six.messages()), "the message at ::1")


@pytest.mark.parametrize(
    ("domain", "status"), [("null.example", "5.1.10"), ("gone.example", "5.1.2"), ("loop.example", "5.4.6")]
)
def test_domains_that_take_no_mail_are_reported_at_once(around: Neighbours, domain: str, status: str) -> None:
    """Null MX (RFC 7505), no such domain, exchangers that lead back to us."""
    around.submit(f"x@{domain}", subject=f"to {domain}")
    report = around.report(f"to {domain}")
    assert f"Status: {status}" in report, report
    assert "Action: failed" in report


def test_a_name_server_that_fails_is_no_reason_to_return_mail(around: Neighbours) -> None:
    """SERVFAIL: it waits, and goes when the name server has recovered."""
    around.submit("x@slow.example", subject="patience")
    hub = around.stage.hubs["HUB-01"]
    until(lambda: hub.queues().get("slow.example") == (1, "Retry"), "it waits")
    around.names.remove("slow.example")
    around.names.add("slow.example", "MX", "10 mx-postfix.example.")
    hub.command("queue", "retry", "slow.example")
    around.in_sink("patience")
    assert not [m for m in around.stage.mailboxes["MBX-01"].mail("alice") if b"Subject: patience" in m]


def test_mail_that_goes_in_circles_is_ended(around: Neighbours) -> None:
    """circle.example is Postfix's, so we believe, and ours, so it does. It is Postfix that is told, and that reports."""
    assert around.stage.send("HUB-01", "x@circle.example", subject="round", sender="alice@contoso.com") == {}
    dovecot = around.stage.mailboxes["MBX-01"]
    until(lambda: [m for m in dovecot.mail("alice") if b"MAILER-DAEMON@neighbour" in m], "Postfix' report of the loop")
    (report,) = [m for m in dovecot.mail("alice") if b"MAILER-DAEMON@neighbour" in m]
    assert b"554 5.4.6" in report
    assert report.count(b"(Gatepost ") >= 5
