"""Log lines of what anybody can cause in numbers: of one client address they are one line a second for each reason."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

SECONDS = 1.0
"""An address's first refusal is logged at once, what follows within this time as a number afterwards."""
MAX_ADDRESSES = 1000
"""Addresses (and reasons) counted by themselves at one time; refusals of further ones are counted together."""
OTHERS = "others"
"""Stands for the address of those."""
FURTHER = "further sign-ins while busy"
"""The reason on lines that only count, where there is no other."""
FURTHER_STRANGERS = "further connections without a sign-in"
FURTHER_UNSIGNED = "further refusals without credentials"


class BusyLog:
    """Writes lines called `event`. `client` and `count` are on each; an address's first has the caller's fields.

    They are warnings, or of another `level`; `further` is the reason on those that only count.
    """

    def __init__(
        self,
        log: Any,  # noqa: ANN401 - any logger
        event: str,
        loop: asyncio.AbstractEventLoop,
        *,
        level: Literal["info", "warning"] = "warning",
        further: str = FURTHER,
    ) -> None:
        self._write = getattr(log, level)
        self._further = further
        self._event = event
        self._loop = loop
        self._counts: dict[tuple[str, str], int] = {}

    def refused(self, client: str, **fields: Any) -> None:  # noqa: ANN401 - what a log line takes
        """Something of `client` was refused, or has ended, for the log's one reason."""
        self._refused(client, self._further, fields)

    def refused_for(self, client: str, reason: str, **fields: Any) -> None:  # noqa: ANN401 - what a log line takes
        """Something of `client` was refused for `reason`, one of a few: each has lines of its own."""
        self._refused(client, reason, {"reason": reason, **fields})

    def _refused(self, client: str, reason: str, fields: dict[str, Any]) -> None:
        key = client, reason
        if key not in self._counts and len(self._counts) >= MAX_ADDRESSES:
            client = OTHERS
            key = OTHERS, self._further
        if key in self._counts:
            self._counts[key] += 1
            return
        self._counts[key] = 0
        self._write(self._event, client=client, **fields, count=1)
        self._loop.call_later(SECONDS, self._report, key)

    def _report(self, key: tuple[str, str]) -> None:
        count = self._counts.pop(key)
        if count:
            self._counts[key] = 0
            self._write(self._event, client=key[0], reason=key[1], count=count)
            self._loop.call_later(SECONDS, self._report, key)
