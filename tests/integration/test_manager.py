"""Active managers as real processes: mailbox servers die and hang, managers are killed and stopped, hooks misbehave."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from manager_kit import DATABASES, MakeStage, Stage, make_stage  # noqa: F401 - a fixture
from service_kit import is_running, until

from gatepost.activemanager.port import Happened, HistoryEntry, Observation, ServerWord
from gatepost.lab.servers.gatepost import Gatepost
from gatepost.lab.servers.process import free_ports
from gatepost.service.control import ServiceStatus
from gatepost.service.operators import ask

DETECTION_SECONDS = 3.0
FAILOVER_SECONDS = DETECTION_SECONDS + 2.0
"""From a server's death to the next epoch."""
ENGINES = ("embedded", "etcd")
WRITING = ("fence", "demote", "promote")


@pytest.fixture(params=ENGINES)
def stage(request: pytest.FixtureRequest, make_stage: MakeStage) -> Stage:  # noqa: F811
    """A stage on each engine in turn, not begun."""
    return make_stage(request.getfixturevalue("etcd_node") if request.param == "etcd" else None)


@pytest.fixture
def embedded(make_stage: MakeStage) -> Stage:  # noqa: F811
    """A stage on the embedded registry, not begun."""
    return make_stage()


def script(stage: Stage, name: str, code: str) -> list[str]:
    """A hook: a Python program in the stage's folder that notes each call in `calls`."""
    path = stage.folder / f"{name}.py"
    note = f"import sys, time, os; open({str(stage.folder / 'calls')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
    path.write_text(note + code)
    return [sys.executable, str(path), name, "{database}", "{source}", "{target}", "{epoch}", "{term}"]


def calls(stage: Stage) -> list[str]:
    path = stage.folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def terms(stage: Stage) -> list[tuple[str, int]]:
    """Whose lease each activation after the first depended on, in order, and its epoch."""
    return [(e.holder, e.epoch) for e in stage.registry.history("DB01") if e.what is Happened.ACTIVATED][1:]


def test_a_killed_server_loses_its_databases_within_seconds(stage: Stage) -> None:
    """kill -9 of the active mailbox server: both databases have another epoch within detection + 2 s."""
    stage.begin()
    stage.kill("A")
    began = time.monotonic()
    stage.wait_active("B", 2)
    stage.wait_active("B", 2, database="DB02")
    taken = time.monotonic() - began
    print(f"failed over in {taken:.2f} s")
    assert taken < FAILOVER_SECONDS
    acting = stage.acting()
    assert acting is not None
    assert all(holder == stage.registry.view().manager.holder for holder, _ in terms(stage))  # type: ignore[union-attr]
    assert not any(m.events("manager.failing_over") for m in stage.managers if m is not acting)


def test_a_server_that_hangs_is_found_out(embedded: Stage) -> None:
    """It accepts connections (the kernel does) and says nothing: that is a failure after the stated time."""
    embedded.begin()
    embedded.freeze("A")
    assert embedded.wait_active("B", 2) < FAILOVER_SECONDS
    embedded.freeze("A", signal.SIGCONT)
    until(embedded.all_seen_well, "the server seen well again")
    assert embedded.active().server == embedded.names["B"], "nothing moves back by itself"


def test_a_stopped_holder_is_replaced_and_does_nothing_when_it_goes_on(stage: Stage) -> None:
    """SIGSTOP of the holder, then the active server dies: the standby acts; continued, the old one only looks."""
    stage.begin()
    stopped, standby = stage.acting(), stage.standby()
    assert stopped is not None
    time.sleep(0.5)  # what it has just seen is written: stopped in the middle of that it would hold the file
    stopped.signal(signal.SIGSTOP)
    stage.kill("A")
    stage.wait_active("B", 2, seconds=5.0 + FAILOVER_SECONDS + 20.0)
    stopped.signal(signal.SIGCONT)
    until(lambda: stopped.events("manager.lease_lost"), f"the end of its lease\n{stage.logs()}")
    time.sleep(1.5)  # a second or two in which it could do harm
    assert stage.acting() is standby
    assert not stopped.events("manager.failing_over")
    assert not stopped.events("manager.moved")
    assert stage.active().epoch == 2
    assert len({holder for holder, _ in terms(stage)}) == 1


def test_a_killed_holder_is_replaced(embedded: Stage) -> None:
    """kill -9 of the holder: its lease ends by itself, and the other one acts."""
    embedded.begin()
    killed, standby = embedded.acting(), embedded.standby()
    assert killed is not None
    killed.signal(signal.SIGKILL)
    killed.wait(5.0)
    until(lambda: embedded.acting() is standby, "the standby", 5.0 + 3.0)
    embedded.kill("A")
    assert embedded.wait_active("B", 2) < FAILOVER_SECONDS


def test_a_holder_that_is_told_to_end_gives_the_lease_back(stage: Stage) -> None:
    stage.begin()
    ended, standby = stage.acting(), stage.standby()
    assert ended is not None
    ended.signal(signal.SIGTERM)
    began = time.monotonic()
    until(lambda: stage.acting() is standby, f"the standby\n{stage.logs()}")
    assert time.monotonic() - began < 3.0, "five seconds would be the lease"
    assert ended.wait(5.0) == 0


def test_draining_moves_databases_away_and_maintenance_mutes(embedded: Stage) -> None:
    embedded.begin()
    embedded.registry.set_word(embedded.names["A"], ServerWord.DRAINING)
    embedded.wait_active("B", 2, 5.0)
    embedded.wait_active("B", 2, 5.0, database="DB02")
    embedded.registry.set_word(embedded.names["A"], ServerWord.MAINTENANCE)
    embedded.kill("A")
    time.sleep(DETECTION_SECONDS)
    observed = embedded.registry.view().observed
    assert all(o.healthy for o in observed.values()), "what is in maintenance is not spoken of"
    embedded.registry.set_word(embedded.names["B"], ServerWord.DRAINING)
    until(lambda: embedded.events("manager.no_copy"), "the refusal")
    assert embedded.active().epoch == 2


def test_hooks_run_in_their_order_with_their_values(embedded: Stage) -> None:
    hooks = {kind: {"command": script(embedded, kind, "print('0')")} for kind in ("lag", "fence", "demote", "promote")}
    embedded.manager = {"hooks": hooks}
    embedded.begin()
    a, b = embedded.names["A"], embedded.names["B"]
    embedded.registry.set_word(a, ServerWord.DRAINING)
    embedded.wait_active("B", 2)
    planned = [call for call in calls(embedded) if "DB01" in call]
    assert planned == [f"{kind} DB01 {a} {b} 2 1" for kind in ("demote", "lag", "promote")]
    embedded.registry.set_word(a, ServerWord.UP)
    embedded.kill("B")
    embedded.wait_active("A", 3)
    assert [c for c in calls(embedded) if "DB01" in c][3:] == [
        f"{kind} DB01 {b} {a} 3 1" for kind in ("lag", "fence", "promote")
    ]


def test_a_hook_that_fails_stops_the_move_and_tells_no_secret(embedded: Stage) -> None:
    """The fence fails and prints a password: no epoch, no move left, its output in the log without the password."""
    fail = embedded.folder / "fail"
    fail.touch()
    code = f"if os.path.exists({str(fail)!r}): print('no route; password=hunter2\\x1b[31m'); sys.exit(7)"
    embedded.manager = {"retry_seconds": 0.5, "hooks": {"fence": {"command": script(embedded, "fence", code)}}}
    embedded.begin()
    embedded.kill("A")
    failed = until(lambda: embedded.events("manager.move_failed"), "the failure")[0]
    assert failed["step"] == f"fence of {embedded.names['A']}"
    assert failed["reason"].startswith("exit status 7: no route; password=…")
    until(lambda: not embedded.registry.view().moves, "the end of the move")
    assert embedded.active().epoch == 1
    assert "hunter2" not in embedded.logs()
    fail.unlink()
    embedded.wait_active("B", 2)


def test_a_hook_that_hangs_is_killed(embedded: Stage) -> None:
    """With its children; the move ends, and the next try finds a hook that works."""
    pids = embedded.folder / "pids"
    code = f"""
if not os.path.exists({str(pids)!r}):
    child = os.fork()
    open({str(pids)!r}, 'a').write(f"{{os.getpid()}} ")
    time.sleep(600)
"""
    fence = {"command": script(embedded, "fence", code), "seconds": 1.0}
    embedded.manager = {"retry_seconds": 0.5, "hooks": {"fence": fence}}
    embedded.begin()
    embedded.kill("A")
    failed = until(lambda: embedded.events("manager.move_failed"), "the failure")[0]
    assert failed["reason"] == "no end within 1 s"
    embedded.wait_active("B", 2)
    until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()), "the end of the hook's processes")


def test_hooks_of_a_holder_that_ends_are_killed_before_it_gives_the_lease_back(embedded: Stage) -> None:
    """Its successor finds the move in the registry and makes it."""
    pids = embedded.folder / "pids"
    code = f"""
if not os.path.exists({str(pids)!r}):
    open({str(pids)!r}, 'w').write(str(os.getpid()))
    time.sleep(600)
"""
    embedded.manager = {"hooks": {"fence": {"command": script(embedded, "fence", code), "seconds": 60.0}}}
    embedded.begin()
    ended = embedded.acting()
    assert ended is not None
    embedded.kill("A")
    pid = int(until(lambda: pids.exists() and pids.read_text(), "the hook"))
    standing = embedded.registry.view().moves.values()
    assert {move.target for move in standing} == {embedded.names["B"]}, "one of the two waits for its hook"
    ended.signal(signal.SIGTERM)
    assert ended.wait(10.0) == 0
    assert not is_running(pid)
    for database in DATABASES:
        embedded.wait_active("B", 2, database=database)


def test_all_servers_dead_is_no_reason_for_haste(embedded: Stage) -> None:
    """Nobody answers: nothing moves; one comes back: it is given time, then it gets what it can."""
    embedded.begin(1)
    embedded.kill("A")
    embedded.kill("B")
    until(lambda: embedded.events("manager.failover_held"), "the restraint")
    assert "it may be the network" in embedded.events("manager.failover_held")[0]["reason"]
    time.sleep(2.0)
    assert embedded.active().epoch == 1
    embedded.dovecots["B"].start()
    began = time.monotonic()
    embedded.wait_active("B", 2, 30.0)
    assert time.monotonic() - began > DETECTION_SECONDS


def test_a_canary_that_cannot_sign_in_fails_the_service(embedded: Stage) -> None:
    """The port answers, the greeting is there, and nobody could sign in: seen only by signing in."""
    embedded.manager = {"canaries": {"imap": {"user": "alice"}}, "services": ["imap"]}
    embedded.services = 2
    embedded.begin()
    (embedded.dovecots["A"].directory / "users").write_text("nobody:{PLAIN}x::::::\n")
    embedded.wait_active("B", 2)

    def observed() -> Observation:
        return embedded.registry.view().observed[embedded.names["A"], "imap"]

    until(lambda: not observed().healthy, "the observation of A")
    assert observed().reason.startswith("the canary: ")


def test_a_front_end_runs_a_manager_and_keeps_it(embedded: Stage) -> None:
    """Beside its workers: in the status, started again when it is killed, gone when the table is, and at the end."""
    embedded.manager = {"lease_seconds": 2.0}
    embedded.begin(0)
    path = embedded.write()
    front = Gatepost("CAS-01", embedded.folder / "front", path, {"imap": (embedded.address, embedded.port)})
    socket = embedded.folder / "state" / "gatepost-CAS-01.sock"

    def status() -> ServiceStatus:
        return ask(socket)

    with front:
        front.wait_for_event("service.started", 20.0)
        until(lambda: (m := status().manager) and m.status and m.status.acts, "a manager that acts")
        manager = status().manager
        assert manager is not None
        assert manager.status is not None
        assert manager.status.holder.startswith(f"CAS-01/{manager.pid}/")
        assert manager.status.term == 1
        os.kill(manager.pid, signal.SIGKILL)
        until(lambda: (m := status().manager) and m.status and m.status.acts and m.status.term == 2, "its successor")
        embedded.kill("A")
        assert embedded.wait_active("B", 2) < FAILOVER_SECONDS
        assert status().manager.restarts == 1  # type: ignore[union-attr]
        pid = status().manager.pid  # type: ignore[union-attr]
        text = path.read_text()
        path.write_text(text.replace("[front_end.manager]\n", "").replace("lease_seconds = 2.0\n", ""))
        front.signal(signal.SIGHUP)
        until(lambda: status().manager is None, "the end of the manager")
        assert not is_running(pid)
        path.write_text(text)
        front.signal(signal.SIGHUP)
        until(lambda: (m := status().manager) and m.status and m.status.acts and m.status.term == 3, "another one")
        pid = status().manager.pid  # type: ignore[union-attr]
    assert not is_running(pid)
    assert embedded.registry.view().manager is None, "the lease was given back"


def test_a_registry_that_is_away_is_said_once(make_stage: MakeStage, etcd_node: object) -> None:  # noqa: F811
    """Without it nothing is done, and the log is not filled; when it is back all goes on."""
    stage = make_stage(etcd_node)
    stage.begin(1)
    member = etcd_node.members[0]  # type: ignore[attr-defined]
    member.freeze()
    try:
        until(lambda: stage.events("manager.registry_unavailable"), "the complaint")
        until(lambda: stage.events("manager.lease_lost"), "the end of the lease")
        time.sleep(4.0)
        assert len(stage.events("manager.registry_unavailable")) <= 2
    finally:
        member.thaw()
    until(lambda: stage.acting() is not None and stage.managers[0].acts(), f"a manager that acts\n{stage.logs()}")
    stage.kill("A")
    stage.wait_active("B", 2)


def test_a_faulty_configuration_is_named(embedded: Stage, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[front_end]\nserver = 1\n")
    from gatepost.lab.servers.gatepost import run_gatepost

    said = run_gatepost("manager", "-c", str(path), status=1)
    assert "bad.toml:2" in said


def test_the_listening_port_is_nobodys(embedded: Stage) -> None:
    """A manager alone listens nowhere: the front end's port stays free."""
    embedded.begin(1)
    assert free_ports(embedded.address, 1)
    front = Gatepost("CAS-01", embedded.folder / "front", embedded.write(), {"imap": (embedded.address, embedded.port)})
    with front:
        front.wait_for_event("service.started", 20.0)
        until(lambda: ask(embedded.folder / "state" / "gatepost-CAS-01.sock").manager, "its own manager, a standby")


def broken_promises(history: list[HistoryEntry]) -> list[str]:
    """What must never stand in a registry's history, in the registry's order."""
    found, epochs, term, holder = [], dict.fromkeys(DATABASES, 0), 0, ""
    for entry in sorted(history, key=lambda entry: entry.revision):
        if entry.what is Happened.LEASED:
            if entry.term != term + 1:
                found.append(f"term {entry.term} after {term}")
            term, holder = entry.term, entry.holder
        else:
            if entry.epoch != epochs[entry.database] + 1:
                found.append(f"{entry.database}: epoch {entry.epoch} after {epochs[entry.database]}")
            epochs[entry.database] = entry.epoch
            if entry.term and (entry.term, entry.holder) != (term, holder):
                found.append(f"{entry.database}: {entry.holder} acted in term {entry.term}, {holder} held {term}")
    return found


@pytest.mark.timeout(300)
def test_random_faults_of_real_processes_break_no_promise(stage: Stage) -> None:
    """Twenty seconds of managers stopped, killed and started again and servers killed and hung; then all is well."""
    chance = random.Random(4711)
    stage.manager = {
        "lease_seconds": 1.5, "failover_pause_seconds": 0.2, "failovers_per_hour": 1000, "retry_seconds": 0.3,
        "site_failed_seconds": 1.0, "hooks": {kind: {"command": script(stage, kind, "")} for kind in WRITING},
    }  # fmt: skip
    stage.begin(3)
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        manager, letter = chance.choice(stage.managers), chance.choice("AB")
        what = chance.choice(["stop", "kill", "end", "server dies", "server hangs"])
        if what == "stop":
            manager.signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.3, 4.0))
            manager.signal(signal.SIGCONT)
        elif what in {"kill", "end"}:
            manager.signal(signal.SIGKILL if what == "kill" else signal.SIGTERM)
            manager.wait(5.0)
            manager.start()
        elif what == "server dies":
            stage.kill(letter)
            time.sleep(chance.uniform(0.5, 4.0))
            stage.dovecots[letter].start()
        else:
            stage.freeze(letter)
            time.sleep(chance.uniform(0.5, 4.0))
            stage.freeze(letter, signal.SIGCONT)
        time.sleep(chance.uniform(0.0, 1.0))

    def all_is_well() -> bool:
        view = stage.registry.view()
        return not view.moves and stage.all_seen_well() and stage.acting() is not None

    until(all_is_well, f"all well\n{stage.logs()}", 60.0)
    for _ in range(2):  # chance may have spared whoever held the lease
        acting = stage.acting()
        assert acting is not None
        acting.signal(signal.SIGKILL)
        acting.wait(5.0)
        acting.start()
        until(all_is_well, f"all well\n{stage.logs()}", 60.0)
    history = stage.registry.history()
    assert broken_promises(history) == []
    assert sum(entry.what is Happened.LEASED for entry in history) > 2
    assert not any(event.get("exc_info") or event["event"] == "worker.fault" for event in stage.events(""))
    stage.kill("A" if stage.active().server == stage.names["A"] else "B")
    epoch = stage.active().epoch
    until(lambda: stage.active().epoch == epoch + 1, "one more failover", 10.0)
