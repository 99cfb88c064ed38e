"""A client's connection from the hand-over on: its relay, its end, its line in the log and in the list of sessions.

MailClientLeg ─┐
SmtpClientLeg ─┴─ are RelayedLegs ── Relay ── server's connection
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from gatepost.access.carry import CarryOver
from gatepost.access.sessions import times
from gatepost.relay.noting import MailNotes, Pop3Tails
from gatepost.relay.relay import Relay
from gatepost.routing.decision import Proxy, Serve, Target

if TYPE_CHECKING:
    from gatepost.access.relay_door import RelayDoor

GONE = "the mailbox server has gone, please connect again"


class Phase(Enum):
    """Where a session is; the word is the one in `sessions` and in the log."""

    DIALOGUE = "dialogue"
    HANDSHAKE = "handshake"
    CHECKING = "checking"
    CONNECTING = "connecting"
    RELAYING = "relaying"
    LEAVING = "leaving"
    """The relay is over on the server's side; the client has yet to close."""
    CLOSED = "closed"


class RelayedLeg(asyncio.Protocol):
    """One client connection that is, or will be, joined with a server's by a relay."""

    __slots__ = (
        "_address", "_full", "_notes", "_outcome", "_reason", "_settled", "_since", "_target", "_task", "_tls",
        "_transport", "_user", "app_password", "carry_over", "database", "door", "ends", "epoch", "gone", "phase",
        "relay", "session",
    )  # fmt: skip

    nobody: ClassVar[str] = "no sign-in"
    """The outcome of connections that came to nothing, before there was anything to come of."""

    server_gone: ClassVar[str] = GONE
    """What a client is told whose server went without a word."""

    def __init__(self, door: RelayDoor[Any], *, tls: bool) -> None:
        self.door = door
        """What it came in by."""
        self._address: tuple[str, int] = ("", 0)
        self._full = False
        """The transport wants nothing written: the client reads too slowly."""
        self._notes: list[str] = []
        """What the server did not take though it was no reason to fail, such as the client's address."""
        self._outcome = self.nobody
        self._reason = ""
        self._settled = False
        self._since = 0.0
        self._target: Target | None = None
        self._task: asyncio.Task[None] | None = None
        self._tls = tls
        self._transport: asyncio.Transport
        self._user = ""
        self.app_password = 0
        """The number of the app password that it began with; 0: none."""
        self.carry_over: CarryOver | None = None
        """What it takes to carry the session over to another server, where that is wanted."""
        self.database = ""
        """The database of the user's mailbox; empty before the sign-in, and for a mailbox of 2003."""
        self.epoch = 0
        """The epoch of the database that the server was chosen by."""
        self.ends: MailNotes | None = None
        """Where the relayed session may be ended."""
        self.gone = False
        """The client's connection is closed."""
        self.phase = Phase.DIALOGUE
        self.relay: Relay | None = None
        self.session = ""

    def turn_away(self, text: str) -> None:
        """End the session before its relay began, in the protocol's words."""
        raise NotImplementedError

    def check_deadline(self, now: float) -> None:
        """End the session if its relay should have begun by now, of the loop's clock."""
        raise NotImplementedError

    # --- transport callbacks before the relay

    def pause_writing(self) -> None:
        """What is said before the relay is bounded and goes on; the relay must know."""
        self._full = True

    def resume_writing(self) -> None:
        """The client has read enough."""
        self._full = False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client went away before the relay began."""
        self.gone = True
        if self.phase is Phase.CLOSED:
            return
        if self.relay is not None:
            # It was lost as the relay took over, and the loop had this protocol down for the news.
            self.relay.client_lost(exc)
            return
        self._reason = self._reason or ("client lost: " + type(exc).__name__ if exc else "client closed")
        self._finish()

    # --- the relay

    def _relaying(self, relay: Relay) -> None:
        """The hand-over is made."""
        self.phase = Phase.RELAYING
        self.relay = relay
        relay.last_words = self._server_went
        self.door.pending.discard(self)
        self.door.relaying.add(self)

    async def carry(self, decision: Serve | Proxy) -> bool:
        """Have the session go on at the decision's server without its client noticing; whether it does.

        Where it does not, it is as before or has been ended with BYE; it never waits for the end of a command.
        """
        carry_over, before = self.carry_over, self._target
        if carry_over is None or before is None:
            return False
        if not await carry_over.to(decision.target, before.server, decision.epoch):
            self._notes = [*self._notes, f"not carried over: {carry_over.reason}"]
            return False
        self._target = decision.target
        return True

    def _relay_ended(self, relay: Relay) -> None:
        self._reason = relay.reason
        self.gone = True
        door = self.door
        door.relaying.discard(self)
        if door.draining and not door.relaying:
            door.all_ended.set()
        self._finish()

    # --- ends

    def cut(self, reason: str) -> None:
        """End the session at once, without a word."""
        self._reason = self._reason or reason
        if self.relay is not None:
            self.relay.abort(reason)
        else:
            self._transport.abort()
            self._finish()

    def give_up(self) -> None:
        """End the session: something is wrong with it that nobody thought of."""
        self._reason = ""
        self.cut("internal fault")

    def leave(self, reason: str, text: str) -> None:
        """End a relayed session that `at_boundary` is true of: its server hears nothing more, its client the words."""
        relay = self.relay
        assert relay is not None
        self.phase = Phase.LEAVING
        relay.leave(reason, self.farewell(text))

    def farewell(self, text: str) -> bytes:
        """What the client of a relayed session is told at its end, nothing where it could not be understood."""
        if self.ends is not None:
            return self.ends.farewell(text)
        return self.door.farewell(f"[UNAVAILABLE] {text}") if self.at_boundary() else b""

    def _server_went(self) -> bytes:
        """The words for a server that is gone without any: a client takes them better than a connection cut."""
        carry_over, ends = self.carry_over, self.ends
        if carry_over is not None:
            return self.door.farewell(f"[UNAVAILABLE] {GONE}") if carry_over.tracker.takes_last_words else b""
        if isinstance(ends, Pop3Tails) or ends is None or ends.is_over:
            return b""
        return ends.farewell(self.server_gone)

    def at_boundary(self) -> bool:
        """Whether a relayed session may be ended, after a moment of silence, without cutting anything."""
        if self.carry_over is not None:
            return self.carry_over.at_boundary
        return self.ends is not None and self.ends.at_rest()

    def _let_go(self) -> None:
        """Give up what is under way before the relay."""

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            self.door.admission.settle(self._address[0])

    def _finish(self) -> None:
        """The session is over: nothing of it stays, and one line tells of it."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        door = self.door
        door.pending.discard(self)
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._let_go()
        door.admission.leave(self._address[0], settled=self._settled)
        relay = self.relay
        carried_from = self.carry_over.servers if self.carry_over is not None else []
        self.carry_over = None
        fields: dict[str, Any] = {
            "session": self.session,
            "user": self._user,
            "outcome": self._outcome,
            "reason": self._reason,
            "server": self.server,
            "tls": self._tls,
            "seconds": round(door.loop.time() - self._since, 3),
            "bytes_in": relay.bytes_in if relay is not None else 0,
            "bytes_out": relay.bytes_out if relay is not None else 0,
        }
        if carried_from:
            fields["carried_from"] = carried_from
        if self._notes:
            fields["notes"] = self._notes
        if self._outcome == self.nobody and self._target is None:
            # Also of those that go before their password is judged, which nothing slows down.
            door.strangers_log.refused(self._address[0], **fields)
        else:
            door.log.info(door.event, client=self._address[0], **fields)

    # --- for operators, and for who ends sessions

    @property
    def server(self) -> str:
        """Where it is, or is being, signed in; empty while that is not known."""
        return self._target.server if self._target is not None else ""

    @property
    def bytes_seen(self) -> int:
        """Bytes relayed both ways."""
        return self.relay.bytes_in + self.relay.bytes_out if self.relay is not None else 0

    def describe(self) -> dict[str, Any]:
        """This session as the operator sees it."""
        return {
            "session": self.session,
            "protocol": self.door.protocol.value,
            "phase": self.phase.value,
            "client": self._address[0],
            "user": self._user,
            "database": self.database,
            "server": "" if self.phase is Phase.LEAVING else self.server,
            "epoch": self.epoch,
            **times(self.door.loop.time() - self._since),
        }
