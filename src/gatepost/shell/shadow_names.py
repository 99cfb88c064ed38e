"""Shadow queues in the source system's words (exchange-facts 4.6): they look like queues, and are named apart.

queue    [SERVER\\]Shadow\\NUMBER, or [SERVER\\]Shadow for all; * as SERVER for all hubs of this machine
message  [SERVER\\]Shadow\\NUMBER\\NUMBER
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gatepost.organization.model import Organization
from gatepost.shell.queue_names import EVERY, MOST, Named, ask
from gatepost.shell.session import Session
from gatepost.transport.operator_filter import MESSAGE_PROPERTIES, QUEUE_PROPERTIES, Filter

SHADOW = "Shadow"
DELIVERY_TYPE = "ShadowRedundancy"
NO_CONNECTOR = "00000000-0000-0000-0000-000000000000"
Conditions = Sequence[Sequence[object]]


def is_shadow(name: str) -> bool:
    """Whether a queue's name, without its server, is that of shadow queues."""
    return name.partition("\\")[0].casefold() == SHADOW.casefold()


def queue_of(name: str) -> str:
    """The number in `Shadow\\3`, or `*`."""
    return name.split("\\")[1] if "\\" in name else EVERY


def shadow_queues(session: Session, named: Named, conditions: Conditions) -> list[dict[str, Any]]:
    """The shadow queues of a name, as entries of queues. Raises `ShellError`."""
    fits = Filter(conditions, QUEUE_PROPERTIES)
    found = ask(session, named.server, "shadow_queues", primary=queue_of(named.name))
    entries = [queue_entry(session.organization, entry) for entry in found]
    return [entry for entry in entries if fits(entry)]


def shadow_messages(session: Session, named: Named, most: int, conditions: Conditions) -> list[dict[str, Any]]:
    """The messages of `Shadow\\3\\17`, `Shadow\\3\\*`, as entries of messages. Raises `ShellError`."""
    parts = named.name.split("\\")
    number = parts[2] if len(parts) > 2 else EVERY
    arguments = {"message": int(number)} if number.isdecimal() else {}
    limit = MOST if conditions else most
    found = ask(session, named.server, "shadow_messages", primary=queue_of(named.name), limit=limit, **arguments)
    fits = Filter(conditions, MESSAGE_PROPERTIES)
    entries = [message_entry(session.organization, entry) for entry in found]
    return [entry for entry in entries if fits(entry)][:most]


def queue_entry(organization: Organization, entry: dict[str, Any]) -> dict[str, Any]:
    """A shadow queue with the keys of any queue (`transport.operator_entries`)."""
    return {
        "identity": f"{SHADOW}\\{entry['number']}",
        "delivery_type": DELIVERY_TYPE,
        "category": "Internal",
        "next_hop_domain": fqdn_of(organization, entry["server"]),
        "next_hop_connector": NO_CONNECTOR,
        "status": entry["status"],
        "messages": entry["messages"],
        "deferred": 0,
        "connections": 0,
        "last_error": f"heartbeats that failed: {entry['failures']}" if entry["failures"] else "",
        "last_retry": entry["heard"],
        "next_retry": entry["next_heartbeat"],
        "retry_count": entry["failures"],
        "sent": 0,
        "incoming_rate": 0.0,
        "outgoing_rate": 0.0,
        "velocity": 0.0,
    }


def message_entry(organization: Organization, entry: dict[str, Any]) -> dict[str, Any]:
    """A shadow with the keys of any message."""
    recipients = entry["recipients"]
    return {
        **entry,
        "queue": f"{SHADOW}\\{entry['queue']}",
        "next_hop_domain": fqdn_of(organization, entry["server"]),
        "status": "Ready",
        "attempts": 0,
        "source": "",
        "user": "",
        "last_error": next((each["reply"] for each in recipients if each["reply"]), ""),
    }


def fqdn_of(organization: Organization, server: str) -> str:
    """The primary's full host name; one that has gone has its name only."""
    found = organization.servers.get(server)
    return found.fqdn if found is not None else server
