"""What every registry promises of leases, and of what is done under one (SPEC A3)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol as Port

import pytest
from registry_contract import LONG_LEASE_SECONDS, move, take

from gatepost.activemanager.port import (
    HISTORY_KEPT,
    MANAGER,
    Happened,
    Lease,
    LeaseLost,
    Observation,
    OwnedRegistry,
    Registry,
    StaleEpoch,
)
from gatepost.routing.decision import ActiveCopy

LEASE_SECONDS = 2.0
"""Of a lease that ends in a test."""


class PassTime(Port):
    """Lets `seconds` pass for the registry's leases and, unless `exactly`, what an engine takes longer than it said."""

    def __call__(self, seconds: float, *, exactly: bool = False) -> None: ...


class LeasesContract:
    """Leases, and what depends on them. Fixtures as of `RegistryContract`, and `pass_time`, a `PassTime`."""

    def test_one_holds_it(self, registry: Registry, again: Registry) -> None:
        lease = take(registry)
        assert (lease.name, lease.holder, lease.term) == (MANAGER, "CAS-01", 1)
        assert lease.seconds == LONG_LEASE_SECONDS
        assert again.take_lease(MANAGER, "CAS-02", LONG_LEASE_SECONDS) is None
        assert again.take_lease(MANAGER, "CAS-01", LONG_LEASE_SECONDS) is None
        assert again.take_lease("another", "CAS-02", LONG_LEASE_SECONDS) is not None

    def test_the_view_says_who(self, registry: Registry, again: Registry) -> None:
        assert registry.view().manager is None
        lease = take(registry)
        seen = again.view().manager
        assert seen is not None
        assert (seen.holder, seen.term) == (lease.holder, lease.term)

    def test_of_many_at_once_one_holds_it(self, registry: Registry) -> None:
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda n: registry.take_lease(MANAGER, f"CAS-{n}", 60.0), range(8)))
        assert sum(lease is not None for lease in taken) == 1

    def test_given_back_it_is_free_at_once_with_the_next_term(self, registry: Registry, again: Registry) -> None:
        registry.give_lease_back(take(registry))
        assert again.view().manager is None
        assert take(again, "CAS-02").term == 2

    def test_it_ends_by_itself(self, registry: Registry, again: Registry, pass_time: PassTime) -> None:
        lost = take(registry, seconds=LEASE_SECONDS)
        pass_time(LEASE_SECONDS)
        assert again.view().manager is None
        assert take(again, "CAS-02").term == 2
        with pytest.raises(LeaseLost):
            registry.keep_lease(lost)
        registry.give_lease_back(lost)
        seen = again.view().manager
        assert seen is not None, "who lost it cannot give it back for the next one"
        assert seen.holder == "CAS-02"

    def test_it_is_kept(self, registry: Registry, again: Registry, pass_time: PassTime) -> None:
        lease = take(registry, seconds=LEASE_SECONDS)
        for _ in range(3):
            pass_time(LEASE_SECONDS / 2, exactly=True)
            registry.keep_lease(lease)
        assert again.take_lease(MANAGER, "CAS-02", LEASE_SECONDS) is None

    def test_who_lost_it_changes_nothing(self, registry: Registry, again: Registry) -> None:
        """Not even with the same name, and though nothing else has changed (SPEC A3)."""
        registry.activate("DB01", "MBX-01")
        lost = take(registry)
        registry.give_lease_back(lost)
        self.refused(registry, lost)
        take(again)
        self.refused(registry, lost)

    def test_a_lease_that_is_over_changes_nothing(self, registry: Registry, pass_time: PassTime) -> None:
        """Also while no other one holds it."""
        registry.activate("DB01", "MBX-01")
        lost = take(registry, seconds=LEASE_SECONDS)
        pass_time(LEASE_SECONDS)
        self.refused(registry, lost)

    def refused(self, registry: Registry, lost: Lease) -> None:
        before = registry.view()
        with pytest.raises(LeaseLost):
            registry.activate("DB01", "MBX-02", lease=lost)
        with pytest.raises(LeaseLost):
            registry.activate("DB01", "MBX-02", expected_epoch=1, lease=lost)
        with pytest.raises(LeaseLost):
            registry.begin_move(move(), lost)
        with pytest.raises(LeaseLost):
            registry.end_move("DB01", lost)
        with pytest.raises(LeaseLost):
            registry.observe([Observation("MBX-01", "imap", healthy=False, since=1.0)], lost)
        assert registry.view() == before

    def test_its_holder_acts(self, registry: Registry) -> None:
        registry.activate("DB01", "MBX-01")
        lease = take(registry)
        registry.begin_move(move(), lease)
        registry.end_move("DB01", lease)
        registry.begin_move(move(), lease)
        assert registry.activate("DB01", "MBX-02", 1, lease) == ActiveCopy("DB01", "MBX-02", 2)
        assert registry.view().moves == {}
        with pytest.raises(StaleEpoch):
            registry.activate("DB01", "MBX-01", 1, lease)

    def test_the_history_tells_who_did_what(self, registry: OwnedRegistry, again: OwnedRegistry) -> None:
        registry.activate("DB01", "MBX-01")
        lease = take(registry)
        registry.activate("DB01", "MBX-02", 1, lease)
        registry.activate("DB02", "MBX-02")
        entries = again.history()
        assert [entry[2:] for entry in entries] == [
            (Happened.ACTIVATED, "DB01", "MBX-01", 1, "", 0),
            (Happened.LEASED, "", MANAGER, 0, "CAS-01", 1),
            (Happened.ACTIVATED, "DB01", "MBX-02", 2, "CAS-01", 1),
            (Happened.ACTIVATED, "DB02", "MBX-02", 1, "", 0),
        ]
        revisions = [entry.revision for entry in entries]
        assert revisions == sorted(set(revisions))
        assert again.history("DB01") == [entries[0], entries[2]]
        assert again.history("DB03") == []

    def test_the_history_is_bounded(self, registry: OwnedRegistry) -> None:
        """For each database by itself: one that is moved to and fro does not make the others forget."""
        registry.activate("DB02", "MBX-01")
        for _ in range(HISTORY_KEPT + 3):
            registry.activate("DB01", "MBX-01")
        assert [entry.epoch for entry in registry.history("DB01")] == list(range(4, HISTORY_KEPT + 4))
        assert [entry.epoch for entry in registry.history("DB02")] == [1]
