"""Reading keys of etcd, and changing them where they are still as they were read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gatepost.activemanager.etcd.client import CALL_SECONDS, EtcdClient, EtcdFault
from gatepost.activemanager.etcd.layout import Found, Json, encoded, key_value, range_end
from gatepost.activemanager.port import RegistryUnavailable

PAGE_KEYS = 1000
"""Keys of one answer: a few hundred kB."""
CHANGE_ATTEMPTS = 100
"""Of a change that others were faster with. At each attempt one of all who try succeeds."""
LISTING_ATTEMPTS = 5
"""Of a long listing whose revision was compacted while it was read."""


@dataclass(slots=True)
class Change:
    """What a transaction shall do. With nothing in it nothing is to be done."""

    puts: dict[str, bytes] = field(default_factory=dict)
    deletes: list[str] = field(default_factory=list)
    leased: dict[str, int] = field(default_factory=dict)
    """Keys of `puts` that end with a lease of etcd, by its id."""

    def __bool__(self) -> bool:
        return bool(self.puts or self.deletes)

    def operations(self) -> list[Json]:
        """As etcd wants them."""
        puts: list[Json] = []
        for key, value in self.puts.items():
            put = {"key": encoded(key), "value": encoded(value), "lease": str(self.leased.get(key, 0))}
            puts.append({"request_put": put})
        return puts + [{"request_delete_range": {"key": encoded(key)}} for key in self.deletes]


Decide = Callable[[Mapping[str, Found]], Change]
"""From the keys as they are to what shall be done; raises where it may not be done."""


class Keyspace:
    """The keys of one cluster. All methods raise `RegistryUnavailable`."""

    def __init__(self, client: EtcdClient, seconds: float = CALL_SECONDS) -> None:
        """Each call takes `seconds` at most."""
        self._client = client
        self._seconds = seconds

    async def change(self, keys: Sequence[str], decide: Decide) -> int:
        """Do what `decide` makes of `keys`, in one transaction, while they are as it saw them; again when they are not.

        Answers the revision of the change, 0 when nothing was to be done. When the answer to a change is lost, it is
        decided anew: `decide` must know its own work when it sees it.
        """
        for _ in range(CHANGE_ATTEMPTS):
            found = await self.read(keys)
            change = decide(found)
            if not change:
                return 0
            compare = [_unchanged(key, found.get(key)) for key in keys]
            answer = await self._call("kv/txn", {"compare": compare, "success": change.operations()})
            if answer.get("succeeded"):
                return int(answer["header"]["revision"])
            await asyncio.sleep(random.uniform(0, 0.01))  # noqa: S311 - who collided shall not do so again
        raise RegistryUnavailable("etcd: others change the same all the time")

    async def read(self, keys: Sequence[str], seconds: float | None = None) -> dict[str, Found]:
        """Those of `keys` that are there, as of one moment, with what every earlier change has made of them."""
        ranges = [{"request_range": {"key": encoded(key)}} for key in keys]
        answer = await self._call("kv/txn", {"success": ranges}, seconds)
        parts = (response["response_range"].get("kvs", ()) for response in answer.get("responses", ()))
        return dict(key_value(pair) for part in parts for pair in part)

    async def list(self, prefix: str) -> tuple[dict[str, Found], int]:
        """All keys that begin with `prefix`, as of one moment, and the cluster's revision then."""
        for _ in range(LISTING_ATTEMPTS):
            try:
                return await self._list(prefix)
            except EtcdFault as fault:
                if not fault.compacted:
                    raise refused(fault) from fault
        raise RegistryUnavailable("etcd: what is listed is compacted all the time")

    async def _list(self, prefix: str) -> tuple[dict[str, Found], int]:
        found: dict[str, Found] = {}
        revision, begin = 0, prefix
        while True:
            body = {
                "key": encoded(begin),
                "range_end": encoded(range_end(prefix)),
                "limit": str(PAGE_KEYS),
                "revision": str(revision),
            }
            answer = await self._client.call("kv/range", body, self._seconds)
            revision = revision or int(answer["header"]["revision"])
            page = [key_value(pair) for pair in answer.get("kvs", ())]
            found.update(page)
            if not answer.get("more") or not page:
                return found, revision
            begin = page[-1][0] + "\0"

    async def grant(self, seconds: int) -> int:
        """A new lease of etcd; answers its id."""
        answer = await self._call("lease/grant", {"TTL": str(seconds)})
        return int(answer["ID"])

    async def keep(self, lease: int, seconds: float) -> bool:
        """Have the lease last its whole time from now; False when it is over."""
        answer = await self._call("lease/keepalive", {"ID": str(lease)}, seconds)
        return int(answer.get("TTL", 0)) > 0

    async def revoke(self, lease: int) -> None:
        """End the lease, with its keys; one that is over already is no fault."""
        try:
            await self._client.call("lease/revoke", {"ID": str(lease)}, self._seconds)
        except EtcdFault as fault:
            if fault.code != _NOT_FOUND:
                raise refused(fault) from fault

    async def _call(self, path: str, body: Json, seconds: float | None = None) -> Json:
        try:
            return await self._client.call(path, body, min(seconds or self._seconds, self._seconds))
        except EtcdFault as fault:
            raise refused(fault) from fault


_NOT_FOUND = 5


def refused(fault: EtcdFault) -> RegistryUnavailable:
    """What a refusal means to who needs the registry."""
    return RegistryUnavailable(f"etcd refuses: {fault}")


def in_parts(items: Iterable[str], size: int) -> list[list[str]]:
    """`items` in lists of at most `size`."""
    found = list(items)
    return [found[begin : begin + size] for begin in range(0, len(found), size)]


def _unchanged(key: str, found: Found | None) -> Json:
    """The condition that the key is as it was found. One that is not there has modification 0."""
    modified = found.mod_revision if found else 0
    return {"key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(modified)}
