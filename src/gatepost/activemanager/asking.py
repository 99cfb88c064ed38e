"""How a command asks the manager for a move, and what the manager says of single copies, by the registry alone.

A request is a move that stands in the registry already: sign-ins wait from then on, and the manager that holds the
lease, wherever it runs, goes on with it. Its answer is the database's next epoch or, where the move came to nothing, a
word on the target's copy among the observations.
"""

from __future__ import annotations

from collections.abc import Mapping

from gatepost.activemanager.port import Move, Observation

_ASKED = "asked of the manager: "
_COPY = "copy of "
REFUSED = "choice"
"""The step at which a request ends that is not fulfilled: nothing was tried with the copy."""
PROMOTING = "promote of "
"""How the name of the step begins at which a copy itself failed."""


def asked(reason: str) -> str:
    """The reason of a move that the manager is to go on with."""
    return _ASKED + reason


def is_asked(move: Move) -> bool:
    """Whether the manager is to go on with this move."""
    return move.reason.startswith(_ASKED)


def copy_service(database: str) -> str:
    """The service of an `Observation` that is about a server's copy of a database, not about a protocol."""
    return _COPY + database


def is_of_copy(service: str) -> bool:
    """Whether an observation is about a copy."""
    return service.startswith(_COPY)


def failed_services(observed: Mapping[tuple[str, str], Observation], server: str) -> dict[str, str]:
    """The protocols of `server` that were last seen failing, with the reasons."""
    return {
        service: seen.reason
        for (name, service), seen in sorted(observed.items())
        if name == server and not seen.healthy and not is_of_copy(service)
    }
