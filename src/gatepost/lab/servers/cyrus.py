"""Cyrus IMAP 3 as a second kind of mailbox server: another greeting, no `user*master`, no `ID x-originating-ip`.

Its master user ("proxyserver") signs in by SASL PLAIN with an authorization identity only. It needs root (it drops to
the account `cyrus`). Debian's daemon packages conflict with Dovecot's, so they are unpacked beside (see
`scripts/install-packages`) and found by `daemons`.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gatepost.lab.servers.dovecot import MasterUser
from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.ports import MailPorts
from gatepost.lab.servers.process import ServerMissing, ServerProcess, require_program

PACKAGES = ("cyrus-common", "sasl2-bin", "libsasl2-modules")
MASTER = Path("/usr/lib/cyrus/bin/master")
INSTALL = "cyrus-common sasl2-bin libsasl2-modules, then scripts/install-packages for the unpacked daemons"
SASL_SECONDS = 10.0
"""One run of saslpasswd2."""


def daemons() -> Path:
    """The directory of imapd and pop3d: `GATEPOST_CYRUS` (a root they were unpacked in), this checkout, the system.

    Raises `ServerMissing`.
    """
    roots = [Path(os.environ["GATEPOST_CYRUS"])] if "GATEPOST_CYRUS" in os.environ else []
    for root in (*roots, Path.cwd() / ".cache/cyrus", Path("/")):
        found = root / "usr/lib/cyrus/bin"
        if (found / "imapd").exists() and (found / "pop3d").exists() and MASTER.exists():
            return found
    raise ServerMissing("Cyrus IMAP", [INSTALL])


class Cyrus(ServerProcess):
    """One Cyrus with IMAP and POP3, clear with STARTTLS and implicit TLS. A first sign-in makes the INBOX."""

    def __init__(
        self,
        directory: Path,
        address: str,
        ports: MailPorts,
        accounts: Mapping[str, str],
        certificate: CertificateFiles,
        *,
        master: MasterUser | None = None,
        name: str = "cyrus",
    ) -> None:
        """`accounts` maps names (without a domain) to passwords. Raises `ServerMissing`, also when not root."""
        programs = daemons()
        saslpasswd = require_program("saslpasswd2", PACKAGES)
        if os.geteuid() != 0:
            raise ServerMissing("Cyrus IMAP (which starts as root only)", [INSTALL])
        directory.mkdir(parents=True, exist_ok=True)
        files = ("imapd.conf", "cyrus.conf", "master.pid")
        imapd, services, pid = (str(directory / f) for f in files)
        argv = [str(MASTER), "-C", imapd, "-M", services, "-p", pid, "-D"]
        offered = (ports.imap, ports.imaps, ports.pop3, ports.pop3s)
        super().__init__(name, argv, directory, [(address, port) for port in offered])
        self.address = address
        self.ports = ports
        self.master = master
        values = {"base": directory, "programs": programs, "name": f"{name.lower()}.contoso.com", "address": address}
        proxy = f"proxyservers: {master.name}\n" if master else ""
        key = self._private_copy(certificate.private_key)
        tls = f"tls_server_cert: {certificate.certificate}\ntls_server_key: {key}\n"
        (directory / "imapd.conf").write_text(_IMAPD.format(**values) + proxy + tls)
        (directory / "cyrus.conf").write_text(_services(directory, programs, address, ports))
        everyone = dict(accounts) | ({master.name: master.password} if master else {})
        for user, password in everyone.items():
            self._add(saslpasswd, user, password, str(values["name"]))
        self._hand_over()

    def _private_copy(self, key: Path) -> Path:
        """A key that the account `cyrus` can read."""
        copied = self.directory / "server.key"
        copied.touch(mode=0o600)
        shutil.copyfile(key, copied)
        return copied

    def _add(self, saslpasswd: str, user: str, password: str, realm: str) -> None:
        argv = [saslpasswd, "-p", "-f", str(self.directory / "sasldb2"), "-u", realm, "-c", user]
        subprocess.run(argv, input=password.encode(), check=True, timeout=SASL_SECONDS, capture_output=True)  # noqa: S603

    def _hand_over(self) -> None:
        for part in ("db", "socket", "log", "msg", "proc", "quota", "user", "sieve", "sync"):
            (self.directory / "lib" / part).mkdir(parents=True, exist_ok=True)
        for part in ("spool", "sock", "lock", "proc"):
            (self.directory / part).mkdir(exist_ok=True)
        uid, gid = pwd.getpwnam("cyrus").pw_uid, grp.getgrnam("mail").gr_gid
        for path in (self.directory, *self.directory.rglob("*")):
            os.chown(path, uid, gid)


def _services(base: Path, programs: Path, address: str, ports: MailPorts) -> str:
    configuration = base / "imapd.conf"
    wanted = [("imap", "imapd", ""), ("imaps", "imapd", " -s"), ("pop3", "pop3d", ""), ("pop3s", "pop3d", " -s")]
    lines = ["START {", f'  recover cmd="/usr/lib/cyrus/bin/ctl_cyrusdb -C {configuration} -r"', "}", "SERVICES {"]
    for name, program, tls in wanted:
        command = f"{programs / program} -C {configuration}{tls} -U 30"
        listen = f"{address}:{getattr(ports, name)}"
        lines.append(f'  {name} cmd="{command}" listen="{listen}" proto="tcp4" prefork=1 maxchild=100')
    return "\n".join([*lines, "}", "EVENTS {", "}", ""])


_IMAPD = """\
configdirectory: {base}/lib
proc_path: {base}/proc
mboxname_lockpath: {base}/lock
defaultpartition: default
partition-default: {base}/spool
servername: {name}
admins: cyradm
allowplaintext: yes
altnamespace: yes
unixhierarchysep: yes
virtdomains: no
autocreate_quota: 0
autocreate_post: yes
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: {base}/sasldb2
sasl_mech_list: PLAIN LOGIN
lmtpsocket: {base}/sock/lmtp
idlesocket: {base}/sock/idle
notifysocket: {base}/sock/notify
sievedir: {base}/lib/sieve
"""
