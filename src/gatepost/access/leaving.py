"""Sessions with a relay that must go (see `access.moves`)."""

from __future__ import annotations

from gatepost.access import tasks
from gatepost.access.mail_relayed import RelayedLeg
from gatepost.access.moves import Outcome
from gatepost.routing.outcome import Mailbox, Proxy, Serve

MOVED = "the mailbox has moved to another server, please connect again"
KICKED = "ended by the operator"
REMOVED = "the app password was removed"

CARRIES = 3
"""Sign-ins at the new server for one session, whose client is never done with its command in time."""


class MailLeaver:
    """One session as a round sees it. With `moved` it may stay if it comes to the right server by itself.

    `dead`: nothing is expected of its server any more, so a command that is complete does not wait for its answer.
    """

    __slots__ = ("_carries", "_carrying", "_dead", "_leg", "_moved", "_reason", "_text")

    def __init__(self, leg: RelayedLeg, reason: str, text: str, *, moved: bool = False, dead: bool = False) -> None:
        self._leg = leg
        self._reason = reason
        self._text = text
        self._moved = moved
        self._dead = dead
        # A server from which nothing is expected cannot say what the client knows.
        self._carries = CARRIES if moved and not dead and leg.carry_over is not None else 0
        self._carrying = False

    @property
    def outcome(self) -> Outcome | None:
        """As `Leaver.outcome`."""
        leg = self._leg
        if leg.gone:
            return Outcome.CLOSED
        return Outcome.STAYED if self._moved and leg.door.is_current(leg.database, leg.epoch) else None

    def activity(self) -> int | None:
        """As `Leaver.activity`."""
        relay = self._leg.relay
        if relay is None:
            return 0
        return None if relay.unsent else relay.bytes_in + relay.bytes_out

    def leave(self) -> bool:
        """As `Leaver.leave`."""
        leg = self._leg
        if leg.relay is None:
            leg.turn_away(self._text)
            return True
        if leg.relay.ended:
            return True
        if self._carrying:
            return False
        at_boundary = leg.at_boundary()
        if self._carries and at_boundary:
            self._carries -= 1
            self._carrying = True
            tasks.start(self._carry(), f"{leg.session} carry")
            return False
        if not at_boundary and not (self._dead and leg.ends is not None and leg.ends.command_is_whole):
            return False
        leg.leave(self._reason, self._text)
        return True

    def cut(self) -> None:
        """As `Leaver.cut`: the server is cut off, the client told what it can still understand."""
        leg = self._leg
        if leg.relay is not None and not leg.relay.ended and not leg.relay.unsent:
            leg.leave(self._reason, self._text)
        else:
            leg.cut(self._reason)

    async def _carry(self) -> None:
        leg = self._leg
        decision = leg.door.router.decide(leg.door.protocol, Mailbox(leg.database))
        try:
            if isinstance(decision, Serve | Proxy) and await leg.carry(decision):
                leg.epoch = decision.epoch
            elif leg.carry_over is None or not leg.carry_over.may_try_again:
                self._carries = 0
            elif not leg.carry_over.signed_in_vain:
                self._carries += 1  # it had only waited for others, and cost nobody anything
        finally:
            self._carrying = False
