"""A request whose whole body is wanted before anything is decided: a sign-in form, an Availability request.

It stands in `leg.exchange` until the body is there, and then calls back with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gatepost.access.http.answers import RETRY_AFTER

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg

WHOLE_SECONDS = 60.0
"""From the request's head to the last octet of its body: the largest, 256 KiB, at 35 kbit/s. It does not begin anew
with each piece, or strangers could hold connections for days with a form that comes octet by octet."""

MAX_OF_USER = 8 * 1024 * 1024
"""Octets of one user's bodies that are being collected in one worker: 32 of the largest. They count against nothing
else yet, and each of a user's many connections could hold one."""
MAX_OF_ALL = 64 * 1024 * 1024
"""The same for all users together."""


class Collecting:
    """What one worker is collecting for signed-in users."""

    __slots__ = ("_by_user", "octets")

    def __init__(self) -> None:
        self._by_user: dict[str, int] = {}
        self.octets = 0

    def add(self, user: str, size: int) -> bool:
        """`size` octets more of `user`; False: that is too much, though it is counted until it is taken off."""
        mine = self._by_user[user] = self._by_user.get(user, 0) + size
        self.octets += size
        return mine <= MAX_OF_USER and self.octets <= MAX_OF_ALL

    def take_off(self, user: str, size: int) -> None:
        """They are collected, or dropped."""
        self.octets -= size
        left = self._by_user.get(user, 0) - size
        if left > 0:
            self._by_user[user] = left
        else:
            self._by_user.pop(user, None)


class Collected:
    """Collects at most `limit` octets of the body of the current request of `leg`, then calls `done(body)`.

    Before `done` is called `leg.exchange` is None again: the callback answers, or puts an exchange there. A larger body
    is answered with 413, one that takes longer than `WHOLE_SECONDS` with 408, one too many of a user's with 503. Those
    of strangers, without `user_name`, are bounded by the number of their connections.
    """

    __slots__ = ("_done", "_limit", "_parts", "_size", "_until", "leg", "over", "user_name")

    database = ""
    server_name = ""
    epoch = 0
    request_id = ""
    takes_body = True
    server_is_slow = False

    def __init__(self, leg: HttpClientLeg, limit: int, done: Callable[[bytes], None], user_name: str = "") -> None:
        self.leg = leg
        self.over = False
        self.user_name = user_name
        self._limit = limit
        self._done = done
        self._parts: list[bytes] = []
        self._size = 0
        self._until = leg.door.loop.time() + WHOLE_SECONDS

    def start(self) -> None:
        """Begin. The callback may come at once."""
        leg = self.leg
        leg.exchange = self
        if leg.body is None:
            self._complete()
        elif leg.reader.length is not None and leg.reader.length > self._limit:
            self.fail(413, "the body is too large", close=True)
        else:
            leg.deadline = self._until
            leg.invite_body()
            leg.pump()

    def request_body(self, payload: bytes, *, last: bool) -> None:
        """A piece of the body."""
        self._size += len(payload)
        room = not self.user_name or self.leg.door.collecting.add(self.user_name, len(payload))
        if self._size > self._limit:
            self.fail(413, "the body is too large", close=True)
            return
        if not room:
            self.fail(503, "too many bodies are being collected", close=True)
            return
        self._parts.append(payload)
        if last:
            self._complete()
        else:
            self.leg.deadline = self._until

    def _complete(self) -> None:
        self._end()
        self.leg.exchange = None
        self._done(b"".join(self._parts))

    def _end(self) -> None:
        self.over = True
        if self.user_name and self._size:
            self.leg.door.collecting.take_off(self.user_name, self._size)
            self._size = 0

    def fail(self, status: int, reason: str, *, close: bool) -> None:
        """The body cannot be had."""
        self._end()
        leg = self.leg
        leg.exchange = None
        leg.door.refused(leg, status, reason)
        leg.answer(status, fields=RETRY_AFTER if status == 503 else b"", close=close)

    def expired(self) -> None:
        """The body took too long."""
        self.fail(408, "the body took too long", close=True)

    def client_gone(self) -> None:
        """The client has closed."""
        self._end()

    def client_slow(self, *, slow: bool) -> None:
        """Nothing is on its way to the client."""


class Held(Collected):
    """Stands for a request whose body is here and whose answer is being worked out. `over`: the client has gone."""

    __slots__ = ()

    takes_body = False

    def __init__(self, leg: HttpClientLeg, user_name: str = "") -> None:
        super().__init__(leg, 0, _nothing, user_name)
        leg.exchange = self

    def expired(self) -> None:
        """No answer in time."""
        self.fail(503, "no answer in time", close=True)


def _nothing(body: bytes) -> None:
    """A body that nobody wants."""
