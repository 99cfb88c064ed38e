"""What is remembered of a directory elsewhere, and for how long.

    find, ask ──► fresh? ──► answer
                    │ no
                    ▼
                 one question for each name ──► engine ──► remembered, told on if it has changed
                    │ no answer
                    ▼
                 as it was last, for `outage_seconds`; else `DirectoryUnavailable`

Whether somebody exists is remembered apart from who does not, so that guessed names push no user out. That somebody is
unknown is never answered from before an outage: they may have come since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from sys import intern

import structlog

from gatepost.directory.port import DirectoryBusy, DirectoryUnavailable, Engine, NotAsked, User
from gatepost.directory.settings import Ages
from gatepost.routing.outcome import Mailbox

MAX_QUESTIONS = 10_000
"""Names that are being asked for at once; one more is answered "unavailable"."""
MAX_STALE_NAMES = 10_000
"""Names that are told to have changed while older answers would be good; one more makes every answer stale."""
MAX_MAILBOXES = 10_000
"""Databases and home servers that users share one object of."""
PROBE_SECONDS = 1.0
"""While the directory does not answer: between two questions that nobody waits for."""


class CachedDirectory:
    """The `Directory` for an engine elsewhere. Belongs to the loop it is used in.

    `clock`: seconds, monotonic.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        ages: Ages | None = None,
        clock: Callable[[], float] = time.monotonic,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        self.name = name
        self._engine = engine
        self._ages = ages or Ages()
        self._clock = clock
        self._probe_seconds = probe_seconds
        self._users: dict[str, tuple[User, float]] = {}
        self._nobody: dict[str, float] = {}
        self._asked: dict[str, asyncio.Task[User | None]] = {}
        self._stale_before = float("-inf")
        self._stale: dict[str, float] = {}
        """Names that are told to have changed, and when."""
        self._mailboxes: dict[Mailbox, Mailbox] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._fault = ""
        self._failed_name = ""
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = False
        self._log = structlog.get_logger("gatepost")
        engine.on_invalid(self.invalidate)

    @property
    def available(self) -> bool:
        """See `OwnedDirectory`."""
        return not self._fault

    @property
    def known_seconds(self) -> float:
        """See `OwnedDirectory`."""
        return self._ages.positive_seconds

    def start(self) -> None:
        """See `OwnedDirectory`: the first question opens what is needed."""

    def close(self) -> None:
        """Ask nothing more; what is under way is dropped."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._asked.values()):
            task.cancel()
        self._users.clear()
        self._nobody.clear()
        self._closing = asyncio.ensure_future(self._engine.close())

    async def wait_closed(self) -> None:
        """Until everything is let go of, after `close`."""
        if self._closing is not None:
            await self._closing

    def on_change(self, callback: Callable[[], None]) -> None:
        """See `Directory`: after a change that the engine tells of or an answer shows, and when it answers again."""
        self._callbacks.append(callback)

    def invalidate(self, name: str = "") -> None:
        """What is known of the user `name`, or of everybody, is asked for anew. It stays known for an outage.

        `name` may also be what the directory knows the user by (`User.reference`).
        """
        now = self._clock()
        if len(self._stale) >= MAX_STALE_NAMES:
            oldest = now - self._ages.positive_seconds
            self._stale = {known: told for known, told in self._stale.items() if told > oldest}
        if not name or len(self._stale) >= MAX_STALE_NAMES:
            self._stale.clear()
            self._stale_before = now
            self._nobody.clear()
        else:
            self._stale[name] = now
            self._nobody.pop(name, None)
        self._tell()

    def find(self, canonical_name: str) -> User | None:
        """See `Directory`."""
        found = self._users.get(canonical_name)
        if found is not None and self._is_fresh(canonical_name, found):
            return found[0]
        if found is None:
            told = self._nobody.get(canonical_name)
            if told is not None and self._clock() - told <= self._ages.negative_seconds:
                return None
        task = self._question(canonical_name)
        task.add_done_callback(_looked_at)
        if self._fault:
            return self._last_known(canonical_name, DirectoryUnavailable(self._fault))
        raise NotAsked(canonical_name)

    async def ask(self, canonical_name: str) -> User | None:
        """See `Directory`."""
        found = self._users.get(canonical_name)
        if found is not None and self._is_fresh(canonical_name, found):
            return found[0]
        if found is None:
            told = self._nobody.get(canonical_name)
            if told is not None and self._clock() - told <= self._ages.negative_seconds:
                return None
        try:
            return await asyncio.shield(self._question(canonical_name))
        except DirectoryUnavailable as fault:
            return self._last_known(canonical_name, fault)
        except asyncio.CancelledError:
            if self._closed:
                raise DirectoryUnavailable(f"{self.name} was closed") from None
            raise

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        """See `Directory`."""
        return await self._engine.opens(user, tries)

    def _is_fresh(self, name: str, found: tuple[User, float]) -> bool:
        user, told = found
        if self._clock() - told > self._ages.positive_seconds or told <= self._stale_before:
            return False
        if not self._stale:
            return True
        return all(told > self._stale.get(word, told - 1) for word in (name, user.name, user.reference))

    def _last_known(self, name: str, fault: DirectoryUnavailable) -> User:
        """While the directory does not answer. Raises `fault` where nothing is known, or only of long ago."""
        found = self._users.get(name)
        if found is None or self._clock() - found[1] > self._ages.outage_seconds:
            raise fault
        return found[0]

    def _question(self, name: str) -> asyncio.Task[User | None]:
        """The question for `name` that is under way, or a new one. Raises `DirectoryUnavailable`."""
        task = self._asked.get(name)
        if task is None:
            if self._closed:
                raise DirectoryUnavailable(f"{self.name} was closed")
            if len(self._asked) >= MAX_QUESTIONS:
                raise DirectoryBusy(f"{self.name}: too many questions are under way")
            task = self._asked[name] = asyncio.ensure_future(self._put(name))
            task.add_done_callback(lambda _: self._asked.pop(name, None))
        return task

    async def _put(self, name: str) -> User | None:
        asked = self._clock()  # a change that is told meanwhile makes the answer stale
        try:
            user = await self._engine.find(name)
        except DirectoryBusy:
            raise  # it answers, but not everybody: no outage
        except DirectoryUnavailable as fault:
            self._failed(name, str(fault))
            raise
        except Exception as fault:
            # Whatever an engine trips over, nobody is told that they do not exist, and it is tried again.
            self._log.exception("directory.engine_failed", directory=self.name)
            self._failed(name, f"{type(fault).__name__}: {fault}")
            raise DirectoryUnavailable(f"{self.name}: {type(fault).__name__}") from fault
        if user is not None:
            if len(self._mailboxes) >= MAX_MAILBOXES:
                self._mailboxes.clear()
            user = replace(user, directory=self.name, mailbox=self._mailboxes.setdefault(user.mailbox, user.mailbox))
        user = self._remember(name, user, asked)
        if self._fault:
            self._recovered()
        return user

    def _remember(self, name: str, user: User | None, asked: float) -> User | None:
        before = self._users.pop(name, None)
        was_nobody = self._nobody.pop(name, None) is not None
        ages = self._ages
        if user is None:
            if len(self._nobody) >= max(ages.users // 2, 1):
                del self._nobody[next(iter(self._nobody))]
            self._nobody[name] = asked
        else:
            if len(self._users) >= ages.users:
                del self._users[next(iter(self._users))]
            if before is not None and before[0] == user and before[0].reference == user.reference:
                user = before[0]  # the same object: what was worked out for it still stands
            self._users[name if name != user.name else intern(user.name)] = (user, asked)
        if (before is not None and before[0] != user) or (was_nobody and user is not None):
            self._tell()
        return user

    def _failed(self, name: str, reason: str) -> None:
        self._failed_name = name
        if not self._fault:
            self._log.error("directory.unavailable", directory=self.name, reason=reason)
        self._fault = reason
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._probe_seconds, self._probe)

    def _probe(self) -> None:
        """Ask again what could not be asked, so that the end of the outage is noticed whoever comes."""
        self._timer = None
        if self._fault and not self._closed:
            self._question(self._failed_name).add_done_callback(_looked_at)

    def _recovered(self) -> None:
        self._fault = ""
        self._log.info("directory.available", directory=self.name)
        self._tell()

    def _tell(self) -> None:
        for callback in self._callbacks:
            callback()


def _looked_at(task: asyncio.Task[User | None]) -> None:
    """What a question raises that nobody waits for has been dealt with."""
    if not task.cancelled():
        task.exception()
