"""Postfix as a hub, with any number of ports of its own kind each, and Postfix' `smtp-sink`, which takes every message.

A Postfix hands what it takes to one other server, so nothing leaves the machine. It needs root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import Address, ServerMissing, ServerProcess, require_program

PACKAGES = ("postfix",)
MASTER = Path("/usr/lib/postfix/sbin/master")
SERVICES = Path("/etc/postfix/master.cf.proto")
"""Debian's list of services; without chroot and without those that need other programs it is ours."""
SETTING_UP_SECONDS = 30.0
ACCOUNT = "postfix"
SINK_ACCOUNT = "nobody"
SINK_BACKLOG = 1000


class Postfix(ServerProcess):
    """One Postfix with its own queue. `listeners`: options of `smtpd` for each port, such as `smtpd_x=y`."""

    def __init__(
        self,
        directory: Path,
        address: str,
        listeners: Mapping[int, Sequence[str]],
        relay: Address,
        *,
        name: str,
        certificate: CertificateFiles | None = None,
        settings: str = "",
    ) -> None:
        """`settings` are more lines of `main.cf`, or others in place of ours. Raises `ServerMissing`, also when not root."""
        require_program("postfix", PACKAGES)
        if os.geteuid() != 0:
            raise ServerMissing("Postfix (which must be started as root)", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        ready = [(address, port) for port in listeners]
        super().__init__(name, [str(MASTER), "-c", str(directory / "etc"), "-d"], directory, ready)
        self.address = address
        self.log = directory / "postfix.log"
        self.extra_logs.append(self.log)
        for part in ("etc", "spool", "data"):
            (directory / part).mkdir(exist_ok=True)
        shutil.chown(directory / "data", ACCOUNT)
        main = _MAIN.format(base=directory, name=name.lower(), address=address, host=relay[0], port=relay[1])
        if certificate is not None:
            main += _TLS.format(certificate=certificate.certificate, key=certificate.private_key)
        (directory / "etc/main.cf").write_text(_merged(main + settings))
        (directory / "etc/master.cf").write_text(_services(address, listeners))
        self._set_up()

    def _set_up(self) -> None:
        """Have Postfix make the directories of its queue."""
        postfix = require_program("postfix", PACKAGES)
        argv = [postfix, "-c", str(self.directory / "etc"), "check"]
        subprocess.run(argv, check=True, timeout=SETTING_UP_SECONDS)  # noqa: S603 - arguments are ours

    def log_text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def clients(self) -> list[str]:
        """The client address of each message that it took, in order."""
        return re.findall(r"smtpd\[\d+\]: [0-9A-F]+: client=\S+?\[([0-9A-Fa-f.:]+)\]", self.log_text())


class SmtpSink(ServerProcess):
    """Takes every message and keeps it: `messages`, with lines `X-Mail-Args` and `X-Rcpt-Args` on top."""

    def __init__(
        self, directory: Path, address: str, port: int, name: str = "sink", options: Sequence[str] = ()
    ) -> None:
        """`options` are more of `smtp-sink`'s. Raises `ServerMissing`."""
        program = require_program("smtp-sink", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        # `smtp-sink` gives up its rights before it writes, and tests' own directories are nobody else's to enter.
        self.kept = Path(tempfile.mkdtemp(prefix="sink-", dir="/tmp" if os.geteuid() == 0 else directory))  # noqa: S108
        account: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self.kept, SINK_ACCOUNT)
            account = ["-u", SINK_ACCOUNT]
        host = f"[{address}]" if ":" in address else address
        argv = [program, *account, *options, "-d", f"{self.kept}/%H%M%S.", f"{host}:{port}", str(SINK_BACKLOG)]
        super().__init__(name, argv, directory, [(address, port)])
        self.address: Address = (address, port)

    def messages(self) -> list[bytes]:
        """What it took, oldest first."""
        found = sorted(self.kept.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return [path.read_bytes() for path in found]

    def stop(self, seconds: float = 3.0) -> None:
        """End it; what it kept goes."""
        super().stop(seconds)
        shutil.rmtree(self.kept, ignore_errors=True)


def _merged(text: str) -> str:
    """Lines of `main.cf` of which the last of a name counts: Postfix warns of each other, again and again."""
    return "".join({line.partition("=")[0].strip(): f"{line}\n" for line in text.splitlines()}.values())


def _services(address: str, listeners: Mapping[int, Sequence[str]]) -> str:
    lines = []
    for line in SERVICES.read_text().splitlines():
        words = line.split()
        if not words or line.startswith("#") or line[0].isspace() or len(words) < 8:
            continue
        if words[1] == "inet" or words[7] not in _OURS:
            continue
        words[4] = "n"  # no chroot
        lines.append(" ".join(words))
    for port, options in listeners.items():
        lines.append(f"{address}:{port} inet n - n - - smtpd")
        lines += [f"  -o {option}" for option in options]
    return "\n".join(lines) + "\n"


_OURS = frozenset({
    "pickup", "cleanup", "qmgr", "tlsmgr", "trivial-rewrite", "bounce", "flush", "proxymap", "smtp", "showq", "error",
    "discard", "local", "virtual", "lmtp", "anvil", "scache", "postlogd",
})  # fmt: skip

_MAIN = """\
compatibility_level = 3.6
queue_directory = {base}/spool
data_directory = {base}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
maillog_file = {base}/postfix.log
maillog_file_prefixes = {base}
syslog_name = postfix
myhostname = {name}.contoso.com
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
smtp_bind_address = {address}
mynetworks = 127.255.255.0/24
alias_maps =
local_recipient_maps =
default_transport = smtp:[{host}]:{port}
relay_domains = contoso.com
relay_transport = smtp:[{host}]:{port}
smtp_dns_support_level = disabled
smtp_host_lookup = native
smtpd_peername_lookup = no
in_flow_delay = 0
smtpd_client_connection_count_limit = 0
smtpd_error_sleep_time = 0
"""
_TLS = """\
smtpd_tls_cert_file = {certificate}
smtpd_tls_key_file = {key}
smtpd_tls_security_level = may
"""
