"""What every registry promises. Each engine's test file has subclasses of these with its fixtures."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol as Port

import pytest

from gatepost.activemanager.port import Registry, RegistryUnavailable, RegistryView, RegistryWatch, StaleEpoch
from gatepost.activemanager.seed import seed
from gatepost.organization.model import Database, DatabaseCopy, Organization
from gatepost.routing.decision import ActiveCopy

SEEN_SECONDS = 0.5
"""A change is known to every front end within this time."""


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


class WatchEngine(Port):
    """What a test needs of an engine: a watch that runs, its registry, and ways to break and mend it."""

    watch: RegistryWatch
    registry: Registry

    def take_away(self) -> None: ...
    def bring_back(self) -> None: ...


class RegistryWatchContract:
    """Subclasses provide the fixture `engine`, a `WatchEngine` whose registry has DB01 on MBX-01, epoch 1."""

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

    async def test_an_outage_keeps_the_last_view(self, engine: WatchEngine) -> None:
        """Stale, but there; after it the present view comes by itself."""
        before = engine.watch.view
        engine.take_away()

        async def until(stale: bool) -> None:
            while (engine.watch.stale_seconds > 0) is not stale:  # noqa: ASYNC110 - a port has no event for this
                await asyncio.sleep(0.005)

        await asyncio.wait_for(until(True), SEEN_SECONDS)
        assert engine.watch.view == before
        told: asyncio.Queue[RegistryView] = asyncio.Queue()
        engine.watch.on_change(told.put_nowait)
        engine.bring_back()
        engine.registry.activate("DB01", "MBX-02")
        view = await asyncio.wait_for(told.get(), SEEN_SECONDS)
        assert view.active["DB01"].server == "MBX-02"
        await asyncio.wait_for(until(False), SEEN_SECONDS)


__all__ = ["RegistryContract", "RegistryUnavailable", "RegistryWatchContract", "WatchEngine", "organization"]
