"""Opens the registry that a configuration names: everybody who reads or follows one comes here (SPEC A4)."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

from gatepost.activemanager.port import OwnedRegistry, OwnedRegistryWatch
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.activemanager.sqlite_watch import SqliteRegistryWatch
from gatepost.configuration.settings import FrontEnd

OPERATION_SECONDS = 15.0
"""For one call: etcd may elect a new leader meanwhile, or many may change the same at once."""

_OF_ETCD = (
    "gatepost.activemanager.etcd.registry",
    "gatepost.activemanager.etcd.watch",
    # What its HTTP client loads with the first connection; a test looks whether this is still all.
    "anyio._backends._asyncio",
    "httpcore2._async.http11",
    "httpcore2._backends.anyio",
    "truststore",
    "encodings.idna",  # what a name is looked up with
)


def load_engine(front_end: FrontEnd) -> None:
    """Load all that the registry's engine needs, for who may not be able to read this program's files later."""
    for module in _OF_ETCD if front_end.etcd is not None else ():
        importlib.import_module(module)


def open_registry(front_end: FrontEnd, seconds: float = OPERATION_SECONDS) -> OwnedRegistry:
    """The registry, to read and change. Nothing is opened before the first call; `close` it at the end.

    A call that depends on other machines takes `seconds` at most.
    """
    if front_end.etcd is not None:
        from gatepost.activemanager.etcd.registry import EtcdRegistry  # its HTTP client is only for those who need it

        return EtcdRegistry(front_end.etcd, seconds)
    return SqliteRegistry(front_end.registry)


def watch_registry(
    front_end: FrontEnd, loop: asyncio.AbstractEventLoop, *, remembers: bool = True
) -> OwnedRegistryWatch:
    """A watch on the registry for `loop`, not yet started.

    If it `remembers`, what is known of a registry on other machines is kept in a file beside `front_end.registry`: for
    workers, which that folder belongs to.
    """
    if front_end.etcd is not None:
        from gatepost.activemanager.etcd.remembered import Remembered
        from gatepost.activemanager.etcd.watch import EtcdRegistryWatch

        path = Path(front_end.registry).with_name(f"registry-known-{front_end.server}.json")
        return EtcdRegistryWatch(front_end.etcd, loop, remembered=Remembered(path) if remembers else None)
    return SqliteRegistryWatch(front_end.registry, loop)
