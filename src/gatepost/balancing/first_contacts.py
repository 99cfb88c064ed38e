"""How many devices one user may have remembered anew in a day (SPEC B2). Ids of devices are whatever clients say.

Pure: the time comes as argument, in seconds of any clock that only grows.
"""

from __future__ import annotations

MAX_IN_A_DAY = 100
"""First contacts of one user in one worker: as many devices as the source system lets a user have. More would be one
client that makes up ids, until those of everybody else are forgotten."""
DAY_SECONDS = 86400.0
MAX_USERS = 10_000
"""Users that are counted at one time; over it all begin anew."""


class FirstContacts:
    """Counts them, from each user's first one on."""

    __slots__ = ("_users",)

    def __init__(self) -> None:
        self._users: dict[str, tuple[set[int], float]] = {}

    def may(self, user: str, device: str, now: float) -> bool:
        """Whether `device` is among the first of `user` this day; if not, what is remembered for the user is for it.

        The same device counts once: while the shared state is away each of its requests is a first contact.
        """
        devices, since = self._users.get(user, (set(), now))
        if now - since >= DAY_SECONDS:
            devices, since = set(), now
        if hash(device) in devices:
            return True
        if len(devices) >= MAX_IN_A_DAY:
            return False
        if len(self._users) >= MAX_USERS and user not in self._users:
            self._users.clear()
        devices.add(hash(device))
        self._users[user] = devices, since
        return True
