"""The check of mail transport (part of SPEC O2): send connectors, accepted domains, and whether mail has a way.

Receive connectors are judged by `check_receive`. An organization where no hub or edge takes mail has no
transport here, and nothing is missed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gatepost.organization.addresses import is_address, is_host_name
from gatepost.organization.check_receive import check_receive_connectors, check_strangers
from gatepost.organization.check_shadow import check_shadow
from gatepost.organization.faults import Path, error, listed, quoted, repeated, suggestion, unknown, warning
from gatepost.organization.model import Finding, Organization, Protocol, Role, Server, Version
from gatepost.organization.transport import DomainKind, SendConnector, TlsLevel
from gatepost.organization.transport_text import MAX_SPACE_COST, space_fault


def check_transport(organization: Organization) -> Iterator[Finding]:
    """All faults of transport."""
    yield from _check_domain_kinds(organization)
    yield from check_receive_connectors(organization)
    for connector in organization.send_connectors.values():
        yield from _check_send_connector(organization, connector)
    yield from _check_settings(organization)
    has_connectors = bool(organization.send_connectors or organization.receive_connectors)
    if has_connectors or any(server.takes_mail for server in organization.servers.values()):
        yield from _check_domains_have_ways(organization)
        yield from _check_sites(organization)
        yield from _check_endpoints(organization)
        yield from check_shadow(organization)
        yield from check_strangers(organization)


# Accepted domains


def _check_domain_kinds(organization: Organization) -> Iterator[Finding]:
    path: Path = ("organization", "accepted_domain_kinds")
    known = {domain.casefold() for domain in organization.accepted_domains}
    for domain in organization.accepted_domain_kinds:
        if domain.casefold() not in known:
            message = f"a kind is given for {quoted(domain)}, which is no accepted domain"
            remedy = suggestion(domain, organization.accepted_domains, "accepted domains")
            yield error((*path, domain), "organization", message, remedy)
    for _, domain, _ in repeated(organization.accepted_domain_kinds, str.casefold):
        message = f"two kinds are given for {quoted(domain)}"
        yield error((*path, domain), "organization", message, "remove one of the two")


def _check_domains_have_ways(organization: Organization) -> Iterator[Finding]:
    """What a domain's kind asks of send connectors."""
    spaces = {(c.name, s.pattern) for c in organization.send_connectors.values() for s in c.address_spaces if c.enabled}
    for domain, kind in organization.domain_kinds.items():
        path: Path = ("organization", "accepted_domains")
        exact = sorted(name for name, pattern in spaces if pattern == domain)
        if kind is DomainKind.AUTHORITATIVE and exact:
            message = f"{domain} is authoritative, so nothing for it goes by {listed(exact)}"
            remedy = f'make it "{domain}" = "internal-relay" in accepted_domain_kinds, or remove the address space'
            yield warning(
                ("send_connectors", exact[0], "address_spaces"), f"send connector {exact[0]}", message, remedy
            )
        if kind is not DomainKind.AUTHORITATIVE and not any(_covers(pattern, domain) for _, pattern in spaces):
            message = f"{domain} is relayed on, but no send connector has an address space for it"
            yield warning(path, "organization", message, f'add a send connector with address_spaces = ["{domain}"]')
    if not any(pattern == "*" for _, pattern in spaces):
        message = "no send connector takes mail to other domains: it would wait in the queue Unreachable"
        remedy = 'add one with address_spaces = ["*"]'
        yield warning(("send_connectors",), "organization", message, remedy)


def _covers(pattern: str, domain: str) -> bool:
    base = pattern.removeprefix("*.")
    return pattern == "*" or domain == base or (base != pattern and domain.endswith(f".{base}"))


# Send connectors


def _check_send_connector(organization: Organization, connector: SendConnector) -> Iterator[Finding]:
    path: Path = ("send_connectors", connector.name)
    who = f"send connector {connector.name}"
    yield from _check_spaces(path, who, connector)
    if not connector.source_servers:
        yield error((*path, "source_servers"), who, "has no source server", "name the hubs or edges that send by it")
    for index, name in enumerate(connector.source_servers):
        server = organization.servers.get(name)
        here = (*path, "source_servers", index)
        if server is None:
            yield unknown(here, who, "server", "servers", name, organization.servers)
        elif not server.carries_mail:
            message = f"source server {name} is no hub and no edge"
            remedy = f'give {name} the role "hub-transport" or remove it'
            yield error(here, who, message, remedy, ("servers", name, "roles"))
    for index, name, _ in repeated(connector.source_servers):
        yield error((*path, "source_servers", index), who, f"{name} is listed twice", "remove one of the two")
    for index, host in enumerate(connector.smart_hosts):
        if not is_address(host.host):
            message = f"smart host {quoted(host.host)} is neither an IP address nor a host name"
            yield error((*path, "smart_hosts", index), who, message, "correct it")
    yield from _check_send_security(path, who, connector)
    if connector.fqdn and not is_host_name(connector.fqdn):
        message = f"{quoted(connector.fqdn)} is not a host name"
        yield error((*path, "fqdn"), who, message, 'write it like "mail.contoso.com"')


def _check_spaces(path: Path, who: str, connector: SendConnector) -> Iterator[Finding]:
    if not connector.address_spaces:
        remedy = 'name the domains it is for, for example ["*"]'
        yield error((*path, "address_spaces"), who, "has no address space", remedy)
    for index, space in enumerate(connector.address_spaces):
        here = (*path, "address_spaces", index)
        fault = space_fault(space.pattern)
        if fault:
            yield error(here, who, f"{quoted(space.pattern)} {fault}", "correct it")
        if not 1 <= space.cost <= MAX_SPACE_COST:
            message = f"address space {quoted(space.pattern)} costs {space.cost}"
            yield error(here, who, message, f"make it 1 to {MAX_SPACE_COST}")
    for index, pattern, _ in repeated(space.pattern for space in connector.address_spaces):
        message = f"address space {quoted(pattern)} is listed twice"
        yield error((*path, "address_spaces", index), who, message, "remove one of the two")


def _check_send_security(path: Path, who: str, connector: SendConnector) -> Iterator[Finding]:
    if connector.user and not connector.smart_hosts:
        remedy = "name the smart_hosts that know it, or remove user and password_file"
        yield error((*path, "user"), who, "signs in, but smart hosts are needed for that and it has none", remedy)
    if connector.user and not connector.password:
        yield error((*path, "password_file"), who, "has a user but no password", "name the file that holds it")
    if connector.password and not connector.user:
        yield error((*path, "user"), who, "has a password but no user", "set user, or remove password_file")
    if connector.user and connector.tls is TlsLevel.NONE:
        remedy = 'write tls = "verified", or "encrypted" for a host whose certificate cannot be verified'
        yield error((*path, "tls"), who, "a password is sent only within TLS, and there is none", remedy)
    if connector.user and connector.tls in {TlsLevel.OPPORTUNISTIC, TlsLevel.ENCRYPTED}:
        message = "whoever stands between can have the password: the smart host's certificate is not verified"
        yield warning((*path, "tls"), who, message, 'write tls = "verified"')
    if connector.tls_domain and connector.tls is not TlsLevel.VERIFIED:
        message = f"tls_domain is only looked at where certificates are verified, not with {connector.tls.value}"
        yield warning((*path, "tls_domain"), who, message, 'write tls = "verified", or remove tls_domain')
    if connector.tls_domain and not is_host_name(connector.tls_domain.removeprefix("*.")):
        message = f"{quoted(connector.tls_domain)} is not a host name"
        yield error((*path, "tls_domain"), who, message, 'write it like "mail.fabrikam.com"')


# Settings of hubs and edges


def _check_settings(organization: Organization) -> Iterator[Finding]:
    for server in organization.servers.values():
        if server.carries_mail:
            yield from _check_settings_of(server)


def _check_settings_of(server: Server) -> Iterator[Finding]:
    path: Path = ("servers", server.name, "transport")
    who, settings = f"server {server.name}", server.transport
    if settings.max_per_domain_outbound_connections > settings.max_outbound_connections:
        message = "max_per_domain_outbound_connections is more than max_outbound_connections"
        yield error((*path, "max_per_domain_outbound_connections"), who, message, "make it that or less")
    if settings.connectivity_log_max_file_size > settings.connectivity_log_max_directory_size:
        message = "connectivity_log_max_file_size is more than connectivity_log_max_directory_size"
        yield error((*path, "connectivity_log_max_file_size"), who, message, "make it that or less")
    if settings.delay_notification >= settings.message_expiration:
        message = "a message goes back to its sender before the notice that it is late"
        yield warning((*path, "delay_notification"), who, message, "make it less than message_expiration")
    transient = settings.transient_failure_retry_count * settings.transient_failure_retry_interval
    if settings.delay_notification <= transient:
        message = "senders hear of a delay while short failures are still being retried"
        remedy = "make it more than transient_failure_retry_count times transient_failure_retry_interval"
        yield warning((*path, "delay_notification"), who, message, remedy)


# Ways


def _check_sites(organization: Organization) -> Iterator[Finding]:
    """Sites with mailboxes have hubs, hub sites too, and links lead from hubs to all of them."""
    hubs = {s.site for s in organization.servers.values() if Role.HUB_TRANSPORT in s.roles}
    for site in organization.sites.values():
        if site.hub_site and site.name not in hubs:
            message = "is a hub site, but has no hub: mail does not stop there"
            yield warning(
                ("sites", site.name, "hub_site"), f"site {site.name}", message, "add a hub, or remove hub_site"
            )
    with_mailboxes: dict[str, list[str]] = {}
    for database in organization.databases.values():
        for copy in database.copies:
            if (server := organization.servers.get(copy.server)) is not None and server.site in organization.sites:
                with_mailboxes.setdefault(server.site, []).append(database.name)
    joined = _joined_sites(organization)
    for name, databases in with_mailboxes.items():
        path, who = ("sites", name), f"site {name}"
        if name not in hubs:
            message = f"holds {listed(dict.fromkeys(databases))} but no hub: hubs of other sites deliver there"
            yield warning(path, who, message, 'add a server with the role "hub-transport" to this site')
        apart = [hub for hub in sorted(hubs) if hub in organization.sites and joined[hub] != joined[name]]
        if apart:
            message = f"no site links lead here from {listed(apart)}, whose hubs have mail for {databases[0]}"
            yield warning(path, who, message, "add a site link")


def _joined_sites(organization: Organization) -> dict[str, str]:
    """For each site one site that stands for all that links join it with."""
    stands = {name: name for name in organization.sites}

    def of(name: str) -> str:
        while stands[name] != name:
            name = stands[name]
        return name

    for link in organization.site_links.values():
        known = [of(site) for site in link.sites if site in stands]
        for site in known[1:]:
            stands[of(site)] = of(known[0])
    return {name: of(name) for name in stands}


def _check_endpoints(organization: Organization) -> Iterator[Finding]:
    """Who is handed mail answers somewhere."""
    carriers = [server for server in organization.servers.values() if server.carries_mail]
    for server in carriers:
        if server.endpoint(Protocol.SMTP) is None and len(carriers) > 1:
            message = "carries mail but has no smtp endpoint, so no other server can hand it any"
            remedy = f"list it in [servers.{server.name}.endpoints]: smtp = {{}}"
            yield warning(("servers", server.name, "endpoints"), f"server {server.name}", message, remedy)
    holding = {copy.server for database in organization.databases.values() for copy in database.copies}
    for name in sorted(holding & organization.servers.keys()):
        server = organization.servers[name]
        if server.delivery_endpoint is None and server.version >= Version.MODERN:
            message = "has databases but no lmtp or smtp endpoint, so hubs cannot deliver to it"
            remedy = f"list it in [servers.{name}.endpoints]: lmtp = {{}}"
            yield warning(("servers", name, "endpoints"), f"server {name}", message, remedy)
