"""The shape of `[front_end.sign_in_policy]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import BeforeValidator, Field

from gatepost.configuration.tables import MAX_COUNT, Table, default_of
from gatepost.configuration.words import Subnet, by_value, reader
from gatepost.directory.app_passwords import WORDS
from gatepost.directory.policy.settings import LOOPBACK, HookSettings, Penalty, PolicySettings
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol

LONGEST_FORGET_SECONDS = 7 * 86400.0
LONGEST_WAIT_SECONDS = 50.0
"""A sign-in has a minute by default."""
_Delay = Annotated[float, Field(ge=0, le=3600)]


class Access(Enum):
    """What a rule says."""

    ALLOW = "allow"
    DENY = "deny"


class OnFailure(Enum):
    """What becomes of sign-ins while the service does not answer."""

    OPEN = "open"
    CLOSED = "closed"


AccessWord = Annotated[Access, BeforeValidator(reader(by_value(Access)))]
OnFailureWord = Annotated[OnFailure, BeforeValidator(reader(by_value(OnFailure)))]
ProtocolWord = Annotated[Protocol, BeforeValidator(reader({p.value: p for p in CLIENT_PROTOCOLS}))]
AppWord = Annotated[str, BeforeValidator(reader({word: word for word in WORDS}))]


class RuleTable(Table):
    """One rule. It concerns a sign-in for which all that is written holds; the first that concerns it decides. What no
    rule concerns is allowed."""

    access: AccessWord = Field(examples=['"deny"'])
    """`allow` or `deny`."""
    protocols: list[ProtocolWord] = Field(default=[], examples=['["imap", "pop3"]'])
    """Words as in `gatepost user add`. None: all."""
    users: list[str] = Field(default=[], examples=['["anna@contoso.com", "@fabrikam.com"]'])
    """Login names, or `@` and a domain for everybody there. None: all."""
    groups: list[str] = Field(default=[], examples=['["contractors"]'])
    """Groups that the directory tells of: LDAP, SQL and HTTP do, the file has none. None: everybody."""
    networks: list[Subnet] = Field(default=[], examples=['["10.0.0.0/8", "2001:db8::/32"]'])
    """Where the client is. None: anywhere."""


class MainPasswordRuleTable(Table):
    """One rule for users' own passwords, like one of `rules`: where it denies them, app passwords, Kerberos tickets,
    tokens and certificates count all the same, and a right own password is answered like a wrong one."""

    access: AccessWord = Field(examples=['"deny"'])
    """`allow` or `deny`."""
    protocols: list[AppWord] = Field(default=[], examples=['["imap", "activesync"]'])
    """Protocols, or services by HTTPS, as for `gatepost user app-password add`. None: all."""
    users: list[str] = Field(default=[], examples=['["anna@contoso.com", "@fabrikam.com"]'])
    """As for `rules`."""
    groups: list[str] = Field(default=[], examples=['["two-factor"]'])
    """As for `rules`."""
    networks: list[Subnet] = Field(default=[], examples=['["10.0.0.0/8"]'])
    """As for `rules`."""


class PolicyHookTable(Table):
    """A service that speaks weakforced's protocol: asked before each password is judged, and told what came of it."""

    url: str = Field(examples=['"https://wforce.contoso.com:8084/"'])
    """Where it is; `http` only on this machine. `?command=allow` and `?command=report` are added."""
    password_file: str = Field(default="", examples=['"secrets/wforce"'])
    """File with the password of its account `wforce`; a line end at its end is dropped."""
    nonce_file: str = Field(default="", examples=['"secrets/wforce-nonce"'])
    """File with a text that goes into the short hash of the password: the same on all front ends."""
    seconds: float = Field(default=default_of(HookSettings, "seconds"), gt=0, le=10, examples=["1.0"])
    """The longest for an answer."""
    on_failure: OnFailureWord = Field(default=OnFailure.OPEN, examples=['"closed"'])
    """While it does not answer: `open`, sign-ins go on; `closed`, they are temporarily unavailable."""
    ca: str = Field(default="", examples=['"pki/wforce-ca.crt"'])
    """File with the certificates that sign its. Empty: the system's."""


class PolicyTable(Table):
    """Who may sign in from where, and what wrong passwords cost, for all protocols: `docs/sign-in-policy.md`."""

    trusted_networks: list[Subnet] = Field(default=list(LOOPBACK), examples=['["127.0.0.0/8", "::1", "10.1.2.3/32"]'])
    """Clients there are never penalized: webmail servers, monitoring. Their sessions are counted by user only."""
    penalty: bool = Field(default=True, examples=["false"])
    """Whether wrong passwords delay the next ones from their address. Without it the keys down to
    `failures_per_account` have no effect."""
    free_failures: int = Field(default=default_of(Penalty, "free_failures"), ge=1, le=1000, examples=["10"])
    """So many distinct wrong passwords of one address cost nothing."""
    first_delay_seconds: _Delay = Field(default=default_of(Penalty, "first_delay_seconds"), examples=["2.0"])
    """Between the last free one and the next judgement; doubled with each further one."""
    longest_delay_seconds: _Delay = Field(default=default_of(Penalty, "longest_delay_seconds"), examples=["30.0"])
    """The doubling ends here."""
    longest_wait_seconds: float = Field(
        default=default_of(Penalty, "longest_wait_seconds"), ge=0, le=LONGEST_WAIT_SECONDS, examples=["10.0"]
    )
    """A sign-in whose turn is later is told to come back. Not below `longest_delay_seconds`, or it never comes."""
    forget_seconds: float = Field(
        default=default_of(Penalty, "forget_seconds"), gt=0, le=LONGEST_FORGET_SECONDS, examples=["3600.0"]
    )
    """An address without a new wrong password for so long begins anew."""
    failures_per_account: int = Field(
        default=default_of(Penalty, "failures_per_account"), ge=0, le=MAX_COUNT, examples=["50"]
    )
    """So many distinct wrong passwords for one account, of all addresses that it has not signed in from, before the
    delays begin for those addresses together. 0: only addresses are counted."""
    ipv4_prefix: int = Field(default=default_of(Penalty, "ipv4_prefix"), ge=8, le=32, examples=["24"])
    """IPv4 addresses with so many bits in common are one."""
    ipv6_prefix: int = Field(default=default_of(Penalty, "ipv6_prefix"), ge=16, le=128, examples=["56"])
    """IPv6 addresses with so many bits in common are one."""
    sessions_per_user: int = Field(
        default=default_of(PolicySettings, "sessions_per_user"), ge=0, le=MAX_COUNT, examples=["50"]
    )
    """Most IMAP, POP3 and submission sessions of one user at a time, at all front ends of this machine, or of all that
    share a store. 0: any."""
    sessions_per_address: int = Field(
        default=default_of(PolicySettings, "sessions_per_address"), ge=0, le=MAX_COUNT, examples=["200"]
    )
    """The same of one client address (with the prefixes above). 0: any."""
    rules: list[RuleTable] = []
    main_password_rules: list[MainPasswordRuleTable] = []
    hook: PolicyHookTable | None = None
