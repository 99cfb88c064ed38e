"""Log lines of refusals that come in numbers: what one client address causes is one line a second for each reason."""

from __future__ import annotations

import asyncio
from typing import Any

SECONDS = 1.0
"""An address's first refusal is logged at once, what follows within this time as a number afterwards."""
MAX_ADDRESSES = 1000
"""Addresses (and reasons) counted by themselves at one time; refusals of further ones are counted together."""
OTHERS = "others"
"""Stands for the address of those."""
FURTHER = "further sign-ins while busy"
"""The reason on lines that only count, where there is no other."""


class BusyLog:
    """Writes warnings called `event`. `client` and `count` are on each; an address's first has the caller's fields."""

    def __init__(self, log: Any, event: str, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ANN401 - any logger
        self._log = log
        self._event = event
        self._loop = loop
        self._counts: dict[tuple[str, str], int] = {}

    def refused(self, client: str, **fields: Any) -> None:  # noqa: ANN401 - what a log line takes
        """A sign-in of `client` was refused as busy."""
        self._refused(client, FURTHER, fields)

    def refused_for(self, client: str, reason: str, **fields: Any) -> None:  # noqa: ANN401 - what a log line takes
        """Something of `client` was refused for `reason`, one of a few: each has lines of its own."""
        self._refused(client, reason, {"reason": reason, **fields})

    def _refused(self, client: str, reason: str, fields: dict[str, Any]) -> None:
        key = client, reason
        if key not in self._counts and len(self._counts) >= MAX_ADDRESSES:
            client = OTHERS
            key = OTHERS, FURTHER
        if key in self._counts:
            self._counts[key] += 1
            return
        self._counts[key] = 0
        self._log.warning(self._event, client=client, **fields, count=1)
        self._loop.call_later(SECONDS, self._report, key)

    def _report(self, key: tuple[str, str]) -> None:
        count = self._counts.pop(key)
        if count:
            self._counts[key] = 0
            self._log.warning(self._event, client=key[0], reason=key[1], count=count)
            self._loop.call_later(SECONDS, self._report, key)
