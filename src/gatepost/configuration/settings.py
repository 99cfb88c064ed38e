"""Settings of one front end: frozen values, units in the names."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from gatepost.configuration.hub_settings import HubSettings
from gatepost.configuration.manager_settings import ManagerSettings
from gatepost.directory.policy.settings import PolicySettings
from gatepost.directory.settings import (
    CertificateSettings,
    DirectorySettings,
    KerberosSettings,
    ScramSettings,
    TokenIssuer,
)
from gatepost.organization.model import Network, Organization, Server
from gatepost.wire.submission_front import EXTENSIONS


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what strangers and servers may take. Every one has a test."""

    sign_in_seconds: float = 60.0
    """From accept to signed in, TLS and PROXY header included (field case 103)."""
    idle_seconds: float = 2100.0
    """No byte in either direction after the sign-in: over the 30 minutes of RFC 9051 section 5.4."""
    connect_seconds: float = 5.0
    """One connection attempt to a mailbox server."""
    server_step_seconds: float = 20.0
    """Each answer of a mailbox server during the sign-in (field case 113)."""
    drain_seconds: float = 30.0
    """From SIGTERM until the last session is ended."""
    bad_commands: int = 10
    """Commands before the sign-in that are not understood (field case 106)."""
    sign_in_attempts: int = 3
    """Refused sign-ins on one connection (field case 110)."""
    refused_sign_in_delay_seconds: float = 1.0
    """Wait before the answer to wrong credentials; counts from the start of the check."""
    unauthenticated_per_address: int = 200
    """Connections of one client address that have not signed in yet, per worker."""
    sessions: int = 20000
    """Client connections of one worker."""
    password_checks: int = 64
    """Password checks waiting in one worker before further ones are told to come back."""
    password_checks_per_address: int = 8
    """Password checks of one client address (IPv6: of one /64), running or waiting in one worker, before further ones
    of that address are told to come back. Raise it when many users come from one address without a PROXY header."""
    http_head_bytes: int = 32768
    """Request line and headers (nginx: 32 KiB in all)."""
    http_headers: int = 100
    """Header lines of one request."""
    http_head_seconds: float = 30.0
    """From the first byte of a request head to its end."""
    http_keep_alive_seconds: float = 75.0
    """An idle client connection between two requests."""
    http_response_seconds: float = 3600.0
    """Wait for a response's head: ActiveSync Ping holds one up to 59 minutes (field case 120)."""
    http_requests: int = 10000
    """Requests under way in one worker; over it a request waits briefly, then is told to come back (SPEC B4)."""
    probe_seconds: float = 5.0
    """Between two probes of a server that requests go to (SPEC B7)."""
    probe_answer_seconds: float = 5.0
    """For a probe's connection, TLS and first line of an answer together: what takes longer is no use to clients."""
    assertion_seconds: float = 60.0
    """How long the identity that crosses to a peer is good, clocks of two servers included (SPEC C11)."""
    move_window_seconds: float = 2.0
    """After a move of a database: the time over which its sessions are closed, at least (SPEC B5)."""
    move_sessions_per_second: int = 1000
    """Sessions of a moved database that one worker closes a second, and so sends to the new server to sign in again.
    More sessions than this in `move_window_seconds` take longer, up to `move_forced_seconds`."""
    move_forced_seconds: float = 10.0
    """After a move: what is at no command's end by then is cut, so that nothing more is written to the old copy."""
    parking_seconds: float = 20.0
    """How long sign-ins and requests wait for a database that is being moved, or whose server is gone while a manager
    looks after it; below the 30 seconds after which clients give up (field case 116)."""
    parked: int = 10000
    """Sign-ins and requests of one worker that wait so, and sign-ins that wait for their turn at one server."""
    sign_ins_per_server: int = 64
    """Sign-ins of one worker that are under way at one mailbox server; others wait, users in turn (SPEC B4)."""
    registry_age_seconds: float = 300.0
    """A registry that has not been heard of for longer: nobody is sent to a database any more, for another server may
    have it by now. Sessions that are there go on (SPEC A4)."""


@dataclass(frozen=True, slots=True)
class OtherKey:
    """Another certificate's private key, PEM, whose sign-in cookies are opened too, until a moment (SPEC B6)."""

    private_key: bytes = field(repr=False)
    until: datetime
    """With its time zone."""


@dataclass(frozen=True, slots=True)
class Forms:
    """Forms sign-in (SPEC B6): how long a sign-in lasts without activity, and whose cookies are opened."""

    public_seconds: float = 900.0
    """On a computer that others use."""
    private_seconds: float = 28800.0
    also_opens: tuple[OtherKey, ...] = ()
    """Keys of the certificate before, or of the one to come, while front ends change theirs."""


@dataclass(frozen=True, slots=True)
class PeerKeys:
    """What this front end shows other front ends, and whom it believes (SPEC C11). All PEM."""

    certificate: bytes = field(repr=False)
    private_key: bytes = field(repr=False)
    organization_ca: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """The etcd cluster that holds the registry (SPEC A4). Certificates and keys are PEM."""

    endpoints: tuple[str, ...]
    """URLs of its members, `https://host:2379`; tried in turn."""
    prefix: str
    """What the registry's keys begin with, without a slash at its end."""
    user: str = ""
    password: str = field(default="", repr=False)
    ca: bytes = field(default=b"", repr=False)
    """Certificates that sign the members' certificates; empty: the system's."""
    certificate: bytes = field(default=b"", repr=False)
    """What this front end shows the members; empty: nothing."""
    private_key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class SharedStoreSettings:
    """Where front ends on several machines share penalties, session counts, devices and sign-outs."""

    secret: bytes = field(repr=False)
    """The same at all front ends: what lies in the store is spelled with it."""
    prefix: str
    """What keys begin with, without a slash at its end."""
    answer_seconds: float = 0.05
    """A sign-in waits so long for one answer."""
    etcd: EtcdSettings | None = None
    """The cluster, where the store is etcd."""
    url: str = ""
    """`rediss://host:6379/0`, where it is Redis or Valkey."""
    user: str = ""
    password: str = field(default="", repr=False)
    ca: bytes = field(default=b"", repr=False)
    """PEM certificates that sign the server's; empty: the system's."""
    certificate: bytes = field(default=b"", repr=False)
    """PEM; what this front end shows the server; empty: nothing."""
    private_key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """One front end: which server it is, its listeners' certificate, where its stores are."""

    server: str
    directory: str
    """Path of the directory's SQLite file."""
    registry: str
    """Path of the registry's SQLite file; with `etcd` it is not used, and its folder holds the lock of this front end
    and the operators' socket all the same."""
    certificate: bytes = field(default=b"", repr=False)
    """PEM chain; empty when no listener needs TLS."""
    private_key: bytes = field(default=b"", repr=False)
    server_ca: bytes = b""
    """PEM certificates that sign the servers' certificates; empty: the system's."""
    server_ca_by_server: dict[str, bytes] = field(default_factory=dict)
    workers: int = 0
    """0: one for each processor."""
    user: str = ""
    """Account the workers run as after binding; empty: unchanged."""
    proxy_protocol_from: tuple[Network, ...] = ()
    """Peers whose connections begin with a PROXY header (required from them, refused from others)."""
    allow_clear_passwords: bool = False
    pop3_utf8: bool = False
    """Offer POP3 `UTF8` (RFC 6856) before the sign-in: say yes only if every mailbox server understands it."""
    submission_extensions: tuple[str, ...] = EXTENSIONS
    """What submission clients are promised at their EHLO; every server that takes submissions must have all of it."""
    carry_over_idle: bool = False
    """Whether IMAP sessions that are idling or between commands go on at the new server when their database moves."""
    log_file: str = ""
    """Empty: standard output."""
    log_requests: bool = False
    """One line for every HTTP request, beside the one for every connection."""
    limits: Limits = field(default_factory=Limits)
    token_issuers: tuple[TokenIssuer, ...] = ()
    """Whose bearer tokens are taken. None: they are not offered."""
    kerberos: KerberosSettings | None = None
    scram: ScramSettings | None = None
    client_certificates: CertificateSettings | None = None
    """None: clients are asked for none."""
    shared_state: str = ""
    """Path of the SQLite file with what all front ends of this registry must know of devices and sign-outs."""
    app_passwords: str = ""
    """Path of the SQLite file with app passwords; empty: there are none."""
    forms: Forms = field(default_factory=Forms)
    peer_keys: PeerKeys | None = None
    manager: ManagerSettings | None = None
    """None: this front end runs no manager."""
    etcd: EtcdSettings | None = None
    """With it the registry is in etcd instead of a file."""
    shared_store: SharedStoreSettings | None = None
    """None: penalties and session counts are shared by the front ends of this machine only, in `shared_state`."""
    transport: HubSettings | None = None
    """None: this server transports no mail."""
    directories: tuple[DirectorySettings, ...] = ()
    """Where users are, in the order in which they are asked. None: in the file `directory`."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """Who may sign in from where, and what wrong passwords cost."""

    @property
    def uses_directory_file(self) -> bool:
        """Whether users are in the embedded directory, alone or beside others."""
        return not self.directories or any(each.is_file for each in self.directories)


@dataclass(frozen=True)
class Configuration:
    """All that a worker runs with. `version` grows with each reload."""

    organization: Organization
    front_end: FrontEnd
    version: int = 1

    @property
    def server(self) -> Server:
        """The server object of this front end."""
        return self.organization.servers[self.front_end.server]
