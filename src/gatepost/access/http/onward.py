"""After the sign-in: is it answered here, whose mailbox does it concern, and then on its way (SPEC C8, C10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.access.http.collected import Collected
from gatepost.access.http.other_mailbox import with_mailbox
from gatepost.organization.model import PathClass
from gatepost.wire.ews import MAX_BODY, availability_target, may_be_availability
from gatepost.wire.http_fields import passed_value
from gatepost.wire.mailbox_address import anchor_mailbox, explicit_logon

if TYPE_CHECKING:
    from gatepost.access.http.asked import Asked
    from gatepost.access.http.exchange import Exchange
    from gatepost.access.http.identity import Identity

AVAILABILITY = "as"
SOAP_SERVICES = frozenset({"ews", AVAILABILITY})


def go(exchange: Exchange, identity: Identity) -> None:
    """The request of `exchange` is from `identity`."""
    exchange.identity = identity
    leg = exchange.leg
    user = identity.user
    if user.name not in leg.users or not leg.settled:
        leg.count_user(user.name)
    exchange.mailbox = user.mailbox
    asked = exchange.asked
    if asked.kind is PathClass.INTERACTIVE:
        if "@" in asked.route and (address := explicit_logon(asked.route)) is not None:
            with_mailbox(exchange, user, address, exchange.enter)
            return
    elif asked.kind is PathClass.API and not _is_plain(exchange, asked):
        return
    exchange.enter()


def _is_plain(exchange: Exchange, asked: Asked) -> bool:
    """Whether a program's request can go on at once; otherwise it is answered, or waits for its body."""
    leg = exchange.leg
    if asked.service in SOAP_SERVICES:
        passed = leg.reader.passed
        if leg.reader.method == b"POST" and _may_ask_for_times(exchange, asked.service):
            Collected(leg, MAX_BODY, lambda body: _availability(exchange, body), exchange.user_name).start()
            return False
        if (anchor := passed_value(passed, b"x-anchormailbox")) is not None:
            address = anchor_mailbox(anchor)
            if address is not None:
                with_mailbox(exchange, exchange.identity.user, address, exchange.enter)
                return False
    elif leg.door.autodiscover.is_ours(exchange.identity.user, asked.route):
        exchange.over = True
        leg.door.autodiscover.collect(leg, exchange.identity.user, asked.route, asked.query)
        return False
    return True


def _may_ask_for_times(exchange: Exchange, service: str) -> bool:
    """Whether the body must be read to know whose server the request goes to; a longer one goes by its user's."""
    reader = exchange.leg.reader
    length = None if reader.chunked else reader.length
    if service == AVAILABILITY:
        return length is not None and length <= MAX_BODY
    action = passed_value(reader.passed, b"soapaction") or b""
    kind = passed_value(reader.passed, b"content-type") or b""
    return may_be_availability(action, kind, length) and (length is None or length <= MAX_BODY)


def _availability(exchange: Exchange, body: bytes) -> None:
    """By the mailbox that is asked about, request by request: no state, no affinity (SPEC B3)."""
    leg = exchange.leg
    leg.exchange = exchange
    exchange.collected = body
    address = availability_target(body)
    if address is not None:
        with_mailbox(exchange, exchange.identity.user, address, exchange.enter)
    else:
        exchange.enter()
