"""Exim 4 as a next server: it takes mail by SMTP with STARTTLS and keeps it in its queue, where a test can look.

Debian's package conflicts with Postfix, so it is unpacked beside (see `scripts/install-packages`) and found by
`program`. It needs root, and the account `nobody`.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import Address, ServerMissing, ServerProcess

ACCOUNT = "nobody"
INSTALL = "scripts/install-packages unpacks it"


def program() -> Path:
    """Exim's program: below `GATEPOST_EXIM` (a root it was unpacked in), this checkout, the system.

    Raises `ServerMissing`.
    """
    roots = [Path(os.environ["GATEPOST_EXIM"])] if "GATEPOST_EXIM" in os.environ else []
    for root in (*roots, Path.cwd() / ".cache/exim", Path("/")):
        found = root / "usr/sbin/exim4"
        if found.exists():
            return found
    raise ServerMissing("Exim", [INSTALL])


class Exim(ServerProcess):
    """One Exim with one port, for mail to `domains`. `settings` are more lines of its main section.

    With a `relay` it hands mail for `contoso.com` on to that server; all else it keeps to itself.
    """

    def __init__(
        self,
        directory: Path,
        address: str,
        port: int,
        certificate: CertificateFiles,
        *,
        settings: str = "",
        name: str = "exim",
        domains: Sequence[str] = ("contoso.com",),
        relay: Address | None = None,
    ) -> None:
        """Raises `ServerMissing`, also when not root."""
        found = program()
        if os.geteuid() != 0:
            raise ServerMissing("Exim (which must be started as root)", [INSTALL])
        owner = pwd.getpwnam(ACCOUNT)
        for part in ("", "spool", "log"):
            (directory / part).mkdir(parents=True, exist_ok=True)
            os.chown(directory / part, owner.pw_uid, owner.pw_gid)
        # It reads its key after it has given up its rights.
        key = directory / "key.pem"
        key.touch(mode=0o600)
        key.write_bytes(certificate.private_key.read_bytes())
        os.chown(key, owner.pw_uid, owner.pw_gid)
        values = {"base": directory, "program": found, "name": name.lower(), "address": address, "port": port}
        values |= {"domains": " : ".join(domains), "queueing": "queue_only" if relay is None else "", "relay": ""}
        transports = ""
        if relay is not None:
            values["relay"] = _RELAY.format(host=relay[0])
            transports = _TRANSPORTS.format(host=relay[0], port=relay[1])
        configuration = directory / "exim.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                **values, gid=owner.pw_gid, certificate=certificate.certificate, key=key, settings=settings
            )
            + transports
        )
        super().__init__(name, [str(found), "-C", str(configuration), "-bdf"], directory, [(address, port)])
        self.address = address
        self.port = port
        self.extra_logs += [directory / "log/mainlog", directory / "log/paniclog"]

    def bodies(self) -> list[bytes]:
        """What it took: bodies without header sections, lines ending in LF, oldest first."""
        found = sorted((self.directory / "spool/input").glob("*-D"), key=lambda path: path.stat().st_mtime_ns)
        return [path.read_bytes().partition(b"\n")[2] for path in found]

    def arrivals(self) -> list[dict[str, str]]:
        """Its log line of each message it took as fields: `P` is the protocol, `X` the TLS, `S` the size."""
        log = self.directory / "log/mainlog"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return [dict(re.findall(r" (\w+)=(\S+)", line)) for line in lines if " <= " in line]


_CONFIGURATION = """\
exim_path = {program}
spool_directory = {base}/spool
log_file_path = {base}/log/%slog
pid_file_path = {base}/exim.pid
primary_hostname = {name}.contoso.com
local_interfaces = {address}
daemon_smtp_ports = {port}
exim_user = {ACCOUNT}
exim_group = {gid}
never_users =
{queueing}
queue_run_in_order
tls_advertise_hosts = *
tls_certificate = {certificate}
tls_privatekey = {key}
smtp_enforce_sync = false
domainlist ours = {domains}
acl_smtp_rcpt = acl_rcpt
{settings}
begin acl
acl_rcpt:
  deny local_parts = unknown
       message = no such user
  accept domains = +ours
  deny message = relay not permitted
begin routers
{relay}
none:
  driver = redirect
  data = :blackhole:
""".replace("{ACCOUNT}", ACCOUNT)

_RELAY = """\
relay:
  driver = manualroute
  domains = contoso.com
  route_list = * {host} byname
  transport = relay
  self = send
"""
_TRANSPORTS = """\
begin transports
relay:
  driver = smtp
  port = {port}
  allow_localhost
  tls_verify_certificates =
"""
