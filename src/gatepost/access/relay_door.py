"""What doors share whose sessions end in a relay: counts, ids, the sweep over deadlines, who must go, the drain."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from structlog.typing import FilteringBoundLogger

from gatepost.access.admission import Admission
from gatepost.access.busy_log import FURTHER_STRANGERS, BusyLog
from gatepost.access.leaving import KICKED, MailLeaver
from gatepost.access.mail_relayed import RelayedLeg
from gatepost.access.moves import Leaver
from gatepost.access.router import Router
from gatepost.access.sessions import SessionFilter
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Protocol

SWEEP_SECONDS = 1.0
"""How often deadlines of sign-ins are looked at."""
RELAY_SWEEP_SECONDS = 30.0
"""How often idle relays are looked for; the idle time is over half an hour."""
IDLE = "idle for too long"
DRAIN_QUIET_SECONDS = 0.2
"""At the drain's deadline a session that says nothing for this long is at a command boundary."""

Leg = TypeVar("Leg", bound=RelayedLeg)


class RelayDoor(Generic[Leg]):
    """The sessions of one protocol in this worker. `pending` ones have no relay yet, `relaying` ones have."""

    def __init__(
        self,
        protocol: Protocol,
        configuration: Configuration,
        router: Router,
        admission: Admission,
        log: FilteringBoundLogger,
    ) -> None:
        self.protocol = protocol
        self.configuration = configuration
        self.limits = configuration.front_end.limits
        self.router = router
        self.admission = admission
        self.log = log
        self.loop = asyncio.get_running_loop()
        self.event = f"{protocol.value}.session"
        self.strangers_log = BusyLog(log, self.event, self.loop, level="info", further=FURTHER_STRANGERS)
        """For connections that end before anybody was refused or let in: whoever can connect can make them."""
        self.pending: set[Leg] = set()
        self.relaying: set[Leg] = set()
        self.draining = False
        self.all_ended = asyncio.Event()
        """Set during a drain when the last relay is gone."""
        self._session_prefix = secrets.token_hex(4)
        self._session_numbers = count(1)
        self._next_relay_sweep = self.loop.time() + RELAY_SWEEP_SECONDS
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def is_current(self, database: str, epoch: int) -> bool:
        """Whether `epoch` is still that of `database`; what was decided without one (0) is not overtaken by any."""
        active = self.router.view.active.get(database)
        return not epoch or active is None or active.epoch == epoch

    def leavers(self, wanted: SessionFilter, reason: str) -> list[tuple[str, Leaver]]:
        """The sessions that match, by id, for an operator who ends them."""
        legs = [leg for leg in self.legs() if wanted.matches(leg.describe())]
        return [(leg.session, MailLeaver(leg, reason, KICKED)) for leg in legs]

    def new_session(self) -> str:
        """A session id: unique over workers and restarts, short enough to type."""
        return f"{self._session_prefix}-{next(self._session_numbers)}"

    def farewell(self, text: str) -> bytes:  # noqa: ARG002
        """What a client is told when its relayed session is ended by us at any moment; empty: that has to fit."""
        return b""

    def sessions(self) -> list[dict[str, Any]]:
        """One entry a client connection, for the operator."""
        return [leg.describe() for leg in self.legs()]

    def legs(self) -> list[Leg]:
        """Every session there is now."""
        return [*self.pending, *self.relaying]

    def _sweep(self) -> None:
        # First of all the next round: whatever happens to one session, the others' deadlines are kept.
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self.loop.time()
        for leg in list(self.pending):
            self._guarded(leg, partial(leg.check_deadline, now))
        if now >= self._next_relay_sweep:
            self._next_relay_sweep = now + RELAY_SWEEP_SECONDS
            for leg in list(self.relaying):
                if leg.relay is not None:
                    self._guarded(
                        leg, partial(leg.relay.sweep, now, self.limits.idle_seconds, self._idle_farewell(leg))
                    )

    def _idle_farewell(self, leg: Leg) -> bytes:
        """What the client of a session is told that nothing has passed in for too long."""
        return self.farewell(IDLE) or leg.farewell(IDLE)

    def _guarded(self, leg: Leg, what: Callable[[], None]) -> None:
        """A fault of ours with one session ends that session and is reported like any other fault."""
        try:
            what()
        except Exception as error:  # noqa: BLE001 - a bug; the guard is what keeps it to one session
            context = {"message": f"session {leg.session} could not be swept", "exception": error}
            self.loop.call_exception_handler(context)
            leg.give_up()

    async def drain(self, seconds: float) -> None:
        """Refuse sign-ins from now on, let sessions go on until they end or `seconds` have passed, then end them.

        A session is ended at a command boundary where one can be seen, when it has been quiet for a moment; at the
        deadline it is cut.
        """
        self.draining = True
        for leg in list(self.pending):
            leg.turn_away("this server is going down, try again")
        if not self.relaying:
            self.all_ended.set()
        deadline = self.loop.time() + max(seconds, 2 * DRAIN_QUIET_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline - 2 * DRAIN_QUIET_SECONDS):
                await self.all_ended.wait()
        while self.relaying and self.loop.time() < deadline:
            seen = {leg: leg.bytes_seen for leg in self.relaying}
            await asyncio.sleep(DRAIN_QUIET_SECONDS)
            for leg, before in seen.items():
                if leg.relay is not None and leg.bytes_seen == before and leg.at_boundary():
                    leg.relay.close("drained", leg.farewell("this server is going down"))
        for leg in list(self.relaying):
            if leg.relay is not None:
                leg.relay.abort("drained")
        await asyncio.sleep(0)
        self._sweeper.cancel()
