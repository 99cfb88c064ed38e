"""OpenLDAP: one `slapd` with a database of its own, read from LDIF. Files only under its directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import (
    ServerMissing,
    ServerNotStarted,
    ServerProcess,
    free_ports,
    require_program,
)

PACKAGES = ("slapd", "ldap-utils")
SCHEMAS = Path("/etc/ldap/schema")
LOAD_SECONDS = 120.0
SUFFIX = "dc=contoso,dc=com"
ADMIN = f"cn=admin,{SUFFIX}"
ADMIN_PASSWORD = "adminpw"  # noqa: S105 - for tests on this machine

# The attributes of Active Directory and Exchange that Gatepost reads, and of qmail's schema, which many OpenLDAPs have.
_SCHEMA = """\
attributetype ( 1.2.840.113556.1.4.221 NAME 'sAMAccountName' EQUALITY caseIgnoreMatch {text} SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.656 NAME 'userPrincipalName' EQUALITY caseIgnoreMatch {text} SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.2.210 NAME 'proxyAddresses' EQUALITY caseIgnoreMatch {text} )
attributetype ( 1.2.840.113556.1.2.244 NAME 'homeMDB' EQUALITY distinguishedNameMatch {dn} SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.7000.102.50047 NAME 'msExchHomeServerName' EQUALITY caseIgnoreMatch {text} )
attributetype ( 1.2.840.113556.1.4.8 NAME 'userAccountControl' EQUALITY integerMatch {number} SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.96 NAME 'pwdLastSet' EQUALITY integerMatch {number} SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.782 NAME 'objectCategory' EQUALITY caseIgnoreMatch {text} SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.2.528 NAME 'protocolSettings' EQUALITY caseIgnoreMatch {text} )
attributetype ( 1.3.6.1.4.1.7914.1.2.1.4 NAME 'mailAlternateAddress' EQUALITY caseIgnoreMatch {text} )
attributetype ( 1.3.6.1.4.1.7914.1.2.1.7 NAME 'mailHost' EQUALITY caseIgnoreMatch {text} SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.7914.1.2.1.14 NAME 'accountStatus' EQUALITY caseIgnoreMatch {text} SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.55555.1.1 NAME 'mailDatabase' EQUALITY caseIgnoreMatch {text} SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.55555.1.2 NAME 'mailProtocols' EQUALITY caseIgnoreMatch {text} )
attributetype ( 1.3.6.1.4.1.55555.1.3 NAME 'mailProtocolsDenied' EQUALITY caseIgnoreMatch {text} )
attributetype ( 1.3.6.1.4.1.55555.1.4 NAME 'mailLogin' EQUALITY caseIgnoreMatch {text} SINGLE-VALUE )
objectclass ( 1.2.840.113556.1.5.9 NAME 'user' SUP inetOrgPerson STRUCTURAL MAY ( sAMAccountName $ userPrincipalName
  $ proxyAddresses $ homeMDB $ msExchHomeServerName $ userAccountControl $ pwdLastSet $ objectCategory
  $ protocolSettings ) )
objectclass ( 1.3.6.1.4.1.7914.1.2.2.1 NAME 'qmailUser' SUP top AUXILIARY MAY ( mailAlternateAddress $ mailHost
  $ accountStatus $ mailDatabase $ mailProtocols $ mailProtocolsDenied $ mailLogin ) )
""".format(
    text="SYNTAX 1.3.6.1.4.1.1466.115.121.1.15",
    dn="SYNTAX 1.3.6.1.4.1.1466.115.121.1.12",
    number="SYNTAX 1.3.6.1.4.1.1466.115.121.1.27",
)
_CONFIGURATION = """\
include {schemas}/core.schema
include {schemas}/cosine.schema
include {schemas}/inetorgperson.schema
include {directory}/mail.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {directory}/slapd.pid
argsfile {directory}/slapd.args
TLSCertificateFile {certificate}
TLSCertificateKeyFile {private_key}
threads 16
{extra}
database mdb
maxsize 2147483648
suffix "{suffix}"
rootdn "{admin}"
rootpw {password}
directory {directory}/data
dbnosync
index objectClass,mail,mailAlternateAddress,uid,proxyAddresses,sAMAccountName,userPrincipalName eq
access to attrs=userPassword by self write by anonymous auth by * none
access to * by users read by anonymous auth
"""
TOP = f"dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: contoso\no: Contoso\n\n"
"""The entry that all others are below, in LDIF."""


class Slapd(ServerProcess):
    """One slapd. `url` is clear or STARTTLS, `tls_url` TLS from the first octet; the administrator is `ADMIN`."""

    def __init__(
        self, directory: Path, address: str, certificate: CertificateFiles, *, name: str = "slapd", extra: str = ""
    ) -> None:
        """Raises `ServerMissing`. `extra` are further lines of the configuration's global part."""
        program = require_program("slapd", PACKAGES)
        if not (SCHEMAS / "inetorgperson.schema").exists():
            raise ServerMissing("slapd's schemas", PACKAGES)
        self._slapadd = require_program("slapadd", PACKAGES)
        (directory / "data").mkdir(parents=True, exist_ok=True)
        port, tls_port = free_ports(address, 2)
        self.url, self.tls_url = f"ldap://{address}:{port}", f"ldaps://{address}:{tls_port}"
        (directory / "mail.schema").write_text(_SCHEMA)
        self.configuration = directory / "slapd.conf"
        self.configuration.write_text(
            _CONFIGURATION.format(
                schemas=SCHEMAS,
                directory=directory,
                certificate=certificate.certificate,
                private_key=certificate.private_key,
                suffix=SUFFIX,
                admin=ADMIN,
                password=ADMIN_PASSWORD,
                extra=extra,
            )
        )
        self.configuration.chmod(0o600)
        argv = [program, "-d", "0", "-f", str(self.configuration), "-h", f"{self.url} {self.tls_url}"]
        super().__init__(name, argv, directory, [(address, port), (address, tls_port)])

    def load(self, ldif: str) -> None:
        """Put entries in while it does not run. Raises `ServerNotStarted`."""
        run = subprocess.run(  # noqa: S603 - arguments are ours
            [self._slapadd, "-q", "-f", str(self.configuration)],
            input=ldif.encode(),
            capture_output=True,
            timeout=LOAD_SECONDS,
            check=False,
        )
        if run.returncode:
            raise ServerNotStarted(f"slapadd failed: {run.stderr.decode(errors='replace')[-2000:]}")
