"""How many strangers may be at the door: per client address and in all, per worker (field case 103).

An address is a host, or an IPv6 /64, which is what one subscriber gets and can fill with addresses as it likes.
"""

from __future__ import annotations

from gatepost.organization.addresses import owner_of


class Admission:
    """Counts client connections. An `arrive` that answers True is followed by one `leave`, and at most one `settle`."""

    __slots__ = ("_per_address", "_unauthenticated", "sessions", "total_limit")

    def __init__(self, per_address: int, total: int) -> None:
        self._per_address = per_address
        self.total_limit = total
        self._unauthenticated: dict[str, int] = {}
        self.sessions = 0

    def set_limits(self, per_address: int, total: int) -> None:
        """Use other limits for those who arrive from now on."""
        self._per_address = per_address
        self.total_limit = total

    @property
    def unauthenticated(self) -> int:
        """Connections that have not signed in."""
        return sum(self._unauthenticated.values())

    def arrive(self, address: str) -> bool:
        """Whether a connection from `address` may come in. False: it counts nowhere and must be closed."""
        owner = owner_of(address)
        waiting = self._unauthenticated.get(owner, 0)
        if waiting >= self._per_address or self.sessions >= self.total_limit:
            return False
        self._unauthenticated[owner] = waiting + 1
        self.sessions += 1
        return True

    def settle(self, address: str) -> None:
        """The connection has signed in, or has left without."""
        owner = owner_of(address)
        waiting = self._unauthenticated.get(owner, 0)
        if waiting <= 1:
            self._unauthenticated.pop(owner, None)
        else:
            self._unauthenticated[owner] = waiting - 1

    def leave(self, address: str, *, settled: bool) -> None:
        """The connection is gone."""
        self.sessions -= 1
        if not settled:
            self.settle(address)
