"""A relayed IMAP session carried over to another mailbox server, such that its client notices nothing (SPEC B5).

    CarryOver.to(target)   at a boundary of the session only
      open_server ─► signed in at the new server, while the client still works with the old one
      Relay.part ─► ImapCarry: old server's view, new server's view, what to tell the client ─► Relay.rejoin

Until the relay is parted nothing has happened, and the session can go on as it is. From then on it is either carried
over or ended here, with BYE at a boundary.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gatepost.access.mail_server import AttemptFailed, MailServerLeg, open_server
from gatepost.access.mail_sign_in import (
    Introduction,
    back_sign_in,
    is_front_end,
    takes_token,
    ticket_for,
    with_epoch,
)
from gatepost.directory.kerberos_port import NoTicket
from gatepost.directory.port import User
from gatepost.organization.model import ClientAddress, Organization, SignInForm
from gatepost.relay.relay import Relay
from gatepost.routing.outcome import Target
from gatepost.wire.events import ClientFacts, Credentials, SignedIn
from gatepost.wire.imap_back import ImapBack
from gatepost.wire.imap_carry import (
    Carried,
    CarryEvent,
    GaveUp,
    ImapCarry,
    ToClient,
    ToNew,
    ToOld,
    missing_capabilities,
)
from gatepost.wire.imap_session import Selected
from gatepost.wire.imap_tracker import Boundary, ImapTracker

if TYPE_CHECKING:
    from gatepost.access.mail_door import MailDoor

CARRY_SECONDS = 5.0
"""From the moment that a client's bytes are kept back: as long as it would wait for a busy server without worry."""
AT_ONCE = 64
"""Sessions of one worker that are being carried at the same time; each may hold two views of a mailbox."""
BOUNDARY_SECONDS = 2.0
"""Once signed in at the new server: how long a client that has begun a command meanwhile has to come to its end."""
LOOK_SECONDS = 0.01
"""Between two looks whether it has."""
BUSY = "a command is under way"
SLOW = "the client reads too slowly"
FAREWELL = "[UNAVAILABLE] The mailbox has moved to another server, please sign in again."


def carry_over_for(
    door: MailDoor, user: User, credentials: Credentials, introduction: Introduction, facts: ClientFacts
) -> CarryOver:
    """What can carry this session over. Its credentials are kept only where a server wants the user's own."""
    if not _by_own_password(door.configuration.organization, user):
        credentials = replace(credentials, password="", token="")
    return CarryOver(door, user, credentials, introduction, facts)


def _by_own_password(organization: Organization, user: User) -> bool:
    """Whether a server that the user's database can move to takes the user's own credentials."""
    database = organization.databases.get(user.mailbox.database or "")
    if database is None:
        return False
    return any(organization.servers[copy.server].sign_in.form is SignInForm.USER for copy in database.copies)


@lru_cache(64)
def without_compression(capabilities: bytes) -> bytes:
    """A capability list for clients whose bytes are looked at: what is compressed cannot be."""
    return b" ".join(name for name in capabilities.split(b" ") if not name.upper().startswith(b"COMPRESS="))


class CarryOver:
    """What one session needs to go on elsewhere: its tracker, and how to sign in again."""

    __slots__ = (
        "_busy", "_credentials", "_door", "_facts", "_introduction", "_relay", "_user", "capabilities", "reason",
        "servers", "signed_in_vain", "tracker",
    )  # fmt: skip

    def __init__(
        self, door: MailDoor, user: User, credentials: Credentials, introduction: Introduction, facts: ClientFacts
    ) -> None:
        self._door = door
        self._user = user
        self._credentials = credentials
        self._introduction = introduction
        self._facts = facts
        self._relay: Relay | None = None
        self._busy = False
        self.tracker = ImapTracker()
        self.capabilities = b""
        """What the client was told at its sign-in."""
        self.servers: list[str] = []
        """Where the session has been before."""
        self.signed_in_vain = False
        """Whether the last attempt came as far as a sign-in at the new server. Of no meaning once carried."""
        self.reason = ""
        """Why it was not carried over, the last time that it should have been."""

    @property
    def at_boundary(self) -> bool:
        """Whether the session could be carried over, or ended, at this moment without cutting a command."""
        return self.tracker.boundary in (Boundary.BETWEEN, Boundary.IDLING)

    @property
    def may_try_again(self) -> bool:
        """Whether it was only the moment that was wrong the last time."""
        return self.reason in (BUSY, SLOW)

    def joined(self, relay: Relay, capabilities: bytes, from_server: bytes) -> None:
        """The relay begins; the client was told these capabilities, and what the server said behind its sign-in."""
        self._relay = relay
        self.capabilities = capabilities
        self.tracker.server(from_server)

    async def to(self, target: Target, server: str, epoch: int = 0) -> bool:
        """Have the session go on at `target` instead of `server`; whether it does. `reason` says why not.

        `epoch` is the one that `target` has the database by.

        If not, it is either as it was before, or has been ended with BYE (`relay.ended`). Never waits for a boundary.
        """
        if self._busy:
            self.reason = "it is being carried over already"
            return False
        self._busy = True
        self.signed_in_vain = False
        try:
            async with self._door.carrying:
                carried = await self._carry(target, epoch)
        finally:
            self._busy = False
        if carried:
            self.servers.append(server)
        return carried

    def _refusal(self) -> str:
        """Why the session cannot be carried over at this moment."""
        relay, tracker = self._relay, self.tracker
        if relay is None or relay.ended or relay.parted is not None:
            return "the session has ended"
        if not self.at_boundary:
            return tracker.obstacle or BUSY
        if not self.capabilities:
            return "it is not known what the client was promised"
        if not relay.client_has_all:
            return SLOW
        return tracker.obstacle

    async def _carry(self, target: Target, epoch: int) -> bool:
        self.reason = self._refusal()
        if self.reason:
            return False
        leg = await self._server_leg(target, epoch)
        if leg is None:
            return False
        door = self._door
        server = door.configuration.organization.servers[target.server]
        told = self._facts if target.endpoint.client_address is not ClientAddress.NONE else None
        try:
            signed_in = await open_server(leg, target.endpoint, server, told, door.client_contexts, door.limits)
        except AttemptFailed as failure:
            door.tell_health(target, self._facts.address, failure)
            self.reason = f"{target.server}: {failure}"
            return False
        door.tell_health(target, self._facts.address)
        new = frozenset((signed_in.capabilities or b"").upper().split())
        missing = missing_capabilities(frozenset(self.capabilities.upper().split()), new)
        # The client has had the time of a sign-in to say something.
        self.signed_in_vain = True
        if missing:
            self.reason = f"{target.server} lacks {missing[0].decode(errors='replace')}"
        else:
            self.reason = await self._boundary(leg)
        if self.reason:
            leg.abort()
            return False
        assert self._relay is not None
        return await self._change(self._relay, leg, signed_in)

    async def _boundary(self, leg: MailServerLeg) -> str:
        """Wait for the end of a command that is under way; what is in the way then.

        Signing in again costs the new server more than waiting here, and it is when it is slow, with thousands that
        come, that clients have said something meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BOUNDARY_SECONDS
        while loop.time() < deadline and not leg.transport.is_closing():
            if self._refusal() not in (BUSY, SLOW):
                break
            await asyncio.sleep(LOOK_SECONDS)
        return self._refusal()

    async def _server_leg(self, target: Target, epoch: int) -> MailServerLeg | None:
        door = self._door
        server = door.configuration.organization.servers[target.server]
        if self._introduction.ttl <= 1 and is_front_end(server):
            self.reason = "a loop: too many front ends have handed this session on"
            return None
        own = server.sign_in.form is SignInForm.USER
        if own and not (self._credentials.password or takes_token(server, self._credentials)):
            self.reason = "the user's password is not kept, nor a token for this server"
            return None
        facts = with_epoch(self._facts, server, self._user.mailbox.database or "", epoch)
        try:
            dialogue = await ticket_for(door.sign_in.onward, door.protocol, server, target.endpoint, self._user)
        except NoTicket as none:
            self.reason = f"{server.name}: {none}"
            return None
        how = back_sign_in(server, target.endpoint, self._user, self._credentials, facts, self._introduction, dialogue)
        return MailServerLeg(ImapBack(how), door.limits.server_step_seconds)

    async def _change(self, relay: Relay, leg: MailServerLeg, signed_in: SignedIn) -> bool:
        if leg.transport.is_closing():
            self.reason = "the new server closed"
            leg.abort()
            return False
        tag = b"g" + secrets.token_hex(6).encode()
        change = _Change(relay, leg, ImapCarry(self.tracker.session, tag), self.tracker.carried)
        self.reason = "it was given up"
        try:
            async with asyncio.timeout(CARRY_SECONDS):
                self.reason = await change.run(signed_in.rest)
        except TimeoutError:
            self.reason = "it took too long"
        finally:
            if not change.carried:
                change.undo()
                if not relay.ended:
                    relay.close(f"moved, not carried over: {self.reason}", self._door.farewell(FAREWELL))
        return change.carried


class _Change(asyncio.Protocol):
    """Drives the carrying between a parted relay and the new server, whose protocol it is meanwhile."""

    def __init__(
        self, relay: Relay, leg: MailServerLeg, carry: ImapCarry, on_carried: Callable[[Selected | None], None]
    ) -> None:
        self._relay = relay
        self._transport = leg.transport
        leg.relay = _LateNews(self)
        self._carry = carry
        self._on_carried = on_carried
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.carried = False

    async def run(self, rest: bytes) -> str:
        """Carry the session; answers why it could not be, or nothing."""
        self._relay.part(self)
        self._transport.set_protocol(self)
        self._run(self._carry.begin())
        if rest and not self._end.done():
            self._run(self._carry.new(rest))
        if not self._end.done():
            self._transport.resume_reading()
        return await self._end

    def undo(self) -> None:
        """Give the new server up."""
        self._ended("given up")
        self._transport.abort()

    # --- the new server

    def data_received(self, data: bytes) -> None:
        """The new server says something."""
        if not self._end.done():
            self._run(self._carry.new(data))

    def connection_lost(self, exc: Exception | None) -> None:
        """The new server went; the session may be its own already."""
        if self.carried:
            self._relay.server_lost(exc)
        else:
            self._ended("the new server closed")

    # --- the relay, and so the old server

    def from_server(self, data: bytes) -> None:
        """The old server says something."""
        if not self._end.done():
            self._run(self._carry.old(data))

    def server_lost(self) -> None:
        """The old server went: no harm once it has said all."""
        if self._carry.old_is_needed:
            self._ended("the old server closed")

    def relay_ended(self) -> None:
        """The client went."""
        self._ended("the client left")

    def _ended(self, reason: str) -> None:
        if not self._end.done():
            self._end.set_result(reason)

    def _run(self, events: list[CarryEvent]) -> None:
        relay = self._relay
        if relay.ended:
            self._ended("the session has ended")
            return
        lines = b""
        last = events[-1] if events else None
        for event in events:
            if isinstance(event, ToOld):
                relay.to_server(event.data)
            elif isinstance(event, ToNew):
                self._transport.write(event.data)
            elif isinstance(event, ToClient):
                lines += event.data
        if isinstance(last, Carried):
            self.carried = True
            self._transport.pause_reading()
            self._on_carried(last.selected)
            relay.rejoin(self._transport, lines, last.rest)
            self._ended("")
        elif lines:
            relay.to_client(lines)
        if isinstance(last, GaveUp):
            self._ended(last.reason)


class _LateNews:
    """The new server's end, told to the protocol that its transport had before."""

    def __init__(self, change: _Change) -> None:
        self._change = change

    def server_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._change.connection_lost(exc)
