"""App passwords: secrets that a front end makes for one program or device of a user, beside the user's own password.

    abcd-efgh-…  ── form, check letters ── SHA-256 ── one look-up by it ──► AppPassword ── admit ──► SignInResult

A secret has 130 random bits, so nobody guesses it and a fast hash is enough: no argon2, no queue. Its form tells it
from what people choose; what has the form and is nobody's is judged as any other password is.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

from gatepost.directory.policy.rules import SERVICE_WORDS, is_in, service_word
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.directory.signed_in import WRONG, not_allowed
from gatepost.organization.model import CLIENT_PROTOCOLS, Network, Protocol

LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
"""As in base32 (RFC 4648 section 6), in lower case: no digit looks like a letter."""
RANDOM_LETTERS = 26
"""130 bits."""
CHECK_LETTERS = 2
"""What a slip of the keyboard is told by, before anything is looked up."""
GROUP = 4
MAX_NAME = 64
"""Characters of an app password's name."""
MAX_PER_USER = 50

_FORM = re.compile(r"[A-Za-z2-7]{4}(?:[- ]?[A-Za-z2-7]{4}){6}")
_LENGTHS = frozenset(range(28, 35))
_DIGEST = b"gatepost app password\0"

WORDS = (*(protocol.value for protocol in CLIENT_PROTOCOLS), *SERVICE_WORDS)
"""What an app password can be for: a protocol, or a service by HTTPS; `https` is all of these."""


@dataclass(frozen=True, slots=True)
class AppPassword:
    """One app password, without its secret. Times are seconds since 1970."""

    id: int
    user: str
    """Canonical name."""
    name: str
    """What the user calls it."""
    words: frozenset[str] = frozenset()
    """What it is for, of `WORDS`; empty: everything."""
    networks: tuple[Network, ...] = ()
    """Where it may come from; empty: anywhere."""
    made: int = 0
    expires: int = 0
    """0: never."""
    used: int = 0
    """When it was used last; 0: never."""
    used_word: str = ""
    used_address: str = ""

    def serves(self, protocol: Protocol, service: str) -> bool:
        """Whether it is for this protocol, or for this service of it."""
        return not self.words or protocol.value in self.words or (bool(service) and service_word(service) in self.words)


def make_secret(choose: Callable[[str], str] = secrets.choice) -> str:
    """A new secret as it is shown to its user: seven groups of four letters."""
    body = "".join(choose(LETTERS) for _ in range(RANDOM_LETTERS))
    whole = body + _check_letters(body)
    return "-".join(whole[at : at + GROUP] for at in range(0, len(whole), GROUP))


def secret_digest(password: str) -> bytes | None:
    """What a secret is stored by; None for a password that has not the form of one. Hyphens and case do not matter."""
    if len(password) not in _LENGTHS or _FORM.fullmatch(password) is None:
        return None
    whole = password.replace("-", "").replace(" ", "").lower()
    if _check_letters(whole[:RANDOM_LETTERS]) != whole[RANDOM_LETTERS:]:
        return None
    return sha256(_DIGEST + whole.encode("ascii")).digest()


def admit(found: AppPassword, user: User, protocol: Protocol, service: str, client: str, now: float) -> SignInResult:
    """What `found` opens for `user`, whose it is, before the policy is asked."""
    if user.disabled:
        return SignInResult(WRONG, reason="disabled")
    if found.expires and found.expires <= now:
        return SignInResult(WRONG, user, "the app password has expired")
    if not found.serves(protocol, service) or (found.networks and not is_in(client, found.networks)):
        return not_allowed(user, "the app password is not for this protocol, or not for there")
    return SignInResult(Verdict.SIGNED_IN, user, app_password=found.id)


def _check_letters(body: str) -> str:
    digest = sha256(body.encode("ascii")).digest()
    return "".join(LETTERS[octet & 31] for octet in digest[:CHECK_LETTERS])


def in_order(words: Iterable[str]) -> list[str]:
    """Words in the order of lists."""
    found = set(words)
    return [word for word in WORDS if word in found]
