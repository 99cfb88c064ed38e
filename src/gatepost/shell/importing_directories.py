"""The virtual directories of a found Exchange organization, put over those that the file has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gatepost.configuration.build import standard_set
from gatepost.configuration.editing import OrganizationText, Plain
from gatepost.directory.exchange.found import Found, FoundDirectory
from gatepost.directory.exchange.servers import SERVICES
from gatepost.organization.model import (
    Organization,
    Protocol,
    Role,
    Server,
    Version,
    VirtualDirectory,
    class_of_service,
)

_TOLD = {service.casefold() for service in SERVICES.values()}
"""Services whose directories Active Directory has; the others of a standard set are known by the version alone."""
_NOT_EXCHANGE = {"dav", "jmap"}
"""Of today's standard set, what an Exchange server has not."""


def put_directories(found: Found, text: OrganizationText, organization: Organization) -> Iterator[str]:
    """Set or add their entries. Notes what was assumed or left away. Raises `EditingFault`."""
    by_server: dict[str, list[FoundDirectory]] = {}
    for directory in found.directories:
        by_server.setdefault(directory.server.casefold(), []).append(directory)
    for server in organization.servers.values():
        directories = by_server.get(server.name.casefold(), [])
        if not directories:
            if Role.CLIENT_ACCESS in server.roles and server.name.casefold() in {n.casefold() for n in found.servers}:
                yield f"server {server.name}: no virtual directories were found, so its standard set counts"
            continue
        if server.endpoint(Protocol.HTTPS) is None:
            yield f"server {server.name}: it has no https endpoint, so its virtual directories are left away"
            continue
        yield from _put(directories, text, organization, server)


def _put(
    directories: list[FoundDirectory], text: OrganizationText, organization: Organization, server: Server
) -> Iterator[str]:
    listed = any(entry.get("server") == server.name for entry in text.data.get("virtual_directories", []))
    given = {directory.path.casefold() for directory in directories}
    if not listed:
        for standard in standard_set(server):
            service = standard.service.casefold()
            if service not in _TOLD | _NOT_EXCHANGE and standard.path.casefold() not in given:
                text.put_directory(standard, {})
    else:
        known = organization.directories_by_server.get(server.name, ())
        only = [d.path for d in known if d.path.casefold() not in given and d.service.casefold() in _TOLD]
        if only:
            yield f"only in the file, kept: virtual directories of {server.name}: {', '.join(only)}"
    before = {directory.path.casefold(): directory for directory in organization.directories_by_server[server.name]}
    for directory in directories:
        yield from _put_one(directory, text, server, before.get(directory.path.casefold()) if listed else None)


def _put_one(
    directory: FoundDirectory, text: OrganizationText, server: Server, before: VirtualDirectory | None
) -> Iterator[str]:
    if before is None:
        made = VirtualDirectory(
            server.name,
            directory.service,
            directory.path,
            directory.internal_url,
            directory.external_url,
            name=directory.name,
            path_class=class_of_service(directory.service),
            internal_bypass_url=directory.internal_bypass_url,
        )
        if directory.authentication is not None:
            made = replace(made, authentication=directory.authentication)
        if made.internal_url is None and server.version is Version.MODERN:
            made = replace(made, internal_url=server.own_url(directory.path))
            yield f"virtual directory {directory.name} of {server.name}: it has no internal URL; its host name is taken"
        text.put_directory(made, {})
        return
    keys: dict[str, Plain | None] = {}
    for key in ("internal_url", "external_url", "internal_bypass_url"):
        url = getattr(directory, key)
        if url is not None and url != getattr(before, key):
            keys[key] = url
        elif url is None and key == "external_url" and before.external_url is not None:
            yield f"only in the file, kept: external_url of {directory.name} of {server.name}"
    if directory.authentication is not None and directory.authentication != before.authentication:
        keys["authentication"] = sorted(method.value for method in directory.authentication)
    if keys:
        text.put_directory(before, keys)
