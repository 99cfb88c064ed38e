"""Stand-in for the spool's shadow part."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gatepost.transport.shadow.ports import Kept, Role
from gatepost.transport.spool.spool import DiskSpool
from gatepost.wire.shadow_messages import Discarded


class ShimSpool(DiskSpool):
    def _map(self) -> dict[tuple[int, str], Kept]:
        if not hasattr(self, "_kept_map"):
            self._kept_map: dict[tuple[int, str], Kept] = {}
            self._events: dict[str, dict[str, Discarded]] = {}
        return self._kept_map

    async def restore(self) -> None:
        self._map()
        blob = await self.get("shim")
        if blob:
            kept, events = msgspec.msgpack.decode(blob, type=tuple[list[Kept], dict[str, list[Discarded]]])
            self._kept_map.update({(k.number, k.key): k for k in kept})
            for server, found in events.items():
                self._events[server] = {e.token: e for e in found}

    def _save(self) -> Any:
        self._map()
        state = (list(self._kept_map.values()), {s: list(e.values()) for s, e in self._events.items()})
        return self.put("shim", msgspec.msgpack.encode(state))

    def is_kept(self, number: int) -> bool:
        return any(n == number for n, _ in self._map())

    async def messages(self) -> Any:
        async for batch in super().messages():
            yield [(n, e) for n, e in batch if not self.is_kept(n)]

    async def keep(self, writer: Any, envelope: Any, kept: Kept) -> int:
        number = await self.commit(writer, envelope)
        self._map()[number, kept.key] = msgspec.structs.replace(kept, number=number) if False else Kept(
            number, kept.role, kept.key, kept.primary, kept.identity, kept.until
        )
        await self._save()
        return number

    def set_aside(self, number: int, envelope: Any, kept: Any) -> Any:
        done = self.update(number, envelope)
        for each in kept:
            self._map()[number, each.key] = each
        return asyncio.gather(done, self._save())

    def take_back(self, number: int, envelope: Any) -> Any:
        for key in [key for key in self._map() if key[0] == number]:
            del self._kept_map[key]
        return asyncio.gather(self.update(number, envelope), self._save())

    def let_go(self, kept: Any) -> Any:
        work = []
        for number, key in kept:
            if self._map().pop((number, key), None) is not None and not self.is_kept(number):
                work.append(self.remove(number))
        return asyncio.gather(*work, self._save())

    async def kept(self, role: Role) -> Any:
        await self.restore()
        yield [k for k in self._map().values() if k.role is role]

    async def kept_since(self, database: str, since: float, until: float) -> list[Kept]:
        return []

    def note_discards(self, server: str, events: Any) -> Any:
        self._map()
        for event in events:
            self._events.setdefault(server, {})[event.token] = event
        return self._save()

    def forget_discards(self, server: str, tokens: Any) -> Any:
        self._map()
        for token in tokens:
            self._events.get(server, {}).pop(token, None)
        return self._save()

    async def discards(self) -> dict[str, list[Discarded]]:
        self._map()
        return {s: list(e.values()) for s, e in self._events.items() if e}
