"""One request while it is decided: its facts, and the steps so far."""

from __future__ import annotations

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import Organization, PathClass, Protocol, Server, VirtualDirectory
from gatepost.routing.directories import class_and_service, find_directory, one_line
from gatepost.routing.outcome import Cause, Proxy, Refuse, Request, Serve, Step, StepKind, Target


class Case:
    """The facts of one decision, and its growing list of steps. `server` is the mailbox's server.

    For HTTP `own` and `mailbox_directory` are the virtual directories for the path of this front end and of `server`.
    """

    __slots__ = (
        "epoch", "front_end", "mailbox_directory", "organization", "own", "request", "same_site", "server", "steps",
    )  # fmt: skip

    def __init__(
        self, organization: Organization, request: Request, front_end: Server, server: Server, steps: list[Step]
    ) -> None:
        self.organization = organization
        self.request = request
        self.front_end = front_end
        self.server = server
        self.epoch = 0
        self.steps = steps
        self.same_site = server.site == front_end.site
        self.own: VirtualDirectory | None = None
        self.mailbox_directory: VirtualDirectory | None = None
        if request.protocol is Protocol.HTTPS:
            self.own = find_directory(organization, front_end.name, request.path)
            self.mailbox_directory = find_directory(organization, server.name, request.path)

    def class_with(self, target: VirtualDirectory | None) -> tuple[PathClass, str]:
        """Class and service of the path: by this front end's directory, else the target's, else the path's word."""
        return class_and_service(self.own or target, self.request.path)

    def fact(self, rule: str, text: str) -> None:
        """A rule found something out."""
        self.steps.append(Step(rule, text))

    def passed(self, rule: str, text: str) -> None:
        """A rule was looked at and does not apply."""
        self.steps.append(Step(rule, text, StepKind.PASSED_OVER))

    def taken(self, rule: str, text: str) -> tuple[Step, ...]:
        """The deciding rule; answers all steps."""
        return (*self.steps, Step(rule, text, StepKind.TAKEN))

    def refuse(self, cause: Cause, rule: str, message: str, server_name: str = "") -> Refuse:
        """The request cannot be served; `message` becomes one ASCII line."""
        return refusal(self.steps, cause, rule, message, server_name)

    def one(self, rule: str, target: Target) -> Serve | Proxy:
        """Exactly this server: served when it is in this site, else proxied."""
        kind = Serve if self.same_site else Proxy
        word = "served by" if self.same_site else "proxied to"
        return kind(target, self.taken(rule, f"{word} {target.server} at {place(target)}"), self.epoch)

    def several(self, rule: str, targets: list[Target], affinity: Affinity) -> Serve | Proxy:
        """One of these servers, by `affinity`. `targets` is not empty."""
        kind = Serve if self.same_site else Proxy
        word = "served by" if self.same_site else "proxied to"
        names = ", ".join(target.server for target in targets)
        if len(targets) == 1:
            text = f"{word} {names} at {place(targets[0])}"
        else:
            text = f"{word} one of {names}; affinity: {affinity.value}"
        return kind(targets[0], self.taken(rule, text), self.epoch, tuple(targets), affinity)


def refusal(steps: list[Step], cause: Cause, rule: str, message: str, server_name: str = "") -> Refuse:
    """A refusal whose last step is its message."""
    message = one_line(message)
    return Refuse(cause, message, (*steps, Step(rule, message, StepKind.TAKEN)), one_line(server_name))


def place(target: Target) -> str:
    """Where a target answers, for people."""
    endpoint = target.endpoint
    if target.url:
        return f"{target.url} (as a front end)" if target.peer else target.url
    return f"{endpoint.address} port {endpoint.port} ({endpoint.tls.value})"
