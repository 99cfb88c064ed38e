"""What the stages of back pressure mean to those who bring mail (exchange-facts 4.12)."""

from __future__ import annotations

from collections.abc import Callable

from gatepost.balancing.back_pressure import Pressure

FIRST_WAIT_SECONDS = 10.0
"""Before the answer to MAIL, when the medium stage begins …"""
WAIT_STEP_SECONDS = 5.0
"""… and this more …"""
STEP_SECONDS = 30.0
"""… each time this has gone by …"""
MAX_WAIT_SECONDS = 55.0
"""… up to this."""
PATIENCE_SECONDS = 600.0
"""After so long at the medium stage strangers are refused for the moment."""


class PressureStages:
    """Remembers since when there has been pressure. `clock` is monotonic, in seconds."""

    __slots__ = ("_clock", "_pressure", "_since")

    def __init__(self, pressure: Callable[[], Pressure], clock: Callable[[], float]) -> None:
        self._pressure = pressure
        self._clock = clock
        self._since: float | None = None

    def look(self) -> Pressure:
        """The stage now; called now and then, so that the time of its beginning is known."""
        pressure = self._pressure()
        if pressure is Pressure.NORMAL:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
        return pressure

    def refuses(self, *, trusted: bool) -> bool:
        """Whether MAIL is refused for the moment; a server of the organization only at the highest stage."""
        pressure = self.look()
        if pressure is Pressure.MEDIUM and not trusted:
            return self._lasted() >= PATIENCE_SECONDS
        return pressure is Pressure.HIGH

    def wait(self) -> float:
        """Seconds before a stranger's MAIL is answered."""
        if self.look() is not Pressure.MEDIUM:
            return 0.0
        steps = int(self._lasted() / STEP_SECONDS)
        return min(FIRST_WAIT_SECONDS + steps * WAIT_STEP_SECONDS, MAX_WAIT_SECONDS)

    def _lasted(self) -> float:
        return 0.0 if self._since is None else self._clock() - self._since
