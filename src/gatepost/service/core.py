"""What a worker runs inside its process: the port, and how the real one is put together."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Protocol, cast

from structlog.typing import FilteringBoundLogger

from gatepost.access.front_door import FrontDoor
from gatepost.access.registry_age import CUT_OFF, RegistryAge
from gatepost.access.router import Router
from gatepost.access.sessions import Found, SessionFilter
from gatepost.activemanager.open import watch_registry
from gatepost.configuration.settings import Configuration
from gatepost.directory.open import (
    open_app_passwords,
    open_directory,
    open_kerberos,
    open_tokens,
    use_other_ways,
)
from gatepost.directory.policy.ledger import Ledger
from gatepost.directory.policy.open import open_policy
from gatepost.directory.policy.sessions import SessionCounts
from gatepost.directory.remembered import Remembered
from gatepost.directory.sign_in import SignInService
from gatepost.sharedstate.port import SharedState
from gatepost.sharedstate.sqlite import SqliteSharedState
from gatepost.sharedstate.store.open import SharedStore

FIRST_VIEW_SECONDS = 3.0
"""A worker that starts waits so long for what the registry says; then it answers "unavailable" until that comes."""


class Core(Protocol):
    """The part of a worker that serves clients (`access.front_door.FrontDoor`)."""

    async def listen(self, sockets: dict[str, list[socket.socket]]) -> None:
        """Accept connections on bound, listening sockets, by endpoint name. Owns the sockets from then on."""
        ...

    def close_listeners(self, names: Iterable[str]) -> None:
        """Close the listeners of these endpoints; their sessions go on."""
        ...

    def reload(self, configuration: Configuration) -> None:
        """Use another configuration for what begins later; sessions stay. Raises when it cannot."""
        ...

    async def drain(self, seconds: float) -> None:
        """Accept nothing more and return when the last session has ended; those left after `seconds` are ended."""
        ...

    def sessions(self) -> list[dict[str, Any]]:
        """One dict a client session."""
        ...

    async def find(self, wanted: SessionFilter, limit: int) -> Found:
        """The client sessions that match, the first `limit` of them as entries."""
        ...

    async def kick(self, wanted: SessionFilter, reason: str, seconds: float) -> list[tuple[str, str]]:
        """End the client sessions that match, within about `seconds`; their ids, each with what came of it."""
        ...

    def counters(self) -> dict[str, int]:
        """Numbers for the operator, by name."""
        ...


CoreFactory = Callable[[Configuration, FilteringBoundLogger], Awaitable[Core]]
"""Called on the worker's loop, after privileges have been dropped."""


def factory(name: str) -> CoreFactory:
    """The factory called `module:function`. Tests name their own; ours is `worker_process.DEFAULT_CORE`."""
    module, _, function = name.partition(":")
    return cast(CoreFactory, getattr(importlib.import_module(module), function))


async def front_door(configuration: Configuration, log: FilteringBoundLogger) -> Core:
    """Directory, sign-in, registry watch, router and shared state, joined to a front door.

    A missing directory or registry is no fault here: it is logged, sign-ins are answered as temporarily unavailable,
    and the file is taken up when it comes. Raises `ssl.SSLError` and ValueError for a bad key pair or token key.
    """
    loop = asyncio.get_running_loop()
    front_end, domain = configuration.front_end, configuration.organization.default_domain
    directory = open_directory(front_end, loop)
    directory.start()
    registry = watch_registry(front_end, loop)
    registry.start()
    await registry.first_view(FIRST_VIEW_SECONDS)
    shared_state = SqliteSharedState(front_end.shared_state, loop)
    shared_state.start()
    remembered = Remembered.inherited(os.environ)
    state: SharedState = shared_state
    ledger: Ledger = shared_state.ledger
    counts: SessionCounts = shared_state.session_counts
    key, store = remembered.key, None
    if front_end.shared_store is not None:
        store = SharedStore(
            front_end.shared_store, shared_state.ledger, loop, counts=shared_state.session_counts, state=shared_state
        )
        await store.start()
        assert store.state is not None
        assert store.session_counts is not None
        state, ledger, counts, key = store.state, store.ledger, store.session_counts, store.marks_key
    policy = open_policy(front_end.policy, ledger, key, counts)
    sign_in = SignInService(
        directory,
        domain,
        waiting_limit=front_end.limits.password_checks,
        per_address=front_end.limits.password_checks_per_address,
        token_verifier=open_tokens(front_end, domain),
        remembered=remembered,
        policy=policy,
        known_seconds=directory.known_seconds,
    )
    open_kerberos(sign_in, front_end)
    use_other_ways(sign_in, front_end)
    sign_in.app_passwords = app_passwords = open_app_passwords(front_end, loop)
    age = RegistryAge(front_end.limits.registry_age_seconds, lambda: registry.stale_seconds, registry.look_now)
    router = Router(configuration, registry.view, age)
    closers: tuple[_Closing, ...] = (sign_in, registry, directory, shared_state)
    if app_passwords is not None:
        closers += (app_passwords,)

    def stores_fault() -> str:
        if not directory.available:
            return "the directory cannot be read"
        if not registry.view.active and registry.stale_seconds > 0:
            return "the registry cannot be read"
        return CUT_OFF if age.cut_off else ""

    door = WiredFrontDoor(configuration, loop, sign_in, router, log, state, stores_fault, closers=closers, store=store)
    registry.on_change(door.set_view)
    if app_passwords is not None:
        app_passwords.on_removed(partial(door.end_removed, app_passwords.is_there))
    return door


class _Closing(Protocol):
    def close(self) -> None: ...


class WiredFrontDoor(FrontDoor):
    """A front door that owns what it was built from: the router follows each reload, the stores end with the drain."""

    def __init__(
        self,
        configuration: Configuration,
        loop: asyncio.AbstractEventLoop,
        sign_in: SignInService,
        router: Router,
        log: FilteringBoundLogger,
        shared_state: SharedState | None = None,
        stores_fault: Callable[[], str] = str,
        *,
        closers: tuple[_Closing, ...],
        store: SharedStore | None = None,
    ) -> None:
        super().__init__(configuration, loop, sign_in, router, log, shared_state, stores_fault)
        self._sign_in = sign_in
        self._closers = closers
        self._store = store

    def reload(self, configuration: Configuration) -> None:
        """As `FrontDoor.reload`; decisions follow the new organization only when the rest could be taken up."""
        open_kerberos(self._sign_in, configuration.front_end)
        use_other_ways(self._sign_in, configuration.front_end)
        super().reload(configuration)
        self._sign_in.policy.set_settings(configuration.front_end.policy)
        self._router.set_configuration(configuration)

    async def drain(self, seconds: float) -> None:
        """As `FrontDoor.drain`; then lets go of the stores."""
        await super().drain(seconds)
        await self._sign_in.policy.close()
        if self._store is not None:
            await self._store.end()
        for closer in self._closers:
            closer.close()
