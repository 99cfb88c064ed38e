"""The registry's changes as transactions of etcd: what a change depends on is compared in the step that makes it."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Mapping

from gatepost.activemanager.etcd.keyspace import Change, Keyspace, in_parts
from gatepost.activemanager.etcd.layout import Found, Layout, lease_of, losses_of, observations_of, token_parts, written
from gatepost.activemanager.etcd.picture import BadValue, Picture
from gatepost.activemanager.port import (
    HISTORY_KEPT,
    LOSSES_KEPT,
    Dial,
    Happened,
    HistoryEntry,
    Lease,
    LeaseLost,
    Move,
    Observation,
    RegistryView,
    ServerWord,
    StaleEpoch,
)
from gatepost.routing.decision import ActiveCopy

SERVERS_AT_ONCE = 50
"""Servers whose observations one transaction writes; etcd takes 128 operations by default."""


class Changes:
    """The methods of `OwnedRegistry` on an event loop; see there. All raise `RegistryUnavailable`."""

    def __init__(self, keys: Keyspace, layout: Layout) -> None:
        self._keys = keys
        self._layout = layout

    async def view(self) -> RegistryView:
        """As `Registry.view`."""
        found, _ = await self._keys.list(self._layout.now)
        return Picture(self._layout, found, _raise).view()

    async def history(self, database: str | None) -> list[HistoryEntry]:
        """As `OwnedRegistry.history`."""
        kinds = [self._layout.history(Happened.ACTIVATED, database)]
        if database is None:
            kinds.append(self._layout.history(Happened.LEASED))
        entries = []
        for kind in kinds:
            found, _ = await self._keys.list(kind)
            entries += [self._layout.entry(key, value) for key, value in found.items()]
        return sorted(entries)

    async def activate(
        self,
        database: str,
        server: str,
        expected: int | None,
        lease: Lease | None,
        lost_seconds: float | None = None,
    ) -> ActiveCopy:
        """As `Registry.activate`."""
        layout, mark = self._layout, secrets.token_hex(8)
        active, moves = layout.key("active", database), layout.key("moves", database)
        losses = layout.key("losses", database)
        done = 0

        def decide(found: Mapping[str, Found]) -> Change:
            nonlocal done
            epoch, by = _epoch(found.get(active))
            if by == mark:  # done before, and the answer was lost
                done = epoch
                return Change()
            self._require(found, lease)
            if expected is not None and expected != epoch:
                raise StaleEpoch(f"{database} is at epoch {epoch}, not {expected}")
            done = epoch + 1
            change = self._change({active: {"server": server, "epoch": done, "by": mark}})
            change.deletes.append(moves)
            if lost_seconds is not None:
                now, known = time.time(), losses_of(database, found.get(losses))
                rows = [(each.epoch, each.since, each.until) for each in known]
                change.puts[losses] = written([*rows, (done, now - lost_seconds, now)][-LOSSES_KEPT:])
            self._record(change, (Happened.ACTIVATED, database, done), server, lease)
            return change

        looked_at = [active, *([losses] if lost_seconds is not None else []), *self._of_lease(lease)]
        await self._keys.change(looked_at, decide)
        return ActiveCopy(database, server, done)

    async def begin_move(self, move: Move, lease: Lease | None) -> None:
        """As `Registry.begin_move`."""
        layout, mark = self._layout, secrets.token_hex(8)
        active, moves = layout.key("active", move.database), layout.key("moves", move.database)
        value = {"source": move.source, "target": move.target, "epoch": move.epoch}
        value |= {"started": move.started, "reason": move.reason, "by": mark}

        def decide(found: Mapping[str, Found]) -> Change:
            under_way = found.get(moves)
            if under_way is not None and under_way.json().get("by") == mark:
                return Change()
            self._require(found, lease)
            epoch, _ = _epoch(found.get(active))
            if epoch != move.epoch:
                raise StaleEpoch(f"{move.database} is at epoch {epoch}, not {move.epoch}")
            if under_way is not None:
                raise StaleEpoch(f"a move of {move.database} is under way already")
            return self._change({moves: value})

        await self._keys.change([active, moves, *self._of_lease(lease)], decide)

    async def end_move(self, database: str, lease: Lease | None, move: Move | None = None) -> None:
        """As `Registry.end_move`."""
        only = {"target": move.target, "epoch": move.epoch, "reason": move.reason} if move is not None else None
        await self._delete(self._layout.key("moves", database), lease, only)

    async def set_word(self, server: str, word: ServerWord) -> None:
        """As `Registry.set_word`."""
        await self._set(self._layout.key("words", server), None if word is ServerWord.UP else word.value)

    async def set_dial(self, database: str, dial: Dial) -> None:
        """As `Registry.set_dial`."""
        value = None if dial is Dial.GOOD_AVAILABILITY else dial.value
        await self._set(self._layout.key("dials", database), value)

    async def set_blocked(self, database: str, server: str, *, blocked: bool) -> None:
        """As `Registry.set_blocked`."""
        await self._set(self._layout.key("blocked", database, server), True if blocked else None)

    async def set_organization_version(self, version: int) -> None:
        """As `Registry.set_organization_version`."""
        await self._set(self._layout.key("organization"), version)

    async def observe(self, observations: list[Observation], lease: Lease) -> None:
        """As `Registry.observe`; all at once for `SERVERS_AT_ONCE` servers."""
        news: dict[str, dict[str, Observation]] = {}
        for seen in observations:
            news.setdefault(seen.server, {})[seen.service] = seen
        for servers in in_parts(news, SERVERS_AT_ONCE) or [[]]:  # the lease is looked at in any case
            await self._observe({server: news[server] for server in servers}, lease)

    async def _observe(self, news: dict[str, dict[str, Observation]], lease: Lease) -> None:
        keys = {server: self._layout.key("observed", server) for server in news}

        def decide(found: Mapping[str, Found]) -> Change:
            self._require(found, lease)
            changed: dict[str, object] = {}
            for server, key in keys.items():
                known = found.get(key)
                before = {seen.service: seen for seen in observations_of(server, known)} if known else {}
                after = before | news[server]
                if after != before:
                    changed[key] = {each.service: (each.healthy, each.since, each.reason) for each in after.values()}
            return self._change(changed) if changed else Change()

        await self._keys.change([*keys.values(), *self._of_lease(lease)], decide)

    async def take_lease(self, name: str, holder: str, seconds: float) -> Lease | None:
        """As `Registry.take_lease`. etcd counts in whole seconds: it may hold the lease longer than was asked."""
        layout, mark = self._layout, secrets.token_hex(8)
        held, last_term = layout.key("leases", name), layout.term(name)
        if held in await self._keys.read([held]):
            return None
        number = await self._keys.grant(max(1, math.ceil(seconds)))
        taken = False

        def decide(found: Mapping[str, Found]) -> Change:
            nonlocal taken
            if held in found:
                taken = found[held].json().get("by") == mark
                return Change()
            term = 1 + (int(json.loads(found[last_term].value)) if last_term in found else 0)
            value = {"holder": holder, "term": term, "seconds": seconds, "by": mark}
            change = self._change({held: value, last_term: term})
            change.leased[held] = number
            taken = True
            self._record(change, (Happened.LEASED, name, term), "", Lease(name, holder, term, seconds))
            return change

        # Where this raises it may have come about all the same: then it ends by itself, and nobody acted under it.
        await self._keys.change([held, last_term], decide)
        found = (await self._keys.read([held])).get(held) if taken else None
        if found is not None and found.json().get("by") == mark:
            return lease_of(name, found)
        await self._keys.revoke(number)
        return None

    async def keep_lease(self, lease: Lease) -> None:
        """As `Registry.keep_lease`."""
        number, _ = token_parts(lease.token)
        if not await self._keys.keep(number, lease.seconds):
            raise _lost(lease)
        self._require(await self._keys.read(self._of_lease(lease), lease.seconds), lease)

    async def give_lease_back(self, lease: Lease) -> None:
        """As `Registry.give_lease_back`."""
        held = self._layout.key("leases", lease.name)

        def decide(found: Mapping[str, Found]) -> Change:
            if held not in found or found[held].create_revision != token_parts(lease.token)[1]:
                return Change()
            change = self._change({})
            change.deletes.append(held)
            return change

        await self._keys.change([held], decide)
        await self._keys.revoke(token_parts(lease.token)[0])

    async def _set(self, key: str, value: object | None) -> None:
        """A word of the operator's; None takes it away."""
        if value is None:
            await self._delete(key, None)
            return
        content = written(value)
        same = Change()

        def decide(found: Mapping[str, Found]) -> Change:
            return same if key in found and found[key].value == content else self._change({key: value})

        await self._keys.change([key], decide)

    async def _delete(self, key: str, lease: Lease | None, only: Mapping[str, object] | None = None) -> None:
        """Take a key away, if its value has what is in `only`."""

        def decide(found: Mapping[str, Found]) -> Change:
            self._require(found, lease)
            if key not in found or (only is not None and not only.items() <= found[key].json().items()):
                return Change()
            change = self._change({})
            change.deletes.append(key)
            return change

        await self._keys.change([key, *self._of_lease(lease)], decide)

    def _change(self, values: Mapping[str, object]) -> Change:
        """A change that writes these, and says that something has changed."""
        return Change({key: written(value) for key, value in values.items()} | {self._layout.changed: b""})

    def _record(self, change: Change, entry: tuple[Happened, str, int], server: str, lease: Lease | None) -> None:
        """Have the change add to the history, and forget what is too old there."""
        what, name, number = entry
        value: dict[str, object] = {"time": time.time(), "server": server}
        value |= {"holder": lease.holder if lease else "", "term": lease.term if lease else 0}
        change.puts[self._layout.history(what, name, number)] = written(value)
        if number > HISTORY_KEPT:
            change.deletes.append(self._layout.history(what, name, number - HISTORY_KEPT))

    def _of_lease(self, lease: Lease | None) -> list[str]:
        """The keys that a change under a lease depends on."""
        return [self._layout.key("leases", lease.name)] if lease else []

    def _require(self, found: Mapping[str, Found], lease: Lease | None) -> None:
        """Raises `LeaseLost`."""
        if lease is None:
            return
        held = found.get(self._layout.key("leases", lease.name))
        if held is None or held.create_revision != token_parts(lease.token)[1]:
            raise _lost(lease)


def _raise(fault: BadValue) -> None:
    """Who asks by a command is told of every fault."""
    raise fault


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"the lease {lease.name} of {lease.holder}, term {lease.term}, is over")


def _epoch(found: Found | None) -> tuple[int, str]:
    """A database's epoch, and the mark of the call that made it; 0 where it was never active."""
    if found is None:
        return 0, ""
    value = found.json()
    return int(value["epoch"]), str(value.get("by", ""))
