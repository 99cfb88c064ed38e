"""`gatepost database status|move|block|dial` and `gatepost server drain|resume`, on an embedded registry."""

from __future__ import annotations

import json

import pytest
from moving_stage import Commands, session

from gatepost.activemanager.asking import asked, copy_service
from gatepost.activemanager.port import Dial, Move, Observation, ServerWord
from gatepost.routing.decision import ActiveCopy
from gatepost.service import moving

# Moving


def test_a_move_goes_to_the_best_copy_and_says_why(commands: Commands) -> None:
    """What is touched is said first: sessions by front end and protocol (field case 8)."""
    commands.sessions = [[session(1), session(2), session(3, "https"), session(4, database="DB02")]]
    status, out, err = commands.run("database", "move", "DB01")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "DB01 is active on MBX-01, epoch 1",
        "  MBX-02: chosen: healthy, preference 2",
        "  MBX-03: usable: healthy, preference 3",
        "  MBX-01: not: it is the copy that is given up",
        "sessions at MBX-01: CAS-01: 1 https, 2 imap",
        "no manager runs, this command does it: activate MBX-02",
        "DB01: MBX-01 (epoch 1) → MBX-02 (epoch 2)",
    ]
    assert commands.registry.view().active["DB01"] == ActiveCopy("DB01", "MBX-02", 2)


def test_a_dry_run_changes_nothing_and_names_the_hooks(commands: Commands) -> None:
    calls = commands.add_hooks(lag="print(0)", demote="", promote="")
    before = commands.registry.view()
    status, out, _ = commands.run("database", "move", "DB01", "--to", "MBX-03", "--dry-run", "--wait")
    assert status == 0
    assert (
        "this command does it: demote MBX-01, wait until MBX-03 lacks nothing, promote MBX-03, activate MBX-03" in out
    )
    assert out.splitlines()[-1] == "dry run: nothing was changed"
    assert commands.registry.view() == before
    assert calls.read_text() == ""


def test_without_a_manager_the_command_runs_the_hooks(commands: Commands) -> None:
    """In a planned move's order, with no term of a manager; sign-ins wait meanwhile."""
    waiting = f"""
import sqlite3
moves = sqlite3.connect({str(commands.folder / "registry.sqlite")!r}).execute("SELECT target FROM moves").fetchall()
print("parked for", moves[0][0])
"""
    calls = commands.add_hooks(lag="print(0)", demote="", promote=waiting)
    status, out, _ = commands.run("database", "move", "DB01", "--to", "MBX-02", "--reason", "patches")
    assert status == 0
    assert calls.read_text().splitlines() == [
        "demote DB01 MBX-01 MBX-02 MBX-01 2 0",
        "lag DB01 MBX-01 MBX-02 MBX-02 2 0",
        "promote DB01 MBX-01 MBX-02 MBX-02 2 0",
    ]
    assert "(parked for MBX-02)" in out
    assert not commands.registry.view().moves


def test_a_hook_that_fails_stops_the_move_with_its_output(commands: Commands) -> None:
    """What was done is undone: the old server is promoted again, and sign-ins go on there."""
    calls = commands.add_hooks(lag="print(0)", demote="", promote="if 'MBX-02' == sys.argv[5]: sys.exit('no disk')")
    status, out, err = commands.run("database", "move", "DB01", "--to", "MBX-02")
    assert status == 1
    assert err == "gatepost: DB01 was not moved, promote of MBX-02 failed: exit status 1: no disk\n"
    assert "promote MBX-02: failed (exit status 1: no disk)" in out
    assert [line.split()[0] + " " + line.split()[4] for line in calls.read_text().splitlines()] == [
        "demote MBX-01",
        "lag MBX-02",
        "promote MBX-02",
        "demote MBX-02",
        "promote MBX-01",
    ]
    view = commands.registry.view()
    assert (view.active["DB01"].epoch, view.moves) == (1, {})


def test_a_manager_that_holds_the_lease_is_asked(commands: Commands) -> None:
    """Its hooks run where it runs; ours do not."""
    calls = commands.add_hooks(promote="")
    with commands.manager():
        status, out, _ = commands.run("database", "move", "DB01")
    assert status == 0
    assert "the manager CAS-02/7/abc is asked for it" in out
    assert calls.read_text() == ""
    assert commands.registry.view().active["DB01"] == ActiveCopy("DB01", "MBX-02", 2)
    assert commands.registry.history("DB01")[-1].holder == "CAS-02/7/abc"


def test_a_managers_refusal_is_said_with_its_reason(commands: Commands) -> None:
    with commands.manager(lambda _: "promote of MBX-02: exit status 7: no route"):
        status, _, err = commands.run("database", "move", "DB01")
    assert status == 1
    assert err == "gatepost: DB01 was not moved, the manager says: promote of MBX-02: exit status 7: no route\n"
    assert commands.registry.view().active["DB01"].epoch == 1


def test_a_managers_move_that_cannot_be_undone_is_said_at_once(commands: Commands) -> None:
    """It stays in the registry, and the operator must know that sign-ins wait."""
    with commands.manager(lambda _: "stands: promote of MBX-02: exit status 7"):
        status, _, err = commands.run("database", "move", "DB01")
    assert status == 1
    assert "the manager says: promote of MBX-02: exit status 7; it cannot be undone and stands: sign-ins wait" in err
    assert commands.registry.view().moves["DB01"].reason.startswith("manager's term 1")


def test_a_request_that_no_manager_takes_up_is_withdrawn(
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sign-ins must not wait for what nobody does."""
    monkeypatch.setattr(moving, "TAKEN_SECONDS", 0.3)
    with commands.manager(lambda _: "deaf"):
        status, _, err = commands.run("database", "move", "DB01")
    assert status == 1
    assert "no manager took it up" in err
    assert not commands.registry.view().moves


def test_a_request_is_withdrawn_when_the_operators_patience_ends(commands: Commands) -> None:
    with commands.manager(lambda _: "deaf"):
        status, _, err = commands.run("database", "move", "DB01", "--seconds", "0.3")
    assert status == 1
    assert "not done after 0.3 s; nothing was changed" in err
    assert not commands.registry.view().moves


def test_wait_returns_when_the_last_session_is_off_the_old_server(commands: Commands) -> None:
    both, one = [session(1), session(2)], [session(2)]
    commands.sessions = [both, both, one, []]
    status, out, _ = commands.run("database", "move", "DB01", "--wait")
    assert status == 0
    assert out.splitlines()[-1].startswith("no session is at MBX-01 any more, after ")
    assert len(commands.asked) == 4
    assert commands.asked[-1].wanted.words() == {"database": "DB01", "server": "MBX-01"}


def test_wait_names_who_is_left_and_ends_with_3(commands: Commands) -> None:
    commands.sessions = [[session(1), session(2, "pop3", "bob@contoso.com")]]
    status, out, _ = commands.run("database", "move", "DB01", "--wait", "--seconds", "0.3")
    assert status == 3
    assert "sessions are still at MBX-01: 2" in out
    assert "  s2 pop3 192.0.2.77 bob@contoso.com" in out
    assert commands.registry.view().active["DB01"].server == "MBX-02"


def test_a_move_for_programs(commands: Commands) -> None:
    commands.sessions = [[session(1)]]
    status, out, _ = commands.run("database", "move", "DB01", "--wait", "--seconds", "0.2", "--json")
    told = json.loads(out)
    assert status == 3
    assert (told["database"], told["source"], told["target"], told["epoch"]) == ("DB01", "MBX-01", "MBX-02", 2)
    assert (told["left"], told["sessions"], told["moved"]) == (1, {"CAS-01": {"imap": 1}}, True)
    assert [copy["server"] for copy in told["copies"]] == ["MBX-02", "MBX-03", "MBX-01"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["DB09"], "no database DB09"),
        (["DB01", "--to", "MBX-09"], "no server MBX-09"),
        (["DB02", "--to", "MBX-03"], "DB02 cannot be moved to MBX-03: it has no copy"),
        (["DB03"], "no other copy of DB03 may be activated"),
        (["DB01", "--cancel"], "no move of DB01 is under way"),
    ],
)
def test_moves_that_are_refused(commands: Commands, arguments: list[str], words: str) -> None:
    before = commands.registry.view()
    status, _, err = commands.run("database", "move", *arguments)
    assert status == 1
    assert words in err
    assert commands.registry.view() == before


def test_a_database_that_is_there_already_is_no_fault(commands: Commands) -> None:
    """So that scripts may be run again."""
    status, out, _ = commands.run("database", "move", "DB01", "--to", "MBX-01", "--wait")
    assert status == 0
    assert "DB01 is on MBX-01 already" in out
    assert commands.registry.view().active["DB01"].epoch == 1


def test_blocked_draining_and_failed_copies_are_not_chosen(commands: Commands) -> None:
    commands.registry.set_blocked("DB01", "MBX-02", blocked=True)
    with commands.manager() as lease:
        commands.registry.observe([Observation("MBX-03", "imap", False, 1.0, "refused")], lease)
        status, _, err = commands.run("database", "move", "DB01")
    assert status == 1
    assert "MBX-02: the copy is blocked from activation" in err
    assert "MBX-03: imap has failed there" in err
    named = commands.run("database", "move", "DB01", "--to", "MBX-02")[2]
    assert "cannot be moved to MBX-02: the copy is blocked" in named
    assert commands.run("database", "move", "DB01")[0] == 0, "what nobody looks at any more is no reason"
    assert commands.registry.view().active["DB01"].server == "MBX-03"


def test_a_move_under_way_is_in_the_way_and_can_be_cancelled(commands: Commands) -> None:
    commands.registry.begin_move(Move("DB01", "MBX-01", "MBX-02", 1, 1e9, "somebody"))
    status, _, err = commands.run("database", "move", "DB01")
    assert status == 1
    assert "a move of DB01 is under way from MBX-01 to MBX-02: somebody" in err
    assert "move under way since 2001-09-0" in commands.run("database", "status", "DB01")[1]
    status, out, _ = commands.run("database", "move", "DB01", "--cancel")
    assert status == 0
    assert "is ended" in out
    assert not commands.registry.view().moves


def test_a_managers_own_move_cannot_be_cancelled(commands: Commands) -> None:
    with commands.manager():
        commands.registry.begin_move(Move("DB01", "MBX-01", "MBX-02", 1, 1.0, "manager's term 1: it drains"))
        status, _, err = commands.run("database", "move", "DB01", "--cancel")
        assert status == 1
        assert "the manager CAS-02/7/abc goes on with it" in err
        assert commands.registry.view().moves


def test_interrupted_before_the_promotion_the_move_is_ended(
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands.add_hooks(demote="", promote="")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moving, "run_hook", interrupt)
    status, out, _ = commands.run("database", "move", "DB01")
    assert status == 130
    assert "interrupted: the move is ended. MBX-01 may have been demoted" in out
    assert not commands.registry.view().moves


def test_interrupted_while_promoting_the_move_stands(
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody may sign in where perhaps another one writes."""
    commands.add_hooks(promote="")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moving, "run_hook", interrupt)
    status, out, _ = commands.run("database", "move", "DB01")
    assert status == 130
    assert "the move stands" in out
    assert commands.registry.view().moves["DB01"].target == "MBX-02"


def test_somebody_else_moves_it_at_the_same_time(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compare-and-swap has the last word, and what is said is true."""
    choose = moving.choose

    def slow(*arguments: object) -> object:
        commands.registry.activate("DB01", "MBX-03")
        return choose(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(moving, "choose", slow)
    status, _, _ = commands.run("database", "move", "DB01", "--to", "MBX-02")
    assert status == 0
    assert [entry.server for entry in commands.registry.history("DB01")] == ["MBX-01", "MBX-03", "MBX-02"]


# Status, block, dial


def test_status_shows_word_and_observed_health_apart(commands: Commands) -> None:
    """Field case 7: operator state and observed health are separate fields."""
    commands.registry.set_word("MBX-02", ServerWord.DRAINING)
    commands.run("database", "block", "DB01", "MBX-03")
    with commands.manager() as lease:
        seen = [Observation("MBX-01", "imap", True, 1.0), Observation("MBX-02", "imap", False, 1.0, "refused")]
        commands.registry.observe(seen, lease)
        lines = commands.run("database", "status", "DB01")[1].splitlines()
        told = json.loads(commands.run("database", "status", "DB01", "--json")[1])
    assert lines == [
        "manager: CAS-02/7/abc, term 1",
        "DB01: active on MBX-01, epoch 1, dial good availability",
        "  * 1 MBX-01           Mounted      healthy",
        "    2 MBX-02           ServiceDown  imap fails (refused), server draining",
        "    3 MBX-03           Passive      not observed, blocked",
    ]
    assert told["manager"] == {"holder": "CAS-02/7/abc", "term": 1}
    (database,) = told["databases"]
    assert [(c["server"], c["word"], c["blocked"]) for c in database["copies"]] == [
        ("MBX-01", "up", False),
        ("MBX-02", "draining", False),
        ("MBX-03", "up", True),
    ]
    assert "manager: none holds the lease" in commands.run("database", "status")[1]


@pytest.mark.parametrize(
    ("reason", "status", "health"),
    [
        ("promote of MBX-02: no disk", "Failed", "the last move failed: promote of MBX-02: no disk"),
        ("demote of MBX-01: no route", "Passive", "the last move failed: demote of MBX-01: no route"),
        ("choice: the copy is blocked from activation", "Passive", "not observed"),
    ],
)
def test_what_came_of_the_last_move_to_a_copy(commands: Commands, reason: str, status: str, health: str) -> None:
    """A copy has failed where it could not be promoted, not where another server's hook failed or it was refused."""
    with commands.manager() as lease:
        commands.registry.observe([Observation("MBX-02", copy_service("DB01"), False, 1.0, reason)], lease)
    told = json.loads(commands.run("database", "status", "DB01", "--json")[1])
    (copy,) = [copy for copy in told["databases"][0]["copies"] if copy["server"] == "MBX-02"]
    assert (copy["status"], copy["health"]) == (status, health)


def test_a_refusal_is_said_without_the_step(commands: Commands) -> None:
    with commands.manager(lambda _: "choice: imap has not been seen well yet"):
        err = commands.run("database", "move", "DB01")[2]
    assert err == "gatepost: DB01 was not moved, the manager says: imap has not been seen well yet\n"


def test_status_asks_the_lag_hooks(commands: Commands) -> None:
    calls = commands.add_hooks(lag="print(4.5) if sys.argv[5] == 'MBX-02' else sys.exit('no route')")
    lines = commands.run("database", "status", "DB01")[1].splitlines()
    assert lines[-2].endswith("MBX-02           Passive      not observed, lag 4.5")
    assert lines[-1].endswith("lag unknown (exit status 1: no route)")
    assert len(calls.read_text().splitlines()) == 2
    assert "lag" not in commands.run("database", "status", "DB01", "--no-lag")[1]


def test_blocking_and_unblocking_a_copy(commands: Commands) -> None:
    assert commands.run("database", "block", "DB01", "MBX-02") == (0, "DB01 on MBX-02: blocked\n", "")
    assert commands.run("database", "block", "DB01", "MBX-02")[1] == "DB01 on MBX-02: blocked already\n"
    assert commands.registry.view().blocked == {("DB01", "MBX-02")}
    assert commands.run("database", "unblock", "DB01", "MBX-02")[0] == 0
    assert not commands.registry.view().blocked
    assert "MBX-03 has no copy of DB02" in commands.run("database", "block", "DB02", "MBX-03")[2]


@pytest.mark.parametrize(
    ("word", "dial"),
    [("lossless", Dial.LOSSLESS), ("good", Dial.GOOD_AVAILABILITY), ("best", Dial.BEST_AVAILABILITY)],
)
def test_the_dial(commands: Commands, word: str, dial: Dial) -> None:
    assert commands.run("database", "dial", "DB01") == (0, "DB01: good availability\n", "")
    assert commands.run("database", "dial", "DB01", word)[1] == f"DB01: {dial}\n"
    assert commands.registry.view().dials.get("DB01", Dial.GOOD_AVAILABILITY) is dial
    assert commands.run("database", "dial", "DB01", "none")[0] == 2


def test_a_dial_that_nothing_can_keep_is_warned_of(commands: Commands) -> None:
    """Without a lag hook no copy is known to lack nothing, and the database would stay down."""
    warning = commands.run("database", "dial", "DB01", "lossless")[2]
    assert "warning: no lag hook is configured for MBX-01, MBX-02, MBX-03" in warning
    assert commands.run("database", "dial", "DB01", "good")[2] == ""
    commands.add_hooks(lag="print(0)")
    assert commands.run("database", "dial", "DB01", "lossless")[2] == ""


# Servers


def test_draining_without_a_manager_moves_each_database(commands: Commands) -> None:
    commands.sessions = [[session(1)], [session(1)], [session(1)], []]
    status, out, _ = commands.run("server", "drain", "MBX-01", "--wait")
    assert status == 0
    assert out.splitlines()[:3] == [
        "databases active on MBX-01: DB01, DB02",
        "sessions at MBX-01: CAS-01: 1 imap",
        "MBX-01: up → draining",
    ]
    assert "no database is active on MBX-01" in out
    assert {name: a.server for name, a in commands.registry.view().active.items()} == {
        "DB01": "MBX-02",
        "DB02": "MBX-02",
        "DB03": "MBX-03",
    }
    assert commands.registry.view().words == {"MBX-01": ServerWord.DRAINING}
    assert commands.run("server", "resume", "MBX-01") == (0, "MBX-01: draining → up\n", "")
    assert not commands.registry.view().words


def test_draining_says_what_cannot_go_and_ends_with_3(commands: Commands) -> None:
    status, out, _ = commands.run("server", "maintenance", "MBX-03")
    assert status == 3
    assert "no other copy of DB03 may be activated" in out
    assert "still active on MBX-03: DB03" in out
    assert commands.registry.view().words == {"MBX-03": ServerWord.MAINTENANCE}


def test_draining_with_a_manager_waits_for_it(commands: Commands) -> None:
    with commands.manager() as lease:
        status, out, _ = commands.run("server", "drain", "MBX-03", "--seconds", "0.3")
        assert status == 3
        assert "the manager CAS-02/7/abc moves its databases" in out
        commands.registry.activate("DB03", "MBX-02", 1, lease)
        assert commands.run("server", "drain", "MBX-03", "--seconds", "5")[0] == 0


def test_a_dry_run_of_a_drain(commands: Commands) -> None:
    before = commands.registry.view()
    status, out, _ = commands.run("server", "drain", "MBX-01", "--dry-run", "--json")
    assert status == 0
    assert json.loads(out)["databases"] == ["DB01", "DB02"]
    assert commands.registry.view() == before


def test_only_mailbox_servers_are_drained(commands: Commands) -> None:
    assert "CAS-01 is no mailbox server" in commands.run("server", "drain", "CAS-01")[2]
    assert "no server MBX-09" in commands.run("server", "resume", "MBX-09")[2]


def test_the_list_of_servers_has_word_and_health(commands: Commands) -> None:
    commands.registry.set_word("MBX-02", ServerWord.MAINTENANCE)
    with commands.manager() as lease:
        commands.registry.observe([Observation("MBX-01", "imap", False, 1.0, "silent")], lease)
        output = commands.run("server", "list", "--json", "-c", str(commands.path))[1]
        rows = {row["Name"]: row for row in json.loads(output)}
    assert (rows["MBX-01"]["State"], rows["MBX-01"]["Health"]) == ("up", "imap fails (silent)")
    assert (rows["MBX-02"]["State"], rows["MBX-02"]["Health"]) == ("maintenance", None)
    assert rows["CAS-01"]["State"] is None


def test_an_old_request_may_be_cancelled_under_a_manager(commands: Commands) -> None:
    with commands.manager(lambda _: "deaf"):
        commands.registry.begin_move(Move("DB01", "MBX-01", "MBX-02", 1, 1.0, asked("x")))
        assert commands.run("database", "move", "DB01", "--cancel")[0] == 0
    assert not commands.registry.view().moves


def test_an_activation_by_hand_says_what_the_copy_may_lack(commands: Commands) -> None:
    """Hubs deliver it again (exchange-facts 4.5)."""
    status, out, _ = commands.run("database", "activate", "DB01", "--server", "MBX-02", "--lost-since", "30m")
    assert status == 0
    assert "hubs deliver again what DB01 got in the last 30 min" in out
    (loss,) = commands.registry.view().losses["DB01"]
    assert 1790 < loss.until - loss.since < 1860
    _, out, _ = commands.run("database", "status", "DB01", "--no-lag")
    assert f"  epoch {loss.epoch} may have lost mail from " in out
    commands.run("database", "activate", "DB01", "--server", "MBX-01")
    assert commands.registry.view().losses["DB01"] == (loss,), "without the option nothing was lost"
    assert commands.run("database", "activate", "DB01", "--server", "MBX-02", "--lost-since", "soon")[0] == 2
