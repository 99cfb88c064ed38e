"""Opens the registry that a configuration names: everybody who reads or follows one comes here (SPEC A4)."""

from __future__ import annotations

import asyncio

from gatepost.activemanager.port import OwnedRegistry, OwnedRegistryWatch
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.activemanager.sqlite_watch import SqliteRegistryWatch
from gatepost.configuration.settings import FrontEnd


def open_registry(front_end: FrontEnd) -> OwnedRegistry:
    """The registry, to read and change. Nothing is opened before the first call; `close` it at the end."""
    if front_end.etcd is not None:
        from gatepost.activemanager.etcd.registry import EtcdRegistry  # its HTTP client is only for those who need it

        return EtcdRegistry(front_end.etcd)
    return SqliteRegistry(front_end.registry)


def watch_registry(front_end: FrontEnd, loop: asyncio.AbstractEventLoop) -> OwnedRegistryWatch:
    """A watch on the registry for `loop`, not yet started."""
    if front_end.etcd is not None:
        from gatepost.activemanager.etcd.watch import EtcdRegistryWatch

        return EtcdRegistryWatch(front_end.etcd, loop)
    return SqliteRegistryWatch(front_end.registry, loop)
