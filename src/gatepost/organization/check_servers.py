"""The check of servers: their site, names, endpoints and how Gatepost signs in at them (part of SPEC O2)."""

from __future__ import annotations

from collections.abc import Iterator

from gatepost.organization.addresses import is_address, is_header_name, is_host_name, is_loopback
from gatepost.organization.faults import Path, error, listed, quoted, unknown, warning
from gatepost.organization.model import (
    ClientAddress,
    Endpoint,
    Finding,
    HttpSignIn,
    Organization,
    Protocol,
    Role,
    Server,
    SignIn,
    SignInForm,
    TlsMode,
    Version,
)

MAX_PORT = 65535

TLS_MODES: dict[str, frozenset[TlsMode]] = {
    "imap": frozenset({TlsMode.STARTTLS, TlsMode.CLEAR}),
    "imaps": frozenset({TlsMode.IMPLICIT}),
    "pop3": frozenset({TlsMode.STARTTLS, TlsMode.CLEAR}),
    "pop3s": frozenset({TlsMode.IMPLICIT}),
    "https": frozenset({TlsMode.IMPLICIT}),
    "peer": frozenset({TlsMode.IMPLICIT}),
    "http": frozenset({TlsMode.CLEAR}),
    "smtp": frozenset({TlsMode.STARTTLS, TlsMode.CLEAR}),
    "lmtp": frozenset({TlsMode.STARTTLS, TlsMode.IMPLICIT, TlsMode.CLEAR}),
    "submission": frozenset({TlsMode.STARTTLS, TlsMode.CLEAR}),
    "submissions": frozenset({TlsMode.IMPLICIT}),
}
"""What each endpoint's name promises (RFC 8314 section 3 keeps implicit TLS on names of its own)."""

IMPLICIT_TLS_PORTS = {993: "imaps", 995: "pop3s", 443: "https", 465: "submissions"}
"""Ports at which clients and servers begin with TLS (RFC 8314 section 7), and the endpoints that do."""
CLEAR_START_PORTS = {143: "imap", 110: "pop3", 25: "smtp", 587: "submission"}
"""Ports at which they begin in clear."""

_OTHER_NAMES = {
    "imap": "imaps",
    "imaps": "imap",
    "pop3": "pop3s",
    "pop3s": "pop3",
    "https": "http",
    "submission": "submissions",
    "submissions": "submission",
}
"""Endpoints of one protocol whose names promise different TLS modes."""
_CLIENT_ADDRESS_PROTOCOLS = {
    ClientAddress.ID: (Protocol.IMAP,),
    ClientAddress.XCLIENT: (Protocol.POP3, Protocol.SMTP, Protocol.SUBMISSION),
    ClientAddress.XCLIENT_LOGIN: (Protocol.SUBMISSION,),
}


def check_servers(organization: Organization) -> Iterator[Finding]:
    """All faults of the servers."""
    for server in organization.servers.values():
        yield from _check_server(organization, server)
        yield from _check_endpoints(server)
        yield from _check_sign_in(server)
    yield from _check_principals(organization)


def _check_server(organization: Organization, server: Server) -> Iterator[Finding]:
    path: Path = ("servers", server.name)
    who = f"server {server.name}"
    if server.site not in organization.sites:
        yield unknown((*path, "site"), who, "site", "sites", server.site, organization.sites)
    if not server.roles:
        yield error((*path, "roles"), who, "has no role", 'give it one, for example roles = ["mailbox"]')
    if not is_host_name(server.fqdn):
        message = f"the name {quoted(server.fqdn)} cannot be a host name"
        yield error((*path, "fqdn"), who, message, 'set fqdn, for example fqdn = "mbx-01.contoso.com"')
    if not is_address(server.address) and server.address != server.fqdn:
        message = f"the address {quoted(server.address)} is neither an IP address nor a host name"
        yield error((*path, "address"), who, message, "correct the address")
    if server.max_connections < 1:
        message = f"max_connections is {server.max_connections}"
        yield error((*path, "max_connections"), who, message, "make it 1 or more")
    if Role.MAILBOX in server.roles and server.version >= Version.MODERN and not server.endpoints:
        remedy = f"list what it answers in [servers.{server.name}.endpoints], for example imap = {{}}"
        yield warning((*path, "endpoints"), who, "has no endpoints, so no client can be taken to it", remedy)


def _check_endpoints(server: Server) -> Iterator[Finding]:
    taken: dict[tuple[str, int], str] = {}
    for endpoint in server.endpoints:
        yield from _check_endpoint(server, endpoint)
        other = taken.setdefault((endpoint.address.casefold(), endpoint.port), endpoint.name)
        if other != endpoint.name:
            message = f"{endpoint.name} has the same address and port as {other}: {endpoint.address} {endpoint.port}"
            path = ("servers", server.name, "endpoints", endpoint.name)
            yield error(path, f"server {server.name}", message, "give each endpoint its own port")


def _check_endpoint(server: Server, endpoint: Endpoint) -> Iterator[Finding]:
    path: Path = ("servers", server.name, "endpoints", endpoint.name)
    who = f"server {server.name}"
    modes = TLS_MODES.get(endpoint.name)
    if modes is None:
        yield unknown(path, who, "endpoint", "endpoints", endpoint.name, TLS_MODES)
    elif endpoint.tls not in modes and endpoint.name == "http":
        message = "endpoint http is clear text, which must be said"
        yield error((*path, "tls"), who, message, 'write http = { tls = "clear" }, or use https')
    elif endpoint.tls not in modes:
        words = " or ".join(f'tls = "{mode.value}"' for mode in sorted(modes, reverse=True))
        message = f'endpoint {endpoint.name} has tls = "{endpoint.tls.value}"'
        yield error((*path, "tls"), who, message, f"for {endpoint.name} write {words}{_other_name(endpoint)}")
    if not 1 <= endpoint.port <= MAX_PORT:
        message = f"endpoint {endpoint.name} has port {endpoint.port}"
        yield error((*path, "port"), who, message, f"ports go from 1 to {MAX_PORT}")
    if modes and endpoint.tls in modes:
        yield from _check_port_and_tls(path, who, endpoint)
    if endpoint.address != server.address and not is_address(endpoint.address):
        message = f"endpoint {endpoint.name}: {quoted(endpoint.address)} is neither an IP address nor a host name"
        yield error((*path, "address"), who, message, "correct the address")
    if endpoint.tls_name != server.fqdn and not is_address(endpoint.tls_name):
        message = f"endpoint {endpoint.name}: {quoted(endpoint.tls_name)} cannot be a name in a certificate"
        yield error((*path, "tls_name"), who, message, "write the name that the server's certificate carries")
    fits = _CLIENT_ADDRESS_PROTOCOLS.get(endpoint.client_address, (endpoint.protocol,))
    if endpoint.protocol not in fits:
        word, known = endpoint.client_address.value, listed([protocol.value for protocol in fits])
        message = f'endpoint {endpoint.name} has client_address = "{word}", which only {known} knows'
        yield error((*path, "client_address"), who, message, 'use "proxy-v2" or "none"')


def _check_port_and_tls(path: Path, who: str, endpoint: Endpoint) -> Iterator[Finding]:
    """A side that waits for TLS and one that waits for a greeting wait for each other until somebody gives up."""
    begins = "with TLS" if endpoint.tls is TlsMode.IMPLICIT else "in clear"
    usual = CLEAR_START_PORTS if endpoint.tls is TlsMode.IMPLICIT else IMPLICIT_TLS_PORTS
    other = usual.get(endpoint.port)
    if other is not None:
        message = f"endpoint {endpoint.name} begins {begins} on port {endpoint.port}, the port of {other}"
        yield warning((*path, "port"), who, message, f"name it {other}, or correct its port")


def _other_name(endpoint: Endpoint) -> str:
    """The name under which the TLS mode that was asked for exists, as an end of a remedy."""
    other = _OTHER_NAMES.get(endpoint.name, "")
    return f", or name it {other}" if endpoint.tls in TLS_MODES.get(other, ()) else ""


def _check_principals(organization: Organization) -> Iterator[Finding]:
    """By its account one front end knows another: no two may have the same, and only front ends need one."""
    known: dict[str, str] = {}
    for server in organization.servers.values():
        principal = server.kerberos_principal
        path: Path = ("servers", server.name, "kerberos_principal")
        who = f"server {server.name}"
        if not principal:
            continue
        name, at, realm = principal.rpartition("@")
        if not at or not name or not realm:
            message = f"{quoted(principal)} is no account of a realm"
            yield error(path, who, message, 'write it with its realm: "CAS-01$@AD.CONTOSO.COM"')
        if principal in known:
            message = f"has the account of {known[principal]}: other front ends could not tell them apart"
            yield error(path, who, message, "give each front end an account of its own")
        known[principal] = server.name


def _check_sign_in(server: Server) -> Iterator[Finding]:
    sign_in = server.sign_in
    path: Path = ("servers", server.name, "sign_in")
    who = f"server {server.name}"
    if sign_in.form in {SignInForm.MASTER_NAME, SignInForm.MASTER_AUTHZID} or sign_in.http is HttpSignIn.MASTER:
        yield from _check_master(path, who, sign_in)
    if sign_in.form is SignInForm.ASSERTION and not sign_in.assertion_key:
        message = 'the sign-in form "assertion" needs a key to sign with'
        remedy = "set assertion_key_file to a file made by: gatepost assertion-key make FILE"
        yield error((*path, "assertion_key_file"), who, message, remedy)
    if sign_in.http is HttpSignIn.HEADER:
        yield from _check_header(path, who, server)
    if sign_in.http in (HttpSignIn.HEADER, HttpSignIn.KERBEROS):
        yield from _check_exposed(path, who, server)
    if sign_in.kerberos_host and not is_host_name(sign_in.kerberos_host.partition("@")[0]):
        message = f"{quoted(sign_in.kerberos_host)} is no host of a service principal"
        yield error((*path, "kerberos_host"), who, message, 'write it like "imap.contoso.com"')


def _check_master(path: Path, who: str, sign_in: SignIn) -> Iterator[Finding]:
    form = "http = master" if sign_in.http is HttpSignIn.MASTER else sign_in.form.value
    if not sign_in.master_user:
        message = f'the sign-in form "{form}" needs a master user'
        yield error((*path, "master_user"), who, message, "set master_user to the name the server knows it by")
    if not sign_in.master_password:
        message = f'the sign-in form "{form}" needs the master user\'s password'
        remedy = "set master_password_file to a file that holds it"
        yield error((*path, "master_password_file"), who, message, remedy)
    if (sign_in.form is SignInForm.MASTER_NAME or sign_in.http is HttpSignIn.MASTER) and not sign_in.separator:
        remedy = 'set it as the server has it, for example separator = "*"'
        yield error((*path, "separator"), who, "the separator between user and master user is empty", remedy)


def _check_header(path: Path, who: str, server: Server) -> Iterator[Finding]:
    """A header that names the user is worth nothing where others can write to the wire (SPEC C11)."""
    if not is_header_name(server.sign_in.http_header):
        message = f"{quoted(server.sign_in.http_header)} cannot be the name of a header"
        yield error((*path, "http_header"), who, message, 'write it like "X-Remote-User"')


def _check_exposed(path: Path, who: str, server: Server) -> Iterator[Finding]:
    web = [endpoint for endpoint in server.endpoints if endpoint.protocol is Protocol.HTTPS]
    exposed = [e.name for e in web if e.tls is TlsMode.CLEAR and not is_loopback(e.address)]
    if exposed:
        what = "a header names the user" if server.sign_in.http is HttpSignIn.HEADER else "a ticket shows the user"
        message = f"{what}, but the endpoint {listed(exposed)} is clear and not on a loopback address"
        remedy = 'use an https endpoint, or http = "basic"'
        yield error((*path, "http"), who, message, remedy)
