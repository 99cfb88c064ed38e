"""Holding the manager's lease (SPEC A3): when to ask for it, when to renew it, and when to stop acting. Pure."""

from __future__ import annotations

from gatepost.activemanager.manager_events import Asked, GiveBack, Keep, Outbox, Take
from gatepost.activemanager.port import Lease

MARGIN = 0.2
"""This part of the lease, at its end, is not used: for clocks that run at different speeds, and for late answers."""
RENEW = 0.25
"""The lease is renewed after this part of it."""
ASK_AGAIN = 0.1
"""A standby asks for the lease after this part of it again; the view tells sooner when it was given back."""


class Holding:
    """What one manager knows of its lease. It ends, by its own clock, `seconds` after it was *asked* for: whatever the
    answer took, the registry's own count began later."""

    def __init__(self, holder: str, seconds: float, now: float, out: Outbox) -> None:
        self.holder = holder
        self.seconds = seconds
        self.lease: Lease | None = None
        self._out = out
        self._until = 0.0
        self._asking = False
        self._ask_at = now
        self._leaving = False

    @property
    def acts_until(self) -> float:
        """When acting ends, if the lease is not renewed."""
        return self._until - MARGIN * (self.lease.seconds if self.lease is not None else self.seconds)

    def acts(self, now: float) -> bool:
        """Whether its holder may act."""
        return self.lease is not None and not self._leaving and now < self.acts_until

    def mind(self, now: float) -> None:
        """Ask or renew when it is time; let go of what has ended."""
        if self.lease is not None and now >= self._until:
            self._lose("it was not renewed in time")
        if self._asking or self._leaving or now < self._ask_at:
            return
        self._asking = True
        self._out.put(Take(self.holder, self.seconds, now) if self.lease is None else Keep(self.lease, now))

    def seen_free(self, now: float) -> None:
        """The registry's picture has no holder: it may be had now."""
        if self.lease is None:
            self._ask_at = min(self._ask_at, now)

    def asked(self, answer: Asked, now: float) -> None:
        """Take the answer to `Take` or `Keep`."""
        self._asking = False
        if answer.fault:
            self._out.say("error", "registry", "manager.registry_unavailable", answer.fault)
            self._ask_at = now + ASK_AGAIN * self.seconds
            return
        if self._out.settled("registry"):
            self._out.log("info", "manager.registry_available")
        if answer.lease is None:
            if self.lease is not None:
                self._lose("another manager may hold it")
            self._ask_at = now + ASK_AGAIN * self.seconds
            return
        if self._leaving:
            self._out.put(GiveBack(answer.lease))
            return
        if self.lease is None or self.lease.term != answer.lease.term:
            self._out.log("info", "manager.acts", holder=self.holder, term=answer.lease.term)
        self.lease = answer.lease
        self._until = answer.asked + answer.lease.seconds
        self._ask_at = answer.asked + RENEW * answer.lease.seconds

    def leave(self) -> None:
        """Give the lease back and ask no more."""
        self._leaving = True
        if self.lease is not None:
            self._out.put(GiveBack(self.lease))
            self.lease = None

    def _lose(self, why: str) -> None:
        assert self.lease is not None
        self._out.log("warning", "manager.lease_lost", term=self.lease.term, reason=why)
        self.lease = None
