"""Cmdlets for shadow queues and the safety net: names, properties, what is asked of the transports (exchange-facts 4.6,
5.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shell_stage import Operator, Stage

from gatepost.shell import queue_cmdlets, queue_names
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session

FILE = """
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
[servers.HUB-01]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-01.contoso.com"
address = "192.0.2.1"
endpoints = { smtp = { port = 25 } }
[servers.HUB-02]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-02.contoso.com"
address = "192.0.2.2"
endpoints = { smtp = { port = 25 } }
[front_end]
server = "HUB-01"
registry = "registry.sqlite"
directory = "directory.sqlite"
[front_end.transport]
spool = "spool"
"""
QUEUE = {
    "server": "HUB-02", "identity": "1d", "messages": 3, "taking_over": 0, "heard": 1_800_000_000.0,
    "next_heartbeat": 1_800_000_120.0, "failures": 2, "number": 3, "status": "Retry", "oldest": 1_799_999_000.0,
}  # fmt: skip
MESSAGE = {
    "number": 17, "queue": 3, "server": "HUB-02", "since": 1_799_999_000.0, "size": 1234, "from": "a@contoso.com",
    "message_id": "<1@contoso.com>", "subject": "hello", "received": 1_799_999_000.0, "expires": 1_800_009_000.0,
    "addresses": ["b@example.org"],
    "recipients": [{"address": "b@example.org", "state": "shadowed", "reply": "", "server": ""}],
}  # fmt: skip
ORDINARY = {
    "identity": 1, "delivery_type": "SmtpDeliveryToMailbox", "category": "Internal", "next_hop_domain": "DB01",
    "next_hop_connector": "", "status": "Ready", "messages": 1, "deferred": 0, "connections": 0, "last_error": "",
    "last_retry": 0.0, "next_retry": 0.0, "retry_count": 0, "sent": 0, "incoming_rate": 0.0, "outgoing_rate": 0.0,
    "velocity": 0.0,
}  # fmt: skip
REQUEST = {
    "request": "r1", "database": "DB01", "since": 1_799_990_000.0, "until": 1_799_999_000.0, "asked": 1_799_999_000.0,
    "state": "done", "found": 7, "redelivered": 7, "answers": {}, "not_reached": {"HUB-02": "no answer"},
}  # fmt: skip


class Transports:
    """Both hubs run here and answer the same."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {
            "queues": [ORDINARY], "shadow_queues": [QUEUE], "shadow_messages": [MESSAGE], "shadow_resubmit": 3,
            "safety_net": {"kept": [], "requests": [REQUEST]},
            "safety_net_redeliver": {"request": "r1", "hubs": [{"hub": "HUB-02", "error": "no answer"}]},
        }  # fmt: skip

    def __call__(self, _configuration: object, server: str, verb: str, **arguments: Any) -> Any:
        self.asked.append((server, verb, arguments))
        return self.answers[verb]


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> Transports:
    made = Transports()
    monkeypatch.setattr(queue_names, "ask_transport", made)
    for module in (queue_names, queue_cmdlets):
        monkeypatch.setattr(module, "servers_here", lambda _: ["HUB-01", "HUB-02"])
    return made


@pytest.fixture
def shell(tmp_path: Path, transports: Transports) -> Stage:
    path = tmp_path / "hub.toml"
    path.write_text(FILE)
    operator = Operator()
    return Stage(path, Session(str(path), operator), operator)


def test_a_shadow_queue_has_the_sources_properties(shell: Stage) -> None:
    [queue] = shell.run("Get-Queue HUB-01\\Shadow\\3")
    assert queue.get("Identity") == "HUB-01\\Shadow\\3"
    assert queue.get("DeliveryType") == "ShadowRedundancy"
    assert queue.get("NextHopCategory") == "Internal"
    assert queue.get("NextHopDomain") == "hub-02.contoso.com", "the primary's full host name"
    assert queue.get("NextHopConnector") == "00000000-0000-0000-0000-000000000000"
    assert (queue.get("MessageCount"), queue.get("Status"), queue.get("RetryCount")) == (3, "Retry", 2)


@pytest.mark.parametrize(
    ("identity", "found", "asked"),
    [
        ("HUB-01\\Shadow\\3", ["HUB-01\\Shadow\\3"], [("HUB-01", "3")]),
        ("Shadow\\3", ["HUB-01\\Shadow\\3"], [("HUB-01", "3")]),
        ("hub-02.contoso.com\\shadow", ["HUB-02\\Shadow\\3"], [("HUB-02", "*")]),
        ("*\\Shadow", ["HUB-01\\Shadow\\3", "HUB-02\\Shadow\\3"], [("HUB-01", "*"), ("HUB-02", "*")]),
    ],
)
def test_shadow_queues_are_named_in_the_sources_grammar(
    shell: Stage, transports: Transports, identity: str, found: list[str], asked: list[tuple[str, str]]
) -> None:
    """`[Server\\]Shadow\\<int>`."""
    assert shell.values(f"Get-Queue -Identity {identity}", "Identity") == found
    assert [(server, arguments["primary"]) for server, _, arguments in transports.asked] == asked


def test_all_queues_are_also_the_shadow_queues(shell: Stage) -> None:
    assert shell.values("Get-Queue", "Identity") == ["HUB-01\\1", "HUB-01\\Shadow\\3"]
    assert shell.values("Get-Queue -Include ShadowRedundancy", "Identity") == ["HUB-01\\Shadow\\3"]
    assert shell.values("Get-Queue -Exclude ShadowRedundancy", "Identity") == ["HUB-01\\1"]
    assert shell.values("Get-Queue *\\Shadow -Filter { MessageCount -gt 3 }", "Identity") == []


def test_messages_of_a_shadow_queue(shell: Stage, transports: Transports) -> None:
    for text in ("Get-Message HUB-01\\Shadow\\3\\17", "Get-Message Shadow\\3\\17"):
        [message] = shell.run(text)
        assert message.get("Identity") == "HUB-01\\Shadow\\3\\17"
        assert message.get("Queue") == "HUB-01\\Shadow\\3"
        assert transports.asked[-1][2] == {"primary": "3", "limit": 1000, "message": 17}
    [message] = shell.run("Get-Queue *\\Shadow | Get-Message -IncludeRecipientInfo")[:1]
    assert message.get("Recipients") == ("b@example.org;shadowed",)
    assert shell.values("Get-Message -Queue HUB-01\\Shadow\\3 -Filter { FromAddress -eq 'x@y.z' }", "Identity") == []


def test_a_shadow_queue_is_resubmitted_and_nothing_else(shell: Stage, transports: Transports) -> None:
    shell.run("Retry-Queue HUB-01\\Shadow\\3 -Resubmit $true")
    assert transports.asked[-1] == ("HUB-01", "shadow_resubmit", {"primary": "3"})
    with pytest.raises(ShellError, match="nothing is sent from"):
        shell.run("Retry-Queue HUB-01\\Shadow\\3")
    with pytest.raises(ShellError, match="nothing is sent from"):
        shell.run("Suspend-Queue HUB-01\\Shadow\\3")
    with pytest.raises(ShellError, match="another hub's message"):
        shell.run("Remove-Message HUB-01\\Shadow\\3\\17")


def test_what_if_resubmits_nothing(shell: Stage, transports: Transports) -> None:
    shell.run("Retry-Queue HUB-01\\Shadow\\3 -Resubmit $true -WhatIf")
    assert shell.operator.said == ["What if: Route the messages of the queue HUB-01\\Shadow\\3 anew"]
    assert [verb for _, verb, _ in transports.asked] == ["shadow_queues"]


def test_requests_to_deliver_again(shell: Stage, transports: Transports) -> None:
    [request] = shell.run("Get-ResubmitRequest")
    assert (request.get("Identity"), request.get("Destination"), request.get("State")) == ("r1", "DB01", "Completed")
    assert request.get("UnresponsiveServers") == ("HUB-02",)
    with pytest.raises(ShellError, match="knows no request r2"):
        shell.run("Get-ResubmitRequest r2")


def test_a_request_is_added(shell: Stage, transports: Transports) -> None:
    times = '-StartTime "2026-11-30 16:00+00:00" -EndTime "2026-11-30 17:00+00:00"'
    [request] = shell.run(f"Add-ResubmitRequest -Destination DB01 {times}")
    assert request.get("Identity") == "r1"
    wanted = {"database": "DB01", "since": 1_796_054_400.0, "until": 1_796_058_000.0}
    assert ("HUB-01", "safety_net_redeliver", wanted) in transports.asked
    assert shell.operator.warned == ["HUB-02 is told when it can be reached: no answer"]
    with pytest.raises(ShellError, match="takes a time"):
        shell.run('Add-ResubmitRequest -Destination DB01 -StartTime soon -EndTime "2026-11-30"')
