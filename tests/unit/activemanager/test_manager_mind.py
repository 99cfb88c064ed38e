"""What a manager decides: failover, restraint, planned moves, other people's moves, and the end of its lease."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import MappingProxyType

import pytest
from manager_stage import FAILS, LEASE, MindStage

from gatepost.activemanager import manager_events as words
from gatepost.activemanager.asking import asked
from gatepost.activemanager.port import Dial, Lease, ServerWord
from gatepost.activemanager.seen import Sight
from gatepost.activemanager.steps import Activate, Begin, Fault, Result
from gatepost.activemanager.tasks import LOSS_MARGIN_SECONDS
from gatepost.configuration.manager_settings import HookKind

ALL = tuple(HookKind)
LAG, FENCE, DEMOTE, PROMOTE = HookKind.LAG, HookKind.FENCE, HookKind.DEMOTE, HookKind.PROMOTE


@pytest.fixture
def stage() -> MindStage:
    found = MindStage()
    found.begin()
    return found


def test_a_refused_server_fails_over_within_two_seconds(stage: MindStage) -> None:
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.4)
    assert stage.where() == "B2"
    assert stage.steps() == ["begin B", "activate B"]
    assert stage.logged("manager.failing_over")[0]["reason"] == "A has failed: imap: refused"


def test_a_silent_server_fails_over_within_detection(stage: MindStage) -> None:
    """From the last good answer to the failover it is at most 3 s and a tick."""
    stage.ill["A"] = Sight.SILENT
    stage.run(2.0)
    assert stage.where() == "A1"
    stage.run(2.0)
    assert stage.where() == "B2"


def test_one_bad_answer_is_no_failure(stage: MindStage) -> None:
    stage.ill["A"] = Sight.ILL
    stage.run(1.0)
    stage.ill.clear()
    stage.run(5.0)
    assert stage.where() == "A1"


def test_one_service_of_several_is_enough_if_another_copy_has_it() -> None:
    stage = MindStage(services="ip")
    stage.begin()
    stage.ill_services["A", "pop3"] = Sight.REFUSED
    stage.run(4.0)
    assert stage.where() == "B2"


def test_where_every_copy_lacks_it_nothing_is_gained() -> None:
    stage = MindStage({"DB1": "AB"}, {"A": "usa", "B": "europe"}, services="ip")
    stage.begin()
    stage.ill_services |= {("A", "pop3"): Sight.REFUSED, ("B", "pop3"): Sight.REFUSED}
    stage.run(40.0)
    assert stage.where() == "A1"
    assert len(stage.logged("manager.no_copy")) == 1, "said once"


def test_services_that_do_not_count_fail_nothing() -> None:
    stage = MindStage(services="ip", counted=("imap",))
    stage.begin()
    stage.ill_services["A", "pop3"] = Sight.REFUSED
    stage.run(10.0)
    assert stage.where() == "A1"


def test_nothing_is_done_without_the_lease() -> None:
    stage = MindStage()
    stage.renewing = False
    stage.tell(words.Viewed(stage.view))
    stage.ill["A"] = Sight.REFUSED
    stage.run(60.0)
    assert stage.steps() == []
    assert not [o for o in stage.outputs if isinstance(o, words.Observe)]


def test_nothing_is_done_by_a_picture_from_before_the_lease() -> None:
    """What the predecessor did last may not be in it."""
    stage = MindStage()
    stage.view = replace(stage.view, manager=Lease("manager", "N", 2, 5.0))
    stage.tell(words.Viewed(stage.view))
    stage.ill["A"] = Sight.REFUSED
    stage.run(10.0)
    assert stage.steps() == []
    stage.change(manager=LEASE)
    stage.run(1.0)
    assert stage.where() == "B2"


def test_nothing_is_done_by_a_picture_that_is_out_of_date(stage: MindStage) -> None:
    """The registry keeps the lease and tells nothing: what the operator said may be unknown."""
    stage.ill["A"] = Sight.REFUSED
    for _ in range(30):
        stage.now += 0.2
        stage.probe()
        stage.tell(words.Tick(stale=9.0))
    assert stage.where() == "A1" or stage.steps() == []


def test_acting_ends_before_the_lease_does(stage: MindStage) -> None:
    """A margin before, counted from when the lease was asked for; what was under way is stopped."""
    stage.slow = {Begin}
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.2)
    assert stage.steps() == ["begin B"]
    do = next(o for o in stage.outputs if isinstance(o, words.Do))
    stage.renewing = False
    stage.run(4.0)
    assert words.Stop(do.number) in stage.outputs
    assert not stage.mind.acts(stage.now)
    stage.tell(words.Done(do.number, Result()))
    assert stage.steps() == ["begin B"], "a late result lets nothing go on"
    assert stage.mind.lease is not None
    stage.run(2.0)
    assert stage.mind.lease is None
    assert stage.logged("manager.lease_lost")


def test_a_lease_that_another_has_ends_all(stage: MindStage) -> None:
    stage.slow = {FENCE, Begin}
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.2)
    stage.tell(words.Asked(None, stage.now))
    assert stage.mind.lease is None
    assert stage.mind.moving == ()
    assert any(isinstance(o, words.Stop) for o in stage.outputs)


def test_leaving_gives_the_lease_back_after_stopping_hooks(stage: MindStage) -> None:
    stage.slow = {Begin}
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.2)
    stage.outputs.clear()
    stage.tell(words.Leave())
    kinds = [type(o).__name__ for o in stage.outputs if not isinstance(o, words.Log)]
    assert kinds == ["Stop", "GiveBack"]
    stage.run(10.0)
    assert not [o for o in stage.outputs if isinstance(o, words.Take | words.Keep)]


def test_a_silent_registry_is_said_once() -> None:
    stage = MindStage()
    stage.renewing = False
    for _ in range(20):
        stage.now += 1.0
        for output in stage.mind.handle(words.Tick(), stage.now):
            stage.outputs.append(output)
            if isinstance(output, words.Take):
                stage.outputs += stage.mind.handle(words.Asked(None, output.asked, "no answer"), stage.now)
    assert len(stage.logged("manager.registry_unavailable")) == 1
    assert len([o for o in stage.outputs if isinstance(o, words.Take)]) > 10


def test_a_process_that_stood_still_trusts_nothing_it_saw(stage: MindStage) -> None:
    """SIGSTOP or a sleeping machine: probes that were silent meanwhile mean nothing, and looking begins anew."""
    stage.ill["A"] = Sight.SILENT
    stage.run(1.0)
    before = stage.now
    stage.now += 30.0
    stage.tell(words.Probed("A", "imap", Sight.SILENT, "silent", before))
    assert stage.logged("manager.slept")
    stage.ill.clear()
    stage.run(3.0)
    assert stage.where() == "A1"


def test_a_site_where_nobody_answers_is_left_alone_for_a_while() -> None:
    """Both servers of usa at the same moment: more likely the network. Then C, in europe, takes over after all."""
    stage = MindStage()
    stage.begin()
    stage.ill |= {"A": Sight.SILENT, "B": Sight.SILENT}
    stage.run(25.0)
    assert stage.where() == "A1"
    assert len(stage.logged("manager.failover_held")) == 1
    stage.run(8.0)
    assert stage.where() == "C2"


def test_after_an_outage_of_all_the_others_get_time_to_come_back() -> None:
    stage = MindStage({"DB1": "AB"}, {"A": "usa", "B": "usa"})
    stage.begin()
    stage.ill |= {"A": Sight.SILENT, "B": Sight.SILENT}
    stage.run(10.0)
    del stage.ill["B"]
    stage.run(3.0)
    del stage.ill["A"]
    stage.run(10.0)
    assert stage.where() == "A1"
    stage.ill |= {"A": Sight.SILENT, "B": Sight.SILENT}
    stage.run(10.0)
    del stage.ill["B"]
    stage.run(9.0)
    assert stage.where() == "B2", "one that does not come back is given up"


def test_a_flapping_server_moves_its_database_ever_more_seldom_and_then_no_more() -> None:
    """Two copies that fail in turn: pauses of 15, 30, 60 s, and no more than four within the hour."""
    stage = MindStage({"DB1": "AB"}, {"A": "usa", "B": "europe"}, failover_pause_seconds=15.0, failovers_per_hour=4)
    stage.begin()
    times = []
    for _ in range(1500):
        where = stage.where()
        stage.ill = {where[0]: Sight.REFUSED}
        stage.run(1.0)
        if stage.where() != where:
            times.append(stage.now)
    assert len(times) == 4
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert [gap > pause for gap, pause in zip(gaps, (14.9, 29.9, 59.9), strict=True)] == [True] * 3
    assert "are enough" in stage.logged("manager.failover_held")[-1]["reason"]
    stage.run(2400.0)
    assert stage.where() != "", "an hour after the first there may be one again"
    assert int(stage.where()[1:]) >= 6


def test_a_planned_move_does_not_count_as_a_failover(stage: MindStage) -> None:
    for server in "ABABAB":
        stage.word(server, ServerWord.DRAINING)
        stage.run(1.0)
        stage.change(words=MappingProxyType({}))
        stage.run(1.0)
    epoch = int(stage.where()[1:])
    assert epoch >= 5
    stage.ill[stage.where()[0]] = Sight.REFUSED
    stage.run(3.0)
    assert int(stage.where()[1:]) == epoch + 1


def test_draining_moves_away_by_preference_in_good_order() -> None:
    stage = MindStage(hooks=ALL)
    stage.results[LAG] = Result(number=0.0)
    stage.begin()
    stage.word("A", ServerWord.DRAINING)
    stage.run(1.0)
    assert stage.steps() == ["begin B", "demote A", "lag B", "promote B", "activate B"]
    assert stage.where() == "B2"


def test_maintenance_mutes_faults_and_is_no_target() -> None:
    stage = MindStage({"DB1": "AB"}, {"A": "usa", "B": "europe"})
    stage.begin()
    stage.word("B", ServerWord.MAINTENANCE)
    stage.ill["B"] = Sight.REFUSED
    stage.run(5.0)
    assert not [o for o in stage.outputs if isinstance(o, words.Observe)]
    stage.ill["A"] = Sight.REFUSED
    stage.run(40.0)
    assert stage.where() == "A1"
    assert stage.logged("manager.no_copy")[0]["reason"] == "B: the server is in maintenance"


def test_a_blocked_copy_is_passed_over(stage: MindStage) -> None:
    stage.change(blocked=frozenset({("DB1", "B")}))
    stage.ill["A"] = Sight.REFUSED
    stage.run(3.0)
    assert stage.where() == "C2"


def test_lag_is_asked_of_all_copies_first_and_decides() -> None:
    stage = MindStage(hooks=ALL)
    stage.slow = {LAG}
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.4)
    assert stage.steps() == ["lag B", "lag C"]
    asked, stage.open = stage.open, []
    for do, number in zip(asked, (5.0, 0.0), strict=True):
        stage.answer(do, Result(number=number))
    assert stage.steps()[2:] == ["begin C", "fence A", "promote C", "activate C"]


def test_too_much_lag_is_refused_and_asked_again_later() -> None:
    stage = MindStage(hooks=ALL)
    stage.results[LAG] = Result(number=9.0)
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(3.0)
    assert stage.where() == "A1"
    assert "over the 6" in stage.logged("manager.no_copy")[0]["reason"]
    stage.change(dials=MappingProxyType({"DB1": Dial.BEST_AVAILABILITY}))
    stage.run(10.0)
    assert stage.where() == "B2"


def lost(stage: MindStage) -> float | None:
    """What the last activation says that its copy may lack, in seconds."""
    return [o.step.lost_seconds for o in stage.outputs if isinstance(o, words.Do) and isinstance(o.step, Activate)][-1]


@pytest.mark.parametrize(
    ("lag", "seconds"),
    [
        (Result(number=0.0), None),
        (Result(number=3.0), 3600.0 + LOSS_MARGIN_SECONDS),
        (Result(number=3.0, seconds=90.0), 90.0 + LOSS_MARGIN_SECONDS),
    ],
    ids=["lacks nothing", "lacks something", "and since when"],
)
def test_a_failover_says_what_the_copy_may_lack(lag: Result, seconds: float | None) -> None:
    """Exchange-facts 4.5: the active manager has (database, [from, to]) delivered again."""
    stage = MindStage(hooks=ALL)
    stage.results[LAG] = lag
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(3.0)
    assert stage.where() == "B2"
    assert lost(stage) == seconds
    assert stage.logged("manager.failing_over")[0].get("lost_seconds") == seconds


def test_a_copy_with_unknown_lag_may_lack_as_much_as_the_setting_says() -> None:
    stage = MindStage(hooks=ALL, loss_seconds=100.0)
    stage.results[LAG] = FAILS
    stage.change(dials=MappingProxyType({"DB1": Dial.BEST_AVAILABILITY}))
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(3.0)
    assert lost(stage) == 100.0 + LOSS_MARGIN_SECONDS


@pytest.mark.parametrize(("setting", "seconds"), [(0.0, None), (300.0, 300.0 + LOSS_MARGIN_SECONDS)])
def test_where_nobody_measures_lag_the_setting_decides(setting: float, seconds: float | None) -> None:
    stage = MindStage(unmeasured_loss_seconds=setting)
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(3.0)
    assert lost(stage) == seconds


def test_a_planned_move_loses_nothing() -> None:
    stage = MindStage(hooks=ALL, unmeasured_loss_seconds=300.0)
    stage.results[LAG] = Result(number=0.0)
    stage.begin()
    stage.word("A", ServerWord.DRAINING)
    stage.run(3.0)
    assert stage.where() == "B2"
    assert lost(stage) is None


def test_a_hook_that_fails_stops_the_move_and_is_tried_again_later() -> None:
    stage = MindStage(hooks=(FENCE, PROMOTE), retry_seconds=5.0)
    stage.results[FENCE] = FAILS
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(3.0)
    assert stage.steps() == ["begin B", "fence A", "end"]
    assert stage.logged("manager.move_failed")[0]["reason"] == "exit status 1: no"
    assert not stage.view.moves
    stage.run(3.0)
    assert len(stage.steps()) == 3, "not before the pause is over"
    stage.results.clear()
    stage.run(4.0)
    assert stage.where() == "B2"


def test_a_target_that_cannot_be_promoted_is_fenced_and_the_next_one_tried() -> None:
    stage = MindStage(hooks=(FENCE, PROMOTE), retry_seconds=5.0)
    stage.results[PROMOTE] = FAILS
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.4)
    assert stage.steps() == ["begin B", "fence A", "promote B", "fence B", "end"]
    stage.results.clear()
    stage.run(6.0)
    assert stage.where() == "C2"


def test_a_target_that_cannot_be_taken_back_keeps_its_move_standing() -> None:
    """Promoted or not, nobody knows: the registry says so until it is fenced, also to a successor."""
    stage = MindStage(hooks=(FENCE, PROMOTE), retry_seconds=1.0)
    stage.results[PROMOTE] = FAILS
    stage.slow = {FENCE}
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.4)
    stage.answer(stage.open.pop(), Result())  # the source is fenced
    stage.answer(stage.open.pop(), FAILS)  # the target is not
    assert stage.view.moves["DB1"].target == "B"
    assert stage.logged("manager.move_failed")[0]["stands"] is True
    stage.slow.clear()
    stage.results.clear()
    stage.outputs.clear()
    stage.run(3.0)
    assert stage.steps()[:4] == ["fence A", "fence B", "end", "begin C"], "fenced before another is promoted"
    assert stage.where() == "C2"


def test_a_planned_move_that_fails_is_taken_back() -> None:
    stage = MindStage(hooks=ALL)
    stage.results |= {LAG: Result(number=0.0), PROMOTE: FAILS}
    stage.begin()
    stage.word("A", ServerWord.DRAINING)
    stage.run(1.0)
    assert stage.steps() == ["begin B", "demote A", "lag B", "promote B", "demote B", "promote A", "end"]
    assert stage.where() == "A1"


def test_a_target_that_does_not_catch_up_ends_a_planned_move() -> None:
    stage = MindStage(hooks=ALL)
    stage.results[LAG] = Result(number=3.0)
    stage.begin()
    stage.word("A", ServerWord.DRAINING)
    stage.run(1.0)
    assert stage.steps()[:3] == ["begin B", "demote A", "lag B"]
    assert stage.steps()[-2:] == ["promote A", "end"]
    assert stage.logged("manager.move_failed")[0]["reason"] == "B still lacks 3"


def test_the_move_of_a_dead_predecessor_is_gone_on_with_at_once() -> None:
    stage = MindStage(hooks=(FENCE, PROMOTE))
    stage.foreign_move("C", "manager's term 2: A has failed: imap: refused")
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.4)
    assert stage.where() == "C2", "what may be half done comes before what is preferred"


def test_an_operators_move_is_not_meddled_with_until_it_is_left_alone() -> None:
    stage = MindStage(hooks=(FENCE, DEMOTE, PROMOTE), orphan_seconds=60.0)
    stage.begin()
    stage.foreign_move("B")
    stage.run(58.0)
    assert stage.steps() == []
    stage.run(4.0)
    assert stage.where() == "B2"
    assert stage.steps() == ["demote A", "promote B", "activate B"]


def test_a_move_left_alone_whose_target_is_dead_is_taken_back() -> None:
    stage = MindStage(hooks=(FENCE, DEMOTE, PROMOTE), orphan_seconds=5.0)
    stage.begin()
    stage.ill["B"] = Sight.REFUSED
    stage.foreign_move("B")
    stage.run(8.0)
    assert stage.steps() == ["demote B", "promote A", "end"]
    assert stage.where() == "A1"


def test_an_operators_request_is_carried_out_or_refused(stage: MindStage) -> None:
    stage.foreign_move("C", asked("an operator's wish"))
    stage.run(0.4)
    assert stage.where() == "C2"
    stage.change(blocked=frozenset({("DB1", "B")}))
    stage.foreign_move("B", asked("an operator's wish"))
    stage.run(0.4)
    assert stage.where() == "C2"
    assert not stage.view.moves
    assert stage.logged("manager.no_copy")[-1]["reason"] == "the copy is blocked from activation"


def test_nothing_moves_back_by_itself_unless_it_is_wanted(stage: MindStage) -> None:
    stage.ill["A"] = Sight.REFUSED
    stage.run(3.0)
    stage.ill.clear()
    stage.run(200.0)
    assert stage.where() == "B2"


def test_with_move_back_the_preferred_copy_gets_it_when_it_has_been_well_for_long() -> None:
    stage = MindStage(move_back_seconds=60.0)
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(3.0)
    stage.ill.clear()
    stage.run(50.0)
    assert stage.where() == "B2"
    stage.run(15.0)
    assert stage.where() == "A3"


def test_the_registry_that_does_not_answer_an_activation_is_asked_again(stage: MindStage) -> None:
    """It may have happened: then the epoch says so, and nothing happens twice."""
    stage.slow = {Activate}
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.4)
    stage.answer(stage.open.pop(), Result(Fault.UNAVAILABLE, "no answer"))
    again = stage.open.pop()
    assert isinstance(again.step, Activate)
    stage.answer(again, Result(Fault.STALE, "DB1 is at epoch 2"))
    assert stage.mind.moving == ()
    assert stage.logged("manager.move_failed")[0]["step"] == "activate"


def test_many_databases_move_a_few_at_a_time() -> None:
    stage = MindStage({f"DB{n}": "AB" for n in range(20)}, {"A": "usa", "B": "europe"}, moves_at_once=3)
    stage.slow = {Activate}
    stage.begin()
    stage.ill["A"] = Sight.REFUSED
    stage.run(2.4)
    assert len(stage.mind.moving) == 3
    while stage.open:
        stage.answer(stage.open.pop(0), Result())
    assert all(copy.server == "B" for copy in stage.view.active.values())


def test_observations_are_said_when_they_change_and_at_the_beginning_of_a_term(stage: MindStage) -> None:
    stage.ill["C"] = Sight.REFUSED
    stage.run(3.0)
    stage.ill.clear()
    stage.run(3.0)
    said = [(c.server, c.healthy) for o in stage.outputs if isinstance(o, words.Observe) for c in o.changes]
    assert said == [("C", False), ("C", True)]


def test_a_database_without_an_active_copy_is_left_alone() -> None:
    stage = MindStage()
    stage.view = replace(stage.view, active=MappingProxyType({}))
    stage.begin()
    stage.run(5.0)
    assert stage.steps() == []
