"""The rows of the connectivity log in the source system's form (SPEC T10, exchange-facts 4.2). No I/O, no clock.

A row is CSV: `date-time,session,source,Destination,direction,description`; `+` a session begins, `>` what it does, `-`
it ends. Names and replies in it are strangers': control characters are taken out and length is bounded.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from gatepost.balancing.healthy_server_selector import UnhealthyServer
from gatepost.balancing.target import Target

BEGINS = "+"
SAYS = ">"
ENDS = "-"

FIELDS = ("date-time", "session", "source", "Destination", "direction", "description")
SOFTWARE = "Gatepost"
FORMAT_VERSION = "15.0.0.0"
"""Of the log's form, as the source system has it since 2013; programs that read its logs look at it."""
MARKED_UNHEALTHY = "MarkedUnhealthy"
MAX_DESTINATION = 300
MAX_DESCRIPTION = 2000
"""Characters."""

# Control characters, and marks that turn the direction of writing, deceive whoever reads the log in a terminal.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def utc(now: float) -> str:
    """`2026-11-30T08:15:30.123Z`."""
    return f"{datetime.fromtimestamp(int(now * 1000) / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def header(now: float) -> bytes:
    """The head of a file that is begun at `now`."""
    lines = (
        f"#Software: {SOFTWARE}",
        f"#Version: {FORMAT_VERSION}",
        "#Log-Type: Transport Connectivity Log",
        f"#Date: {utc(now)}",
        f"#Fields: {','.join(FIELDS)}",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def row(now: float, session: str, destination: str, direction: str, description: str, source: str = "SMTP") -> bytes:
    """One line with its newline."""
    cells = (
        utc(now),
        session,
        source,
        _cell(destination, MAX_DESTINATION),
        direction,
        _cell(description, MAX_DESCRIPTION),
    )
    return f"{','.join(cells)}\n".encode()


def failed_connection(target: Target, error: str, server: UnhealthyServer | None) -> str:
    """The description of a failed attempt. `error` is `socket_errors.describe`'s; `server` the entry on the list."""
    text = f"Failed connection to {_address(target)} ({error})"
    if server is None:
        return text
    state = f"{MARKED_UNHEALTHY}|FailureCount:{server.failures}|NextRetryTime:{utc(server.next_retry)}"
    return f"{text}[TargetHost:{target.host}:{target.port}|{state}][TargetIPAddress:{_address(target)}|{state}]"


def established(target: Target) -> str:
    """The description of a connection that is open."""
    return f"Established connection to {_address(target)} ({target.host})"


def refused(target: Target, why: str) -> str:
    """The description of a server that did not want to serve; `why` is its reply."""
    return f"Refused by {_address(target)} ({target.host}): {why}"


def ended(messages: int, octets: int, why: str = "") -> str:
    """The description of a session's end; `why` is empty for a regular one."""
    return f"Messages: {messages} Bytes: {octets} ({why})"


def _address(target: Target) -> str:
    return f"[{target.ip}]:{target.port}" if ":" in target.ip else f"{target.ip}:{target.port}"


def _cell(text: str, limit: int) -> str:
    clean = _UNPRINTABLE.sub("?", text[:limit])
    if '"' in clean or "," in clean:
        return '"' + clean.replace('"', '""') + '"'
    return clean
