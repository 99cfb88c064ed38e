"""Dovecot 2.3 as a mailbox server: IMAP and POP3, clear with STARTTLS, implicit TLS, and both behind a PROXY header.

On request it takes submissions too, in the same forms, and hands them to another server, and takes mail by LMTP.

It accepts users with their own passwords, and a master user who signs in as anybody, by `user*master` or by SASL PLAIN
with an authorization identity. It believes what `ID`, `XCLIENT` and PROXY say of the client's address and writes it to
its log as `rip=`, where a test can look. As root its processes drop to Debian's accounts; without root all run as the
user who started it.
"""

from __future__ import annotations

import getpass
import os
import pwd
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.ports import MailPorts, SubmissionPorts
from gatepost.lab.servers.process import (
    READY_SECONDS,
    Address,
    ServerMissing,
    ServerProcess,
    find_program,
    require_program,
)

PACKAGES = ("dovecot-imapd", "dovecot-pop3d", "dovecot-lmtpd")
SUBMISSION_PACKAGES = ("dovecot-submissiond",)
SUBMISSION_PROGRAM = Path("/usr/lib/dovecot/submission-login")
LMTP_PACKAGES = ("dovecot-lmtpd",)
LMTP_PROGRAM = Path("/usr/lib/dovecot/lmtp")
STOP_SECONDS = 3.0
"""From SIGTERM until SIGKILL; its processes end by themselves when their master is gone."""
MAIL_ACCOUNT = "mail"
"""Debian's account that owns the mailboxes when root starts us."""
LONGEST_DIRECTORY = 70
"""Characters: Dovecot's sockets below must fit the 108 of a Unix socket's path."""
LOGIN_PROCESSES = 2
"""Sign-ins are served by long-lived processes, as a big installation does it; one for each core here."""

LOG_SECONDS = 5.0
"""For a line of a sign-in that has happened to reach the log."""


def installed() -> bool:
    """Whether Dovecot with IMAP, POP3 and LMTP is there."""
    return (
        find_program("dovecot") is not None and Path("/usr/lib/dovecot/pop3-login").exists() and LMTP_PROGRAM.exists()
    )


def takes_submissions() -> bool:
    """Whether Dovecot's submission service is there."""
    return SUBMISSION_PROGRAM.exists()


@dataclass(frozen=True, slots=True)
class Submission:
    """Where a Dovecot takes submissions, and the server that it hands them to, to which it says its own name."""

    ports: SubmissionPorts
    relay: Address


@dataclass(frozen=True, slots=True)
class MasterUser:
    """Who may sign in as anybody."""

    name: str
    password: str = field(repr=False)


class Dovecot(ServerProcess):
    """One Dovecot with its own directory and address. Changes of `accounts` count for the next sign-in."""

    def __init__(
        self,
        directory: Path,
        address: str,
        ports: MailPorts,
        accounts: Mapping[str, str],
        certificate: CertificateFiles,
        *,
        master: MasterUser | None = None,
        name: str = "dovecot",
        mail: Path | None = None,
        extra: str = "",
        submission: Submission | None = None,
        lmtp: int = 0,
    ) -> None:
        """`accounts` maps a name without its domain to the password; any domain is accepted. `extra`: more settings.

        `mail`: the mail's directory, which may be another server's as well; by default one of its own. `lmtp`: the port
        where mail is delivered, in clear; 0: none.

        Raises `ServerMissing`; ValueError when the path of `directory` is too long for sockets.
        """
        program = require_program("dovecot", PACKAGES)
        if submission is not None and not takes_submissions():
            raise ServerMissing("Dovecot's submission", SUBMISSION_PACKAGES)
        if lmtp and not LMTP_PROGRAM.exists():
            raise ServerMissing("Dovecot's LMTP", LMTP_PACKAGES)
        if len(str(directory)) > LONGEST_DIRECTORY:
            raise ValueError(f"the path is too long for Dovecot's sockets: {directory}")
        directory.mkdir(parents=True, exist_ok=True)
        ready = [(address, port) for port in (*ports, *(submission.ports if submission is not None else ()))]
        ready += [(address, lmtp)] if lmtp else []
        super().__init__(name, [program, "-F", "-c", str(directory / "dovecot.conf")], directory, ready)
        self.address = address
        self.ports = ports
        self.submission = submission
        self.lmtp = lmtp
        self.master = master
        self.log = directory / "dovecot.log"
        self.extra_logs.append(self.log)
        self._root = os.geteuid() == 0
        self._mail = mail or directory / "mail"
        self._make_directories()
        self._write_accounts(accounts)
        (directory / "dovecot.conf").write_text(self._configuration(certificate) + extra)

    def _make_directories(self) -> None:
        for part in (self.directory / "run", self._mail):
            part.mkdir(parents=True, exist_ok=True)
        if self._root:
            owner = pwd.getpwnam(MAIL_ACCOUNT)
            os.chown(self._mail, owner.pw_uid, owner.pw_gid)
            self.directory.chmod(0o711)

    def _write_accounts(self, accounts: Mapping[str, str]) -> None:
        users = "".join(f"{name}:{{PLAIN}}{password}::::::\n" for name, password in accounts.items())
        (self.directory / "users").write_text(users)
        masters = f"{self.master.name}:{{PLAIN}}{self.master.password}::::::\n" if self.master else ""
        (self.directory / "masters").write_text(masters)

    def deliver(self, user: str, message: bytes, file_name: str = "welcome") -> None:
        """Put a message into the user's INBOX. `user` is a name without its domain."""
        home = self._mail / user
        new = home / "Maildir" / "new"
        for part in ("new", "cur", "tmp"):
            (home / "Maildir" / part).mkdir(parents=True, exist_ok=True)
        (new / file_name).write_bytes(message)
        if self._root:
            owner = pwd.getpwnam(MAIL_ACCOUNT)
            for path in (home, *home.rglob("*")):
                os.chown(path, owner.pw_uid, owner.pw_gid)

    def mail(self, user: str) -> list[bytes]:
        """The messages in the user's INBOX, in no order. `user` is a name without its domain."""
        home = self._mail / user / "Maildir"
        found = []
        for path in (*home.glob("new/*"), *home.glob("cur/*")):
            with suppress(FileNotFoundError):  # it has just been moved
                found.append(path.read_bytes())
        return found

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait for the greetings too: login processes that are stopped before they are up wait for each other."""
        super().wait_ready(seconds)
        for port in (self.ports.imap, self.ports.pop3):
            with socket.create_connection((self.address, port), timeout=seconds) as probe:
                probe.recv(1)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it; normally takes a second, its log process waits for stragglers."""
        super().stop(seconds)

    def log_text(self) -> str:
        """Dovecot's log so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def sign_ins(self) -> list[dict[str, str]]:
        """Each sign-in that succeeded, oldest first: its log line as fields (`user`, `method`, `rip`, `real_rip`…)."""
        lines = [line for line in self.log_text().splitlines() if " Login: " in line]
        return [dict(re.findall(r"(\w+)=<?([^\s,>]*)", line)) for line in lines]

    def sign_in_with(self, seconds: float = LOG_SECONDS, **fields: str) -> dict[str, str]:
        """The newest sign-in whose line has these values (`user="bob", rip="203.0.113.9"`); empty if none comes.

        Dovecot writes its log when it has time, which on a busy machine is after the client has its answer.
        """
        deadline = time.monotonic() + seconds
        while True:
            found = [line for line in self.sign_ins() if fields.items() <= line.items()]
            if found or time.monotonic() > deadline:
                return found[-1] if found else {}
            time.sleep(0.02)

    def _configuration(self, certificate: CertificateFiles) -> str:
        account = MAIL_ACCOUNT if self._root else getpass.getuser()
        owner = pwd.getpwnam(account)
        values = {
            "base": self.directory,
            "mail": self._mail,
            "name": self.name,
            "address": self.address,
            "certificate": certificate.certificate,
            "key": certificate.private_key,
            "uid": owner.pw_uid,
            "gid": owner.pw_gid,
            "elements": _LOG_ELEMENTS,
            "protocols": " ".join(
                ["imap", "pop3", *(["submission"] if self.submission else []), *(["lmtp"] if self.lmtp else [])]
            ),
        }
        parts = [_BASE.format(**values)]
        parts.append(_login_service("imap", self._listeners("imap")))
        parts.append(_login_service("pop3", self._listeners("pop3")))
        if self.submission is not None:
            parts.append(_login_service("submission", self._listeners("submission")))
            host, port = self.submission.relay
            parts.append(_RELAY.format(name=self.name, host=host, port=port))
        if self.lmtp:
            parts.append(_LMTP.format(port=self.lmtp, user="" if self._root else f"user = {account}"))
        if not self._root:
            parts.append(_WITHOUT_ROOT.format(account=account, group=_group_name(owner.pw_gid)))
        return "\n".join(parts)

    def _listeners(self, protocol: str) -> list[tuple[str, int, bool, bool]]:
        """Name, port, TLS from the start, PROXY header first."""
        suffixes = [("", False, False), ("s", True, False), ("_proxy", False, True), ("s_proxy", True, True)]
        ports = self.submission.ports if protocol == "submission" and self.submission is not None else self.ports
        return [(protocol + s, getattr(ports, protocol + s), tls, proxy) for s, tls, proxy in suffixes]


def _group_name(gid: int) -> str:
    import grp

    return grp.getgrgid(gid).gr_name


def _login_service(protocol: str, listeners: list[tuple[str, int, bool, bool]]) -> str:
    lines = [f"service {protocol}-login {{", "  service_count = 0", f"  process_min_avail = {LOGIN_PROCESSES}"]
    for name, port, tls, proxy in listeners:
        lines += [f"  inet_listener {name} {{", f"    port = {port}"]
        lines += ["    ssl = yes"] if tls else []
        lines += ["    haproxy = yes"] if proxy else []
        lines += ["  }"]
    return "\n".join([*lines, "}"])


_LOG_ELEMENTS = (
    "user=<%u> method=%m rip=%r rport=%{rport} lip=%l lport=%{lport} real_rip=%{real_rip} %c session=<%{session}>"
)

_BASE = """\
base_dir = {base}/run
state_dir = {base}/run
instance_name = {base.name}
log_path = {base}/dovecot.log
auth_verbose = yes
protocols = {protocols}
listen = {address}
login_greeting = {base.name} ready.
login_trusted_networks = 127.0.0.0/8
haproxy_trusted_networks = 127.0.0.0/8
disable_plaintext_auth = no
auth_mechanisms = plain login
auth_master_user_separator = *
auth_username_format = %Ln
auth_failure_delay = 0
ssl = yes
ssl_cert = <{certificate}
ssl_key = <{key}
mail_location = maildir:%h/Maildir
mail_max_userip_connections = 1000
first_valid_uid = 1
first_valid_gid = 1
# Tests and the lab keep nothing: no wait for the disk.
mail_fsync = never
login_log_format_elements = {elements}
passdb {{
  driver = passwd-file
  args = {base}/masters
  master = yes
  result_success = continue
}}
passdb {{
  driver = passwd-file
  args = {base}/users
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={mail}/%n
}}
namespace inbox {{
  inbox = yes
  separator = /
}}
protocol imap {{
  imap_id_log = *
  imap_id_send = name {name}
}}
service stats {{
  client_limit = 1000
}}
service anvil {{
  client_limit = 1000
  # No growing delays after wrong passwords: all clients here share an address.
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
"""

_RELAY = """
hostname = {name}
submission_relay_host = {host}
submission_relay_port = {port}
"""

_LMTP = """
service lmtp {{
  {user}
  inet_listener lmtp {{
    port = {port}
  }}
}}
"""

_WITHOUT_ROOT = """
default_internal_user = {account}
default_login_user = {account}
default_internal_group = {group}
service imap-login {{
  chroot =
}}
service pop3-login {{
  chroot =
}}
service submission-login {{
  chroot =
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"""
