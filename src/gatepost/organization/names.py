"""Login names. A name is brought to one form once, before look-up, limits and logs (field case 78)."""

from __future__ import annotations

import unicodedata

MAX_LOGIN_NAME = 320
"""Characters: 64 for the local part, 255 for the domain, one at sign (RFC 5321 section 4.5.3.1)."""


class BadLoginName(ValueError):
    """A login name that no directory can hold; treated by the protocols like an unknown user."""


def canonical_login_name(name: str, default_domain: str) -> str:
    """`name` in the one form that look-ups, limits and logs use: NFKC, case-folded, with its domain.

    A name without a domain gets `default_domain`; a domain's trailing dot is dropped. Aliases are resolved by the
    directory, which returns the user's own name. Raises `BadLoginName` for control characters, spaces, empty
    parts or more than `MAX_LOGIN_NAME` characters.
    """
    if len(name) > MAX_LOGIN_NAME:  # before the folding: ordering thousands of combining marks takes seconds
        raise BadLoginName("empty or too long")
    folded = _fold(name.strip())
    if not folded or len(folded) > MAX_LOGIN_NAME:
        raise BadLoginName("empty or too long")
    if any(unicodedata.category(c)[0] in "CZ" for c in folded):
        raise BadLoginName("a space or control character")
    local, at, domain = folded.rpartition("@")
    if not at:
        return f"{folded}@{default_domain.casefold()}" if default_domain else folded
    domain = domain.rstrip(".")
    if not local or not domain:
        raise BadLoginName("an empty local part or domain")
    return f"{local}@{domain}"


def canonical_grant(text: str, default_domain: str) -> str:
    """Whom a user may send as, in one form: an address, or a domain as `@contoso.com` (`*@contoso.com` means the same).

    Raises `BadLoginName`.
    """
    domain = text.strip().removeprefix("*")
    if domain.startswith("@"):
        return canonical_login_name(f"a{domain}", "")[1:]
    return canonical_login_name(text, default_domain)


def wire_domain(domain: str) -> str:
    """A domain in lower case as DNS has it, without a trailing dot: in A-labels where that can be done (RFC 5890)."""
    domain = domain.rstrip(".").lower()
    if domain.isascii():
        return domain
    try:
        return domain.encode("idna").decode("ascii")
    except UnicodeError:
        return domain


def _fold(name: str) -> str:
    """Compatibility caseless form (Unicode 3.13, D146); folding may undo composition, so one pass is not enough."""
    once = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", name).casefold())
    return unicodedata.normalize("NFKC", once.casefold()).strip()
