"""A client's certificate as the identity of its requests, where the virtual directory allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.access import tasks
from gatepost.access.http.exchange import Exchange
from gatepost.access.http.identity import Way
from gatepost.access.tls import client_certificate
from gatepost.organization.model import Protocol

if TYPE_CHECKING:
    from gatepost.access.http.asked import Asked
    from gatepost.access.http.client_leg import HttpClientLeg


def begin(leg: HttpClientLeg, asked: Asked) -> bool:
    """Judge the certificate that the connection has shown; whether there is one."""
    certificate = client_certificate(leg.transport)
    if not certificate:
        return False
    exchange = leg.exchange = Exchange(leg, asked)
    tasks.start(_check(exchange, certificate), f"{leg.session} sign-in")
    return True


async def _check(exchange: Exchange, certificate: bytes) -> None:
    from gatepost.access.http.front import judged  # it imports this module

    leg = exchange.leg
    started = leg.door.loop.time()
    result = await leg.door.sign_in.user_of_certificate(certificate, Protocol.HTTPS, leg.address[0])
    judged(exchange, result, started, way=Way.CERTIFICATE)
