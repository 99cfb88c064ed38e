"""Servers that could take a request: where they answer, who among them is fit, and how one is chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gatepost.balancing.affinity import Affinity
from gatepost.organization.faults import listed
from gatepost.organization.model import (
    Endpoint,
    HttpSignIn,
    PathClass,
    Protocol,
    Server,
    TlsMode,
    VirtualDirectory,
)
from gatepost.routing.case import Case
from gatepost.routing.directories import find_directory, shown
from gatepost.routing.outcome import Cause, Refuse, Target

EWS = "ews"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client access server and its virtual directory for the request's path."""

    server: Server
    directory: VirtualDirectory


def mailbox_target(case: Case, rule: str) -> Target | Refuse:
    """Where the mailbox's own server answers the request."""
    server = case.server
    protocol = case.request.protocol
    directory = None
    if protocol is Protocol.HTTPS:
        directory = case.mailbox_directory
        if directory is None:
            message = f"{server.name} has no virtual directory for {shown(case.request.path)}"
            return case.refuse(Cause.NO_VIRTUAL_DIRECTORY, rule, message)
        if not directory.internal_url:
            message = f"virtual directory {directory.path} of {server.name} has no internal URL"
            return case.refuse(Cause.NO_INTERNAL_URL, "O3", message)
    endpoint = server.endpoint(protocol)
    if endpoint is None:
        return case.refuse(Cause.NO_ENDPOINT, "O1", f"{server.name} has no endpoint for {protocol.value}")
    return Target(server.name, endpoint, directory, (directory.internal_url or "") if directory else "")


def candidates(case: Case, servers: Iterable[Server]) -> list[Candidate]:
    """Those of `servers` that have a virtual directory for the path; never this front end itself."""
    found = []
    for server in servers:
        if server.name != case.front_end.name:
            directory = find_directory(case.organization, server.name, case.request.path)
            if directory is not None:
                found.append(Candidate(server, directory))
    return found


def fit_by_version(case: Case, servers: Iterable[Server]) -> list[Server]:
    """Those that are not newer than this front end and can open the mailbox (C2)."""
    mine, mailbox = case.front_end.version, case.server.version
    fit = []
    for server in servers:
        if server.version > mine:
            case.passed("C2", f"{server.name} (version {server.version.word}) is newer than {case.front_end.name}")
        elif not server.opens(mailbox):
            text = f"{server.name} (version {server.version.word}) cannot open {mailbox.word} mailboxes"
            case.passed("C2", text)
        else:
            fit.append(server)
    if fit:
        case.fact("C2", f"client access servers of site {case.server.site} that can be used: {names(fit)}")
    return fit


def version_mismatch(case: Case) -> Refuse:
    """None of a site's client access servers has a fitting version."""
    message = f"no client access server of site {case.server.site} has a version that fits"
    return case.refuse(Cause.VERSION_MISMATCH, "C2", message)


def unreachable(server: Server) -> tuple[Cause, str] | None:
    """Why this front end may not proxy to `server` in another site (C11); None: it may."""
    if server.peer_endpoint is not None:
        return None
    if server.sign_in.http not in (HttpSignIn.HEADER, HttpSignIn.KERBEROS):
        text = "has no peer endpoint, trusts no header and takes no tickets; Basic between front ends is refused"
        return Cause.NO_INTEGRATED, text
    endpoint = server.endpoint(Protocol.HTTPS)
    if endpoint is None:
        return Cause.NO_ENDPOINT, "has no https endpoint"
    if endpoint.tls is not TlsMode.IMPLICIT:
        return Cause.NO_INTEGRATED, "answers in clear; between front ends there is only HTTPS"
    return None


def front_end_target(candidate: Candidate) -> Target | None:
    """How to reach a client access server: as a peer where it has an endpoint for that; None: it has no endpoint."""
    server, directory = candidate.server, candidate.directory
    peer = server.peer_endpoint
    endpoint: Endpoint | None = peer or server.endpoint(Protocol.HTTPS)
    if endpoint is None:
        return None
    return Target(server.name, endpoint, directory, directory.peer_url or "", peer=peer is not None)


def affinity_of(path_class: PathClass, service: str) -> Affinity:
    """How requests for a service stay with one of several servers (B1 to B3)."""
    if path_class is PathClass.INTERACTIVE:
        return Affinity.COOKIE
    if path_class is PathClass.DEVICE:
        return Affinity.FIRST_SERVER
    return Affinity.COOKIE_OR_ADDRESS if service == EWS else Affinity.ROUND_ROBIN


def names(servers: Iterable[Server]) -> str:
    """Their names, for a sentence."""
    return listed([server.name for server in servers])
