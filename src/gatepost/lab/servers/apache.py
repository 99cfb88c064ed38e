"""Apache as a mailbox server's web part that takes tickets (mod_auth_gssapi): answers say whose they were."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import ServerMissing, ServerProcess, require_program

PACKAGES = ("apache2-bin", "libapache2-mod-auth-gssapi")
MODULES = Path("/usr/lib/apache2/modules")
ACCOUNT = "www-data"
_CONFIGURATION = """\
ServerRoot {base}
ServerName {host}
PidFile {base}/httpd.pid
Listen {address}:{port}
{account}
ErrorLog {base}/error.log
LogLevel info
LogFormat "%>s %u %m %U %k %{{Authorization}}i" plain
CustomLog {base}/access.log plain
{modules}
StartServers 1
KeepAliveTimeout 30
DocumentRoot {base}/www
SSLEngine on
SSLCertificateFile {certificate}
SSLCertificateKeyFile {key}
<Directory {base}/www>
  AuthType GSSAPI
  AuthName mail
  GssapiCredStore keytab:{keytab}
  GssapiConnectionBound {bound}
  Require valid-user
</Directory>
Header always set X-User "expr=%{{REMOTE_USER}}"
"""
_NAMES = (
    "mpm_event",
    "authn_core",
    "authz_core",
    "authz_user",
    "auth_gssapi",
    "dir",
    "headers",
    "mime",
    "ssl",
)


class Apache(ServerProcess):
    """Serves `/owa/` and `/ews/` to whoever shows a ticket for `HTTP/host`, and names them in `X-User`."""

    def __init__(
        self,
        directory: Path,
        address: str,
        port: int,
        certificate: CertificateFiles,
        keytab: Path,
        *,
        host: str,
        bound: bool = False,
        name: str = "apache",
    ) -> None:
        """`bound`: a ticket counts for the whole connection. Raises `ServerMissing`."""
        program = require_program("apache2", PACKAGES)
        if not (MODULES / "mod_auth_gssapi.so").exists():
            raise ServerMissing("Apache's mod_auth_gssapi", PACKAGES)
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        self.address, self.port = address, port
        own = self.keytab = directory / "web.keytab"
        own.write_bytes(keytab.read_bytes())
        own.chmod(0o600)
        if os.geteuid() == 0:
            owner = pwd.getpwnam(ACCOUNT)
            os.chown(own, owner.pw_uid, owner.pw_gid)
        for folder in ("owa", "ews"):
            (directory / "www" / folder).mkdir(parents=True)
            (directory / "www" / folder / "index.html").write_text(f"{name} {folder}\n")
        (directory / "mime.types").write_text("text/html html\n")
        modules = [f"LoadModule {name}_module {MODULES}/mod_{name}.so" for name in _NAMES]
        configuration = directory / "httpd.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                base=directory,
                host=host,
                address=address,
                port=port,
                account=f"User {ACCOUNT}\nGroup {ACCOUNT}" if os.geteuid() == 0 else "",
                modules="\n".join([*modules, f"TypesConfig {directory}/mime.types", "DirectoryIndex index.html"]),
                certificate=certificate.certificate,
                key=certificate.private_key,
                keytab=own,
                bound="On" if bound else "Off",
            )
        )
        argv = [program, "-DFOREGROUND", "-f", str(configuration)]
        super().__init__(name, argv, directory, [(address, port)])
        self.extra_logs.append(directory / "error.log")
        self.access_log = directory / "access.log"

    def requests(self) -> list[str]:
        """Each request: status, user, method, path, its number on the connection, Authorization."""
        return self.access_log.read_text().splitlines() if self.access_log.exists() else []
