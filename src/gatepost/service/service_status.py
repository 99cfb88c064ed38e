"""What a supervisor says of itself and its processes when an operator asks (`gatepost status`)."""

from __future__ import annotations

import asyncio
import os

from gatepost.configuration.settings import Configuration
from gatepost.service.control import ManagerStatus, ServiceStatus, TransportStatus, WorkerStatus
from gatepost.service.fleet import Fleet
from gatepost.service.keeper import Keeper

STATUS_SECONDS = 2.0
"""For a process's answer to a status request."""


async def service_status(
    configuration: Configuration, fleet: Fleet, manager: Keeper, transport: Keeper
) -> ServiceStatus:
    """The service, its workers, manager and transport now."""
    workers = list(fleet)
    answers = await asyncio.gather(*(w.status(STATUS_SECONDS) for w in workers))
    return ServiceStatus(
        server=configuration.front_end.server,
        pid=os.getpid(),
        version=configuration.version,
        restarts=fleet.restarts,
        manager=await _manager_status(manager),
        transport=await _transport_status(transport),
        workers=[WorkerStatus(w.slot, w.pid, w.state.value, a) for w, a in zip(workers, answers, strict=True)],
    )


async def _manager_status(manager: Keeper) -> ManagerStatus | None:
    found = await manager.status(STATUS_SECONDS)
    if found is None:
        return None
    process, answer = found
    state = answer.manager if answer is not None else None
    return ManagerStatus(process.pid, process.state.value, manager.restarts, state)


async def _transport_status(transport: Keeper) -> TransportStatus | None:
    found = await transport.status(STATUS_SECONDS)
    if found is None:
        return None
    process, answer = found
    counters = answer.counters if answer is not None else None
    return TransportStatus(process.pid, process.state.value, transport.restarts, counters)
