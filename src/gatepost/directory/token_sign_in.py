"""Signing in by bearer tokens.

    token_now ── keyed digest ──► answer (a few µs: programs show the same token with every request)
    token ── verifier ── directory ──► answer, remembered if good

What is remembered is void when the token ends, when any user changes, and after `known_seconds` in any case: then the
verifier is asked again, so that keys which were withdrawn and tokens which were revoked count no longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from gatepost.directory.certificate_sign_in import CertificateSignIn
from gatepost.directory.check_queue import CheckQueue, QueueFull
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.port import (
    Directory,
    DirectoryUnavailable,
    JudgedToken,
    SignInResult,
    TokenVerifier,
    TokenVerifierUnavailable,
    User,
    Verdict,
)
from gatepost.directory.remembered import DIGEST_BYTES, Remembered
from gatepost.directory.signed_in import WRONG, not_allowed
from gatepost.organization.model import Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.wire.events import TokenHelp

TOKEN_SECONDS = 10.0
"""Longest wait for the token verifier."""
REMEMBERED_TOKENS = 50_000
"""Tokens that were good; about 0.5 kB each."""


@dataclass(frozen=True, slots=True)
class _KnownToken:
    """`until`: by the clock of the service, never after the token's end. `lacks`: see `SignInResult`."""

    user: User
    result: SignInResult
    until: float


class TokenSignIn(CertificateSignIn):
    """The part of `SignInService` that judges bearer tokens. `now`: seconds, as `time.time`."""

    def __init__(
        self,
        directory: Directory,
        default_domain: str,
        clock: Callable[[], float],
        policy: SignInPolicy,
        queue: CheckQueue,
        remembered: Remembered,
        verifier: TokenVerifier | None,
        known_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(directory, default_domain, clock, policy)
        self._queue = queue
        self._remembered = remembered
        self._verifier = verifier
        self._known_seconds = known_seconds
        self._now = now
        self._tokens: dict[bytes, _KnownToken] = {}

    @property
    def accepts_tokens(self) -> bool:
        """Whether bearer tokens can be judged here."""
        return self._verifier is not None

    def use_verifier(self, verifier: TokenVerifier | None) -> None:
        """Judge tokens by this one from now on; the one before is closed, and what it found is forgotten."""
        if self._verifier is not None:
            self._verifier.close()
        self._verifier = verifier
        self._tokens.clear()

    def token_help(self, protocol: Protocol) -> TokenHelp:
        """What clients are told of whom to get a token from."""
        return TokenHelp() if self._verifier is None else self._verifier.help(protocol)

    def token_now(self, name: str, token: str, protocol: Protocol, client: str = "") -> SignInResult | None:
        """The answer where it is known at once (the same token was good lately), else None."""
        if not self._tokens:
            return None
        key = self._token_digest(name, token, protocol)
        known = self._tokens.get(key)
        if known is None:
            return None
        if known.until <= self._clock():
            del self._tokens[key]
            return None
        return known.result if self.policy.allows(known.user, protocol, client) else not_allowed(known.user)

    async def token(self, name: str, token: str, protocol: Protocol, client: str = "") -> SignInResult:
        """Judge a bearer token; `name`, if not empty, must be a name or address of the user it speaks for.

        A wrong one is not charged: nobody guesses tokens, and clients show expired ones. Never raises.
        """
        result = self.token_now(name, token, protocol, client)
        if result is None:
            result = await self._token(name, token, protocol, client)
        self.policy.decided("(a token's)", protocol, client, result)
        return result

    async def _token(self, name: str, token: str, protocol: Protocol, client: str) -> SignInResult:
        verifier, changes = self._verifier, self.directory_changes
        if verifier is None:
            return SignInResult(WRONG, reason="tokens are not accepted")
        try:
            async with asyncio.timeout(TOKEN_SECONDS):
                # Counted for its client address: each may be a question to the issuer.
                judged = await self._queue.put_elsewhere(
                    client, lambda: asyncio.ensure_future(verifier.verify(token, protocol))
                )
            if not judged.owner:
                return SignInResult(WRONG, reason=judged.reason or "the token is not valid")
            user = await self._directory.ask(judged.owner)
            claimed = await self._directory.ask(canonical_login_name(name, self._default_domain)) if name else user
        except BadLoginName as error:
            return SignInResult(WRONG, reason=f"no possible name: {error}")
        except QueueFull as full:
            return SignInResult(Verdict.BUSY, reason=str(full))
        except TimeoutError:
            return SignInResult(Verdict.UNAVAILABLE, reason="the token verifier did not answer")
        except (DirectoryUnavailable, TokenVerifierUnavailable) as fault:
            return SignInResult(Verdict.UNAVAILABLE, reason=str(fault))
        if user is None or claimed is None or claimed.name != user.name:
            return SignInResult(WRONG, reason="the token speaks for another user or none")
        if user.disabled:
            return SignInResult(WRONG, reason="disabled")
        if judged.lacks:
            reason = f"the token lacks the scope {judged.lacks}"
            return SignInResult(Verdict.PROTOCOL_NOT_ALLOWED, user, reason, lacks=judged.lacks)
        result = SignInResult(Verdict.SIGNED_IN, user, audiences=judged.audiences)
        if changes == self.directory_changes:  # else it may be of the user as they were
            self._remember_token(self._token_digest(name, token, protocol), user, result, judged)
        return result if self.policy.allows(user, protocol, client) else not_allowed(user)

    def _remember_token(self, key: bytes, user: User, result: SignInResult, judged: JudgedToken) -> None:
        ends = min((end for end in (judged.until, judged.known_until) if end is not None), default=float("inf"))
        seconds = min(self._known_seconds, ends - self._now())
        if seconds <= 0:
            return
        if len(self._tokens) >= REMEMBERED_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[key] = _KnownToken(user, result, self._clock() + seconds)

    def _directory_changed(self) -> None:
        super()._directory_changed()
        self._tokens.clear()

    def _token_digest(self, name: str, token: str, protocol: Protocol) -> bytes:
        digest = blake2b(key=self._remembered.key, digest_size=DIGEST_BYTES, person=b"token")
        for part in (protocol.value, name, token):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(4, "big") + data)
        return digest.digest()
