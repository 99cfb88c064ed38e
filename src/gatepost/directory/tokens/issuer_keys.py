"""An issuer's keys as they were fetched last: fresh, stale but usable, or none.

    current ── younger than `keys_seconds` ──► the keys
       ├── older ──► the keys, and a fetch behind; if that fails they are good for `outage_seconds` more
       └── none, or too old ──► waits for a fetch
    look_again ── a token that no key fits ──► one fetch for it, if the last is long enough ago

Strangers can show tokens with any `kid`, so these make us fetch once in `AGAIN_SECONDS` at most, whoever they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from gatepost.directory.port import TokenVerifierUnavailable
from gatepost.directory.settings import TokenIssuer
from gatepost.directory.tokens.issuer_client import IssuerClient, IssuerFault
from gatepost.directory.tokens.key_set import BadKeys, KeySet, key_set_of_jwks, key_set_of_pem

AGAIN_SECONDS = 10.0
"""Between two fetches for tokens that no key fits."""
ABSENT_SECONDS = 30.0
"""A key that was not there when it was looked for is taken as absent for so long."""
MAX_ABSENT = 1024
LONGEST_PAUSE_SECONDS = 10.0
"""Between two tries while fetching fails; from one second on, doubled."""


class IssuerKeys:
    """The keys of one issuer, fetched by `client`. Belongs to the loop. `clock`: seconds, monotonic."""

    def __init__(
        self, settings: TokenIssuer, client: IssuerClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `BadKeys` when the key of the settings is none."""
        self._settings = settings
        self._client = client
        self._clock = clock
        self._fixed = key_set_of_pem(settings.key) if settings.key else None
        self._keys: KeySet | None = None
        self._fetched = 0.0
        self._failures = 0
        self._due = 0.0
        """Not before this is a fetch tried after one that failed."""
        self._looked = float("-inf")
        self._absent: dict[str, float] = {}
        self._running: asyncio.Task[None] | None = None
        self._reason = ""
        self._log = structlog.get_logger("gatepost")

    def start(self) -> None:
        """Fetch the keys ahead of the first token."""
        if self._fixed is None:
            self._fetch()

    def close(self) -> None:
        """Fetch nothing more."""
        if self._running is not None:
            self._running.cancel()

    async def current(self) -> KeySet:
        """The keys. Raises `TokenVerifierUnavailable` when none are known that are young enough."""
        if self._fixed is not None:
            return self._fixed
        keys, age = self._keys, self._clock() - self._fetched
        if keys is not None and age <= self._settings.keys_seconds + self._settings.outage_seconds:
            if age > self._settings.keys_seconds and self._clock() >= self._due:
                self._fetch()
            return keys
        await self._fetched_now()
        assert self._keys is not None
        return self._keys

    async def look_again(self, mark: str) -> bool:
        """Whether the keys may be others now, for a token that none of them fits; `mark` says what was looked for.

        To be asked again while no key fits: False comes once they have been fetched for this token.
        Raises `TokenVerifierUnavailable` where that cannot be said: it may be a key that is quite new.
        """
        if self._fixed is not None:
            return False
        if self._running is not None:
            await self._fetched_now()  # begun before the token came: it may know the key, or not yet
            return True
        now = self._clock()
        if now < self._absent.get(mark, now):
            return False
        if now - self._looked < AGAIN_SECONDS:
            raise TokenVerifierUnavailable(f"{self._settings.issuer}: its keys have just been looked at")
        self._looked = now
        await self._fetched_now()
        self._absent.pop(mark, None)
        if len(self._absent) >= MAX_ABSENT:
            del self._absent[next(iter(self._absent))]
        self._absent[mark] = self._clock() + ABSENT_SECONDS
        return True

    async def _fetched_now(self) -> None:
        """Raises `TokenVerifierUnavailable`."""
        if self._running is None and self._clock() < self._due:
            raise TokenVerifierUnavailable(f"the keys of {self._settings.issuer} cannot be fetched: {self._reason}")
        task = self._fetch()
        await asyncio.wait([task])  # others may wait for it too: whoever gives up does not end it
        if self._failures or self._keys is None:
            raise TokenVerifierUnavailable(f"the keys of {self._settings.issuer} cannot be fetched: {self._reason}")

    def _fetch(self) -> asyncio.Task[None]:
        if self._running is None:
            self._running = asyncio.ensure_future(self._fetch_keys())
        return self._running

    async def _fetch_keys(self) -> None:
        began = self._clock()
        issuer = self._settings.issuer
        try:
            uri = self._settings.jwks_uri or await self._client.uri("jwks_uri")
            keys = key_set_of_jwks(await self._client.get(uri))
        except (IssuerFault, BadKeys) as fault:
            self._failures += 1
            self._reason = str(fault)
            self._due = self._clock() + min(2.0 ** min(self._failures - 1, 16), LONGEST_PAUSE_SECONDS)
            self._log.warning("tokens.no_keys", issuer=issuer, reason=self._reason, failures=self._failures)
        else:
            if self._failures:
                self._log.info("tokens.keys_again", issuer=issuer)
            self._failures, self._due, self._reason = 0, 0.0, ""
            self._keys, self._fetched = keys, began
        finally:
            self._running = None
