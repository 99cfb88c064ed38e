"""HTTP Negotiate (RFC 4559): a Kerberos ticket with the request. Each request shows its own; no connection is trusted.

Authorization: Negotiate … ─► accept ─► onward, and our token beside the answer (mutual authentication)
                                  └─► another round: 401 with our token; the client's next is on this connection
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

from gatepost.access import tasks
from gatepost.access.http.exchange import Exchange
from gatepost.access.http.identity import Way
from gatepost.directory.kerberos_port import NO_KERBEROS, Accepted, Challenge, KerberosExchange
from gatepost.directory.port import Verdict
from gatepost.organization.model import Protocol

if TYPE_CHECKING:
    from gatepost.access.http.asked import Asked
    from gatepost.access.http.client_leg import HttpClientLeg

_SCHEME = b"negotiate "
_OTHER = b"ntlm "
OFFER = b"WWW-Authenticate: Negotiate\r\n"
NTLM = "NTLM is not accepted"


def read_negotiate(value: bytes | None) -> bytes | None:
    """The token of an Authorization value; None where it is of another scheme, empty for one that is no base64."""
    if value is None or value[: len(_SCHEME)].lower() != _SCHEME:
        return None
    try:
        return binascii.a2b_base64(value[len(_SCHEME) :].strip(), strict_mode=True)
    except binascii.Error:
        return b""


def is_ntlm(value: bytes | None) -> bool:
    """Whether the client tries NTLM, which nobody offered."""
    return value is not None and value[: len(_OTHER)].lower() == _OTHER


def begin(leg: HttpClientLeg, asked: Asked, token: bytes) -> None:
    """Judge the request's ticket; then it goes on, or is refused."""
    kerberos = leg.door.sign_in.kerberos
    dialogue, leg.negotiation = leg.negotiation, None
    if dialogue is None and kerberos is not None:
        dialogue = kerberos.begin(Protocol.HTTPS, leg.address[0])
    exchange = leg.exchange = Exchange(leg, asked)
    tasks.start(_check(exchange, dialogue, token), f"{leg.session} sign-in")


async def _check(exchange: Exchange, dialogue: KerberosExchange | None, token: bytes) -> None:
    from gatepost.access.http.front import judged  # it imports this module

    leg = exchange.leg
    door = leg.door
    started = door.loop.time()
    outcome = NO_KERBEROS if dialogue is None else await dialogue.step(token)
    if isinstance(outcome, Challenge):
        if not exchange.over:
            exchange.end()
            leg.negotiation = dialogue
            leg.answer(401, fields=_line(outcome.token))
        return
    if isinstance(outcome, Accepted):
        answer, outcome = outcome.token, await door.sign_in.user_of_ticket(outcome.name, Protocol.HTTPS, leg.address[0])
        if outcome.verdict is Verdict.SIGNED_IN and answer:
            exchange.add_fields(_line(answer))
    judged(exchange, outcome, started, way=Way.NEGOTIATE)


def _line(token: bytes) -> bytes:
    return b"WWW-Authenticate: Negotiate %b\r\n" % binascii.b2a_base64(token, newline=False)
