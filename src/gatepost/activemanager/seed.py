"""The first activation of each database."""

from __future__ import annotations

from contextlib import suppress

from gatepost.activemanager.port import Registry, StaleEpoch
from gatepost.organization.model import Database, Organization
from gatepost.routing.decision import ActiveCopy


def first_choice(database: Database) -> ActiveCopy | None:
    """What `seed` will make of a database that was never active; epoch 0 says that it is not so yet."""
    if not database.copies:
        return None
    return ActiveCopy(database.name, min(database.copies, key=lambda copy: copy.preference).server, 0)


def seed(registry: Registry, organization: Organization) -> list[ActiveCopy]:
    """Activate each database that the registry does not know on its first-choice copy, with epoch 1.

    What the registry knows is never changed. Any number of processes may do this at once: each database is seeded by
    one of them. Answers what was added here. Raises `RegistryUnavailable`.
    """
    known = registry.view().active
    added: list[ActiveCopy] = []
    for database in organization.databases.values():
        first = first_choice(database)
        if database.name in known or first is None:
            continue
        with suppress(StaleEpoch):  # another process was faster
            added.append(registry.activate(database.name, first.server, expected_epoch=0))
    return added
