"""Shadow channels to the other hubs: one each, opened when it is wanted, once for all who wait, and kept.

channel() ─► stands? ─► opening already? ─► reaching (DNS, selector, mutual TLS) ─► XSHADOW ─► AskingChannel

A hub that could not be reached, or would not, is left alone for a moment, longer each time; a heartbeat tries anyway.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from gatepost.relay import tasks
from gatepost.transport.dispatch.ports import NotReached
from gatepost.transport.send.outcome import ConnectFailed
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.shadow.channel import AskingChannel, ChannelTimes, Parties
from gatepost.transport.shadow.ports import ChannelLost
from gatepost.wire.shadow_words import ShadowHub

SLOW_SECONDS = 2.0
"""An opening that takes longer than this is waited for by nobody who has a choice."""
FIRST_PAUSE = 1.0
MAX_PAUSE = 30.0
"""Between two attempts at a hub that could not be reached or refused, unless a heartbeat is due."""


class Reaches(Protocol):
    """What is asked of `transport.reaching.Reaching`."""

    def may_reach(self, server: str) -> bool:
        """See there."""

    async def reach_server(self, server: str, *, heartbeat: bool = False) -> SmtpSender:
        """See there. Raises `NotReached`."""


@dataclass(slots=True)
class _Opening:
    """One attempt, for all who wait."""

    done: asyncio.Future[AskingChannel]
    began: float
    heartbeat: bool


@dataclass(slots=True)
class _Failure:
    """A hub that could not be reached: not before `until`, unless for a heartbeat."""

    pause: float
    until: float
    reason: str


class ShadowChannels:
    """`ports.Channels` of the hub `own`."""

    def __init__(
        self, reaching: Reaches, own: ShadowHub, log: FilteringBoundLogger, times: ChannelTimes | None = None
    ) -> None:
        self._reaching = reaching
        self._own = own
        self._log = log
        self._times = times
        self._loop = asyncio.get_running_loop()
        self._standing: dict[str, AskingChannel] = {}
        self._opening: dict[str, _Opening] = {}
        self._failures: dict[str, _Failure] = {}
        self._closed = False
        self.opened = 0
        """Channels so far."""
        self.lost = 0
        """Of those, the ones that did not end by our wish."""

    def __len__(self) -> int:
        """Channels that stand."""
        return len(self._standing)

    def ready(self, server: str) -> bool:
        """See `ports.Channels`."""
        if server in self._standing:
            return True
        now = self._loop.time()
        opening = self._opening.get(server)
        if opening is not None:
            return now - opening.began < SLOW_SECONDS
        failure = self._failures.get(server)
        if failure is not None and now < failure.until:
            return False
        return not self._closed and self._reaching.may_reach(server)

    async def channel(self, server: str, *, heartbeat: bool = False) -> AskingChannel:
        """See `ports.Channels`."""
        while True:
            standing = self._standing.get(server)
            if standing is not None:
                return standing
            opening = self._opening.get(server) or self._begin(server, heartbeat=heartbeat)
            try:
                return await asyncio.shield(opening.done)
            except ChannelLost:
                if opening.heartbeat or not heartbeat:
                    raise
                # It may have been the list of unhealthy servers that kept the others' attempt from being made.

    def keep_only(self, servers: frozenset[str]) -> None:
        """These are the hubs of the organization now: channels to others are closed, and what is known is forgotten."""
        for server, channel in list(self._standing.items()):
            if server not in servers:
                channel.close()
        self._failures.clear()

    def close(self) -> None:
        """Close all channels; none is opened any more."""
        self._closed = True
        for channel in list(self._standing.values()):
            channel.close()
        for opening in list(self._opening.values()):
            if not opening.done.done():
                opening.done.set_exception(ChannelLost("the hub is stopping"))
                opening.done.exception()  # there may be nobody who waits

    def _begin(self, server: str, *, heartbeat: bool) -> _Opening:
        now = self._loop.time()
        failure = self._failures.get(server)
        if self._closed:
            raise ChannelLost("the hub is stopping")
        if failure is not None and now < failure.until and not heartbeat:
            raise ChannelLost(failure.reason)
        opening = self._opening[server] = _Opening(self._loop.create_future(), now, heartbeat)
        tasks.start(self._open(server, opening), "open a shadow channel")
        return opening

    async def _open(self, server: str, opening: _Opening) -> None:
        reason = "a fault of our own"
        try:
            sender = await self._reaching.reach_server(server, heartbeat=opening.heartbeat)
            transport, other = await sender.open_channel(self._own)
            channel = AskingChannel(Parties(self._own, other), self._over, self._log, self._times)
            reason = ""
            self._failures.pop(server, None)
            self._standing[server] = channel
            self.opened += 1
            self._log.info(
                "shadow.channel_opened", server=server, identity=other.identity, address=str(sender.endpoint)
            )
            channel.take(transport)
            if self._closed:
                channel.close()
            if not opening.done.done():
                opening.done.set_result(channel)
        except NotReached as fault:
            reason = fault.reason
        except ConnectFailed as fault:
            reason = fault.text
        finally:
            del self._opening[server]
            if reason:
                self._failed(server, opening, reason)

    def _failed(self, server: str, opening: _Opening, reason: str) -> None:
        before = self._failures.get(server)
        pause = min(before.pause * 2, MAX_PAUSE) if before is not None else FIRST_PAUSE
        text = f"no shadow channel to {server}: {reason}"
        self._failures[server] = _Failure(pause, self._loop.time() + pause, text)
        self._log.warning("shadow.no_channel", server=server, reason=reason)
        if not opening.done.done():
            opening.done.set_exception(ChannelLost(text))
            opening.done.exception()  # there may be nobody who waits

    def _over(self, channel: AskingChannel, reason: str) -> None:
        if self._standing.get(channel.server) is channel:
            del self._standing[channel.server]
        if not self._closed:
            self.lost += 1
        self._log.info("shadow.channel_closed", server=channel.server, asked=channel.asked, reason=reason)
