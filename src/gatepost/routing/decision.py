"""Who serves this request: the decision and its reasons (SPEC C1-C14, B5).

`decide` is a pure function of an organization, the facts of one request and what the registry last said of the
mailbox's database. It never raises for bad facts: whatever cannot be served is a `Refuse` with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gatepost.organization.model import Endpoint, Organization, Protocol, VirtualDirectory


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Where a user's mailbox is: in a database or, for old servers, on a home server. One of the two is set."""

    database: str | None = None
    home_server: str | None = None


@dataclass(frozen=True, slots=True)
class ActiveCopy:
    """Which server holds the active copy of a database (SPEC A1). The epoch only ever grows."""

    database: str
    server: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Request:
    """The facts of a request that are known before the mailbox is."""

    protocol: Protocol
    front_end: str
    """Name of the server that runs this front end."""
    path: str = ""
    """The decoded, normalised path of an HTTP request; empty for other protocols."""


class Cause(Enum):
    """Why a request is refused. Protocols turn it into their own words."""

    NO_MAILBOX = "no mailbox"
    NO_ACTIVE_COPY = "no active copy"
    NO_ENDPOINT = "no endpoint"
    NO_VIRTUAL_DIRECTORY = "no virtual directory"
    OTHER_SITE = "other site"
    NOT_SUPPORTED = "not supported"
    CONFIGURATION = "configuration"

    @property
    def temporary(self) -> bool:
        """Whether the client may try again later; never shown as a wrong password (field case 112)."""
        return self not in {Cause.OTHER_SITE, Cause.NO_VIRTUAL_DIRECTORY, Cause.NOT_SUPPORTED}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a decision: the rule looked at and what came of it."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Target:
    """The server to go to, and where it answers.

    For HTTP `directory` is the matching virtual directory; its internal URL says scheme, host, port and path, and
    `endpoint` holds the address to connect to.
    """

    server: str
    endpoint: Endpoint
    directory: VirtualDirectory | None = None


@dataclass(frozen=True, slots=True)
class Serve:
    """The mailbox is in this front end's own site: straight to the mailbox server (C1)."""

    target: Target
    steps: tuple[Step, ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Proxy:
    """The mailbox is in another site; the request is carried there (C10)."""

    target: Target
    steps: tuple[Step, ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Redirect:
    """The client is sent elsewhere."""

    location: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request cannot be served here. `message` is one ASCII line that a client may see: it names no secret."""

    cause: Cause
    message: str
    steps: tuple[Step, ...] = ()


Decision = Serve | Proxy | Redirect | Refuse


def decide(organization: Organization, request: Request, mailbox: Mailbox, active: ActiveCopy | None) -> Decision:
    """The decision for one request. `active` is the registry's word for `mailbox.database`, None if it has none."""
    raise NotImplementedError
