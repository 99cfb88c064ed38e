"""Users who are signed in already: by a session that lasts, or by the word of another front end.

    user_of_session ── directory ──► answer (still the same user, still allowed?)
    user_by_name ── directory ──► answer

Both answer at once. Where the directory is elsewhere and must be asked first they say so (`SignInResult.asking`), and
`learn` waits until they can answer.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from contextlib import suppress

from gatepost.directory import passwords
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.port import Directory, DirectoryUnavailable, NotAsked, SignInResult, User, Verdict
from gatepost.organization.model import Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name

REMEMBERED_USERS = 100_000
"""Users of sessions as the directory last told them, for the time while it is down."""

VOUCHED_SECONDS = 300.0
"""What the directory said of a user whom a peer has signed in is good for this long."""

OUTAGE_SECONDS = 3600.0
"""While the directory is down an earlier success is good for this long (field case 115)."""

WRONG = Verdict.WRONG_CREDENTIALS


class SignedInUsers:
    """The part of `SignInService` that needs no password. `clock`: seconds, monotonic."""

    def __init__(
        self, directory: Directory, default_domain: str, clock: Callable[[], float], policy: SignInPolicy
    ) -> None:
        self.policy = policy
        """Who may use which protocol from where, and what wrong passwords cost."""
        self._directory = directory
        self._default_domain = default_domain
        self._clock = clock
        self._users: dict[str, tuple[User, float]] = {}
        self._vouched: dict[str, tuple[User, float]] = {}
        """Users whom peers have signed in, since the directory's last change, and when it told of them."""
        self.directory_changes = 0
        """How often the directory has changed. While it has not, an answer of `user_of_session` still holds."""
        directory.on_change(self._directory_changed)

    async def learn(self, canonical_name: str) -> None:
        """Wait until the directory has told of this name, or cannot. Never raises."""
        with suppress(DirectoryUnavailable):
            await self._directory.ask(canonical_name)

    def look_up(self, name: str) -> User | None:
        """The user who has this name, address or alias; None for nobody and for names that cannot exist.

        For questions about somebody, never for signing in. Disabled users are found too: their mailboxes may be shared.
        Raises `DirectoryUnavailable`; as `NotAsked` where the directory must be asked first (`learn`).
        """
        try:
            return self._directory.find(canonical_login_name(name, self._default_domain))
        except BadLoginName:
            return None

    def is_name_of(self, written: str, user: User) -> bool:
        """Whether an authorization identity is the user's own name; an empty one is."""
        if not written:
            return True
        try:
            return canonical_login_name(written, self._default_domain) == user.name
        except BadLoginName:
            return False

    def user_by_name(self, name: str, protocol: Protocol) -> SignInResult:
        """The user whom another front end has signed in as `name`, without a password (SPEC C11). Never raises.

        `name` is canonical, as that front end's directory has it; what is an alias here would be another user there.
        While the directory is down what it last said holds for `OUTAGE_SECONDS`.
        """
        user, told = self._vouched.get(name, (None, 0.0))
        if user is None or self._clock() - told > VOUCHED_SECONDS:
            try:
                user = self._last_known(name)
            except DirectoryUnavailable as fault:
                return unavailable(fault)
            if user is None or user.name != name or user.disabled:
                known = user is not None and user.name == name
                return SignInResult(WRONG, reason="disabled" if known else "unknown user")
            self._vouched.pop(name, None)
            if len(self._vouched) >= REMEMBERED_USERS:
                del self._vouched[next(iter(self._vouched))]
            self._vouched[name] = (user, self._clock())
        # Where the client is, the other front end has judged by.
        return SignInResult(Verdict.SIGNED_IN, user) if protocol in user.protocols else not_allowed(user)

    async def user_of_ticket(self, name: str, protocol: Protocol, client: str = "") -> SignInResult:  # noqa: ARG002
        """The user `name` (canonical) whose ticket was found good; an alias will do. Never raises.

        While the directory is down what it last said holds for `OUTAGE_SECONDS`.
        """
        await self.learn(name)
        try:
            user = self._last_known(name)
        except DirectoryUnavailable as fault:
            return unavailable(fault)
        if user is None or user.disabled:
            return SignInResult(WRONG, reason="unknown user" if user is None else "disabled")
        return SignInResult(Verdict.SIGNED_IN, user) if protocol in user.protocols else not_allowed(user)

    def user_of_session(self, name: str, key: bytes, generation: bytes, protocol: Protocol) -> SignInResult:
        """The user `name` (canonical) of a sign-in that lasts, without a password. Never raises.

        `generation` is `passwords.generation` of the stored hash, with `key`, when they signed in: another password
        since then, or a disabled or deleted user, and it is `Verdict.WRONG_CREDENTIALS`. While the directory is down
        what it last said holds for `OUTAGE_SECONDS`.
        """
        try:
            user = self._last_known(name)
        except DirectoryUnavailable as fault:
            return unavailable(fault)
        if user is None or user.name != name:
            return SignInResult(WRONG, reason="unknown user")
        if user.disabled or not user.password_hash:
            return SignInResult(WRONG, reason="disabled" if user.disabled else "has no password")
        if not hmac.compare_digest(generation, passwords.generation(user.password_hash, key)):
            return SignInResult(WRONG, reason="the password was changed")
        # Where the client is, whoever asks judges by for each request: `SignInPolicy.allows`.
        return SignInResult(Verdict.SIGNED_IN, user) if protocol in user.protocols else not_allowed(user)

    def _last_known(self, name: str) -> User | None:
        """The user of that name; while the directory is down, as it was last. Raises `DirectoryUnavailable`."""
        try:
            user = self._directory.find(name)
        except NotAsked:
            raise
        except DirectoryUnavailable:
            last, told = self._users.get(name, (None, 0.0))
            if last is None or self._clock() - told > OUTAGE_SECONDS:
                raise
            return last
        self._remember_user(name, user)
        return user

    def _remember_user(self, name: str, user: User | None) -> None:
        self._users.pop(name, None)
        if user is not None:
            if len(self._users) >= REMEMBERED_USERS:
                del self._users[next(iter(self._users))]
            self._users[name] = (user, self._clock())

    def _directory_changed(self) -> None:
        self._vouched.clear()
        self.directory_changes += 1


def not_allowed(user: User, reason: str = "the user may not use this protocol") -> SignInResult:
    """Right, but not for this protocol, or not from there."""
    return SignInResult(Verdict.PROTOCOL_NOT_ALLOWED, user, reason)


def unavailable(fault: DirectoryUnavailable) -> SignInResult:
    """The directory does not say."""
    return SignInResult(Verdict.UNAVAILABLE, reason=str(fault), asking=isinstance(fault, NotAsked))
