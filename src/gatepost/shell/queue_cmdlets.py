"""Cmdlets for the queues of the transports that run on this machine (SPEC T13, V1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gatepost.routing.next_hop import DeliveryType
from gatepost.service.transport_asking import servers_here
from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.queue_names import (
    ALWAYS_THERE,
    EVERY,
    FILTER,
    MOST,
    RESULTS,
    SERVER,
    Named,
    ask,
    change_meant,
    conditions,
    queues_meant,
    result_size,
    server_meant,
)
from gatepost.shell.shadow_names import DELIVERY_TYPE, SHADOW, is_shadow, queue_of, shadow_queues
from gatepost.shell.things import Cell, Thing
from gatepost.transport.operator_filter import shown_time

KINDS = ("Internal", "External", "Empty", DELIVERY_TYPE, *(str(each.value) for each in DeliveryType))
"""What `-Include` and `-Exclude` take."""
GROUPS = ("NextHopDomain", "DeliveryType", "LastError", "NextHopCategory", "NextHopKey", "Status", "ServerName")
DETAILS = ("None", "Normal", "Verbose")
RESUBMIT = "resubmit_queue"
NORMAL_DETAILS = 10
"""Queues that a digest's group lists by default."""

_QUEUE = Parameter(
    "Identity", Kind.TEXT, "[SERVER\\]Submission, Unreachable, Poison, Shadow\\NUMBER, a domain, a number, or *.", 0
)


def queue_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    chosen = (_QUEUE, FILTER, SERVER)
    return [
        Cmdlet(
            "Get-Queue",
            "Show the queues of mail.",
            _get,
            (
                *chosen,
                Parameter("Include", Kind.TEXTS, "Only these kinds.", words=KINDS),
                Parameter("Exclude", Kind.TEXTS, "None of these kinds.", words=KINDS),
                RESULTS,
            ),
        ),
        Cmdlet(
            "Get-QueueDigest",
            "Sum up the queues of the hubs and edges on this machine.",
            _digest,
            (
                Parameter("Server", Kind.TEXTS, "Of these servers."),
                Parameter("Site", Kind.TEXTS, "Of all servers of these sites."),
                Parameter("Forest", Kind.SWITCH, "Of all servers."),
                FILTER,
                Parameter("GroupBy", Kind.TEXT, "What is summed up. Default: NextHopDomain.", words=GROUPS),
                Parameter("DetailsLevel", Kind.TEXT, "How many queues are listed.", words=DETAILS),
                RESULTS,
            ),
        ),
        Cmdlet("Suspend-Queue", "Let nothing leave a queue.", _suspend, chosen, changes=True),
        Cmdlet("Resume-Queue", "Let a suspended queue go on.", _resume, chosen, changes=True),
        Cmdlet(
            "Retry-Queue",
            "Try a queue now instead of at its time.",
            _retry,
            (*chosen, Parameter("Resubmit", Kind.FLAG, "Find the way of each message anew.")),
            changes=True,
        ),
    ]


def queue_thing(server: str, entry: dict[str, Any]) -> Thing:
    """A queue in the source system's words."""
    properties: dict[str, Cell] = {
        "Identity": queue_identity(server, entry),
        "DeliveryType": entry["delivery_type"],
        "NextHopCategory": entry["category"],
        "NextHopDomain": entry["next_hop_domain"],
        "NextHopConnector": entry["next_hop_connector"] or None,
        "Status": entry["status"],
        "MessageCount": entry["messages"],
        "DeferredMessageCount": entry["deferred"],
        "LastError": entry["last_error"] or None,
        "LastRetryTime": shown_time(entry["last_retry"]) or None,
        "NextRetryTime": shown_time(entry["next_retry"]) or None,
        "RetryCount": entry["retry_count"],
        "IncomingRate": _rate(entry["incoming_rate"]),
        "OutgoingRate": _rate(entry["outgoing_rate"]),
        "Velocity": _rate(entry["velocity"]),
        "Connections": entry["connections"],
        "Server": server,
    }
    return Thing(
        "Queue", properties, ("Identity", "DeliveryType", "Status", "MessageCount", "Velocity", "NextHopDomain")
    )


def queue_identity(server: str, entry: dict[str, Any]) -> str:
    """`HUB-01\\Submission`, `HUB-01\\17`."""
    return f"{server}\\{ALWAYS_THERE.get(entry['next_hop_domain'], entry['identity'])}"


def _rate(rate: float) -> str:
    return f"{rate:.2f}"


# Looking


def _get(invocation: Invocation) -> Iterator[Output]:
    wanted, most = conditions(invocation), result_size(invocation)
    include, exclude = invocation.bound.texts("Include"), invocation.bound.texts("Exclude")
    given = 0
    for named in queues_meant(invocation):
        for entry in _entries(invocation, named, wanted):
            kinds = _kinds(entry)
            if given >= most:
                invocation.session.talk.warn(f"there are more than {most} queues: -ResultSize Unlimited shows all")
                return
            if (not include or kinds & set(include)) and not kinds & set(exclude):
                given += 1
                yield queue_thing(named.server, entry)


def _entries(invocation: Invocation, named: Named, wanted: list[tuple[str, str, object]]) -> list[dict[str, Any]]:
    """The queues of that name; of a server all, shadow queues among them."""
    session = invocation.session
    if is_shadow(named.name):
        return shadow_queues(session, named, wanted)
    found: list[dict[str, Any]] = ask(session, named.server, "queues", queue=named.name, limit=MOST, conditions=wanted)
    return found + (shadow_queues(session, Named(named.server, SHADOW), wanted) if named.name == EVERY else [])


def _kinds(entry: dict[str, Any]) -> set[str]:
    return {entry["category"], entry["delivery_type"]} | ({"Empty"} if not entry["messages"] else set())


def _digest(invocation: Invocation) -> Iterator[Output]:
    bound = invocation.bound
    by, level = bound.text("GroupBy") or "NextHopDomain", bound.text("DetailsLevel") or "Normal"
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for server in _servers(invocation):
        try:
            found = ask(
                invocation.session, server, "queues", limit=MOST, empty=False, conditions=conditions(invocation)
            )
        except ShellError as fault:
            invocation.session.talk.warn(str(fault))
            continue
        for entry in found:
            groups.setdefault(_group(by, server, entry), []).append((server, entry))
    summed = sorted(groups.items(), key=lambda group: (-sum(e["messages"] for _, e in group[1]), group[0]))
    for value, queues in summed[: result_size(invocation)]:
        yield _sum(value, queues, {"None": 0, "Normal": NORMAL_DETAILS}.get(level, len(queues)))


def _servers(invocation: Invocation) -> list[str]:
    """Those whose transport is asked. Raises `ShellError`."""
    session, bound = invocation.session, invocation.bound
    scopes = [name for name in ("Server", "Site", "Forest") if name in bound]
    if len(scopes) > 1:
        raise ShellError(f"-{' and -'.join(scopes)}: one of them only")
    if bound.texts("Server"):
        return [server_meant(invocation, name) for name in bound.texts("Server")]
    here = servers_here(session.configuration)
    sites = {site.casefold() for site in bound.texts("Site")}
    if sites:
        servers = session.organization.servers
        unknown = sites - {site.casefold() for site in session.organization.sites}
        if unknown:
            raise ShellError(f"there is no site {', '.join(sorted(unknown))}")
        here = [name for name in here if servers[name].site.casefold() in sites]
    if not here:
        raise ShellError("no hub or edge runs on this machine")
    return here


def _group(by: str, server: str, entry: dict[str, Any]) -> str:
    keys = {
        "NextHopDomain": "next_hop_domain",
        "DeliveryType": "delivery_type",
        "LastError": "last_error",
        "NextHopCategory": "category",
        "Status": "status",
    }
    if by == "ServerName":
        return server
    if by == "NextHopKey":
        return ";".join((entry["delivery_type"], entry["next_hop_domain"], entry["next_hop_connector"]))
    return str(entry[keys[by]])


def _sum(value: str, queues: list[tuple[str, dict[str, Any]]], listed: int) -> Thing:
    def total(key: str) -> float:
        return float(sum(entry[key] for _, entry in queues))

    ordered = sorted(queues, key=lambda queue: -queue[1]["messages"])
    properties: dict[str, Cell] = {
        "GroupByValue": value,
        "MessageCount": int(total("messages")),
        "DeferredMessageCount": int(total("deferred")),
        "QueueCount": len(queues),
        "IncomingRate": _rate(total("incoming_rate")),
        "OutgoingRate": _rate(total("outgoing_rate")),
        "Velocity": _rate(total("velocity")),
        "Details": tuple(
            f"{queue_identity(server, entry)} {entry['status']} {entry['messages']}"
            for server, entry in ordered[:listed]
        ),
    }
    return Thing("QueueDigest", properties, ("GroupByValue", "MessageCount", "DeferredMessageCount", "Details"))


# Changing


def _suspend(invocation: Invocation) -> Iterator[Output]:
    return _change(invocation, "freeze_queue", lambda queue: f"Suspend the queue {queue}")


def _resume(invocation: Invocation) -> Iterator[Output]:
    return _change(invocation, "resume_queue", lambda queue: f"Resume the queue {queue}")


def _retry(invocation: Invocation) -> Iterator[Output]:
    if invocation.bound.flag("Resubmit"):
        return _change(invocation, RESUBMIT, lambda queue: f"Route the messages of the queue {queue} anew")
    return _change(invocation, "retry_queue", lambda queue: f"Try the queue {queue} now")


def _change(invocation: Invocation, verb: str, what: Callable[[str], str]) -> Iterator[Output]:
    session, wanted = invocation.session, conditions(invocation)
    meant: list[tuple[Named, str]] = []
    for named in change_meant(invocation, queues_meant(invocation)):
        if is_shadow(named.name):
            if verb != RESUBMIT:
                raise ShellError(
                    f"nothing is sent from {named}: it can be resubmitted, with Retry-Queue -Resubmit $true"
                )
            entries = shadow_queues(session, named, wanted)
            meant += [(Named(named.server, e["identity"]), queue_identity(named.server, e)) for e in entries]
            continue
        found = ask(session, named.server, "queues", queue=named.name, limit=MOST, conditions=wanted)
        meant += [(Named(named.server, str(e["identity"])), queue_identity(named.server, e)) for e in found]
    for queue, shown in meant:
        if invocation.what_if:
            session.talk.say(f"What if: {what(shown)}")
        elif invocation.agreed(f"{what(shown)}?"):
            if is_shadow(queue.name):
                ask(session, queue.server, "shadow_resubmit", primary=queue_of(queue.name))
            else:
                ask(session, queue.server, verb, queue=queue.name)
    return iter(())
