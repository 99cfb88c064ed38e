"""Signing in by an app password, before a password is held for the user's own one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gatepost.directory.app_passwords import admit
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.policy.rules import service_word
from gatepost.directory.port import Directory, DirectoryUnavailable, SignInResult, User, Verdict
from gatepost.directory.signed_in import SignedInUsers, not_allowed
from gatepost.organization.model import Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name

if TYPE_CHECKING:
    from gatepost.directory.app_password_store import AppPasswords


class AppPasswordSignIn(SignedInUsers):
    """The part of `SignInService` that judges app passwords."""

    def __init__(
        self, directory: Directory, default_domain: str, clock: Callable[[], float], policy: SignInPolicy
    ) -> None:
        super().__init__(directory, default_domain, clock, policy)
        self.app_passwords: AppPasswords | None = None
        """None: there are none here. Whoever opens them closes them."""

    def _app_password_now(
        self, name: str, password: str, protocol: Protocol, client: str, service: str
    ) -> SignInResult | None:
        """The answer where `password` is an app password of the user; None where more must be asked, or it is none.

        What is right waits for nobody's wrong passwords, as what is remembered does not.
        """
        if self.app_passwords is None or not self.policy.answers_from_memory(name, protocol, client):
            return None
        try:
            found = self.app_passwords.find(password)
            if found is None:
                return None
            canonical = canonical_login_name(name, self._default_domain)
            user = self._directory.find(canonical)
        except (DirectoryUnavailable, BadLoginName):
            return None
        if user is None or user.name != found.user:
            return None
        now = self.app_passwords.clock()
        result = self._allowed(admit(found, user, protocol, service, client, now), protocol, client)
        if result.verdict is Verdict.WRONG_CREDENTIALS:
            return None  # charged and answered as every wrong password is
        if result.verdict is Verdict.SIGNED_IN:
            word = service_word(service) or protocol.value
            if self.app_passwords.uses.note(found.id, word, client):
                self.policy.decided(canonical, protocol, client, self._named(result, found.name))
        return result

    def _by_app_password(
        self, user: User | None, password: str, protocol: Protocol, client: str, service: str
    ) -> SignInResult | None:
        """As `_app_password_now`, for a user who was asked for. None: `password` is no app password of theirs.

        Raises `DirectoryUnavailable` where that cannot be told.
        """
        if self.app_passwords is None:
            return None
        found = self.app_passwords.find(password)
        if found is None or user is None or user.name != found.user:
            return None
        now = self.app_passwords.clock()
        result = self._allowed(admit(found, user, protocol, service, client, now), protocol, client)
        if result.verdict is Verdict.SIGNED_IN:
            self.app_passwords.uses.note(found.id, service_word(service) or protocol.value, client)
            result = self._named(result, found.name)
        return result

    def _allowed(self, result: SignInResult, protocol: Protocol, client: str) -> SignInResult:
        user = result.user
        if result.verdict is Verdict.SIGNED_IN and user is not None and not self.policy.allows(user, protocol, client):
            return not_allowed(user)
        return result

    @staticmethod
    def _named(result: SignInResult, name: str) -> SignInResult:
        return replace(result, reason=f"by the app password {name}")
