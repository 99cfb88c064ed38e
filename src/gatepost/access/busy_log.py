"""Log lines of sign-ins that were refused as busy: what one client address causes is one line a second."""

from __future__ import annotations

import asyncio
from typing import Any

SECONDS = 1.0
"""An address's first refusal is logged at once, what follows within this time as a number afterwards."""
MAX_ADDRESSES = 1000
"""Addresses counted by themselves at one time; refusals of further ones are counted together."""
OTHERS = "others"
"""Stands for the address of those."""


class BusyLog:
    """Writes warnings called `event`. `client` and `count` are on each; an address's first has the caller's fields."""

    def __init__(
        self,
        log: Any,  # noqa: ANN401 - any logger
        event: str,
        loop: asyncio.AbstractEventLoop,
        further: str = "further sign-ins while busy",
    ) -> None:
        """`further` is the reason on lines that only count."""
        self._log = log
        self._event = event
        self._loop = loop
        self._further = further
        self._counts: dict[str, int] = {}

    def refused(self, client: str, **fields: Any) -> None:  # noqa: ANN401 - what a log line takes
        """Something of `client` was refused."""
        if client not in self._counts and len(self._counts) >= MAX_ADDRESSES:
            client = OTHERS
        if client in self._counts:
            self._counts[client] += 1
            return
        self._counts[client] = 0
        self._log.warning(self._event, client=client, **fields, count=1)
        self._loop.call_later(SECONDS, self._report, client)

    def _report(self, client: str) -> None:
        count = self._counts.pop(client)
        if count:
            self._counts[client] = 0
            self._log.warning(self._event, client=client, reason=self._further, count=count)
            self._loop.call_later(SECONDS, self._report, client)
