"""The shared store in etcd: each round is one transaction that reads, and one that changes.

A change is a transaction within the transaction: each compares its own keys, and one that somebody else was faster
with keeps no other from being made. What etcd shall forget hangs on leases, of which a process has few: keys of about
the same life share one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from gatepost.activemanager.etcd.client import EtcdClient, EtcdFault
from gatepost.activemanager.etcd.layout import Json, encoded, key_value
from gatepost.activemanager.port import RegistryUnavailable
from gatepost.configuration.settings import EtcdSettings
from gatepost.sharedstate.store.port import MAX_VALUE_BYTES, Commit, Found, StoreAway

T = TypeVar("T")

CALL_SECONDS = 1.0
READ_KEYS = 100
"""Of one transaction; etcd takes 128 operations."""
COMMITS = 40
"""Changes of one transaction: with the keys of the largest below 128."""
SHARE = 0.25
"""A lease is given to new keys for such a part of their life, and lasts so much longer than that."""


class EtcdKeyValues:
    """The `KeyValues` in a cluster. Belongs to the running loop."""

    def __init__(self, settings: EtcdSettings) -> None:
        """Raises `ssl.SSLError` for a certificate or key that cannot be used."""
        self._client = EtcdClient(settings)
        self.where = ", ".join(settings.endpoints)
        self._leases: dict[int, tuple[str, float]] = {}
        """By seconds: a lease's id, and until when (monotonic) it is given to new keys."""
        self._granting = asyncio.Lock()

    async def read(self, keys: Sequence[str]) -> tuple[dict[str, Found], float | None]:
        """See `KeyValues`. etcd tells no clock."""
        answers = await asyncio.gather(*(self._read(part) for part in _parts(keys, READ_KEYS)))
        return {key: found for answer in answers for key, found in answer.items()}, None

    async def commit(self, commits: Sequence[Commit]) -> list[bool]:
        """See `KeyValues`."""
        answers = await asyncio.gather(*(self._commit(part) for part in _parts(commits, COMMITS)))
        return [made for answer in answers for made in answer]

    async def close(self) -> None:
        """See `KeyValues`."""
        await self._client.close()

    async def _read(self, keys: Sequence[str]) -> dict[str, Found]:
        ranges = [{"request_range": {"key": encoded(key)}} for key in keys]
        answer = await self._call("kv/txn", {"success": ranges})
        found: dict[str, Found] = {}
        try:
            for response in answer.get("responses", ()):
                for pair in response["response_range"].get("kvs", ()):
                    key, value = key_value(pair)
                    if len(value.value) <= MAX_VALUE_BYTES:
                        found[key] = Found(value.value, value.mod_revision)
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise StoreAway("not the answer of an etcd") from fault
        return found

    async def _commit(self, commits: Sequence[Commit]) -> list[bool]:
        inner = [{"request_txn": await self._transaction(commit)} for commit in commits]
        answer = await self._call("kv/txn", {"success": inner})
        try:
            made = [bool(response["response_txn"].get("succeeded")) for response in answer.get("responses", ())]
        except (KeyError, TypeError, AttributeError) as fault:
            raise StoreAway("not the answer of an etcd") from fault
        if len(made) != len(commits):
            raise StoreAway("not the answer of an etcd")
        return made

    async def _transaction(self, commit: Commit) -> Json:
        compare = [
            {
                "key": encoded(key),
                "target": "MOD",
                "result": "EQUAL",
                "mod_revision": str(found.version if found else 0),
            }
            for key, found in commit.seen.items()
        ]
        operations: list[Json] = []
        for key, put in commit.puts.items():
            if put is None:
                operations.append({"request_delete_range": {"key": encoded(key)}})
            else:
                lease = await self._lease(put.seconds)
                operations.append({"request_put": {"key": encoded(key), "value": encoded(put.value), "lease": lease}})
        return {"compare": compare, "success": operations}

    async def _lease(self, seconds: float) -> str:
        """A lease that lasts `seconds` from now on, and some more."""
        kind = max(int(seconds + 0.999), 1)
        async with self._granting:
            lease, until = self._leases.get(kind, ("", 0.0))
            now = time.monotonic()
            if now >= until:
                answer = await self._call("lease/grant", {"TTL": str(int(kind * (1 + SHARE)) + 1)})
                lease, until = str(answer.get("ID", "")), now + SHARE * kind
                if not lease.lstrip("-").isdigit():
                    raise StoreAway("etcd gave no lease")
                self._leases[kind] = lease, until
        return lease

    async def _call(self, path: str, body: Json) -> Json:
        endpoint = self._client.endpoint
        try:
            return await self._client.call(path, body, CALL_SECONDS)
        except EtcdFault as fault:
            self._leases.clear()  # it may be one that is not there any more
            raise StoreAway(f"etcd refuses: {fault}") from fault
        except RegistryUnavailable as fault:
            self._client.turn_away(endpoint)
            raise StoreAway(str(fault)) from fault
        except asyncio.CancelledError:
            self._client.turn_away(endpoint)  # nobody waits that long for a member that stands still
            raise


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
