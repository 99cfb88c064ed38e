"""Sessions as operators see them: one entry each, and which of them are meant."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

MAX_LISTED = 20_000
"""Sessions in one list: some MB of it. Who needs others asks for fewer by a filter."""


def times(seconds: float) -> dict[str, float]:
    """How long a session has been there, and since when (seconds since 1970)."""
    return {"since": round(time.time() - seconds, 3), "seconds": round(seconds, 3)}


@dataclass(frozen=True)
class SessionFilter:
    """Which sessions are meant: those for which all that is said here holds. Empty words say nothing.

    Each word has its own kind and is never guessed (field case 3). Raises ValueError for an address that is none.
    """

    user: str = ""
    """Canonical name."""
    address: str = ""
    """The client's, or a network of them."""
    database: str = ""
    server: str = ""
    protocol: str = ""
    """`imap`, `pop3`, `https`, `http`."""
    session: str = ""
    _network: IPv4Network | IPv6Network | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_network", ip_network(self.address, strict=False) if self.address else None)

    @property
    def is_empty(self) -> bool:
        """Whether every session is meant."""
        return not self.words()

    def words(self) -> dict[str, str]:
        """What is said, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init and getattr(self, f.name)}

    def matches(self, entry: Mapping[str, Any]) -> bool:
        """Whether this entry of the list is meant. A connection of several users belongs to each of them."""
        for name in ("database", "server", "protocol", "session"):
            wanted = getattr(self, name)
            if wanted and str(entry.get(name, "")).casefold() != wanted.casefold():
                return False
        if self.user and self.user.casefold() not in _users(entry):
            return False
        return self._network is None or _is_in(str(entry.get("client", "")), self._network)


def _users(entry: Mapping[str, Any]) -> set[str]:
    return {str(user).casefold() for user in (*entry.get("users", ()), entry.get("user", "")) if user}


def _is_in(client: str, network: IPv4Network | IPv6Network) -> bool:
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address) in network
