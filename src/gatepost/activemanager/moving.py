"""A planned move by a command: the manager's steps and selection, without its lease (SPEC A2).

What a command may rely on is the registry: the epoch makes sure that of two who move one database only one does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from gatepost.activemanager import hooks
from gatepost.activemanager.port import (
    Dial,
    Lease,
    LeaseLost,
    Move,
    Registry,
    RegistryUnavailable,
    RegistryView,
    ServerWord,
    StaleEpoch,
)
from gatepost.activemanager.seen import services_of
from gatepost.activemanager.selection import CopyFacts, Facts, Health
from gatepost.activemanager.steps import (
    Activate,
    Begin,
    End,
    Fault,
    Hook,
    Outcome,
    Pause,
    Plan,
    Result,
    Step,
    steps_of,
)
from gatepost.configuration.manager_settings import HookSettings, ManagerSettings
from gatepost.organization.model import Organization

Told = Callable[[Step, Result], None]


def facts_of(organization: Organization, view: RegistryView, database: str) -> Facts:
    """What a planned move of `database` is decided by, health as the manager has written it down.

    Where no manager watches nothing is known of health, and nothing is held against a copy. Raises KeyError when the
    organization has no such database.
    """
    services = services_of(organization)
    active = view.active.get(database)
    copies = tuple(
        CopyFacts(
            copy.server,
            copy.preference,
            view.words.get(copy.server, ServerWord.UP),
            (database, copy.server) in view.blocked,
            _health(view, copy.server, services),
        )
        for copy in organization.databases[database].copies
    )
    dial = view.dials.get(database, Dial.GOOD_AVAILABILITY)
    return Facts(database, active.server if active is not None else "", copies, dial, lossless=True)


def _health(view: RegistryView, server: str, services: Mapping[str, tuple[str, ...]]) -> Health:
    seen = [view.observed.get((server, service)) for service in services.get(server, ())]
    return Health(frozenset(found.service for found in seen if found is not None and not found.healthy))


async def make_move(
    registry: Registry,
    settings: ManagerSettings,
    move: Move,
    hook_context: hooks.HookContext | None = None,
    told: Told | None = None,
) -> Outcome:
    """Makes a planned move: sign-ins wait, hooks, the next epoch. `told` is called after each step with its result.

    Cancelled, it leaves the move in the registry, where a manager finds it and goes on with it, or takes it back.
    """
    steps = steps_of(Plan(move, planned=True, has_hook=lambda kind, server: settings.hook(kind, server) is not None))
    step = next(steps)
    while True:
        result = await _do(registry, settings, step, hook_context)
        if told is not None:
            told(step, result)
        try:
            step = steps.send(result)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


async def _do(
    registry: Registry, settings: ManagerSettings, step: Step, hook_context: hooks.HookContext | None
) -> Result:
    if isinstance(step, Hook):
        hook = settings.hook(step.kind, step.server) or HookSettings()
        return await hooks.run(hook, step, hook_context)
    if isinstance(step, Pause):
        await asyncio.sleep(step.seconds)
        return Result()
    return await asyncio.to_thread(change_registry, registry, step, None)


def change_registry(registry: Registry, step: Step, lease: Lease | None) -> Result:
    """A step that changes the registry, with `lease` if there is one. Blocks; faults are results."""
    try:
        match step:
            case Begin(move):
                registry.begin_move(replace(move, started=time.time()), lease)
            case Activate(database, target, epoch):
                registry.activate(database, target, epoch, lease)
            case End(database):
                registry.end_move(database, lease)
    except StaleEpoch as fault:
        return Result(Fault.STALE, str(fault))
    except LeaseLost as fault:
        return Result(Fault.LEASE, str(fault))
    except RegistryUnavailable as fault:
        return Result(Fault.UNAVAILABLE, str(fault) or "the registry does not answer")
    return Result()
