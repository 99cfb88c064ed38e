"""The shared store in Redis or Valkey: each round is one script that reads, and one for each change.

Scripts run one at a time and entirely, so a change is made while its keys are as they were read, or not at all. Times
are the server's: the clocks of front ends are no matter.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gatepost.configuration.key_pairs import load_key_pair
from gatepost.configuration.settings import SharedStoreSettings
from gatepost.sharedstate.store.port import MAX_VALUE_BYTES, Commit, Found, StoreAway

CONNECT_SECONDS = 1.0
PORT = 6379
_GARBAGE = (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What reading an answer that is no Redis' can end in, in the client library or here."""

_READ = f"""
local time = redis.call('TIME')
local answer = {{time[1], time[2]}}
for place, key in ipairs(KEYS) do
  if redis.call('STRLEN', key) > {MAX_VALUE_BYTES} then redis.call('DEL', key) end
  answer[place + 2] = redis.call('GET', key)
end
return answer
"""
_COMMIT = """
for place, key in ipairs(KEYS) do
  local have = redis.call('GET', key)
  if (have and '=' .. have or '-') ~= ARGV[place] then return 0 end
end
for place = #KEYS + 1, #ARGV, 3 do
  local key = KEYS[tonumber(ARGV[place])]
  if ARGV[place + 1] == '' then
    redis.call('DEL', key)
  else
    redis.call('SET', key, ARGV[place + 1], 'PX', ARGV[place + 2])
  end
end
return 1
"""
"""Arguments: for each key what it must be ("-": not there), then places of keys with value and milliseconds."""


class RedisKeyValues:
    """The `KeyValues` at one server. Belongs to the running loop; one connection is enough for its rounds."""

    def __init__(self, settings: SharedStoreSettings) -> None:
        """Raises `ssl.SSLError` for a certificate or key that cannot be used, ValueError for a bad URL."""
        parts = urlsplit(settings.url)
        self.where = f"{parts.scheme}://{parts.hostname}:{parts.port or PORT}"
        arguments: dict[str, Any] = {}
        kind: type[Connection] = Connection
        if parts.scheme == "rediss":
            kind, arguments = _Secured, {"context": _context(settings)}
        self._pool = BlockingConnectionPool(
            connection_class=kind,
            max_connections=2,
            timeout=CONNECT_SECONDS,
            host=parts.hostname or "",
            port=parts.port or PORT,
            db=int(parts.path.strip("/") or 0),
            username=settings.user or None,
            password=settings.password or None,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,  # rounds have a time of their own
            socket_connect_timeout=CONNECT_SECONDS,
            **arguments,
        )
        self._redis = Redis(connection_pool=self._pool)

    async def read(self, keys: Sequence[str]) -> tuple[dict[str, Found], float | None]:
        """See `KeyValues`."""
        try:
            answer = await self._redis.eval(_READ, len(keys), *keys)  # type: ignore[no-untyped-call, misc, unused-ignore]
            seconds, microseconds, *values = answer
            found = {key: _found(value) for key, value in zip(keys, values, strict=True) if value is not None}
            return found, int(seconds) + int(microseconds) / 1e6
        except (RedisError, OSError) as fault:
            raise StoreAway(_words(fault)) from fault
        except _GARBAGE as fault:
            raise StoreAway("not the answer of a Redis") from fault

    async def commit(self, commits: Sequence[Commit]) -> list[bool]:
        """See `KeyValues`."""
        pipeline = self._redis.pipeline(transaction=False)
        try:
            for commit in commits:
                pipeline.eval(_COMMIT, len(commit.seen), *commit.seen, *_arguments(commit))
            return [answer == 1 for answer in await pipeline.execute()]
        except (RedisError, OSError) as fault:
            raise StoreAway(_words(fault)) from fault
        except _GARBAGE as fault:
            raise StoreAway("not the answer of a Redis") from fault

    async def close(self) -> None:
        """See `KeyValues`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._redis.aclose()
                await self._pool.aclose()
        except (RedisError, OSError, TimeoutError):
            pass  # it is gone anyway


class _Secured(SSLConnection):
    """With a context made of certificates in memory: a worker cannot read the files any more."""

    def __init__(self, *, context: ssl.SSLContext, **arguments: Any) -> None:  # noqa: ANN401 - the library's
        super().__init__(**arguments)
        self._context = context

    def _connection_arguments(self) -> dict[str, Any]:
        return {"host": self.host, "port": self.port, "ssl": self._context}


def _context(settings: SharedStoreSettings) -> ssl.SSLContext:
    ca = settings.ca.decode("ascii", "ignore")
    context = ssl.create_default_context(cadata=ca) if ca else ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.certificate:
        load_key_pair(context, settings.certificate, settings.private_key)
    return context


def _found(value: object) -> Found:
    """Raises TypeError: of a number `bytes` would make so many octets."""
    if not isinstance(value, bytes):
        raise TypeError(type(value).__name__)
    return Found(value)


def _arguments(commit: Commit) -> list[str | bytes | int]:
    places = {key: place for place, key in enumerate(commit.seen, 1)}
    arguments: list[str | bytes | int] = [b"=" + found.value if found else "-" for found in commit.seen.values()]
    for key, put in commit.puts.items():
        arguments += [places[key], put.value if put else "", max(int((put.seconds if put else 1) * 1000), 1)]
    return arguments


def _words(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}".rstrip(": ")[:300]
