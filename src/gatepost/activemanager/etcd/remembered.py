"""What workers of this machine knew last, in a file: one that starts while etcd has no majority goes on from there.

Only where active copies are, and how old that is by the time since boot: it grows old as if the worker had never ended,
and what another boot knew is nothing, since nobody can say how old it is.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import structlog

from gatepost.activemanager import boot_clock
from gatepost.activemanager.boot_clock import Moment
from gatepost.activemanager.port import RegistryView
from gatepost.routing.decision import ActiveCopy

WRITE_SECONDS = 5.0
"""The file may be so much older than what is known: little beside the age at which the registry counts as lost."""
LARGEST_BYTES = 64 * 1024 * 1024
"""A hundred times as much as ten thousand databases need."""


class Remembered:
    """The file of one machine, which all its workers write in turn."""

    def __init__(self, path: Path, clock: Callable[[], Moment] = boot_clock.now) -> None:
        self._path = path
        self._clock = clock
        self._looked = float("-inf")
        self._failed = False

    def write(self, view: RegistryView, heard: float) -> None:
        """The view, known to be the registry's as of `heard`; at most every `WRITE_SECONDS`. A fault is logged once."""
        now = self._clock()
        if now.seconds - self._looked < WRITE_SECONDS:
            return
        self._looked = now.seconds
        try:
            if not self._written_lately():
                self._replace(_text(view, Moment(now.boot, heard)))
        except OSError as fault:
            if not self._failed:
                structlog.get_logger("gatepost").warning("registry.not_remembered", reason=str(fault))
            self._failed = True

    def read(self) -> tuple[RegistryView, float] | None:
        """What was known, and as of when; None when there is nothing that one could rely on."""
        now = self._clock()
        try:
            if self._path.stat().st_size > LARGEST_BYTES:
                return None
            found = json.loads(self._path.read_bytes())
            heard = float(found["heard"])
            if found["boot"] != now.boot or not 0 < heard <= now.seconds:
                return None
            copies = [ActiveCopy(str(name), str(server), int(epoch)) for name, server, epoch in found["active"]]
            active = MappingProxyType({copy.database: copy for copy in copies})
            return RegistryView(int(found["revision"]), active, int(found["organization_version"])), heard
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _written_lately(self) -> bool:
        """Whether another worker has done it."""
        try:
            return 0 <= time.time() - self._path.stat().st_mtime < WRITE_SECONDS
        except FileNotFoundError:
            return False

    def _replace(self, text: str) -> None:
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f"{self._path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def _text(view: RegistryView, heard: Moment) -> str:
    active = [(copy.database, copy.server, copy.epoch) for copy in view.active.values()]
    known = {"boot": heard.boot, "heard": heard.seconds, "revision": view.revision, "active": active}
    return json.dumps(known | {"organization_version": view.organization_version})
