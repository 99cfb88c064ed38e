"""The stores as workers need them: there, belonging to the workers' account, every database with an active copy."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from gatepost.activemanager.open import load_engine, open_registry
from gatepost.activemanager.port import RegistryUnavailable
from gatepost.activemanager.seed import seed
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.directory import app_password_store
from gatepost.directory.editing import DirectoryEditor
from gatepost.directory.port import DirectoryUnavailable
from gatepost.service import privileges
from gatepost.sharedstate import sqlite as shared_state

SEED_SECONDS = 3.0
"""For each call of a registry on other machines: the supervisor has workers to look after meanwhile."""


class UnusableFolder(RuntimeError):
    """The stores' folder is closed to the workers. The message has the remedy."""


def prepare(configuration: Configuration, log: FilteringBoundLogger) -> None:
    """Make missing stores and activate databases that the registry does not know on their first-choice copy.

    Called by the supervisor at the start and at each reload. A fault is logged and the service goes on: workers answer
    "unavailable" until the store is there. The work is done as the workers' account: root opens nothing that a worker
    could have put there.
    """
    front_end = configuration.front_end
    load_engine(front_end)  # while its files can be read
    account = privileges.account(front_end.user) if front_end.user else None
    if account is not None:
        for path in _paths(front_end):
            _logged(log, front_end, partial(_give, path, account))
    with privileges.acting_as(account) if account else nullcontext():
        if front_end.uses_directory_file:
            _logged(log, front_end, lambda: DirectoryEditor(front_end.directory).close())
        if front_end.shared_state:
            _logged(log, front_end, lambda: shared_state.prepare(front_end.shared_state))
        if front_end.app_passwords:
            _logged(log, front_end, lambda: app_password_store.prepare(front_end.app_passwords))
        _logged(log, front_end, lambda: _seed(configuration, log))


def _logged(log: FilteringBoundLogger, front_end: FrontEnd, step: Callable[[], object]) -> None:
    """One store's fault keeps no other from being there."""
    try:
        step()
    except (RegistryUnavailable, DirectoryUnavailable, OSError) as fault:
        remedy = f"the folder and its files belong to {front_end.user or 'the account that runs gatepost'}"
        log.error("stores.not_prepared", reason=str(fault), remedy=remedy)


def check_folders(configuration: Configuration) -> None:
    """Raises `UnusableFolder` when the workers' account may not use the folders of the stores.

    Called at the start: a service that runs, looks healthy and can let nobody in is worse than one that says why.
    """
    front_end = configuration.front_end
    name = front_end.user or "the account that runs it"
    for folder in sorted({str(Path(path).parent) for path in _paths(front_end)}):
        if front_end.user:
            with privileges.acting_as(privileges.account(front_end.user)):
                usable = os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)
        else:
            usable = os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)
        if not usable:
            raise UnusableFolder(
                f"The workers run as {name} and may not use the folder {folder} of the stores. "
                f"Give it to them: chown {front_end.user or 'ACCOUNT'} {folder}"
            )


def _seed(configuration: Configuration, log: FilteringBoundLogger) -> None:
    with closing(open_registry(configuration.front_end, SEED_SECONDS)) as registry:
        for active in seed(registry, configuration.organization):
            log.info("registry.seeded", database=active.database, server=active.server, epoch=active.epoch)


def _paths(front_end: FrontEnd) -> list[str]:
    """The files of the stores."""
    directory = front_end.directory if front_end.uses_directory_file else ""
    return [path for path in (front_end.registry, directory, front_end.shared_state, front_end.app_passwords) if path]


def _give(path: str, account: privileges.Account) -> None:
    """A store that root made by a command, and the files SQLite keeps beside it.

    Never through a link: a worker that was taken over could plant one that leads to a file of root's.
    """
    if os.geteuid() != 0:
        return
    for suffix in ("", "-wal", "-shm"):
        found = Path(path + suffix)
        try:
            status = found.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid != account.uid:
            os.chown(found, account.uid, account.gid, follow_symlinks=False)
