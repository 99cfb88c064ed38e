"""Signing in: is this who they say, and may they use this protocol?

    password_now ── app passwords; name cache, keyed digest ──► answer (a few µs, most of all sign-ins)
    password ── directory ── bounded, fair queue ── argon2 in threads ──► answer, remembered if right
    token ── verifier ── directory ──► answer (`directory.token_sign_in`)
    user_of_session ── directory ──► answer (whoever signed in before: still the same user, still allowed?)

Nothing that is remembered is a secret in plain: successes are kept as keyed digests of (user name, stored hash,
password), for all workers of the front end (`directory.remembered`). A changed password changes the stored hash, so an
old success can never match again, nor one of another user (field cases 67 and 68). What is wrong is not remembered.

Unknown user, disabled user, a name that cannot exist and a wrong password do the same work and give the same verdict.
A master user's form (`user*master`) means nothing here: it is a name that nobody has.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

import structlog

from gatepost.directory import passwords
from gatepost.directory.check_queue import CheckQueue, QueueFull
from gatepost.directory.kerberos_port import KerberosAcceptor, KerberosOnward
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.policy.settings import PolicySettings
from gatepost.directory.port import (
    Directory,
    DirectoryUnavailable,
    SignInResult,
    TokenVerifier,
    User,
    Verdict,
)
from gatepost.directory.remembered import DIGEST_BYTES, Remembered
from gatepost.directory.signed_in import OUTAGE_SECONDS, WRONG, not_allowed
from gatepost.directory.token_sign_in import TokenSignIn
from gatepost.organization.model import Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name

REMEMBERED_NAMES = 100_000
"""Login names as clients write them, only of those that have signed in."""

SUCCESS_SECONDS = 3600.0
"""A success is good for this long from its last use; then the password is checked by argon2 again.

A change of the user makes it void at once, so this only says how long an idle digest is kept in memory. It is more than
the 59 minutes of a phone's longest wait (field case 120): when everybody comes back after a move or a failover, the
password of each would otherwise be checked anew, 25 ms apiece, in the seconds that matter."""

KNOWN_SECONDS = 300.0
"""A name's user is taken from memory for this long; then the directory is asked again, and the success renewed."""

UNTOLD_SECONDS = 300.0
"""So long, from the check, where the directory judges and does not tell when a password changes."""

CHECK_SECONDS = 30.0
"""Longest wait for one password check; in a full queue each takes its turn within seconds."""

MAX_ROUNDS = 4
"""How often a sign-in is judged anew because the user was changed meanwhile; after that the client comes back later."""


NOT_THE_MAIN_ONE = "the main password is not accepted for this protocol"


@dataclass(frozen=True, slots=True)
class _Way:
    """How a password came: protocol, client address, service of HTTP, and whether by the sign-in page."""

    protocol: Protocol
    client: str
    service: str
    page: bool


@dataclass(frozen=True, slots=True)
class _Known:
    """A name that has signed in. `digest` has taken in the user's name and stored hash; copies take in the password."""

    user: User
    digest: blake2b
    signed_in: SignInResult
    since: float


class SignInService(TokenSignIn):
    """Judges credentials for one worker. Belongs to the loop it is made in.

    `waiting_limit`: password checks that may wait for a thread; one more is answered with `Verdict.BUSY`, and so is one
    more than `per_address` of a client address. A check of an address that has few may take the place of another's.
    `remembered`: what the workers of this front end have found right; None: this one knows its own only.
    `known_seconds`: a name's user is taken from memory for no longer (`OwnedDirectory.known_seconds`).
    `policy`: who may, from where, and what wrong passwords cost; None: everybody may, and they cost nothing.
    `dummy_hash`, `clock` (seconds, monotonic) and `threads` are for tests.
    """

    def __init__(
        self,
        directory: Directory,
        default_domain: str,
        *,
        waiting_limit: int,
        per_address: int,
        token_verifier: TokenVerifier | None = None,
        remembered: Remembered | None = None,
        dummy_hash: str = "",
        clock: Callable[[], float] = time.monotonic,
        threads: int = 0,
        known_seconds: float = KNOWN_SECONDS,
        policy: SignInPolicy | None = None,
    ) -> None:
        super().__init__(
            directory,
            default_domain,
            clock,
            policy or SignInPolicy(PolicySettings(penalty=None)),
            CheckQueue(threads or os.cpu_count() or 1, waiting_limit, per_address),
            remembered or Remembered(),
            token_verifier,
            min(KNOWN_SECONDS, known_seconds),
        )
        self._dummy_hash = dummy_hash or passwords.make_dummy_hash()
        self._names: dict[str, _Known] = {}
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._log = structlog.get_logger("gatepost")
        self.kerberos: KerberosAcceptor | None = None
        """Judges tickets; None: they are not accepted. Whoever puts another in its place closes this one."""
        self.onward: KerberosOnward | None = None
        """Asks for tickets at other servers; None: there are none to be had."""

    def close(self) -> None:
        """Take no more checks; those that run end in their threads."""
        self._queue.close()
        if self.kerberos is not None:
            self.kerberos.close()
        if self.onward is not None:
            self.onward.close()
        if self._verifier is not None:
            self._verifier.close()

    def accepts_tickets(self, protocol: Protocol) -> bool:
        """Whether Kerberos can be offered for this protocol."""
        return self.kerberos is not None and self.kerberos.serves(protocol)

    def password_now(
        self, name: str, password: str, protocol: Protocol, client: str = "", service: str = "", *, page: bool = False
    ) -> SignInResult | None:
        """The answer where it is known at once (the same name and password were right lately), else None.

        `service`: of HTTP, the virtual directory's. `page`: from the sign-in page, where app passwords do not count.
        """
        by_app = None if page else self._app_password_now(name, password, protocol, client, service)
        if by_app is not None:
            return by_app
        known = self._names.get(name)
        if known is None or not self.policy.answers_from_memory(name, protocol, client):
            return None
        digest = known.digest.copy()
        try:
            digest.update(password.encode())
        except UnicodeEncodeError:
            return None
        proof = digest.digest()
        now = self._clock()
        age = self._remembered.age(proof, now)
        if age is None or age > _good_for(known.user) or now - known.since > self._known_seconds:
            return None
        if not self.policy.takes_main_password(known.user, protocol, client, service):
            return None
        if not self.policy.allows(known.user, protocol, client):
            return not_allowed(known.user)
        signed_in = known.signed_in
        return signed_in if signed_in.proof == proof else replace(signed_in, proof=proof)

    def still_right(self, name: str, proof: bytes) -> None:
        """A session of the user `name` (canonical) has ended that began with this `SignInResult.proof`.

        They may be back in a moment; and it may have lasted for days without any check. While the directory is down
        nothing becomes good for longer.
        """
        if proof:
            with suppress(DirectoryUnavailable):
                user = self._directory.find(name)
                if user is None or user.tells_of_password:
                    self._remembered.remember(proof, self._clock())

    async def password(
        self, name: str, password: str, protocol: Protocol, client: str, service: str = "", *, page: bool = False
    ) -> SignInResult:
        """Judge a name and password. Never raises for what a client or the directory does.

        `client` is the client's own address (a balancer's PROXY header tells it): its checks are counted together.
        Behind wrong passwords of the same address it waits for its turn, up to `Penalty.longest_wait_seconds`.
        `service` and `page` are as for `password_now`.
        """
        known = self.password_now(name, password, protocol, client, service, page=page)
        if known is not None:
            return known
        canonical, fault = "", ""
        try:
            canonical = canonical_login_name(name, self._default_domain)
        except BadLoginName as error:
            fault = str(error)
        way = _Way(protocol, client, service, page)
        check = partial(self._password, name, canonical, fault, password, way)
        return await self.policy.judge(name, canonical, password, protocol, client, check)

    async def _password(self, name: str, canonical: str, fault: str, password: str, way: _Way) -> SignInResult:
        """As `password`, when it is its turn. `fault`: why nobody can have this name."""
        tries, client = passwords.attempts(password), way.client
        if not tries:
            return await self._refuse_after_work(client, b"\0", "no possible password")
        if fault:
            return await self._refuse_after_work(client, tries[0], f"no possible name: {fault}", len(tries))
        for _ in range(MAX_ROUNDS):
            try:
                user = await self._directory.ask(canonical)
                if not way.page:
                    by_app = self._by_app_password(user, password, way.protocol, client, way.service)
                    if by_app is not None:
                        return by_app
                result = await self._judge(user, canonical, tries, way)
                if await self._directory.ask(canonical) == user:
                    self._remember_name(name, result)
                    return result
            except DirectoryUnavailable as away:
                return self._judge_by_memory(name, tries[0], way, away)
        return SignInResult(Verdict.UNAVAILABLE, reason="the user keeps changing")

    async def user_of_ticket(self, name: str, protocol: Protocol, client: str = "") -> SignInResult:
        """The user of a Kerberos ticket, by the rules for users, protocols and networks as well. Never raises."""
        result = await super().user_of_ticket(name, protocol, client)
        user = result.user
        if result.verdict is Verdict.SIGNED_IN and user is not None and not self.policy.allows(user, protocol, client):
            result = not_allowed(user)
        self.policy.decided("(a ticket's)", protocol, client, result)
        return result

    async def _judge(self, user: User | None, canonical: str, tries: tuple[bytes, ...], way: _Way) -> SignInResult:
        """The judgement if `user` is who has this name now."""
        protocol, client = way.protocol, way.client
        if user is None:
            return await self._refuse_after_work(client, tries[0], "unknown user", len(tries), canonical)
        if user.disabled or not user.password_hash:
            reason = "disabled" if user.disabled else "has no password"
            return await self._refuse_after_work(client, tries[0], reason, len(tries), canonical)
        if not self.policy.takes_main_password(user, protocol, client, way.service):
            # Not judged at all: nobody can find out here whether it is right.
            return await self._refuse_after_work(client, tries[0], NOT_THE_MAIN_ONE, len(tries), canonical)
        proof = _with_password(self._digest_of(user.name, user.password_hash), tries[0])
        refused = await self._check(client, proof, user.password_hash, tries, user)
        if refused is not None:
            return refused
        if not self.policy.allows(user, protocol, client):
            return not_allowed(user)
        return SignInResult(Verdict.SIGNED_IN, user, proof=proof)

    def _judge_by_memory(self, name: str, password: bytes, way: _Way, fault: DirectoryUnavailable) -> SignInResult:
        """While the directory is down: whoever signed in before with this very name and password still does."""
        known, protocol, client = self._names.get(name), way.protocol, way.client
        if known is not None and self.policy.takes_main_password(known.user, protocol, client, way.service):
            age = self._remembered.age(_with_password(known.digest, password), self._clock())
            if age is not None and age <= OUTAGE_SECONDS:
                return known.signed_in if self.policy.allows(known.user, protocol, client) else not_allowed(known.user)
        return SignInResult(Verdict.UNAVAILABLE, reason=str(fault))

    async def _refuse_after_work(
        self, client: str, password: bytes, reason: str, times: int = 1, canonical: str = ""
    ) -> SignInResult:
        """Wrong credentials, after as much work as a wrong password takes."""
        key = _with_password(self._digest_of(canonical, self._dummy_hash), password)
        refused = await self._check(client, key, self._dummy_hash, (password,) * times)
        if refused is None or refused.verdict is WRONG:
            return SignInResult(WRONG, reason=reason)
        return refused

    async def _check(
        self, client: str, key: bytes, password_hash: str, tries: tuple[bytes, ...], user: User | None = None
    ) -> SignInResult | None:
        """None when the password is right, else why not. Equal checks that run at the same time are one.

        Raises `DirectoryUnavailable` where the directory judges and does not answer.
        """
        age = self._remembered.age(key, self._clock())
        if age is not None and age <= _good_for(user):
            if user is None or user.tells_of_password:
                self._remembered.remember(key, self._clock())
            return None
        future = self._running.get(key)
        if future is None:
            try:
                if user is not None and user.judged_by_directory:
                    opens = partial(self._directory.opens, user, tries)
                    future = self._start(key, self._queue.put_elsewhere(client, lambda: asyncio.ensure_future(opens())))
                else:
                    check = partial(passwords.check, password_hash, tries)
                    quick = passwords.is_quick(password_hash)
                    future = self._start(key, _done(check) if quick else self._queue.put(client, check))
            except QueueFull as full:
                return SignInResult(Verdict.BUSY, reason=str(full))
        await asyncio.wait([future], timeout=CHECK_SECONDS)  # neither cancels nor raises what the check raised
        if not future.done():
            return SignInResult(Verdict.BUSY, reason="the password check took too long")
        if future.cancelled():
            return SignInResult(Verdict.BUSY, reason="the password check gave way to one of another address")
        try:
            return None if future.result() else SignInResult(WRONG, reason="wrong password")
        except passwords.CheckFailed as error:
            return SignInResult(Verdict.UNAVAILABLE, reason=f"the password could not be checked: {error}")
        except passwords.BadPasswordHash as error:
            self._log.error("directory.bad_password_hash", reason=str(error))
            return SignInResult(WRONG, reason=str(error))

    def _start(self, key: bytes, future: asyncio.Future[bool]) -> asyncio.Future[bool]:
        self._running[key] = future

        def done(ended: asyncio.Future[bool]) -> None:
            del self._running[key]
            if not ended.cancelled() and ended.exception() is None and ended.result():
                self._remembered.remember(key, self._clock())

        future.add_done_callback(done)
        return future

    def _remember_name(self, name: str, result: SignInResult) -> None:
        user = result.user
        if user is None:
            return
        if len(self._names) >= REMEMBERED_NAMES and name not in self._names:
            del self._names[next(iter(self._names))]
        signed_in = result if result.verdict is Verdict.SIGNED_IN else SignInResult(Verdict.SIGNED_IN, user)
        self._names[name] = _Known(user, self._digest_of(user.name, user.password_hash), signed_in, self._clock())

    def _directory_changed(self) -> None:
        super()._directory_changed()
        self._names.clear()

    def _digest_of(self, name: str, password_hash: str) -> blake2b:
        """A keyed digest that has taken in whose password it is; each part is preceded by its length."""
        digest = blake2b(key=self._remembered.key, digest_size=DIGEST_BYTES)
        for part in (name.encode("utf-8", "surrogatepass"), password_hash.encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest


def _done(check: Callable[[], bool]) -> asyncio.Future[bool]:
    """A check that is made at once."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(check())
    except (passwords.CheckFailed, passwords.BadPasswordHash) as fault:
        future.set_exception(fault)
    return future


def _with_password(digest: blake2b, password: bytes) -> bytes:
    copy = digest.copy()
    copy.update(password)
    return copy.digest()


def _good_for(user: User | None) -> float:
    """How long a success is good from its last use; from its check, where a changed password does not show."""
    return SUCCESS_SECONDS if user is None or user.tells_of_password else UNTOLD_SECONDS
