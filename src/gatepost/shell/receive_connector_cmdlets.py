"""Get-, New-, Set- and Remove-ReceiveConnector."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address

from gatepost.configuration.build_transport import ANY_ADDRESS
from gatepost.configuration.editing import OrganizationText
from gatepost.organization.model import Organization, Server
from gatepost.organization.transport import Binding, ReceiveConnector
from gatepost.organization.transport_text import binding_text, range_text, read_binding, read_range
from gatepost.shell.binding import Bound, Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session, by_name, refuse_taken
from gatepost.shell.settings import Form, Keys, Setting, changed, listed, parameters, properties, spelled, words
from gatepost.shell.things import Cell, Thing

AUTHENTICATION = {
    "Tls": "tls",
    "BasicAuth": "basic",
    "BasicAuthRequireTLS": "basic-require-tls",
    "Integrated": "kerberos",
    "ExchangeServer": "servers",
    "ExternalAuthoritative": "externally-secured",
}
"""The source system's words for what the file says."""
GROUPS = {
    "AnonymousUsers": "anonymous",
    "ExchangeUsers": "users",
    "ExchangeServers": "servers",
    "Partners": "partners",
}
USAGES: dict[str, tuple[int, str, str]] = {
    "Client": (587, "ExchangeUsers", "Tls, BasicAuth, BasicAuthRequireTLS"),
    "Internal": (25, "ExchangeServers", "Tls, ExchangeServer"),
    "Internet": (25, "AnonymousUsers", "Tls"),
    "Partner": (25, "Partners", "Tls"),
    "Custom": (25, "None", "Tls"),
}
"""Port, permission groups and authentication of a new connector for each usage (exchange-facts 4.9)."""

SETTINGS = (
    Setting("Fqdn", "fqdn", Form.TEXT, "The name that it greets with."),
    Setting("Banner", "banner", Form.TEXT, "What follows 220 in the greeting."),
    Setting("Enabled", "enabled", Form.FLAG, "Whether it is used."),
    Setting("RequireTLS", "require_tls", Form.FLAG, "Whether mail is taken only within TLS."),
    Setting("MaxMessageSize", "max_message_size", Form.SIZE, "Largest message."),
    Setting("MaxHeaderSize", "max_header_size", Form.SIZE, "Most bytes of a header."),
    Setting("MaxHopCount", "max_hop_count", Form.NUMBER, "Most Received fields."),
    Setting("MaxRecipientsPerMessage", "max_recipients", Form.NUMBER, "Most recipients of a message."),
    Setting("MaxInboundConnection", "max_connections", Form.NUMBER, "Most connections at a time."),
    Setting("MaxInboundConnectionPerSource", "max_connections_per_source", Form.NUMBER, "The same, of one client."),
    Setting("MaxProtocolErrors", "max_protocol_errors", Form.NUMBER, "Refused commands until the end."),
    Setting("MaxLogonFailures", "max_logon_failures", Form.NUMBER, "Failed sign-ins until the end."),
    Setting("TarpitInterval", "tarpit_seconds", Form.SPAN, "How long a refusal waits."),
    Setting("ConnectionTimeout", "connection_seconds", Form.SPAN, "How long a connection may last."),
    Setting("ConnectionInactivityTimeout", "inactivity_seconds", Form.SPAN, "How long it may be silent."),
    Setting("CheckFromField", "check_from_field", Form.FLAG, "Whether users' From must be theirs too."),
    Setting(
        "MaxAcknowledgementDelay",
        "max_acknowledgement_delay",
        Form.SPAN,
        "How long a 250 may wait for the message's shadow; 0 never.",
    ),
)

_IDENTITY = Parameter("Identity", Kind.TEXT, "The connector, or SERVER\\connector.", 0)
_SERVER = Parameter("Server", Kind.TEXT, "The hub or edge.")
_LISTS = (
    Parameter("Bindings", Kind.CHANGES, "Addresses and ports, such as 0.0.0.0:25."),
    Parameter("ImplicitTlsBindings", Kind.CHANGES, "The same, with TLS from the first byte."),
    Parameter("RemoteIPRanges", Kind.CHANGES, "Clients it is for, such as 10.0.0.0/8 or 10.0.0.1-10.0.0.9."),
    Parameter("ProxyProtocolFrom", Kind.CHANGES, "Balancers that send a PROXY header."),
    Parameter("XclientFrom", Kind.CHANGES, "Who may say XCLIENT."),
    Parameter("PermissionGroups", Kind.TEXTS, f"Who may send: {', '.join(GROUPS)}, None."),
    Parameter("AuthMechanism", Kind.TEXTS, f"What is offered: {', '.join(AUTHENTICATION)}, None."),
    Parameter("BareLinefeedRejectionEnabled", Kind.FLAG, "Whether lines that end in LF alone are refused."),
)
_CHANGING = (*_LISTS, *parameters(SETTINGS))


def receive_connector_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    usage = Parameter("Usage", Kind.TEXT, "What it is for; the rest follows from it.", words=tuple(USAGES))
    switches = tuple(Parameter(name, Kind.SWITCH, f"-Usage {name}.") for name in USAGES)
    new = (Parameter("Name", Kind.TEXT, "Its name.", 0), _SERVER, usage, *switches, *_CHANGING)
    return [
        Cmdlet("Get-ReceiveConnector", "Show receive connectors.", _get, (_IDENTITY, _SERVER)),
        Cmdlet("New-ReceiveConnector", "Add a receive connector.", _new, new, changes=True),
        Cmdlet("Set-ReceiveConnector", "Change receive connectors.", _set, (_IDENTITY, *_CHANGING), changes=True),
        Cmdlet(
            "Remove-ReceiveConnector", "Take receive connectors away.", _remove, (_IDENTITY,), changes=True, asks=True
        ),
    ]


def find_connector(session: Session, identity: str) -> ReceiveConnector:
    """A connector by its name, with or without its server in front. Raises `ShellError`."""
    connectors = session.organization.receive_connectors
    server, backslash, name = identity.partition("\\")
    found = by_name(connectors, name if backslash else identity, "receive connector")
    if backslash and found.server != session.server(server).name:
        raise ShellError(f"{found.name} is a receive connector of {found.server}, not of {server}")
    return found


def _meant(invocation: Invocation) -> list[ReceiveConnector]:
    return [find_connector(invocation.session, identity) for identity in invocation.identities()]


def _thing(connector: ReceiveConnector) -> Thing:
    found: dict[str, Cell] = {
        "Name": connector.name,
        "Server": connector.server,
        "Bindings": tuple(binding_text(b) for b in connector.bindings if not b.implicit_tls),
        "ImplicitTlsBindings": tuple(binding_text(b) for b in connector.bindings if b.implicit_tls),
        "RemoteIPRanges": tuple(map(range_text, connector.remote_ranges)) or ("0.0.0.0/0", "::/0"),
        "PermissionGroups": spelled(connector.permission_groups, GROUPS),
        "AuthMechanism": spelled(connector.authentication, AUTHENTICATION),
        "BareLinefeedRejectionEnabled": not connector.bare_line_feeds,
        "ProxyProtocolFrom": tuple(map(range_text, connector.proxy_protocol_from)),
        "XclientFrom": tuple(map(range_text, connector.xclient_from)),
    }
    found |= properties(SETTINGS, connector)
    found["Identity"] = f"{connector.server}\\{connector.name}"
    return Thing("ReceiveConnector", found, ("Identity", "Bindings", "RemoteIPRanges", "PermissionGroups", "Enabled"))


def _get(invocation: Invocation) -> Iterator[Output]:
    session, server = invocation.session, invocation.bound.text("Server")
    named = "Identity" in invocation.bound or invocation.given is not None
    found = _meant(invocation) if named else list(session.organization.receive_connectors.values())
    wanted = session.server(server).name if server else None
    for connector in found:
        if wanted is None or connector.server == wanted:
            yield _thing(connector)


def _keys(bound: Bound, old: ReceiveConnector | None) -> Keys:
    """What the parameters change, as the file has it. Raises `ShellError`."""
    keys: Keys = dict(changed(SETTINGS, bound))
    clear = tuple(b for b in old.bindings if not b.implicit_tls) if old else ()
    implicit = tuple(b for b in old.bindings if b.implicit_tls) if old else ()
    ranges = (
        ("RemoteIPRanges", "remote_ranges", old.remote_ranges if old else ()),
        ("ProxyProtocolFrom", "proxy_protocol_from", old.proxy_protocol_from if old else ()),
        ("XclientFrom", "xclient_from", old.xclient_from if old else ()),
    )
    with_tls = partial(read_binding, implicit_tls=True)
    lists: Keys = {
        "bindings": listed(bound, "Bindings", clear, read_binding, binding_text),
        "implicit_tls_bindings": listed(bound, "ImplicitTlsBindings", implicit, with_tls, binding_text),
        "permission_groups": words(bound, "PermissionGroups", GROUPS),
        "authentication": words(bound, "AuthMechanism", AUTHENTICATION),
    }
    lists |= {key: listed(bound, name, before, read_range, range_text) for name, key, before in ranges}
    keys |= {key: value for key, value in lists.items() if value is not None}
    rejected = bound.flag("BareLinefeedRejectionEnabled")
    if rejected is not None:
        keys["bare_line_feeds"] = not rejected
    return keys


def _new(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    name = bound.need("Name")

    def find() -> list[Server]:
        refuse_taken(session.organization.receive_connectors, name, "receive connector")
        return [session.server(bound.need("Server"))]

    for server in invocation.change(find, lambda server: f"Add the receive connector {name} at {server.name}?"):
        keys: Keys = {"server": server.name} | _of_usage(bound) | _keys(bound, None)
        if "ImplicitTlsBindings" in bound and "Bindings" not in bound:
            keys["bindings"] = None

        session.edit(partial(_add, name, server.name, keys))
        yield _thing(session.organization.receive_connectors[name])


def _of_usage(bound: Bound) -> Keys:
    """What `-Usage`, or the switch for it, stands for; `Custom` where none is given."""
    switched = [name for name in USAGES if bound.flag(name)]
    given = bound.text("Usage")
    if len(switched) + (given is not None) > 1:
        raise ShellError("one usage only")
    port, groups, methods = USAGES[given or (switched[0] if switched else "Custom")]
    values = Bound({"PermissionGroups": (groups,), "AuthMechanism": (methods,)})
    return {
        "bindings": [binding_text(Binding(ip_address(address), port)) for address in ANY_ADDRESS],
        "permission_groups": words(values, "PermissionGroups", GROUPS),
        "authentication": words(values, "AuthMechanism", AUTHENTICATION),
    }


def _set(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    if not bound.values.keys() - {"Identity", "WhatIf", "Confirm"}:
        raise ShellError("say what to change, for example -RemoteIPRanges")
    for connector in invocation.change(lambda: _meant(invocation), lambda c: f"Change the receive connector {c.name}?"):
        before = session.organization
        session.edit(partial(change_connector, connector, _keys(bound, connector)))
        if session.organization == before:
            session.talk.warn(f"no setting of {connector.name} was changed: it is so already")
    return iter(())


def _add(name: str, server: str, keys: Keys, text: OrganizationText, organization: Organization) -> None:
    text.write_out_connectors(server, organization)
    text.add_table(("receive_connectors", name), keys)


def change_connector(old: ReceiveConnector, keys: Keys, text: OrganizationText, organization: Organization) -> None:
    """Change a connector's keys in the file; of a server that has the standard ones, all of them are written out."""
    text.write_out_connectors(old.server, organization)
    text.set_keys(("receive_connectors", old.name), keys)


def _take_away(old: ReceiveConnector, text: OrganizationText, organization: Organization) -> None:
    text.remove_connector(old, organization)


def _remove(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    for connector in invocation.change(lambda: _meant(invocation), lambda c: f"Remove the receive connector {c.name}?"):
        session.edit(partial(_take_away, connector))
    return iter(())
