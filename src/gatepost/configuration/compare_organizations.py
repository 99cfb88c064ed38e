"""What front ends of one organization say of it differently: they would decide differently for the same user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from gatepost.configuration.findings import LocatedFinding
from gatepost.configuration.front_end import public_names
from gatepost.configuration.settings import Configuration
from gatepost.organization.faults import Path, warning
from gatepost.organization.model import AuthenticationMethod, Organization

_OF_ONE_MACHINE = {"server_ca"}
"""Fields that name a file: each machine may keep it in another place."""
_ORGANIZATION = ("organization",)


def organizations(front_ends: Mapping[str, Configuration]) -> Iterator[LocatedFinding]:
    """Files whose organization is not that of the first file of it: the first difference, one finding a file.

    Files with different organizations are left alone, unless the name is all that tells them apart.
    """
    firsts: list[tuple[str, Configuration]] = []
    for file, configuration in front_ends.items():
        first = next((found for found in firsts if _is_one(found[1], configuration)), None)
        if first is None:
            firsts.append((file, configuration))
            continue
        found = _difference(first[1].organization, configuration.organization)
        if found:
            message = f"its organization is not that of {first[0]}: {found}"
            remedy = 'give all front ends the same organization: one file, a copy at each, named by organization = "…"'
            yield _finding(_ORGANIZATION, "organization", message, remedy, file)


def sign_in_pages(front_ends: Mapping[str, Configuration]) -> Iterator[LocatedFinding]:
    """Front ends of one name of which only some show the sign-in page at a path (SPEC B6). One finding a file."""
    first: dict[str, tuple[str, set[str]]] = {}
    for file, configuration in front_ends.items():
        if not configuration.front_end.certificate:
            continue
        pages = _pages(configuration)
        for name in public_names(configuration.organization, configuration.server):
            other, other_pages = first.setdefault(name, (file, pages))
            path = min(pages ^ other_pages, default="")
            if path:
                who = "this one shows" if path in pages else f"that of {other} shows"
                message = (
                    f"clients know it and the front end of {other} as {name}, but only {who} a sign-in page at {path}"
                )
                remedy = "give the virtual directories of both the same authentication: forms at both, or at neither"
                yield _finding(("virtual_directories",), "front end", message, remedy, file)
                break


def _pages(configuration: Configuration) -> set[str]:
    own = configuration.organization.directories_by_server.get(configuration.server.name, ())
    return {d.path.rstrip("/").casefold() for d in own if AuthenticationMethod.FORMS in d.authentication}


def _finding(path: Path, who: str, message: str, remedy: str, file: str) -> LocatedFinding:
    return LocatedFinding(warning(path, who, message, remedy), file)


def _is_one(one: Configuration, other: Configuration) -> bool:
    """Whether two files mean the same organization."""
    if one.organization.name == other.organization.name:
        return True
    if one.organization.servers.keys() == other.organization.servers.keys():
        return True
    return not set(public_names(one.organization, one.server)).isdisjoint(
        public_names(other.organization, other.server)
    )


def _difference(one: Organization, other: Organization) -> str:
    """The first difference in words, without values: some are secret. Empty: none."""
    for field in ("name", "edition", "accepted_domains", "accepted_domain_kinds"):
        if getattr(one, field) != getattr(other, field):
            return f"{field} differs"
    for what, ours, theirs in _objects(one, other):
        for name in dict.fromkeys((*ours, *theirs)):
            if name not in theirs:
                return f"{what} {name} is missing"
            if name not in ours:
                return f"{what} {name} is only here"
            field = _field(ours[name], theirs[name])
            if field:
                return f"{what} {name} differs in {field}"
    return ""


def _objects(one: Organization, other: Organization) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    yield "site", one.sites, other.sites
    yield "site link", one.site_links, other.site_links
    yield "server", one.servers, other.servers
    yield "database", one.databases, other.databases
    yield "array", one.arrays, other.arrays
    yield "receive connector", one.receive_connectors, other.receive_connectors
    yield "send connector", one.send_connectors, other.send_connectors
    yield "virtual directory", _directories(one), _directories(other)


def _directories(organization: Organization) -> dict[str, Any]:
    return {f"{d.path} of {d.server}": d for d in organization.virtual_directories}


def _field(ours: Any, theirs: Any) -> str:  # noqa: ANN401 - two objects of the model, of one class
    for field in fields(ours):
        if field.name not in _OF_ONE_MACHINE and getattr(ours, field.name) != getattr(theirs, field.name):
            return field.name
    return ""
