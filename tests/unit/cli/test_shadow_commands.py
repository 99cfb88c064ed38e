"""`gatepost shadow` and `gatepost safety-net`: what is asked of the transport, and how its answers look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from gatepost.cli import safety_net, shadow
from gatepost.cli.main import run
from gatepost.cli.moments import read_moment

QUEUE = {
    "server": "HUB-02", "identity": "1d", "messages": 3, "taking_over": 1, "heard": 1_800_000_000.0,
    "next_heartbeat": 1_800_000_120.0, "failures": 2, "number": 1, "status": "Active", "oldest": 1_799_999_000.0,
}  # fmt: skip
MESSAGE = {
    "number": 17, "queue": 1, "server": "HUB-02", "since": 1_799_999_000.0, "size": 1234, "from": "a@contoso.com",
    "message_id": "<1@contoso.com>", "subject": "hello",
    "recipients": [{"address": "b@example.org", "state": "shadowed", "reply": "", "server": ""}],
}  # fmt: skip
ORGANIZATION = """
[organization]
name = "contoso"
[sites.usa]
[servers.HUB-02]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-02.contoso.com"
address = "192.0.2.2"
"""


class Transport:
    """Notes what was asked of it; `answers` are by verb."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def ask(self, _config: str, _server: str, verb: str, **arguments: Any) -> Any:
        self.asked.append((verb, arguments))
        return self.answers[verb]

    def ask_each(self, config: str, server: str, verb: str, arguments: dict[str, Any], *, everyone: bool) -> Any:
        names = ["HUB-01", "HUB-03"] if everyone else ["HUB-01"]
        return [(name, self.ask(config, server, verb, **arguments)) for name in names]


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> Transport:
    made = Transport()
    for module in (shadow, safety_net):
        monkeypatch.setattr(module, "ask", made.ask)
        monkeypatch.setattr(module, "ask_each", made.ask_each)
    monkeypatch.setattr(shadow, "_primary", lambda _config, name: {"hub-02.contoso.com": "HUB-02"}.get(name, name))
    return made


def test_shadow_queues_are_listed(transport: Transport, capsys: pytest.CaptureFixture[str]) -> None:
    transport.answers["shadow_queues"] = [QUEUE]
    assert run(["shadow", "list"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["queue", "messages", "status", "oldest", "last", "contact", "failed", "primary"]
    assert line.split()[:3] == ["1", "3", "Active"]
    assert line.endswith("2 HUB-02, being taken over: 1")
    assert transport.asked == [("shadow_queues", {"primary": "*"})]


def test_lists_for_programs_name_the_hub(transport: Transport, capsys: pytest.CaptureFixture[str]) -> None:
    transport.answers["shadow_queues"] = [QUEUE]
    assert run(["shadow", "list", "hub-02.contoso.com", "--json", "--all-servers"]) == 0
    assert [entry["hub"] for entry in json.loads(capsys.readouterr().out)] == ["HUB-01", "HUB-03"]
    assert transport.asked[0] == ("shadow_queues", {"primary": "HUB-02"}), "a full host name stands for its server"


def test_shadows_are_shown_with_their_recipients(transport: Transport, capsys: pytest.CaptureFixture[str]) -> None:
    transport.answers["shadow_messages"] = [MESSAGE]
    assert run(["shadow", "show", "1/17"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("1/17 ")
    assert first.endswith("from <a@contoso.com> <1@contoso.com> hello")
    assert second == "    <b@example.org> shadowed"
    assert transport.asked == [("shadow_messages", {"primary": "1", "message": 17, "limit": 1000})]


def test_a_primary_or_one_message_is_resubmitted(transport: Transport, capsys: pytest.CaptureFixture[str]) -> None:
    transport.answers |= {"shadow_messages": [MESSAGE], "shadow_resubmit": 3}
    assert run(["shadow", "resubmit", "HUB-02", "--yes"]) == 0
    assert capsys.readouterr().out == "messages: 3\n"
    assert run(["shadow", "resubmit", "HUB-02/17", "--yes"]) == 0
    assert [arguments for _, arguments in transport.asked] == [
        {"primary": "HUB-02"}, {"primary": "HUB-02", "message": 17}
    ]  # fmt: skip
    assert run(["shadow", "resubmit", "HUB-02/x", "--yes"]) == 2


def test_nothing_is_resubmitted_unasked(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    transport.answers["shadow_messages"] = [MESSAGE]
    questions: list[str] = []
    monkeypatch.setattr(click, "confirm", lambda text, **_: questions.append(text))
    assert run(["shadow", "resubmit", "*"]) == 130
    assert questions == ["Take over *, messages: 1?"]
    assert [verb for verb, _ in transport.asked] == ["shadow_messages"]


def test_full_host_names_come_from_the_organization(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gatepost.configuration.load import load_organization

    (tmp_path / "o.toml").write_text(ORGANIZATION)
    organization = load_organization(str(tmp_path / "o.toml")).organization

    class Loaded:
        pass

    loaded = Loaded()
    loaded.organization = organization  # type: ignore[attr-defined]
    monkeypatch.setattr(shadow, "load_configuration", lambda _: loaded)
    assert shadow._primary("", "HUB-02.contoso.com") == "HUB-02"
    assert shadow._primary("", "3") == "3"


KEPT = {"database": "DB01", "messages": 12, "of_others": 5, "until": 1_800_000_000.0}
REQUEST = {
    "request": "r1", "database": "DB01", "since": 1_799_990_000.0, "until": 1_799_999_000.0, "asked": 1_799_999_000.0,
    "state": "under way", "found": 7, "redelivered": 3, "answers": {}, "not_reached": {"HUB-02": "no answer"},
}  # fmt: skip


def test_the_safety_net_is_listed(transport: Transport, capsys: pytest.CaptureFixture[str]) -> None:
    transport.answers["safety_net"] = {"kept": [KEPT], "requests": [REQUEST]}
    assert run(["safety-net", "list", "DB01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("DB01: messages: 12, of those other hubs deliver again: 5; the oldest is kept until ")
    assert lines[1].startswith("request r1: DB01, delivered from ")
    assert lines[2:] == [
        "  under way: 3 delivered again, 7 found at its beginning",
        "  HUB-02 is still to be told: no answer",
    ]
    assert transport.asked == [("safety_net", {"database": "DB01"})]


def test_mail_is_delivered_again(transport: Transport, capsys: pytest.CaptureFixture[str]) -> None:
    transport.answers["safety_net_redeliver"] = {"request": "r1", "hubs": [{"hub": "HUB-01", "messages": 7}]}
    words = ["safety-net", "redeliver", "--database", "DB01", "--since", "2026-11-30 16:00+00:00"]
    assert run([*words, "--until", "2026-11-30 17:00+00:00", "--yes"]) == 0
    assert capsys.readouterr().out == "request r1\n  HUB-01: messages: 7\n"
    wanted = {"database": "DB01", "since": 1_796_054_400.0, "until": 1_796_058_000.0}
    assert transport.asked == [("safety_net_redeliver", wanted)]


def test_hubs_that_are_told_later_are_said(transport: Transport, capsys: pytest.CaptureFixture[str]) -> None:
    transport.answers["safety_net_redeliver"] = {"request": "r1", "hubs": [{"hub": "HUB-02", "error": "refused"}]}
    assert run(["safety-net", "redeliver", "--database", "DB01", "--since", "2h", "--yes"]) == 3
    assert "  HUB-02: not reached, told later: refused" in capsys.readouterr().out


def test_moments() -> None:
    assert read_moment("2h", 10_000.0) == 2800.0
    assert read_moment("90 min", 10_000.0) == 4600.0
    assert read_moment("2026-11-30 16:00+00:00") == 1_796_054_400.0
    with pytest.raises(click.BadParameter, match="no time"):
        read_moment("yesterday")
