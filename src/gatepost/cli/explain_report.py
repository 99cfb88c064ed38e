"""What `gatepost explain` says: the facts, the rules, and what came of them, as a report and as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gatepost.balancing.affinity import Affinity
from gatepost.balancing.choice import order
from gatepost.cli.explain_sign_in import sign_in_words
from gatepost.configuration.findings import printable
from gatepost.directory.port import User
from gatepost.organization.model import Organization, Protocol
from gatepost.routing.decision import (
    ActiveCopy,
    Decision,
    Proxy,
    Redirect,
    RedirectForm,
    Refuse,
    Serve,
    StepKind,
    Target,
    path_class,
)

HealthOf = Callable[[Target], str]
"""What is known of a target's health, in words; empty when nothing is."""
FORMS = {
    RedirectForm.PAGE: "by a page with the link",
    RedirectForm.SILENT: "at once, by 302",
    RedirectForm.DEVICE: "by HTTP 451",
    RedirectForm.OWN_PATH: "to another path of this front end",
}
MARKS = {StepKind.FACT: " ", StepKind.PASSED_OVER: "-", StepKind.TAKEN: ">"}


@dataclass(frozen=True, slots=True)
class Question:
    """Who asks for what, where."""

    user: User
    protocol: Protocol
    front_end: str
    path: str = ""
    client: str = ""
    """The client's address, or empty."""
    from_peer: bool = False

    @property
    def allowed(self) -> bool:
        """Whether the user may sign in by this protocol at all."""
        return self.protocol in self.user.protocols and not self.user.disabled


def unknown_health(_target: Target) -> str:
    """No health is known on the command line by itself."""
    return ""


def report(
    organization: Organization,
    question: Question,
    decision: Decision,
    active: ActiveCopy | None,
    health: HealthOf = unknown_health,
) -> dict[str, Any]:
    """Everything, for programs."""
    user = question.user
    found: dict[str, Any] = {
        "user": user.name,
        "protocol": question.protocol.value,
        "front_end": question.front_end,
        "database": user.mailbox.database,
        "home_server": user.mailbox.home_server,
        "allowed": question.allowed,
        "disabled": user.disabled,
        "facts": _facts(organization, question, active),
        "outcome": type(decision).__name__.lower(),
        "steps": [{"rule": step.rule, "text": step.text, "kind": step.kind.value} for step in decision.steps],
    }
    match decision:
        case Serve() | Proxy():
            found["target"] = _target(decision.target, health) | {"epoch": decision.epoch}
            if words := sign_in_words(organization, question.front_end, question.protocol, decision.target):
                found["sign_in"] = words
            found["affinity"] = decision.affinity.value
            candidates = decision.candidates or (decision.target,)
            found["candidates"] = [_target(target, health) for target in candidates]
            if question.client and decision.affinity is Affinity.COOKIE_OR_ADDRESS:
                found["first_for_client"] = _first(candidates, question)
        case Redirect():
            form = decision.form
            found["redirect"] = {"form": form.value, "location": decision.location, "prefix": decision.prefix}
        case Refuse():
            found["refusal"] = {"cause": decision.cause.value, "message": decision.message}
            found["refusal"] |= {"temporary": decision.cause.temporary, "server_name": decision.server_name}
    return found


def _facts(organization: Organization, question: Question, active: ActiveCopy | None) -> dict[str, Any]:
    mailbox = question.user.mailbox
    server = organization.servers.get(active.server if active else mailbox.home_server or "")
    here = organization.servers[question.front_end]
    facts: dict[str, Any] = {
        "front_end_site": here.site,
        "front_end_version": here.version.word,
        "edition": organization.edition.value,
        "mailbox_server": server.name if server else None,
        "mailbox_version": server.version.word if server else None,
        "mailbox_site": server.site if server else None,
        "from_peer": question.from_peer,
    }
    if question.protocol is Protocol.HTTPS:
        kind, service = path_class(organization, question.front_end, question.path)
        facts |= {"path": question.path, "path_class": kind.value, "service": service}
    if question.client:
        subnet, site = organization.subnets.find(question.client) or (None, None)
        facts |= {"client": question.client, "client_site": site, "client_subnet": str(subnet) if subnet else None}
    return facts


def _target(target: Target, health: HealthOf) -> dict[str, Any]:
    endpoint = target.endpoint
    found = {
        "server": target.server,
        "address": endpoint.address,
        "port": endpoint.port,
        "tls": endpoint.tls.value,
        "peer": target.peer,
    }
    if target.url:
        found["url"] = target.url
    if words := health(target):
        found["health"] = words
    return found


def _first(candidates: tuple[Target, ...], question: Question) -> str:
    """Where the client's address leads, all servers being up and no cookie being there (B1)."""
    servers = [target.server for target in candidates]
    return order(
        servers,
        Affinity.COOKIE_OR_ADDRESS,
        kept=None,
        address=question.client,
        user=question.user.name,
        turn=0,
        healthy=lambda _: True,
    )[0]


def text(found: dict[str, Any]) -> list[str]:
    """The same in lines for people, printable whatever the organization's names hold."""
    mailbox = f"database {found['database']}" if found["database"] else f"home server {found['home_server']}"
    lines = [f"{found['user']} ({mailbox}) by {found['protocol']} at {found['front_end']}"]
    lines += [f"  {line}" for line in _facts_text(found["facts"])]
    marks = {kind.value: mark for kind, mark in MARKS.items()}
    for number, step in enumerate(found["steps"], 1):
        lines.append(f"  {number:>2}. {step['rule']:<4} {marks[step['kind']]} {step['text']}")
    lines += [f"  {line}" for line in _candidates_text(found)]
    if "sign_in" in found:
        lines.append(f"  signs in there {found['sign_in']}")
    if found["disabled"]:
        lines.append("  The user is disabled: every sign-in is refused like a wrong password.")
    elif not found["allowed"]:
        lines.append(f"  The user may not use {found['protocol']}: the sign-in is refused.")
    lines.append(f"  => {_outcome(found) if found['allowed'] else 'refuse: the sign-in'}")
    return [printable(line) for line in lines]


def _facts_text(facts: dict[str, Any]) -> list[str]:
    lines = [f"front end: version {facts['front_end_version']}, site {facts['front_end_site']}"]
    if facts["mailbox_server"]:
        where = f"version {facts['mailbox_version']}, site {facts['mailbox_site']}"
        lines.append(f"mailbox:   {facts['mailbox_server']}, {where}")
    if "path" in facts:
        lines.append(f"path:      {facts['path']}, service {facts['service']}, {facts['path_class']}")
    if "client" in facts:
        where = (
            f"site {facts['client_site']} (subnet {facts['client_subnet']})" if facts["client_site"] else "site unknown"
        )
        lines.append(f"client:    {facts['client']}, {where}")
    if facts["from_peer"]:
        lines.append("request:   passed on by another front end")
    lines.append(f"edition:   {facts['edition']}")
    lines.append("rules (- passed over, > taken):")
    return lines


def _candidates_text(found: dict[str, Any]) -> list[str]:
    if found.get("affinity", Affinity.NONE.value) == Affinity.NONE.value:
        return []
    lines = [f"affinity: {found['affinity']}; candidates:"]
    for target in found["candidates"]:
        at = f"{target['address']} port {target['port']} ({target['tls']}{', peer' if target['peer'] else ''})"
        health = f": {target['health']}" if "health" in target else ""
        lines.append(f"  {target['server']} at {at}{health}")
    if "first_for_client" in found:
        lines.append(f"without a cookie the client's address leads to {found['first_for_client']}")
    return lines


def _outcome(found: dict[str, Any]) -> str:
    if "redirect" in found:
        form = RedirectForm(found["redirect"]["form"])
        return f"redirect to {found['redirect']['location']}, {FORMS[form]}"
    if "refusal" in found:
        return f"refuse: {found['refusal']['message']}"
    servers = [target["server"] for target in found["candidates"]]
    names = servers[0] if len(servers) == 1 else f"one of {', '.join(servers)}"
    return f"serve from {names}" if found["outcome"] == "serve" else f"proxy to {names}"
