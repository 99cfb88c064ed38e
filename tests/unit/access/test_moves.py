"""Rounds that end sessions: who, when, how many at once, and the forced end. Time is moved by hand."""

from __future__ import annotations

import random
from types import MappingProxyType
from typing import Any

import pytest
from http_harness import FakeLoop, MemoryTransport
from hypothesis import given
from hypothesis import strategies as st

from gatepost.access import moves
from gatepost.access.leaving import MailLeaver
from gatepost.access.moves import Changed, Outcome, Round, changes, window_for
from gatepost.activemanager.port import RegistryView
from gatepost.relay.noting import ImapTails
from gatepost.relay.relay import Relay
from gatepost.routing.decision import ActiveCopy


class Session:
    """A session as a round sees it; `moments` is when it is at a boundary and silent, by the clock."""

    def __init__(self, loop: FakeLoop, *, ready_at: float = 0.0, closes: bool = True) -> None:
        self.loop = loop
        self.ready_at = ready_at
        self.closes = closes
        self.bytes = 0
        self.full = False
        self.asked: list[float] = []
        self.left_at: float | None = None
        self.cut_at: float | None = None
        self.stayed = False

    @property
    def outcome(self) -> Outcome | None:
        if self.stayed:
            return Outcome.STAYED
        return Outcome.CLOSED if self.cut_at is not None or (self.left_at is not None and self.closes) else None

    def activity(self) -> int | None:
        return None if self.full else self.bytes

    def leave(self) -> bool:
        self.asked.append(self.loop.now)
        if self.loop.now < self.ready_at:
            return False
        self.left_at = self.loop.now
        return True

    def cut(self) -> None:
        self.cut_at = self.loop.now


class Play:
    """A round over sessions, on a clock of its own."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.began = self.loop.now
        self.outcomes: list[list[Outcome]] = []

    def sessions(self, number: int, **how: Any) -> list[Session]:
        return [Session(self.loop, **how) for _ in range(number)]

    def begin(self, sessions: list[Session], *, window: float = 2.0, forced: float = 10.0, seed: int = 1) -> None:
        loop: Any = self.loop
        Round(loop, sessions, window=window, forced=forced, done=self.outcomes.append, chance=random.Random(seed))

    def go_on(self, seconds: float) -> None:
        """Let so much time pass, tick by tick."""
        end = self.loop.now + seconds
        while self.loop.timers and min(timer[0] for timer in self.loop.timers) <= end:
            due = min(self.loop.timers, key=lambda timer: timer[:2])
            self.loop.timers.remove(due)
            self.loop.now = max(self.loop.now, due[0])
            due[2](*due[3])
        self.loop.now = end


def view(**active: tuple[str, int]) -> RegistryView:
    """A registry's view: database to server and epoch."""
    return RegistryView(1, MappingProxyType({name: ActiveCopy(name, *where) for name, where in active.items()}))


def test_what_has_changed() -> None:
    """Another server, another epoch at the same one, a registry that went back; not what is new or unchanged."""
    before = view(DB1=("A", 1), DB2=("A", 5), DB3=("B", 3), DB4=("A", 1), DB5=("A", 9))
    after = view(DB1=("B", 2), DB2=("A", 6), DB3=("B", 3), DB5=("B", 8), DB6=("B", 1))
    assert changes(before, after) == [Changed("DB1", "A", 2), Changed("DB2", "A", 6), Changed("DB5", "A", 8)]


@pytest.mark.parametrize("seed", range(5))
def test_closes_are_spread_over_the_window(seed: int) -> None:
    """Field case 14: never more in a part of the window than the rate, and no rhythm that two workers could share."""
    play = Play()
    sessions = play.sessions(1000)
    play.begin(sessions, window=2.0, seed=seed)
    play.go_on(3.0)
    times = sorted(s.left_at - play.began for s in sessions if s.left_at is not None)
    assert len(times) == 1000
    assert times[-1] <= 2.0 + moves.QUIET_SECONDS + moves.TICK_SECONDS
    after_silence = [t for t in times if t > moves.QUIET_SECONDS + moves.TICK_SECONDS]
    for begin in range(2, 20):
        part = [t for t in after_silence if begin / 10 < t <= (begin + 1) / 10]
        assert 35 <= len(part) <= 65  # 50 in a tenth of a second, give or take a tick
    assert play.outcomes == [[Outcome.CLOSED] * 1000]


def test_two_workers_have_another_order() -> None:
    """The order is not that of the sessions."""
    play = Play()
    sessions = play.sessions(100)
    play.begin(sessions)
    play.go_on(3)
    assert sorted(sessions, key=lambda s: s.left_at or 0.0) != sessions


def test_the_window_grows_with_the_sessions() -> None:
    """So many sign-ins a second as the new server can take from one worker."""
    assert window_for(100, 2.0, 1000) == 2.0
    assert window_for(5000, 2.0, 1000) == 5.0
    play = Play()
    sessions = play.sessions(100)
    play.begin(sessions, window=50.0, forced=10.0)  # but the old copy has an end
    play.go_on(10.1)
    assert all(s.left_at is not None and s.left_at <= play.began + 10.1 for s in sessions)


def test_a_busy_session_is_asked_only_after_a_moment_of_silence() -> None:
    """Bytes pass, or wait for a slow reader: nobody asks. Then they stop, and it goes."""
    play = Play()
    (busy,), (full,) = play.sessions(1), play.sessions(1)
    full.full = True
    play.begin([busy, full], window=0.0)
    for _ in range(60):
        busy.bytes += 1
        play.go_on(0.05)
    assert (busy.asked, full.asked) == ([], [])
    full.full = False
    stopped = play.loop.now
    play.go_on(0.5)
    for session in (busy, full):
        assert session.left_at is not None
        assert moves.QUIET_SECONDS - 0.05 <= session.left_at - stopped <= 0.3


def test_what_is_at_no_boundary_is_cut_at_the_deadline_and_not_before() -> None:
    """Forced is the last stage, and it comes."""
    play = Play()
    stuck = play.sessions(3, ready_at=1e9)
    easy = play.sessions(3)
    play.begin(stuck + easy, forced=10.0)
    play.go_on(9.97)
    assert all(s.cut_at is None for s in stuck)
    assert len(stuck[0].asked) > 50  # asked again and again
    play.go_on(0.1)
    assert all(s.cut_at is not None and s.cut_at >= play.began + 10.0 for s in stuck)
    assert all(s.cut_at is None for s in easy)
    assert play.outcomes == [[Outcome.CLOSED] * 6]


def test_a_client_that_does_not_take_its_farewell_is_cut_soon() -> None:
    """Stopped, or asleep: its connection does not stay (field case 4)."""
    play = Play()
    (stopped,) = play.sessions(1, closes=False)
    play.begin([stopped], window=0.0)
    play.go_on(5.0)
    assert stopped.left_at is not None
    assert stopped.cut_at is not None
    assert moves.GOODBYE_SECONDS <= stopped.cut_at - stopped.left_at < moves.GOODBYE_SECONDS + 0.1
    assert play.outcomes == [[Outcome.CLOSED]]


def test_who_cannot_be_ended_is_said_to_be_there_still() -> None:
    """ "closed" is a promise (field case 1)."""
    play = Play()
    (undead,) = play.sessions(1, closes=False)
    undead.cut = lambda: None  # type: ignore[method-assign]
    play.begin([undead], window=0.0, forced=1.0)
    play.go_on(5.0)
    assert play.outcomes == [[Outcome.TIMED_OUT]]


def test_who_stays_by_itself_is_left_alone() -> None:
    """Carried over, or its request is finished."""
    play = Play()
    sessions = play.sessions(2)
    sessions[0].stayed = True
    play.begin(sessions, window=0.0)
    play.go_on(1.0)
    assert sessions[0].asked == []
    assert play.outcomes == [[Outcome.STAYED, Outcome.CLOSED]]


def test_a_round_of_nobody_is_over_at_once() -> None:
    """A kick that matches nothing."""
    play = Play()
    play.begin([])
    play.go_on(0.0)
    assert play.outcomes == [[]]


@given(
    st.lists(st.tuples(st.floats(0, 12), st.booleans()), max_size=20),
    st.floats(0, 4),
    st.floats(0.1, 8),
    st.integers(0, 1000),
)
def test_every_session_has_an_outcome_in_time(
    which: list[tuple[float, bool]], window: float, forced: float, seed: int
) -> None:
    """Whatever sessions do: nobody is cut before the deadline but those who were told farewell, and all are gone."""
    play = Play()
    sessions = [Session(play.loop, ready_at=play.began + ready, closes=closes) for ready, closes in which]
    play.begin(sessions, window=window, forced=forced, seed=seed)
    play.go_on(forced + moves.CUT_SECONDS + 1)
    assert play.outcomes == [[Outcome.CLOSED] * len(sessions)]
    for session in sessions:
        if session.cut_at is not None and session.cut_at < play.began + forced:
            assert session.left_at is not None
        if session.left_at is not None:
            assert session.left_at >= session.ready_at


class RelayedLeg:
    """As much of a mail session as its leaver needs: a real relay between two transports, and what watches it."""

    session = "s-1"
    carry_over = None
    gone = False

    def __init__(self) -> None:
        self.door = self
        self.database, self.epoch = "DB1", 1
        self.client, self.server = (MemoryTransport(None, tls=True) for _ in range(2))
        self.ends = ImapTails()
        client, server = self.client, self.server
        self.relay = Relay(client, server, self.ended, self.ends)  # type: ignore[arg-type]
        self.relay.start()

    def ended(self, _: Relay) -> None:
        self.gone = True

    def is_current(self, _database: str, _epoch: int) -> bool:
        return False

    def at_boundary(self) -> bool:
        return self.ends.at_rest()

    def leave(self, reason: str, text: str) -> None:
        self.relay.leave(reason, self.ends.farewell(text))

    def cut(self, reason: str) -> None:
        self.relay.abort(reason)


COMMANDS = [
    b"a1 NOOP\r\n",
    b"a2 APPEND INBOX {26}\r\n",
    b"a2 APPEND INBOX {26+}\r\nSubject: x\r\n\r\na9 OK no\r\n\r\n",
    b"a3 UID FETCH 1:* (FLAGS)\r\n",
    b"a4 IDLE\r\n",
    b"DONE\r\n",
    b"a5 LOGIN {3}\r\n",
]


@given(
    before=st.sampled_from([b"", b"a0 OK done\r\n", b"* 3 EXISTS\r\na0 OK done\r\n"]),
    command=st.sampled_from(COMMANDS),
    cut=st.integers(1, 80),
    parts=st.integers(1, 5),
    seed=st.integers(0, 100),
)
async def test_nothing_of_a_half_sent_command_is_ever_cut_before_the_deadline(
    before: bytes, command: bytes, cut: int, parts: int, seed: int
) -> None:
    """Wherever a client pauses in its command, and however long: its server is there for the rest of it."""
    play, leg = Play(), RelayedLeg()
    if before:
        leg.client.protocol.data_received(b"a0 NOOP\r\n")
        leg.server.protocol.data_received(before)
    loop: Any = play.loop
    session: Any = leg
    leaver = MailLeaver(session, "moved", "moved", moved=True)
    sent = command[:cut]
    step = -(-len(sent) // parts)
    leg.client.protocol.data_received(sent[:step])
    Round(loop, [leaver], window=0.0, forced=10.0, done=play.outcomes.append, chance=random.Random(seed))
    for begin in range(step, len(sent), step):
        play.go_on(1.0)
        assert not leg.server.closed
        leg.client.protocol.data_received(sent[begin : begin + step])
    play.go_on(9.9 - (play.loop.now - play.began))
    assert not leg.server.closed
    assert not leg.client.closed
    play.go_on(0.3)
    assert leg.server.aborted
    assert leg.server.take().endswith(sent)  # all that was said has gone there, and nothing else
    leg.relay.abort("the end")
