"""Which queues and messages cmdlets mean, and whom they ask: the running transports of this machine.

queue    [SERVER\\]Submission | Unreachable | Poison | NEXT-HOP-DOMAIN | NUMBER | Shadow\\NUMBER | *
message  [SERVER\\]QUEUE\\NUMBER, with * as QUEUE for all copies
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gatepost.organization.model import Server
from gatepost.service.transport_asking import NotAnswered, ask_transport, servers_here
from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Invocation
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session

EVERY = "*"
SHADOW = "shadow"
"""How the names of shadow queues begin, in any case."""
RESULT_SIZE = 1000
ALWAYS_THERE = {"Submission": "Submission", "Unreachable Domain": "Unreachable", "Poison Message": "Poison"}
"""How the queues are named that are no next hop's."""

SERVER = Parameter("Server", Kind.TEXT, "The hub or edge on this machine. Default: the configuration's.")
FILTER = Parameter("Filter", Kind.FILTER, "Those whose properties fit.")
RESULTS = Parameter("ResultSize", Kind.TEXT, "How many at most, 1000 if not given; Unlimited.")
MOST = 100_000


@dataclass(frozen=True, slots=True)
class Named:
    """A queue or message as `server` knows it."""

    server: str
    name: str

    def __str__(self) -> str:
        return f"{self.server}\\{self.name}"


def ask(session: Session, server: str, verb: str, **arguments: Any) -> Any:  # noqa: ANN401 - by verb
    """The transport's answer. Raises `ShellError`."""
    try:
        return ask_transport(session.configuration, server, verb, **arguments)
    except NotAnswered as fault:
        raise ShellError(f"{server}: {fault}") from fault


def server_meant(invocation: Invocation, named: str | None = None) -> str:
    """The hub or edge asked: the one in the identity, `-Server`, this machine's. Raises `ShellError`."""
    session, given = invocation.session, named or invocation.bound.text("Server")
    if given is not None:
        return session.server(given).name
    own = session.configuration.front_end.server
    if session.organization.servers[own].carries_mail:
        return own
    here = servers_here(session.configuration)
    if len(here) == 1:
        return here[0]
    raise ShellError(f"{own} carries no mail: name a hub or an edge with -Server; here run {', '.join(here) or 'none'}")


def queues_meant(invocation: Invocation, parameter: str = "Identity") -> list[Named]:
    """The queues of an identity, of the pipeline, or all of the server. Raises `ShellError`."""
    return [named for identity in _identities(invocation, parameter) for named in _queues(invocation, identity)]


def messages_meant(invocation: Invocation) -> list[Named]:
    """The messages of an identity, of the pipeline, or all of the server."""
    return [_message(invocation, identity) for identity in _identities(invocation, "Identity")]


def change_meant(invocation: Invocation, found: list[Named]) -> list[Named]:
    """`found`, when an operator has said which: a change of everything is asked for by name only."""
    bound = invocation.bound
    if "Identity" not in bound and "Filter" not in bound and invocation.given is None:
        raise ShellError("-Identity or -Filter is needed, or objects by the pipeline")
    return found


def conditions(invocation: Invocation) -> list[tuple[str, str, object]]:
    """`-Filter` as transports understand it."""
    found: list[tuple[str, str, object]] = []
    for comparison in invocation.bound.conditions("Filter"):
        if isinstance(comparison.value, tuple):
            raise ShellError("a filter compares with one value, not with a list")
        found.append((comparison.property, comparison.operator, comparison.value))
    return found


def result_size(invocation: Invocation) -> int:
    """How many objects are wanted. Raises `ShellError`."""
    given = invocation.bound.text("ResultSize")
    if given is None:
        return RESULT_SIZE
    if given.casefold() == "unlimited":
        return MOST
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise ShellError(f"-ResultSize takes a number or Unlimited, not {given!r}")
    return min(int(given), MOST)


def _identities(invocation: Invocation, parameter: str) -> list[str]:
    named = invocation.bound.text(parameter)
    if named is not None and invocation.given is not None:
        raise ShellError(f"the object comes by the pipeline: leave -{parameter} out")
    if invocation.given is not None:
        return [str(thing.get("Identity")) for thing in invocation.given]
    return [named or EVERY]


def _queues(invocation: Invocation, identity: str) -> list[Named]:
    first, parted, rest = identity.partition("\\")
    if not parted or first.casefold() == SHADOW:
        return [Named(server_meant(invocation), identity)]
    if first == EVERY:
        return [Named(server, rest or EVERY) for server in servers_here(invocation.session.configuration)]
    return [Named(server_meant(invocation, first), rest or EVERY)]


def _message(invocation: Invocation, identity: str) -> Named:
    parts = identity.split("\\")
    if identity == EVERY:
        return Named(server_meant(invocation), EVERY)
    if len(parts) == 1 and identity.isdecimal():
        return Named(server_meant(invocation), f"{EVERY}\\{identity}")
    if len(parts) == 2 and _server_called(invocation.session, parts[0]) and parts[1] == EVERY:
        return Named(server_meant(invocation, parts[0]), EVERY)
    if len(parts) == 2 or (len(parts) == 3 and parts[0].casefold() == SHADOW):
        return Named(server_meant(invocation), identity)
    if len(parts) == 3 or (len(parts) == 4 and parts[1].casefold() == SHADOW):
        return Named(server_meant(invocation, parts[0]), "\\".join(parts[1:]))
    raise ShellError(f"{identity} is no message: write QUEUE\\NUMBER, *\\NUMBER or SERVER\\QUEUE\\NUMBER")


def _server_called(session: Session, name: str) -> Server | None:
    try:
        return session.server(name)
    except ShellError:
        return None
