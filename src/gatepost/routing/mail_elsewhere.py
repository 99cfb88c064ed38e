"""POP3 and IMAP4 of a 2010-or-older mailbox in another site (SPEC C9): the source refuses, a later edition proxies."""

from __future__ import annotations

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import Edition, Endpoint, Server
from gatepost.routing.case import Case
from gatepost.routing.outcome import Cause, Decision, Target
from gatepost.routing.targets import fit_by_version


def decide_mail_elsewhere(case: Case) -> Decision:
    """Edition `rtm` names the right server, `sp2` proxies to it."""
    protocol = case.request.protocol
    site = case.server.site
    there: list[tuple[Server, Endpoint]] = [
        (server, endpoint)
        for server in case.organization.client_access_by_site.get(site, ())
        if (endpoint := server.endpoint(protocol)) is not None and server.opens(case.server.version)
    ]
    if not there:
        message = f"no client access server of site {site} answers {protocol.value}"
        return case.refuse(Cause.OTHER_SITE, "C2", message)
    if case.organization.edition is Edition.SP2:
        fit = {server.name for server in fit_by_version(case, (server for server, _ in there))}
        targets = [Target(server.name, endpoint) for server, endpoint in there if server.name in fit]
        if targets:
            case.fact("C9", "edition sp2 lets POP3 and IMAP4 be proxied to the mailbox's site")
            return case.several("C9", targets, Affinity.ROUND_ROBIN)
    name = public_name(case, there[0][0])
    return case.refuse(Cause.OTHER_SITE, "C9", f"this mailbox is in another site, use {name}", name)


def public_name(case: Case, server: Server) -> str:
    """The name that a client is told for `server`: its array's, else its own."""
    array = case.organization.array_of_server.get(server.name)
    return array.fqdn if array is not None else server.fqdn
