"""What a decision is made from, and what it can be (SPEC C1 to C14)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import Endpoint, Protocol, VirtualDirectory


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
    follows_451: bool = True
    """ActiveSync: the device's protocol is 12.1 or later, so that it understands 451."""
    from_peer: bool = False
    """Another front end sent it here: it may go to a mailbox server, never to a further front end (C11)."""


class Cause(Enum):
    """Why a request is refused. Protocols turn it into their own words."""

    NO_MAILBOX = "no mailbox"
    NO_ACTIVE_COPY = "no active copy"
    NO_ENDPOINT = "no endpoint"
    NO_VIRTUAL_DIRECTORY = "no virtual directory"
    OTHER_SITE = "other site"
    NOT_SUPPORTED = "not supported"
    CONFIGURATION = "configuration"
    OLD_MAILBOX = "old mailbox"
    """A 2003 mailbox at `/owa`: the user must use `/exchange` (C7)."""
    NO_CLIENT_ACCESS_SERVER = "no client access server"
    """The mailbox's site has none that could take the request (C2)."""
    VERSION_MISMATCH = "version mismatch"
    """Every client access server there is newer than this one, or too old for the mailbox (C2)."""
    NO_INTERNAL_URL = "no internal URL"
    NO_INTEGRATED = "no Integrated authentication"
    """The target's virtual directory lacks it (C3, C4, C5), or only Basic is to be had between front ends (C11)."""
    NO_ANSWER = "no answer"
    """The server, or every candidate, could not be reached or gave no answer."""
    BUSY = "busy"
    """Too much is under way, here or towards the server (B4)."""
    LOOP = "loop"
    """It came from a front end and would go to a front end again (C11)."""

    @property
    def temporary(self) -> bool:
        """Whether the client may try again later; never shown as a wrong password (field case 112)."""
        return self in _TEMPORARY


_TEMPORARY = frozenset({
    Cause.NO_MAILBOX, Cause.NO_ACTIVE_COPY, Cause.NO_ENDPOINT, Cause.CONFIGURATION, Cause.NO_ANSWER, Cause.BUSY,
})  # fmt: skip


class StepKind(Enum):
    """What a rule did to a decision. The value is the word of `explain`."""

    FACT = "fact"
    """It found something out, or holds; the decision goes on."""
    PASSED_OVER = "passed over"
    """It was looked at and does not apply."""
    TAKEN = "taken"
    """It is the decision: the last step of each, and only that one."""


class Step(NamedTuple):
    """One step of a decision: the rule looked at and what came of it. A decision makes many, and tuples are cheap."""

    rule: str
    text: str
    kind: StepKind = StepKind.FACT


@dataclass(frozen=True, slots=True)
class Target:
    """A server to go to, and where it answers.

    For HTTP `directory` is the matching virtual directory and `url` the URL of it to send to: it says scheme, host,
    port and path, while `endpoint` holds the address to connect to.
    """

    server: str
    endpoint: Endpoint
    directory: VirtualDirectory | None = None
    url: str = ""
    peer: bool = False
    """It is another front end: the user's identity crosses as an assertion (C11)."""


@dataclass(frozen=True, slots=True)
class Serve:
    """The mailbox is in this front end's own site: straight to the mailbox server (C1)."""

    target: Target
    steps: tuple[Step, ...] = ()
    epoch: int = 0
    candidates: tuple[Target, ...] = ()
    """All that could take it, `target` first, in a stable order; empty: `target` alone."""
    affinity: Affinity = Affinity.NONE


@dataclass(frozen=True, slots=True)
class Proxy:
    """The mailbox is in another site; the request is carried there (C3 to C10)."""

    target: Target
    steps: tuple[Step, ...] = ()
    epoch: int = 0
    candidates: tuple[Target, ...] = ()
    """As in `Serve`."""
    affinity: Affinity = Affinity.NONE


class RedirectForm(Enum):
    """How the client is told."""

    PAGE = "page"
    """A page with the link; the user clicks (C5)."""
    SILENT = "silent"
    """At once, by 302 (C5 with the option)."""
    DEVICE = "451"
    """HTTP 451 with `X-MS-Location` (C3)."""
    OWN_PATH = "own path"
    """Another path of this same front end: `/exchange` to `/owa` (C7)."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """The client is sent elsewhere.

    `location` is a URL, or a path for `OWN_PATH`. It replaces the leading segments `prefix` of the request's path; what
    follows them, and the query, are kept, except for `DEVICE`, which takes `location` as it is.
    """

    location: str
    steps: tuple[Step, ...] = ()
    form: RedirectForm = RedirectForm.PAGE
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request cannot be served here. `message` is one ASCII line that a client may see: it names no secret."""

    cause: Cause
    message: str
    steps: tuple[Step, ...] = ()
    server_name: str = ""
    """The host name to use instead, where there is one (C9)."""


Decision = Serve | Proxy | Redirect | Refuse
