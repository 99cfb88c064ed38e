"""A client's connection as such: its transport, what is counted of it, and every way in which it ends."""

from __future__ import annotations

import asyncio
import sys
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gatepost.access.sessions import times
from gatepost.relay.noting import WebSocketNotes
from gatepost.relay.relay import Relay
from gatepost.wire.http_body import Body
from gatepost.wire.http_head import RequestReader
from gatepost.wire.proxy_protocol import ProxyHeader

if TYPE_CHECKING:
    from gatepost.access.http.collected import Collected
    from gatepost.access.http.door import HttpDoor
    from gatepost.access.http.exchange import Exchange
    from gatepost.access.http.server_leg import HttpServerLeg

MAX_AHEAD = 64 * 1024
"""Bytes that a client may send ahead of its turn (pipelined requests, a body before the server is reached)."""
LINGER_SECONDS = 2.0
"""After the last answer: how long late bytes are still dropped, so that a reset does not overtake the answer."""
CLOSE_SECONDS = 30.0
"""How long a client may take nothing of what was written for it before the connection is cut."""
MAX_USERS_COUNTED = 1000
"""Names of users kept for the log line of one connection."""


class Phase(Enum):
    """Where a connection is; the word is the one in `sessions`."""

    IDLE = "idle"
    """Waits for a request head, or for the rest of one."""
    BUSY = "busy"
    """A request is under way; its body, if any, goes to the exchange as it comes."""
    DROPPING = "dropping"
    """The request is answered; the rest of its body is dropped."""
    LINGERING = "lingering"
    """The last answer is written; whatever comes is dropped until the client closes."""
    RELAYING = "relaying"
    CLOSED = "closed"


class Upgraded(NamedTuple):
    """What an upgraded connection is: to what, whose, and where it goes."""

    protocol: bytes
    user_name: str
    database: str
    server_name: str
    epoch: int


class HttpConnection(asyncio.Protocol):
    """One client connection. What it says is read by `client_leg.HttpClientLeg`."""

    __slots__ = (
        "_buffer", "_id", "_reading", "_reason", "_since", "_unsent", "address", "admitted", "body", "bytes_in",
        "bytes_out", "deadline", "door", "ends", "exchange", "leaving", "phase", "pinned", "proxy", "reader", "relay",
        "requests", "session", "settled", "tls", "transport", "tried", "upgraded", "users",
    )  # fmt: skip

    address: tuple[str, int]
    deadline: float
    transport: asyncio.Transport
    _since: float
    _written_full: bool

    def __init__(self, door: HttpDoor, *, tls: bool, proxy: ProxyHeader | None) -> None:
        self.door = door
        self.tls = tls or (proxy is not None and proxy.tls)
        self.proxy = proxy
        self.reader = RequestReader(door.request_rules, door.limits.http_headers)
        self.phase = Phase.IDLE
        self.body: Body | None = None
        """What is still to come of the current request's body."""
        self.exchange: Exchange | Collected | None = None
        self.leaving = False
        """It is to close after the response under way."""
        self.relay: Relay | None = None
        self.ends: WebSocketNotes | None = None
        """Where an upgraded connection may be ended, if that can be known."""
        self.upgraded: Upgraded | None = None
        """Where it goes, while `relay` is there."""
        self.pinned: HttpServerLeg | None = None
        """A server connection bound to this client's user, closed with this connection."""
        self.users: set[str] = set()
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.settled = False
        self.tried = False
        """A sign-in was judged and refused, which has its own line in the log and took its time."""
        self.admitted = False
        self.session = ""
        self._buffer = b""
        self._id = b""
        self._reading = True
        self._reason = ""
        self._unsent = sys.maxsize
        """Bytes that waited for the client when its deadline last passed."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it what was done for it."""
        if self.phase is Phase.CLOSED:
            return
        if self.relay is not None:
            # It was lost as the relay took over, and the loop had this protocol down for the news.
            self.relay.client_lost(exc)
            return
        if exc is not None:
            self._reason = self._reason or f"client lost: {type(exc).__name__}"
        self.finish()

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request has come."""
        return self.phase is Phase.IDLE and not self._buffer

    def request_id(self) -> bytes:
        """The id of the current request, in its response, in the log and at the server: one and the same."""
        if not self._id:
            self._id = self.door.new_request_id()
        return self._id

    def write(self, data: bytes) -> None:
        """Write to the client, and count it."""
        self.bytes_out += len(data)
        self.transport.write(data)

    def update_reading(self) -> None:
        """Read from the client, or do not, as things stand."""
        exchange = self.exchange
        wanted = len(self._buffer) <= MAX_AHEAD or self.phase is Phase.LINGERING
        if exchange is not None and self.body is not None and exchange.server_is_slow:
            wanted = False
        if wanted != self._reading and not self.transport.is_closing():
            self._reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def linger(self) -> None:
        """The last answer is written: drop what still comes, then close."""
        self.body = None
        self._buffer = b""
        if self.phase is Phase.CLOSED or self.phase is Phase.LINGERING:
            return
        self.phase = Phase.LINGERING
        self.deadline = self.door.loop.time() + LINGER_SECONDS
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self.update_reading()

    def close(self, reason: str) -> None:
        """End the connection after what was written."""
        self._reason = self._reason or reason
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.LINGERING
            self.deadline = self.door.loop.time() + CLOSE_SECONDS
            self.transport.close()

    def still_sending(self) -> bool:
        """The deadline has passed: whether the client has taken some of what waits for it, and so gets more time.

        A slow reader is not a dead one; its last response must arrive whole.
        """
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if not 0 < self._unsent < before:
            return False
        self.deadline = self.door.loop.time() + CLOSE_SECONDS
        return True

    def abort(self, reason: str) -> None:
        """End the connection at once: the client must see that something is missing."""
        self._reason = self._reason or reason
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.LINGERING
            self.transport.abort()

    def cut(self, reason: str) -> None:
        """End the connection at once, whatever it is doing."""
        if self.relay is not None:
            self.relay.abort(reason)
        else:
            self.abort(reason)

    def expired(self) -> None:
        """The deadline has passed (called by the door's sweep)."""
        raise NotImplementedError

    def finish(self) -> None:
        """The connection is gone: release everything, write the log line."""
        self.phase = Phase.CLOSED
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            self._reason = self._reason or "client closed within a request"
            exchange.client_gone()
        if self.pinned is not None:
            self.pinned.abandon()
            self.pinned = None
        self.reader.forget()
        self.door.leave(self, self._reason, self.door.loop.time() - self._since)

    def start_relay(self, server: HttpServerLeg, upgraded: Upgraded, ahead_of_client: bytes) -> None:
        """After 101: what the client has sent ahead goes first, then bytes only pass.

        `ahead_of_client` is what the server said behind its head; the client has it already.
        """
        self.exchange = None
        self.upgraded = upgraded
        if upgraded.protocol == b"websocket":
            self.ends = WebSocketNotes()
            self.ends.server(ahead_of_client)
        self.phase = Phase.RELAYING
        ahead, self._buffer = self._buffer, b""
        self.door.relays.add(self)
        ended = partial(self._relay_ended, server)
        self.relay = Relay(self.transport, server.transport, ended, self.ends)
        server.hand_over(self.relay)
        self.relay.start(to_server=ahead, client_full=self._written_full)

    def _relay_ended(self, server: HttpServerLeg, relay: Relay) -> None:
        server.relay_ended()
        self.door.relays.discard(self)
        self.bytes_in += relay.bytes_in
        self.bytes_out += relay.bytes_out
        self._reason = relay.reason
        self.relay = self.ends = None
        self.finish()

    def describe(self) -> dict[str, Any]:
        """One entry of `sessions`."""
        under_way: Upgraded | Exchange | Collected | None = self.upgraded or self.exchange
        if self.relay is not None and self.relay.ended:
            under_way = None  # the client has yet to close
        return {
            "session": self.session,
            "protocol": "https" if self.tls else "http",
            "phase": self.phase.value,
            "client": self.address[0],
            "user": under_way.user_name if under_way is not None else "",
            "users": sorted(self.users),
            "database": under_way.database if under_way is not None else "",
            "server": under_way.server_name if under_way is not None else "",
            "epoch": under_way.epoch if under_way is not None else 0,
            "requests": self.requests,
            **times(self.door.loop.time() - self._since),
        }

    def count_user(self, name: str) -> None:
        """A request of `name` was let in."""
        if name not in self.users and len(self.users) < MAX_USERS_COUNTED:
            self.users.add(name)
        if not self.settled:
            self.settled = True
            self.door.settle(self)
