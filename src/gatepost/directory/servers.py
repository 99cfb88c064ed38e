"""Several servers with the same answers: whom to ask first, and for how long one that failed is left alone.

    up ── failed ──► down for 1 s, 2 s, 4 s … 30 s ── due: one question tries it ──► up again, or down for longer

A server that is down costs nobody any time: with all of them down a question is refused at once. It keeps no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
"""From one try of a server that is down to the next; doubled from the first to the longest."""


@dataclass(slots=True)
class _State:
    failures: int = 0
    due: float = 0.0
    """When a server that is down may be tried again."""
    reason: str = ""


class Servers:
    """Names of servers in the order of preference, with what is known of them."""

    def __init__(self, names: Iterable[str], first_pause: float = FIRST_PAUSE_SECONDS) -> None:
        self._states = {name: _State() for name in names}
        self._first_pause = first_pause

    def __contains__(self, name: str) -> bool:
        return name in self._states

    def take(self, now: float) -> list[str]:
        """Whom to ask, in this order; those that are down only when they are due, and then by nobody else.

        A server that is tried again comes behind those that are up, unless there are none.
        """
        up = [name for name, state in self._states.items() if not state.failures]
        if up:
            return up
        due = [name for name, state in self._states.items() if state.due <= now]
        for name in due:
            self._postpone(self._states[name], now)
        return due

    def probe(self, now: float) -> str | None:
        """A server that is down and due, to be tried beside the others; it is then taken."""
        for name, state in self._states.items():
            if state.failures and state.due <= now:
                self._postpone(state, now)
                return name
        return None

    def failed(self, name: str, now: float, reason: str) -> None:
        """It did not answer, or not as a server should. Many questions that fail together count once."""
        state = self._states[name]
        state.reason = reason
        if not state.failures or now >= state.due:
            self._postpone(state, now)

    def worked(self, name: str) -> bool:
        """It answered; whether it was down until now."""
        state = self._states[name]
        was_down = state.failures > 0
        state.failures, state.due, state.reason = 0, 0.0, ""
        return was_down

    def reasons(self) -> str:
        """What is wrong, for the log."""
        return "; ".join(f"{name}: {state.reason}" for name, state in self._states.items() if state.reason)

    def _postpone(self, state: _State, now: float) -> None:
        state.failures += 1
        doublings = min(state.failures - 1, 16)
        state.due = now + min(self._first_pause * 2**doublings, LONGEST_PAUSE_SECONDS)
