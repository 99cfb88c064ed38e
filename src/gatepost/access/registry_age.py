"""What a worker may still believe of the registry (SPEC A3, A4, field case 115).

A registry that is not heard of does not stop anything at once: what was last known is gone by. But another server may
have a database by then, so there is an end to it: past the stated age nobody is sent to a database any more. And a
server that says that a database is not its own has the registry asked anew, now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

CHECK_SECONDS = 1.0
"""How often the log is to know. Decisions look at the age themselves."""
ASK_SECONDS = 1.0
"""For one look at the registry. A client waits for it."""
AGAIN_SECONDS = 0.1
"""Between two of them: however many sign-ins were sent to the wrong server."""
CUT_OFF = "the registry has not been heard of for too long"


def _fresh() -> float:
    return 0.0


async def _nothing_new(_seconds: float) -> bool:
    return True


class RegistryAge:
    """`stale` says for how long the registry has not been heard of, `look(seconds)` has the view be as of now."""

    def __init__(
        self,
        limit: float,
        stale: Callable[[], float] = _fresh,
        look: Callable[[float], Awaitable[bool]] = _nothing_new,
    ) -> None:
        self.limit = limit
        self._stale = stale
        self._look = look
        self._looking: asyncio.Task[bool] | None = None
        self._told = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stale_seconds(self) -> float:
        """For how long the registry has not been heard of."""
        return self._stale()

    @property
    def cut_off(self) -> bool:
        """Whether that is too long for anybody to be sent to a database."""
        return self._stale() > self.limit

    def watch(self, loop: asyncio.AbstractEventLoop, log: FilteringBoundLogger) -> None:
        """Say in the log when it begins and when it ends; once each, until `close`."""
        self._timer = loop.call_later(CHECK_SECONDS, self.watch, loop, log)
        stale = self._stale()
        cut_off = stale > self.limit
        if cut_off and not self._told:
            log.error("registry.cut_off", reason=f"{CUT_OFF}: no new sessions", seconds=round(stale), limit=self.limit)
        elif self._told and not cut_off:
            log.info("registry.heard_again", reason="new sessions go to their databases")
        self._told = cut_off

    def close(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def look(self) -> bool:
        """Have the view be what the registry says now, or said a moment ago; whether that could be had."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_once(), name="look at the registry")
        return await asyncio.shield(self._looking)

    async def _look_once(self) -> bool:
        try:
            found = await self._look(ASK_SECONDS)
            await asyncio.sleep(AGAIN_SECONDS)  # who asks meanwhile gets the same answer
            return found
        finally:
            self._looking = None
