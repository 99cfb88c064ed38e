"""Cmdlets for the safety net: requests to deliver again (SPEC S, V1; exchange-facts 4.5, 5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.queue_names import SERVER, ask, server_meant
from gatepost.shell.things import Cell, Thing
from gatepost.transport.operator_filter import shown_time

_SHOWN = ("Identity", "Server", "Destination", "StartTime", "EndTime", "State")


def resubmit_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    return [
        Cmdlet(
            "Get-ResubmitRequest",
            "Show the requests to deliver again what the safety net has.",
            _get,
            (Parameter("Identity", Kind.TEXT, "One request.", 0), SERVER),
        ),
        Cmdlet(
            "Add-ResubmitRequest",
            "Have all hubs of a database's sites deliver again what they have for it.",
            _add,
            (
                Parameter("Destination", Kind.TEXT, "The database whose mailboxes get it."),
                Parameter("StartTime", Kind.TEXT, 'Delivered from then on: "2026-11-30 16:00".'),
                Parameter("EndTime", Kind.TEXT, "Delivered up to then."),
                SERVER,
            ),
            changes=True,
        ),
    ]


def _get(invocation: Invocation) -> Iterator[Output]:
    server, wanted = server_meant(invocation), invocation.bound.text("Identity")
    found = ask(invocation.session, server, "safety_net")["requests"]
    chosen = [entry for entry in found if wanted is None or entry["request"] == wanted]
    if wanted is not None and not chosen:
        raise ShellError(f"{server} knows no request {wanted}")
    for entry in chosen:
        yield _thing(server, entry)


def _thing(server: str, entry: dict[str, Any]) -> Thing:
    properties: dict[str, Cell] = {
        "Identity": entry["request"],
        "Server": server,
        "Destination": entry["database"],
        "StartTime": shown_time(entry["since"]),
        "EndTime": shown_time(entry["until"]),
        "CreationTime": shown_time(entry["asked"]),
        "State": "Completed" if entry["state"] == "done" else "Running",
        "MessageCount": entry["redelivered"],
        "UnresponsiveServers": tuple(entry["not_reached"]),
    }
    return Thing("ResubmitRequest", properties, _SHOWN)


def _add(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    database, since, until = (bound.need(name) for name in ("Destination", "StartTime", "EndTime"))
    server = server_meant(invocation)
    first, last = _time("StartTime", since), _time("EndTime", until)
    what = f"Deliver again what {database} got from {since} to {until}"
    if invocation.what_if:
        session.talk.say(f"What if: {what}")
    elif invocation.agreed(f"{what}?"):
        found = ask(session, server, "safety_net_redeliver", database=database, since=first, until=last)
        for entry in found["hubs"]:
            if "error" in entry:
                session.talk.warn(f"{entry['hub']} is told when it can be reached: {entry['error']}")
        requests = ask(session, server, "safety_net")["requests"]
        for entry in requests:
            if entry["request"] == found["request"]:
                yield _thing(server, entry)


def _time(parameter: str, text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ShellError(f'-{parameter} takes a time such as "2026-11-30 16:00", not {text!r}') from None
