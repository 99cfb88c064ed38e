"""Decisions for a running worker: `routing.decide` with facts pushed here, remembered until they change."""

from __future__ import annotations

from gatepost.access.registry_age import RegistryAge
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import PathClass, Protocol
from gatepost.routing.decision import Cause, Decision, Mailbox, Refuse, Request, Step, StepKind, decide, path_class

MAX_REMEMBERED = 20_000
"""Decisions kept, some 4 KiB each: databases and old home servers times protocols and first path segments. Cleared when
full."""
MAX_PATH = 100
"""Characters of a path whose decision or class is kept. Directories' paths are shorter; clients make up longer ones."""
MAX_CLASSES = 1_000
"""Classes of paths kept; clients may ask for any first segment, the directories' own are a few dozen."""

NOT_KNOWN = "Which server has this mailbox open is not known at the moment."
_CUT_OFF = Refuse(
    Cause.NO_ACTIVE_COPY, NOT_KNOWN, (Step("A4", "the registry has not been heard of for too long", StepKind.TAKEN),)
)


class Router:
    """Holds the configuration and the registry's last view. No request waits for either (SPEC A1).

    Decisions depend on the database, not on the user, so that a few thousand remembered ones serve any number of users.
    """

    def __init__(self, configuration: Configuration, view: RegistryView, age: RegistryAge | None = None) -> None:
        """With `age` nobody is sent to a database any more when the view is too old (SPEC A4)."""
        self.age = age or RegistryAge(configuration.front_end.limits.registry_age_seconds)
        self._configuration = configuration
        self._view = view
        # Keyed by the mailbox's two words: hashing the dataclass itself runs Python code, for every request.
        self._remembered: dict[tuple[Protocol, str | None, str | None, str, bool, bool], Decision] = {}
        self._classes: dict[str, tuple[PathClass, str]] = {}
        self._segment_is_enough = _segment_is_enough(configuration)

    @property
    def view(self) -> RegistryView:
        """The registry's last view."""
        return self._view

    def set_configuration(self, configuration: Configuration) -> None:
        """Decide by another configuration from now on."""
        self._configuration = configuration
        self.age.limit = configuration.front_end.limits.registry_age_seconds
        self._segment_is_enough = _segment_is_enough(configuration)
        self._remembered.clear()
        self._classes.clear()

    def set_view(self, view: RegistryView) -> None:
        """Decide by another view of the registry from now on."""
        self._view = view
        self._remembered.clear()

    def decide(
        self,
        protocol: Protocol,
        mailbox: Mailbox,
        path: str = "",
        *,
        follows_451: bool = True,
        from_peer: bool = False,
    ) -> Decision:
        """The decision for a request by `protocol` for `mailbox`; `path` is the normalised path of an HTTP request.

        `follows_451` is false for devices that cannot follow 451 (C3), `from_peer` true for what came from another
        front end (C11).
        """
        if mailbox.database is not None and self.age.cut_off:
            return _CUT_OFF
        if path and self._segment_is_enough:  # as `_short`, without the call: this is done for each request
            end = path.find("/", 1)
            if end >= 0:
                path = path[:end]
        key = (protocol, mailbox.database, mailbox.home_server, path, follows_451, from_peer)
        decision = self._remembered.get(key)
        if decision is None:
            decision = self.decide_anew(protocol, mailbox, path, follows_451=follows_451, from_peer=from_peer)
            # A path that nobody serves is one of a client's making: of those there is no end.
            if len(path) <= MAX_PATH and not _nobody_serves_it(decision):
                if len(self._remembered) >= MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = decision
        return decision

    def forget(self, database: str) -> None:
        """A server says that `database` is not its own: nothing that was decided before counts."""
        self._remembered = {key: decision for key, decision in self._remembered.items() if key[1] != database}

    def decide_anew(
        self,
        protocol: Protocol,
        mailbox: Mailbox,
        path: str = "",
        *,
        follows_451: bool = True,
        from_peer: bool = False,
    ) -> Decision:
        """The same without memory."""
        active = self._view.active.get(mailbox.database) if mailbox.database is not None else None
        request = Request(protocol, self._configuration.front_end.server, path, follows_451, from_peer)
        return decide(self._configuration.organization, request, mailbox, active)

    def path_class(self, path: str) -> tuple[PathClass, str]:
        """Who asks for `path` at this front end, and the case-folded word of its service: the form of answers."""
        path = self._short(path)
        found = self._classes.get(path)
        if found is None:
            found = path_class(self._configuration.organization, self._configuration.front_end.server, path)
            if len(path) <= MAX_PATH:
                if len(self._classes) >= MAX_CLASSES:
                    self._classes.clear()
                self._classes[path] = found
        return found

    def _short(self, path: str) -> str:
        """As much of `path` as decides: one entry of memory for all paths that share it."""
        if path and self._segment_is_enough:
            end = path.find("/", 1)
            return path if end < 0 else path[:end]
        return path


def _nobody_serves_it(decision: Decision) -> bool:
    return isinstance(decision, Refuse) and decision.cause is Cause.NO_VIRTUAL_DIRECTORY


def _segment_is_enough(configuration: Configuration) -> bool:
    """Whether the first path segment alone finds the virtual directory of any path."""
    return all(d.path.count("/") <= 1 for d in configuration.organization.virtual_directories)
