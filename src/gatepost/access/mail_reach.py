"""A judged sign-in on its way to the mailbox server.

decide ─► (park: a move is under way) ─► a turn at the server ─► connect, sign in ─► SignedIn
  ▲                                                                  │
  ├── the database has moved meanwhile ──────────────────────────────┤
  ├── "not mine": the registry is asked anew, once ──────────────────┤
  ├── a fault: once more ────────────────────────────────────────────┤
  └── no answer, and somebody may take over: park ───────────────────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gatepost.access.mail_server import AttemptFailed, MailServerLeg, open_server
from gatepost.access.mail_sign_in import (
    MailFront,
    back_sign_in,
    is_front_end,
    lacks_password,
    ticket_for,
    with_epoch,
)
from gatepost.access.parking import TOO_LONG, ParkingFull, Patience
from gatepost.access.sign_in_turns import NO_TURN, Turn
from gatepost.directory.kerberos_port import NoTicket, service_of
from gatepost.directory.port import User
from gatepost.organization.model import ClientAddress
from gatepost.routing.outcome import Cause, Decision, Proxy, Refuse, Serve, Target
from gatepost.wire.events import ClientFacts, Credentials, FailureKind, Refusal, SignedIn

if TYPE_CHECKING:
    from gatepost.access.mail_door import MailDoor

ATTEMPTS = 2
"""Connection attempts for one sign-in; each goes to where the active copy is at that moment."""
MAX_MOVES = 5
"""Moves of the database during one sign-in that it follows; more is a registry gone wild."""
RETRY_SECONDS = 0.25
"""Wait before the second attempt when the active copy has not moved meanwhile."""
ANSWER_SECONDS = 1.0
"""Before the time for signing in is over: who still waits is told so in the protocol's words."""
MAX_FAILURES = 10
"""Attempts that the log tells of."""

REFUSALS = {
    FailureKind.REFUSED: Refusal.UNAVAILABLE,
    FailureKind.UNAVAILABLE: Refusal.UNAVAILABLE,
    FailureKind.NOT_MINE: Refusal.UNAVAILABLE,
    FailureKind.PROTOCOL: Refusal.UNAVAILABLE,
    FailureKind.IN_USE: Refusal.IN_USE,
    FailureKind.LIMIT: Refusal.LIMIT,
}
"""What the client is told of a failure at the mailbox server; its credentials were judged before (field case 76)."""


class NotReached(Exception):
    """The sign-in comes to nothing. `reason` is for the log; `text` and `server` are for the client."""

    def __init__(self, refusal: Refusal, reason: str, text: str = "", server: str = "") -> None:
        super().__init__(reason)
        self.refusal = refusal
        self.reason = reason
        self.text = text
        self.server = server


class MailReach:
    """One sign-in of `user`. `going_to` is called with each server that is tried, and the epoch it was chosen by."""

    __slots__ = (
        "_address", "_asked", "_credentials", "_database", "_deadline", "_door", "_epoch", "_facts", "_front",
        "_going_to", "_patience", "_server", "_turn", "_user", "failures", "server_leg",
    )  # fmt: skip

    def __init__(
        self,
        door: MailDoor,
        user: User,
        credentials: Credentials,
        front: MailFront,
        facts: Callable[[], ClientFacts],
        address: str,
        deadline: float,
        going_to: Callable[[Target, int], None],
    ) -> None:
        """`facts` are asked for when the server is told of the client; `deadline` is the sign-in's, loop's time."""
        self._door = door
        self._user = user
        self._credentials = credentials
        self._front = front
        self._facts = facts
        self._address = address
        self._going_to = going_to
        self._database = user.mailbox.database or ""
        self._deadline = deadline - ANSWER_SECONDS
        self._patience = Patience(door.limits.parking_seconds, self._deadline)
        self._asked = False
        """The registry has been asked anew because a server said that the database is not its own."""
        self._epoch = 0
        self._server = ""
        self._turn: Turn | None = None
        self.failures: list[str] = []
        """What came of each attempt, for the log."""
        self.server_leg: MailServerLeg | None = None
        """The connection that is tried, or was signed in on."""

    async def run(self) -> SignedIn:
        """Connect and sign in where the active copy is now; each attempt asks again where that is.

        Each tries the decision's servers in turn, where there are several. Raises `NotReached`.
        """
        attempts, moves = ATTEMPTS, MAX_MOVES
        tried: Decision | None = None
        while True:
            decision = tried = await self._decision(tried)
            outcome = await self._try_servers(decision)
            if isinstance(outcome, SignedIn):
                return outcome
            if outcome.moved and moves:
                moves -= 1  # no fault of the server's: the attempt is not used up
                continue
            attempts -= 1
            if outcome.kind is FailureKind.NOT_MINE:
                if await self._ask_anew():
                    continue
            elif (outcome.again and attempts > 0) or await self._new_home(outcome):
                continue
            raise NotReached(REFUSALS[outcome.kind], f"mailbox server: {self.failures[-1]}")

    def database_moved(self) -> None:
        """The epoch may have changed: nobody waits for the server that had the database before."""
        if self._door.is_current(self._database, self._epoch):
            return
        if self._turn is not None and not self._turn.done():
            self._door.turns.withdraw(self._server, self._user.name, self._turn)
        if self.server_leg is not None:
            self.server_leg.give_up()

    def abort(self) -> None:
        """Give the server's connection up."""
        if self.server_leg is not None:
            self.server_leg.abort()
            self.server_leg = None

    # --- where to

    async def _decision(self, tried: Decision | None) -> Serve | Proxy:
        """Where to go now; the same as `tried` only after a moment. Waits while a move is under way."""
        door = self._door
        while True:
            decision = door.router.decide(door.protocol, self._user.mailbox)
            if door.parking.must_wait(self._database):
                epoch = decision.epoch if isinstance(decision, Serve | Proxy) else 0
                if not await self._park(epoch, self._patience.left(door.loop.time())):
                    raise NotReached(Refusal.UNAVAILABLE, f"a move is under way: {TOO_LONG}")
            elif decision == tried:
                await asyncio.sleep(RETRY_SECONDS)
                tried = None
            elif isinstance(decision, Serve | Proxy):
                return decision
            else:
                raise _not_here(decision)

    async def _park(self, epoch: int, seconds: float) -> bool:
        """Wait for another epoch, or for the end of a move. Raises `NotReached` when there is no room to wait."""
        if seconds <= 0:
            return False
        try:
            return await self._door.parking.wait(self._database, epoch, seconds, self._user.name)
        except ParkingFull as full:
            raise NotReached(Refusal.UNAVAILABLE, str(full)) from None

    async def _new_home(self, failure: AttemptFailed) -> bool:
        """The server does not answer: wait for another one, if there may be one, or for itself to come back."""
        door = self._door
        if failure.kind is not FailureKind.UNAVAILABLE or failure.by_server:
            return False
        if not door.parking.may_fail_over(door.configuration.organization, self._database, self._server):
            return False
        seconds = self._patience.step(door.loop.time())
        await self._park(self._epoch, seconds)
        return seconds > 0

    async def _ask_anew(self) -> bool:
        """A server has not the database. Once: have the registry read now, and forget what was decided before."""
        if self._asked or not self._database:
            return False
        self._asked = True
        await self._door.router.age.look()
        self._door.router.forget(self._database)
        return True

    # --- there

    async def _try_servers(self, decision: Serve | Proxy) -> SignedIn | AttemptFailed:
        door = self._door
        self._epoch = decision.epoch
        failure: AttemptFailed | None = None
        for target in door.servers_for(decision, self._address, self._user.name):
            self._server = target.server
            self._going_to(target, decision.epoch)
            if self._front.ttl <= 1 and is_front_end(door.configuration.organization.servers[target.server]):
                raise NotReached(Refusal.UNAVAILABLE, "a loop: too many front ends have handed this session on")
            if not await self._my_turn():
                if door.is_current(self._database, self._epoch):
                    raise NotReached(Refusal.UNAVAILABLE, f"{target.server}: {NO_TURN}")
                return self._moved(target)
            try:
                outcome = await self._try(target)
            finally:
                door.turns.leave(target.server)
            if isinstance(outcome, SignedIn):
                return outcome
            failure = outcome
            if failure.moved or not failure.elsewhere:
                break
        assert failure is not None  # there is always one to try
        return failure

    async def _my_turn(self) -> bool:
        """Whether the sign-in may begin at the server; then its turn must be left. False: in vain, or moved."""
        door, server, user = self._door, self._server, self._user.name
        if not door.turns.enter(server):
            turn = self._turn = door.turns.ask(server, user)
            try:
                async with asyncio.timeout_at(self._deadline):
                    if not await turn:
                        return False
            except TimeoutError:
                door.turns.withdraw(server, user, turn)
                return False
            except BaseException:
                door.turns.withdraw(server, user, turn)
                raise
            finally:
                self._turn = None
        if door.is_current(self._database, self._epoch):
            return True
        door.turns.leave(server)
        return False

    async def _try(self, target: Target) -> SignedIn | AttemptFailed:
        """One attempt."""
        door = self._door
        server = door.configuration.organization.servers[target.server]
        if lacks_password(server, target.endpoint, self._credentials):
            raise NotReached(Refusal.UNAVAILABLE, f"{server.name} wants the user's password, which is not known here")
        facts = None
        if target.endpoint.client_address is not ClientAddress.NONE:
            facts = with_epoch(self._facts(), server, self._database, self._epoch)
        onward = door.sign_in.onward
        try:
            dialogue = await ticket_for(onward, door.protocol, server, target.endpoint, self._user)
        except NoTicket as none:
            raise NotReached(Refusal.UNAVAILABLE, f"{server.name}: {none}") from none
        sign_in = back_sign_in(server, target.endpoint, self._user, self._credentials, facts, self._front, dialogue)
        leg = self.server_leg = MailServerLeg(door.back(sign_in), door.limits.server_step_seconds)
        try:
            signed_in = await open_server(leg, target.endpoint, server, facts, door.client_contexts, door.limits)
        except AttemptFailed as failure:
            self.server_leg = None
            if not door.is_current(self._database, self._epoch):
                return self._moved(target)
            door.tell_health(target, self._address, failure)
            self._note(target, failure)
            if dialogue is not None and onward is not None and failure.kind is FailureKind.REFUSED:
                onward.refused(self._user.name, service_of(door.protocol, server))
            return failure
        door.tell_health(target, self._address)
        if not door.is_current(self._database, self._epoch):
            leg.abort()
            return self._moved(target)
        return signed_in

    def _moved(self, target: Target) -> AttemptFailed:
        """The copy there is not the active one any more: nobody was handed over to it."""
        self.server_leg = None
        failure = AttemptFailed(FailureKind.UNAVAILABLE, "the database has moved", again=True, moved=True)
        self._note(target, failure)
        return failure

    def _note(self, target: Target, failure: AttemptFailed) -> None:
        self.failures.append(f"{target.server}: {failure}")
        del self.failures[:-MAX_FAILURES]


def _not_here(decision: Decision) -> NotReached:
    if not isinstance(decision, Refuse):
        return NotReached(Refusal.UNAVAILABLE, "a redirect has no form in this protocol")
    if decision.cause is Cause.OTHER_SITE:
        return NotReached(Refusal.OTHER_SERVER, decision.message, decision.message, decision.server_name)
    return NotReached(Refusal.UNAVAILABLE, decision.message)
