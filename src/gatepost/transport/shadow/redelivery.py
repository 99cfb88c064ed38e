"""Who has mail delivered again: activations that may have lost some, and operators (SPEC S; exchange-facts 4.5).

Each hub follows the registry by itself. An operator asks one hub, which asks the others of the database's boundary over
the shadow channels, and goes on trying those that cannot be reached.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.activemanager.port import Loss
from gatepost.organization.model import Organization
from gatepost.transport.operating import EVERY, NotFound
from gatepost.transport.shadow.boundary import boundary_hubs
from gatepost.transport.shadow.ports import Channels
from gatepost.transport.shadow.redelivery_requests import Request, name_of
from gatepost.transport.shadow.safety_net import NetSpool, SafetyNet

SAFETY_NET_VERBS = frozenset({"safety_net", "safety_net_redeliver"})
"""What `Redelivery` does for operators."""
TELL_SECONDS = 60.0
"""Between two attempts to tell a hub that was not reached."""
GIVE_UP_SECONDS = 12 * 3600.0
"""After this a hub is not told any more (exchange-facts 4.5)."""
ANSWER_SECONDS = 10.0
"""How long the operator waits for the other hubs."""
LATE_SECONDS = 2.0
"""What was delivered so long after an activation may have gone to the old copy: the answer was under way."""


class Redelivery:
    """Of one hub. `clock` answers seconds since 1970; `configure` before `load`."""

    def __init__(
        self,
        name: str,
        net: SafetyNet,
        spool: NetSpool,
        channels: Channels,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._name = name
        self._net = net
        self._spool = spool
        self._channels = channels
        self._clock = clock
        self._log = log
        self._organization = Organization("")
        self._losses: Mapping[str, tuple[Loss, ...]] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None
        self._is_loaded = False

    def configure(self, organization: Organization) -> None:
        """Use another organization from now on."""
        self._organization = organization

    # Start and end

    async def load(self) -> None:
        """Go on with what was asked for before. Raises OSError."""
        await self._net.load()
        self._is_loaded = True
        for request in self._net.requests.all():
            if request.hubs:
                self._tell_later(request)
        self.follow(self._losses)

    async def end(self) -> None:
        """Tell nobody any more; it goes on after the next start."""
        working = [*self._telling.values(), *([self._following] if self._following is not None else [])]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        await self._net.end()

    # By itself

    def follow(self, losses: Mapping[str, tuple[Loss, ...]]) -> None:
        """What the registry says now. Each lossy activation is a request, once."""
        self._losses = losses
        if self._is_loaded and (self._following is None or self._following.done()) and self._news():
            self._following = tasks.start(self._follow(), "deliver again what an activation may have lost")

    def _news(self) -> list[Loss]:
        """Those that are not requests yet and of which the safety net may still have something."""
        config = self._organization.transport_config
        oldest = self._clock() - config.safety_net_hold_time
        found = [loss for losses in self._losses.values() for loss in losses if loss.until >= oldest]
        return [
            loss
            for loss in found
            if self._net.requests.get(name_of(loss)) is None and self._net.is_within(loss.database)
        ]

    async def _follow(self) -> None:
        while news := self._news():
            for loss in news:
                try:
                    await self._net.ask(name_of(loss), loss.database, loss.since, loss.until + LATE_SECONDS)
                except (OSError, ValueError) as fault:
                    self._log.error("safety_net.not_asked", database=loss.database, reason=str(fault))
                    await asyncio.sleep(TELL_SECONDS)

    # By operators

    async def safety_net(self, database: str = EVERY) -> dict[str, Any]:
        """What is kept, by database: `messages`, `of_others` of those that are left to their primaries, `until` when
        the next one is let go of; and the `requests`, oldest first. Raises OSError."""
        kept = [
            {"database": name, "messages": messages, "of_others": others, "until": until}
            for name, messages, others, until in await self._spool.safety_net_sums()
            if database in (EVERY, name)
        ]
        requests = [_entry(each) for each in self._net.requests.all() if database in (EVERY, each.database)]
        return {"kept": kept, "requests": requests}

    async def safety_net_redeliver(self, database: str, since: float, until: float = 0.0) -> dict[str, Any]:
        """Have all hubs of the boundary deliver again what they have for a database, delivered between the two
        (`until` 0: up to now). Answers the `request` and what each of the `hubs` says: `messages`, or an `error` and it
        is told later. Raises `NotFound`, ValueError, OSError."""
        if database not in self._organization.databases:
            raise NotFound(f"there is no database {database}")
        hubs = boundary_hubs(self._organization, database)
        now = self._clock()
        until = min(until or now, now)
        if since > until:
            raise ValueError("the time to begin with is later than the one to end with")
        if not hubs:
            raise NotFound(f"no site with a copy of {database} has a hub")
        name = secrets.token_hex(16)
        request = await self._net.ask(name, database, since, until)
        if request is None:  # outside of the boundary: we have nothing of it, and tell the others only
            request = Request(name, database, since, until, now, done=True)
            await self._net.requests.add(request)
        request.hubs = {hub: "not asked yet" for hub in hubs if hub != self._name}
        await self._net.requests.keep(request)
        await self._tell(request)
        if request.hubs:
            self._tell_later(request)
        answers: dict[str, dict[str, Any]] = {hub: {"messages": found} for hub, found in request.answers.items()}
        answers |= {hub: {"error": why} for hub, why in request.hubs.items()}
        if self._name in hubs:
            answers[self._name] = {"messages": request.found}
        return {"request": name, "hubs": [{"hub": hub, **answers[hub]} for hub in sorted(answers)]}

    def _tell_later(self, request: Request) -> None:
        name = request.request
        task = self._telling[name] = tasks.start(self._tell_again(request), "tell hubs what is to be delivered again")
        task.add_done_callback(lambda _: self._telling.pop(name, None))

    async def _tell_again(self, request: Request) -> None:
        while request.hubs and self._clock() - request.asked < GIVE_UP_SECONDS:
            await asyncio.sleep(TELL_SECONDS)
            await self._tell(request)
        for hub, why in request.hubs.items():
            self._log.error(
                "safety_net.given_up", request=request.request, database=request.database, server=hub, reason=why
            )
        if request.hubs:
            request.hubs = {}
            await self._net.requests.keep(request)

    async def _tell(self, request: Request) -> None:
        """Tell all that are left, at once. Never raises but when cancelled."""
        left = list(request.hubs)
        outcomes = await asyncio.gather(*(self._tell_one(request, hub) for hub in left))
        for hub, outcome in zip(left, outcomes, strict=True):
            if isinstance(outcome, str):
                request.hubs[hub] = outcome
            else:
                del request.hubs[hub]
                request.answers[hub] = outcome
                self._log.info("safety_net.told", request=request.request, server=hub, messages=outcome)
        try:
            await self._net.requests.keep(request)
        except OSError as fault:
            self._log.error("safety_net.not_kept", request=request.request, reason=str(fault))

    async def _tell_one(self, request: Request, hub: str) -> int | str:
        """How many messages it takes up, or what kept it from being asked."""
        if hub not in self._organization.servers:
            return "it is no server of the organization any more"
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                channel = await self._channels.channel(hub, heartbeat=True)
                return await channel.redeliver(request.request, request.database, request.since, request.until)
        except OSError as fault:  # a TimeoutError is one
            return str(fault) or "no answer in time"


def _entry(request: Request) -> dict[str, Any]:
    return {
        "request": request.request,
        "database": request.database,
        "since": request.since,
        "until": request.until,
        "asked": request.asked,
        "state": "done" if request.done else "under way",
        "found": request.found,
        "redelivered": request.count,
        "answers": dict(request.answers),
        "not_reached": dict(request.hubs),
    }
