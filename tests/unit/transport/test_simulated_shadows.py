"""Two to four simulated hubs under faults (SPEC S): nothing acknowledged is lost, all copies are released.

The longer part is `tests/integration/test_simulated_shadows_at_length.py`. The simulation, and how to run one seed of
it with a trace: `shadow_simulation.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import shadow_mutants as mutants
from shadow_mutants import Mutant, broken
from shadow_simulation import Schedule, Sending, Trouble, play, run_plan

SHOWN_BY = {
    mutants.copy_held_before_it_is_on_disk: 546,
    mutants.handed_on_before_it_is_on_disk: 37,
    mutants.copy_in_doubt_counts_as_held: 106,
    mutants.no_fencing: 12,
    mutants.what_a_watcher_took_over_is_sent_all_the_same: 12,
    mutants.what_a_watcher_has_finished_is_sent_all_the_same: 12,
    mutants.settled_as_soon_as_it_is_being_sent: 0,
    mutants.every_event_is_for_the_whole: 0,
    mutants.a_shadow_shrinks_to_nothing: 0,
    mutants.a_primary_with_another_disk_is_not_noticed: 0,
    mutants.a_watcher_with_another_disk_is_not_noticed: 233,
    mutants.nothing_is_protected_anew: 8,
    mutants.what_the_primary_does_not_know_is_kept: 49,
    mutants.copies_are_let_go_whatever_the_primary_says: 0,
    mutants.no_primary_is_ever_held_dead: 0,
    mutants.a_taken_over_message_is_said_to_be_held: 0,
    mutants.a_copy_made_anew_covers_nothing: 0,
    mutants.who_is_starting_claims_what_it_does_not_know_yet: 502,
    mutants.copies_expire_by_the_wall_clock: 28,
}
"""Each broken rule with a schedule that shows it. Another seed, when a schedule has become another: run
`shadow_mutants.py`."""


def test_no_promise_is_broken_in_random_schedules() -> None:
    wrong = {}
    seen: Counter[str] = Counter()
    for seed in range(150):
        outcome = play(seed)
        seen += outcome.seen
        if outcome.wrong:
            wrong[seed] = outcome.wrong
    assert wrong == {}
    assert seen["disks lost"] > 20
    assert seen["taken over: IDENTITY"] > 5
    assert seen["taken over: SILENCE"] > 5
    assert seen["Follow"] > 5


@pytest.mark.parametrize("mutant", SHOWN_BY, ids=lambda mutant: mutant.__name__)
def test_the_simulation_shows_a_broken_rule(mutant: Mutant) -> None:
    seed = SHOWN_BY[mutant]
    with broken(mutant):
        assert play(seed).wrong
    assert play(seed).wrong == []


def test_a_schedule_is_played_the_same_each_time() -> None:
    assert play(12) == play(12)


def test_a_calm_fleet_delivers_each_message_once() -> None:
    sendings = tuple(Sending(1.0 + i, i, (f"first{i}@0", "1@1", "2@0")) for i in range(8))
    outcome = run_plan(Schedule(1, 4, 2, reject=True, sendings=sendings, troubles=()))
    assert outcome.wrong == []
    assert not outcome.duplicates
    assert outcome.seen["acknowledged held"] == 8


def test_clocks_that_are_set_change_nothing() -> None:
    sendings = tuple(Sending(1.0 + i, i, (f"first{i}@0", "1@1")) for i in range(8))
    troubles = [Trouble(3.0 + 2 * i, 1.0, "clock", i % 4, i) for i in range(15)]
    troubles += [Trouble(0.5, 40.0, "next server", site) for site in (0, 1)]
    outcome = run_plan(Schedule(1, 4, 2, reject=True, sendings=sendings, troubles=tuple(troubles)))
    assert outcome.wrong == []
    assert not outcome.duplicates
    assert not any(name.startswith("taken over") for name in outcome.seen)


# Schedules that found faults of the rules; with other delays as well, for what is on disk when a hub dies is chance


def test_a_hub_that_died_between_its_event_and_its_shadow_leaves_no_message_on_one_disk() -> None:
    """It had handed recipients on; the event for its own shadow server was on disk, its shadow of them was not."""
    plan = Schedule(
        3652, 4, 2, True,
        (
            Sending(20.404498273518545, 3, ("0@0", "1@1", "2@0")),
            Sending(1.8183713385213351, 3, ("0@1", "1@0")),
        ),
        (
            Trouble(1.4217422324578755, 35.0, "next server", 0, 0),
            Trouble(6.7153232325377505, 35.0, "next server", 1, 0),
            Trouble(16.0, 2.0, "kill", 1, 2),
            Trouble(16.0, 2.0, "kill at", 3, 11),
            Trouble(40.54771730991781, 0.5, "lose", 3, 0),
        ),
        4,
    )  # fmt: skip
    plans = [replace(plan, seed=seed) for seed in range(60)]
    assert [run_plan(each).wrong for each in plans] == [[]] * len(plans)
    with broken(mutants.who_handed_a_message_on_is_believed_to_keep_it):
        assert any(run_plan(each).wrong for each in plans)
