"""Signing in by SCRAM: whose keys, the policy, and answers that tell nobody which users there are.

    step(client-first) ── directory ── keys, or a decoy ──► Challenge
    step(client-final) ── charged, judged when it is its turn ──► Challenge(verifier) or refusal
    step(empty) ──► SignInResult

For a name that nobody has, for a disabled user and for one without keys the salt is a decoy: always the same for one
name, on all front ends with one certificate. A wrong proof is charged as a wrong password is; which proofs are made of
the same wrong password cannot be told, so each one counts.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gatepost.directory.app_password_sign_in import AppPasswordSignIn
from gatepost.directory.kerberos_port import Challenge
from gatepost.directory.passwords import BadPasswordHash
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.port import Directory, DirectoryUnavailable, SignInResult, User, Verdict
from gatepost.directory.scram_keys import SALT_BYTES, read_keys
from gatepost.directory.settings import SCRAM_ITERATIONS, ScramSettings
from gatepost.directory.signed_in import WRONG, not_allowed, unavailable
from gatepost.organization.model import Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.wire.events import Credentials
from gatepost.wire.sasl import BadSaslMessage
from gatepost.wire.scram import DIGEST_BYTES, PLAIN_NAME, ClientFirst, Keys, ScramServer

NONCE_BYTES = 18
"""144 bits, 24 characters."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What was found for a client's name."""

    first: ClientFirst
    canonical: str
    user: User | None
    keys: Keys
    reason: str = ""
    """Why no proof can be right; empty: one can."""


class ScramSignIn(AppPasswordSignIn):
    """The part of `SignInService` that judges SCRAM."""

    def __init__(
        self, directory: Directory, default_domain: str, clock: Callable[[], float], policy: SignInPolicy
    ) -> None:
        super().__init__(directory, default_domain, clock, policy)
        self.scram: ScramSettings | None = None
        """None: it is not offered."""
        self.scram_decoys = secrets.token_bytes(DIGEST_BYTES)
        """The secret that decoys are made with; the same on all front ends of one name."""

    def accepts_scram(self, protocol: Protocol) -> bool:
        """Whether SCRAM is offered for this protocol."""
        return self.scram is not None and protocol in self.scram.protocols

    def begin_scram(
        self, mechanism: str, protocol: Protocol, client: str, bindings: Mapping[str, bytes], *, offers_plus: bool
    ) -> ScramExchange:
        """A new exchange with the client at this address, whose channel can be bound by `bindings`."""
        server = ScramServer(mechanism, bindings, secrets.token_urlsafe(NONCE_BYTES), offers_plus=offers_plus)
        return ScramExchange(self, server, mechanism, protocol, client)

    async def scram_keys(self, first: ClientFirst) -> _Held:
        """Whose keys the name stands for. Raises `DirectoryUnavailable`."""
        try:
            canonical = canonical_login_name(first.name, self._default_domain)
        except BadLoginName as error:
            return _Held(first, "", None, self._decoy(first.name), f"no possible name: {error}")
        user = await self._directory.ask(canonical)
        reason = "unknown user" if user is None else "disabled" if user.disabled else ""
        keys = None
        if user is not None and not reason:
            try:
                keys = read_keys(user.password_hash)
                reason = "" if keys else "has no SCRAM keys"
            except BadPasswordHash as error:
                reason = f"SCRAM keys that cannot be used: {error}"
        return _Held(first, canonical, user, keys or self._decoy(canonical), reason)

    async def judge_scram(self, held: _Held, server: ScramServer, protocol: Protocol, client: str) -> SignInResult:
        """Judge the proof that `server` holds, by the policy. Never raises."""

        async def check() -> SignInResult:
            user, right = held.user, server.is_right(held.keys)
            if held.reason or user is None or not right:
                return SignInResult(WRONG, reason=held.reason or "wrong password")
            if not self.policy.takes_main_password(user, protocol, client):
                return SignInResult(WRONG, reason="the main password is not accepted for this protocol")
            try:
                now = await self._directory.ask(held.canonical)
            except DirectoryUnavailable as fault:
                return unavailable(fault)
            if now != user:
                return SignInResult(Verdict.UNAVAILABLE, reason="the user was changed meanwhile")
            if not self.policy.allows(user, protocol, client):
                return not_allowed(user)
            return SignInResult(Verdict.SIGNED_IN, user)

        # Each proof is another one, as if each were made of another password.
        return await self.policy.judge(held.first.name, held.canonical, server.nonce, protocol, client, check)

    def _decoy(self, name: str) -> Keys:
        octets = hmac.digest(self.scram_decoys, name.encode("utf-8", "surrogatepass"), "sha256")
        iterations = self.scram.iterations if self.scram is not None else SCRAM_ITERATIONS
        return Keys(iterations, octets[:SALT_BYTES], secrets.token_bytes(DIGEST_BYTES), octets)


@dataclass(slots=True)
class ScramExchange:
    """One client's messages, in turn: a `KerberosExchange` of another mechanism."""

    sign_in: ScramSignIn
    server: ScramServer
    mechanism: str
    protocol: Protocol
    client: str
    credentials: Credentials = field(default_factory=lambda: Credentials(PLAIN_NAME, ""))
    """Who wants to sign in, as far as the client has said; without a password."""
    _held: _Held | None = None
    _result: SignInResult | None = None

    async def step(self, token: bytes) -> Challenge | SignInResult:
        """Take the client's message. After anything but a `Challenge` the exchange is over. Never raises."""
        try:
            if self._result is not None:
                # The client has seen that we know its keys, and has nothing to add.
                return SignInResult(WRONG, reason="SCRAM: more than there is to say") if token else self._result
            if self._held is None:
                return await self._first(token)
            self.server.final(token)
        except BadSaslMessage as error:
            return SignInResult(WRONG, reason=f"SCRAM: {error}")
        except DirectoryUnavailable as fault:
            return unavailable(fault)
        held = self._held
        result = await self.sign_in.judge_scram(held, self.server, self.protocol, self.client)
        if result.verdict is not Verdict.SIGNED_IN:
            return result
        self._result = result
        return Challenge(self.server.verifier(held.keys))

    async def _first(self, token: bytes) -> Challenge:
        first = self.server.first(token)
        self.credentials = Credentials(self.mechanism, first.name, first.authorization_id)
        held = self._held = await self.sign_in.scram_keys(first)
        return Challenge(self.server.challenge(held.keys))
