"""How queues and messages look in answers to operators: plain values that msgspec can encode; times in seconds."""

from __future__ import annotations

from typing import Any

from gatepost.routing.next_hop import DeliveryType
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.queues.delivery_queue import DeliveryQueue
from gatepost.transport.queues.item import Item

OUTSIDE = frozenset({DeliveryType.DNS, DeliveryType.SMART_HOST})
"""Next hops that are external in the source system's words; all others are internal."""


def queue_entry(queue: DeliveryQueue, now: float) -> dict[str, Any]:
    """One queue. Rates are messages a second over the last minute; velocity is outgoing less incoming."""
    incoming, outgoing = queue.incoming.a_second(now), queue.outgoing.a_second(now)
    return {
        "identity": queue.identity,
        "delivery_type": queue.next_hop.delivery.value,
        "category": "External" if queue.next_hop.delivery in OUTSIDE else "Internal",
        "next_hop_domain": queue.next_hop.domain,
        "next_hop_connector": queue.next_hop.connector,
        "status": queue.status(now).value,
        "messages": len(queue),
        "deferred": queue.deferred,
        "connections": queue.connections,
        "last_error": queue.last_error,
        "last_retry": queue.last_retry,
        "next_retry": max(queue.retry_at, 0.0) if now < queue.retry_at else (queue.next_time() or 0.0),
        "retry_count": queue.failures,
        "sent": queue.sent,
        "incoming_rate": round(incoming, 3),
        "outgoing_rate": round(outgoing, 3),
        "velocity": round(outgoing - incoming, 3),
    }


def item_entry(queue: DeliveryQueue, item: Item, now: float) -> dict[str, Any]:
    """What is known of a message without its envelope."""
    status = "Suspended" if item.suspended else "Active" if queue.holds(item) else "Ready"
    if status == "Ready" and (item.due > now or now < queue.retry_at):
        status = "Retry"
    return {
        "number": item.number,
        "queue": queue.identity,
        "next_hop_domain": queue.next_hop.domain,
        "status": status,
        "size": item.size,
        "due": item.due,
        "attempts": item.attempts,
    }


def message_entry(queue: DeliveryQueue, item: Item, envelope: Envelope, now: float) -> dict[str, Any]:
    """One message's part in a queue: its recipients there, with the last word of a server."""
    recipients = [envelope.recipients[place] for place in item.recipients]
    return item_entry(queue, item, now) | {
        "from": envelope.sender,
        "message_id": envelope.message_id,
        "subject": envelope.subject,
        "size": envelope.size,
        "received": envelope.received,
        "expires": envelope.expires,
        "source": envelope.source.address,
        "user": envelope.source.user,
        "last_error": next((r.reply for r in recipients if r.reply), queue.last_error),
        "addresses": [recipient.address for recipient in recipients],
        "recipients": [
            {
                "address": recipient.address,
                "state": RecipientState(recipient.state).name.lower(),
                "reply": recipient.reply,
                "server": recipient.server,
            }
            for recipient in recipients
        ],
    }
