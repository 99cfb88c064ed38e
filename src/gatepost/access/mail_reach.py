"""From a signed-in IMAP or POP3 user to a mailbox server that has let them in: which, in what order, how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gatepost.access.mail_server import (
    AttemptFailed,
    MailFront,
    MailServerLeg,
    back_sign_in,
    is_front_end,
    open_server,
)
from gatepost.directory.port import User
from gatepost.organization.model import ClientAddress
from gatepost.routing.decision import Cause, Decision, Proxy, Refuse, Serve, Target
from gatepost.wire.events import ClientFacts, Credentials, FailureKind, Refusal, SignedIn

if TYPE_CHECKING:
    from gatepost.access.mail_door import MailDoor

ATTEMPTS = 2
"""Connection attempts for one sign-in; each goes to where the active copy is at that moment."""
RETRY_SECONDS = 0.25
"""Wait before the second attempt when the active copy has not moved meanwhile."""

REFUSALS = {
    FailureKind.REFUSED: Refusal.UNAVAILABLE,
    FailureKind.UNAVAILABLE: Refusal.UNAVAILABLE,
    FailureKind.PROTOCOL: Refusal.UNAVAILABLE,
    FailureKind.IN_USE: Refusal.IN_USE,
    FailureKind.LIMIT: Refusal.LIMIT,
}
"""What the client is told of a failure at the mailbox server; its credentials were judged before (field case 76)."""


class NotReached(Exception):
    """No server has let the user in: what the client is told, and `reason` for the log."""

    def __init__(self, refusal: Refusal, reason: str, text: str = "", server: str = "") -> None:
        super().__init__(reason)
        self.refusal = refusal
        self.reason = reason
        self.text = text
        self.server = server


class Reach:
    """The way of one sign-in. It knows nothing of the client's side, so that it may outlive the sign-in."""

    __slots__ = ("_door", "failures", "leg", "target")

    def __init__(self, door: MailDoor) -> None:
        self._door = door
        self.failures: list[str] = []
        """What came of each attempt that failed, with the server's name."""
        self.leg: MailServerLeg | None = None
        """The connection to the server, or the attempt at one."""
        self.target: Target | None = None
        """Where the last attempt went."""

    async def open(
        self,
        user: User,
        credentials: Credentials,
        front: MailFront,
        facts: Callable[[], ClientFacts],
        address: str,
    ) -> SignedIn:
        """Connect and sign in where the active copy is now; the second attempt asks again where that is.

        Each attempt tries the decision's servers in turn, where there are several. `facts` tells a server of the
        client, whose address is `address`. `leg` is the open connection then. Raises `NotReached`.
        """
        door = self._door
        tried: Decision | None = None
        failure: AttemptFailed | None = None
        for attempt in range(ATTEMPTS):
            decision = door.router.decide(door.protocol, user.mailbox)
            if attempt and decision is tried:
                await asyncio.sleep(RETRY_SECONDS)
                decision = door.router.decide(door.protocol, user.mailbox)
            tried = decision
            if not isinstance(decision, Serve | Proxy):
                raise _refused(decision)
            for target in door.servers_for(decision, address, user.name):
                try:
                    return await self._try(target, user, credentials, front, facts, address)
                except AttemptFailed as failed:
                    failure = failed.with_traceback(None)
                if not failure.elsewhere:
                    break
            assert failure is not None  # there is always one to try
            if not failure.again:
                break
        assert failure is not None
        raise NotReached(REFUSALS[failure.kind], f"mailbox server: {self.failures[-1]}")

    async def _try(
        self,
        target: Target,
        user: User,
        credentials: Credentials,
        front: MailFront,
        facts: Callable[[], ClientFacts],
        address: str,
    ) -> SignedIn:
        door = self._door
        self.target = target
        server = door.configuration.organization.servers[target.server]
        if front.ttl <= 1 and is_front_end(server):
            raise NotReached(Refusal.UNAVAILABLE, "a loop: too many front ends have handed this session on")
        told = facts() if target.endpoint.client_address is not ClientAddress.NONE else None
        sign_in = back_sign_in(server, target.endpoint, user, credentials, told, front)
        leg = self.leg = MailServerLeg(door.back(sign_in), door.limits.server_step_seconds)
        try:
            signed_in = await open_server(leg, target.endpoint, server, told, door.client_contexts, door.limits)
        except AttemptFailed as failure:
            self.leg = None
            door.tell_health(target, address, failure)
            self.failures.append(f"{target.server}: {failure}")
            raise
        door.tell_health(target, address)
        return signed_in

    def abort(self) -> None:
        """Give the server's side up."""
        if self.leg is not None:
            self.leg.abort()
            self.leg = None


def _refused(decision: Decision) -> NotReached:
    """What a decision that leads nowhere means to a mail client."""
    if isinstance(decision, Refuse) and decision.cause is Cause.OTHER_SITE:
        return NotReached(Refusal.OTHER_SERVER, decision.message, decision.message, decision.server_name)
    reason = decision.message if isinstance(decision, Refuse) else "a redirect has no form in this protocol"
    return NotReached(Refusal.UNAVAILABLE, reason)
