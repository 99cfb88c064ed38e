"""`gatepost explain`: each step with its rule, the outcome, an exit status for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.cli.main import run
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import Mailbox

CONFIGURATION = """
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
internet_facing = true
[sites.asia]
[servers.CAS-01]
site = "usa"
roles = ["client-access"]
endpoints = { imap = { port = 1143, tls = "clear" } }
[servers.CAS-03]
site = "asia"
roles = ["client-access"]
fqdn = "cas-03.contoso.com"
endpoints = { imap = { port = 1143, tls = "clear" } }
[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
endpoints = { imap = { address = "127.0.0.9", tls = "clear" } }
[servers.MBX-03]
site = "asia"
roles = ["mailbox"]
endpoints = { imap = { tls = "clear" } }
[servers.EX10]
site = "asia"
version = "2010"
roles = ["mailbox"]
endpoints = { imap = { tls = "clear" } }
[databases.DB01]
copies = [{ server = "MBX-01" }, { server = "MBX-03" }]
[databases.OLD]
copies = [{ server = "EX10" }]
"""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command for a user; answers status, output, errors."""
    path = tmp_path / "gatepost.toml"
    path.write_text(CONFIGURATION)
    everything = frozenset(CLIENT_PROTOCOLS)
    with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
        editor.add(Entry(User("user1@contoso.com", Mailbox("DB01"), protocols=everything), ("one@contoso.com",)))
        editor.add(Entry(User("user4@contoso.com", Mailbox("OLD"), protocols=everything)))
        editor.add(Entry(User("web@contoso.com", Mailbox("DB01"), protocols=frozenset({Protocol.HTTPS}))))

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(["explain", *arguments, "-c", str(path)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_each_step_has_its_rule_and_the_outcome_comes_last(explain: Call) -> None:
    """C13, and a database that was never active is where `serve` will activate it."""
    status, out, _ = explain("USER1")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "user1@contoso.com (database DB01) by imap at CAS-01"
    assert "  mailbox:   MBX-01, version modern, site usa" in lines
    rules = [line.split() for line in lines[lines.index("  rules (- passed over, > taken):") + 1 : -1]]
    assert [rule[:2] for rule in rules] == [["1.", "B5"], ["2.", "C1"], ["3.", "C1"]]
    assert [">" in rule for rule in rules] == [False, False, True]
    assert "127.0.0.9 port 143 (clear)" in lines[-2]
    assert lines[-1].strip() == "=> serve from MBX-01"


def test_an_alias_is_the_same_user_and_the_registry_has_the_last_word(explain: Call, tmp_path: Path) -> None:
    """After a move."""
    SqliteRegistry(str(tmp_path / "registry.sqlite")).activate("DB01", "MBX-03")
    status, out, _ = explain("one", "--json")
    report = json.loads(out)
    assert status == 0
    assert (report["user"], report["outcome"], report["target"]["server"]) == ("user1@contoso.com", "proxy", "MBX-03")
    assert report["target"]["epoch"] == 1


def test_another_front_end_may_be_asked_about(explain: Call) -> None:
    """`--from`."""
    status, out, _ = explain("user4", "--from", "CAS-03")
    assert status == 0
    assert out.rstrip().endswith("=> serve from EX10")
    assert explain("user1", "--from", "MBX-01")[0] == 1


def test_a_refusal_says_why_and_where_to_go(explain: Call) -> None:
    """C9, exit status 1."""
    status, out, _ = explain("user4")
    assert status == 1
    assert "use cas-03.contoso.com" in out.splitlines()[-1]
    assert json.loads(explain("user4", "--json")[1])["refusal"]["cause"] == "other site"


def test_a_protocol_the_user_may_not_use_is_a_refusal(explain: Call) -> None:
    """The decision would let them in; the directory does not."""
    status, out, _ = explain("web")
    assert status == 1
    assert "may not use imap" in out


def test_who_does_not_exist_is_an_error_in_one_line(explain: Call) -> None:
    """Exit status 1, nothing on standard output."""
    status, out, err = explain("nobody")
    assert (status, out) == (1, "")
    assert "nobody@contoso.com is not in the directory" in err
