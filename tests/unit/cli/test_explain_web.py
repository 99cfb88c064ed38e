"""`gatepost explain` for HTTP: facts, rules passed over and taken, candidates, affinity, redirects and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_files import load_example

from gatepost.cli.explain_report import Question, report, text
from gatepost.cli.main import run
from gatepost.configuration.load import load
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import ActiveCopy, Mailbox, Request, Target, decide

CONFIGURATION = """
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
subnets = ["10.1.0.0/16"]
internet_facing = true
[sites.europe]
subnets = ["10.2.0.0/16"]
internet_facing = true
[sites.asia]
subnets = ["10.3.0.0/16"]
[servers.CAS-01]
site = "usa"
roles = ["client-access"]
endpoints = { http = { port = 8080, tls = "clear" } }
[servers.CAS-02]
site = "europe"
roles = ["client-access"]
fqdn = "cas-02.contoso.com"
endpoints = { https = {}, peer = {} }
[servers.CAS-03]
site = "asia"
roles = ["client-access"]
fqdn = "cas-03.contoso.com"
endpoints = { https = {}, peer = { address = "10.3.0.1" } }
[servers.CAS-04]
site = "asia"
roles = ["client-access"]
fqdn = "cas-04.contoso.com"
endpoints = { https = {}, peer = {} }
[servers.MBX-02]
site = "europe"
version = "2010"
roles = ["mailbox"]
fqdn = "mbx-02.contoso.com"
[servers.MBX-03]
site = "asia"
version = "2010"
roles = ["mailbox"]
fqdn = "mbx-03.contoso.com"
[servers.BE-01]
site = "usa"
version = "2003"
roles = ["mailbox"]
fqdn = "be-01.contoso.com"
endpoints = { https = {} }
[databases.DB02]
copies = [{ server = "MBX-02" }, { server = "MBX-03" }]
[databases.DB03]
copies = [{ server = "MBX-03" }, { server = "MBX-02" }]
[[virtual_directories]]
server = "CAS-02"
service = "owa"
internal_url = "https://cas-02.contoso.com/owa"
external_url = "https://www.europe.contoso.com/owa"
[[virtual_directories]]
server = "CAS-02"
service = "Microsoft-Server-ActiveSync"
internal_url = "https://cas-02.contoso.com/Microsoft-Server-ActiveSync"
external_url = "https://www.europe.contoso.com/Microsoft-Server-ActiveSync"
"""

ACTIVESYNC = "/Microsoft-Server-ActiveSync"
PAGE = Path(__file__).parents[3] / "docs" / "client-access.md"
Explain = Callable[..., tuple[int, dict[str, Any], list[str]]]


@pytest.fixture
def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Runs the command for a user by https, as JSON and as text; answers status, report, lines."""
    path = tmp_path / "gatepost.toml"
    path.write_text(CONFIGURATION)
    everything = frozenset(CLIENT_PROTOCOLS)
    with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
        for number in (2, 3):
            editor.add(Entry(User(f"user{number}@contoso.com", Mailbox(f"DB0{number}"), protocols=everything)))
        editor.add(Entry(User("user4@contoso.com", Mailbox(home_server="BE-01"), protocols=everything)))

    def call(user: str, path_asked: str, *arguments: str) -> tuple[int, dict[str, Any], list[str]]:
        command = ["explain", user, "--protocol", "https", "--path", path_asked, *arguments, "-c", str(path)]
        assert run([*command, "--json"]) in {0, 1}
        found = json.loads(capsys.readouterr().out)
        status = run(command)
        return status, found, capsys.readouterr().out.splitlines()

    return call


def test_the_facts_come_first(explain: Explain) -> None:
    """User, mailbox, its server with version and site, this front end, the class of the path."""
    _, found, lines = explain("user3", "/owa/x")
    assert found["facts"] == {
        "front_end_site": "usa",
        "front_end_version": "modern",
        "edition": "rtm",
        "mailbox_server": "MBX-03",
        "mailbox_version": "2010",
        "mailbox_site": "asia",
        "from_peer": False,
        "path": "/owa/x",
        "path_class": "interactive",
        "service": "owa",
    }
    assert lines[0] == "user3@contoso.com (database DB03) by https at CAS-01"
    assert "  path:      /owa/x, service owa, interactive" in lines
    assert "  mailbox:   MBX-03, version 2010, site asia" in lines


def test_rules_that_were_passed_over_are_told_from_the_one_taken(explain: Explain) -> None:
    """C13: no external URL in asia, so C5 proxies."""
    _, found, lines = explain("user3", "/owa")
    kinds = [(step["rule"], step["kind"]) for step in found["steps"]]
    assert ("C5", "passed over") in kinds
    assert ("C6", "fact") in kinds
    assert [kind for _, kind in kinds].count("taken") == 1
    assert any(line.split()[1:3] == ["C5", "-"] and "no external URL there" in line for line in lines)
    assert any(line.split()[1:3] == ["C5", ">"] for line in lines)


def test_candidates_and_affinity_are_named(explain: Explain) -> None:
    """B1: a cookie keeps the user with one of two."""
    status, found, lines = explain("user3", "/owa")
    assert status == 0
    assert found["affinity"] == "cookie"
    assert [target["server"] for target in found["candidates"]] == ["CAS-03", "CAS-04"]
    assert found["target"]["url"] == "https://cas-03.contoso.com/owa"
    assert "  affinity: cookie; candidates:" in lines
    assert "    CAS-03 at 10.3.0.1 port 444 (implicit, peer)" in lines
    assert lines[-1] == "  => proxy to one of CAS-03, CAS-04"


def test_the_clients_address_has_a_site_and_leads_to_one_server(explain: Explain) -> None:
    """B1: web services stay by the address where there is no cookie; different addresses go to different servers."""
    firsts = set()
    for number in range(20):
        _, found, lines = explain("user3", "/EWS", "--client", f"10.2.0.{number}")
        assert found["facts"]["client_site"] == "europe"
        assert f"  client:    10.2.0.{number}, site europe (subnet {found['facts']['client_subnet']})" in lines
        firsts.add(found["first_for_client"])
        assert f"  without a cookie the client's address leads to {found['first_for_client']}" in lines
    assert firsts == {"CAS-03", "CAS-04"}
    _, found, lines = explain("user3", "/owa", "--client", "203.0.113.9")
    assert "first_for_client" not in found
    assert "  client:    203.0.113.9, site unknown" in lines


def test_a_page_with_the_link(explain: Explain) -> None:
    """C5; being sent on is no failure."""
    status, found, lines = explain("user2", "/owa")
    assert status == 0
    assert found["redirect"] == {"form": "page", "location": "https://www.europe.contoso.com/owa", "prefix": "/owa"}
    assert lines[-1] == "  => redirect to https://www.europe.contoso.com/owa, by a page with the link"


@pytest.mark.parametrize(("version", "outcome"), [("12.0", "proxy"), ("12.1", "redirect"), ("16.1", "redirect")])
def test_a_device_is_told_451_from_protocol_12_1_on(explain: Explain, version: str, outcome: str) -> None:
    """C3: an older one is proxied."""
    assert explain("user2", ACTIVESYNC, "--device-version", version)[1]["outcome"] == outcome


def test_exchange_leads_to_owa_of_this_front_end(explain: Explain) -> None:
    """C7."""
    assert explain("user2", "/exchange")[2][-1] == "  => redirect to /owa, to another path of this front end"


def test_a_2003_mailbox_at_owa_is_refused_with_the_way_out(explain: Explain) -> None:
    """C7, exit status 1."""
    status, found, lines = explain("user4", "/owa")
    assert status == 1
    assert found["refusal"]["cause"] == "old mailbox"
    assert found["refusal"]["temporary"] is False
    assert lines[-1] == "  => refuse: the mailbox is on a version 2003 server: use /exchange instead of /owa"
    assert explain("user4", "/exchange")[2][-1] == "  => serve from BE-01"


def test_what_came_from_a_front_end_is_a_loop(explain: Explain) -> None:
    """C11, as CAS-01 would decide it."""
    status, found, lines = explain("user3", "/owa", "--from-peer")
    assert (status, found["refusal"]["cause"]) == (1, "loop")
    assert "  request:   passed on by another front end" in lines


@pytest.mark.parametrize("arguments", [("--client", "nowhere"), ("--device-version", "new")])
def test_options_that_make_no_sense_are_refused(explain: Explain, arguments: tuple[str, str], tmp_path: Path) -> None:
    """Exit status 2 of the option parser, before anything is opened."""
    assert run(["explain", "user3", *arguments, "-c", str(tmp_path / "gatepost.toml")]) == 2


def test_health_can_be_told_by_who_knows_it(tmp_path: Path) -> None:
    """The report asks for each candidate."""
    path = tmp_path / "gatepost.toml"
    path.write_text(CONFIGURATION)
    organization = load(str(path)).require().organization
    user = User("user3@contoso.com", Mailbox("DB03"), protocols=frozenset(CLIENT_PROTOCOLS))
    active = ActiveCopy("DB03", "MBX-03", 1)
    decision = decide(organization, Request(Protocol.HTTPS, "CAS-01", "/owa"), user.mailbox, active)

    def health(target: Target) -> str:
        return "down since 10:00" if target.server == "CAS-03" else ""

    found = report(organization, Question(user, Protocol.HTTPS, "CAS-01", "/owa"), decision, active, health)
    assert [target.get("health") for target in found["candidates"]] == ["down since 10:00", None]
    assert any(line.endswith("(implicit, peer): down since 10:00") for line in text(found))


def test_the_page_for_operators_shows_what_is_printed() -> None:
    """docs/client-access.md, for user3 of the example with three sites."""
    organization = load_example("exchange-2010-three-sites.toml").require().organization
    user = User("user3@contoso.com", Mailbox("DB03"), protocols=frozenset(CLIENT_PROTOCOLS))
    active = ActiveCopy("DB03", "MBX-03", 1)
    decision = decide(organization, Request(Protocol.HTTPS, "CAS-01", "/owa"), user.mailbox, active)
    question = Question(user, Protocol.HTTPS, "CAS-01", "/owa")
    printed = "\n".join(f"    {line}" for line in text(report(organization, question, decision, active)))
    assert printed in PAGE.read_text()
