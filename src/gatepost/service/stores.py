"""The stores as workers need them: there, belonging to the workers' account, every database with an active copy."""

from __future__ import annotations

import os
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from gatepost.activemanager.port import RegistryUnavailable
from gatepost.activemanager.seed import seed
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.configuration.settings import Configuration
from gatepost.directory.editing import DirectoryEditor
from gatepost.directory.port import DirectoryUnavailable
from gatepost.service import privileges


def prepare(configuration: Configuration, log: FilteringBoundLogger) -> None:
    """Make missing stores and activate databases that the registry does not know on their first-choice copy.

    Called by the supervisor, with its rights, at the start and at each reload. A fault is logged and the service goes
    on: workers answer "unavailable" until the store is there.
    """
    front_end = configuration.front_end
    try:
        for active in seed(SqliteRegistry(front_end.registry), configuration.organization):
            log.info("registry.seeded", database=active.database, server=active.server, epoch=active.epoch)
        with DirectoryEditor(front_end.directory):
            pass
        if front_end.user:
            for path in (front_end.registry, front_end.directory):
                _give(path, privileges.account(front_end.user))
    except (RegistryUnavailable, DirectoryUnavailable, OSError) as fault:
        log.error("stores.not_prepared", reason=str(fault))


def _give(path: str, account: privileges.Account) -> None:
    """A store and the files SQLite keeps beside it; others in the folder are none of our business."""
    for suffix in ("", "-wal", "-shm"):
        found = Path(path + suffix)
        if found.exists() and found.stat().st_uid != account.uid:
            os.chown(found, account.uid, account.gid)
