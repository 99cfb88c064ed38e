"""Decisions for a running worker: `routing.decide` with facts pushed here, remembered until they change."""

from __future__ import annotations

from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Decision, Mailbox, Request, decide

MAX_REMEMBERED = 50_000
"""Decisions kept: databases and old home servers times protocols and first path segments. Cleared when full."""


class Router:
    """Holds the configuration and the registry's last view. No request waits for either (SPEC A1).

    Decisions depend on the database, not on the user, so that a few thousand remembered ones serve any number of users.
    """

    def __init__(self, configuration: Configuration, view: RegistryView) -> None:
        self._configuration = configuration
        self._view = view
        # Keyed by the mailbox's two words: hashing the dataclass itself runs Python code, for every request.
        self._remembered: dict[tuple[Protocol, str | None, str | None, str], Decision] = {}
        self._segment_is_enough = _segment_is_enough(configuration)

    @property
    def view(self) -> RegistryView:
        """The registry's last view."""
        return self._view

    def set_configuration(self, configuration: Configuration) -> None:
        """Decide by another configuration from now on."""
        self._configuration = configuration
        self._segment_is_enough = _segment_is_enough(configuration)
        self._remembered.clear()

    def set_view(self, view: RegistryView) -> None:
        """Decide by another view of the registry from now on."""
        self._view = view
        self._remembered.clear()

    def decide(self, protocol: Protocol, mailbox: Mailbox, path: str = "") -> Decision:
        """The decision for a request by `protocol` for `mailbox`; `path` is the normalised path of an HTTP request."""
        if path and self._segment_is_enough:
            end = path.find("/", 1)
            path = path if end < 0 else path[:end]
        key = (protocol, mailbox.database, mailbox.home_server, path)
        decision = self._remembered.get(key)
        if decision is None:
            decision = self.decide_anew(protocol, mailbox, path)
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = decision
        return decision

    def decide_anew(self, protocol: Protocol, mailbox: Mailbox, path: str = "") -> Decision:
        """The same without memory."""
        active = self._view.active.get(mailbox.database) if mailbox.database is not None else None
        request = Request(protocol, self._configuration.front_end.server, path)
        return decide(self._configuration.organization, request, mailbox, active)


def _segment_is_enough(configuration: Configuration) -> bool:
    """Whether the first path segment alone finds the virtual directory of any path."""
    return all(d.path.count("/") <= 1 for d in configuration.organization.virtual_directories)
