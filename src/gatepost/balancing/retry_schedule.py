"""How long until a server that is down is tried again (SPEC T6, exchange-facts 4.1 and 4.3). Pure.

marked ── 4 × 1 min ──► 6 × 5 min ──► every 10 min, without end
           glitch        transient     outbound connection failure      (an edge: 6 × 10 min, then every 30 min)
"""

from __future__ import annotations

from enum import StrEnum

from gatepost.organization.transport import EDGE_SETTINGS, HUB_SETTINGS, TransportSettings

MIN_INTERVAL = 1.0
"""Seconds, the least that the settings may say (exchange-facts 4.3): no setting makes an endless loop of attempts."""


class TransportRole(StrEnum):
    """What kind of transport server the settings are for; the two differ in their defaults."""

    HUB = "hub"
    EDGE = "edge"


def default_settings(role: TransportRole) -> TransportSettings:
    """The settings of a server that nobody has set anything for."""
    return HUB_SETTINGS if role is TransportRole.HUB else EDGE_SETTINGS


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
