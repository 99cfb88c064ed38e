"""HTTP for a mailbox of 2007 or newer in this front end's own site (SPEC C1)."""

from __future__ import annotations

from gatepost.organization.model import Version
from gatepost.routing.case import Case
from gatepost.routing.directories import shown
from gatepost.routing.outcome import Cause, Decision, Refuse, Target
from gatepost.routing.targets import (
    Candidate,
    affinity_of,
    candidates,
    fit_by_version,
    front_end_target,
    mailbox_target,
    version_mismatch,
)


def serve_here(case: Case) -> Decision:
    """From the mailbox server, or for 2007 and 2010, which speak RPC only, from a web server of the site."""
    if case.mailbox_directory is None and case.server.version in {Version.V2007, Version.V2010}:
        return _from_web_servers(case)
    target = mailbox_target(case, "C1")
    return target if isinstance(target, Refuse) else case.one("C1", target)


def _from_web_servers(case: Case) -> Decision:
    """Client access servers of this site that are no front ends of ours: those would only send it on."""
    path = shown(case.request.path)
    case.fact("C1", f"{case.server.name} has no virtual directory for {path}: a web server of its site has")
    here = case.organization.client_access_by_site.get(case.server.site, ())
    found = candidates(case, (server for server in here if server.peer_endpoint is None))
    if not found:
        message = f"no web server of site {case.server.site} has a virtual directory for {path}"
        return case.refuse(Cause.NO_VIRTUAL_DIRECTORY, "C1", message)
    fit = {server.name for server in fit_by_version(case, (c.server for c in found))}
    if not fit:
        return version_mismatch(case)
    ready = [c for c in found if c.server.name in fit and c.directory.peer_url]
    if not ready:
        message = f"no virtual directory for {path} in site {case.server.site} has an internal URL"
        return case.refuse(Cause.NO_INTERNAL_URL, "O3", message)
    targets = _targets(ready)
    if not targets:
        message = f"no web server of site {case.server.site} has an endpoint for https"
        return case.refuse(Cause.NO_ENDPOINT, "O1", message)
    return case.several("C1", targets, affinity_of(*case.class_with(ready[0].directory)))


def _targets(ready: list[Candidate]) -> list[Target]:
    made = (front_end_target(candidate) for candidate in ready)
    return [target for target in made if target is not None]
