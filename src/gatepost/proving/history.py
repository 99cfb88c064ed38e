"""What clients met while databases moved, and what it comes to. Pure: no socket, no clock, so that it can be tried out.

All moments are of one monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

GOAL_SECONDS = 2.0
"""p99 from "B is active" to a session's first successful command there (SPEC A1, A2)."""
GOAL_DETECTION_SECONDS = 3.0
"""From a server's death to "B is active"."""
GOAL_CARRIED = 0.95
"""Share of idle IMAP sessions that notice nothing of a planned move."""


class Kind(StrEnum):
    """Scripts that clients run."""

    IMAP_IDLE = "imap_idle"
    IMAP_BUSY = "imap_busy"
    POP3 = "pop3"
    HTTP = "http"
    HTTP_POLL = "http_poll"
    SUBMISSION = "submission"


class What(StrEnum):
    """What an event tells of."""

    SIGNED_IN = "signed in"
    OK = "ok"
    """A command's or request's success; `server` is who answered, empty where the protocol does not tell."""
    ENDED = "ended"
    """The connection ended though the client had not asked for it; `detail` is the last word."""
    REFUSED = "refused"
    """Told to come back later, in the protocol's words for that."""
    WRONG = "wrong"
    """An error of a wrong kind: wrong password, no such mailbox, somebody else's data, words nobody understands."""
    ACKNOWLEDGED = "acknowledged"
    """An APPEND or a submission was; `detail` is its Message-ID."""
    IN_DOUBT = "in doubt"
    """One of which no answer came: the message may be there once, or not."""


class Event(NamedTuple):
    """One thing that a client met, on its connection number `connection`."""

    at: float
    client: str
    what: str
    connection: int = 0
    server: str = ""
    detail: str = ""
    asked: float = 0.0
    """When the client had asked, of an answer that names its server; `at` is when it came to read the answer."""


class Client(NamedTuple):
    """Who ran which script, and where the mailbox is."""

    name: str
    kind: str
    user: str
    database: str


@dataclass(frozen=True)
class Moved:
    """One change of a database's active copy."""

    database: str
    old: str
    new: str
    active_at: float
    """When the registry had the new one."""
    fenced_at: float = math.inf
    """When nobody may be on the old server any more."""
    killed_at: float | None = None
    """When the old server was killed; None: a planned move."""
    listed_left: int = 0
    """Sessions that the front ends listed at the old server after the fence."""


@dataclass
class History:
    """All that was seen."""

    clients: Sequence[Client]
    events: Sequence[Event]
    moves: Sequence[Moved]
    stored: Mapping[str, Counter[str]] = field(default_factory=dict)
    """By user: how often each Message-ID is in the mailbox afterwards."""
    relayed: Mapping[str, Counter[str]] = field(default_factory=dict)
    """By user: how often each Message-ID came to the relay behind the mailbox servers, whole."""
    connected_left: int = 0
    """Connections at the old server after the last fence, by the kernel."""
    sign_ins: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By server: when its log has a sign-in, in whole seconds of the wall clock."""


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that `share` of all values are not above; None without values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def evaluate(history: History) -> dict[str, Any]:
    """The figures. `wrong_kind_errors` and `left_on_old` are counts; times are seconds."""
    by_client: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(history.events, key=lambda event: event.at):
        by_client[event.client].append(event)
    appends = judge_messages(history, Kind.IMAP_BUSY, history.stored)
    submissions = judge_messages(history, Kind.SUBMISSION, history.relayed)
    protocols = {kind.value: _protocol(history, by_client, kind) for kind in Kind}
    wrong = [event for event in history.events if event.what == What.WRONG]
    late = _late_at_old(history, by_client)
    listed = sum(move.listed_left for move in history.moves)
    detection = [move.active_at - move.killed_at for move in history.moves if move.killed_at is not None]
    return {
        "wrong_kind_errors": len(wrong) + sum(m["lost"] + m["duplicate"] for m in (appends, submissions)),
        "wrong": dict(Counter(event.detail for event in wrong).most_common(10)),
        "appends": appends,
        "submissions": submissions,
        "left_on_old": max(listed, history.connected_left, len(late)),
        "left": {"listed": listed, "connected": history.connected_left, "answered_late": sorted(late)[:10]},
        "detection_seconds": _rounded(max(detection)) if detection else None,
        "peak_sign_ins_per_second": max(
            (max(Counter(map(int, times)).values(), default=0) for times in history.sign_ins.values()), default=0
        ),
        "protocols": {name: found for name, found in protocols.items() if found["sessions"]},
    }


def judge_messages(history: History, kind: Kind, arrived: Mapping[str, Counter[str]]) -> dict[str, int]:
    """What became of the messages of one script. `arrived`: by user, how often each Message-ID is there.

    One in doubt may be there once or not; one twice is wrong in any case.
    """
    users = {client.name: client.user for client in history.clients if client.kind == kind}
    found = {"acknowledged": 0, "in_doubt": 0, "in_doubt_stored": 0, "lost": 0, "duplicate": 0}
    for event in history.events:
        if event.what not in {What.ACKNOWLEDGED, What.IN_DOUBT} or event.client not in users:
            continue
        times = arrived.get(users[event.client], Counter())[event.detail]
        if event.what == What.ACKNOWLEDGED:
            found["acknowledged"] += 1
            found["lost"] += times == 0
        else:
            found["in_doubt"] += 1
            found["in_doubt_stored"] += times > 0
        found["duplicate"] += times > 1
    return found


def _late_at_old(history: History, by_client: Mapping[str, Sequence[Event]]) -> set[str]:
    """Clients whom the old server answered what they asked after the fence."""
    return {
        client.name
        for move in history.moves
        for client in history.clients
        if client.database == move.database
        for event in by_client.get(client.name, ())
        if event.what == What.OK and event.server == move.old and move.fenced_at < event.asked < _next(history, move)
    }


def _next(history: History, move: Moved) -> float:
    """When the database moved again."""
    later = (m.active_at for m in history.moves if m.database == move.database and m.active_at > move.active_at)
    return min(later, default=math.inf)


class _Came(NamedTuple):
    seconds: float | None
    """From "B is active" to the first success there; None: none came."""
    carried: bool
    """On the connection that was there before."""


def _came(events: Sequence[Event], move: Moved) -> _Came | None:
    """How one client came to the new server; None for one that was not at work before."""
    before = [e for e in events if e.at <= (move.killed_at or move.active_at) and e.what == What.OK]
    if not before:
        return None
    signed_in = {e.connection: e.at for e in events if e.what == What.SIGNED_IN}
    for event in events:
        if event.at < move.active_at or event.what != What.OK:
            continue
        # Where the protocol does not say who answers, a connection signed in after the move is at the new server.
        there = event.server == move.new if event.server else signed_in.get(event.connection, 0.0) >= move.active_at
        if there:
            return _Came(event.at - move.active_at, event.connection == before[-1].connection)
    return _Came(None, False)


def _protocol(history: History, by_client: Mapping[str, Sequence[Event]], kind: Kind) -> dict[str, Any]:
    clients = [client for client in history.clients if client.kind == kind]
    came = [
        found
        for move in history.moves
        for client in clients
        if client.database == move.database
        if (found := _came(by_client.get(client.name, ()), move)) is not None
    ]
    times = [one.seconds for one in came if one.seconds is not None]
    counts = Counter(event.what for client in clients for event in by_client.get(client.name, ()))
    return {
        "sessions": len(clients),
        "concerned": len(came),
        "p50": _rounded(percentile(times, 0.5)),
        "p99": _rounded(percentile(times, 0.99)),
        "max": _rounded(max(times, default=None)),
        "never_back": len(came) - len(times),
        "carried_share": _rounded(sum(one.carried for one in came) / len(came)) if came else None,
        "ended": counts[What.ENDED],
        "refused": counts[What.REFUSED],
        "wrong": counts[What.WRONG],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def missed_goals(report: Mapping[str, Any], *, kill: bool) -> list[str]:
    """The goals that the figures of `evaluate` miss, in words; none: all are kept."""
    missed = []
    if report["wrong_kind_errors"]:
        missed.append(f"{report['wrong_kind_errors']} errors of a wrong kind")
    if report["left_on_old"]:
        missed.append(f"{report['left_on_old']} left on the old server")
    concerned = sum(found["concerned"] for found in report["protocols"].values())
    if not concerned:
        missed.append("no session was at work before the move")
    for name, found in report["protocols"].items():
        if not found["concerned"] and concerned:
            missed.append(f"{name}: no session was at work before the move")
        elif found["never_back"]:
            missed.append(f"{name}: {found['never_back']} never at work again")
        if found["p99"] is not None and found["p99"] >= GOAL_SECONDS:
            missed.append(f"{name}: p99 {found['p99']:g} s, not under {GOAL_SECONDS:g} s")
    if kill:
        detection = report["detection_seconds"]
        if detection is None or detection > GOAL_DETECTION_SECONDS:
            missed.append(f"detection took {detection} s, over {GOAL_DETECTION_SECONDS:g} s")
    else:
        share = report["protocols"].get(Kind.IMAP_IDLE, {}).get("carried_share")
        if share is not None and share < GOAL_CARRIED:
            missed.append(f"{share:.1%} of idle IMAP sessions carried over, not {GOAL_CARRIED:.0%}")
    return missed


def summary(report: Mapping[str, Any], missed: Iterable[str], *, kill: bool) -> str:
    """One line."""
    protocols: Mapping[str, Mapping[str, Any]] = report["protocols"]
    sessions = sum(found["sessions"] for found in protocols.values())
    worst = max((found["p99"] for found in protocols.values() if found["p99"] is not None), default=None)
    how = f"kill -9, detected in {report['detection_seconds']} s" if kill else "planned"
    parts = [
        f"{sessions} sessions, {how}: worst p99 {worst} s after the new copy was active",
        f"{report['wrong_kind_errors']} wrong-kind errors",
        f"{report['left_on_old']} left on the old server",
    ]
    if not kill and Kind.IMAP_IDLE in protocols:
        parts.append(f"{protocols[Kind.IMAP_IDLE]['carried_share'] or 0:.1%} of idle IMAP carried over unseen")
    found = list(missed)
    return ", ".join(parts) + (f"; MISSED: {'; '.join(found)}" if found else "; all goals kept")
