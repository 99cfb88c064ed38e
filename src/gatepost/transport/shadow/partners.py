"""Which hubs are asked to hold a copy (SPEC S1; exchange-facts 4.4, 2013). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gatepost.organization.model import Organization


class Partners:
    """The hubs that may keep shadows of a hub's messages; they take turns."""

    def __init__(self, organization: Organization, name: str) -> None: ...

    def configure(self, organization: Organization) -> None:
        """Another organization from now on."""

    def choose(self, databases: Iterable[str], ready: Callable[[str], bool]) -> list[str]:
        """Hubs to try for one copy, in order, as many as the settings let be tried. `databases` are those of the
        recipients' mailboxes; `ready` says whether a hub is not known to be down."""
        ...
