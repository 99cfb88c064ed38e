"""What a command asks of the manager by the registry: taken up at once, answered when it comes to nothing."""

from __future__ import annotations

import pytest
from simulation import FAULTS_SECONDS, Trouble, World

from gatepost.activemanager.asking import asked, copy_service, failed_services, is_asked
from gatepost.activemanager.port import Move, Observation
from gatepost.routing.decision import ActiveCopy

ASKS = Trouble(15.0, 0.0, "command asks", ("DB1", "B"))


def test_a_request_is_a_move_with_a_mark() -> None:
    move = Move("DB1", "A", "B", 1, 0.0, asked("patches"))
    assert is_asked(move)
    assert not is_asked(Move("DB1", "A", "B", 1, 0.0, "patches"))


def test_a_word_on_a_copy_is_no_failure_of_its_server() -> None:
    observed = {
        (name, service): Observation(name, service, False, 0.0, service)
        for name, service in (("A", "imap"), ("A", copy_service("DB1")), ("B", "pop3"))
    }
    assert failed_services(observed, "A") == {"imap": "imap"}


def test_the_manager_takes_a_request_up_at_once() -> None:
    """Not after the time for moves that were left alone; with its hooks, and with one epoch more."""
    world = World(1, [ASKS])
    moved: list[float] = []

    def look() -> None:
        if world.registry.current.active["DB1"] == ActiveCopy("DB1", "B", 2):
            moved.append(world.now)
        else:
            world.later(0.1, look)

    world.later(ASKS.at, look)
    assert world.run() == []
    assert moved
    assert moved[0] - ASKS.at < 8.0 < world.settings.orphan_seconds
    assert world.replicas.writers["DB1"] == {"B"}
    assert world.registry.current.observed["B", copy_service("DB1")].healthy


def test_a_request_that_is_refused_ends_with_the_reason() -> None:
    """Sign-ins do not wait for it, and it is not tried again."""
    world = World(1, [ASKS])
    world.later(ASKS.at - 5.0, lambda: world.registry.set_blocked("DB1", "B", blocked=True))
    assert world.run() == []
    assert world.registry.current.active["DB1"] == ActiveCopy("DB1", "A", 1)
    assert not world.registry.current.moves
    note = world.registry.current.observed["B", copy_service("DB1")]
    assert (note.healthy, note.reason) == (False, "choice: the copy is blocked from activation")


@pytest.mark.parametrize("server", ["B", "A"])
def test_a_failure_does_not_wait_for_what_was_asked(server: str) -> None:
    """The active server (A), or the target (B), dies while the request stands: the database ends where it works."""
    world = World(2, [Trouble(ASKS.at - 0.5, FAULTS_SECONDS, "dead", server), ASKS])
    assert world.run() == []
    assert not world.registry.current.moves


def test_a_request_goes_on_with_the_next_manager() -> None:
    """Its holder is killed in the middle: the successor makes the move or undoes it, and one can write."""
    for at in (15.05, 15.2, 15.5, 16.0):
        world = World(3, [ASKS, *(Trouble(at, 6.0, "killed", node) for node in range(3))])
        assert world.run() == []
        assert not world.registry.current.moves
        assert len(world.replicas.writers["DB1"]) == 1
