"""Who signs users in at a hub's receive connectors: by the policy of front ends, and with their ledger."""

from __future__ import annotations

import asyncio
import secrets

from gatepost.configuration.settings import Configuration
from gatepost.directory.open import open_app_passwords, open_tokens
from gatepost.directory.policy.ledger import Ledger
from gatepost.directory.policy.open import open_policy
from gatepost.directory.port import OwnedDirectory
from gatepost.directory.sign_in import SignInService
from gatepost.sharedstate.penalties import open_ledger
from gatepost.sharedstate.store.open import SharedStore


class HubSignIn(SignInService):
    """The sign-in of one hub. Belongs to `loop`."""

    def __init__(
        self, configuration: Configuration, directory: OwnedDirectory, loop: asyncio.AbstractEventLoop
    ) -> None:
        front_end = configuration.front_end
        own, self._writer = open_ledger(front_end.shared_state, loop)
        ledger: Ledger = own
        key = secrets.token_bytes(32)
        self._store: SharedStore | None = None
        if front_end.shared_store is not None:
            self._store = SharedStore(front_end.shared_store, own, loop)
            self._starting = loop.create_task(self._store.start())
            ledger, key = self._store.ledger, self._store.marks_key
        super().__init__(
            directory,
            configuration.organization.default_domain,
            waiting_limit=front_end.limits.password_checks,
            per_address=front_end.limits.password_checks_per_address,
            known_seconds=directory.known_seconds,
            token_verifier=open_tokens(front_end, configuration.organization.default_domain),
            policy=open_policy(front_end.policy, ledger, key),
        )
        self.app_passwords = open_app_passwords(front_end, loop)

    def follow(self, old: Configuration, new: Configuration) -> None:
        """Judge tokens as `new` says. Raises ValueError for an issuer's key that cannot be used; then all stays."""
        if old.front_end.token_issuers != new.front_end.token_issuers:
            self.use_verifier(open_tokens(new.front_end, new.organization.default_domain))

    async def end(self) -> None:
        """Take no more checks, and let go of the file and of the policy's connections."""
        self.close()
        await self.policy.close()
        if self._store is not None:
            await self._store.end()
            await asyncio.gather(self._starting, return_exceptions=True)
        self._writer.close()
        if self.app_passwords is not None:
            self.app_passwords.close()
