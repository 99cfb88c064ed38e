"""The first activation of each database."""

from __future__ import annotations

from contextlib import suppress

from gatepost.activemanager.port import Registry, StaleEpoch
from gatepost.organization.model import Organization
from gatepost.routing.decision import ActiveCopy


def seed(registry: Registry, organization: Organization) -> list[ActiveCopy]:
    """Activate each database that the registry does not know on its first-choice copy, with epoch 1.

    What the registry knows is never changed. Any number of processes may do this at once: each database is seeded by
    one of them. Answers what was added here. Raises `RegistryUnavailable`.
    """
    known = registry.view().active
    added: list[ActiveCopy] = []
    for database in organization.databases.values():
        if database.name in known or not database.copies:
            continue
        first = min(database.copies, key=lambda copy: copy.preference)
        with suppress(StaleEpoch):  # another process was faster
            added.append(registry.activate(database.name, first.server, expected_epoch=0))
    return added
