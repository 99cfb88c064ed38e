"""The rules of a primary (SPEC S1 to S3; exchange-facts 4.4; smtp-facts rows 63, 64, part e.1)."""

from __future__ import annotations

import sys
import tracemalloc

from gatepost.organization.transport import TransportConfig
from gatepost.transport.message import Watcher
from gatepost.transport.shadow.decisions import Drop, Follow, GoOn, Note, Question, Settle, Unwatch
from gatepost.transport.shadow.primary import Primary
from gatepost.transport.shadow.steady import Moments
from gatepost.wire.shadow_messages import Discarded, Status

NOW = 1_800_000_000.0
B = Watcher("b", "t1")
C = Watcher("c", "t2")


def idle(_number: int) -> bool:
    return False


def busy(_number: int) -> bool:
    return True


class Stage:
    """A primary, its clock and moments."""

    def __init__(self, settings: TransportConfig = TransportConfig(), name: str = "a") -> None:  # noqa: B008 - frozen
        self.now = NOW
        self.moments = Moments()
        self.primary = Primary(name, settings, NOW, self.moments)
        self.primary.configure(settings, {"a", "b", "c"})

    def wait(self, seconds: float) -> None:
        """Time goes on, second by second as in a hub."""
        for _ in range(int(seconds / 10)):
            self.now += 10.0
            self.primary.tick(self.now, idle)

    def hear(self, server: str, identity: str) -> None:
        self.primary.heard(server, identity, self.moments.next(), self.now)

    def held(self, number: int, watcher: Watcher, identity: str = "b1") -> None:
        moment = self.moments.next()
        self.hear(watcher.server, identity)
        assert self.primary.held(number, watcher.server, identity, watcher.token, moment) == []

    def protected(self, number: int = 1, watcher: Watcher = B) -> Primary:
        self.primary.loaded(self.now)
        self.primary.opened(number, [watcher], held=False)
        self.held(number, watcher)
        return self.primary

    def events(self, server: str = "b", acknowledged: tuple[str, ...] = ()) -> list[Discarded]:
        return self.primary.ask(server, acknowledged, 100)[0]

    def answer(self, server: str, identity: str, *statuses: Status, is_busy: bool = False) -> list[object]:
        question = self.primary.questions(server, 100)
        assert question is not None
        self.hear(server, identity)
        return list(self.primary.answered(question, identity, statuses, busy if is_busy else idle))


# Discard events


def test_each_shadow_server_hears_when_all_recipients_are_settled() -> None:
    stage = Stage()
    primary = stage.protected()
    notes = primary.settled(1, [B], [0, 1], whole=True, at=NOW, databases=["DB1"])
    assert notes == [Note("b", Discarded("t1", None, ["DB1"], NOW))]
    assert stage.events("b") == [notes[0].event]
    assert stage.events("c") == []


def test_one_recipient_settled_is_told_so_that_a_resubmission_does_not_repeat_it() -> None:
    stage = Stage()
    primary = stage.protected()
    primary.settled(1, [B], [1], whole=False, at=NOW)
    assert stage.events() == [Discarded("t1", [1], [], NOW)]
    assert primary.status("b", "t1") is Status.OPEN


def test_what_is_told_of_one_copy_is_told_in_one_event() -> None:
    stage = Stage()
    primary = stage.protected()
    primary.settled(1, [B], [2], whole=False, at=NOW, databases=["DB1"])
    primary.settled(1, [B], [0], whole=False, at=NOW, databases=["DB2"])
    assert stage.events() == [Discarded("t1", [0, 2], ["DB1", "DB2"], NOW)]
    primary.settled(1, [B], [1], whole=True, at=NOW, databases=["DB1", "DB2"])
    assert stage.events() == [Discarded("t1", None, ["DB1", "DB2"], NOW)]


def test_an_event_counts_recipients_as_the_copy_does() -> None:
    stage = Stage()
    watcher = Watcher("b", "t1", [4, -1, 2])
    primary = stage.protected(watcher=watcher)
    primary.settled(1, [watcher], [2, 3], whole=False, at=NOW)
    assert stage.events() == [Discarded("t1", [2], [], NOW)]


def test_a_recipient_that_the_copy_does_not_cover_is_no_event() -> None:
    stage = Stage()
    watcher = Watcher("b", "t1", [4, -1])
    primary = stage.protected(watcher=watcher)
    assert primary.settled(1, [watcher], [1], whole=False, at=NOW) == []


def test_events_are_given_out_again_until_they_are_acknowledged() -> None:
    stage = Stage()
    primary = stage.protected()
    primary.settled(1, [B], [0], whole=True, at=NOW)
    event = stage.events()
    assert stage.events() == event
    assert primary.ask("b", ["t1"], 100) == ([], ["t1"])
    assert primary.status("b", "t1") is Status.UNKNOWN


def test_an_acknowledgement_is_not_for_what_was_added_after_the_answer() -> None:
    stage = Stage()
    primary = stage.protected()
    primary.settled(1, [B], [0], whole=False, at=NOW)
    stage.events()
    primary.settled(1, [B], [1], whole=True, at=NOW)
    assert primary.ask("b", ["t1"], 100) == ([Discarded("t1", None, [], NOW)], [])


def test_events_come_in_bounded_answers_oldest_first() -> None:
    stage = Stage()
    primary = stage.protected()
    for number in range(2, 12):
        watcher = Watcher("b", f"n{number}")
        primary.opened(number, [watcher], held=True)
        primary.settled(number, [watcher], [0], whole=True, at=NOW)
    first = primary.ask("b", [], 4)[0]
    assert [event.token for event in first] == ["n2", "n3", "n4", "n5"]
    second, forgotten = primary.ask("b", [event.token for event in first], 4)
    assert forgotten == ["n2", "n3", "n4", "n5"]
    assert [event.token for event in second] == ["n6", "n7", "n8", "n9"]


def test_events_that_nobody_asked_for_are_dropped_after_the_auto_discard_interval() -> None:
    stage = Stage(TransportConfig(shadow_message_auto_discard_interval=100.0))
    primary = stage.protected()
    primary.settled(1, [B], [0], whole=True, at=NOW)
    stage.wait(90)
    assert primary.tick(stage.now, idle)[1] == []
    assert primary.tick(stage.now + 10.0, idle)[1] == [("b", "t1")]
    assert stage.events() == []


def test_a_clock_that_is_set_drops_no_events() -> None:
    stage = Stage()
    primary = stage.protected()
    primary.settled(1, [B], [0], whole=True, at=NOW - 1e6)
    assert primary.tick(NOW + 1e7, idle) == ([], [])
    assert primary.tick(NOW - 1e7, idle) == ([], [])
    assert len(stage.events()) == 1


def test_events_on_disk_survive_a_start() -> None:
    stage = Stage()
    stage.primary.load_events({"b": [Discarded("t1", None, [], NOW - 1e7)]})
    stage.primary.loaded(NOW)
    assert stage.primary.tick(NOW, idle)[1] == []
    assert stage.primary.status("b", "t1") is Status.DONE


def test_messages_that_nobody_watches_make_no_events() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.opened(1, [], held=True)
    assert stage.primary.settled(1, [], [0], whole=True, at=NOW) == []
    assert stage.primary.settled(2, [B], [0], whole=True, at=NOW) == []  # a watcher that never had the copy


# Protection


def test_a_message_accepted_without_a_copy_is_protected_later() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.opened(1, [], held=False)
    assert stage.primary.unprotected(10) == [1]
    assert stage.primary.unprotected(10) == []
    stage.primary.still_unprotected(1)
    assert stage.primary.unprotected(10) == [1]
    stage.primary.offered(1, [B])
    stage.held(1, B)
    assert stage.primary.unprotected(10) == []


def test_switched_off_nothing_is_protected_anew_but_what_is_there_goes_on() -> None:
    stage = Stage()
    primary = stage.protected()
    primary.opened(2, [], held=False)
    primary.configure(TransportConfig(shadow_redundancy_enabled=False), {"a", "b"})
    assert primary.unprotected(10) == []
    primary.settled(1, [B], [0], whole=True, at=NOW)
    assert len(stage.events()) == 1


def test_a_watcher_that_comes_with_another_queue_database_has_no_copies() -> None:
    stage = Stage()
    primary = stage.protected()
    stage.hear("b", "b1")
    assert primary.unprotected(10) == []
    stage.hear("b", "b2")
    assert primary.unprotected(10) == [1]


def test_what_was_seen_before_the_copy_was_made_says_nothing_about_it() -> None:
    stage = Stage()
    before = stage.moments.next()
    primary = stage.protected()
    primary.heard("b", "b0", before, NOW)
    assert primary.unprotected(10) == []


def test_a_copy_on_a_disk_that_is_gone_already_is_none() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.opened(1, [B], held=False)
    moment = stage.moments.next()
    stage.hear("b", "b2")
    assert stage.primary.held(1, "b", "b1", "t1", moment) == []
    assert stage.primary.unprotected(10) == [1]


def test_a_senders_copy_on_an_unknown_disk_is_asked_about() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.opened(1, [B], held=True)
    assert stage.primary.wanted() == []
    stage.hear("b", "b1")
    assert stage.primary.wanted() == ["b"]
    assert stage.answer("b", "b1", Status.HELD) == []
    assert stage.primary.unprotected(10) == []


def test_a_sender_that_died_before_it_noted_its_shadow_is_found_out() -> None:
    stage = Stage()
    stage.hear("b", "b1")
    stage.primary.loaded(NOW)
    stage.primary.opened(1, [B], held=True)
    stage.primary.opened(2, [Watcher("b", "t2")], held=True)
    stage.primary.settled(2, [Watcher("b", "t2")], [0], whole=True, at=NOW)
    assert stage.primary.wanted() == []
    stage.wait(20)
    question = stage.primary.questions("b", 10)
    assert question is not None
    assert question.tokens == ("t1",)  # what has gone on need not be asked about
    stage.primary.unanswered(question)
    assert stage.answer("b", "b1", Status.UNKNOWN) == []
    assert stage.primary.unprotected(10) == [1]


def test_a_watcher_silent_for_long_is_one_no_more() -> None:
    stage = Stage(TransportConfig(shadow_resubmit_time_span=100.0))
    primary = stage.protected()
    stage.wait(90)
    assert primary.unprotected(10) == []
    stage.wait(10)
    assert primary.unprotected(10) == [1]
    assert primary.wanted() == ["b"]
    assert primary.status("b", "t1") is Status.OPEN


def test_a_watcher_that_is_no_server_any_more_is_none() -> None:
    stage = Stage()
    primary = stage.protected()
    primary.settled(1, [B], [0], whole=False, at=NOW)
    assert primary.configure(TransportConfig(), {"a", "c"}) == [("b", "t1")]
    assert primary.unprotected(10) == [1]


def test_a_copy_in_doubt_is_asked_about_and_released_when_another_is_there() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.opened(1, [B], held=False)
    stage.primary.in_doubt(1, "b", "t1")
    assert stage.primary.wanted() == ["b"]
    stage.primary.offered(1, [B, C])
    assert stage.primary.status("b", "t1") is Status.OPEN
    moment = stage.moments.next()
    stage.hear("c", "c1")
    steps = stage.primary.held(1, "c", "c1", "t2", moment)
    assert steps == [Unwatch(1, ("t1",)), Note("b", Discarded("t1"))]
    assert stage.primary.wanted() == []
    assert stage.primary.status("b", "t1") is Status.DONE


def test_a_copy_that_was_refused_is_not_watched() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.opened(1, [B], held=False)
    stage.primary.not_held(1, "b", "t1")
    assert stage.primary.status("b", "t1") is Status.UNKNOWN
    assert stage.primary.wanted() == []


def test_a_message_delivered_before_its_copy_stands_releases_the_copy() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.opened(1, [B], held=False)
    moment = stage.moments.next()
    stage.primary.settled(1, [B], [0], whole=True, at=NOW)
    stage.hear("b", "b1")
    assert stage.primary.held(1, "b", "b1", "t1", moment) == []
    assert stage.primary.status("b", "t1") is Status.DONE


# Fencing


def test_a_primary_that_starts_asks_before_it_sends() -> None:
    stage = Stage()
    assert stage.primary.load(1, [B]) == []
    stage.primary.loaded(NOW)
    assert stage.primary.waits(1)
    assert stage.primary.wanted() == ["b"]
    assert stage.answer("b", "b1", Status.HELD) == [GoOn(1)]
    assert not stage.primary.waits(1)
    assert stage.primary.unprotected(10) == []


def test_what_was_taken_over_is_followed_and_not_sent() -> None:
    stage = Stage()
    stage.primary.load(1, [B])
    stage.primary.loaded(NOW)
    assert stage.answer("b", "b1", Status.OPEN) == [Follow(1, "b", "b1", "t1")]
    assert stage.primary.waits(1)
    stage.primary.left(1, "b", "t1")
    assert stage.primary.settled(1, [], [0], whole=True, at=NOW) == []
    assert not stage.primary.waits(1)
    assert stage.primary.status("b", "t1") is Status.UNKNOWN  # the keeper's HELD


def test_what_was_finished_elsewhere_is_dropped() -> None:
    stage = Stage()
    stage.primary.load(1, [B])
    stage.primary.loaded(NOW)
    assert stage.answer("b", "b1", Status.DONE) == [Drop(1, "b", "t1")]


def test_what_a_watcher_does_not_know_goes_on_and_is_protected_anew() -> None:
    stage = Stage()
    stage.primary.load(1, [B])
    stage.primary.loaded(NOW)
    assert stage.answer("b", "b2", Status.UNKNOWN) == [GoOn(1)]
    assert stage.primary.unprotected(10) == [1]


def test_a_message_waits_for_all_its_watchers() -> None:
    stage = Stage()
    stage.primary.load(1, [B, C])
    stage.primary.loaded(NOW)
    assert stage.answer("b", "b1", Status.HELD) == []
    assert stage.primary.waits(1)
    assert stage.answer("c", "c1", Status.OPEN) == [Follow(1, "c", "c1", "t2")]


def test_two_copies_become_one() -> None:
    stage = Stage()
    stage.primary.load(1, [B, C])
    stage.primary.loaded(NOW)
    stage.answer("b", "b1", Status.HELD)
    assert stage.answer("c", "c1", Status.HELD) == [GoOn(1)]
    assert stage.primary.unprotected(10) == [1]


def test_fencing_ends_after_its_time() -> None:
    stage = Stage(TransportConfig(shadow_fence_time=25.0))
    stage.primary.load(1, [B])
    stage.primary.loaded(NOW)
    stage.wait(20)
    assert stage.primary.tick(NOW + 24.0, idle)[0] == []
    assert stage.primary.tick(NOW + 25.0, idle)[0] == [GoOn(1)]
    assert stage.primary.wanted() == ["b"]  # what it says late still counts
    assert stage.answer("b", "b1", Status.OPEN) == [Follow(1, "b", "b1", "t1")]


def test_fencing_does_not_end_by_a_clock_that_is_set() -> None:
    stage = Stage()
    stage.primary.load(1, [B])
    stage.primary.loaded(NOW)
    assert stage.primary.tick(NOW + 1e6, idle)[0] == []


def test_a_message_without_watchers_waits_for_nobody() -> None:
    stage = Stage()
    stage.primary.load(1, [])
    stage.primary.loaded(NOW)
    assert not stage.primary.waits(1)
    assert stage.primary.unprotected(10) == [1]


def test_while_it_loads_a_primary_denies_nothing() -> None:
    stage = Stage()
    assert stage.primary.status("b", "t9") is Status.LATER
    stage.primary.loaded(NOW)
    assert stage.primary.status("b", "t9") is Status.UNKNOWN


def test_who_cannot_say_yet_is_asked_again() -> None:
    stage = Stage()
    stage.primary.load(1, [B])
    stage.primary.loaded(NOW)
    assert stage.answer("b", "b1", Status.LATER) == []
    assert stage.primary.waits(1)
    assert stage.answer("b", "b1", Status.HELD) == [GoOn(1)]
    stage.primary.took_over(2, [C], "c", "t2")
    assert stage.answer("c", "c1", Status.LATER) == []
    assert stage.primary.wanted() == ["c"]


def test_what_was_finished_elsewhere_while_it_loads_is_not_sent() -> None:
    stage = Stage()
    assert stage.primary.finished("b", "t1", idle) == []
    assert stage.primary.load(1, [B]) == [Drop(1, "b", "t1")]


def test_of_two_hubs_that_start_at_once_one_stands_firm() -> None:
    a, b = Stage(name="a"), Stage(name="b")
    for stage, other in ((a, "b"), (b, "a")):
        stage.primary.load(1, [Watcher(other, "t1")])
        stage.primary.loaded(NOW)
        assert stage.primary.status(other, "t1") is Status.OPEN
    assert a.answer("b", "b1", Status.OPEN) == [GoOn(1)]
    assert b.answer("a", "a1", Status.OPEN) == [Follow(1, "a", "a1", "t1")]


def test_a_settled_message_whose_removal_was_lost_is_not_sent_again() -> None:
    stage = Stage()
    stage.primary.load_events({"b": [Discarded("t1", None, [], NOW)]})
    assert stage.primary.load(1, [B]) == [Drop(1, "b", "t1")]


def test_a_settled_recipient_whose_state_was_lost_is_not_sent_again() -> None:
    stage = Stage()
    stage.primary.load_events({"b": [Discarded("t1", [1], [], NOW)]})
    assert stage.primary.load(1, [Watcher("b", "t1", [5, 6])]) == [Settle(1, (6,))]


def test_a_release_is_no_settlement() -> None:
    stage = Stage()
    stage.primary.load_events({"b": [Discarded("t1")]})
    assert stage.primary.load(1, [B]) == [Unwatch(1, ("t1",))]
    stage.primary.loaded(NOW)
    assert not stage.primary.waits(1)
    assert stage.primary.unprotected(10) == [1]


# Takeovers


def test_who_was_responsible_is_told_at_the_first_contact() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.took_over(1, [Watcher("b", "t1", [2])], "b", "t1")
    assert stage.primary.wanted() == ["b"]
    assert stage.primary.unprotected(10) == [1]
    question = stage.primary.questions("b", 10)
    assert question == Question("b", ("t1",), True, question.moment if question else 0)
    assert stage.primary.wanted() == []
    assert question is not None
    stage.primary.unanswered(question)
    assert stage.answer("b", "b1", Status.HELD) == []
    assert stage.primary.unprotected(10) == []
    assert stage.primary.wanted() == []


def test_who_is_sending_it_just_now_is_told_again() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.took_over(1, [B], "b", "t1")
    assert stage.answer("b", "b1", Status.OPEN) == []
    assert stage.primary.wanted() == ["b"]
    assert stage.answer("b", "b1", Status.DONE) == [Drop(1, "b", "t1")]


def test_what_the_old_primary_finished_while_we_send_it_is_dropped_afterwards() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.took_over(1, [B], "b", "t1")
    assert stage.primary.finished("b", "t1", busy) == []
    assert stage.primary.tick(NOW, busy)[0] == []
    assert stage.primary.tick(NOW, idle)[0] == [Drop(1, "b", "t1")]
    assert stage.primary.tick(NOW, idle)[0] == []


def test_what_the_old_primary_settled_of_it_is_not_sent_again() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.primary.took_over(1, [B], "b", "t1")
    assert stage.primary.progressed("b", Discarded("t1", [1])) == [Settle(1, (1,), "b", "t1")]
    assert stage.primary.progressed("b", Discarded("t9", [1])) == []


def test_a_primary_that_only_hung_becomes_the_shadow_server() -> None:
    stage = Stage()
    primary = stage.protected()
    assert primary.told("b", "b1", ["t1", "t9"], idle) == [Follow(1, "b", "b1", "t1")]


def test_a_primary_that_is_sending_a_message_keeps_it() -> None:
    stage = Stage()
    primary = stage.protected()
    assert primary.told("b", "b1", ["t1"], busy) == []
    assert primary.status("b", "t1") is Status.OPEN


def test_what_is_finished_is_not_given_away() -> None:
    stage = Stage()
    primary = stage.protected()
    primary.settled(1, [B], [0], whole=True, at=NOW)
    assert primary.told("b", "b1", ["t1"], idle) == []
    assert primary.status("b", "t1") is Status.DONE


def test_only_the_watcher_itself_may_claim() -> None:
    stage = Stage()
    primary = stage.protected()
    assert primary.told("c", "c1", ["t1"], idle) == []
    assert primary.status("c", "t1") is Status.UNKNOWN
    assert primary.finished("c", "t1", idle) == []


# Cost


def test_an_open_message_costs_little_memory() -> None:
    stage = Stage()
    stage.primary.loaded(NOW)
    stage.hear("b", "b1")
    count = 20_000
    watchers = [Watcher("b", sys.intern(f"5f1d8d2e-{number:032x}")) for number in range(count)]
    numbers = list(range(count))
    tracemalloc.start()
    for number, watcher in zip(numbers, watchers, strict=True):
        stage.primary.opened(number, [watcher], held=True)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / count < 120
