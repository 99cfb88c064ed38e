"""Sessions as operators see them: one entry each, and which of them are meant."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
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
    """`imap`, `pop3`, `submission`, `smtp`, `https`, `http`."""
    session: str = ""

    def __post_init__(self) -> None:
        if self.address:
            _network(self.address)

    @property
    def is_empty(self) -> bool:
        """Whether every session is meant."""
        return not self.words()

    def words(self) -> dict[str, str]:
        """What is said, by name."""
        return {name: word for name, word in asdict(self).items() if word}

    def matches(self, entry: Mapping[str, Any]) -> bool:
        """Whether this entry of the list is meant. A connection of several users belongs to each of them."""
        for name in ("database", "server", "protocol", "session"):
            wanted = getattr(self, name)
            if wanted and str(entry.get(name, "")).casefold() != wanted.casefold():
                return False
        if self.user and self.user.casefold() not in _users(entry):
            return False
        return not self.address or _is_in(str(entry.get("client", "")), _network(self.address))


@dataclass(frozen=True)
class Found:
    """What a search came to: `sessions` is a part of it where `total` is more."""

    sessions: list[dict[str, Any]]
    total: int
    protocols: dict[str, int]
    """How many of each protocol."""


@lru_cache(16)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text, strict=False)


def _users(entry: Mapping[str, Any]) -> set[str]:
    return {str(user).casefold() for user in (*entry.get("users", ()), entry.get("user", "")) if user}


def _is_in(client: str, network: IPv4Network | IPv6Network) -> bool:
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address) in network
