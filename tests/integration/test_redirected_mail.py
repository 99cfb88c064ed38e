"""`gatepost queue redirect` between two real hubs of one site, before a maintenance (exchange-facts 4.6, 4.8).

alice ── HUB-01 ──┬── MBX-01 (alice), not there at first
         HUB-02 ──┴── smart host, not there at first
"""

from __future__ import annotations

import email
import json
from collections.abc import Iterator

import pytest
from doors import Servers
from submission_stage import new_sink
from transport_stage import TransportStage, mail, named, until

from gatepost.lab.servers.postfix import SmtpSink
from gatepost.lab.toml_text import Table

CONNECTOR = "Internet"


class Stage:
    """Two hubs, and a sink as smart host of both, which is started when a test wants it."""

    def __init__(self, servers: Servers) -> None:
        self.sink: SmtpSink = new_sink(servers, "redirected")
        self.hubs = TransportStage(servers, {"HUB-01": "usa", "HUB-02": "usa"}, {"MBX-01": "usa"}, change=self._change)

    def _change(self, tables: Table) -> None:
        host, port = self.sink.address
        tables["send_connectors"][CONNECTOR] = {
            "address_spaces": ["*"],
            "source_servers": ["HUB-01", "HUB-02"],
            "smart_hosts": [f"[{host}]:{port}"],
            "tls": "none",
        }

    def submit(self, subject: str, *recipients: str) -> None:
        """A message of alice at HUB-01."""
        with self.hubs.client("HUB-01", "submission") as client:
            client.starttls()
            client.login("alice@contoso.com", "alice-pw")
            assert client.sendmail("alice@contoso.com", list(recipients), mail(subject, "alice@contoso.com")) == {}

    def waiting(self, hub: str) -> dict[str, int]:
        """How many messages wait there, by next hop."""
        return {name: count for name, (count, _) in self.hubs.hubs[hub].queues().items()}

    def redirect(self, target: str) -> str:
        """What the command at HUB-01 says."""
        return self.hubs.hubs["HUB-01"].command("queue", "redirect", target).strip()


@pytest.fixture
def stage(servers: Servers) -> Iterator[Stage]:
    made = Stage(servers)
    with made.hubs:
        yield made
    if made.sink.running:
        made.sink.stop()


def start_hubs(stage: Stage, *names: str) -> None:
    for name in names:
        stage.hubs.hubs[name].start()
    for name in names:
        stage.hubs.hubs[name].wait_ready()


def test_a_hub_is_emptied_and_may_then_be_lost(stage: Stage) -> None:
    """All that waits moves to the other hub with its recipients, and arrives from there, each message once."""
    start_hubs(stage, "HUB-01", "HUB-02")
    stage.submit("Both ways", "alice@contoso.com", "x@example.org", "y@example.org")
    stage.submit("Outside", "x@example.org")
    host = f"[{stage.sink.address[0]}]:{stage.sink.address[1]}"
    until(lambda: stage.waiting("HUB-01") == {"DB01": 1, host: 2}, "three in two queues")
    frozen = json.loads(stage.hubs.hubs["HUB-01"].command("queue", "show", "--subject", "Outside", "--json"))[0]
    stage.hubs.hubs["HUB-01"].command("queue", "freeze", f"{frozen['queue']}/{frozen['number']}")
    assert stage.redirect("hub-02") == "messages: 2"
    until(lambda: stage.waiting("HUB-01") == {host: 1}, "only what is frozen stays")
    until(lambda: stage.waiting("HUB-02") == {"DB01": 1, host: 1}, "the rest waits at the other hub")
    stage.hubs.hubs["HUB-01"].kill()

    stage.hubs.mailboxes["MBX-01"].start()
    stage.sink.start()
    stage.sink.wait_ready()
    for name in ("DB01", host):
        stage.hubs.hubs["HUB-02"].command("queue", "retry", name)
    arrived = email.message_from_bytes(stage.hubs.arrived("MBX-01", "alice", "Both ways"))
    [outside] = until(lambda: named("Both ways", stage.sink.messages()), "outside")
    assert outside.count(b"X-Rcpt-Args:") == 2
    by = [field for field in arrived.get_all("Received", []) if "(Gatepost " in field]
    assert [f"by hub-0{number}" in field for number, field in zip((2, 1), by, strict=True)] == [True, True]
    until(lambda: not stage.waiting("HUB-02"), "nothing is left")
    assert stage.hubs.has("MBX-01", "alice", "Both ways") == 1
    assert not named("Outside", stage.sink.messages())


def test_mail_that_is_redirected_to_a_hub_that_is_down_waits_for_it(stage: Stage) -> None:
    start_hubs(stage, "HUB-01")
    stage.submit("Later", "x@example.org")
    until(lambda: stage.waiting("HUB-01"), "it waits")
    assert stage.redirect("HUB-02") == "messages: 1"
    until(lambda: stage.hubs.hubs["HUB-01"].queues().get("HUB-02", (0, ""))[1] == "Retry", "HUB-02 is not there")
    stage.sink.start()
    stage.sink.wait_ready()
    start_hubs(stage, "HUB-02")
    stage.hubs.hubs["HUB-01"].command("queue", "retry", "HUB-02")
    [message] = until(lambda: named("Later", stage.sink.messages()), "it has come by HUB-02")
    assert b"by hub-02" in message


def test_a_hub_that_no_connector_leads_from_gives_it_back(stage: Stage) -> None:
    """Mail whose only way leads over the hub that is emptied comes back to it, and waits there, once."""
    stage.hubs.tables["send_connectors"][CONNECTOR]["source_servers"] = ["HUB-01"]
    stage.hubs.write()
    start_hubs(stage, "HUB-01", "HUB-02")
    stage.submit("To and fro", "x@example.org")
    until(lambda: stage.waiting("HUB-01"), "it waits")
    taken = stage.hubs.taken()["HUB-01"]
    assert stage.redirect("HUB-02") == "messages: 1"
    until(lambda: stage.hubs.taken()["HUB-01"] == taken + 1, "it is back")
    host = f"[{stage.sink.address[0]}]:{stage.sink.address[1]}"
    assert stage.waiting("HUB-01") == {host: 1}
    assert not stage.waiting("HUB-02")
