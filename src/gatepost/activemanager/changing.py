"""The steps of a move that change the registry, carried out there; faults are results."""

from __future__ import annotations

import time
from dataclasses import replace

from gatepost.activemanager.port import Lease, LeaseLost, Registry, RegistryUnavailable, StaleEpoch
from gatepost.activemanager.steps import Activate, Begin, End, Fault, Result, Step


def change_registry(registry: Registry, step: Step, lease: Lease | None) -> Result:
    """A step that changes the registry, with `lease` if there is one. Blocks; never raises but for bugs."""
    try:
        match step:
            case Begin(move):
                registry.begin_move(replace(move, started=time.time()), lease)
            case Activate(database, target, epoch, lost_seconds):
                registry.activate(database, target, epoch, lease, lost_seconds)
            case End(database, move):
                registry.end_move(database, lease, move)
    except StaleEpoch as fault:
        return Result(Fault.STALE, str(fault))
    except LeaseLost as fault:
        return Result(Fault.LEASE, str(fault))
    except RegistryUnavailable as fault:
        return Result(Fault.UNAVAILABLE, str(fault) or "the registry does not answer")
    return Result()
