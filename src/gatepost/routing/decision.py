"""Who serves this request: the decision and its reasons (SPEC C1-C14, B5).

`decide` is a pure function of an organization, the facts of one request and what the registry last said of the
mailbox's database. It never raises for bad facts: whatever cannot be served is a `Refuse` with its reason.

    decide ─► the mailbox's server (B5) ─┬─ 2003, HTTP ───────────────► old_mailboxes  C4, C7
                                         ├─ /exchange of a newer one ─► old_mailboxes  C7
                                         ├─ in this site ─────────────► same_site      C1
                                         ├─ modern, elsewhere ────────► modern         C10, C12
                                         ├─ 2007/2010 elsewhere, HTTP ► elsewhere      C2, C3, C5, C6, C8, C11
                                         ├─ submission, anywhere ─────► hubs           C10, T12
                                         └─ old, elsewhere, mail ─────► mail_elsewhere C9
"""

from __future__ import annotations

from gatepost.organization.model import Organization, Protocol, Server, Version
from gatepost.routing.case import Case, refusal
from gatepost.routing.directories import find_directory, path_class
from gatepost.routing.elsewhere import decide_elsewhere
from gatepost.routing.hubs import decide_submission
from gatepost.routing.mail_elsewhere import decide_mail_elsewhere
from gatepost.routing.modern import decide_modern
from gatepost.routing.old_mailboxes import decide_2003, old_path
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
    StepKind,
    Target,
)
from gatepost.routing.same_site import serve_here
from gatepost.routing.targets import mailbox_target

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
    "StepKind",
    "Target",
    "decide",
    "find_directory",
    "path_class",
]


def decide(organization: Organization, request: Request, mailbox: Mailbox, active: ActiveCopy | None) -> Decision:
    """The decision for one request. `active` is the registry's word for `mailbox.database`, None if it has none.

    Its steps are all rules that were looked at; the last one, and only that one, is the rule taken.
    """
    steps: list[Step] = []
    front_end = organization.servers.get(request.front_end)
    if front_end is None:
        message = f"front end {request.front_end} is not in the organization"
        return refusal(steps, Cause.CONFIGURATION, "O1", message)
    server = _mailbox_server(organization, mailbox, active, steps)
    if isinstance(server, Refuse):
        return server
    case = Case(organization, request, front_end, server, steps)
    if active is not None and mailbox.database is not None:
        case.epoch = active.epoch
    where = "the same site as" if case.same_site else f"another site than {front_end.site}, that of"
    case.fact("C1", f"{server.name} (version {server.version.word}) is in site {server.site}: {where} {front_end.name}")
    if server.name == front_end.name:
        message = f"the mailbox's server {server.name} is this front end itself"
        return case.refuse(Cause.CONFIGURATION, "O1", message)
    decision = _web(case) if request.protocol is Protocol.HTTPS else _mail(case)
    return _once(case, decision) if request.from_peer else decision


def _mailbox_server(
    organization: Organization, mailbox: Mailbox, active: ActiveCopy | None, steps: list[Step]
) -> Server | Refuse:
    """The server that holds the mailbox now: its database's active copy, or its home server."""
    if mailbox.database is not None:
        if mailbox.database not in organization.databases:
            message = f"database {mailbox.database} is not in the organization"
            return refusal(steps, Cause.NO_MAILBOX, "B5", message)
        if active is None or active.database != mailbox.database:
            message = f"database {mailbox.database} has no active copy"
            return refusal(steps, Cause.NO_ACTIVE_COPY, "B5", message)
        name = active.server
        steps.append(Step("B5", f"database {mailbox.database} is active on {name} (epoch {active.epoch})"))
    elif mailbox.home_server is not None:
        name = mailbox.home_server
        steps.append(Step("B5", f"the mailbox is on its home server {name}"))
    else:
        return refusal(steps, Cause.NO_MAILBOX, "B5", "the user has no mailbox")
    server = organization.servers.get(name)
    if server is None:
        return refusal(steps, Cause.CONFIGURATION, "O1", f"server {name} is not in the organization")
    return server


def _web(case: Case) -> Decision:
    """HTTP, by the mailbox's version and site."""
    if case.server.version is Version.V2003:
        return decide_2003(case)
    old = old_path(case)
    if old is not None:
        return old
    if case.same_site:
        return serve_here(case)
    return decide_modern(case) if case.server.version >= Version.MODERN else decide_elsewhere(case)


def _mail(case: Case) -> Decision:
    """IMAP, POP3 and submission."""
    if case.request.protocol is Protocol.SUBMISSION and not _through_peer(case):
        return decide_submission(case)
    if case.same_site:
        target = mailbox_target(case, "C1")
        return target if isinstance(target, Refuse) else case.one("C1", target)
    return decide_modern(case) if case.server.version >= Version.MODERN else decide_mail_elsewhere(case)


def _through_peer(case: Case) -> bool:
    """Whether the mailbox's site is reached through a front end of it only (C12), and this is none of those."""
    site = case.organization.sites.get(case.server.site)
    return site is not None and site.through_peer and not case.same_site and case.server.version >= Version.MODERN


def _once(case: Case, decision: Decision) -> Decision:
    """A request is proxied between front ends once: what came from one goes to a mailbox's server, or nowhere (C11)."""
    if isinstance(decision, Redirect):
        ways = f"redirected to {decision.location}"
    elif isinstance(decision, Proxy) and not all(_is_mailbox_server(case, target) for target in _all(decision)):
        ways = f"proxied to {decision.target.server}"
    else:
        return decision
    return case.refuse(Cause.LOOP, "C11", f"it came from a front end and would be {ways}")


def _all(decision: Proxy) -> tuple[Target, ...]:
    return decision.candidates or (decision.target,)


def _is_mailbox_server(case: Case, target: Target) -> bool:
    """Whether it is the mailbox's own server, and not in its second role of a front end."""
    return target.server == case.server.name and not target.peer
