"""The shape of the TOML files. Only shapes, words and ranges live here; what objects mean to each other is `check`.

The string under each key is its entry in `docs/configuration.md`, which `reference.py` writes from these classes.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import Field, create_model

from gatepost.configuration.client_certificates import ClientCertificatesTable
from gatepost.configuration.database_schema import DatabaseTable
from gatepost.configuration.directory_schema import DirectoryTable
from gatepost.configuration.etcd_schema import EtcdTable
from gatepost.configuration.hub_schema import HubTable
from gatepost.configuration.kerberos_schema import KerberosTable
from gatepost.configuration.manager_schema import ManagerTable
from gatepost.configuration.policy_schema import PolicyTable
from gatepost.configuration.scram import ScramTable
from gatepost.configuration.settings import Forms, FrontEnd, Limits
from gatepost.configuration.shared_store_schema import SharedStoreTable
from gatepost.configuration.tables import MAX_COUNT, MAX_SECONDS, Table, default_of
from gatepost.configuration.token_schema import TokenIssuerTable
from gatepost.configuration.transport_schema import (
    MAX_SIZE,
    ReceiveConnectorTable,
    SendConnectorTable,
    TransportConfigTable,
    TransportTable,
)
from gatepost.configuration.transport_words import DomainKindWord, Size
from gatepost.configuration.words import (
    AuthenticationWord,
    ClientAddressWord,
    CrossSiteRedirectWord,
    EditionWord,
    FormWord,
    HttpSignInWord,
    PathClassWord,
    Port,
    RoleWord,
    SubmissionExtensionWord,
    Subnet,
    TlsWord,
    VersionWord,
)
from gatepost.organization.model import (
    AuthenticationMethod,
    ClientAddress,
    CrossSiteRedirect,
    Edition,
    HttpSignIn,
    Server,
    SignIn,
    SignInForm,
    Site,
    SiteLink,
    Version,
)
from gatepost.wire.submission_front import EXTENSIONS

MAX_WORKERS = 1024
"""More processes than any machine's processors."""


def _limit(name: str, kind: type, default: float) -> Any:  # noqa: ANN401 - what create_model takes
    if kind is int:
        return (int, Field(default, ge=1, le=MAX_COUNT, examples=[str(2 * int(default))]))
    # No delay is a choice; no time at all to answer is not.
    if name == "refused_sign_in_delay_seconds":
        return (float, Field(default, ge=0, le=MAX_SECONDS, examples=[f"{2 * default:g}"]))
    return (float, Field(default, gt=0, le=MAX_SECONDS, examples=[f"{2 * default:g}"]))


if TYPE_CHECKING:
    LimitsTable = Table
else:
    _KINDS = get_type_hints(Limits)
    LimitsTable = create_model(
        "LimitsTable", __base__=Table, **{f.name: _limit(f.name, _KINDS[f.name], f.default) for f in fields(Limits)}
    )


class OtherKeyTable(Table):
    """A certificate's key whose sign-in cookies are opened too while front ends change their certificate."""

    private_key: str = Field(examples=['"pki/front-2026.key"'])
    """File with the private key, PEM, of the certificate before or of the one to come."""
    until: datetime = Field(examples=["2027-01-31T00:00:00Z"])
    """Until when, with its time zone."""


class FormsTable(Table):
    """Forms sign-in: virtual directories of this front end with `authentication = ["forms", …]` show a page."""

    public_seconds: float = Field(default=default_of(Forms, "public_seconds"), gt=0, le=MAX_SECONDS, examples=["600.0"])
    """How long a sign-in lasts without activity on a computer that others use."""
    private_seconds: float = Field(
        default=default_of(Forms, "private_seconds"), gt=0, le=MAX_SECONDS, examples=["86400.0"]
    )
    """The same on a computer of the user's own."""
    also_opens: list[OtherKeyTable] = []


class FrontEndTable(Table):
    """One front end: which server it is and what this machine gives it. Paths are relative to this file."""

    server: str = Field(default="", examples=['"CAS-01"'])
    """Name of the server that this front end is. `--server` overrides it; one of the two is needed."""
    organization: str = Field(default="", examples=['"organization.toml"'])
    """File with the organization's tables. Empty: they are in this file. All front ends can share that file."""
    directory: str = Field(examples=['"state/directory.sqlite"'])
    """File of the directory: users, passwords, databases of mailboxes."""
    registry: str = Field(examples=['"state/registry.sqlite"'])
    """File of the registry: which copy of each database is active. Its folder also holds this front end's lock and the
    socket of `gatepost` commands, with `[front_end.etcd]` only those."""
    certificate: str = Field(default="", examples=['"pki/front.crt"'])
    """File with the listeners' certificate chain, PEM, leaf first. Needed when any endpoint of this server has TLS."""
    private_key: str = Field(default="", examples=['"pki/front.key"'])
    """File with the certificate's private key, PEM, without a passphrase. Empty: it is in the certificate's file."""
    server_ca: str = Field(default="", examples=['"pki/ca.crt"'])
    """File with the certificates that sign the mailbox servers' certificates. Empty: the system's."""
    workers: int = Field(default=default_of(FrontEnd, "workers"), ge=0, le=MAX_WORKERS, examples=["2"])
    """Worker processes; 0 is one for each processor."""
    user: str = Field(default=default_of(FrontEnd, "user"), examples=['"gatepost"'])
    """Account that the workers run as once the ports are bound. Empty: the account that started them."""
    proxy_protocol_from: list[Subnet] = Field(default=[], examples=['["10.0.0.0/8"]'])
    """Peers whose connections begin with a PROXY header: required from these, refused from all others."""
    allow_clear_passwords: bool = Field(default=default_of(FrontEnd, "allow_clear_passwords"), examples=["true"])
    """Whether passwords may cross a connection without TLS. Only for trusted networks and tests."""
    pop3_utf8: bool = Field(default=default_of(FrontEnd, "pop3_utf8"), examples=["true"])
    """Whether POP3 clients are offered `UTF8`. They ask before their server is known: only if every server has it."""
    submission_extensions: list[SubmissionExtensionWord] = Field(
        default=list(EXTENSIONS), examples=['["PIPELINING", "SIZE", "8BITMIME", "ENHANCEDSTATUSCODES", "DSN"]']
    )
    """What submission clients are promised before their server is known, beside AUTH and STARTTLS: only what every
    server has that takes submissions. One that lacks a word is not used, and the log says so. Also known: `DSN`,
    `SMTPUTF8`, `CHUNKING`, `BINARYMIME`."""
    carry_over_idle: bool = Field(default=default_of(FrontEnd, "carry_over_idle"), examples=["true"])
    """Whether an IMAP session that is idling or between commands goes on at the new server when its database moves, if
    the mailbox is the same there, without the client noticing. Costs a look at what passes, hides `COMPRESS` from
    clients, and where users sign in at the servers with their own passwords keeps these in memory."""
    log_file: str = Field(default=default_of(FrontEnd, "log_file"), examples=['"log/gatepost.log"'])
    """File for the log. Empty: standard output."""
    log_requests: bool = Field(default=default_of(FrontEnd, "log_requests"), examples=["true"])
    """Whether every HTTP request gets a line in the log, beside the one of its connection."""
    shared_state: str = Field(default="", examples=['"state/shared.sqlite"'])
    """File of what front ends share: devices' servers, sign-outs. Default: `shared.sqlite` beside the registry."""
    app_passwords: str = Field(default="", examples=['"state/app-passwords.sqlite"'])
    """File of app passwords (`docs/app-passwords.md`). Default: `app-passwords.sqlite` beside the registry."""
    peer_certificate: str = Field(default="", examples=['"pki/cas-01-peer.crt"'])
    """File with the certificate that this front end shows other front ends, made by `gatepost ca issue`. Needed when
    this server has a `peer` endpoint or another front end that it proxies to has one. `{server}` in it stands for the
    server's name in lower case."""
    peer_private_key: str = Field(default="", examples=['"pki/cas-01-peer.key"'])
    """File with its private key, PEM; `{server}` as above. Empty: it is in the certificate's file."""
    organization_ca: str = Field(default="", examples=['"pki/organization-ca.crt"'])
    """File with the organization's own CA, made by `gatepost ca init`: what a peer's certificate must be signed by."""
    limits: LimitsTable = LimitsTable()
    forms: FormsTable = FormsTable()
    token_issuers: list[TokenIssuerTable] = []
    manager: ManagerTable | None = None
    transport: HubTable | None = None
    etcd: EtcdTable | None = None
    shared_store: SharedStoreTable | None = None
    directories: list[DirectoryTable] = []
    kerberos: KerberosTable | None = None
    scram: ScramTable | None = None
    client_certificates: ClientCertificatesTable | None = None
    sign_in_policy: PolicyTable = PolicyTable()


class OrganizationTable(Table):
    """The organization itself."""

    name: str = Field(examples=['"contoso"'])
    """Its name, for logs and commands."""
    edition: EditionWord = Field(default=Edition.RTM, examples=['"sp2"'])
    """Rules for 2010 and older mailboxes in another site. `rtm` refuses POP3 and IMAP, `sp2` proxies them; `rtm` looks
    at an external URL only where it could proxy too, `sp2` redirects browsers and phones to it in any case."""
    accepted_domains: list[str] = Field(default=[], examples=['["contoso.com"]'])
    """Its mail domains. A login name without a domain gets the first one."""
    accepted_domain_kinds: dict[str, DomainKindWord] = Field(
        default={}, examples=['{ "fabrikam.com" = "internal-relay" }']
    )
    """Kinds of accepted domains that are not `authoritative` (all mailboxes are here, others are refused):
    `internal-relay` (some are here, others go on by a send connector), `external-relay` (all goes on)."""
    transport: TransportConfigTable = TransportConfigTable()


class SiteTable(Table):
    """A place with good connections inside. The table's name is the site's."""

    subnets: list[Subnet] = Field(default=[], examples=['["10.1.0.0/16"]'])
    """Client addresses that are in this site; the longest match wins."""
    internet_facing: bool = Field(default=False, examples=["true"])
    """Whether clients reach this site's front ends from the Internet."""
    through_peer: bool = Field(default=False, examples=["true"])
    """Other sites reach the mailbox servers here only through a front end of this site."""
    hub_site: bool = Field(default=default_of(Site, "hub_site"), examples=["true"])
    """Whether mail whose least-cost path leads through this site stops at its hubs."""


class SiteLinkTable(Table):
    """A link between sites. The table's name is the link's."""

    sites: list[str] = Field(examples=['["usa", "europe"]'])
    """The sites it joins, two or more."""
    cost: int = Field(default=default_of(SiteLink, "cost"), ge=1, le=MAX_COUNT, examples=["25"])
    """What crossing it costs; smaller is better."""
    exchange_cost: int = Field(default=default_of(SiteLink, "exchange_cost"), ge=0, le=99_999, examples=["100"])
    """What it costs for mail, where that is to be another cost. 0: `cost`."""
    max_message_size: Size = Field(
        default=default_of(SiteLink, "max_message_size"), ge=0, le=MAX_SIZE, examples=['"10MB"']
    )
    """Largest message that may cross it: a larger one goes back to its sender. 0: any."""


class EndpointTable(Table):
    """One endpoint of a server. `imaps = {}` takes all defaults."""

    port: Port | None = Field(default=None, examples=["10143"])
    """Port. Default: by the endpoint's name, see above."""
    tls: TlsWord | None = Field(default=None, examples=['"clear"'])
    """How it is protected: `starttls`, `implicit` or `clear`. Default: by the name; `clear` must be written."""
    address: str | None = Field(default=None, examples=['"127.0.2.1"'])
    """Address or host name to connect to, on a front end the one to listen on. Default: the server's `address`."""
    tls_name: str | None = Field(default=None, examples=['"imap.contoso.com"'])
    """The name that its certificate must carry. Default: the server's `fqdn`."""
    client_address: ClientAddressWord = Field(default=ClientAddress.NONE, examples=['"proxy-v2"'])
    """How the client's address is told to it: `none`, `proxy-v1` or `proxy-v2` (PROXY header), `id` (IMAP ID),
    `xclient` (POP3, SMTP), `xclient-login` (submission: with the user's name, and no password follows)."""


class EndpointsTable(Table):
    """Where a server answers. On a front end these are the ports it listens on."""

    imap: EndpointTable | None = None
    """IMAP, port 143, `starttls`."""
    imaps: EndpointTable | None = None
    """IMAP, port 993, `implicit`."""
    pop3: EndpointTable | None = None
    """POP3, port 110, `starttls`."""
    pop3s: EndpointTable | None = None
    """POP3, port 995, `implicit`."""
    https: EndpointTable | None = None
    """HTTP, port 443, `implicit`."""
    http: EndpointTable | None = None
    """HTTP, port 80. `tls = "clear"` must be written."""
    peer: EndpointTable | None = None
    """HTTP from other front ends, port 444, `implicit`: mutual TLS by the organization's own CA (`gatepost ca`)."""
    smtp: EndpointTable | None = None
    """SMTP, port 25, `starttls`: where servers of the organization hand over mail."""
    lmtp: EndpointTable | None = None
    """LMTP, port 24, `starttls`: where hubs deliver to a mailbox server."""
    submission: EndpointTable | None = None
    """SMTP of users who sign in, port 587, `starttls`."""
    submissions: EndpointTable | None = None
    """SMTP of users who sign in, port 465, `implicit`."""


class SignInTable(Table):
    """How Gatepost signs in at a mailbox server for a user."""

    form: FormWord = Field(default=SignInForm.USER, examples=['"master-name"'])
    """`user`: the user's own name and password. `master-name`: the name `user*master` with the master user's password.
    `master-authzid`: SASL PLAIN with the user as authorization identity and the master user's credentials.
    `assertion`: SASL OAUTHBEARER with a token that names the user and is good for a minute; see `docs/oauth.md`.
    `kerberos`: SASL GSSAPI with a ticket of the user's, by constrained delegation (`docs/kerberos.md`)."""
    master_user: str = Field(default=default_of(SignIn, "master_user"), examples=['"gatepost"'])
    """Name of the master user; needed by the two master forms."""
    master_password_file: str = Field(default="", examples=['"secrets/mbx-01"'])
    """File with the master user's password; a line end at its end is dropped. Relative to this file."""
    separator: str = Field(default=default_of(SignIn, "separator"), examples=['"*"'])
    """What stands between user and master user in the form `master-name`."""
    assertion_key_file: str = Field(default="", examples=['"secrets/assertion.key"'])
    """File with the private key that signs the tokens of the form `assertion` (`gatepost assertion-key make`)."""
    token_audience: str = Field(default=default_of(SignIn, "token_audience"), examples=['"imap.contoso.com"'])
    """The server's name in the `aud` of tokens. In those of the form `assertion` it is the server's `fqdn` by default.
    With the form `user`, and over HTTP, users' own tokens are passed on where their `aud` holds it; empty: none are."""
    pipelined: bool = Field(default=default_of(SignIn, "pipelined"), examples=["true"])
    """Send the whole sign-in at once instead of step by step. Faster; Dovecot takes it, Exchange does not."""
    http: HttpSignInWord = Field(default=HttpSignIn.BASIC, examples=['"header"'])
    """HTTP: `basic` passes the user's Basic credentials on, or the user's own token where `token_audience` is in it;
    `master` signs in by Basic as `user*master` with the master user's password; `header` names the user in a header
    that the server trusts, and needs TLS or a loopback address; `kerberos` is Negotiate with a ticket of the user's, by
    constrained delegation."""
    http_header: str = Field(default=default_of(SignIn, "http_header"), examples=['"X-Auth-User"'])
    """The header's name for `http = "header"`."""
    send_epoch: bool = Field(default=default_of(SignIn, "send_epoch"), examples=["true"])
    """Tell the server the database and its epoch, so that one that has lost it can say so: IMAP with
    `client_address = "id"`, POP3 with `xclient` if the server announces it, HTTP by two header fields."""
    kerberos_host: str = Field(default=default_of(SignIn, "kerberos_host"), examples=['"imap.contoso.com"'])
    """The host in the server's service principals (`imap/HOST`, `pop/HOST`, `smtp/HOST`, `HTTP/HOST`) for `kerberos`,
    with `@REALM` if it is in another realm than `delegation_principal`. Empty: the server's `fqdn`."""


class ServerTable(Table):
    """A server. The table's name is the server's."""

    site: str = Field(examples=['"usa"'])
    """The site it stands in."""
    roles: list[RoleWord] = Field(examples=['["mailbox"]'])
    """What it does: `client-access`, `mailbox`, `hub-transport`, `edge-transport`."""
    version: VersionWord = Field(default=Version.MODERN, examples=['"2010"'])
    """Its generation: `2003`, `2007`, `2010` or `modern` (2013 and later, Dovecot, Cyrus and any standard server)."""
    fqdn: str = Field(default="", examples=['"mbx-01.contoso.com"'])
    """Its full host name. Default: the server's name in lower case."""
    address: str = Field(default="", examples=['"127.0.2.1"'])
    """Its address, the default of its endpoints. Default: `fqdn`."""
    endpoints: EndpointsTable = EndpointsTable()
    sign_in: SignInTable = SignInTable()
    server_ca: str = Field(default=default_of(Server, "server_ca"), examples=['"pki/europe-ca.crt"'])
    """File with the certificates that sign this server's, relative to this file. Empty: the front end's `server_ca`."""
    max_connections: int = Field(default=default_of(Server, "max_connections"), ge=1, le=MAX_COUNT, examples=["200"])
    """Most pooled HTTP connections of one worker to it."""
    kerberos_principal: str = Field(
        default=default_of(Server, "kerberos_principal"), examples=['"CAS-01$@AD.CONTOSO.COM"']
    )
    """A front end's account in the realm. Two front ends that have one know each other by Kerberos instead of the
    calling one's peer certificate; its key is in the `keytab` of `[front_end.kerberos]`."""
    transport: TransportTable = TransportTable()


class VirtualDirectoryTable(Table):
    """A path that a server serves over HTTP."""

    server: str = Field(examples=['"MBX-01"'])
    """The server."""
    service: str = Field(examples=['"owa"'])
    """The service's word, such as `owa`, `ews`, `dav`."""
    path: str = Field(default="", examples=['"/owa"'])
    """The path, matched by whole segments and without regard to case. Default: `/` and the service's word."""
    internal_url: str | None = Field(default=None, examples=['"https://mbx-01.contoso.com/owa"'])
    """Where front ends and peers reach it. No default: an entry written by hand must say it."""
    external_url: str | None = Field(default=None, examples=['"https://mail.contoso.com/owa"'])
    """What clients outside are told. Only for Internet-facing sites."""
    authentication: list[AuthenticationWord] = Field(default=[AuthenticationMethod.INTEGRATED], examples=['["basic"]'])
    """Methods it accepts: `basic`, `integrated`, `forms`, `certificate`. On a front end `forms` shows browsers the
    sign-in page; `integrated` is what other front ends need to proxy to it."""
    name: str = Field(default="", examples=['"owa (Default Web Site)"'])
    """Its name in management commands. Default: the service's word and `(Default Web Site)`."""
    path_class: PathClassWord | None = Field(default=None, examples=['"interactive"'])
    """Who asks for it: `interactive` (a browser, may be shown a page), `device` (ActiveSync, may get 451), `api`
    (proxied only). Default: by the service."""
    redirect_to_optimal_owa_server: bool = Field(default=True, examples=["false"])
    """On a front end: whether browsers are redirected to the mailbox's site when that has an external URL; `false`
    proxies instead."""
    cross_site_redirect: CrossSiteRedirectWord = Field(default=CrossSiteRedirect.MANUAL, examples=['"silent"'])
    """On a front end: `manual` shows a page with the link, `silent` redirects at once."""
    internal_bypass_url: str | None = Field(default=None, examples=['"https://cas-01.contoso.com/EWS"'])
    """Where other front ends reach this one machine, when `internal_url` is a balanced name."""


class ArrayTable(Table):
    """Client access servers of one site behind one name. The table's name is the array's."""

    site: str = Field(examples=['"usa"'])
    """Its site."""
    fqdn: str = Field(examples=['"outlook.contoso.com"'])
    """The name that clients use."""
    members: list[str] = Field(examples=['["CAS-01", "CAS-02"]'])
    """Its servers."""


class OrganizationFile(Table):
    """The tables of an organization."""

    organization: OrganizationTable
    sites: dict[str, SiteTable] = {}
    site_links: dict[str, SiteLinkTable] = {}
    servers: dict[str, ServerTable] = {}
    databases: dict[str, DatabaseTable] = {}
    virtual_directories: list[VirtualDirectoryTable] = []
    arrays: dict[str, ArrayTable] = {}
    receive_connectors: dict[str, ReceiveConnectorTable] = {}
    send_connectors: dict[str, SendConnectorTable] = {}


class FrontEndFile(Table):
    """A file that holds only the front end; the organization is in another."""

    front_end: FrontEndTable


class WholeFile(OrganizationFile, FrontEndFile):
    """Front end and organization in one file."""
