"""The registry's view, put together from etcd's keys, one by one. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from urllib.parse import unquote

from gatepost.activemanager.etcd.layout import Found, Layout, lease_of, losses_of, move_of, observations_of
from gatepost.activemanager.port import MANAGER, Dial, Lease, Loss, Move, Observation, RegistryView, ServerWord
from gatepost.routing.decision import ActiveCopy


class BadValue(ValueError):
    """A key holds what Gatepost did not write."""


class Picture:
    """What the keys below `Layout.now` say. A change costs one key, whatever the number of databases."""

    def __init__(self, layout: Layout, keys: Mapping[str, Found], bad: Callable[[BadValue], None]) -> None:
        """`bad` is called for each key that is passed over, and may raise."""
        self._layout = layout
        self._bad = bad
        self._revision = 0
        self._active: dict[str, ActiveCopy] = {}
        self._moves: dict[str, Move] = {}
        self._words: dict[str, ServerWord] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._dials: dict[str, Dial] = {}
        self._observed: dict[tuple[str, str], Observation] = {}
        self._manager: Lease | None = None
        self._losses: dict[str, tuple[Loss, ...]] = {}
        self._organization_version = 0
        for key, found in keys.items():
            self.put(key, found)

    def put(self, key: str, found: Found) -> None:
        """The key holds this from now on."""
        self.remove(key)
        kind, names = self._parts(key)
        try:
            self._put(kind, names, found)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as fault:
            self._bad(BadValue(f"the key {key} of etcd holds what Gatepost does not write: {fault!r}"))

    def remove(self, key: str) -> None:
        """The key is not there any more."""
        kind, names = self._parts(key)
        match kind, names:
            case "active", [database]:
                self._active.pop(database, None)
            case "moves", [database]:
                self._moves.pop(database, None)
            case "losses", [database]:
                self._losses.pop(database, None)
            case "words", [server]:
                self._words.pop(server, None)
            case "dials", [database]:
                self._dials.pop(database, None)
            case "blocked", [database, server]:
                self._blocked.discard((database, server))
            case "observed", [server]:
                for seen in [seen for seen in self._observed if seen[0] == server]:
                    del self._observed[seen]
            case "leases", [name] if name == MANAGER:
                self._manager = None
            case "organization", []:
                self._organization_version = 0

    def view(self) -> RegistryView:
        """All of it as it is now."""
        return RegistryView(
            self._revision,
            MappingProxyType(self._active.copy()),
            self._organization_version,
            MappingProxyType(self._moves.copy()),
            MappingProxyType(self._words.copy()),
            frozenset(self._blocked),
            MappingProxyType(self._dials.copy()),
            MappingProxyType(self._observed.copy()),
            self._manager,
            MappingProxyType(self._losses.copy()),
        )

    def _parts(self, key: str) -> tuple[str, list[str]]:
        kind, *names = key.removeprefix(self._layout.now).split("/")
        return kind, [unquote(name) for name in names]

    def _put(self, kind: str, names: list[str], found: Found) -> None:
        """What newer versions may add is passed over."""
        match kind, names:
            case "changed", []:
                self._revision = found.mod_revision
            case "active", [database]:
                value = found.json()
                self._active[database] = ActiveCopy(database, str(value["server"]), int(value["epoch"]))
            case "moves", [database]:
                self._moves[database] = move_of(database, found)
            case "losses", [database]:
                self._losses[database] = losses_of(database, found)
            case "words", [server]:
                self._words[server] = ServerWord(json.loads(found.value))
            case "dials", [database]:
                self._dials[database] = Dial(json.loads(found.value))
            case "blocked", [database, server]:
                self._blocked.add((database, server))
            case "observed", [server]:
                self._observed |= {(server, seen.service): seen for seen in observations_of(server, found)}
            case "leases", [name] if name == MANAGER:
                self._manager = lease_of(MANAGER, found)
            case "organization", []:
                self._organization_version = int(json.loads(found.value))
