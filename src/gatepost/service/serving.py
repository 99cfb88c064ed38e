"""What the children that serve connections have in common: workers and the transport."""

from __future__ import annotations

import gc
import socket

from gatepost.service.control import Configured

ALLOCATOR_BLOCK_BYTES = 4 * 1024 * 1024
"""See `tame_allocator`. Far over the 256 KiB of a TLS read, far under glibc's upper bound of 32 MiB."""
GC_THRESHOLDS = (20_000, 20, 50)
"""See `tune_collector`."""
LOADED_EARLY = ("concurrent.futures.thread", "encodings.idna", "encodings.latin_1", "encodings.utf_8_sig")
"""Modules that the standard library loads on first use, which would be after the privileges are gone."""


def tame_allocator() -> None:
    """Allocates and drops one big block, once, for the life of the process.

    The event loop reads TLS into a fresh bytes object of 256 KiB each time. glibc serves blocks over its mmap threshold
    (128 KiB at first) by mmap, mremap and munmap: three system calls and page faults for every small packet. Freeing a
    mapped block raises the threshold to that block's size (mallopt(3), M_MMAP_THRESHOLD: "dynamic"), so that from here
    on these reads come from the heap: small TLS packets relayed went from 29,000 to 60,000 a second.
    """
    bytes(ALLOCATOR_BLOCK_BYTES)


def tune_collector() -> None:
    """Everything made so far stays for life: the collector need not look at it again.

    Measured: a full collection of what a worker has loaded takes 42 ms before the freeze and nothing after it. Sessions
    are built without cycles and need no collector to be freed: with Python's threshold of 700 objects 100,000 of them
    coming and going cost 300 ms of collections (the longest 47 ms), with ours 2 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def sockets_of(message: Configured, descriptors: list[int]) -> dict[str, list[socket.socket]]:
    """The sockets of a message by name; takes their descriptors over."""
    rest = iter(descriptors)
    return {o.name: [socket.socket(fileno=next(rest)) for _ in range(o.count)] for o in message.opened}
