"""One address that mail may be handed to: what enhanced DNS lists and the healthy server selector judges."""

from __future__ import annotations

from dataclasses import dataclass

from gatepost.routing.next_hop import Way

Key = tuple[str, int]
"""IP address and port: health is that of the service at an address, not of a name (SPEC B7, smtp-facts row 34)."""


@dataclass(frozen=True, slots=True)
class Target:
    """`host` is the name that led here, `ip` the literal address; lower preferences are tried first."""

    host: str
    ip: str
    port: int
    preference: int
    way: Way

    @property
    def key(self) -> Key:
        """What its health is kept under."""
        return self.ip, self.port

    def __str__(self) -> str:
        """`hub04.contoso.com [10.0.0.1]:25`, for logs and operators."""
        return f"{self.host} [{self.ip}]:{self.port}"
