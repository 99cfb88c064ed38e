"""The configuration on its way: from a loader to the supervisor, from the supervisor to its workers.

    loading (a process of its own, ends) ── Loaded ──► supervisor ── configuration ──► worker

Long-lived processes hold finished values, no parser: that is a third of a worker's memory and start-up time, and most
of the supervisor's memory. A large organization is read without holding the supervisor up. Workers need no right to
read what an operator keeps from them.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from dataclasses import dataclass

from gatepost.configuration.settings import Configuration

LOADER_MODULE = "gatepost.service.loading"
LOAD_SECONDS = 120.0
"""Longest a loader may take: ten thousand servers take five seconds; a hung file system must not hang a reload."""


class Invalid(ValueError):
    """The configuration cannot be used. One text a finding in `findings`; `warnings` are those that are no reason."""

    def __init__(self, findings: list[str], warnings: frozenset[str] = frozenset()) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings
        self.warnings = warnings


@dataclass(frozen=True)
class Loaded:
    """A valid configuration with the warnings that came of reading it."""

    configuration: Configuration
    warnings: tuple[str, ...] = ()


def pack(value: object) -> bytes:
    """`value` as bytes, secrets included: only for pipes and socket pairs between a process and its own child."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Configuration:
    """The configuration that was packed. Only for bytes from the supervisor, which started this process."""
    configuration = pickle.loads(data)  # noqa: S301 - never from anyone else, never the other way
    assert isinstance(configuration, Configuration)
    return configuration


async def load(path: str, server: str | None, version: int) -> Loaded:
    """Have a loader read `path`, with the rights of this process. Raises `Invalid` with every finding."""
    # -P: the current folder is no place to import from, least of all as root.
    arguments = [sys.executable, "-P", "-m", LOADER_MODULE, path, server or "", str(version)]
    try:
        loader = await asyncio.create_subprocess_exec(
            *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
    except OSError as fault:  # no descriptor, no memory, no process table entry
        raise Invalid([f"{path} could not be read: no loader could be started: {fault.strerror or fault}"]) from fault
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            output, _ = await loader.communicate()
    except TimeoutError:
        loader.kill()
        await loader.wait()
        raise Invalid([f"{path} could not be read within {LOAD_SECONDS:g} s"]) from None
    if loader.returncode != 0:
        raise Invalid([f"{path} could not be read: the loader ended with status {loader.returncode}"])
    outcome = pickle.loads(output)  # noqa: S301 - our own program, started by us, with our rights
    if isinstance(outcome, Loaded):
        return outcome
    findings, warnings = outcome
    raise Invalid(findings, warnings)
