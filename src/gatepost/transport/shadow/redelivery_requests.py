"""Requests to deliver again what the safety net has: what is remembered of them over a restart (exchange-facts 4.5)."""

from __future__ import annotations

from collections.abc import Awaitable
from hashlib import sha256
from typing import Protocol

import msgspec

from gatepost.activemanager.port import Loss

FACT = "redeliver/"
"""What the names of their facts in the spool begin with; the request follows."""
LOSS = "loss-"
"""What automatic requests begin with."""
MAX_REQUESTS = 10_000
"""More at a time are refused: one asks for each database, and others ask for hundreds of databases."""
MAX_NAME = 200
"""Characters of a request's name."""


class Request(msgspec.Struct):
    """A request as this hub carries it out. Times in seconds since 1970."""

    request: str
    database: str
    since: float
    until: float
    asked: float
    """When this hub heard of it."""
    done: bool = False
    """All is taken up that is to be taken up here."""
    count: int = 0
    """Messages that were taken up again."""
    found: int = 0
    """Messages of our own that the safety net had when it was asked."""
    hubs: dict[str, str] = msgspec.field(default_factory=dict)
    """Hubs that are still to be told, by whoever was asked first, and what kept each from it."""
    answers: dict[str, int] = msgspec.field(default_factory=dict)
    """How many messages the others have said that they take up."""


class Facts(Protocol):
    """Where requests are kept: the spool."""

    def put(self, name: str, value: bytes | None) -> Awaitable[None]:
        """Keep a fact under a name, or forget it."""

    async def facts(self, prefix: str) -> dict[str, bytes]:
        """All whose names begin with `prefix`. Raises OSError."""


class Requests:
    """All that this hub knows of, by name."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[str, Request] = {}

    async def load(self) -> None:
        """Take up what was there at the end of the last run. Raises OSError."""
        for value in (await self._facts.facts(FACT)).values():
            request = msgspec.msgpack.decode(value, type=Request)
            self._known[request.request] = request

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Request | None:
        """The request of that name."""
        return self._known.get(name)

    def all(self) -> list[Request]:
        """Oldest first."""
        return sorted(self._known.values(), key=lambda request: (request.asked, request.request))

    async def add(self, request: Request) -> None:
        """Know a request, on disk when this returns. Raises OSError, ValueError for one too many."""
        if len(self._known) >= MAX_REQUESTS:
            raise ValueError(f"there are {MAX_REQUESTS} requests already")
        self._known[request.request] = request
        try:
            await self.keep(request)
        except BaseException:
            self._known.pop(request.request, None)
            raise

    def keep(self, request: Request) -> Awaitable[None]:
        """Have what has changed of it on disk."""
        return self._facts.put(FACT + request.request, msgspec.msgpack.encode(request))

    def forget(self, request: Request) -> Awaitable[None]:
        """It is too old to come again."""
        self._known.pop(request.request, None)
        return self._facts.put(FACT + request.request, None)


def name_of(loss: Loss) -> str:
    """The request that follows from a lossy activation: the same at all hubs, and another one for each epoch. The time
    tells epochs of a registry apart that was set up anew."""
    return f"{LOSS}{sha256(loss.database.encode()).hexdigest()[:16]}-{loss.epoch}-{int(loss.until)}"
