"""Puts the sign-in policy of a configuration together."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from gatepost.directory.policy.policy import SignInPolicy

if TYPE_CHECKING:
    from gatepost.directory.policy.ledger import Ledger
    from gatepost.directory.policy.sessions import SessionCounts
    from gatepost.directory.policy.settings import PolicySettings

_HTTP = (
    "gatepost.directory.policy.hook",
    # What the HTTP client loads with its first connection.
    "anyio._backends._asyncio",
    "httpcore2._async.http11",
    "httpcore2._backends.anyio",
    "truststore",
    "encodings.idna",
)


def load_policy(settings: PolicySettings) -> None:
    """Load all that the policy needs, for who may not be able to read this program's files later."""
    for module in _HTTP if settings.hook is not None else ():
        importlib.import_module(module)


def open_policy(
    settings: PolicySettings, ledger: Ledger | None, key: bytes, counts: SessionCounts | None = None
) -> SignInPolicy:
    """The policy for the running loop. `key`: a secret of this front end. Raises ValueError for a bad authority."""
    hook = None
    if settings.hook is not None:
        from gatepost.directory.policy.hook import PolicyHook  # its libraries are large; most front ends ask nobody

        hook = PolicyHook(settings.hook)
    return SignInPolicy(settings, ledger, key, hook, counts=counts)
