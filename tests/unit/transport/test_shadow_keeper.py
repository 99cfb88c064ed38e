"""The rules of a shadow server (SPEC S2, S3, T9; exchange-facts 4.4, 4.5; smtp-facts part e.1)."""

from __future__ import annotations

import pytest

from gatepost.organization.transport import TransportConfig
from gatepost.transport.shadow.decisions import (
    Heartbeat,
    LetGo,
    Question,
    Reason,
    Shrink,
    TakeOver,
    ToSafetyNet,
)
from gatepost.transport.shadow.keeper import POLL_SECONDS, Keeper
from gatepost.transport.shadow.steady import Moments
from gatepost.wire.shadow_messages import Discarded, Status

NOW = 1_800_000_000.0
DAY = 86400.0


class Stage:
    """A keeper of hub b, with its clock; `kept` copies of hub a's messages."""

    def __init__(self, kept: int = 1, name: str = "b", **settings: float) -> None:
        self.now = NOW
        self.moments = Moments()
        self.settings = TransportConfig(**settings)  # type: ignore[arg-type]
        self.keeper = Keeper(name, self.settings, 2 * DAY, NOW, self.moments)
        self.keeper.configure(self.settings, 2 * DAY, {"a", "b", "c"})
        for number in range(1, kept + 1):
            assert self.keeper.keep("a", "a1", f"t{number}", number, self.keeper.until(NOW)) == []
        self.heartbeats = 0

    def hear(self, identity: str = "a1", server: str = "a") -> None:
        self.keeper.heard(server, identity, self.moments.next(), self.now)

    def wait(self, seconds: float, identity: str = "") -> None:
        """Time goes on; heartbeats are answered with `identity`, or fail."""
        for _ in range(int(seconds)):
            self.now += 1.0
            for heartbeat in self.keeper.due(self.now):
                self.heartbeats += 1
                if identity:
                    self.keeper.heard(heartbeat.server, identity, heartbeat.moment, self.now)
                    self.keeper.ended(heartbeat, self.now)
                else:
                    self.keeper.failed(heartbeat, self.now)

    def takeovers(self) -> list[tuple[str, Reason]]:
        return sorted((takeover.token, takeover.reason) for takeover in self.keeper.takeovers(100))

    def ask(self) -> Question | None:
        question, steps = self.keeper.questions("a", self.now, 100)
        assert steps == []
        return question


# Heartbeats


def test_a_primary_that_answers_is_asked_every_few_seconds() -> None:
    stage = Stage()
    stage.wait(31, "a1")
    assert stage.heartbeats == 1 + 30 // POLL_SECONDS


def test_a_primary_that_does_not_answer_is_asked_at_each_heartbeat_interval() -> None:
    stage = Stage(shadow_heartbeat_frequency=120.0)
    stage.wait(601)
    assert stage.heartbeats == 6


def test_polling_is_never_slower_than_heartbeats() -> None:
    stage = Stage(shadow_heartbeat_frequency=1.0)
    stage.wait(10, "a1")
    assert stage.heartbeats == 10


def test_more_events_are_asked_for_at_once() -> None:
    stage = Stage()
    (heartbeat,) = stage.keeper.due(NOW)
    assert heartbeat == Heartbeat("a", heartbeat.moment)
    assert stage.keeper.due(NOW + 1.0) == []  # it is being asked
    stage.keeper.ended(heartbeat, NOW + 1.0, more=True)
    assert len(stage.keeper.due(NOW + 1.0)) == 1


def test_nobody_is_asked_for_nothing() -> None:
    stage = Stage(kept=0)
    stage.wait(10)
    assert stage.heartbeats == 0
    assert [heartbeat.server for heartbeat in stage.keeper.due(stage.now, ["c"])] == ["c"]


def test_a_primary_that_is_heard_again_is_asked_at_once() -> None:
    stage = Stage()
    stage.wait(2)
    assert stage.heartbeats == 1
    stage.hear()
    assert len(stage.keeper.due(stage.now + 1.0)) == 1


def test_a_server_that_the_organization_does_not_know_is_not_asked() -> None:
    stage = Stage(kept=0)
    assert stage.keeper.due(NOW, ["x"]) == []


# Promotion


def test_a_primary_silent_for_the_resubmit_time_span_loses_its_messages() -> None:
    stage = Stage(kept=2, shadow_resubmit_time_span=600.0, shadow_heartbeat_frequency=60.0)
    stage.wait(599)
    assert stage.takeovers() == []
    stage.wait(2)
    assert stage.takeovers() == [("t1", Reason.SILENCE), ("t2", Reason.SILENCE)]


def test_the_defaults_wait_for_three_hours() -> None:
    stage = Stage()
    stage.wait(3 * 3600 - 1)
    assert stage.takeovers() == []
    stage.wait(2)
    assert stage.takeovers() == [("t1", Reason.SILENCE)]
    assert stage.heartbeats == 91


def test_a_primary_that_answers_keeps_its_messages() -> None:
    stage = Stage(shadow_resubmit_time_span=60.0)
    stage.wait(3600, "a1")
    assert stage.takeovers() == []


def test_heartbeats_that_fail_in_a_row_promote_when_their_count_is_set() -> None:
    stage = Stage(shadow_heartbeat_retry_count=4, shadow_heartbeat_frequency=60.0)
    stage.wait(181)
    assert stage.heartbeats == 4
    assert stage.takeovers() == []  # judged with the next look
    stage.wait(1)
    assert stage.takeovers() == [("t1", Reason.HEARTBEATS)]


def test_failed_heartbeats_before_one_that_succeeded_do_not_count() -> None:
    stage = Stage(shadow_heartbeat_retry_count=2, shadow_heartbeat_frequency=60.0)
    stage.wait(2)
    stage.hear()
    stage.wait(60)
    assert stage.takeovers() == []


@pytest.mark.parametrize("step", [1e6, -1e6])
def test_a_clock_that_is_set_promotes_nothing(step: float) -> None:
    stage = Stage(shadow_resubmit_time_span=600.0, shadow_heartbeat_frequency=60.0)
    stage.wait(200)
    stage.now += step
    stage.wait(200)
    assert stage.takeovers() == []
    assert stage.keeper.questions("a", stage.now, 100)[1] == []  # nor does anything expire


def test_a_hub_that_stood_still_itself_holds_nobody_dead() -> None:
    stage = Stage(shadow_resubmit_time_span=600.0, shadow_heartbeat_frequency=60.0)
    (heartbeat,) = stage.keeper.due(NOW)
    stage.keeper.failed(heartbeat, NOW + 5000.0)
    stage.keeper.due(NOW + 5000.0)
    assert stage.takeovers() == []


def test_a_start_holds_nobody_dead() -> None:
    stage = Stage(kept=0, shadow_resubmit_time_span=600.0, shadow_heartbeat_frequency=60.0)
    stage.keeper.load("a", "a1", "t1", 1, NOW + DAY)
    stage.wait(500)
    assert stage.takeovers() == []
    stage.wait(101)
    assert stage.takeovers() == [("t1", Reason.SILENCE)]


def test_a_primary_with_another_queue_database_loses_its_messages_at_once() -> None:
    stage = Stage()
    stage.hear("a1")
    assert stage.takeovers() == []
    stage.hear("a2")
    stage.keeper.keep("a", "a2", "t9", 9, stage.keeper.until(NOW))
    assert stage.takeovers() == [("t1", Reason.IDENTITY)]


def test_copies_of_a_start_are_judged_by_the_identity_they_were_made_under() -> None:
    stage = Stage(kept=0)
    stage.keeper.load("a", "a1", "t1", 1, NOW + DAY)
    stage.keeper.load("a", "a2", "t2", 2, NOW + DAY)
    stage.hear("a2")
    assert stage.takeovers() == [("t1", Reason.IDENTITY)]


def test_what_was_seen_before_a_copy_came_says_nothing_about_it() -> None:
    stage = Stage(kept=0)
    before = stage.moments.next()
    stage.moments.next()
    stage.keeper.keep("a", "a2", "t1", 1, NOW + DAY)
    stage.keeper.heard("a", "a1", before, NOW)
    assert stage.takeovers() == []


def test_a_removed_server_loses_its_messages() -> None:
    stage = Stage()
    stage.hear("a1")
    stage.keeper.configure(stage.settings, 2 * DAY, {"b", "c"})
    assert stage.keeper.due(NOW) == []
    assert stage.takeovers() == [("t1", Reason.REMOVED)]


def test_an_operator_has_messages_taken_over() -> None:
    stage = Stage(kept=3)
    assert stage.keeper.resubmit("a") == 3
    assert stage.keeper.resubmit("a") == 0
    assert [reason for _, reason in stage.takeovers()] == [Reason.OPERATOR] * 3


def test_copies_stay_protected_when_shadow_redundancy_is_switched_off() -> None:
    stage = Stage(shadow_resubmit_time_span=60.0, shadow_heartbeat_frequency=10.0)
    off = TransportConfig(
        shadow_redundancy_enabled=False, shadow_resubmit_time_span=60.0, shadow_heartbeat_frequency=10.0
    )
    stage.keeper.configure(off, 2 * DAY, {"a", "b"})
    stage.wait(61)
    assert stage.heartbeats == 7
    assert stage.takeovers() == [("t1", Reason.SILENCE)]


def test_a_primary_back_with_its_queue_database_keeps_what_is_not_yet_taken_over() -> None:
    stage = Stage(kept=3, shadow_resubmit_time_span=60.0, shadow_heartbeat_frequency=10.0)
    stage.wait(61)
    (takeover,) = stage.keeper.takeovers(1)
    stage.hear("a1")
    assert stage.keeper.takeovers(100) == []
    stage.keeper.taken(takeover)
    assert stage.keeper.queues()[0].count == 2


def test_an_operators_resubmission_goes_on_though_the_primary_is_there() -> None:
    stage = Stage(kept=2)
    stage.keeper.resubmit("a")
    stage.hear("a1")
    assert len(stage.takeovers()) == 2


def test_a_takeover_that_the_disk_does_not_take_comes_again() -> None:
    stage = Stage()
    stage.keeper.resubmit("a")
    (takeover,) = stage.keeper.takeovers(10)
    assert stage.keeper.takeovers(10) == []
    assert stage.keeper.status("a", "t1") is Status.OPEN
    stage.keeper.not_taken(takeover)
    assert stage.keeper.status("a", "t1") is Status.HELD
    assert stage.keeper.takeovers(10) == [takeover]
    assert not stage.keeper.taken(takeover)
    assert stage.keeper.status("a", "t1") is Status.UNKNOWN


def test_what_the_primary_finishes_while_it_is_taken_over_is_not_forgotten() -> None:
    stage = Stage()
    stage.keeper.resubmit("a")
    (takeover,) = stage.keeper.takeovers(10)
    assert stage.keeper.event("a", Discarded("t1"), NOW) is None
    assert stage.keeper.taken(takeover)


def test_a_takeover_of_nothing_leaves_nothing() -> None:
    stage = Stage()
    stage.keeper.resubmit("a")
    stage.keeper.takeovers(10)
    stage.keeper.gone("a", "t1")
    assert stage.keeper.queues() == []


# Events


def test_a_copy_is_let_go_when_all_recipients_are_settled() -> None:
    stage = Stage()
    assert stage.keeper.event("a", Discarded("t1", None, [], NOW), NOW) == LetGo(1, "a", "t1", Reason.DISCARDED)
    assert stage.keeper.number("a", "t1") is None
    assert stage.keeper.queues() == []


def test_a_copy_shrinks_when_some_are_settled() -> None:
    stage = Stage()
    assert stage.keeper.event("a", Discarded("t1", [0, 2], [], NOW), NOW) == Shrink(1, "a", "t1", (0, 2))
    assert stage.keeper.number("a", "t1") == 1


def test_a_delivered_copy_goes_to_the_safety_net() -> None:
    stage = Stage(safety_net_hold_time=1000.0)
    step = stage.keeper.event("a", Discarded("t1", None, ["DB1"], NOW - 10.0), NOW)
    assert step == ToSafetyNet(1, "a", "t1", ("DB1",), NOW - 10.0, NOW + 990.0)


def test_without_a_safety_net_it_is_let_go() -> None:
    stage = Stage(safety_net_hold_time=0.0)
    step = stage.keeper.event("a", Discarded("t1", None, ["DB1"], NOW), NOW)
    assert step == LetGo(1, "a", "t1", Reason.DISCARDED)


def test_an_event_of_another_hub_is_none_of_this_copy() -> None:
    stage = Stage()
    assert stage.keeper.event("c", Discarded("t1"), NOW) is None
    assert stage.keeper.status("c", "t1") is Status.UNKNOWN
    assert stage.keeper.status("a", "t1") is Status.HELD


def test_a_copy_that_is_to_be_taken_over_can_still_be_let_go() -> None:
    stage = Stage()
    stage.keeper.resubmit("a")
    assert stage.keeper.event("a", Discarded("t1"), NOW) == LetGo(1, "a", "t1", Reason.DISCARDED)
    assert stage.takeovers() == []


def test_a_copy_that_comes_after_its_release_is_not_kept() -> None:
    stage = Stage(kept=0)
    assert stage.keeper.may_hold("a", "t1") == ""
    assert stage.keeper.event("a", Discarded("t1"), NOW) is None
    assert stage.keeper.may_hold("a", "t1")
    assert stage.keeper.keep("a", "a1", "t1", 1, NOW + DAY) == [LetGo(1, "a", "t1", Reason.DISCARDED)]
    assert stage.keeper.number("a", "t1") is None


def test_a_copy_that_was_taken_over_is_not_kept_again() -> None:
    stage = Stage()
    stage.keeper.resubmit("a")
    (takeover,) = stage.keeper.takeovers(1)
    stage.keeper.taken(takeover)
    assert stage.keeper.may_hold("a", "t1")


# Copies of which nothing is heard


def test_a_copy_that_nothing_was_heard_of_is_asked_about() -> None:
    stage = Stage(kept=2, shadow_heartbeat_frequency=120.0)
    stage.ask()
    stage.now += 1.0
    assert stage.ask() is None
    stage.wait(600, "a1")
    question = stage.ask()
    assert question is not None
    assert set(question.tokens) == {"t1", "t2"}
    assert not question.took_over


def test_what_the_primary_does_not_know_is_let_go() -> None:
    stage = Stage(kept=2)
    question = stage.ask()
    assert question is not None
    statuses = [Status.UNKNOWN if token == "t1" else Status.OPEN for token in question.tokens]
    steps = stage.keeper.answered(question, "a1", statuses)
    assert steps == [LetGo(1, "a", "t1", Reason.UNKNOWN)]


@pytest.mark.parametrize("status", [Status.OPEN, Status.LATER])
def test_what_the_primary_has_or_cannot_say_yet_is_kept(status: Status) -> None:
    stage = Stage()
    question = stage.ask()
    assert question is not None
    assert stage.keeper.answered(question, "a1", [status]) == []
    assert stage.keeper.status("a", "t1") is Status.HELD


def test_what_another_queue_database_does_not_know_is_not_let_go() -> None:
    stage = Stage()
    question = stage.ask()
    assert question is not None
    stage.hear("a2")
    assert stage.keeper.answered(question, "a2", [Status.UNKNOWN]) == []
    assert stage.takeovers() == [("t1", Reason.IDENTITY)]


def test_what_the_primary_has_finished_goes_when_the_event_comes() -> None:
    stage = Stage()
    question = stage.ask()
    assert question is not None
    assert stage.keeper.answered(question, "a1", [Status.DONE]) == []
    assert stage.keeper.status("a", "t1") is Status.HELD
    step = stage.keeper.event("a", Discarded("t1", None, ["DB1"], NOW), NOW)
    assert isinstance(step, ToSafetyNet)


@pytest.mark.parametrize(("name", "taken"), [("0", [("t1", Reason.BOTH_HELD)]), ("b", [])])
def test_when_both_keep_a_shadow_one_takes_over(name: str, taken: list[tuple[str, Reason]]) -> None:
    stage = Stage(name=name)
    question = stage.ask()
    assert question is not None
    assert stage.keeper.answered(question, "a1", [Status.HELD]) == []
    assert stage.takeovers() == taken


def test_an_unacknowledged_copy_expires_after_safety_net_and_message_expiration() -> None:
    stage = Stage(safety_net_hold_time=100.0)
    assert stage.keeper.until(NOW) == NOW + 100.0 + 2 * DAY
    stage.keeper.keep("a", "a1", "t9", 9, NOW + 700.0)
    stage.ask()
    stage.wait(650, "a1")
    stage.ask()
    stage.wait(650, "a1")
    question, steps = stage.keeper.questions("a", stage.now, 100)
    assert steps == [LetGo(9, "a", "t9", Reason.EXPIRED)]
    assert question is not None
    assert question.tokens == ("t1",)


def test_copies_do_not_expire_at_a_start_with_a_wrong_clock() -> None:
    stage = Stage(kept=0)
    stage.keeper.load("a", "a1", "t1", 1, NOW - 10 * DAY)
    assert stage.keeper.questions("a", NOW, 100)[1] == []
    assert stage.keeper.number("a", "t1") == 1


def test_questions_are_bounded_and_all_copies_get_their_turn() -> None:
    stage = Stage(kept=25)
    seen: list[str] = []
    while (question := stage.keeper.questions("a", NOW, 10)[0]) is not None:
        assert len(question.tokens) <= 10
        seen += question.tokens
    assert sorted(seen) == sorted(f"t{number}" for number in range(1, 26))


def test_operators_see_each_primarys_shadow_queue() -> None:
    stage = Stage(kept=3)
    stage.keeper.keep("c", "c1", "u1", 9, NOW + DAY)
    stage.hear("a1")
    stage.keeper.resubmit("c")
    queues = {queue.server: queue for queue in stage.keeper.queues()}
    assert (queues["a"].count, queues["a"].identity, queues["a"].taking_over) == (3, "a1", 0)
    assert (queues["c"].count, queues["c"].taking_over) == (1, 1)


def test_takeovers_come_in_bounded_numbers() -> None:
    stage = Stage(kept=5)
    stage.keeper.resubmit("a")
    first = stage.keeper.takeovers(3)
    assert len(first) == 3
    assert isinstance(first[0], TakeOver)
    assert len(stage.keeper.takeovers(3)) == 2
