"""Which send connector takes a recipient outside (exchange-facts 4.7): one rule after the other, the next on a tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gatepost.organization.model import Organization, Role, Server
from gatepost.organization.transport import SendConnector
from gatepost.organization.transport_text import size_text
from gatepost.routing.mail.paths import Path, Paths
from gatepost.routing.outcome import Step, StepKind

RULE = "T3"
LOCAL, SAME_SITE, REMOTE = 0, 1, 2
"""How near a connector is: this server is a source of it, another one of this site is, or one elsewhere."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A connector that may take the mail. `path` leads to the nearest site with a source server of it."""

    connector: SendConnector
    specificity: tuple[int, int]
    cost: int
    """Of the path and of the address space together."""
    proximity: int
    path: Path

    @property
    def rank(self) -> tuple[object, ...]:
        """The least is chosen."""
        kind, labels = self.specificity
        name = self.connector.name
        return -kind, -labels, self.cost, self.proximity, self.path.hops, name.casefold(), name


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, if anything, with the reasons. `too_small`: all that match have too small a limit."""

    chosen: Chosen | None
    too_small: bool
    reasons: tuple[Step, ...]


def specificity(pattern: str, domain: str) -> tuple[int, int] | None:
    """How exactly an address space means `domain`, more being greater; None when it does not mean it.

    `contoso.com` before `*.contoso.com`, which means `contoso.com` too, and the longer of those before the shorter,
    before `*`.
    """
    if pattern == "*":
        return 0, 0
    if pattern.startswith("*."):
        base = pattern[2:]
        return (1, base.count(".") + 1) if domain == base or domain.endswith(f".{base}") else None
    return (2, 0) if pattern == domain else None


def choose(organization: Organization, paths: Paths, own: Server, domain: str, size: int) -> Choice:
    """The connector for a message of `size` bytes to `domain`, which is in its form on the wire."""
    reasons: list[Step] = []
    fitting: list[Chosen] = []
    too_small = 0
    for connector in organization.send_connectors.values():
        spaces = [
            (found, -space.cost) for space in connector.address_spaces if (found := specificity(space.pattern, domain))
        ]
        if not spaces:
            continue
        best, negative_cost = max(spaces)
        where = _where(organization, paths, own, connector)
        fault = _unfit(connector, own, where, organization)
        if fault or where is None:
            reasons.append(Step(RULE, f"connector {connector.name}: {fault}", StepKind.PASSED_OVER))
        elif connector.max_message_size and size > connector.max_message_size:
            too_small += 1
            limit = size_text(connector.max_message_size)
            text = f"connector {connector.name}: the message is larger than its limit of {limit}"
            reasons.append(Step(RULE, text, StepKind.PASSED_OVER))
        else:
            proximity, path = where
            fitting.append(Chosen(connector, best, path.cost - negative_cost, proximity, path))
    fitting.sort(key=lambda candidate: candidate.rank)
    if not fitting:
        return Choice(None, too_small > 0, tuple(reasons))
    chosen = fitting[0]
    reasons += [
        Step(RULE, f"connector {c.connector.name}: {_why_not(chosen, c)}", StepKind.PASSED_OVER) for c in fitting[1:]
    ]
    reasons.append(Step(RULE, f"connector {chosen.connector.name} matches {domain}{_how(chosen, fitting)}"))
    return Choice(chosen, False, tuple(reasons))


def _where(organization: Organization, paths: Paths, own: Server, connector: SendConnector) -> tuple[int, Path] | None:
    """How near the connector's nearest source server is, and the path to its site; None when there is no way."""
    here = Path((own.site,))
    if own.name in connector.source_servers:
        return LOCAL, here
    if Role.HUB_TRANSPORT not in own.roles:
        return None  # an edge knows no other server's connectors
    sites = source_sites(organization, paths, own, connector)
    if not sites:
        return None
    return (SAME_SITE if sites[0].hops == 0 else REMOTE), sites[0]


def source_sites(organization: Organization, paths: Paths, own: Server, connector: SendConnector) -> list[Path]:
    """The paths to the sites of its source servers that can take mail from others, the nearest first."""
    sites = {server.site for server in sources(organization, connector, own)}
    known = paths.all_from(own.site)
    found = [known[site] for site in sites if site in known]
    return sorted(found, key=lambda path: (path.cost, path.hops, [(n.casefold(), n) for n in reversed(path.sites)]))


def sources(organization: Organization, connector: SendConnector, own: Server) -> Sequence[Server]:
    """Its source servers that others can hand mail to, by name; never `own`."""
    servers = (organization.servers.get(name) for name in sorted(connector.source_servers))
    return [server for server in servers if server and server is not own and server.takes_mail]


def _unfit(connector: SendConnector, own: Server, where: tuple[int, Path] | None, organization: Organization) -> str:
    """Why the connector cannot be used by `own`; empty when it can."""
    if not connector.enabled:
        return "is not enabled"
    if connector.scoped:
        known = (organization.servers.get(name) for name in connector.source_servers)
        if own.site not in {server.site for server in known if server}:
            return f"is for the sites of its source servers only, and {own.site} is none of them"
    if where is None:
        return "no link leads to a source server of it" if Role.HUB_TRANSPORT in own.roles else "is of another server"
    return ""


def _why_not(chosen: Chosen, other: Chosen) -> str:
    """The first rule that decided against `other`."""
    if other.specificity != chosen.specificity:
        return f"its address space is less specific than that of {chosen.connector.name}"
    if other.cost != chosen.cost:
        return f"costs {other.cost}, {chosen.connector.name} costs {chosen.cost}"
    if (other.proximity, other.path.hops) != (chosen.proximity, chosen.path.hops):
        return f"is farther away than {chosen.connector.name}"
    return f"its name comes after {chosen.connector.name}"


def _how(chosen: Chosen, fitting: Sequence[Chosen]) -> str:
    if len(fitting) == 1:
        return f", cost {chosen.cost}"
    return f" best of {len(fitting)}, cost {chosen.cost}"
