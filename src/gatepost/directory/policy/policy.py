"""The policy as the sign-ins of all protocols go through it.

    judge ── charge (ledger) ── wait for the turn ── ask the hook ── the check ──► answer
                  └── refused: BUSY                                      └── wrong: stays charged; else given back
    allows ── rules ──► may this user use this protocol from there?

A charge is made before the judgement and given back afterwards: parallel guesses do not escape. A temporary fault, and
a client that has left before its turn, are never charged. What is refused here is told as temporary, never as wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b

import structlog

from gatepost.directory.policy.hook import Asked, PolicyHook
from gatepost.directory.policy.ledger import Ledger, MemoryLedger
from gatepost.directory.policy.penalty import MARK_BYTES, Attempt, Charge
from gatepost.directory.policy.rules import allowed, group_of, is_in, service_word
from gatepost.directory.policy.sessions import OwnCounts, SessionCounts
from gatepost.directory.policy.settings import Penalty, PolicySettings
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.organization.model import Protocol

RIGHT = frozenset({Verdict.SIGNED_IN, Verdict.PROTOCOL_NOT_ALLOWED})
"""Verdicts that only a right password brings."""
SAID_SECONDS = 60.0
"""What the hook has allowed is not asked again for so long: a browser sends its password with each request."""
MAX_SAID = 10_000


class TooManySessions(Exception):
    """The user or the address has as many sessions as it may. The message is for the log."""


class SignInPolicy:
    """The policy of one worker. Belongs to the loop it is used in.

    `ledger`: the accounts that all workers share; while it is away, and where there is none, this process keeps its
    own. `key` is a secret of this front end, for the digests of passwords. `clock` answers seconds since 1970.
    """

    def __init__(
        self,
        settings: PolicySettings,
        ledger: Ledger | None = None,
        key: bytes = b"",
        hook: PolicyHook | None = None,
        clock: Callable[[], float] = time.time,
        counts: SessionCounts | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.settings = settings
        self._own = MemoryLedger()
        self._ledger = ledger or self._own
        self._sleep = sleep
        self._counts = counts or OwnCounts()
        self._key = key
        self._hook = hook
        self._clock = clock
        self._said: dict[tuple[str, Protocol, str], float] = {}
        """What the hook has allowed, and when."""
        self._log = structlog.get_logger("gatepost")
        self.refused = 0
        self.waiting = 0
        self.over_limit = 0
        """Sessions refused because of a limit."""
        self.unshared = 0
        """Charges that only this process knows of: the shared ledger was away."""

    def set_settings(self, settings: PolicySettings) -> None:
        """Use other settings for what begins later. The hook stays what it is."""
        self.settings = settings

    def allows(self, user: User, protocol: Protocol, client: str) -> bool:
        """Whether `user`, whose credentials are right, may use `protocol` from there. A few µs."""
        if protocol not in user.protocols:
            return False
        rules = self.settings.rules
        return not rules or allowed(rules, user.name, user.groups, protocol, client)

    def takes_main_password(self, user: User, protocol: Protocol, client: str, service: str = "") -> bool:
        """Whether the user's own password counts there; `service`: of HTTP, the virtual directory's."""
        rules = self.settings.main_passwords
        return not rules or allowed(rules, user.name, user.groups, protocol, client, service_word(service))

    def answers_from_memory(self, name: str, protocol: Protocol, client: str) -> bool:
        """Whether a password that was right lately needs no further question."""
        if self._hook is None:
            return True
        said = self._said.get((name, protocol, client))
        return said is not None and self._clock() - said < SAID_SECONDS

    async def judge(
        self,
        name: str,
        canonical: str,
        password: str,
        protocol: Protocol,
        client: str,
        check: Callable[[], Awaitable[SignInResult]],
    ) -> SignInResult:
        """The answer of `check`, which judges the password, when it is its turn; or a refusal.

        `canonical` is empty where `name` can be nobody's.
        """
        attempt, charged = None, None
        mark = self._mark(canonical or name, password)
        penalty = self.settings.penalty
        if penalty is not None and not is_in(client, self.settings.trusted_networks):
            attempt = attempt_of(canonical, client, mark, penalty)
            charged, ledger = await self._charge(attempt, penalty)
            if not charged.keys:
                self.refused += 1
                wait = max(round(charged.at - self._clock()), 1)
                return SignInResult(Verdict.BUSY, reason=f"too many wrong passwords: the next turn is in {wait} s")
        result, waited, asked = None, 0.0, None
        try:
            if charged is not None:
                waited = await self._wait(charged.at)
            result, asked = await self._asked(name, password, protocol, client)
            if result is None:
                result = await check()
        finally:
            if charged is not None and attempt is not None and (result is None or result.verdict is not _WRONG):
                right = result is not None and result.verdict in RIGHT
                ledger.settle(attempt, charged, self._clock(), right=right)
        if asked is not None and self._hook is not None and result.verdict in _JUDGED:
            self._hook.report(asked, success=result.verdict in RIGHT)
        self.decided(canonical, protocol, client, result, mark=mark, charged=charged, waited=waited)
        return result

    def decided(
        self,
        canonical: str,
        protocol: Protocol,
        client: str,
        result: SignInResult,
        *,
        mark: bytes = b"",
        charged: Charge | None = None,
        waited: float = 0.0,
    ) -> None:
        """One line for one decision. `password` in it only tells different passwords apart; a name that nobody can
        have is not written, for some write their password there. What is busy has its lines where it is answered."""
        if result.verdict is Verdict.BUSY:
            return
        fields: dict[str, object] = {"reason": result.reason} if result.reason else {}
        if mark:
            fields["password"] = mark[:2].hex()
        if charged is not None:
            fields["failures"] = charged.count - (result.verdict is not _WRONG and not charged.repeated)
            fields["familiar"] = charged.familiar
            fields["repeated"] = charged.repeated
        if waited:
            fields["waited_seconds"] = round(waited, 3)
        user = result.user.name if result.user is not None else canonical or "(no possible name)"
        self._log.info(
            "sign_in.decided", user=user, protocol=protocol.value, client=client, verdict=result.verdict.value, **fields
        )

    async def enter(self, user: str, client: str) -> tuple[str, ...]:
        """Count a mail session of `user` (canonical) that begins. What it answers goes to `leave` when it is over.

        Raises `TooManySessions`. While the shared counts are away sessions are not counted.
        """
        settings = self.settings
        keys = []
        if settings.sessions_per_user:
            keys.append((f"user {user}", settings.sessions_per_user))
        if settings.sessions_per_address and not is_in(client, settings.trusted_networks):
            penalty = settings.penalty or _PREFIXES
            group = group_of(client, penalty.ipv4_prefix, penalty.ipv6_prefix)
            keys.append((f"address {group}", settings.sessions_per_address))
        if not keys:
            return ()
        full = await self._counts.enter(keys)
        if full:
            self.over_limit += 1
            raise TooManySessions(f"too many sessions of the {full}")
        return tuple(key for key, _ in keys) if full is not None else ()

    def leave(self, held: tuple[str, ...]) -> None:
        """The session that `enter` answered `held` for is over."""
        if held:
            self._counts.leave(held)

    def counters(self) -> dict[str, int]:
        """What happened since the worker's start, and what happens now."""
        return {
            "sign_in.waiting": self.waiting,
            "sign_in.told_to_come_back": self.refused,
            "sign_in.too_many_sessions": self.over_limit,
            "sign_in.charged_alone": self.unshared + self._ledger.alone,
        }

    async def close(self) -> None:
        """Let go of the hook's connections."""
        if self._hook is not None:
            await self._hook.close()

    async def _charge(self, attempt: Attempt, penalty: Penalty) -> tuple[Charge, Ledger]:
        now = self._clock()
        charged = await self._ledger.charge(attempt, penalty, now)
        if charged is not None:
            return charged, self._ledger
        self.unshared += 1
        charged = await self._own.charge(attempt, penalty, now)
        assert charged is not None
        return charged, self._own

    async def _wait(self, at: float) -> float:
        left = at - self._clock()
        if left <= 0:
            return 0.0
        self.waiting += 1
        try:
            await self._sleep(left)
        finally:
            self.waiting -= 1
        return left

    async def _asked(
        self, name: str, password: str, protocol: Protocol, client: str
    ) -> tuple[SignInResult | None, Asked | None]:
        """The hook's refusal, if it has one, and what it was told."""
        hook = self._hook
        if hook is None:
            return None, None
        asked = hook.asked(name, password, protocol.value, client)
        answer = await hook.allow(asked)
        if answer.fault:
            if hook.settings.open_on_failure:
                return None, asked
            return SignInResult(Verdict.UNAVAILABLE, reason=f"the policy service: {answer.fault}"), asked
        if answer.status < 0:
            hook.report(asked, success=False, policy_reject=True)
            reason = f"refused by the policy service {answer.message}".rstrip()
            return SignInResult(Verdict.BUSY, reason=reason), None
        if answer.status > 0:
            await self._sleep(answer.status)
        if len(self._said) >= MAX_SAID:
            del self._said[next(iter(self._said))]
        self._said[name, protocol, client] = self._clock()
        return None, asked

    def _mark(self, name: str, password: str) -> bytes:
        digest = blake2b(key=self._key, digest_size=MARK_BYTES, person=b"penalty")
        for part in (name, password):
            octets = part.encode("utf-8", "surrogatepass")
            digest.update(len(octets).to_bytes(4, "big") + octets)
        return digest.digest()


_PREFIXES = Penalty()
_WRONG = Verdict.WRONG_CREDENTIALS
_JUDGED = RIGHT | {_WRONG}


def attempt_of(canonical: str, client: str, mark: bytes, penalty: Penalty) -> Attempt:
    """What is charged for a password: the client's address, with those that are one with it, and the user there."""
    group = group_of(client, penalty.ipv4_prefix, penalty.ipv6_prefix)
    return Attempt(
        mark,
        f"address {group}",
        f"user {canonical} at {group}" if canonical else "",
        f"user {canonical}" if canonical and penalty.failures_per_account else "",
    )
