"""Who serves this request: the decision and its reasons (SPEC C1-C14, B5).

`decide` is a pure function of an organization, the facts of one request and what the registry last said of the
mailbox's database. It never raises for bad facts: whatever cannot be served is a `Refuse` with its reason.
"""

from __future__ import annotations

from gatepost.organization.model import Edition, Organization, Protocol, Role, Server, Version, VirtualDirectory
from gatepost.routing.outcome import (
    ActiveCopy,
    Cause,
    Decision,
    Mailbox,
    Proxy,
    Redirect,
    RedirectForm,
    Refuse,
    Request,
    Serve,
    Step,
    Target,
)

__all__ = [
    "ActiveCopy",
    "Cause",
    "Decision",
    "Mailbox",
    "Proxy",
    "Redirect",
    "RedirectForm",
    "Refuse",
    "Request",
    "Serve",
    "Step",
    "Target",
    "decide",
    "find_directory",
]


def decide(organization: Organization, request: Request, mailbox: Mailbox, active: ActiveCopy | None) -> Decision:
    """The decision for one request. `active` is the registry's word for `mailbox.database`, None if it has none.

    Rules, in this order: the mailbox's server (B5), the site (C1), then what its version allows across sites
    (C9 for 2010 and older, C10 for modern). HTTP to 2010-or-older mailboxes in another site (C3 to C8) is refused as
    not supported.
    """
    steps: list[Step] = []
    front_end = organization.servers.get(request.front_end)
    if front_end is None:
        return _refuse(steps, Cause.CONFIGURATION, "O1", f"front end {request.front_end} is not in the organization")
    found = _mailbox_server(organization, mailbox, active, steps)
    if isinstance(found, Refuse):
        return found
    server = found
    epoch = active.epoch if active is not None and mailbox.database is not None else 0
    same_site = server.site == front_end.site
    where = "the same site" if same_site else f"another site than {front_end.name} ({front_end.site})"
    version = server.version.word
    steps.append(Step("C1", f"{server.name} (version {version}) is in site {server.site}: {where}"))
    if same_site:
        target = _target(organization, server, request, steps)
        return target if isinstance(target, Refuse) else Serve(target, tuple(steps), epoch)
    if server.version >= Version.MODERN:
        steps.append(Step("C10", "a modern mailbox is reached from any front end, in any site"))
        target = _target(organization, server, request, steps)
        return target if isinstance(target, Refuse) else Proxy(target, tuple(steps), epoch)
    if request.protocol is Protocol.HTTPS:
        message = f"HTTP access to {version} mailboxes in another site is not supported here"
        return _refuse(steps, Cause.NOT_SUPPORTED, "C3-C8", message)
    return _old_mailbox_elsewhere(organization, request, front_end, server, steps)


def _mailbox_server(
    organization: Organization, mailbox: Mailbox, active: ActiveCopy | None, steps: list[Step]
) -> Server | Refuse:
    """The server that holds the mailbox now: its database's active copy, or its home server."""
    if mailbox.database is not None:
        if mailbox.database not in organization.databases:
            message = f"database {mailbox.database} is not in the organization"
            return _refuse(steps, Cause.NO_MAILBOX, "B5", message)
        if active is None or active.database != mailbox.database:
            message = f"database {mailbox.database} has no active copy"
            return _refuse(steps, Cause.NO_ACTIVE_COPY, "B5", message)
        name = active.server
        steps.append(Step("B5", f"database {mailbox.database} is active on {name} (epoch {active.epoch})"))
    elif mailbox.home_server is not None:
        name = mailbox.home_server
        steps.append(Step("B5", f"the mailbox is on its home server {name}"))
    else:
        return _refuse(steps, Cause.NO_MAILBOX, "B5", "the user has no mailbox")
    server = organization.servers.get(name)
    if server is None:
        return _refuse(steps, Cause.CONFIGURATION, "O1", f"server {name} is not in the organization")
    return server


def _target(organization: Organization, server: Server, request: Request, steps: list[Step]) -> Target | Refuse:
    """Where `server` answers this request."""
    endpoint = server.endpoint(request.protocol)
    directory = None
    if request.protocol is Protocol.HTTPS:
        directory = find_directory(organization, server.name, request.path)
        if directory is None:
            message = f"{server.name} has no virtual directory for {_first_segment(request.path)}"
            return _refuse(steps, Cause.NO_VIRTUAL_DIRECTORY, "C10", message)
        if not directory.internal_url:
            message = f"virtual directory {directory.path} of {server.name} has no internal URL"
            return _refuse(steps, Cause.CONFIGURATION, "O3", message)
        steps.append(Step("O3", f"virtual directory {directory.path} is reached at {directory.internal_url}"))
    if endpoint is None:
        message = f"{server.name} has no endpoint for {request.protocol.value}"
        return _refuse(steps, Cause.NO_ENDPOINT, "O1", message)
    if directory is None:
        at = f"{endpoint.address} port {endpoint.port} ({endpoint.tls.value})"
        steps.append(Step("O1", f"{server.name} answers {request.protocol.value} at {at}"))
    return Target(server.name, endpoint, directory, (directory.internal_url or "") if directory else "")


def find_directory(organization: Organization, server: str, path: str) -> VirtualDirectory | None:
    """The virtual directory of `server` with the longest path that is `path` or a parent of it, case ignored."""
    folded = path.casefold()
    for directory in organization.directories_by_server.get(server, ()):
        prefix = directory.path.casefold()
        if prefix == "/" or folded == prefix or folded.startswith(prefix + "/"):
            return directory
    return None


def _old_mailbox_elsewhere(
    organization: Organization, request: Request, front_end: Server, server: Server, steps: list[Step]
) -> Decision:
    """POP3 and IMAP4 of a 2010-or-older mailbox in another site (C9): the source refuses, a later edition proxies."""
    peers = _client_access_servers(organization, server.site, request.protocol)
    if organization.edition is Edition.SP2:
        fit = [peer for peer in peers if peer.version <= front_end.version]
        if fit:
            steps.append(Step("C9", "edition sp2 lets POP3 and IMAP4 be proxied to the mailbox's site"))
            steps.append(Step("C2", f"{fit[0].name} is a client access server there, not newer than {front_end.name}"))
            target = _target(organization, fit[0], request, steps)
            return target if isinstance(target, Refuse) else Proxy(target, tuple(steps))
        if peers:
            steps.append(Step("C2", f"every client access server of {server.site} is newer than {front_end.name}"))
    if not peers:
        message = f"no client access server of site {server.site} answers {request.protocol.value}"
        return _refuse(steps, Cause.OTHER_SITE, "C2", message)
    name = _public_name(organization, peers[0])
    message = f"this mailbox is in another site, use {name}"
    return _refuse(steps, Cause.OTHER_SITE, "C9", message, name)


def _client_access_servers(organization: Organization, site: str, protocol: Protocol) -> list[Server]:
    """Client access servers of `site` that answer `protocol`; newest first, so that the choice is stable."""
    found = [
        server
        for server in organization.servers.values()
        if server.site == site and Role.CLIENT_ACCESS in server.roles and server.endpoint(protocol) is not None
    ]
    return sorted(found, key=lambda server: (-server.version, server.name))


def _public_name(organization: Organization, server: Server) -> str:
    """The name that a client is told for `server`: its array's, else its own."""
    for array in organization.arrays.values():
        if server.name in array.members:
            return array.fqdn
    return server.fqdn


def _first_segment(path: str) -> str:
    return "/" + path.lstrip("/").partition("/")[0]


def _refuse(steps: list[Step], cause: Cause, rule: str, message: str, server_name: str = "") -> Refuse:
    steps.append(Step(rule, message))
    return Refuse(cause, message, tuple(steps), server_name)
