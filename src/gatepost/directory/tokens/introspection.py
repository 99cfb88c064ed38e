"""Tokens that their issuer judges: it is asked about each (RFC 7662).

about ── not active lately ──► None
    └── asked just now ──► the same answer ◄── one question for all who show the same token
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Any

from gatepost.directory.port import TokenVerifierUnavailable
from gatepost.directory.settings import TokenIssuer
from gatepost.directory.tokens.issuer_client import IssuerClient, IssuerFault

INACTIVE_SECONDS = 5.0
"""A token that was not active is not asked about again for so long."""
MAX_INACTIVE = 10_000

_Answer = tuple[dict[str, Any] | None, str]


class Introspection:
    """Asks one issuer about tokens. Belongs to the loop. `clock`: seconds, monotonic. Keeps digests, no token."""

    def __init__(
        self, settings: TokenIssuer, client: IssuerClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._inactive: dict[bytes, float] = {}
        self._running: dict[bytes, asyncio.Task[_Answer]] = {}
        self._uri = settings.introspection_uri

    def close(self) -> None:
        """Ask nothing more."""
        for task in list(self._running.values()):
            task.cancel()

    async def about(self, token: str) -> dict[str, Any] | None:
        """The claims of an active token; None for one that is not. Raises `TokenVerifierUnavailable`."""
        digest = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
        if self._inactive.get(digest, 0.0) > self._clock():
            return None
        task = self._running.get(digest)
        if task is None:
            task = self._running[digest] = asyncio.ensure_future(self._ask(token))
            task.add_done_callback(lambda _: self._running.pop(digest, None))
        await asyncio.wait([task])  # others may wait for it too: whoever gives up does not end it
        if task.cancelled():
            raise TokenVerifierUnavailable("no more tokens are judged")
        claims, fault = task.result()
        if fault:
            raise TokenVerifierUnavailable(fault)
        if claims is None:
            if len(self._inactive) >= MAX_INACTIVE:
                del self._inactive[next(iter(self._inactive))]
            self._inactive[digest] = self._clock() + INACTIVE_SECONDS
        return claims

    async def _ask(self, token: str) -> _Answer:
        """The claims, or why there are none; never raises."""
        try:
            self._uri = self._uri or await self._client.uri("introspection_endpoint")
            claims = await self._client.ask(self._uri, {"token": token, "token_type_hint": "access_token"})
        except IssuerFault as fault:
            if not self._settings.introspection_uri:
                self._uri = ""  # it may be another one by now
            return None, str(fault)
        active = claims.get("active")
        if not isinstance(active, bool):
            return None, f"{self._uri}: an answer without active"
        return (claims if active else None), ""
