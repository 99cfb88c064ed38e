"""Two sites with three hubs each, and sites in a row: mail between hubs by mutual TLS (SPEC T3 to T8, T12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from doors import Servers
from test_mail_clients import program, run
from transport_stage import STRANGER, TransportStage, mail, until

SITE_A, SITE_B = ("HUB-01", "HUB-02", "HUB-03"), ("HUB-04", "HUB-05", "HUB-06")
MESSAGES = 24
SHORT = {"queue_glitch_retry_interval": 1, "max_messages_per_connection": 1}
"""So that nobody waits a minute for the attempt that is due; and each message has a connection of its own."""


@pytest.fixture(scope="module")
def sites(servers: Servers) -> Iterator[TransportStage]:
    """usa: alice; europe: bob. Each site has three hubs."""
    hubs = dict.fromkeys(SITE_A, "usa") | dict.fromkeys(SITE_B, "europe")
    with TransportStage(
        servers, hubs, {"MBX-01": "usa", "MBX-02": "europe"}, links=[("usa", "europe")], transport=SHORT
    ) as stage:
        stage.start()
        yield stage


def send_many(stage: TransportStage, subject: str, count: int = MESSAGES) -> Counter[str]:
    """Messages from usa to bob; how many each hub of europe took of them."""
    before = stage.taken()
    with stage.client("HUB-01") as client:
        for number in range(count):
            assert client.sendmail("s@fabrikam.com", ["bob@contoso.com"], mail(f"{subject} {number}")) == {}
    for number in range(count):
        stage.arrived("MBX-02", "bob", f"{subject} {number}")
    taken = stage.taken()
    return Counter({name: taken[name] - before[name] for name in SITE_B if taken[name] > before[name]})


def test_mail_from_outside_reaches_a_mailbox_of_the_other_site(sites: TransportStage) -> None:
    """swaks without credentials, three hubs to choose from, mutual TLS between hubs, LMTP to Dovecot."""
    host, port = sites.places["HUB-01"]["outside"]
    arguments = ["--server", host, "--port", port, "--from", "s@fabrikam.com", "--to", "bob@contoso.com"]
    arguments += ["--header", "Subject: from swaks", "--local-interface", STRANGER]
    run(program("swaks"), *map(str, arguments))
    message = sites.arrived("MBX-02", "bob", "from swaks").decode()
    assert message.count("\nReceived: ") + message.startswith("Received: ") >= 2, message
    assert f"[{STRANGER}]" in message
    assert "TLS1.3" in message.replace("_", "").replace("v", "").replace("TLS 1.3", "TLS1.3"), message


def test_hub04_down_the_other_two_share_evenly_and_back_up_it_gets_its_share(sites: TransportStage) -> None:
    """The source's figure with processes: equal shares, equal shares of two, one attempt, equal shares again."""
    share = send_many(sites, "all up")
    assert max(share.values()) - min(share.values()) <= 1, share
    assert set(share) == set(SITE_B)
    sites.hubs["HUB-04"].kill()
    share = send_many(sites, "without")
    assert set(share) == {"HUB-05", "HUB-06"}
    assert abs(share["HUB-05"] - share["HUB-06"]) <= 1, share
    assert sites.hubs["HUB-01"].counters()["unhealthy_servers"] == 1
    sites.start("HUB-04")
    attempts = iter(range(100))
    until(lambda: send_many(sites, f"probe {next(attempts)}", 2)["HUB-04"], "HUB-04 takes mail again")
    assert sites.hubs["HUB-01"].counters()["unhealthy_servers"] == 0
    share = send_many(sites, "again")
    assert max(share.values()) - min(share.values()) <= 1, share
    assert set(share) == set(SITE_B)


def test_a_user_of_the_other_site_is_unknown_at_once(sites: TransportStage) -> None:
    """Every hub knows every recipient: nothing is relayed that the far site would refuse."""
    refused = sites.send("HUB-01", "bob@contoso.com", "nobody@contoso.com")
    assert refused["nobody@contoso.com"][0] == 550
    assert sites.has("MBX-02", "bob", "hello") or sites.arrived("MBX-02", "bob", "hello")


ROW = {"HUB-11": "near", "HUB-12": "middle", "HUB-13": "far", "HUB-14": "side"}


@pytest.fixture(scope="module")
def row(servers: Servers) -> Iterator[TransportStage]:
    """near: alice, middle: bob, far: carol, side: dave; far and side are both behind middle."""
    boxes = {f"MBX-0{n}": site for n, site in enumerate(ROW.values(), 1)}
    links = [("near", "middle"), ("middle", "far"), ("middle", "side")]
    with TransportStage(servers, ROW, boxes, links=links, transport=SHORT | {"queue_max_idle": 5}) as stage:
        stage.start()
        yield stage


def test_one_copy_crosses_the_link_until_the_paths_part(row: TransportStage) -> None:
    """Delayed fan-out: two sites behind middle, one message to middle, which makes two of it."""
    before = row.taken()
    assert row.send("HUB-11", "carol@contoso.com", "dave@contoso.com", subject="both") == {}
    row.arrived("MBX-03", "carol", "both")
    row.arrived("MBX-04", "dave", "both")
    taken = row.taken() - before
    assert taken == {name: 1 for name in ROW}
    assert (row.has("MBX-03", "carol", "both"), row.has("MBX-04", "dave", "both")) == (1, 1)


def test_mail_for_one_site_passes_the_one_between(row: TransportStage) -> None:
    """Direct relay: no hub of middle sees it."""
    before = row.taken()
    row.send("HUB-11", "carol@contoso.com", subject="direct")
    row.arrived("MBX-03", "carol", "direct")
    assert row.taken() - before == {"HUB-11": 1, "HUB-13": 1}


def test_mail_waits_in_the_site_before_the_failure_and_then_arrives(row: TransportStage) -> None:
    """Queue at the point of failure; the operator sees it there."""
    row.hubs["HUB-13"].kill()
    row.send("HUB-11", "carol@contoso.com", subject="waits")
    until(lambda: row.hubs["HUB-12"].queues().get("far") == (1, "Retry"), "the message waits in middle")
    until(lambda: not row.hubs["HUB-11"].queues(), "nothing waits in near")
    row.start("HUB-13")
    row.arrived("MBX-03", "carol", "waits")
    assert row.has("MBX-03", "carol", "waits") == 1
