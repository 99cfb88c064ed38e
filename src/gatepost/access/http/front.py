"""The first steps of a request: is it well formed, is it one that we answer ourselves, whose is it?

begin ─► (assertion | cookie | Negotiate | Bearer | certificate | Basic) ─► onward.go: what is asked for, where to
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.access import tasks
from gatepost.access.http import bearer, certificate, health_page, negotiate, onward, well_known
from gatepost.access.http.answers import RETRY_AFTER, challenge
from gatepost.access.http.asked import Asked
from gatepost.access.http.basic import read_basic
from gatepost.access.http.exchange import Exchange
from gatepost.access.http.forwarded import forwarded_lines
from gatepost.access.http.identity import Identity, Way
from gatepost.directory.port import DirectoryUnavailable, SignInResult, Verdict
from gatepost.directory.signed_in import not_allowed
from gatepost.organization.model import Protocol
from gatepost.wire.http_cookies import SIGN_IN, take_own
from gatepost.wire.http_head import HeadFault, split_target

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.forms.signed import Signed

_HTTPS = Protocol.HTTPS
_SIGNED_IN = Verdict.SIGNED_IN


def begin(leg: HttpClientLeg) -> None:
    """Start on the request that `leg.reader` holds. Raises `HeadFault` when it must be refused as malformed."""
    reader = leg.reader
    door = leg.door
    kept = reader.kept
    host = kept.get(b"host")
    expect = kept.get(b"expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise HeadFault(417, "unknown expectation")
    # Clients ask the same of the same host again and again.
    if reader.target == leg.asked_target and host == leg.asked_host and leg.asked_under is door.configuration:
        asked = leg.asked
    else:
        asked = _read_target(leg, host)
    if asked is None:
        leg.answer(204 if reader.method == b"OPTIONS" else 400)
        return
    if not leg.tls and not door.clear_passwords:
        leg.answer(308, b"", fields=b"Location: %b%b%b\r\n" % (door.secure_origin(host), asked.path, asked.query))
        return
    cookie = kept.get(b"cookie")
    if cookie != leg.cookie_field:
        _read_cookies(leg, cookie)
    if not asked.ours or not _answered_by_us(leg, asked):
        _identify(leg, asked)


def _read_target(leg: HttpClientLeg, host: bytes | None) -> Asked | None:
    """What the request asks for; None: the server itself (`*`). Raises `HeadFault`."""
    reader, door = leg.reader, leg.door
    target = split_target(reader.target, host, http_1_0=reader.http_1_0)
    if leg.asked_under is not door.configuration or host != leg.asked_host:
        leg.origin = b"%b://%b" % (b"https" if leg.tls else b"http", host or door.default_host)
        if not leg.is_peer:
            leg.forwarded = forwarded_lines(leg.address[0], host or door.default_host, tls=leg.tls)
    leg.asked = None if target == b"*" else Asked(door, target)
    leg.asked_target, leg.asked_host, leg.asked_under = reader.target, host, door.configuration
    return leg.asked


def _answered_by_us(leg: HttpClientLeg, asked: Asked) -> bool:
    """Pages that need nobody signed in. Peers ask for none of them but health."""
    route, query = asked.route, asked.query
    if health_page.concerns(route) and health_page.answer(leg, route):
        return True
    if leg.is_peer:
        return False
    if leg.door.forms.concerns(route) and leg.door.forms.answer(leg, route, query):
        return True
    return well_known.concerns(route) and well_known.answer(leg, route, query)


def _read_cookies(leg: HttpClientLeg, field: bytes | None) -> None:
    """Take our own cookies out: servers never see them."""
    leg.cookie_field = field
    leg.cookies, leg.own_cookies = (b"", {}) if field is None else take_own(field)
    leg.signed = None


def _identify(leg: HttpClientLeg, asked: Asked) -> None:
    """Whose request is it? Everything from here on has somebody to answer for it."""
    door = leg.door
    if leg.is_peer:
        asserted = leg.peer_identity()
        if asserted is not None:
            leg.exchange = Exchange(leg, asked)
            onward.go(leg.exchange, asserted)
        return
    value = leg.own_cookies.get(SIGN_IN, b"")
    if value and asked.by_cookie and _by_cookie(leg, value, asked):
        return
    authorization = leg.reader.kept.get(b"authorization")
    if authorization is not None and asked.by_ticket:
        token = negotiate.read_negotiate(authorization)
        if token is not None:
            negotiate.begin(leg, asked, token)
            return
    if authorization is not None and asked.by_token:
        bearer_token = bearer.read_bearer(authorization)
        if bearer_token is not None:
            bearer.begin(leg, asked, bearer_token)
            return
    if authorization is None or authorization != leg.authorization:
        leg.authorization = authorization
        leg.credentials = read_basic(authorization)
    credentials = leg.credentials
    # Some clients send a name with an empty password beside their certificate.
    if asked.by_certificate and not (credentials and credentials[1]) and certificate.begin(leg, asked):
        return
    if credentials is None or not asked.by_password:
        if asked.page is None or not door.forms.ask(leg, asked.path, asked.query, door.forms.why(value)):
            ntlm = negotiate.is_ntlm(authorization)
            ask_to_sign_in(leg, negotiate.NTLM if ntlm else "no credentials", judged=ntlm)
        return
    exchange = leg.exchange = Exchange(leg, asked)
    name, password = credentials
    result = door.sign_in.password_now(name, password, _HTTPS, leg.address[0], asked.service)
    if result is None:
        tasks.start(_check(exchange, credentials), f"{leg.session} sign-in")
    elif result.verdict is _SIGNED_IN:
        onward.go(exchange, _identity(leg, result, password))
    else:
        judged(exchange, result, door.loop.time(), password)


def _by_cookie(leg: HttpClientLeg, value: bytes, asked: Asked) -> bool:
    """Whether the sign-in cookie says whose request it is; False: it is void."""
    forms = leg.door.forms
    now = forms.clock()
    signed = leg.signed
    if signed is None or not forms.still_good(signed, now):
        signed = leg.signed = forms.identity(leg, value)
        if signed is None:
            return False
    exchange = leg.exchange = Exchange(leg, asked)
    if signed.result.asking:
        tasks.start(_by_cookie_later(exchange, signed.session.user), f"{leg.session} look-up")
    else:
        _by_session(exchange, signed, now)
    return True


async def _by_cookie_later(exchange: Exchange, name: str) -> None:
    """The directory is elsewhere and did not yet tell of the user: once it has, judge the request from the start."""
    leg, asked = exchange.leg, exchange.asked
    await leg.door.sign_in.learn(name)
    if exchange.over:
        return
    value = leg.own_cookies.get(SIGN_IN, b"")
    signed = leg.signed = leg.door.forms.identity(leg, value)
    if signed is not None:
        _by_session(exchange, signed, leg.door.forms.clock())
    else:
        exchange.over, leg.exchange = True, None
        _identify(leg, asked)


def _by_session(exchange: Exchange, signed: Signed, now: float) -> None:
    """The user of a sign-in that lasts; where this client is, they may not be allowed."""
    leg, asked, user = exchange.leg, exchange.asked, signed.result.user
    door = leg.door
    if signed.identity is None or user is None:
        judged(exchange, signed.result, door.loop.time(), "")
    elif not door.sign_in.policy.allows(user, _HTTPS, leg.address[0]):
        judged(exchange, not_allowed(user), door.loop.time(), "")
    else:
        exchange.add_fields(door.forms.renewal(signed, asked.query, now))
        onward.go(exchange, signed.identity)


def _identity(leg: HttpClientLeg, result: SignInResult, password: str) -> Identity:
    """The same object while nothing changes, so that what was worked out for it still stands."""
    user = result.user
    assert user is not None
    known, number = leg.identity, result.app_password
    if number:
        password = ""
    if known is None or known.user is not user or known.password != password or known.app_password != number:
        way = Way.BY_APP if number else Way.BASIC
        known = leg.identity = Identity(user, way, password, app_password=number)
    return known


def _without_password(result: SignInResult, way: Way) -> Identity:
    assert result.user is not None
    return Identity(result.user, way)


async def _check(exchange: Exchange, credentials: tuple[str, str]) -> None:
    door = exchange.leg.door
    started = door.loop.time()
    try:
        client, service = exchange.leg.address[0], exchange.asked.service
        result = await door.sign_in.password(credentials[0], credentials[1], _HTTPS, client, service)
    except DirectoryUnavailable as error:
        result = SignInResult(Verdict.UNAVAILABLE, reason=str(error))
    judged(exchange, result, started, credentials[1])


def judged(
    exchange: Exchange,
    result: SignInResult,
    started: float,
    password: str = "",
    *,
    token: str = "",
    way: Way = Way.BASIC,
) -> None:
    """The credentials have been judged: on with the request, or its refusal."""
    if exchange.over:
        return
    leg = exchange.leg
    verdict = result.verdict
    if verdict is _SIGNED_IN:
        if token:
            onward.go(exchange, bearer.identity(leg, result, token))
        else:
            onward.go(
                exchange, _identity(leg, result, password) if way is Way.BASIC else _without_password(result, way)
            )
    elif verdict is Verdict.WRONG_CREDENTIALS:
        # The same time for a wrong password and an unknown user, whatever the check took; nobody else waits.
        door = leg.door
        error = bearer.INVALID_TOKEN if token else b""
        door.loop.call_at(started + door.limits.refused_sign_in_delay_seconds, _wrong, exchange, result.reason, error)
    elif verdict is Verdict.BUSY:
        # Whoever fills the queue gains nothing by asking more often.
        door = leg.door
        door.loop.call_at(started + door.limits.refused_sign_in_delay_seconds, _busy, exchange, result.reason)
    elif result.lacks:
        bearer.refuse_for_scope(exchange, result)
    elif verdict is Verdict.PROTOCOL_NOT_ALLOWED:
        exchange.refuse(403, result.reason or verdict.value)
    else:
        exchange.refuse(503, result.reason or verdict.value)


def _wrong(exchange: Exchange, reason: str, token_error: bytes) -> None:
    if not exchange.over:
        exchange.end()
        ask_to_sign_in(exchange.leg, reason or "wrong credentials", judged=True, token_error=token_error)


def _busy(exchange: Exchange, reason: str) -> None:
    """Temporary, but a connection that nobody has signed in on ends with it: those that guess must come again."""
    if not exchange.over:
        exchange.end()
        leg = exchange.leg
        leg.door.busy(leg, reason or Verdict.BUSY.value)
        leg.answer(503, fields=RETRY_AFTER, close=not leg.settled)


def ask_to_sign_in(leg: HttpClientLeg, reason: str, *, judged: bool = False, token_error: bytes = b"") -> None:
    """401, the only place that says it: credentials are missing or were `judged` wrong.

    Asks by every way that counts there: a ticket, a token, Basic. `token_error` says what was wrong with a token.
    """
    asked = leg.asked
    leg.door.refused(leg, 401, reason, judged=judged)
    offer = negotiate.OFFER if asked is not None and asked.by_ticket else b""
    leg.answer(401, fields=offer + bearer.challenge(leg, asked, token_error) + challenge(leg.door.realm))
