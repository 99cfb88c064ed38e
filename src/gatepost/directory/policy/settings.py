"""What the configuration says of the sign-in policy: frozen values, units in the names."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_network

from gatepost.organization.model import Network, Protocol

LOOPBACK: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1"))


@dataclass(frozen=True, slots=True)
class Rule:
    """Allows or denies protocols. It concerns a sign-in for which all that is not empty holds."""

    allow: bool
    protocols: frozenset[Protocol] = frozenset()
    users: frozenset[str] = frozenset()
    """Canonical names, or `@domain` for everybody there."""
    groups: frozenset[str] = frozenset()
    """Groups that the directory tells of, in lower case."""
    networks: tuple[Network, ...] = ()
    """Where the client is. An address that is not known is in none."""
    services: frozenset[str] = frozenset()
    """Words of services by HTTPS, beside `protocols`: either concerns the sign-in. For main passwords only."""


@dataclass(frozen=True, slots=True)
class Penalty:
    """What wrong passwords cost. Only distinct ones count."""

    free_failures: int = 3
    """So many of one address cost nothing."""
    first_delay_seconds: float = 1.0
    """Between the last free one and the next judgement; doubled with each further one."""
    longest_delay_seconds: float = 15.0
    longest_wait_seconds: float = 20.0
    """A sign-in whose turn is later is told to come back: below the 30 seconds after which clients give up."""
    forget_seconds: float = 1800.0
    """An address that had no new wrong password for so long begins anew."""
    failures_per_account: int = 0
    """So many for one account, of all addresses that it has not signed in from, before the same delays begin for them
    together. 0: the account is not counted, only addresses."""
    ipv4_prefix: int = 32
    ipv6_prefix: int = 64
    """Addresses with such a prefix in common are one."""


@dataclass(frozen=True, slots=True)
class HookSettings:
    """A service that speaks weakforced's protocol."""

    url: str
    """`https://host:8084/`; the command is added as a query."""
    password: str = field(default="", repr=False)
    """Of the account `wforce` (Basic)."""
    nonce: str = field(default="", repr=False)
    """Goes into the short hash of the password that the service is told."""
    seconds: float = 2.0
    """The longest for an answer."""
    open_on_failure: bool = True
    """Whether sign-ins go on while the service does not answer; otherwise they are temporarily unavailable."""
    ca: bytes = b""
    """PEM certificates that sign the service's; empty: the system's."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The policy of one front end."""

    trusted_networks: tuple[Network, ...] = LOOPBACK
    """Clients there are never penalized, nor counted by address."""
    penalty: Penalty | None = field(default_factory=Penalty)
    """None: wrong passwords cost nothing but the delay of their answer."""
    sessions_per_user: int = 0
    """Mail sessions of one user at a time, at the front ends of this machine or that share a store; 0: any number."""
    sessions_per_address: int = 0
    """The same of one client address."""
    rules: tuple[Rule, ...] = ()
    """The first that concerns a sign-in decides; none: allowed."""
    main_passwords: tuple[Rule, ...] = ()
    """The same for the users' own passwords alone: what they deny is open to app passwords, tickets and the like."""
    hook: HookSettings | None = None
