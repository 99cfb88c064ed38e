"""The verbs of `doveadm director`: each says the native command that it stands for, and does what that does."""

from __future__ import annotations

import pytest
from moving_stage import Commands, session

from gatepost.activemanager.port import ServerWord
from gatepost.routing.decision import ActiveCopy
from gatepost.service.session_messages import Kick


@pytest.mark.parametrize(
    ("arguments", "native", "word"),
    [
        (["remove", "MBX-01"], "server drain MBX-01", ServerWord.DRAINING),
        (["down", "192.0.2.11"], "server maintenance MBX-01", ServerWord.MAINTENANCE),
        (["update", "mbx-01.contoso.com", "0"], "server drain MBX-01", ServerWord.DRAINING),
        (["add", "mbx-01", "0"], "server drain MBX-01", ServerWord.DRAINING),
        (["up", "MBX-01"], "server resume MBX-01", ServerWord.UP),
        (["add", "MBX-01"], "server resume MBX-01", ServerWord.UP),
        (["update", "MBX-01", "150"], "server resume MBX-01", ServerWord.UP),
    ],
)
def test_servers(commands: Commands, arguments: list[str], native: str, word: ServerWord) -> None:
    commands.registry.set_word("MBX-01", ServerWord.MAINTENANCE if word is ServerWord.UP else ServerWord.UP)
    status, _, err = commands.run("director", *arguments)
    assert status == 0
    assert f"= gatepost {native}\n" in err
    assert commands.registry.view().words.get("MBX-01", ServerWord.UP) is word


def test_a_weight_means_nothing_and_says_so(commands: Commands) -> None:
    assert "a weight of 150 means nothing here" in commands.run("director", "update", "MBX-01", "150")[2]


def test_an_unknown_host_is_added_in_the_file(commands: Commands) -> None:
    status, _, err = commands.run("director", "add", "192.0.2.99")
    assert status == 1
    assert "no server 192.0.2.99" in err
    assert "[servers.NAME]" in err


@pytest.mark.parametrize("verb", ["ring", "dump"])
def test_what_has_no_meaning_says_so(commands: Commands, verb: str) -> None:
    before = commands.registry.view()
    status, _, err = commands.run("director", verb, "add", "192.0.2.1")
    assert status == 1
    assert f"director {verb} means nothing here: " in err
    assert commands.registry.view() == before


@pytest.mark.parametrize("user", ["1234", "192.0.2.77", "MBX-01"])
def test_a_user_name_that_looks_like_something_else_is_a_user(commands: Commands, user: str) -> None:
    """Field case 3: typed arguments, never guessed."""
    name = f"{user.lower()}@contoso.com"
    commands.sessions = [[session(1), session(2, user=name)]]
    status, out, err = commands.run("director", "kick", user)
    assert status == 0
    assert f"= gatepost sessions kick --user={user}\n" in err
    kicks = [message for message in commands.asked if isinstance(message, Kick)]
    assert [message.wanted.words() for message in kicks] == [{"user": name}]
    assert "closed: 1 of 1" in out


def test_flush_is_a_dry_run_until_it_is_confirmed(commands: Commands) -> None:
    """Field case 8: prints the affected set; of that host alone."""
    commands.sessions = [[session(1), session(2, server="MBX-02")]]
    status, out, err = commands.run("director", "flush", "MBX-01")
    assert status == 0
    assert "= gatepost sessions kick --server=MBX-01 --dry-run" in err
    assert "s1 " in out
    assert "s2 " not in out
    assert "nothing was ended" in err
    assert not [message for message in commands.asked if isinstance(message, Kick)]
    assert commands.run("director", "flush", "MBX-01", "--yes")[0] == 0
    kicks = [message for message in commands.asked if isinstance(message, Kick)]
    assert [(k.wanted.words(), k.everything) for k in kicks] == [({"server": "MBX-01"}, False)]


def test_flush_all_means_all(commands: Commands) -> None:
    commands.sessions = [[session(1), session(2, server="MBX-02")]]
    assert "2 imap" in commands.run("director", "flush", "all")[1]
    assert commands.run("director", "flush", "all", "--yes")[0] == 0
    (kick,) = [message for message in commands.asked if isinstance(message, Kick)]
    assert (kick.wanted.is_empty, kick.everything) == (True, True)


def test_map_lists_the_sessions(commands: Commands) -> None:
    commands.sessions = [[session(1), session(2, server="MBX-02", user="bob@contoso.com")]]
    _, out, err = commands.run("director", "map", "192.0.2.11")
    assert "= gatepost sessions list --server=MBX-01" in err
    assert "anna@contoso.com" in out
    assert "bob@contoso.com" not in out
    assert "bob@contoso.com" in commands.run("director", "map", "-u", "bob")[1]


def test_status_lists_the_servers(commands: Commands) -> None:
    _, out, err = commands.run("director", "status")
    assert "= gatepost server list" in err
    assert "MBX-01" in out


def test_status_of_a_user_explains(commands: Commands) -> None:
    commands.run("user", "add", "anna", "--database", "DB01", "--no-password")
    status, out, err = commands.run("director", "status", "anna")
    assert (status, err) == (0, "= gatepost explain --protocol imap anna\n")
    assert "MBX-01" in out


def test_a_user_moves_with_the_whole_database_only(commands: Commands) -> None:
    commands.run("user", "add", "1234", "--database", "DB01", "--no-password")
    status, _, err = commands.run("director", "move", "1234", "MBX-02")
    assert status == 1
    assert "1234@contoso.com is where DB01 is active, with all of its users; nothing was changed" in err
    assert "gatepost database move --to=MBX-02 DB01" in err
    assert commands.registry.view().active["DB01"].epoch == 1
    assert commands.run("director", "move", "1234", "MBX-02", "--with-database")[0] == 0
    assert commands.registry.view().active["DB01"] == ActiveCopy("DB01", "MBX-02", 2)
    assert "no user nobody" in commands.run("director", "move", "nobody", "MBX-02")[2]


def test_the_file_of_c_is_used(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEPOST_CONFIG", "/nowhere")
    assert commands.run("director", "remove", "-c", str(commands.path), "MBX-01")[0] == 0
    assert commands.registry.view().words == {"MBX-01": ServerWord.DRAINING}
