"""A stranger's connection on port 25: a hub is found for it, then bytes only pass, TLS among them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from gatepost.access import tasks
from gatepost.access.addresses import client_address, own_address
from gatepost.access.mail_relayed import Phase, RelayedLeg
from gatepost.access.mail_server import AttemptFailed, MailServerLeg, open_server
from gatepost.organization.model import ClientAddress, TlsMode
from gatepost.relay.relay import Relay
from gatepost.routing.outcome import Target
from gatepost.wire.events import ClientFacts, SignedIn
from gatepost.wire.hub_greeting import HubGreeting
from gatepost.wire.proxy_protocol import ProxyHeader
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_tracker import SmtpTracker

if TYPE_CHECKING:
    from gatepost.access.smtp_door import SmtpDoor

MAX_EARLY = 64 * 1024
"""Bytes a client may say before it is greeted; then reading pauses. They go to the hub, whose business they are."""
NOBODY = "no server can take your mail now, try again later"


class SmtpClientLeg(RelayedLeg):
    """One connection. It hears nothing before a hub has greeted, and what it says meanwhile waits."""

    __slots__ = ("_deadline", "_early", "_failures", "_hub", "_proxy")

    door: SmtpDoor
    nobody: ClassVar[str] = "no hub"
    server_gone: ClassVar[str] = "the server has gone, try again later"

    def __init__(self, door: SmtpDoor, *, proxy: ProxyHeader | None) -> None:
        super().__init__(door, tls=False)
        self._proxy = proxy
        self._early = b""
        self._failures: list[str] = []
        self._hub: MailServerLeg | None = None
        """The connection that is tried."""

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look for a hub, or turn the client away when there are too many."""
        door = self.door
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self._since = door.loop.time()
        self._deadline = self._since + door.limits.sign_in_seconds
        self._address = client_address(self._transport, self._proxy)
        self.session = door.new_session()
        if door.draining or not door.admission.arrive(self._address[0]):
            self.phase = Phase.CLOSED
            self._transport.write(_goodbye("too many connections, try again later"))
            self._transport.close()
            return
        door.pending.add(self)
        self.phase = Phase.CONNECTING
        self._task = tasks.start(self._reach(), f"{self.session} hub")

    def data_received(self, data: bytes) -> None:
        """A client that talks before it is greeted."""
        self._early += data
        if len(self._early) > MAX_EARLY:
            self._transport.pause_reading()

    # --- to a hub

    async def _reach(self) -> None:
        """Try hubs until one greets."""
        for target in self.door.hubs():
            self._target = target
            greeted = await self._try(target)
            if greeted is not None:
                self._task = None
                self._hand_over(greeted)
                return
        self._task = None
        self._target = None
        door = self.door
        reason = "no hub takes it" if self._failures else "the organization has no hub that answers smtp"
        door.refused_log.refused(self._address[0], session=self.session, reason=reason, attempts=list(self._failures))
        self._outcome = "refused"
        self._reason = reason
        self.turn_away(NOBODY)

    async def _try(self, target: Target) -> SignedIn | None:
        """One hub; None when it does not take the session."""
        door = self.door
        server = door.configuration.organization.servers[target.server]
        told, own = target.endpoint.client_address, own_address(self._transport, self._proxy)
        facts = ClientFacts(*self._address, own[0], own[1], self._tls, self.session)
        by_word = facts if told is ClientAddress.XCLIENT else None
        # TLS is between the client and the hub: what a hub's endpoint says of it is for servers of the organization.
        endpoint = replace(target.endpoint, tls=TlsMode.CLEAR)
        greeting = HubGreeting(door.configuration.server.fqdn, by_word)
        leg = self._hub = MailServerLeg(greeting, door.limits.server_step_seconds)
        try:
            greeted = await open_server(leg, endpoint, server, facts, door.client_contexts, door.limits)
        except AttemptFailed as failure:
            self._hub = None
            self._failures.append(f"{target.server}: {failure}")
            door.tell_health(target, self._address[0], failure)
            return None
        door.tell_health(target, self._address[0])
        return greeted

    def _hand_over(self, greeted: SignedIn) -> None:
        """From here on bytes only pass: first the hub's greeting to the client, and to it what the client has said."""
        hub = self._hub
        assert hub is not None
        if self._transport.is_closing():
            self._reason = "client closed"
            self._finish()
            return
        self._outcome = "handed over"
        self._reason = ""
        tracker = self.ends = SmtpTracker(greeting=True)
        relay = Relay(self._transport, hub.transport, self._relay_ended, tracker)
        self._relaying(relay)
        self._hub = None
        hub.relay = relay
        early, self._early = self._early, b""
        tracker.server(greeted.rest)
        relay.start(greeted.rest, early, client_full=self._full)

    # --- ends

    def _let_go(self) -> None:
        if self._hub is not None:
            self._hub.abort()
            self._hub = None

    def turn_away(self, text: str) -> None:
        """End the session before its relay began."""
        self._reason = self._reason or text
        if not self._transport.is_closing():
            self._transport.write(_goodbye(text))
            self._transport.close()
        self._finish()

    def check_deadline(self, now: float) -> None:
        """The absolute time for finding a hub (field case 103)."""
        if now >= self._deadline:
            self.turn_away(NOBODY)


def _goodbye(text: str) -> bytes:
    return Reply(421, text, "4.3.2").encode()
