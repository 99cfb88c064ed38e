"""Cmdlets for servers, client access arrays, sites and the organization."""

from __future__ import annotations

from collections.abc import Iterator

from gatepost.activemanager.port import RegistryUnavailable, RegistryView, ServerWord
from gatepost.activemanager.standing import server_health
from gatepost.configuration.editing import OrganizationText, Plain
from gatepost.organization.model import ClientAccessArray, Organization, Role, Server, Site
from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session, by_name, refuse_taken
from gatepost.shell.things import Cell, Thing

PROTOCOLS = ("imap", "imaps", "pop3", "pop3s", "https")
"""Endpoints of a new front end: all that have TLS by themselves."""

_IDENTITY = Parameter("Identity", Kind.TEXT, "Its name or full host name.", 0)
_NAME = Parameter("Name", Kind.TEXT, "Its name.", 0)
_SITE = Parameter("Site", Kind.TEXT, "The site it stands in.")
_FQDN = Parameter("Fqdn", Kind.TEXT, "Its full host name.")
_ADDRESS = Parameter("Address", Kind.TEXT, "Its address.", null=True)
_MEMBERS = Parameter("Members", Kind.CHANGES, "Its servers. Default: all client access servers of the site.")


def server_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    return [
        Cmdlet("Get-ExchangeServer", "Show all servers.", _get_server, (_IDENTITY,)),
        Cmdlet("Get-ClientAccessServer", "Show front ends.", _get_front_end, (_IDENTITY,)),
        Cmdlet(
            "Set-ClientAccessServer",
            "Change front ends.",
            _set_front_end,
            (_IDENTITY, _SITE, Parameter("Fqdn", Kind.TEXT, "Its full host name.", null=True), _ADDRESS),
            changes=True,
        ),
        Cmdlet(
            "New-ClientAccessServer",
            "Add a front end with its standard virtual directories.",
            _new_front_end,
            (
                _NAME,
                _SITE,
                _FQDN,
                _ADDRESS,
                Parameter("Protocols", Kind.TEXTS, "What it listens for. Default: all.", words=PROTOCOLS),
            ),
            changes=True,
        ),
        Cmdlet(
            "Remove-ClientAccessServer",
            "Take front ends away.",
            _remove_front_end,
            (_IDENTITY,),
            changes=True,
            asks=True,
        ),
        Cmdlet("Get-ClientAccessArray", "Show arrays.", _get_array, (_IDENTITY, _SITE)),
        Cmdlet("New-ClientAccessArray", "Add an array.", _new_array, (_NAME, _FQDN, _SITE, _MEMBERS), changes=True),
        Cmdlet(
            "Set-ClientAccessArray", "Change arrays.", _set_array, (_IDENTITY, _FQDN, _SITE, _MEMBERS), changes=True
        ),
        Cmdlet("Remove-ClientAccessArray", "Take arrays away.", _remove_array, (_IDENTITY,), changes=True, asks=True),
        Cmdlet("Get-AdSite", "Show sites.", _get_site, (_IDENTITY,)),
        Cmdlet("Get-OrganizationConfig", "Show the organization.", _get_organization),
    ]


# Servers


def _servers(invocation: Invocation, role: Role | None) -> list[Server]:
    """The servers meant; all of the role where none is named."""
    session = invocation.session
    if invocation.given is None and "Identity" not in invocation.bound:
        return [s for s in session.organization.servers.values() if role is None or role in s.roles]
    found = [session.server(identity) for identity in invocation.identities()]
    for server in found:
        if role is not None and role not in server.roles:
            raise ShellError(f"{server.name} is no {role.value} server; its roles are {_roles(server)}")
    return found


def _meant(invocation: Invocation) -> list[Server]:
    invocation.identities()  # a change of all servers must be asked for by a pipeline
    return _servers(invocation, Role.CLIENT_ACCESS)


def _roles(server: Server) -> str:
    return ", ".join(role.value for role in Role if role in server.roles)


def _thing_of_server(session: Session, server: Server, kind: str, view: RegistryView | None = None) -> Thing:
    """`view`: what operators and the manager say of it is shown too."""
    arrays = tuple(array.name for array in session.organization.arrays.values() if server.name in array.members)
    properties: dict[str, Cell] = {
        "Name": server.name,
        "Site": server.site,
        "ServerRole": tuple(role.value for role in Role if role in server.roles),
        "AdminDisplayVersion": server.version.word,
        "Fqdn": server.fqdn,
        "Address": server.address,
        "Endpoints": tuple(f"{e.name}:{e.port}" for e in server.endpoints),
        "ClientAccessArray": arrays,
    }
    if view is not None:
        is_mailbox = Role.MAILBOX in server.roles
        properties["State"] = str(view.words.get(server.name, ServerWord.UP)) if is_mailbox else None
        properties["Health"] = server_health(view, server.name) or None
    properties["Identity"] = server.name
    return Thing(kind, properties, ("Name", "Site", "ServerRole", "AdminDisplayVersion"))


def _get_server(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    view = RegistryView()
    if session.has_stores:
        try:
            view = session.registry.view()
        except RegistryUnavailable as fault:
            session.talk.warn(f"State and Health are not known, the registry cannot be read: {fault}")
    for server in _servers(invocation, None):
        yield _thing_of_server(session, server, "ExchangeServer", view)


def _get_front_end(invocation: Invocation) -> Iterator[Output]:
    for server in _servers(invocation, Role.CLIENT_ACCESS):
        yield _thing_of_server(invocation.session, server, "ClientAccessServer")


def _set_front_end(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    for server in invocation.change(lambda: _meant(invocation), lambda s: f"Change the server {s.name}?"):
        keys: dict[str, Plain | None] = {}
        if "Site" in bound:
            keys["site"] = _site(session, bound.need("Site")).name
        keys |= {key: bound.text(name) for name, key in (("Fqdn", "fqdn"), ("Address", "address")) if name in bound}
        session.set_keys(("servers", server.name), keys, server.name)
    return iter(())


def _new_front_end(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    name = bound.need("Name")

    def find() -> list[Site]:
        refuse_taken(session.organization.servers, name, "server")
        return [_site(session, bound.need("Site"))]

    for site in invocation.change(find, lambda site: f"Add the server {name} in {site.name}?"):
        protocols = bound.texts("Protocols") or PROTOCOLS
        keys: dict[str, Plain | None] = {
            "site": site.name,
            "roles": [Role.CLIENT_ACCESS.value],
            "fqdn": bound.text("Fqdn"),
            "address": bound.text("Address"),
            "endpoints": {protocol: {} for protocol in protocols},
        }
        session.add_table(("servers", name), keys)
        yield _thing_of_server(session, session.server(name), "ClientAccessServer")


def _remove_front_end(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    for server in invocation.change(lambda: _meant(invocation), lambda s: f"Remove the server {s.name}?"):
        others = [role.value for role in server.roles - {Role.CLIENT_ACCESS}]
        if others:
            raise ShellError(f"{server.name} is more than a front end: {_roles(server)}. Change it in the file.")

        def edit(text: OrganizationText, organization: Organization, name: str = server.name) -> None:
            text.remove_directories_of(name)
            text.remove_table(("servers", name))
            for array in organization.arrays.values():
                if name in array.members:
                    members = [member for member in array.members if member != name]
                    text.set_keys(("arrays", array.name), {"members": members})

        session.edit(edit)
    return iter(())


# Arrays


def _arrays(invocation: Invocation) -> list[ClientAccessArray]:
    return [_array(invocation.session, identity) for identity in invocation.identities()]


def _array(session: Session, name: str) -> ClientAccessArray:
    return by_name(session.organization.arrays, name, "client access array")


def _thing_of_array(array: ClientAccessArray) -> Thing:
    properties: dict[str, Cell] = {
        "Name": array.name,
        "Site": array.site,
        "Fqdn": array.fqdn,
        "Members": array.members,
        "Identity": array.name,
    }
    return Thing("ClientAccessArray", properties, ("Name", "Site", "Fqdn", "Members"))


def _get_array(invocation: Invocation) -> Iterator[Output]:
    session, site = invocation.session, invocation.bound.text("Site")
    named = "Identity" in invocation.bound or invocation.given is not None
    found = _arrays(invocation) if named else list(session.organization.arrays.values())
    wanted = _site(session, site).name if site else None
    for array in found:
        if wanted is None or array.site == wanted:
            yield _thing_of_array(array)


def _new_array(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    fqdn = bound.need("Fqdn")
    name = bound.text("Name") or fqdn.partition(".")[0]

    def find() -> list[Site]:
        refuse_taken(session.organization.arrays, name, "client access array")
        return [_site(session, bound.need("Site"))]

    for site in invocation.change(find, lambda site: f"Add the client access array {name} in {site.name}?"):
        keys: dict[str, Plain | None] = {
            "site": site.name,
            "fqdn": fqdn,
            "members": _members(invocation, (), site.name),
        }
        session.add_table(("arrays", name), keys)
        yield _thing_of_array(session.organization.arrays[name])


def _set_array(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    for array in invocation.change(lambda: _arrays(invocation), lambda a: f"Change the array {a.name}?"):
        keys: dict[str, Plain | None] = {}
        if "Fqdn" in bound:
            keys["fqdn"] = bound.need("Fqdn")
        if "Site" in bound:
            keys["site"] = _site(session, bound.need("Site")).name
        if "Members" in bound:
            keys["members"] = _members(invocation, array.members, array.site)
        session.set_keys(("arrays", array.name), keys, array.name)
    return iter(())


def _members(invocation: Invocation, before: tuple[str, ...], site: str) -> list[str]:
    """The array's servers as the parameter says; without it all client access servers of the site."""
    session, changes = invocation.session, invocation.bound.changes("Members")
    if changes is None:
        servers = session.organization.servers.values()
        return [s.name for s in servers if s.site == site and Role.CLIENT_ACCESS in s.roles]
    return [session.server(name).name for name in changes.apply(before)]


def _remove_array(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    for array in invocation.change(lambda: _arrays(invocation), lambda a: f"Remove the client access array {a.name}?"):
        session.remove_table(("arrays", array.name))
    return iter(())


# Sites and the organization


def _site(session: Session, name: str) -> Site:
    return by_name(session.organization.sites, name, "site")


def _get_site(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    named = "Identity" in invocation.bound or invocation.given is not None
    names = invocation.identities() if named else list(session.organization.sites)
    for name in names:
        site = _site(session, name)
        properties: dict[str, Cell] = {
            "Name": site.name,
            "InternetFacing": site.internet_facing,
            "HubSiteEnabled": site.hub_site,
            "Subnets": tuple(str(subnet) for subnet in site.subnets),
            "Servers": tuple(s.name for s in session.organization.servers.values() if s.site == site.name),
            "Identity": site.name,
        }
        yield Thing("AdSite", properties, ("Name", "InternetFacing", "Subnets", "Servers"))


def _get_organization(invocation: Invocation) -> Iterator[Output]:
    organization = invocation.session.organization
    properties: dict[str, Cell] = {
        "Name": organization.name,
        "Edition": organization.edition.value,
        "AcceptedDomains": organization.accepted_domains,
        "Identity": organization.name,
    }
    yield Thing("OrganizationConfig", properties, ("Name", "Edition", "AcceptedDomains"))
