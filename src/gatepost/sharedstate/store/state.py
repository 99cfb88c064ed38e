"""Devices and sign-outs of all front ends, in the shared store.

    outs/BUCKET      {session: until}, each session in one of some dozen buckets
    devices/DEVICE   [server, last seen]
    news             how often each bucket was changed, and the last changes of devices

A worker looks at `news` twice a second and reads what has changed: it knows all sign-outs, and devices that it was
asked for. A sign-out that it knows and the store does not (it was lost, or an older state put back) is written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from gatepost.balancing.choice import rendezvous
from gatepost.sharedstate.port import SharedState
from gatepost.sharedstate.store.names import Names
from gatepost.sharedstate.store.port import MAX_VALUE_BYTES, Put
from gatepost.sharedstate.store.rounds import Decide, Rounds
from gatepost.sharedstate.tables import KEEP_DEVICE_SECONDS, MAX_SIGN_OUTS, digest

LOOK_SECONDS = 0.4
BUCKETS = 64
MAX_OF_BUCKET = MAX_VALUE_BYTES // 32
"""Sign-outs of one bucket, some 26 octets each; over it those that expire first go."""
TOGETHER = 20
"""Sign-outs of one bucket that are written again at once."""
KEEP_SIGN_OUT_SECONDS = 7 * 86400.0
"""A bucket that nobody has written for so long is forgotten; sign-ins last a day at most."""
MAX_MOVES = 100
"""Changes of devices that `news` has; who is further behind reads devices anew."""
CACHED_DEVICES = 100_000
TOUCH_SECONDS = 86400.0
"""How old "last seen" of a device in use may grow before it is written."""
_MANY = 1 << 62


class News(msgspec.Struct, array_like=True):
    """What `news` holds."""

    buckets: dict[int, int] = {}
    number: int = 0
    """Of the last change of a device."""
    moves: list[tuple[int, bytes, str]] = []
    """Number, device, server."""


_encode = msgspec.msgpack.Encoder().encode
_news = msgspec.msgpack.Decoder(News).decode
_outs = msgspec.msgpack.Decoder(dict[bytes, float]).decode
_device = msgspec.msgpack.Decoder(tuple[str, float]).decode


class SharedStateOfAll:
    """The `SharedState` of a worker; `own` is that of its machine. `clock` answers seconds since 1970."""

    def __init__(
        self,
        rounds: Rounds,
        names: Names,
        own: SharedState,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._rounds = rounds
        self._names = names
        self._own = own
        self._loop = loop
        self._clock = clock
        self._look_seconds = look_seconds
        self._news_name = names.plain("news", "0")
        self._seen = News()
        self._doubtful: set[int] = set()
        """Buckets that may lack what is known here: the store may have lost all."""
        self._known: dict[bytes, float] = {}
        """Sign-outs with their ends."""
        self._devices: dict[bytes, tuple[str, float]] = {}
        self._task: asyncio.Task[None] | None = None
        rounds.on_back(self._back)

    def start(self) -> None:
        """Follow the store."""
        self._task = self._loop.create_task(self._follow())

    def close(self) -> None:
        """Follow it no more."""
        if self._task is not None:
            self._task.cancel()

    # --- sign-outs

    async def sign_out(self, session_id: str, until: float) -> bool:
        """As `SharedState.sign_out`. False when only this machine's front ends know, until the store is back."""
        name = self._hidden(session_id)
        self._know(name, until)
        shared = await self._publish({name: until})
        if not shared:
            self._publish_later({name: until})
        return await self._own.sign_out(session_id, until) and shared

    def is_signed_out(self, session_id: str) -> bool:
        """As `SharedState.is_signed_out`."""
        if self._known and self._hidden(session_id) in self._known:
            return True
        return self._own.is_signed_out(session_id)

    def _know(self, name: bytes, until: float) -> None:
        self._known[name] = max(until, self._known.get(name, until))
        if len(self._known) > MAX_SIGN_OUTS:
            now = self._clock()
            left = sorted((end, known) for known, end in self._known.items() if end >= now)
            if len(left) > MAX_SIGN_OUTS:
                del left[: max(len(left) // 10, 1)]
            self._known = {known: end for end, known in left}

    async def _publish(self, outs: Mapping[bytes, float]) -> bool:
        bucket = next(iter(outs))[0] % BUCKETS
        name = self._bucket(bucket)
        decide = signing_out(self._news_name, name, bucket, outs)
        return await self._rounds.ask([self._news_name, name], decide, self._clock()) is not None

    def _publish_later(self, outs: Mapping[bytes, float]) -> None:
        """Sign-outs of one bucket."""
        bucket = next(iter(outs))[0] % BUCKETS
        name = self._bucket(bucket)
        self._rounds.tell([self._news_name, name], signing_out(self._news_name, name, bucket, outs), self._clock())

    # --- devices

    async def first_server(self, key: str, choose: str, now: float, servers: Sequence[str] = ()) -> str:
        """As `SharedState.first_server`."""
        device = self._hidden(key)
        name = self._names.digest("devices", device)
        decide = first(self._news_name, name, device, choose, tuple(servers))
        found = await self._rounds.ask([self._news_name, name], decide, now)
        if found is None:
            return rendezvous(servers, key)[0] if servers else choose
        self._remember(device, (found, now))
        return found

    def known_server(self, key: str) -> str | None:
        """As `SharedState.known_server`: from memory."""
        device = self._hidden(key)
        found = self._devices.get(device)
        if found is None:
            return None
        now = self._clock()
        if now - found[1] > TOUCH_SECONDS:
            self._remember(device, (found[0], now))
            name = self._names.digest("devices", device)
            self._rounds.tell([name], touching(name), now)
        return found[0]

    async def move_server(self, key: str, server: str, now: float) -> None:
        """As `SharedState.move_server`. Known here at once."""
        device = self._hidden(key)
        self._remember(device, (server, now))
        name = self._names.digest("devices", device)
        self._rounds.tell([self._news_name, name], moving(self._news_name, name, device, server), now)

    def _remember(self, device: bytes, found: tuple[str, float]) -> None:
        if len(self._devices) >= CACHED_DEVICES and device not in self._devices:
            del self._devices[next(iter(self._devices))]
        self._devices[device] = found

    # --- news

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            if not self._rounds.away:
                await self._look()

    def _back(self) -> None:
        """What there is may be of another time: all is read anew."""
        self._seen = News()
        self._doubtful = set(range(BUCKETS))
        self._devices.clear()

    async def _look(self) -> None:
        name = self._news_name
        news = await self._rounds.ask([name], lambda values, _now: ({}, read_news(values.get(name))), self._clock())
        if news is None:
            return
        self._take_moves(news)
        self._doubtful.update(n for n, seen in self._seen.buckets.items() if news.buckets.get(n, 0) < seen)
        changed = [n for n in range(BUCKETS) if news.buckets.get(n, 0) != self._seen.buckets.get(n, -1)]
        for begin in range(0, len(changed), TOGETHER):
            part = {self._bucket(number): number for number in changed[begin : begin + TOGETHER]}
            outs = await self._rounds.ask(list(part), _reading(part), self._clock())
            if outs is None:
                return
            for number, found in outs.items():
                self._take(number, found)
                self._seen.buckets[number] = news.buckets.get(number, 0)

    def _take(self, bucket: int, found: Mapping[bytes, float]) -> None:
        now = self._clock()
        for name, until in found.items():
            if until >= now:
                self._know(name, until)
        if bucket not in self._doubtful:
            return
        self._doubtful.discard(bucket)
        lost = [name for name in self._known if name[0] % BUCKETS == bucket and name not in found]
        for begin in range(0, len(lost), TOGETHER):
            outs = {name: self._known[name] for name in lost[begin : begin + TOGETHER] if self._known[name] >= now}
            if outs:
                self._publish_later(outs)

    def _take_moves(self, news: News) -> None:
        behind = news.number - self._seen.number
        if behind < 0 or (behind > len(news.moves) and self._devices):
            self._devices.clear()
        else:
            for number, device, server in news.moves:
                if number > self._seen.number:
                    self._remember(device, (server, self._clock()))
        self._seen.number = news.number

    def _hidden(self, text: str) -> bytes:
        return blake2b(digest(text), key=self._names.marks_key, digest_size=16).digest()

    def _bucket(self, number: int) -> str:
        return self._names.plain("outs", str(number))


def signing_out(news_name: str, name: str, bucket: int, outs: Mapping[bytes, float]) -> Decide[bool]:
    """Adds sign-outs to a bucket, unless they are there; removes what is over."""

    def decide(values: Mapping[str, bytes], now: float) -> tuple[dict[str, Put | None], bool]:
        there = read_outs(values.get(name))
        if all(session in there and there[session] >= until for session, until in outs.items()):
            return {}, True
        for session, until in outs.items():
            there[session] = max(until, there.get(session, until))
        left = sorted(((until, session) for session, until in there.items() if until >= now), reverse=True)
        kept = {session: until for until, session in left[:MAX_OF_BUCKET]}
        news = read_news(values.get(news_name))
        news.buckets[bucket] = (news.buckets.get(bucket, 0) + 1) % _MANY
        puts: dict[str, Put | None] = {
            name: Put(_encode(kept), KEEP_SIGN_OUT_SECONDS),
            news_name: Put(_encode(news), KEEP_DEVICE_SECONDS),
        }
        return puts, True

    return decide


def first(news_name: str, name: str, device: bytes, choose: str, servers: tuple[str, ...]) -> Decide[str]:
    """Answers the server that is remembered; `choose`, if there was none or one that is not in `servers`."""

    def decide(values: Mapping[str, bytes], now: float) -> tuple[dict[str, Put | None], str]:
        there = read_device(values.get(name))
        if there is None or (servers and there[0] not in servers):
            return _changed(values, news_name, name, device, choose, now), choose
        if now - there[1] > TOUCH_SECONDS:
            return {name: Put(_encode((there[0], now)), KEEP_DEVICE_SECONDS)}, there[0]
        return {}, there[0]

    return decide


def moving(news_name: str, name: str, device: bytes, server: str) -> Decide[bool]:
    """Remembers another server, whatever was remembered."""

    def decide(values: Mapping[str, bytes], now: float) -> tuple[dict[str, Put | None], bool]:
        return _changed(values, news_name, name, device, server, now), True

    return decide


def touching(name: str) -> Decide[bool]:
    """The device was used: it ages from now on."""

    def decide(values: Mapping[str, bytes], now: float) -> tuple[dict[str, Put | None], bool]:
        there = read_device(values.get(name))
        puts: dict[str, Put | None] = {}
        if there is not None:
            puts[name] = Put(_encode((there[0], now)), KEEP_DEVICE_SECONDS)
        return puts, True

    return decide


def _changed(
    values: Mapping[str, bytes], news_name: str, name: str, device: bytes, server: str, now: float
) -> dict[str, Put | None]:
    news = read_news(values.get(news_name))
    news.number += 1
    news.moves = [*news.moves, (news.number, device, server)][-MAX_MOVES:]
    return {
        name: Put(_encode((server, now)), KEEP_DEVICE_SECONDS),
        news_name: Put(_encode(news), KEEP_DEVICE_SECONDS),
    }


def _reading(part: Mapping[str, int]) -> Decide[dict[int, dict[bytes, float]]]:
    def decide(values: Mapping[str, bytes], _now: float) -> tuple[dict[str, Put | None], dict[int, dict[bytes, float]]]:
        return {}, {number: read_outs(values.get(name)) for name, number in part.items()}

    return decide


def read_news(value: bytes | None) -> News:
    """What `news` says; nothing where it is not there or damaged."""
    try:
        return _news(value) if value is not None else News()
    except msgspec.DecodeError:
        return News()


def read_outs(value: bytes | None) -> dict[bytes, float]:
    """A bucket's sign-outs."""
    try:
        return {session: until for session, until in _outs(value).items() if session} if value is not None else {}
    except msgspec.DecodeError:
        return {}


def read_device(value: bytes | None) -> tuple[str, float] | None:
    """A device's server, and when it was seen last."""
    try:
        return _device(value) if value is not None else None
    except msgspec.DecodeError:
        return None
