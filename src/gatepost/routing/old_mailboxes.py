"""HTTP for 2003 mailboxes (SPEC C4, C7), and the paths that only they have (C7)."""

from __future__ import annotations

from gatepost.organization.model import AuthenticationMethod, PathClass
from gatepost.routing.case import Case
from gatepost.routing.directories import OLD_WEB, OWA_FAMILY, OWA_PATH, first_segment, owa_directory, shown
from gatepost.routing.outcome import Cause, Decision, Redirect, RedirectForm, Refuse
from gatepost.routing.targets import mailbox_target


def decide_2003(case: Case) -> Decision:
    """A 2003 mailbox: straight to its server, in whatever site, never through a client access server there."""
    path_class, service = case.class_with(case.mailbox_directory)
    if path_class is PathClass.DEVICE:
        return _device(case)
    case.passed("C4", f"{shown(case.request.path)} is no path of devices")
    if service in OWA_FAMILY:
        message = f"the mailbox is on a version 2003 server: use /exchange instead of {shown(case.request.path)}"
        return case.refuse(Cause.OLD_MAILBOX, "C7", message)
    if path_class is PathClass.API and case.mailbox_directory is None:
        message = f"a version 2003 mailbox has no {shown(case.request.path)}"
        return case.refuse(Cause.NOT_SUPPORTED, "C8", message)
    return _straight(case, "C7")


def _device(case: Case) -> Decision:
    """ActiveSync: Kerberos between the two needs Integrated authentication on the server's own directory (C4)."""
    directory = case.mailbox_directory
    if directory is not None and AuthenticationMethod.INTEGRATED not in directory.authentication:
        message = f"virtual directory {directory.path} of {case.server.name} lacks Integrated authentication"
        return case.refuse(Cause.NO_INTEGRATED, "C4", message)
    return _straight(case, "C4")


def _straight(case: Case, rule: str) -> Decision:
    if not case.same_site:
        text = f"no client access server of site {case.server.site} is asked: a 2003 mailbox is reached straight"
        case.passed("C2", text)
    target = mailbox_target(case, rule)
    return target if isinstance(target, Refuse) else case.one(rule, target)


def old_path(case: Case) -> Decision | None:
    """A newer mailbox at a path of 2003 mailboxes (C7); None when the path is no such.

    Judged by service: a directory that an operator made at `/public` with a service of their own is served as any
    other.
    """
    _, service = case.class_with(case.mailbox_directory)
    if service not in OLD_WEB:
        return None
    if service == "exchweb":
        message = f"only version 2003 mailboxes have {shown(case.request.path)}"
        return case.refuse(Cause.NO_VIRTUAL_DIRECTORY, "C7", message)
    owa = owa_directory(case.organization, case.front_end.name)
    location = owa.path if owa is not None else OWA_PATH
    directory = case.own or case.mailbox_directory
    prefix = directory.path if directory is not None else first_segment(case.request.path)
    text = f"{prefix} is for 2003 mailboxes; a {case.server.version.word} mailbox is at {location}"
    return Redirect(location, case.taken("C7", text), RedirectForm.OWN_PATH, prefix)
