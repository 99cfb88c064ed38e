"""From the file's tables to the frozen values of `organization.model`, with the defaults that depend on other keys."""

from __future__ import annotations

from dataclasses import fields, replace

from gatepost.configuration.build_transport import build_receive_connectors, build_send_connector, build_settings
from gatepost.configuration.database_schema import DatabaseTable
from gatepost.configuration.schema import (
    EndpointTable,
    OrganizationFile,
    ServerTable,
    SignInTable,
    VirtualDirectoryTable,
)
from gatepost.organization.addresses import is_host_name, normal_path
from gatepost.organization.model import (
    PEER,
    AuthenticationMethod,
    ClientAccessArray,
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    SignIn,
    Site,
    SiteLink,
    TlsMode,
    Version,
    VirtualDirectory,
    class_of_service,
)
from gatepost.organization.transport import TransportConfig, TransportSettings

ENDPOINTS: dict[str, tuple[Protocol, int, TlsMode | None]] = {
    "imap": (Protocol.IMAP, 143, TlsMode.STARTTLS),
    "imaps": (Protocol.IMAP, 993, TlsMode.IMPLICIT),
    "pop3": (Protocol.POP3, 110, TlsMode.STARTTLS),
    "pop3s": (Protocol.POP3, 995, TlsMode.IMPLICIT),
    "https": (Protocol.HTTPS, 443, TlsMode.IMPLICIT),
    "http": (Protocol.HTTPS, 80, None),
    PEER: (Protocol.HTTPS, 444, TlsMode.IMPLICIT),
    "smtp": (Protocol.SMTP, 25, TlsMode.STARTTLS),
    "lmtp": (Protocol.LMTP, 24, TlsMode.STARTTLS),
    "submission": (Protocol.SUBMISSION, 587, TlsMode.STARTTLS),
    "submissions": (Protocol.SUBMISSION, 465, TlsMode.IMPLICIT),
}
"""Protocol, port and TLS mode of each endpoint's name. `http` has no mode: clear text must be written out."""

TRANSPORT_KEYS = tuple(field.name for field in fields(TransportSettings))
CONFIG_KEYS = tuple(field.name for field in fields(TransportConfig))

_EXCHANGE = ("owa", "ecp", "Microsoft-Server-ActiveSync", "EWS", "AS", "Autodiscover", "OAB")
_OLD_WEB = ("exchange", "public", "exchweb")

STANDARD_SERVICES: dict[Version, tuple[str, ...]] = {
    Version.V2003: ("Microsoft-Server-ActiveSync", *_OLD_WEB),
    Version.V2007: ("owa", "Microsoft-Server-ActiveSync", "EWS", "AS", "Autodiscover", "OAB", *_OLD_WEB),
    Version.V2010: (*_EXCHANGE, *_OLD_WEB),
    Version.MODERN: (*_EXCHANGE, "mapi", "dav", "jmap"),
}
"""What setting up a server of each version makes (SPEC O3); today's servers also have DAV and JMAP."""


def build_organization(
    file: OrganizationFile,
    master_passwords: dict[str, str],
    relay_passwords: dict[str, str] | None = None,
    assertion_keys: dict[str, bytes] | None = None,
) -> Organization:
    """The organization. `master_passwords` are the contents of the servers' password files, by server name;
    `relay_passwords` those of the send connectors, by connector; `assertion_keys` those of the servers' key files.
    """
    relays = relay_passwords or {}
    keys = assertion_keys or {}
    servers = {
        name: _server(name, table, master_passwords.get(name, ""), keys.get(name, b""))
        for name, table in file.servers.items()
    }
    directories = tuple(_directory(table) for table in file.virtual_directories)
    return Organization(
        name=file.organization.name,
        edition=file.organization.edition,
        accepted_domains=tuple(file.organization.accepted_domains),
        accepted_domain_kinds=dict(file.organization.accepted_domain_kinds),
        sites={
            name: Site(name, tuple(t.subnets), t.internet_facing, t.through_peer, t.hub_site)
            for name, t in file.sites.items()
        },
        site_links={
            name: SiteLink(name, tuple(t.sites), t.cost, t.exchange_cost, t.max_message_size)
            for name, t in file.site_links.items()
        },
        servers=servers,
        databases={name: _database(name, table) for name, table in file.databases.items()},
        # The written ones stay in front: findings point at them by their number in the file.
        virtual_directories=directories + _standard_directories(servers, directories),
        arrays={name: ClientAccessArray(name, t.site, t.fqdn, tuple(t.members)) for name, t in file.arrays.items()},
        receive_connectors=build_receive_connectors(file.receive_connectors, servers),
        send_connectors={
            name: build_send_connector(name, table, relays.get(name, ""))
            for name, table in file.send_connectors.items()
        },
        transport_config=TransportConfig(**{key: getattr(file.organization.transport, key) for key in CONFIG_KEYS}),
    )


def _server(name: str, table: ServerTable, master_password: str, assertion_key: bytes) -> Server:
    fqdn = (table.fqdn or name).lower()
    address = table.address or fqdn
    endpoints = []
    for endpoint_name in ENDPOINTS:
        endpoint: EndpointTable | None = getattr(table.endpoints, endpoint_name)
        if endpoint is not None:
            endpoints.append(_endpoint(endpoint_name, endpoint, address, fqdn))
    return Server(
        name=name,
        site=table.site,
        fqdn=fqdn,
        address=address,
        version=table.version,
        roles=frozenset(table.roles),
        endpoints=tuple(endpoints),
        sign_in=_sign_in(table.sign_in, master_password, assertion_key),
        server_ca=table.server_ca,
        max_connections=table.max_connections,
        kerberos_principal=table.kerberos_principal,
        transport=build_settings({key: getattr(table.transport, key) for key in TRANSPORT_KEYS}, table.roles),
    )


def _endpoint(name: str, table: EndpointTable, address: str, fqdn: str) -> Endpoint:
    protocol, port, tls = ENDPOINTS[name]
    return Endpoint(
        name=name,
        protocol=protocol,
        address=address if table.address is None else table.address,
        port=port if table.port is None else table.port,
        # An `http` endpoint without a mode gets the one that the check refuses: clear is never a default.
        tls=table.tls or tls or TlsMode.IMPLICIT,
        tls_name=fqdn if table.tls_name is None else table.tls_name,
        client_address=table.client_address,
    )


def _sign_in(table: SignInTable, master_password: str, assertion_key: bytes) -> SignIn:
    return SignIn(
        form=table.form,
        master_user=table.master_user,
        master_password=master_password,
        separator=table.separator,
        pipelined=table.pipelined,
        http=table.http,
        http_header=table.http_header,
        send_epoch=table.send_epoch,
        kerberos_host=table.kerberos_host,
        assertion_key=assertion_key,
        token_audience=table.token_audience,
    )


def _database(name: str, table: DatabaseTable) -> Database:
    """Copies keep the file's order here, since findings number them so; `in_order_of_preference` sorts them."""
    copies = [
        DatabaseCopy(copy.server, index if copy.preference is None else copy.preference)
        for index, copy in enumerate(table.copies, start=1)
    ]
    return Database(name, tuple(copies))


def in_order_of_preference(organization: Organization) -> Organization:
    """`organization` with each database's copies sorted, as `Database` promises; done once the check has run."""
    databases = {
        name: Database(name, tuple(sorted(database.copies, key=lambda copy: copy.preference)))
        for name, database in organization.databases.items()
    }
    return replace(organization, databases=databases)


def _directory(table: VirtualDirectoryTable) -> VirtualDirectory:
    return VirtualDirectory(
        server=table.server,
        service=table.service,
        path=normal_path(table.path or table.service),
        internal_url=table.internal_url,
        external_url=table.external_url,
        authentication=frozenset(table.authentication),
        name=table.name or usual_name(table.service),
        path_class=table.path_class or class_of_service(table.service),
        redirect_to_optimal_owa_server=table.redirect_to_optimal_owa_server,
        cross_site_redirect=table.cross_site_redirect,
        internal_bypass_url=table.internal_bypass_url,
    )


def usual_name(service: str) -> str:
    """The name that a virtual directory of `service` has where none is written."""
    return f"{service} (Default Web Site)"


def _standard_directories(
    servers: dict[str, Server], written: tuple[VirtualDirectory, ...]
) -> tuple[VirtualDirectory, ...]:
    """What adding a server makes (SPEC O3): the standard set, with internal URLs, for servers that list none.

    As in the source, a directory added later by hand gets no internal URL: a server that lists any has those only.
    """
    by_hand = {directory.server for directory in written}
    return tuple(
        directory for name, server in servers.items() if name not in by_hand for directory in standard_set(server)
    )


def standard_set(server: Server) -> tuple[VirtualDirectory, ...]:
    """What setting up `server` makes: counts while the file lists no virtual directory of it."""
    web = server.endpoint(Protocol.HTTPS)
    serves = Role.CLIENT_ACCESS in server.roles or (
        # Mailbox servers of 2007 and 2010 speak RPC; their web parts are on client access servers.
        Role.MAILBOX in server.roles and server.version in {Version.V2003, Version.MODERN}
    )
    if web is None or not serves or not is_host_name(server.fqdn):
        return ()
    return tuple(
        VirtualDirectory(
            server.name,
            word,
            f"/{word}",
            server.own_url(f"/{word}"),
            authentication=frozenset({AuthenticationMethod.INTEGRATED, AuthenticationMethod.BASIC}),
            name=usual_name(word),
            path_class=class_of_service(word),
        )
        for word in _standard_services(server)
    )


def _standard_services(server: Server) -> tuple[str, ...]:
    """The words of a server's standard set. Today's mailbox servers answer no autodiscover: front ends do."""
    words = STANDARD_SERVICES[server.version]
    if server.version is Version.MODERN and Role.CLIENT_ACCESS not in server.roles:
        return tuple(word for word in words if word != "Autodiscover")
    return words
