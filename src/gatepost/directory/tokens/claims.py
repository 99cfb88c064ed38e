"""What a genuine token says: whom it speaks for, until when, and for what. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatepost.directory.port import JudgedToken
from gatepost.directory.settings import TokenIssuer
from gatepost.organization.model import Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name

LEEWAY_SECONDS = 30
"""How far the issuer's clock may be from ours."""


def bad(reason: str) -> JudgedToken:
    """A token that is not good, with the log's reason."""
    return JudgedToken(reason=reason)


def words(value: object) -> tuple[str, ...]:
    """A claim that is one word, several with spaces between (RFC 8693 section 4.2), or a list."""
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def audiences(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The `aud`: a text, which may have spaces, or a list."""
    value = claims.get("aud")
    return (value,) if isinstance(value, str) else words(value)


def moment(claims: Mapping[str, Any], name: str) -> float | None:
    """A claim that is a moment, as `time.time` has it; None where there is none. Raises ValueError for no number."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise ValueError(f"{name} is no moment")
    return float(value)


def judge(issuer: TokenIssuer, claims: Mapping[str, Any], protocol: Protocol, default_domain: str) -> JudgedToken:
    """Whose token it is and what for. That it is genuine, for us and in time has been found before."""
    if "cnf" in claims:
        # RFC 8705, RFC 9449: bound to a key that nobody has shown; taken as a bearer's it would be worth stealing.
        return bad("the token is bound to a key")
    claim = claims.get(issuer.user_claim)
    if not isinstance(claim, str) or (issuer.user_claim == "email" and claims.get("email_verified") is False):
        return bad(f"the token has no {issuer.user_claim}, or none that was verified")
    try:
        owner = canonical_login_name(claim, default_domain)
        until = moment(claims, "exp")
    except (BadLoginName, ValueError) as fault:
        return bad(f"the token names nobody: {fault}")
    if issuer.domains and owner.rpartition("@")[2] not in issuer.domains:
        return bad("the token is for a domain that its issuer may not speak for")
    held = {*words(claims.get("scope")), *words(claims.get("scp"))}
    lacks = [scope for scope in issuer.needed(protocol.value) if scope not in held]
    return JudgedToken(owner, until=until, audiences=audiences(claims), lacks=" ".join(lacks))
