"""Judges bearer tokens of several issuers (RFC 7519, RFC 8725, RFC 9068).

    token ── who says to have issued it? ──► keys ── signature, times, audience, type ──┐
                                       └──► introspection ── active, times, audience ───┴─► user, scopes

What a token says of itself chooses the issuer and nothing more: which keys, algorithms and types count is the issuer's
entry. So a key of one issuer never verifies a token of another, `none` and a public key as a shared secret fail, and
`jku`, `x5u` and `jwk` are not looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jwt
import structlog

from gatepost.directory.port import JudgedToken, TokenVerifierUnavailable
from gatepost.directory.settings import TokenIssuer, TokenMethod
from gatepost.directory.tokens.claims import LEEWAY_SECONDS, audiences, bad, judge, moment
from gatepost.directory.tokens.introspection import Introspection
from gatepost.directory.tokens.issuer_client import IssuerClient, metadata_url
from gatepost.directory.tokens.issuer_keys import IssuerKeys
from gatepost.directory.tokens.key_set import KeySet
from gatepost.organization.model import Protocol
from gatepost.wire.events import TokenHelp

MAX_TOKEN_CHARACTERS = 16384
"""Bearer tokens pass 12 kB (field case 53); a longer one is not looked at."""
MAX_KID = 256

ClientFactory = Callable[[TokenIssuer], IssuerClient]


class _Judge:
    """One issuer with what asks it."""

    def __init__(self, settings: TokenIssuer, client: IssuerClient, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.client = client
        by_keys = settings.method is TokenMethod.KEYS
        self.keys = IssuerKeys(settings, client, clock) if by_keys else None
        self.introspection = None if by_keys else Introspection(settings, client, clock)
        self.types = {name.casefold() for name in settings.token_types}


class Tokens:
    """The `TokenVerifier` of a worker. Belongs to the loop it is made in.

    `clock`: seconds, monotonic; `now`: seconds, as `time.time`; `make_client` is for tests.
    """

    def __init__(
        self,
        issuers: Sequence[TokenIssuer],
        default_domain: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        make_client: ClientFactory = IssuerClient,
    ) -> None:
        """Raises ValueError when the key of an issuer cannot be used."""
        self._default_domain = default_domain
        self._now = now
        self._judges = {each.issuer: _Judge(each, make_client(each), clock) for each in issuers}
        self._opaque = next((each for each in self._judges.values() if each.introspection is not None), None)
        """Who is asked about tokens that do not say who has issued them: one alone, since they are secrets."""
        self._closing: asyncio.Future[Any] | None = None
        self._log = structlog.get_logger("gatepost")

    def start(self) -> None:
        """Fetch what is needed ahead of the first token. Faults are logged, not raised: it may come."""
        for each in self._judges.values():
            if each.keys is not None:
                each.keys.start()

    def close(self) -> None:
        """See `TokenVerifier`."""
        if self._closing is not None:
            return
        for each in self._judges.values():
            for part in (each.keys, each.introspection):
                if part is not None:
                    part.close()
        self._closing = asyncio.gather(*(each.client.close() for each in self._judges.values()))

    async def wait_closed(self) -> None:
        """Until the connections are closed, after `close`."""
        if self._closing is not None:
            await self._closing

    def help(self, protocol: Protocol) -> TokenHelp:
        """See `TokenVerifier`: the first issuer's."""
        first = next(iter(self._judges.values())).settings
        return TokenHelp(" ".join(first.needed(protocol.value)), "" if first.key else metadata_url(first.issuer))

    async def verify(self, token: str, protocol: Protocol) -> JudgedToken:
        """See `TokenVerifier`. By keys that are known it takes about 0.2 ms on the loop and does not wait."""
        if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
            return bad("no token that anybody issues")
        said = _look(token)
        issuer = said[1].get("iss") if said is not None else None
        one = self._opaque if issuer is None else self._judges.get(issuer) if isinstance(issuer, str) else None
        if one is None:
            return bad("the token is of no issuer that is taken here")
        if one.introspection is not None:
            return await self._by_introspection(one, one.introspection, token, protocol)
        if said is None or one.keys is None:
            return bad("the token cannot be read")
        return await self._by_keys(one, one.keys, token, said[0], protocol)

    async def _by_keys(
        self, one: _Judge, keys: IssuerKeys, token: str, header: dict[str, Any], protocol: Protocol
    ) -> JudgedToken:
        algorithm, kid, kind = header.get("alg"), header.get("kid", ""), header.get("typ", "JWT")
        if algorithm not in one.settings.algorithms:
            return bad("the token is signed in a way that is not taken")
        if not isinstance(kid, str) or len(kid) > MAX_KID or not isinstance(kind, str) or "crit" in header:
            return bad("the token's header is not understood")
        if kind.casefold().removeprefix("application/") not in one.types:
            return bad("the token is of another type")  # made for something else: RFC 8725 section 3.11
        known = await keys.current()
        claims = self._claims(one, known, token, algorithm, kid)
        mark = kid or hashlib.blake2b(token.encode(), digest_size=16).hexdigest()
        while claims is None and not (kid and known.knows(kid)) and await keys.look_again(mark):
            known = await keys.current()
            claims = self._claims(one, known, token, algorithm, kid)
        if claims is None:
            return bad("no key of the issuer fits the token")
        if isinstance(claims, str):
            return bad(claims)
        found = judge(one.settings, claims, protocol, self._default_domain)
        # No longer than the keys themselves are taken as they are: one that is withdrawn counts no more.
        return replace(found, known_until=self._now() + one.settings.keys_seconds)

    def _claims(self, one: _Judge, keys: KeySet, token: str, algorithm: str, kid: str) -> dict[str, Any] | str | None:
        """The claims of a genuine token for us; why it is not good; None where no key fits."""
        for key in keys.fitting(kid, algorithm):
            try:
                return jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    audience=list(one.settings.audiences),
                    issuer=one.settings.issuer,
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["exp", "iss", "aud"]},
                )
            except jwt.InvalidSignatureError:
                continue
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as fault:
                return f"the token is not good: {type(fault).__name__}"
        return None

    async def _by_introspection(
        self, one: _Judge, introspection: Introspection, token: str, protocol: Protocol
    ) -> JudgedToken:
        try:
            claims = await introspection.about(token)
        except TokenVerifierUnavailable as fault:
            self._log.warning("tokens.no_introspection", issuer=one.settings.issuer, reason=str(fault))
            raise
        if claims is None:
            return bad("the token is not active")
        settings, now = one.settings, self._now()
        if claims.get("iss", settings.issuer) != settings.issuer:
            return bad("the token is another issuer's")
        if str(claims.get("token_type", "Bearer")).casefold() not in {"bearer", "access_token"}:
            return bad("the token is no bearer token")
        if settings.audiences and not set(audiences(claims)).intersection(settings.audiences):
            return bad("the token is for somebody else")
        try:
            ends, begins = moment(claims, "exp"), moment(claims, "nbf")
        except ValueError as fault:
            return bad(str(fault))
        if (ends is not None and ends <= now - LEEWAY_SECONDS) or (
            begins is not None and begins > now + LEEWAY_SECONDS
        ):
            return bad("the token is over, or not yet good")
        found = judge(settings, claims, protocol, self._default_domain)
        return replace(found, known_until=now + settings.introspection_seconds)


def _look(token: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Header and claims of a JWT, unverified; None where it is none."""
    if token.count(".") != 2:
        return None
    try:
        found = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return found["header"], found["payload"]
