"""Cmdlets for settings of hubs and edges, accepted domains, and what sites and site links are for mail."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gatepost.configuration.editing import OrganizationText
from gatepost.organization.model import Organization, Role, Server, SiteLink
from gatepost.organization.transport import DomainKind
from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session, by_name, refuse_taken
from gatepost.shell.settings import Form, Keys, Setting, changed, parameters, properties
from gatepost.shell.things import Cell, Thing

ALIASES = {
    "get-transportservice": "Get-TransportServer",
    "set-transportservice": "Set-TransportServer",
}
"""What later versions of the source system call them."""

_GLITCH = "short failures"
SETTINGS = (
    Setting("QueueGlitchRetryCount", "queue_glitch_retry_count", Form.NUMBER, f"First attempts after {_GLITCH}."),
    Setting("QueueGlitchRetryInterval", "queue_glitch_retry_interval", Form.SPAN, "Before each of those."),
    Setting("TransientFailureRetryCount", "transient_failure_retry_count", Form.NUMBER, "Attempts after those."),
    Setting("TransientFailureRetryInterval", "transient_failure_retry_interval", Form.SPAN, "Before each of those."),
    Setting(
        "OutboundConnectionFailureRetryInterval",
        "outbound_connection_failure_retry_interval",
        Form.SPAN,
        "Before every attempt from then on.",
    ),
    Setting("MessageRetryInterval", "message_retry_interval", Form.SPAN, "How long a message waits that was put off."),
    Setting("MessageExpirationTimeout", "message_expiration", Form.SPAN, "When a message goes back to its sender."),
    Setting("DelayNotificationTimeout", "delay_notification", Form.SPAN, "When its sender hears that it is late."),
    Setting(
        "MailboxDeliveryQueueRetryInterval",
        "mailbox_delivery_queue_retry_interval",
        Form.SPAN,
        "How long mail for a mailbox server waits that could not be reached.",
    ),
    Setting("MaxOutboundConnections", "max_outbound_connections", Form.NUMBER, "Most connections to other servers."),
    Setting(
        "MaxPerDomainOutboundConnections",
        "max_per_domain_outbound_connections",
        Form.NUMBER,
        "Most connections for one next hop.",
    ),
    Setting(
        "IntraOrgConnectorSmtpMaxMessagesPerConnection",
        "max_messages_per_connection",
        Form.NUMBER,
        "Messages of a connection between servers of the organization.",
    ),
    Setting("QueueMaxIdleTime", "queue_max_idle", Form.SPAN, "How long an empty queue is kept."),
    Setting("PoisonThreshold", "poison_threshold", Form.NUMBER, "Crashes over a message before it is set aside."),
    Setting("ConnectTimeout", "connect_seconds", Form.SPAN, "How long a connection may take to be made."),
    Setting("HedgeInterval", "hedge_seconds", Form.SPAN, "When a second server is tried at the same time; 0 never."),
    Setting("HealthyServerSelectorEnabled", "healthy_server_selector", Form.FLAG, "Whether dead servers are left out."),
    Setting("MaxQueuedMessages", "max_queued_messages", Form.NUMBER, "Nothing more is taken at so many messages."),
    Setting("MinFreeSpace", "min_free_bytes", Form.SIZE, "Nothing more is taken below so much room on the disk."),
    Setting("ConnectivityLogEnabled", "connectivity_log_enabled", Form.FLAG, "Whether this log is written."),
    Setting("ConnectivityLogMaxAge", "connectivity_log_max_age", Form.SPAN, "How long its files are kept."),
    Setting(
        "ConnectivityLogMaxDirectorySize", "connectivity_log_max_directory_size", Form.SIZE, "Room of all its files."
    ),
    Setting("ConnectivityLogMaxFileSize", "connectivity_log_max_file_size", Form.SIZE, "When the next file is begun."),
)
LINK_SETTINGS = (
    Setting("ExchangeCost", "exchange_cost", Form.NUMBER, "Its cost for mail, in place of the other."),
    Setting("MaxMessageSize", "max_message_size", Form.SIZE, "Largest message that may cross it, or unlimited."),
)
KINDS = {
    "Authoritative": DomainKind.AUTHORITATIVE,
    "InternalRelay": DomainKind.INTERNAL_RELAY,
    "ExternalRelay": DomainKind.EXTERNAL_RELAY,
}

_IDENTITY = Parameter("Identity", Kind.TEXT, "Its name.", 0)
_LINK = (_IDENTITY, *parameters(LINK_SETTINGS))
_DOMAIN_TYPE = Parameter("DomainType", Kind.TEXT, "What the domain is to the organization.", words=tuple(KINDS))
_DEFAULT = Parameter("MakeDefault", Kind.FLAG, "Whether a login name without a domain gets this one.")


def transport_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    domain = Parameter("DomainName", Kind.TEXT, "The domain.")
    hub_site = Parameter("HubSiteEnabled", Kind.FLAG, "Whether mail on its way through stops at its hubs.")
    return [
        Cmdlet("Get-TransportServer", "Show hubs and edges.", _get_server, (_IDENTITY,)),
        Cmdlet(
            "Set-TransportServer",
            "Change settings of hubs and edges; $null brings a default back.",
            _set_server,
            (_IDENTITY, *parameters(SETTINGS)),
            changes=True,
        ),
        Cmdlet("Get-AcceptedDomain", "Show accepted domains.", _get_domain, (_IDENTITY,)),
        Cmdlet(
            "New-AcceptedDomain",
            "Add an accepted domain.",
            _new_domain,
            (Parameter("Name", Kind.TEXT, "The domain.", 0), domain, _DOMAIN_TYPE, _DEFAULT),
            changes=True,
        ),
        Cmdlet(
            "Set-AcceptedDomain",
            "Change accepted domains.",
            _set_domain,
            (_IDENTITY, _DOMAIN_TYPE, _DEFAULT),
            changes=True,
        ),
        Cmdlet(
            "Remove-AcceptedDomain",
            "Take domains away.",
            _remove_domain,
            (_IDENTITY,),
            changes=True,
            asks=True,
        ),
        Cmdlet("Set-AdSite", "Change sites.", _set_site, (_IDENTITY, hub_site), changes=True),
        Cmdlet("Get-AdSiteLink", "Show site links.", _get_link, (_IDENTITY,)),
        Cmdlet(
            "Set-AdSiteLink", "Change site links.", _set_link, (_IDENTITY, *parameters(LINK_SETTINGS)), changes=True
        ),
    ]


# Hubs and edges


def _servers(invocation: Invocation) -> list[Server]:
    session = invocation.session
    found = [session.server(identity) for identity in invocation.identities()]
    for server in found:
        if not server.carries_mail:
            raise ShellError(f"{server.name} is no hub and no edge")
    return found


def _get_server(invocation: Invocation) -> Iterator[Output]:
    named = "Identity" in invocation.bound or invocation.given is not None
    everybody = invocation.session.organization.servers.values()
    for server in _servers(invocation) if named else [s for s in everybody if s.carries_mail]:
        found: dict[str, Cell] = {
            "Name": server.name,
            "Site": server.site,
            "IsEdge": Role.HUB_TRANSPORT not in server.roles,
        }
        found |= properties(SETTINGS, server.transport)
        found["Identity"] = server.name
        columns = ("Name", "Site", "MessageRetryInterval", "MessageExpirationTimeout", "ConnectivityLogEnabled")
        yield Thing("TransportServer", found, columns)


def _set_server(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    keys = changed(SETTINGS, invocation.bound)
    if not keys:
        raise ShellError("say what to change, for example -QueueGlitchRetryInterval 00:02:00")
    for server in invocation.change(lambda: _servers(invocation), lambda s: f"Change the settings of {s.name}?"):
        before = session.organization
        session.edit(partial(_write_settings, server.name, keys))
        if session.organization == before:
            session.talk.warn(f"no setting of {server.name} was changed: it is so already")
    return iter(())


def _write_settings(server: str, keys: Keys, text: OrganizationText, _: Organization) -> None:
    text.set_inner_keys(("servers", server), "transport", keys)


# Accepted domains


def _domain(session: Session, name: str) -> str:
    """The accepted domain of that name. Raises `ShellError`."""
    domains = session.organization.accepted_domains
    found = next((domain for domain in domains if domain.casefold() == name.casefold()), None)
    if found is None:
        raise ShellError(f"there is no accepted domain {name!r}; there are {', '.join(domains) or 'none'}")
    return found


def _meant_domains(invocation: Invocation) -> list[str]:
    return [_domain(invocation.session, identity) for identity in invocation.identities()]


def _kind_of(organization: Organization, domain: str) -> DomainKind:
    kinds = {name.casefold(): kind for name, kind in organization.accepted_domain_kinds.items()}
    return kinds.get(domain.casefold(), DomainKind.AUTHORITATIVE)


def _thing_of_domain(organization: Organization, domain: str) -> Thing:
    kind = _kind_of(organization, domain)
    found: dict[str, Cell] = {
        "Name": domain,
        "DomainName": domain,
        "DomainType": next(word for word, each in KINDS.items() if each is kind),
        "Default": domain == organization.default_domain,
        "Identity": domain,
    }
    return Thing("AcceptedDomain", found, ("Name", "DomainType", "Default"))


def _get_domain(invocation: Invocation) -> Iterator[Output]:
    organization = invocation.session.organization
    named = "Identity" in invocation.bound or invocation.given is not None
    for domain in _meant_domains(invocation) if named else organization.accepted_domains:
        yield _thing_of_domain(organization, domain)


def _new_domain(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    name = bound.text("DomainName") or bound.need("Name")

    def find() -> list[str]:
        refuse_taken(session.organization.accepted_domains, name, "accepted domain")
        return [name]

    for domain in invocation.change(find, lambda domain: f"Add the accepted domain {domain}?"):
        others = list(session.organization.accepted_domains)
        domains = [domain, *others] if bound.flag("MakeDefault") else [*others, domain]
        _write_domains(session, domains, domain, KINDS[bound.text("DomainType") or "Authoritative"])
        yield _thing_of_domain(session.organization, domain)


def _set_domain(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    word, is_default = bound.text("DomainType"), bound.flag("MakeDefault")
    if word is None and is_default is None:
        raise ShellError("say what to change: -DomainType or -MakeDefault")
    if is_default is False:
        raise ShellError("make another domain the default instead")
    for domain in invocation.change(lambda: _meant_domains(invocation), lambda d: f"Change the accepted domain {d}?"):
        before = session.organization
        domains = list(before.accepted_domains)
        if is_default:
            domains = [domain, *(other for other in domains if other != domain)]
        _write_domains(session, domains, domain, KINDS[word] if word else _kind_of(before, domain))
        if session.organization == before:
            session.talk.warn(f"no setting of {domain} was changed: it is so already")
    return iter(())


def _remove_domain(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    question = "Remove the accepted domain {}? Mail for it is no longer taken from outside."
    for domain in invocation.change(lambda: _meant_domains(invocation), question.format):
        domains = [other for other in session.organization.accepted_domains if other != domain]
        _write_domains(session, domains, domain, DomainKind.AUTHORITATIVE)
    return iter(())


def _write_domains(session: Session, domains: list[str], domain: str, kind: DomainKind) -> None:
    """The list of domains, and the kind of one; `authoritative` is what is not written."""

    def edit(text: OrganizationText, organization: Organization) -> None:
        if domains != list(organization.accepted_domains):
            text.set_keys(("organization",), {"accepted_domains": domains})
        written = [name for name in organization.accepted_domain_kinds if name.casefold() == domain.casefold()]
        keys: Keys = dict.fromkeys(written)
        if kind is not DomainKind.AUTHORITATIVE:
            keys[written[0] if written else domain] = kind.value
        if keys:
            text.set_inner_keys(("organization",), "accepted_domain_kinds", keys)

    session.edit(edit)


# Sites and site links


def _set_site(invocation: Invocation) -> Iterator[Output]:
    session, hub_site = invocation.session, invocation.bound.flag("HubSiteEnabled")
    if hub_site is None:
        raise ShellError("say what to change: -HubSiteEnabled")

    def find() -> list[str]:
        return [by_name(session.organization.sites, name, "site").name for name in invocation.identities()]

    for name in invocation.change(find, lambda name: f"Change the site {name}?"):
        session.set_keys(("sites", name), {"hub_site": hub_site or None}, name)
    return iter(())


def _links(invocation: Invocation) -> list[SiteLink]:
    links = invocation.session.organization.site_links
    return [by_name(links, identity, "site link") for identity in invocation.identities()]


def _get_link(invocation: Invocation) -> Iterator[Output]:
    named = "Identity" in invocation.bound or invocation.given is not None
    for link in _links(invocation) if named else invocation.session.organization.site_links.values():
        found: dict[str, Cell] = {
            "Name": link.name,
            "Sites": link.sites,
            "Cost": link.cost,
        }
        found |= properties(LINK_SETTINGS, link)
        found["ExchangeCost"] = link.exchange_cost or None
        found["Identity"] = link.name
        yield Thing("AdSiteLink", found, ("Name", "Cost", "ExchangeCost", "MaxMessageSize", "Sites"))


def _set_link(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    keys = changed(LINK_SETTINGS, invocation.bound)
    for link in invocation.change(lambda: _links(invocation), lambda link: f"Change the site link {link.name}?"):
        session.set_keys(("site_links", link.name), keys, link.name)
    return iter(())
