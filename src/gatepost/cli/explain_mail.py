"""`gatepost explain --mail`: the way of a message to one recipient, hop by hop, with the reasons (SPEC T3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from gatepost.cli.explain_report import MARKS
from gatepost.configuration.findings import printable
from gatepost.organization.model import Organization, Role, Server, Version
from gatepost.organization.transport_text import size_shown
from gatepost.routing.mail.outcome import Refused, Routed
from gatepost.routing.mail.router import MailRouter
from gatepost.routing.next_hop import DeliveryType, Destination
from gatepost.routing.outcome import Mailbox
from gatepost.transport.operator_filter import shown_time
from gatepost.transport.shadow.partners import Partners

DEFAULT_SIZE = 10_000
MAX_HOPS = 32
"""No way is longer: each hop is nearer to the end than the one before."""


@dataclass(frozen=True, slots=True)
class MailQuestion:
    """A message of `size` bytes at the hub or edge `server`. `mailbox` is the recipient's, as the directory has it."""

    sender: str
    recipient: str
    size: int
    server: str
    mailbox: Mailbox | None
    internal: bool = False
    """It came from a server of the organization."""


def first_server(organization: Organization, named: str | None, front_end: str) -> str:
    """The hub or edge that the message is at: the one named, this machine's, or the first hub, of its site if it has.

    Raises `click.ClickException` when there is none.
    """
    servers = organization.servers
    if named is not None:
        found = next((s for s in servers.values() if named.casefold() in {s.name.casefold(), s.fqdn.casefold()}), None)
        if found is None or not found.carries_mail:
            raise click.ClickException(f"{named} is not a hub or an edge of the organization")
        return found.name
    here = servers.get(front_end)
    if here is not None and here.carries_mail:
        return here.name
    hubs = [server for server in servers.values() if Role.HUB_TRANSPORT in server.roles]
    if not hubs:
        raise click.ClickException("the organization has no hub: name an edge with --server")
    hubs.sort(key=lambda hub: here is None or hub.site != here.site)
    return hubs[0].name


def mail_report(organization: Organization, question: MailQuestion, active: Mapping[str, str]) -> dict[str, Any]:
    """Everything, for programs. `active` are the servers with the active copies, by database."""
    hops: list[dict[str, Any]] = []
    server, internal = question.server, question.internal
    outcome = "loop"
    while len(hops) < MAX_HOPS:
        router = MailRouter(organization, server)
        route = router.route(question.recipient, question.mailbox, active, question.size, internal=internal)
        hop = _hop(organization.servers[server], route)
        if not hops:  # later ones are told by who handed the message on, and that one keeps it
            hop["shadow"] = _shadow(organization, server, question.mailbox)
        hops.append(hop)
        if isinstance(route, Refused):
            outcome = "refused"
            break
        destination = router.destination(route.next_hop, active)
        hop["ways"] = _ways(destination)
        next_server = _next_server(organization, route, destination)
        if next_server is None:
            outcome = _outcome(route, destination)
            break
        server, internal = next_server, True
    mailbox = question.mailbox
    return {
        "sender": question.sender,
        "recipient": question.recipient,
        "size": question.size,
        "server": question.server,
        "database": mailbox.database if mailbox else None,
        "home_server": mailbox.home_server if mailbox else None,
        "hops": hops,
        "outcome": outcome,
    }


def _hop(server: Server, route: Routed | Refused) -> dict[str, Any]:
    found: dict[str, Any] = {
        "server": server.name,
        "site": server.site,
        "role": "hub" if Role.HUB_TRANSPORT in server.roles else "edge",
        "steps": [{"rule": step.rule, "text": step.text, "kind": step.kind.value} for step in route.reasons],
    }
    if isinstance(route, Refused):
        return found | {"reply": str(route.reply)}
    next_hop = route.next_hop
    return found | {
        "next_hop": {"delivery": next_hop.delivery.value, "domain": next_hop.domain, "connector": next_hop.connector},
        "path": list(route.path),
    }


def _shadow(organization: Organization, server: str, mailbox: Mailbox | None) -> dict[str, Any] | None:
    """Which hubs are asked to keep a copy of a message that a client or a foreign server sends here, or why none is
    (SPEC S4). An edge makes none."""
    config = organization.transport_config
    if Role.HUB_TRANSPORT not in organization.servers[server].roles:
        return None
    if not config.shadow_redundancy_enabled:
        return {"hubs": [], "reason": "shadow redundancy is switched off"}
    databases = [mailbox.database] if mailbox is not None and mailbox.database else []
    hubs = Partners(organization, server).choose(databases, lambda _: True)
    if hubs:
        return {"hubs": hubs, "reason": ""}
    what = "put off (451)" if config.reject_message_on_shadow_failure else "accepted without a copy"
    return {"hubs": [], "reason": f"there is no other hub that may keep one; mail is {what}"}


def _ways(destination: Destination | None) -> list[dict[str, Any]]:
    if destination is None:
        return []
    if destination.mx_domain:
        connector = destination.connector
        port = connector.port if connector else 0
        return [{"mx": destination.mx_domain, "port": port, "tls": connector.tls.value if connector else ""}]
    return [
        {
            "host": way.host,
            "address": way.address,
            "port": way.port,
            "preference": way.preference,
            "protocol": way.transfer.value,
            "tls": "implicit" if way.implicit_tls else way.tls.value,
            "mutual": way.mutual,
        }
        for way in destination.ways
    ]


def _next_server(organization: Organization, route: Routed, destination: Destination | None) -> str | None:
    """The server that routes the message next, if it is one of today; the first where it is one of several."""
    relayed = (DeliveryType.SITE, DeliveryType.CONNECTOR_SERVERS)
    if destination is None or route.next_hop.delivery not in relayed:
        return None
    server = organization.servers[destination.ways[0].server]
    return server.name if server.version is Version.MODERN else None


def _outcome(route: Routed, destination: Destination | None) -> str:
    if route.next_hop.delivery is DeliveryType.UNREACHABLE or destination is None:
        return "unreachable"
    outside = (DeliveryType.DNS, DeliveryType.SMART_HOST)
    return "sent" if route.next_hop.delivery in outside else "delivered"


def mail_text(found: dict[str, Any]) -> list[str]:
    """The same in lines for people, printable whatever the names hold."""
    where = f"database {found['database']}" if found["database"] else ""
    if found["home_server"]:
        where = f"home server {found['home_server']}"
    size = size_shown(found["size"])
    lines = [f"{found['sender'] or '<>'} to {found['recipient']} ({where or 'no mailbox here'}), {size}"]
    marks = {kind.value: mark for kind, mark in MARKS.items()}
    for hop in found["hops"]:
        lines.append(f"  at {hop['role']} {hop['server']}, site {hop['site']}:")
        if hop.get("shadow") is not None:
            lines.append(f"    shadow: {', else '.join(hop['shadow']['hubs']) or 'none: ' + hop['shadow']['reason']}")
        for number, step in enumerate(hop["steps"], 1):
            lines.append(f"    {number:>2}. {step['rule']:<3} {marks[step['kind']]} {step['text']}")
        if "next_hop" in hop:
            target = hop["next_hop"]
            by = f" ({target['connector']})" if target["connector"] not in {"", target["domain"]} else ""
            lines.append(f"    queue: {target['delivery']} {target['domain']}{by}")
        lines += [f"      {_way_text(way)}" for way in hop.get("ways", ())]
    lines.append(f"  => {_outcome_text(found)}")
    return [printable(line) for line in lines]


def _way_text(way: dict[str, Any]) -> str:
    if "mx" in way:
        return f"hosts by the MX of {way['mx']}, port {way['port']}, TLS {way['tls']}"
    after = f", after those of preference {way['preference'] - 1}" if way["preference"] else ""
    trust = ", mutual" if way["mutual"] else ""
    at = f"{way['host']} at {way['address']} port {way['port']}"
    down = "".join(
        f"; DOWN at {each['address']}: {each['error']}, tried again at {shown_time(each['next_retry'])}"
        for each in way.get("down", ())
    )
    return f"{at} by {way['protocol'].upper()} (TLS {way['tls']}{trust}){after}{down}"


def _outcome_text(found: dict[str, Any]) -> str:
    last = found["hops"][-1]
    match found["outcome"]:
        case "refused":
            return f"refused: {last['reply']}"
        case "unreachable":
            return f"waits: {last['steps'][-1]['text']}"
        case "loop":
            return f"goes in circles: more than {MAX_HOPS} hops"
        case "sent":
            return f"sent from {last['server']}"
        case _:
            return f"delivered from {last['server']}"


def is_refused(found: dict[str, Any]) -> bool:
    """Whether the message cannot get there now."""
    return found["outcome"] in {"refused", "unreachable", "loop"}
