"""How a worker follows a registry in etcd: one stream of changes, and a question a second whether it is whole.

    list ──► picture of PREFIX/now/, its revision
     ▲         │
     │         ├── stream from the next revision on ──► changes the picture ──► view ──► worker
     │         └── confirm, every second: the revision of `changed`, agreed upon by the majority of the members
     └─ only when the cluster has forgotten the revision to go on from (compaction, an older state put back)

A stream alone proves nothing: a member that stands still, or that was cut off from the others, leaves it open and
silent (and etcd's own progress messages come every ten minutes). What is confirmed is the view's age. Stream and
confirmation use the same member; a member that does not confirm loses the stream too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress

from gatepost.activemanager.boot_clock import boot_seconds
from gatepost.activemanager.etcd.client import EtcdClient, EtcdFault
from gatepost.activemanager.etcd.keyspace import Keyspace
from gatepost.activemanager.etcd.layout import Found, Json, Layout, encoded, key_value, range_end
from gatepost.activemanager.etcd.picture import BadValue, Picture
from gatepost.activemanager.etcd.remembered import Remembered
from gatepost.activemanager.port import RegistryUnavailable, RegistryView
from gatepost.activemanager.watched import WatchedView
from gatepost.configuration.settings import EtcdSettings

CONFIRM_SECONDS = 1.0
"""Between two confirmations: one small read of etcd for each worker."""
QUIET_CONFIRMATIONS = 3
"""So many may be missed before the view counts as old: a member that stands still costs one or two."""
BEHIND_SECONDS = 0.5
"""A change that was confirmed is in the stream within milliseconds; after this time the stream is taken for dead."""
RECALL_SECONDS = 1.5
"""A worker that starts takes what is remembered when etcd has said nothing for so long; it answers within 0.1 s."""
OPEN_SECONDS = 2.0
"""Until a member says that it has begun the stream."""
LONGEST_PAUSE_SECONDS = 1.0
"""Between two attempts to follow."""


class EtcdRegistryWatch:
    """The `OwnedRegistryWatch` of a worker, on its event loop."""

    def __init__(
        self,
        settings: EtcdSettings,
        loop: asyncio.AbstractEventLoop,
        interval: float = CONFIRM_SECONDS,
        remembered: Remembered | None = None,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._interval = interval
        self._layout = Layout(settings.prefix)
        self._watched = WatchedView(_where(settings), loop, QUIET_CONFIRMATIONS * interval)
        self._picture = self._new_picture({})
        self._revision: int | None = None
        """What the picture is of; None: nothing is known that one could go on from."""
        self._arrived = asyncio.Event()
        """Set with each new revision."""
        self._hurry = asyncio.Event()
        """Set when somebody does not want to wait for the next confirmation."""
        self._remembered = remembered
        self._task: asyncio.Task[None] | None = None
        self._recalling: asyncio.TimerHandle | None = None

    @property
    def view(self) -> RegistryView:
        """The last view seen, empty if there was none; never blocks."""
        return self._watched.view

    @property
    def stale_seconds(self) -> float:
        """As `RegistryWatch.stale_seconds`: since the majority of the members last confirmed the view."""
        return self._watched.stale_seconds

    def on_change(self, callback: Callable[[RegistryView], None]) -> None:
        """As `RegistryWatch.on_change`."""
        self._watched.on_change(callback)

    def start(self) -> None:
        """As `OwnedRegistryWatch.start`."""
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name="follow etcd")
            self._recalling = self._loop.call_later(RECALL_SECONDS, self._recall)

    async def first_view(self, seconds: float) -> bool:
        """As `OwnedRegistryWatch.first_view`."""
        return await self._watched.first_view(seconds)

    async def look_now(self, seconds: float) -> bool:
        """As `OwnedRegistryWatch.look_now`."""
        self._hurry.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._watched.heard_since(boot_seconds())
                return True
        return False

    def close(self) -> None:
        """As `OwnedRegistryWatch.close`; connections are closed within the next moments of the loop."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._recalling is not None:
            self._recalling.cancel()

    def _recall(self) -> None:
        known = self._remembered.read() if self._remembered is not None else None
        if known is not None:
            self._watched.recall(*known)

    def _heard(self, moment: float) -> None:
        """The view is the registry's as of this moment."""
        self._watched.heard(moment)
        if self._remembered is not None:
            self._remembered.write(self._watched.view, moment)

    async def _run(self) -> None:
        """Follow for ever. What goes wrong is logged once, and tried again."""
        client: EtcdClient | None = None
        pause = self._interval / 10
        try:
            while True:
                began = self._loop.time()
                try:
                    client = client or EtcdClient(self._settings)
                    await self._follow(client, Keyspace(client))
                except (RegistryUnavailable, EtcdFault, OSError, ValueError, KeyError) as fault:
                    if self._watched.stale_seconds > 0:
                        self._watched.lost(str(fault))
                if self._loop.time() - began > LONGEST_PAUSE_SECONDS:
                    pause = self._interval / 10
                await asyncio.sleep(random.uniform(0.5, 1) * pause)  # noqa: S311 - all workers lose a member at once
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        finally:
            if client is not None:
                await client.close()

    async def _follow(self, client: EtcdClient, keys: Keyspace) -> None:
        """Until the stream ends or a fault. Raises `RegistryUnavailable`, `EtcdFault`, ValueError."""
        if self._revision is None:
            await self._list(keys)
        endpoint = client.endpoint
        confirming = self._loop.create_task(self._confirm_all(client, keys, endpoint), name="confirm etcd's view")
        streaming = self._loop.create_task(self._stream(client), name="etcd's changes")
        both = {confirming, streaming}
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if streaming in done:
                client.turn_away(endpoint)
            for task in done:
                task.result()
        finally:
            for task in both:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*both, return_exceptions=True)

    async def _list(self, keys: Keyspace) -> None:
        asked = boot_seconds()
        found, revision = await keys.list(self._layout.now)
        self._picture, self._revision = self._new_picture(found), revision
        self._publish()
        self._heard(asked)

    def _new_picture(self, found: Mapping[str, Found]) -> Picture:
        return Picture(self._layout, found, self._bad)

    def _bad(self, fault: BadValue) -> None:
        """One key must not keep workers from all others; what was known of a database stays (`WatchedView`)."""
        self._watched.log.error("registry.bad_value", reason=str(fault))

    # The stream

    async def _stream(self, client: EtcdClient) -> None:
        """Take up changes until the member ends the stream."""
        assert self._revision is not None, "there is a picture"
        request = {
            "key": encoded(self._layout.now),
            "range_end": encoded(range_end(self._layout.now)),
            "start_revision": str(self._revision + 1),
            "fragment": True,
        }
        async with client.stream("watch", {"create_request": request}) as messages:
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    first = await anext(messages, None)
            except TimeoutError:
                raise RegistryUnavailable(f"{client.endpoint}: no stream of changes") from None
            if first is not None and self._take(first):
                await self._take_all(messages)

    async def _take_all(self, messages: AsyncIterator[Json]) -> None:
        async for message in messages:
            if not self._take(message):
                return

    def _take(self, message: Json) -> bool:
        """One message of the stream; False when it is its last."""
        if message.get("canceled"):
            if int(message.get("compact_revision", 0)):
                self._revision = None  # what came in between is forgotten: list anew
                return False
            raise RegistryUnavailable(f"etcd has ended the stream: {message.get('cancel_reason', 'no reason given')}")
        events = message.get("events", ())
        for event in events:
            key, found = key_value(event["kv"])
            if event.get("type") == "DELETE":
                self._picture.remove(key)
            else:
                self._picture.put(key, found)
        if events and not message.get("fragment"):  # a change in several parts is not shown by halves
            self._revision = max(self._revision or 0, int(message["header"]["revision"]))
            self._publish()
        return True

    def _publish(self) -> None:
        self._watched.take(self._picture.view())
        self._arrived.set()

    # Whether it is whole

    async def _confirm_all(self, client: EtcdClient, keys: Keyspace, endpoint: str) -> None:
        """Confirm the view again and again; returns when the stream should begin anew. Raises `RegistryUnavailable`."""
        while True:
            with suppress(TimeoutError):  # not all workers at once
                await asyncio.wait_for(self._hurry.wait(), random.uniform(0.5, 1) * self._interval)  # noqa: S311
            self._hurry.clear()
            asked, known = boot_seconds(), self._watched.view.revision
            found = await keys.read([self._layout.changed])
            changed = found.get(self._layout.changed)
            revision = changed.mod_revision if changed else 0
            if revision < known:  # an older state of the cluster was put back
                self._revision = None
                return
            if not await self._has_arrived(revision):
                client.turn_away(endpoint)
                return
            self._heard(asked)
            if client.endpoint != endpoint:
                return

    async def _has_arrived(self, revision: int) -> bool:
        """Whether the view is of `revision`, now or in a moment."""
        try:
            async with asyncio.timeout(BEHIND_SECONDS):
                while self._watched.view.revision < revision:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return False
        return True


def _where(settings: EtcdSettings) -> str:
    return f"etcd {', '.join(settings.endpoints)} {settings.prefix}"
