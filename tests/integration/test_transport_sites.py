"""Two sites with three hubs each, and two sites behind: mail between hubs by mutual TLS (SPEC T3 to T8, T12).

usa: alice             europe: bob             asia: carol
HUB-01 02 03 ───────── HUB-04 05 06 ───┬────── HUB-07
                                       └────── HUB-08, africa: dave
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from doors import Servers
from test_mail_clients import program, run
from transport_stage import STRANGER, Hub, TransportStage, mail, until

SITE_A, SITE_B = ("HUB-01", "HUB-02", "HUB-03"), ("HUB-04", "HUB-05", "HUB-06")
MESSAGES = 48
SITES = dict.fromkeys(SITE_A, "usa") | dict.fromkeys(SITE_B, "europe") | {"HUB-07": "asia", "HUB-08": "africa"}
MAILBOXES = {"MBX-01": "usa", "MBX-02": "europe", "MBX-03": "asia", "MBX-04": "africa"}
LINKS = [("usa", "europe"), ("europe", "asia"), ("europe", "africa")]
SHORT = {
    "queue_glitch_retry_interval": 1,
    "transient_failure_retry_interval": 1,
    "outbound_connection_failure_retry_interval": 1,
    "max_messages_per_connection": 1,
}
"""So that nobody waits a minute for the attempt that is due; and each message has a connection of its own."""


@pytest.fixture(scope="module")
def sites(servers: Servers) -> Iterator[TransportStage]:
    """All of the figure, running; each test leaves it so."""
    with TransportStage(servers, SITES, MAILBOXES, links=LINKS, transport=SHORT) as stage:
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


def assert_even(share: Counter[str], *hubs: str) -> None:
    """Equal but for the connections that found nothing left to carry. The next in a list would have a double share."""
    assert set(share) == set(hubs), share
    assert max(share.values()) - min(share.values()) <= 8, share


def took_part(sites: TransportStage, before: Counter[str]) -> Counter[str]:
    """How many messages the hubs of each site have taken since."""
    found: Counter[str] = Counter()
    for name, count in (sites.taken() - before).items():
        found[SITES[name]] += count
    return found


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
    assert_even(share, *SITE_B)
    sites.hubs["HUB-04"].kill()
    share = send_many(sites, "without")
    assert_even(share, "HUB-05", "HUB-06")
    assert sites.places["HUB-04"]["smtp"][0] in sites.hubs["HUB-01"].unhealthy()
    sites.start("HUB-04")
    attempts = iter(range(100))
    until(lambda: send_many(sites, f"probe {next(attempts)}", 2)["HUB-04"], "HUB-04 takes mail again")
    assert sites.places["HUB-04"]["smtp"][0] not in sites.hubs["HUB-01"].unhealthy()
    share = send_many(sites, "again")
    assert_even(share, *SITE_B)


def test_a_user_of_the_other_site_is_unknown_at_once(sites: TransportStage) -> None:
    """Every hub knows every recipient: nothing is relayed that the far site would refuse."""
    refused = sites.send("HUB-01", "bob@contoso.com", "nobody@contoso.com")
    assert refused["nobody@contoso.com"][0] == 550
    assert sites.has("MBX-02", "bob", "hello") or sites.arrived("MBX-02", "bob", "hello")


def test_one_copy_crosses_the_link_until_the_paths_part(sites: TransportStage) -> None:
    """Delayed fan-out: two sites behind europe, one message to europe, which makes two of it."""
    before = sites.taken()
    assert sites.send("HUB-01", "carol@contoso.com", "dave@contoso.com", subject="both") == {}
    sites.arrived("MBX-03", "carol", "both")
    sites.arrived("MBX-04", "dave", "both")
    assert took_part(sites, before) == {"usa": 1, "europe": 1, "asia": 1, "africa": 1}
    assert (sites.has("MBX-03", "carol", "both"), sites.has("MBX-04", "dave", "both")) == (1, 1)


def test_mail_for_one_site_passes_the_one_between(sites: TransportStage) -> None:
    """Direct relay: no hub of europe sees it."""
    before = sites.taken()
    sites.send("HUB-01", "carol@contoso.com", subject="direct")
    sites.arrived("MBX-03", "carol", "direct")
    assert took_part(sites, before) == {"usa": 1, "asia": 1}


def test_mail_waits_in_the_site_before_the_failure_and_then_arrives(sites: TransportStage) -> None:
    """Queue at the point of failure; the operator sees it there."""
    sites.hubs["HUB-07"].kill()
    sites.send("HUB-01", "carol@contoso.com", subject="waits")
    near = [sites.hubs[name] for name in SITE_B]

    def waiting() -> list[Hub]:
        return [hub for hub in near if hub.queues().get("asia", (0, ""))[0] == 1]

    (holder,) = until(waiting, "the message waits in europe")
    until(lambda: not sites.hubs["HUB-01"].queues(), "nothing waits in usa")
    (entry,) = holder.listed()
    assert (entry["next_hop_domain"], entry["messages"]) == ("asia", 1)
    assert "111" in entry["last_error"] or "refused" in entry["last_error"].lower(), entry
    sites.start("HUB-07")
    sites.arrived("MBX-03", "carol", "waits")
    assert sites.has("MBX-03", "carol", "waits") == 1
