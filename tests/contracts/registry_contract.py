"""What every registry promises. Each engine's test file has subclasses of these with its fixtures."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol as Port

import pytest

from gatepost.activemanager.port import (
    LOSSES_KEPT,
    MANAGER,
    Dial,
    Lease,
    Move,
    Observation,
    OwnedRegistryWatch,
    Registry,
    RegistryUnavailable,
    RegistryView,
    ServerWord,
    StaleEpoch,
)
from gatepost.activemanager.seed import seed
from gatepost.organization.model import Database, DatabaseCopy, Organization
from gatepost.routing.decision import ActiveCopy

SEEN_SECONDS = 0.5
"""A change is known to every front end within this time."""
LONG_LEASE_SECONDS = 60.0
"""Of a lease that does not end in a test."""


def move(database: str = "DB01", epoch: int = 1) -> Move:
    """A move from MBX-01 to MBX-02."""
    return Move(database, "MBX-01", "MBX-02", epoch, 1700000000.5, "planned")


def take(registry: Registry, holder: str = "CAS-01", seconds: float = LONG_LEASE_SECONDS) -> Lease:
    """The manager's lease, which must be free."""
    lease = registry.take_lease(MANAGER, holder, seconds)
    assert lease is not None
    return lease


def organization(*names: str) -> Organization:
    """Databases whose first-choice copy is not the first in the list."""
    copies = (DatabaseCopy("MBX-02", 2), DatabaseCopy("MBX-01", 1))
    return Organization("contoso", databases={name: Database(name, copies) for name in names})


class RegistryContract:
    """Subclasses provide the fixture `registry`, an empty `Registry`, and `again`, a second hold on the same one."""

    def test_it_begins_empty(self, registry: Registry) -> None:
        assert registry.view() == RegistryView(0, {}, 0)

    def test_activation_is_seen_by_all(self, registry: Registry, again: Registry) -> None:
        assert registry.activate("DB01", "MBX-01") == ActiveCopy("DB01", "MBX-01", 1)
        assert again.view().active == {"DB01": ActiveCopy("DB01", "MBX-01", 1)}

    def test_every_activation_has_the_next_epoch(self, registry: Registry, again: Registry) -> None:
        """Also on the same server, and each database by itself."""
        epochs = [engine.activate("DB01", "MBX-01").epoch for engine in (registry, again, registry)]
        assert epochs == [1, 2, 3]
        assert registry.activate("DB02", "MBX-01").epoch == 1

    def test_the_revision_grows_with_every_change(self, registry: Registry) -> None:
        revisions = [registry.view().revision]
        registry.activate("DB01", "MBX-01")
        revisions.append(registry.view().revision)
        registry.set_organization_version(7)
        revisions.append(registry.view().revision)
        assert revisions == sorted(set(revisions))
        assert registry.view().organization_version == 7

    def test_an_expected_epoch_is_a_condition(self, registry: Registry) -> None:
        assert registry.activate("DB01", "MBX-01", expected_epoch=0).epoch == 1
        assert registry.activate("DB01", "MBX-02", expected_epoch=1).epoch == 2
        before = registry.view()
        for wrong in (0, 1, 3):
            with pytest.raises(StaleEpoch):
                registry.activate("DB01", "MBX-01", expected_epoch=wrong)
        assert registry.view() == before

    def test_of_many_at_once_one_wins(self, registry: Registry) -> None:
        def attempt(server: str) -> bool:
            try:
                registry.activate("DB01", server, expected_epoch=0)
            except StaleEpoch:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            wins = list(pool.map(attempt, [f"MBX-{n}" for n in range(8)]))
        assert wins.count(True) == 1
        assert registry.view().active["DB01"] == ActiveCopy("DB01", f"MBX-{wins.index(True)}", 1)

    def test_an_activation_that_may_have_lost_mail_says_so(self, registry: Registry, again: Registry) -> None:
        """Exchange-facts 4.5: hubs are to hear of (database, [from, to]), also those that were away."""
        registry.activate("DB01", "MBX-01")
        assert registry.view().losses == {}
        registry.activate("DB01", "MBX-02", 1, lost_seconds=600.0)
        registry.activate("DB02", "MBX-02", lost_seconds=0.0)
        (loss,) = again.view().losses["DB01"]
        assert (loss.database, loss.epoch) == ("DB01", 2)
        assert loss.until - loss.since == pytest.approx(600.0)
        assert abs(loss.until - time.time()) < 60.0
        registry.activate("DB01", "MBX-01")  # one without loss takes nothing back
        assert again.view().losses["DB01"] == (loss,)
        assert [each.epoch for each in again.view().losses["DB02"]] == [1]

    def test_the_last_lossy_activations_are_kept(self, registry: Registry) -> None:
        for _ in range(LOSSES_KEPT + 2):
            registry.activate("DB01", "MBX-01", lost_seconds=1.0)
        assert [each.epoch for each in registry.view().losses["DB01"]] == list(range(3, LOSSES_KEPT + 3))

    def test_a_view_does_not_change(self, registry: Registry) -> None:
        registry.activate("DB01", "MBX-01")
        view = registry.view()
        registry.activate("DB01", "MBX-02")
        assert view.active["DB01"].server == "MBX-01"

    def test_seeding_takes_the_first_choice(self, registry: Registry) -> None:
        assert seed(registry, organization("DB01")) == [ActiveCopy("DB01", "MBX-01", 1)]
        assert registry.view().active == {"DB01": ActiveCopy("DB01", "MBX-01", 1)}

    def test_seeding_changes_nothing_that_is_known(self, registry: Registry) -> None:
        registry.activate("DB01", "MBX-02")
        assert [copy.database for copy in seed(registry, organization("DB01", "DB02"))] == ["DB02"]
        before = registry.view()
        assert seed(registry, organization("DB01", "DB02")) == []
        assert registry.view() == before

    def test_seeding_at_once_seeds_once(self, registry: Registry) -> None:
        wanted = organization(*(f"DB{n}" for n in range(5)))
        with ThreadPoolExecutor(4) as pool:
            added = sum(pool.map(lambda _: len(seed(registry, wanted)), range(4)))
        assert added == 5
        assert {copy.epoch for copy in registry.view().active.values()} == {1}

    def test_a_database_without_a_copy_is_not_seeded(self, registry: Registry) -> None:
        assert seed(registry, Organization("contoso", databases={"DB01": Database("DB01", ())})) == []


class MovesContract:
    """Moves, the operator's words and what was observed. Fixtures as of `RegistryContract`."""

    def test_a_move_is_seen_until_its_activation(self, registry: Registry, again: Registry) -> None:
        registry.activate("DB01", "MBX-01")
        registry.begin_move(move())
        assert again.view().moves == {"DB01": move()}
        again.activate("DB01", "MBX-02", expected_epoch=1)
        assert registry.view().moves == {}

    def test_a_move_that_comes_to_nothing_ends(self, registry: Registry) -> None:
        registry.activate("DB01", "MBX-01")
        registry.begin_move(move())
        registry.end_move("DB01")
        view = registry.view()
        assert view.moves == {}
        assert view.active["DB01"] == ActiveCopy("DB01", "MBX-01", 1)
        registry.end_move("DB01")
        assert registry.view() == view

    def test_only_the_move_that_is_meant_ends(self, registry: Registry) -> None:
        """The end of a move, asked for again because the answer was lost, does not end the one that came after it."""
        registry.activate("DB01", "MBX-01")
        mine = move()
        registry.begin_move(mine)
        registry.end_move("DB01", move=replace(mine, started=0.0, source=""))
        assert registry.view().moves == {}
        theirs = replace(mine, reason="another one's")
        registry.begin_move(theirs)
        for other in (mine, replace(theirs, target="MBX-09"), replace(theirs, epoch=7)):
            registry.end_move("DB01", move=other)
        assert registry.view().moves == {"DB01": theirs}
        registry.end_move("DB01", move=theirs)
        assert registry.view().moves == {}

    def test_a_move_begins_at_the_present_epoch(self, registry: Registry) -> None:
        registry.activate("DB01", "MBX-01")
        for wrong in (0, 2):
            with pytest.raises(StaleEpoch):
                registry.begin_move(move(epoch=wrong))
        with pytest.raises(StaleEpoch):
            registry.begin_move(move("DB02", epoch=1))
        assert registry.view().moves == {}

    def test_a_database_moves_once_at_a_time(self, registry: Registry, again: Registry) -> None:
        for database in ("DB01", "DB02"):
            registry.activate(database, "MBX-01")
        registry.begin_move(move())
        with pytest.raises(StaleEpoch):
            again.begin_move(move())
        again.begin_move(move("DB02"))
        assert set(registry.view().moves) == {"DB01", "DB02"}

    def test_of_many_moves_at_once_one_begins(self, registry: Registry) -> None:
        registry.activate("DB01", "MBX-01")

        def attempt(reason: str) -> bool:
            try:
                registry.begin_move(Move("DB01", "MBX-01", "MBX-02", 1, 0.0, reason))
            except StaleEpoch:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            wins = list(pool.map(attempt, map(str, range(8))))
        assert wins.count(True) == 1
        assert registry.view().moves["DB01"].reason == str(wins.index(True))

    def test_words_are_kept_until_up(self, registry: Registry, again: Registry) -> None:
        registry.set_word("MBX-01", ServerWord.DRAINING)
        registry.set_word("MBX-02", ServerWord.MAINTENANCE)
        assert again.view().words == {"MBX-01": ServerWord.DRAINING, "MBX-02": ServerWord.MAINTENANCE}
        registry.set_word("MBX-01", ServerWord.MAINTENANCE)
        registry.set_word("MBX-02", ServerWord.UP)
        assert again.view().words == {"MBX-01": ServerWord.MAINTENANCE}

    def test_copies_are_blocked_one_by_one(self, registry: Registry, again: Registry) -> None:
        for server in ("MBX-01", "MBX-02"):
            registry.set_blocked("DB01", server, blocked=True)
        registry.set_blocked("DB01", "MBX-02", blocked=True)
        assert again.view().blocked == {("DB01", "MBX-01"), ("DB01", "MBX-02")}
        registry.set_blocked("DB01", "MBX-01", blocked=False)
        registry.set_blocked("DB02", "MBX-02", blocked=False)
        assert again.view().blocked == {("DB01", "MBX-02")}

    def test_dials_are_kept(self, registry: Registry, again: Registry) -> None:
        registry.set_dial("DB01", Dial.LOSSLESS)
        registry.set_dial("DB02", Dial.BEST_AVAILABILITY)
        assert again.view().dials == {"DB01": Dial.LOSSLESS, "DB02": Dial.BEST_AVAILABILITY}
        registry.set_dial("DB01", Dial.GOOD_AVAILABILITY)
        assert again.view().dials.get("DB01", Dial.GOOD_AVAILABILITY) is Dial.GOOD_AVAILABILITY

    def test_names_of_any_letters_are_told_apart(self, registry: Registry) -> None:
        """A separator in a name makes it no other name."""
        names = ["A", "A/B", "A%2FB", "Ä b", "a"]
        for name in names:
            registry.activate(name, f"{name}/1")
            registry.set_blocked(name, "B/C", blocked=True)
        view = registry.view()
        assert {copy.server for copy in view.active.values()} == {f"{name}/1" for name in names}
        assert set(view.active) == set(names)
        assert view.blocked == {(name, "B/C") for name in names}

    def test_observations_are_written_together_and_stay(self, registry: Registry, again: Registry) -> None:
        lease = take(registry)
        first = Observation("MBX-01", "imap", healthy=True, since=1.5)
        second = Observation("MBX-01", "pop3", healthy=False, since=2.0, reason="refused")
        registry.observe([first, second], lease)
        later = Observation("MBX-01", "imap", healthy=False, since=3.0, reason="silent")
        registry.observe([later], lease)
        assert again.view().observed == {("MBX-01", "imap"): later, ("MBX-01", "pop3"): second}

    def test_the_operators_word_and_the_observation_are_apart(self, registry: Registry) -> None:
        """Each fact has one writer (field case 7)."""
        registry.observe([Observation("MBX-01", "imap", healthy=False, since=1.0)], take(registry))
        registry.set_word("MBX-01", ServerWord.MAINTENANCE)
        registry.set_word("MBX-01", ServerWord.UP)
        assert not registry.view().observed["MBX-01", "imap"].healthy


class WatchEngine(Port):
    """What a test needs of an engine: a watch that runs, its registry, and ways to break and mend it."""

    watch: OwnedRegistryWatch
    registry: Registry

    def take_away(self) -> None: ...
    def bring_back(self) -> None: ...


class RegistryWatchContract:
    """Subclasses provide the fixture `engine`, a `WatchEngine` whose registry has DB01 on MBX-01, epoch 1."""

    outage_seconds = SEEN_SECONDS
    """An outage and its end are noticed within this time."""

    async def test_it_begins_with_the_present_view(self, engine: WatchEngine) -> None:
        assert engine.watch.view == engine.registry.view()
        assert engine.watch.view.active["DB01"].server == "MBX-01"

    async def test_a_change_is_told_with_its_view(self, engine: WatchEngine) -> None:
        told: asyncio.Queue[RegistryView] = asyncio.Queue()
        engine.watch.on_change(told.put_nowait)
        engine.registry.activate("DB01", "MBX-02")
        view = await asyncio.wait_for(told.get(), SEEN_SECONDS)
        assert view.active["DB01"] == ActiveCopy("DB01", "MBX-02", 2)
        assert engine.watch.view is view
        assert told.empty()

    async def test_every_kind_of_change_is_told(self, engine: WatchEngine) -> None:
        """The watch's view is the registry's after each, a lease that is only kept aside."""
        told: asyncio.Queue[RegistryView] = asyncio.Queue()
        engine.watch.on_change(told.put_nowait)
        registry = engine.registry
        lease = take(registry)
        seen = Observation("MBX-01", "imap", healthy=False, since=1.0, reason="silent")
        for change in (
            lambda: None,
            lambda: registry.begin_move(move(), lease),
            lambda: registry.end_move("DB01", lease),
            lambda: registry.set_word("MBX-01", ServerWord.DRAINING),
            lambda: registry.set_word("MBX-01", ServerWord.UP),
            lambda: registry.set_blocked("DB01", "MBX-01", blocked=True),
            lambda: registry.set_blocked("DB01", "MBX-01", blocked=False),
            lambda: registry.set_dial("DB01", Dial.LOSSLESS),
            lambda: registry.observe([seen], lease),
            lambda: registry.set_organization_version(9),
            lambda: registry.activate("DB01", "MBX-02", lost_seconds=60.0),
            lambda: registry.give_lease_back(lease),
        ):
            await asyncio.to_thread(change)
            assert await asyncio.wait_for(told.get(), SEEN_SECONDS) == registry.view()

    async def test_it_is_not_stale_while_nothing_changes(self, engine: WatchEngine) -> None:
        assert await engine.watch.first_view(SEEN_SECONDS)
        assert engine.watch.stale_seconds == 0

    async def test_it_can_be_asked_to_look_now(self, engine: WatchEngine) -> None:
        """What was changed before the question is in the view after it, and told of."""
        told: list[RegistryView] = []
        engine.watch.on_change(told.append)
        await asyncio.to_thread(engine.registry.activate, "DB01", "MBX-02")
        assert await engine.watch.look_now(SEEN_SECONDS)
        assert engine.watch.view.active["DB01"].server == "MBX-02"
        assert told == [engine.watch.view]

    async def test_asked_in_an_outage_it_says_that_it_does_not_know(self, engine: WatchEngine) -> None:
        engine.take_away()
        assert not await engine.watch.look_now(0.2)
        assert engine.watch.view.active["DB01"].server == "MBX-01"

    async def test_an_outage_keeps_the_last_view(self, engine: WatchEngine) -> None:
        """Stale, but there; after it the present view comes by itself."""
        before = engine.watch.view
        engine.take_away()

        async def until(stale: bool) -> None:
            while (engine.watch.stale_seconds > 0) is not stale:  # noqa: ASYNC110 - a port has no event for this
                await asyncio.sleep(0.005)

        await asyncio.wait_for(until(True), self.outage_seconds)
        assert engine.watch.view == before
        told: asyncio.Queue[RegistryView] = asyncio.Queue()
        engine.watch.on_change(told.put_nowait)
        engine.bring_back()
        engine.registry.activate("DB01", "MBX-02")
        view = await asyncio.wait_for(told.get(), self.outage_seconds)
        assert view.active["DB01"].server == "MBX-02"
        await asyncio.wait_for(until(False), self.outage_seconds)


__all__ = [
    "MovesContract",
    "RegistryContract",
    "RegistryUnavailable",
    "RegistryWatchContract",
    "WatchEngine",
    "organization",
]
