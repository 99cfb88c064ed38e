"""HTTP for a 2007 or 2010 mailbox in another site: redirect, proxy or refuse (SPEC C2, C3, C5, C6, C8, C11).

Edition `rtm` asks first whether a server there could be proxied to at all, and only then for an external URL, as the
source does. Edition `sp2` redirects to an external URL without that question.
"""

from __future__ import annotations

from gatepost.organization.model import (
    AuthenticationMethod,
    CrossSiteRedirect,
    Edition,
    PathClass,
    VirtualDirectory,
)
from gatepost.routing.case import Case
from gatepost.routing.directories import OWA_FAMILY, owa_directory, shown
from gatepost.routing.outcome import Cause, Decision, Redirect, RedirectForm, Refuse
from gatepost.routing.targets import (
    Candidate,
    affinity_of,
    candidates,
    fit_by_version,
    front_end_target,
    unreachable,
    version_mismatch,
)

RULE_OF_CLASS = {PathClass.DEVICE: "C3", PathClass.INTERACTIVE: "C5", PathClass.API: "C8"}


def decide_elsewhere(case: Case) -> Decision:
    """By the client access servers of the mailbox's site."""
    site = case.server.site
    there = case.organization.client_access_by_site.get(site, ())
    if not there:
        return case.refuse(Cause.NO_CLIENT_ACCESS_SERVER, "C2", f"site {site} has no client access server")
    found = candidates(case, there)
    if not found:
        message = f"no client access server of site {site} has a virtual directory for {shown(case.request.path)}"
        return case.refuse(Cause.NO_VIRTUAL_DIRECTORY, "C2", message)
    fit_names = {server.name for server in fit_by_version(case, (c.server for c in found))}
    if not fit_names:
        return version_mismatch(case)
    fit = [c for c in found if c.server.name in fit_names]
    path_class, service = case.class_with(fit[0].directory)
    if case.organization.edition is Edition.SP2:
        redirect = _redirect(case, path_class, service, fit)
        if redirect is not None:
            return redirect
        eligible = _eligible(case, path_class, fit)
        return eligible if isinstance(eligible, Refuse) else _proxy(case, path_class, service, eligible)
    eligible = _eligible(case, path_class, fit)
    if isinstance(eligible, Refuse):
        return eligible
    return _redirect(case, path_class, service, eligible) or _proxy(case, path_class, service, eligible)


def _eligible(case: Case, path_class: PathClass, fit: list[Candidate]) -> list[Candidate] | Refuse:
    """Those with an internal URL and Integrated authentication."""
    rule = RULE_OF_CLASS[path_class]
    where = f"for {shown(case.request.path)} in site {case.server.site}"
    with_url = [c for c in fit if _internal_url(c.directory, path_class)]
    if not with_url:
        return case.refuse(Cause.NO_INTERNAL_URL, rule, f"no virtual directory {where} has an internal URL")
    eligible = [c for c in with_url if AuthenticationMethod.INTEGRATED in c.directory.authentication]
    if not eligible:
        return case.refuse(Cause.NO_INTEGRATED, rule, f"no virtual directory {where} has Integrated authentication")
    case.fact(rule, f"{eligible[0].server.name} has an internal URL and Integrated authentication")
    return eligible


def _internal_url(directory: VirtualDirectory, path_class: PathClass) -> str | None:
    """Web services may say where one machine is when their internal URL is a balanced name; others have one URL."""
    return directory.peer_url if path_class is PathClass.API else directory.internal_url


def _redirect(case: Case, path_class: PathClass, service: str, fit: list[Candidate]) -> Redirect | None:
    """To the first external URL, where this kind of client can be told so."""
    if path_class is PathClass.API:
        case.passed("C8", "programs are never redirected")
        return None
    external = next((c.directory for c in fit if _is_url(c.directory.external_url)), None)
    if path_class is PathClass.DEVICE:
        return _redirect_device(case, external)
    return _redirect_browser(case, service, external)


def _redirect_device(case: Case, external: VirtualDirectory | None) -> Redirect | None:
    if external is None:
        case.passed("C3", "no external URL there, so no 451")
        return None
    if not case.request.follows_451:
        case.passed("C3", "the device is older than protocol 12.1 and cannot follow 451")
        return None
    location = external.external_url or ""
    steps = case.taken("C3", f"the external URL of {external.server} is {location}: 451 with it")
    return Redirect(location, steps, RedirectForm.DEVICE)


def _redirect_browser(case: Case, service: str, external: VirtualDirectory | None) -> Redirect | None:
    switches = _switches(case, service)
    if switches is not None and not switches.redirect_to_optimal_owa_server:
        case.fact("C6", f"redirection is switched off on {switches.path} of {case.front_end.name}: proxied instead")
        return None
    case.fact("C6", "redirection is on")
    if external is None:
        case.passed("C5", "no external URL there, so no redirection")
        return None
    silent = switches is not None and switches.cross_site_redirect is CrossSiteRedirect.SILENT
    location = external.external_url or ""
    how = "at once" if silent else "by a page with the link"
    steps = case.taken("C5", f"the external URL of {external.server} is {location}: redirected {how}")
    prefix = case.own.path if case.own is not None else external.path
    return Redirect(location, steps, RedirectForm.SILENT if silent else RedirectForm.PAGE, prefix)


def _switches(case: Case, service: str) -> VirtualDirectory | None:
    """This front end's directory whose switches apply: for the owa family the owa directory."""
    if service not in OWA_FAMILY or (case.own is not None and case.own.service.casefold() == "owa"):
        return case.own
    return owa_directory(case.organization, case.front_end.name)


def _proxy(case: Case, path_class: PathClass, service: str, eligible: list[Candidate]) -> Decision:
    """Between front ends: HTTPS only, Integrated only (C11)."""
    faults: list[tuple[Cause, str]] = []
    targets = []
    for candidate in eligible:
        fault = unreachable(candidate.server)
        if not (candidate.directory.peer_url or "").lower().startswith("https://"):
            fault = (
                Cause.NO_INTERNAL_URL,
                "has an internal URL that is not https; between front ends there is only HTTPS",
            )
        target = front_end_target(candidate)
        if fault is None and target is not None:
            targets.append(target)
        elif fault is not None:
            faults.append(fault)
            case.passed("C11", f"{candidate.server.name} {fault[1]}")
    if not targets:
        cause, text = faults[0] if faults else (Cause.NO_ENDPOINT, "has no https endpoint")
        return case.refuse(cause, "C11", f"{eligible[0].server.name} {text}")
    return case.several(RULE_OF_CLASS[path_class], targets, affinity_of(path_class, service))


def _is_url(url: str | None) -> bool:
    """Whether it can stand in a response's head. The check refuses others; a decision must not rely on it."""
    return bool(url) and url is not None and url.isascii() and url.isprintable() and " " not in url
