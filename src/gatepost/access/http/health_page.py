"""Health pages for the balancer in front (SPEC V2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg


def concerns(route: str) -> bool:
    """Whether a path asks for the health of a service."""
    return route.endswith("/healthcheck.htm")


def answer(_leg: HttpClientLeg, _route: str) -> bool:
    """Answer it; False: no such page here."""
    return False
