"""Targets, and a schedule played minute by minute, for the tests of which server mail goes to."""

from __future__ import annotations

from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.target import Target
from gatepost.organization.transport import TransportSettings
from gatepost.routing.next_hop import Way

MINUTE = 60.0
START = 1_790_000_000.0
"""Seconds since 1970, of some day: times of the tests begin here."""
REFUSED = "ConnectionRefused:0000274D"


def target(host: str, ip: str = "", *, port: int = 25, preference: int = 0) -> Target:
    """`hub04` has the address 10.0.0.4 unless `ip` says otherwise."""
    found = ip or f"10.0.0.{int(host[-2:])}"
    name = f"{host}.contoso.com"
    return Target(name, found, port, preference, Way(name, found, port, preference))


def selector(**settings: object) -> HealthyServerSelector:
    """One with the settings of a hub, but for those given."""
    return HealthyServerSelector(TransportSettings(**settings))  # type: ignore[arg-type]


def play(found: HealthyServerSelector, at: Target, minutes: int, *, waiting: int = 1) -> list[float]:
    """The minutes from `START` in which a connection to a dead server is attempted while mail waits all the time.

    `waiting` deliveries ask every second.
    """
    attempts = []
    for second in range(minutes * 60 + 1):
        now = START + second
        for _ in range(waiting):
            lease = found.begin(at, now)
            if lease is not None:
                attempts.append(second / MINUTE)
                found.failed(at, now, REFUSED, lease, now)
    return attempts
