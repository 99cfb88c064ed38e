"""How the registry lies in etcd's keys. Pure.

    PREFIX/now/…       what a view shows; this is what front ends watch
        changed                    written with every change: its mod_revision is the view's revision
        active/DATABASE            {"server", "epoch", "by"}
        moves/DATABASE             {"source", "target", "epoch", "started", "reason", "by"}
        losses/DATABASE            [[epoch, since, until], …]: activations that may have lost mail, oldest first
        words/SERVER  dials/DATABASE  blocked/DATABASE/SERVER  organization
        observed/SERVER            {SERVICE: [healthy, since, reason]}
        leases/NAME                {"holder", "term", "seconds", "by"}, gone with its lease in etcd
    PREFIX/terms/NAME              the last term of a lease, kept for ever
    PREFIX/history/activated/DATABASE/EPOCH  and  PREFIX/history/leased/NAME/TERM

Values are JSON. Names are percent-encoded, so that a slash in one makes it no other. `by` is a random mark of the call
that wrote the value: a call whose answer was lost finds out by it whether it came about.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from gatepost.activemanager.port import Happened, HistoryEntry, Lease, Loss, Move, Observation

Json = dict[str, Any]
NUMBER_DIGITS = 19
"""Of epochs and terms in keys, so that their order is that of the numbers: as many as 64 bits have."""


@dataclass(frozen=True, slots=True)
class Found:
    """A key's value, and the revisions of the cluster at which it was made and last written."""

    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0

    def json(self) -> Json:
        """The value as an object. Raises ValueError."""
        found = json.loads(self.value)
        if not isinstance(found, dict):
            raise ValueError("not an object")  # noqa: TRY004 - a fault of the value
        return found


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys below one prefix."""

    prefix: str

    @property
    def now(self) -> str:
        """What the keys of a view begin with."""
        return f"{self.prefix}/now/"

    @property
    def changed(self) -> str:
        """The key that is written with every change."""
        return f"{self.now}changed"

    def key(self, kind: str, *names: str) -> str:
        """The key of a view's fact, such as `active` and a database's name."""
        return self.now + "/".join((kind, *map(_quoted, names)))

    def term(self, name: str) -> str:
        """The key of a lease's last term."""
        return f"{self.prefix}/terms/{_quoted(name)}"

    def history(self, what: Happened, name: str | None = None, number: int | None = None) -> str:
        """The key of an entry, or what those of one name, or of all, begin with."""
        parts = [self.prefix, "history", what.value]
        if name is not None:
            parts.append(_quoted(name))
        return "/".join([*parts, "" if number is None else f"{number:0{NUMBER_DIGITS}}"])

    def entry(self, key: str, found: Found) -> HistoryEntry:
        """The history's entry at `key`. Raises ValueError for what none is."""
        try:
            what, name, number = key.removeprefix(f"{self.prefix}/history/").split("/")
            value = found.json()
            who = (float(value["time"]), Happened(what)), (str(value["holder"]), int(value["term"]))
            if what == Happened.LEASED:
                return HistoryEntry(found.mod_revision, *who[0], "", unquote(name), 0, *who[1])
            server = str(value["server"])
            return HistoryEntry(found.mod_revision, *who[0], unquote(name), server, int(number), *who[1])
        except (KeyError, TypeError) as fault:
            raise ValueError(f"{key} is no entry") from fault


def move_of(database: str, found: Found) -> Move:
    """A move from its key. Raises ValueError, KeyError."""
    value = found.json()
    source, target, epoch = str(value["source"]), str(value["target"]), int(value["epoch"])
    return Move(database, source, target, epoch, float(value["started"]), str(value["reason"]))


def losses_of(database: str, found: Found | None) -> tuple[Loss, ...]:
    """A database's lossy activations, from their key. Raises ValueError, TypeError."""
    rows = json.loads(found.value) if found is not None else []
    return tuple(Loss(database, int(epoch), float(since), float(until)) for epoch, since, until in rows)


def observations_of(server: str, found: Found) -> Iterator[Observation]:
    """What was observed of a server, from its key. Raises ValueError, KeyError."""
    for service, (healthy, since, reason) in found.json().items():
        yield Observation(server, service, bool(healthy), float(since), str(reason))


def lease_of(name: str, found: Found) -> Lease:
    """A lease from its key. Raises ValueError, KeyError."""
    value = found.json()
    token = f"{found.lease}:{found.create_revision}"
    return Lease(name, str(value["holder"]), int(value["term"]), float(value["seconds"]), token)


def token_parts(token: str) -> tuple[int, int]:
    """Id in etcd and create_revision of a lease; what was never given out is (0, -1), which nobody holds."""
    number, _, revision = token.partition(":")
    return (int(number), int(revision)) if number.isdigit() and revision.isdigit() else (0, -1)


def written(value: object) -> bytes:
    """A value as it is stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def encoded(text: str | bytes) -> str:
    """Bytes as the gateway wants them."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def decoded(text: str) -> bytes:
    """Bytes as the gateway gives them. Raises ValueError."""
    return base64.b64decode(text, validate=True)


def range_end(prefix: str) -> str:
    """The first key behind all that begin with `prefix`, which ends with an ASCII character."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def key_value(pair: Json) -> tuple[str, Found]:
    """One of etcd's `kvs`; what is 0 or empty it leaves out. Raises ValueError, KeyError."""
    revisions = int(pair.get("create_revision", 0)), int(pair.get("mod_revision", 0))
    return decoded(pair["key"]).decode(), Found(decoded(pair.get("value", "")), *revisions, int(pair.get("lease", 0)))


def _quoted(name: str) -> str:
    return quote(name, safe="")
