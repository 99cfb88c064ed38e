"""Samba as an Active Directory domain controller: users, service principals, keytabs. Files only under its directory.

Its ports are fixed (88, 389, 464 and so on), so each controller has a loopback address of its own; root is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import ServerMissing, ServerNotStarted, ServerProcess, require_program

PACKAGES = ("samba", "samba-ad-provision", "samba-dsdb-modules", "samba-vfs-modules", "krb5-user")
REALM = "AD.CONTOSO.TEST"
NETBIOS = "CONTOSO"
ADMIN_PASSWORD = "Passw0rd!"  # noqa: S105 - for tests on this machine
PROVISION_SECONDS = 120.0
_SYSTEM_PYTHON = "/usr/bin/python3"
"""Samba's modules are Debian's, not those of a virtual environment."""

_SERVICES = "ldap, cldap, kdc"
_FUNCTIONS = """\
import json, sys
from samba.auth import system_session
from samba.net import Net
from samba.param import LoadParm
from samba.samdb import SamDB
from samba.dsdb import UF_TRUSTED_TO_AUTHENTICATE_FOR_DELEGATION
import samba.dckeytab, ldb
order = json.load(sys.stdin)
lp = LoadParm(); lp.load(order["configuration"])
net = Net(None, lp)
db = SamDB(url=lp.samdb_url(), session_info=system_session(), lp=lp)
for name, password, spns in order["users"]:
    db.newuser(name, password)
    found = "(sAMAccountName=%s)" % ldb.binary_encode(name)
    dn = db.search(expression=found, attrs=[])[0].dn
    change = ldb.Message(dn)
    change["e"] = ldb.MessageElement("24", ldb.FLAG_MOD_REPLACE, "msDS-SupportedEncryptionTypes")
    if spns:
        change["s"] = ldb.MessageElement(spns, ldb.FLAG_MOD_REPLACE, "servicePrincipalName")
    db.modify(change)
    db.setpassword(found, password, False)
for name, services, any_protocol in order["delegations"]:
    dn = db.search(expression="(sAMAccountName=%s)" % ldb.binary_encode(name), attrs=[])[0].dn
    change = ldb.Message(dn)
    change["d"] = ldb.MessageElement(services, ldb.FLAG_MOD_REPLACE, "msDS-AllowedToDelegateTo")
    db.modify(change)
    db.toggle_userAccountFlags("(sAMAccountName=%s)" % name, UF_TRUSTED_TO_AUTHENTICATE_FOR_DELEGATION,
        "Trusted-to-Authenticate-for-Delegation", on=any_protocol, strict=False)
for file, principals in order["keytabs"]:
    for principal in principals:
        net.export_keytab(keytab=file, principal=principal)
"""
_LOADING = """\
import json, sys
from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB
import ldb
order = json.load(sys.stdin)
lp = LoadParm(); lp.load(order["configuration"])
for ldif in order["ldifs"]:
    db = SamDB(url=lp.samdb_url(), session_info=system_session(), lp=lp)
    db.transaction_start()
    for kind, message in db.parse_ldif(ldif):
        if kind == ldb.CHANGETYPE_DELETE:
            db.delete(message.dn)
        elif kind == ldb.CHANGETYPE_MODIFY:
            db.modify(message)
        else:
            db.add(message)
    db.transaction_commit()
    if "CN=Schema," in ldif:
        db.set_schema_update_now()
"""
_KRB5 = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  forwardable = true
  {more}
[realms]
  {realm} = {{
    kdc = {address}
  }}
[domain_realm]
  .contoso.com = {realm}
  contoso.com = {realm}
"""


class Samba(ServerProcess):
    """One domain controller of `REALM`. `krb5_conf` is for Kerberos clients (`KRB5_CONFIG`)."""

    def __init__(
        self, directory: Path, address: str, *, name: str = "DC-01", certificate: CertificateFiles | None = None
    ) -> None:
        """Provisions a new domain: some seconds. With a certificate LDAP has TLS, at port 636 and by STARTTLS.

        Raises `ServerMissing` and `ServerNotStarted`.
        """
        program = require_program("samba", PACKAGES)
        self._tool = require_program("samba-tool", PACKAGES)
        require_program("kinit", PACKAGES)
        if not Path("/usr/share/samba/setup/ad-schema").exists():
            raise ServerMissing("Samba's schema", PACKAGES)
        if os.geteuid() != 0:
            raise ServerMissing("root, for a domain controller's ports", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        self.configuration = directory / "etc" / "smb.conf"
        self.krb5_conf = directory / "krb5.conf"
        self.realm = REALM
        self.address = address
        self._provision(directory, address, name, certificate)
        self.write_krb5_conf(self.krb5_conf)
        argv = [program, "-F", "--no-process-group", "-M", "single", f"--configfile={self.configuration}"]
        ports = (88, 389) if certificate is None else (88, 389, 636)
        super().__init__(name, [*argv, "--debug-stdout"], directory, [(address, port) for port in ports])

    @property
    def url(self) -> str:
        """Where LDAP is, with TLS from the first octet."""
        return f"ldaps://{self.address}"

    def _provision(self, directory: Path, address: str, name: str, certificate: CertificateFiles | None) -> None:
        empty = directory / "empty.conf"
        empty.write_text("[global]\n")
        tls = {"tls enabled": "no"}
        if certificate is not None:
            tls = {
                "tls enabled": "yes",
                "tls certfile": str(certificate.certificate),
                "tls keyfile": str(certificate.private_key),
                "tls cafile": "",
                "dsdb:schema update allowed": "true",
            }
        options = {
            "interfaces": f"{address}/8",
            "bind interfaces only": "yes",
            "pid directory": f"{directory}/run",
            "ncalrpc dir": f"{directory}/ncalrpc",
            "ntp signd socket directory": f"{directory}/ntp_signd",
            "winbindd socket directory": f"{directory}/winbindd",
            "log file": f"{directory}/log.%m",
            "disable netbios": "yes",
            **tls,
            "server services": _SERVICES,
        }
        run = subprocess.run(  # noqa: S603 - arguments are ours
            [
                self._tool, "domain", "provision", f"--configfile={empty}", f"--realm={REALM}", f"--domain={NETBIOS}",
                "--server-role=dc", "--dns-backend=NONE", f"--adminpass={ADMIN_PASSWORD}", f"--targetdir={directory}",
                f"--host-name={name.lower()}", f"--host-ip={address}",
                *[f"--option={key}={value}" for key, value in options.items()],
            ],
            capture_output=True,
            timeout=PROVISION_SECONDS,
            check=False,
        )  # fmt: skip
        if run.returncode:
            raise ServerNotStarted(f"samba-tool failed: {run.stderr.decode(errors='replace')[-2000:]}")

    def write_krb5_conf(self, path: Path, more: str = "", address: str = "") -> None:
        """A client's configuration; `more` is a line of its defaults, `address` another KDC's."""
        path.write_text(_KRB5.format(realm=REALM, address=address or self.address, more=more))

    def add(
        self,
        users: Mapping[str, tuple[str, tuple[str, ...]]],
        keytabs: Mapping[Path, tuple[str, ...]] | None = None,
        delegations: Mapping[str, tuple[tuple[str, ...], bool]] | None = None,
    ) -> None:
        """Add users: password and service principal names of each; then write keytabs with these principals' keys.

        `delegations`: to which services an account may carry users' tickets, and whether also without such a ticket
        (`msDS-AllowedToDelegateTo`, protocol transition).

        Works on the files, whether it runs or not. Raises `ServerNotStarted`.
        """
        order = {
            "users": [[name, password, list(spns)] for name, (password, spns) in users.items()],
            "keytabs": [[str(path), list(names)] for path, names in (keytabs or {}).items()],
            "delegations": [[name, list(to), free] for name, (to, free) in (delegations or {}).items()],
        }
        self._run(_FUNCTIONS, order)

    def load(self, *ldifs: str) -> None:
        """Apply LDIFs, one after the other: entries and changes of entries, without asking for rights.

        Works on the files, whether it runs or not. Raises `ServerNotStarted`.
        """
        self._run(_LOADING, {"ldifs": list(ldifs)})

    def _run(self, functions: str, order: Mapping[str, object]) -> None:
        run = subprocess.run(  # noqa: S603 - arguments are ours
            [_SYSTEM_PYTHON, "-c", functions],
            input=json.dumps({"configuration": str(self.configuration), **order}).encode(),
            capture_output=True,
            timeout=PROVISION_SECONDS,
            check=False,
        )
        if run.returncode:
            raise ServerNotStarted(f"Samba's tools failed: {run.stderr.decode(errors='replace')[-2000:]}")

    def set_password(self, account: str, password: str, keytab: Path, principals: tuple[str, ...]) -> None:
        """Another password, and so other keys with the next number; the new ones are added to `keytab`.

        Raises `ServerNotStarted`.
        """
        where = f"--configfile={self.configuration}"
        orders = [["user", "setpassword", account, f"--newpassword={password}", where]]
        orders += [["domain", "exportkeytab", str(keytab), f"--principal={name}", where] for name in principals]
        for order in orders:
            run = subprocess.run([self._tool, *order], capture_output=True, timeout=PROVISION_SECONDS, check=False)  # noqa: S603
            if run.returncode:
                raise ServerNotStarted(f"samba-tool failed: {run.stderr.decode(errors='replace')[-2000:]}")

    def kinit(self, user: str, password: str, cache: Path, *options: str) -> None:
        """A ticket-granting ticket in `cache`. Raises `ServerNotStarted`."""
        run = subprocess.run(  # noqa: S603 - arguments are ours
            ["kinit", "-c", f"FILE:{cache}", *options, f"{user}@{REALM}"],  # noqa: S607
            input=f"{password}\n".encode(),
            env={**os.environ, "KRB5_CONFIG": str(self.krb5_conf)},
            capture_output=True,
            timeout=30,
            check=False,
        )
        if run.returncode:
            raise ServerNotStarted(f"kinit failed: {run.stderr.decode(errors='replace')}")
