"""How long until a server that is down is tried again (SPEC T6, exchange-facts 4.1 and 4.3). Pure.

marked ── 4 × 1 min ──► 6 × 5 min ──► every 10 min, without end
           glitch        transient     outbound connection failure      (an edge: 6 × 10 min, then every 30 min)
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from gatepost.organization.transport import TransportSettings

MIN_INTERVAL = 1.0
"""Seconds, the least that the settings may say (exchange-facts 4.3): no setting makes an endless loop of attempts."""

_EDGE_TRANSIENT_FAILURE_RETRY_INTERVAL = 600.0
_EDGE_OUTBOUND_CONNECTION_FAILURE_RETRY_INTERVAL = 1800.0


class TransportRole(StrEnum):
    """What kind of transport server the settings are for; the two differ in their defaults."""

    HUB = "hub"
    EDGE = "edge"


def default_settings(role: TransportRole) -> TransportSettings:
    """The settings of a server that nobody has set anything for."""
    if role is TransportRole.HUB:
        return TransportSettings()
    return replace(
        TransportSettings(),
        transient_failure_retry_interval=_EDGE_TRANSIENT_FAILURE_RETRY_INTERVAL,
        outbound_connection_failure_retry_interval=_EDGE_OUTBOUND_CONNECTION_FAILURE_RETRY_INTERVAL,
    )


def retry_interval(settings: TransportSettings, retries: int) -> float:
    """Seconds from the last retry to the next one, when `retries` attempts have been let through since the marking."""
    glitches = settings.queue_glitch_retry_count
    if retries < glitches:
        seconds = settings.queue_glitch_retry_interval
    elif retries < glitches + settings.transient_failure_retry_count:
        seconds = settings.transient_failure_retry_interval
    else:
        seconds = settings.outbound_connection_failure_retry_interval
    return max(seconds, MIN_INTERVAL)
