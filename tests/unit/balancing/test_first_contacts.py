"""How many devices one user may have remembered anew in a day (SPEC B2)."""

from __future__ import annotations

import pytest

from gatepost.balancing import first_contacts
from gatepost.balancing.first_contacts import DAY_SECONDS, MAX_IN_A_DAY, FirstContacts


def test_a_user_has_as_many_as_the_source_allows_devices_and_the_next_day_again() -> None:
    contacts = FirstContacts()
    assert all(contacts.may("alice", f"phone {n}", float(n)) for n in range(MAX_IN_A_DAY))
    assert not contacts.may("alice", "one too many", 200.0)
    assert contacts.may("bob", "phone", 200.0)
    assert not contacts.may("alice", "one too many", DAY_SECONDS - 1)
    assert contacts.may("alice", "one too many", DAY_SECONDS)


def test_a_device_counts_once() -> None:
    """While the shared state is away nothing is remembered, and each request comes as a first contact."""
    contacts = FirstContacts()
    assert all(contacts.may("alice", "phone", float(n)) for n in range(3 * MAX_IN_A_DAY))
    assert contacts.may("alice", "tablet", 500.0)


def test_the_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_contacts, "MAX_USERS", 10)
    contacts = FirstContacts()
    assert all(contacts.may(f"user{n}", "phone", 0.0) for n in range(100))
    assert len(contacts._users) <= 10
