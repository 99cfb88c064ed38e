"""HTTP Bearer (RFC 6750): a token with the request, in its Authorization field and nowhere else.

Authorization: Bearer … ─► token_now ─► onward             (the same token with every request: a few µs)
                               └─► verifier, directory ─► onward | 401 invalid_token | 403 insufficient_scope | 503
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gatepost.access import tasks
from gatepost.access.http import onward
from gatepost.access.http.answers import quoted_realm
from gatepost.access.http.exchange import Exchange
from gatepost.access.http.identity import Identity, Way
from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import PathClass, Protocol

if TYPE_CHECKING:
    from gatepost.access.http.asked import Asked
    from gatepost.access.http.client_leg import HttpClientLeg

INVALID_TOKEN = b"invalid_token"
INSUFFICIENT_SCOPE = b"insufficient_scope"
INVALID_REQUEST = b"invalid_request"

_SCHEME = b"bearer"
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750 section 2.1."""
_HTTPS = Protocol.HTTPS


def read_bearer(value: bytes | None) -> str | None:
    """The token of an Authorization value; None where it is of another scheme, empty for one that is malformed."""
    if value is None:
        return None
    scheme, _, token = value.partition(b" ")
    if scheme.lower() != _SCHEME:
        return None
    token = token.strip(b" ")
    return token.decode("ascii") if _TOKEN.fullmatch(token) else ""


def challenge(leg: HttpClientLeg, asked: Asked | None, error: bytes = b"", scope: str = "") -> bytes:
    """The field that asks for a token (RFC 6750 section 3); empty where it would be of no use.

    A browser without a token could not get one from it. `error` is only for who has shown a token; `scope` is what it
    lacks, else what the protocol needs.
    """
    if asked is None or not asked.by_token or (asked.kind is PathClass.INTERACTIVE and not error):
        return b""
    scope = scope or leg.door.sign_in.token_help(_HTTPS).scope
    line = b'WWW-Authenticate: Bearer realm="%b"' % quoted_realm(leg.door.realm)
    if scope:
        line += b', scope="%b"' % scope.encode("ascii", "ignore").replace(b'"', b"").replace(b"\\", b"")
    if error:
        line += b', error="%b"' % error
    return line + b"\r\n"


def begin(leg: HttpClientLeg, asked: Asked, token: str) -> None:
    """Judge the request's token; then it goes on, or is refused."""
    from gatepost.access.http.front import judged  # it imports this module

    door = leg.door
    if not token:
        door.refused(leg, 400, "a malformed token")
        leg.answer(400, fields=challenge(leg, asked, INVALID_REQUEST))
        return
    exchange = leg.exchange = Exchange(leg, asked)
    result = door.sign_in.token_now("", token, _HTTPS, leg.address[0])
    if result is None:
        tasks.start(_check(exchange, token), f"{leg.session} sign-in")
    elif result.verdict is Verdict.SIGNED_IN:
        onward.go(exchange, identity(leg, result, token))
    else:
        judged(exchange, result, door.loop.time(), token=token)


async def _check(exchange: Exchange, token: str) -> None:
    from gatepost.access.http.front import judged

    door = exchange.leg.door
    started = door.loop.time()
    result = await door.sign_in.token("", token, _HTTPS, exchange.leg.address[0])
    judged(exchange, result, started, token=token)


def identity(leg: HttpClientLeg, result: SignInResult, token: str) -> Identity:
    """The same object while nothing changes, so that what was worked out for it still stands."""
    user = result.user
    assert user is not None
    known = leg.identity
    if known is None or known.user is not user or known.token != token:
        known = leg.identity = Identity(user, Way.BEARER, token=token, audiences=result.audiences)
    return known


def refuse_for_scope(exchange: Exchange, result: SignInResult) -> None:
    """403: the token is good, but not for this; with another one the user may come in (RFC 6750 section 3.1)."""
    leg, asked = exchange.leg, exchange.asked
    exchange.end()
    leg.door.refused(leg, 403, result.reason)
    leg.answer(403, fields=challenge(leg, asked, INSUFFICIENT_SCOPE, result.lacks))
