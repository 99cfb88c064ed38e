"""Opens the registry that a configuration names: everybody who reads or follows one comes here (SPEC A4)."""

from __future__ import annotations

import asyncio

from gatepost.activemanager.port import OwnedRegistry, OwnedRegistryWatch
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.activemanager.sqlite_watch import SqliteRegistryWatch
from gatepost.configuration.settings import FrontEnd


def open_registry(front_end: FrontEnd) -> OwnedRegistry:
    """The registry, to read and change. Nothing is opened before the first call; `close` it at the end."""
    return SqliteRegistry(front_end.registry)


def watch_registry(front_end: FrontEnd, loop: asyncio.AbstractEventLoop) -> OwnedRegistryWatch:
    """A watch on the registry for `loop`, not yet started."""
    return SqliteRegistryWatch(front_end.registry, loop)
