"""Port 25 under one name before Postfix hubs: equal shares, the client's address, hubs that die (SPEC B7, T12)."""

from __future__ import annotations

import contextlib
import os
import signal
import smtplib
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from doors import FrontDoor, Servers, start
from submission_stage import OUTSIDE, SECONDS, message, new_postfix, new_sink
from test_mail_clients import program, run

from gatepost.lab.servers.postfix import Postfix, SmtpSink
from gatepost.lab.servers.process import free_ports
from gatepost.lab.toml_text import Table

HUBS = ("HUB-01", "HUB-02", "HUB-03")
PROXY = ["smtpd_upstream_proxy_protocol=haproxy"]
XCLIENT = ["smtpd_authorized_xclient_hosts=127.0.0.1"]
ADDRESSES = {"HUB-01": "proxy-v2", "HUB-02": "proxy-v1", "HUB-03": "xclient"}


@dataclass
class Hubs:
    """A front end and three hubs: told of clients by PROXY version 2, version 1, and XCLIENT."""

    door: FrontDoor
    hubs: dict[str, Postfix]
    sink: SmtpSink

    def client(self) -> smtplib.SMTP:
        """A connection that has been greeted."""
        host, port = self.door.addresses["smtp"]
        return smtplib.SMTP(host, port, timeout=SECONDS, source_address=(OUTSIDE, 0))

    def send(self, subject: str) -> str:
        """Send a message; the hub that said it took the session."""
        with self.client() as client:
            hub = client.ehlo()[1].split(b".")[0].decode().upper()
            assert client.sendmail("stranger@fabrikam.com", ["alice@contoso.com"], message(subject)) == {}
        return hub

    def took(self) -> dict[str, list[str]]:
        """The client addresses of the messages that each hub took."""
        return {name: hub.clients() for name, hub in self.hubs.items()}


@contextlib.contextmanager
def hubs_stage(servers: Servers) -> Iterator[Hubs]:
    """Everything, started."""
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(new_sink(servers, "hub-sink"))
        hubs = {
            name: stack.enter_context(
                new_postfix(servers, name, sink, PROXY if ADDRESSES[name].startswith("proxy") else XCLIENT)
            )
            for name in HUBS
        }

        def change(front_end: Table, organization: Table) -> None:
            front_end["limits"] |= {"probe_seconds": 0.5}
            tables = organization["servers"]
            front = tables["CAS-01"]
            front["endpoints"]["smtp"] = {"port": free_ports(front["address"], 1)[0]}
            for name, hub in hubs.items():
                tables[name] = {
                    "site": "usa",
                    "roles": ["hub-transport"],
                    "address": hub.address,
                    "fqdn": f"{name.lower()}.contoso.com",
                    "endpoints": {"smtp": {"port": hub.ready[0][1], "client_address": ADDRESSES[name]}},
                }

        door = start(servers, change)
        stack.callback(door.stop)
        yield Hubs(door, hubs, sink)


@pytest.fixture(scope="module")
def stage(servers: Servers) -> Iterator[Hubs]:
    """For tests that leave everything as it was."""
    with hubs_stage(servers) as made:
        yield made


@pytest.fixture
def own_stage(servers: Servers) -> Iterator[Hubs]:
    """For tests that kill hubs."""
    with hubs_stage(servers) as made:
        yield made


def test_each_hub_gets_its_share_and_learns_the_clients_address(stage: Hubs) -> None:
    """Exactly equal; PROXY in both versions and XCLIENT."""
    before = {name: len(found) for name, found in stage.took().items()}
    said = Counter(stage.send(f"share {n}") for n in range(12))
    assert said == dict.fromkeys(HUBS, 4)
    found = {name: clients[before[name] :] for name, clients in stage.took().items()}
    assert found == dict.fromkeys(HUBS, [OUTSIDE] * 4)


def test_starttls_is_the_hubs(stage: Hubs) -> None:
    """Its certificate carries the common name; after the hand-over the front end is transparent."""
    context = ssl.create_default_context(cafile=str(stage.door.ca))
    host, port = stage.door.addresses["smtp"]
    for _ in HUBS:
        with smtplib.SMTP(timeout=SECONDS, source_address=(OUTSIDE, 0)) as client:
            client.connect(host, port)
            client._host = "mail.contoso.com"  # type: ignore[attr-defined] # the name that is verified
            client.starttls(context=context)
            assert client.sendmail("s@fabrikam.com", ["alice@contoso.com"], message("tls")) == {}


def test_swaks_pipelines(stage: Hubs) -> None:
    """Many commands in one packet."""
    host, port = stage.door.addresses["smtp"]
    arguments = ["--server", host, "--port", port, "--to", "alice@contoso.com", "--from", "s@fabrikam.com"]
    run(program("swaks"), *map(str, [*arguments, "--pipeline", "--local-interface", OUTSIDE, "--tls"]))


def test_strangers_get_no_rights_of_the_front_end(stage: Hubs) -> None:
    """None of the hubs relays for one, nor takes an XCLIENT that claims otherwise."""
    for _ in HUBS:
        with stage.client() as client:
            client.ehlo()
            client.docmd("XCLIENT ADDR=127.255.255.1 LOGIN=alice")
            client.docmd("MAIL FROM:<s@fabrikam.com>")
            assert client.docmd("RCPT TO:<somebody@elsewhere.example>")[0] in {454, 554}


def test_what_is_said_before_the_greeting_is_not_lost(stage: Hubs) -> None:
    """It reaches the hub, whose business it is."""
    for _ in HUBS:
        with socket.create_connection(
            stage.door.addresses["smtp"], timeout=SECONDS, source_address=(OUTSIDE, 0)
        ) as sock:
            sock.sendall(b"EHLO early.fabrikam.com\r\nQUIT\r\n")
            heard = b""
            while data := sock.recv(4096):
                heard += data
        assert heard.startswith(b"220 ")
        assert b"250-PIPELINING" in heard
        assert b"\r\n221 " in heard


def test_a_killed_hub_costs_nobody_their_mail(own_stage: Hubs) -> None:
    """While it is not yet known to be down, and after: no client sees an error, and the others share equally."""
    stage = own_stage
    for n in range(6):
        stage.send(f"before {n}")
    os.killpg(stage.hubs["HUB-02"].pid, signal.SIGKILL)
    said = Counter(stage.send(f"without {n}") for n in range(30))
    assert set(said) == {"HUB-01", "HUB-03"}
    assert abs(said["HUB-01"] - said["HUB-03"]) <= 1
    stage.door.process.wait_for_event("server.down", server="HUB-02", service="smtp")
    stage.hubs["HUB-02"].wait(5)
    stage.hubs["HUB-02"].start()
    stage.hubs["HUB-02"].wait_ready()
    stage.door.process.wait_for_event("server.up", server="HUB-02", service="smtp")
    assert Counter(stage.send(f"again {n}") for n in range(12)) == dict.fromkeys(HUBS, 4)


def test_a_hub_killed_within_a_session(own_stage: Hubs) -> None:
    """The client is told 421 and sends again, to another."""
    stage = own_stage
    with stage.client() as client:
        hub = client.ehlo()[1].split(b".")[0].decode().upper()
        client.docmd("MAIL FROM:<s@fabrikam.com>")
        client.docmd("RCPT TO:<alice@contoso.com>")
        os.killpg(stage.hubs[hub].pid, signal.SIGKILL)
        assert client.getreply()[0] == 421
    assert stage.send("elsewhere") != hub


def test_all_hubs_down_is_told_as_a_temporary_fault(own_stage: Hubs) -> None:
    """`421 4.3.2`, and a line in the log with each attempt; when one is back mail flows."""
    stage = own_stage
    for hub in stage.hubs.values():
        os.killpg(hub.pid, signal.SIGKILL)
        hub.wait(5)
    with pytest.raises(smtplib.SMTPConnectError) as refused:
        stage.client()
    assert refused.value.smtp_code == 421
    assert str(refused.value.smtp_error, "ascii").startswith("4.3.2 ")
    line = stage.door.process.wait_for_event("smtp.refused")
    assert {attempt.partition(":")[0] for attempt in line["attempts"]} == set(HUBS)
    stage.hubs["HUB-03"].start()
    stage.hubs["HUB-03"].wait_ready()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(smtplib.SMTPConnectError):
            assert stage.send("back") == "HUB-03"
            break
