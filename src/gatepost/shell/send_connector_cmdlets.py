"""Get-, New-, Set- and Remove-SendConnector."""

from __future__ import annotations

from collections.abc import Iterator

from gatepost.organization.transport import SendConnector, TlsLevel
from gatepost.organization.transport_text import (
    read_smart_host,
    read_space,
    smart_host_text,
    space_shown,
    space_text,
)
from gatepost.shell.binding import Bound, Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session, by_name, refuse_taken
from gatepost.shell.settings import Form, Keys, Setting, changed, listed, parameters, properties
from gatepost.shell.things import Cell, Thing

SETTINGS = (
    Setting("Port", "port", Form.NUMBER, "Port of hosts that MX names."),
    Setting("Enabled", "enabled", Form.FLAG, "Whether it is used."),
    Setting("IsScopedConnector", "scoped", Form.FLAG, "Whether only the sites of its source servers use it."),
    Setting("TlsDomain", "tls_domain", Form.TEXT, "The name that a verified certificate must carry."),
    Setting("MaxMessageSize", "max_message_size", Form.SIZE, "Largest message, or unlimited."),
    Setting("SmtpMaxMessagesPerConnection", "max_messages_per_connection", Form.NUMBER, "Messages of a connection."),
    Setting("ConnectionInactivityTimeOut", "inactivity_seconds", Form.SPAN, "How long a host may be silent."),
    Setting("Fqdn", "fqdn", Form.TEXT, "The name at EHLO."),
    Setting("UserName", "user", Form.TEXT, "Name to sign in with at the smart hosts."),
    Setting("AllowPrivateAddresses", "allow_private", Form.FLAG, "Whether MX may lead to private addresses."),
)
LEVELS = {
    "EncryptionOnly": TlsLevel.ENCRYPTED,
    "CertificateValidation": TlsLevel.VERIFIED,
    "DomainValidation": TlsLevel.VERIFIED,
}
"""Where a certificate is verified its name is too, so that the last two are one."""

_IDENTITY = Parameter("Identity", Kind.TEXT, "The connector.", 0)
_CHANGING = (
    Parameter("AddressSpaces", Kind.CHANGES, "Domains with costs: *, *.contoso.com;5, SMTP:contoso.com;1."),
    Parameter("SourceTransportServers", Kind.CHANGES, "Hubs or edges that send by it."),
    Parameter("SmartHosts", Kind.CHANGES, "Hosts that take the mail, with :port if not 25."),
    Parameter("DNSRoutingEnabled", Kind.FLAG, "$true: by MX, without smart hosts."),
    Parameter("RequireTLS", Kind.FLAG, "Whether TLS is required."),
    Parameter("IgnoreSTARTTLS", Kind.FLAG, "Whether TLS is left out."),
    Parameter("TlsAuthLevel", Kind.TEXT, "What is required of TLS.", null=True, words=tuple(LEVELS)),
    Parameter("PasswordFile", Kind.TEXT, "File with the password for -UserName, beside the organization's.", null=True),
    *parameters(SETTINGS),
)


def send_connector_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    usage = Parameter("Usage", Kind.TEXT, "Internal: any size.", words=("Custom", "Internal", "Internet", "Partner"))
    new = (Parameter("Name", Kind.TEXT, "Its name.", 0), usage, *_CHANGING)
    return [
        Cmdlet("Get-SendConnector", "Show send connectors.", _get, (_IDENTITY,)),
        Cmdlet("New-SendConnector", "Add a send connector.", _new, new, changes=True),
        Cmdlet("Set-SendConnector", "Change send connectors.", _set, (_IDENTITY, *_CHANGING), changes=True),
        Cmdlet("Remove-SendConnector", "Take send connectors away.", _remove, (_IDENTITY,), changes=True, asks=True),
    ]


def _meant(invocation: Invocation) -> list[SendConnector]:
    connectors = invocation.session.organization.send_connectors
    return [by_name(connectors, identity, "send connector") for identity in invocation.identities()]


def _thing(connector: SendConnector) -> Thing:
    level = None
    if connector.tls is TlsLevel.VERIFIED:
        level = "DomainValidation" if connector.tls_domain else "CertificateValidation"
    elif connector.tls is TlsLevel.ENCRYPTED:
        level = "EncryptionOnly"
    found: dict[str, Cell] = {
        "Name": connector.name,
        "AddressSpaces": tuple(map(space_shown, connector.address_spaces)),
        "SourceTransportServers": connector.source_servers,
        "SmartHosts": tuple(map(smart_host_text, connector.smart_hosts)),
        "DNSRoutingEnabled": not connector.smart_hosts,
        "SmartHostAuthMechanism": "BasicAuthRequireTLS" if connector.user else "None",
        "RequireTLS": connector.tls in {TlsLevel.ENCRYPTED, TlsLevel.VERIFIED},
        "IgnoreSTARTTLS": connector.tls is TlsLevel.NONE,
        "TlsAuthLevel": level,
    }
    found |= properties(SETTINGS, connector)
    found["Identity"] = connector.name
    return Thing("SendConnector", found, ("Name", "AddressSpaces", "SourceTransportServers", "SmartHosts", "Enabled"))


def _get(invocation: Invocation) -> Iterator[Output]:
    named = "Identity" in invocation.bound or invocation.given is not None
    connectors = invocation.session.organization.send_connectors
    yield from map(_thing, _meant(invocation) if named else connectors.values())


def _keys(session: Session, bound: Bound, old: SendConnector | None) -> Keys:
    """What the parameters change, as the file has it. Raises `ShellError`."""
    keys: Keys = dict(changed(SETTINGS, bound))
    if "PasswordFile" in bound:
        keys["password_file"] = bound.text("PasswordFile")

    def server(name: str) -> str:
        return session.server(name).name

    lists = {
        "address_spaces": listed(bound, "AddressSpaces", old.address_spaces if old else (), read_space, space_text),
        "source_servers": listed(bound, "SourceTransportServers", old.source_servers if old else (), server, str),
        "smart_hosts": listed(bound, "SmartHosts", old.smart_hosts if old else (), read_smart_host, smart_host_text),
    }
    keys |= {key: value for key, value in lists.items() if value is not None}
    by_dns = bound.flag("DNSRoutingEnabled")
    hosts = lists["smart_hosts"] if lists["smart_hosts"] is not None else (old.smart_hosts if old else ())
    if by_dns and lists["smart_hosts"]:
        raise ShellError("either -DNSRoutingEnabled $true or -SmartHosts: with smart hosts MX is not looked at")
    if by_dns:
        keys["smart_hosts"] = None
    if by_dns is False and not hosts:
        raise ShellError("-DNSRoutingEnabled $false needs -SmartHosts")
    tls = _level(bound, old.tls if old else TlsLevel.OPPORTUNISTIC)
    if tls is not None:
        keys["tls"] = tls.value
    return keys


def _level(bound: Bound, old: TlsLevel) -> TlsLevel | None:
    """What the three parameters for TLS mean together; None when none was given. Raises `ShellError`."""
    ignore, require = bound.flag("IgnoreSTARTTLS"), bound.flag("RequireTLS")
    if ignore is None and require is None and "TlsAuthLevel" not in bound:
        return None
    level = bound.text("TlsAuthLevel")
    if ignore:
        if require or level:
            raise ShellError("-IgnoreSTARTTLS $true does not go with -RequireTLS or -TlsAuthLevel")
        return TlsLevel.NONE
    if level:
        if require is False:
            raise ShellError("-TlsAuthLevel does not go with -RequireTLS $false")
        return LEVELS[level]
    if require:
        return old if old is TlsLevel.VERIFIED and "TlsAuthLevel" not in bound else TlsLevel.ENCRYPTED
    if require is False or old is TlsLevel.NONE:
        return TlsLevel.OPPORTUNISTIC
    return TlsLevel.ENCRYPTED if "TlsAuthLevel" in bound and old is TlsLevel.VERIFIED else old


def _new(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    name = bound.need("Name")

    def find() -> list[str]:
        refuse_taken(session.organization.send_connectors, name, "send connector")
        for needed in ("AddressSpaces", "SourceTransportServers"):
            if needed not in bound:
                raise ShellError(f"-{needed} is needed")
        return [name]

    for each in invocation.change(find, lambda name: f"Add the send connector {name}?"):
        usual: Keys = {"max_message_size": "unlimited"} if bound.text("Usage") == "Internal" else {}
        session.add_table(("send_connectors", each), usual | _keys(session, bound, None))
        yield _thing(session.organization.send_connectors[each])


def _set(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    for connector in invocation.change(lambda: _meant(invocation), lambda c: f"Change the send connector {c.name}?"):
        session.set_keys(("send_connectors", connector.name), _keys(session, bound, connector), connector.name)
    return iter(())


def _remove(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    for connector in invocation.change(lambda: _meant(invocation), lambda c: f"Remove the send connector {c.name}?"):
        session.remove_table(("send_connectors", connector.name))
    return iter(())
