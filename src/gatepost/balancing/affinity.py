"""How requests stay with a server where several could take them (SPEC B1 to B3, B5)."""

from __future__ import annotations

from enum import Enum


class Affinity(Enum):
    """The rule that a decision asks for. The value is the word of messages and of `explain`."""

    NONE = "none"
    """One server only: the one with the active copy (B5)."""
    COOKIE = "cookie"
    """Outlook Web App: stay with the server chosen first, as a sealed cookie remembers it (B1)."""
    COOKIE_OR_ADDRESS = "cookie or client address"
    """Exchange Web Services: as `COOKIE`; a client without cookies stays by its address (B1)."""
    FIRST_SERVER = "first server"
    """ActiveSync: round robin for a device's first contact, then that server every time (B2)."""
    ROUND_ROBIN = "round robin"
    """Availability and everything without state between requests (B3)."""
