"""The check of shadow redundancy and the safety net (part of SPEC O2; exchange-facts 4.4, 4.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gatepost.organization.faults import Path, listed, warning
from gatepost.organization.model import Finding, Organization, Role, Version
from gatepost.organization.transport_text import span_text

_PATH: Path = ("organization", "transport")
_WHO = "organization"


def check_shadow(organization: Organization) -> Iterator[Finding]:
    """Whether hubs can protect each other's mail, and in time."""
    hubs = [
        server
        for server in organization.servers.values()
        if Role.HUB_TRANSPORT in server.roles and server.takes_mail and server.version is Version.MODERN
    ]
    if not hubs:
        return
    config = organization.transport_config
    if config.shadow_redundancy_enabled:
        in_site = Counter(hub.site for hub in hubs)
        for hub in hubs:
            if in_site[hub.site] == 1:
                message = f"is the only hub of site {hub.site}: nobody there can keep shadows of its mail"
                remedy = "add another hub to the site, or write shadow_redundancy_enabled = false"
                yield warning(("servers", hub.name), f"server {hub.name}", message, remedy)
        if config.shadow_resubmit_time_span <= config.shadow_heartbeat_frequency:
            message = (
                f"hubs are held dead after {span_text(config.shadow_resubmit_time_span)}, and are asked every "
                f"{span_text(config.shadow_heartbeat_frequency)}: mail of hubs that live would be delivered twice"
            )
            remedy = "make shadow_resubmit_time_span some times shadow_heartbeat_frequency"
            yield warning((*_PATH, "shadow_resubmit_time_span"), _WHO, message, remedy)
    if not config.safety_net_hold_time:
        sites = _sites_with_mailboxes(organization) & {hub.site for hub in hubs}
        if sites:
            message = (
                f"no copies of delivered mail are kept in {listed(sorted(sites))}: a failover with loss loses mail"
            )
            remedy = 'make safety_net_hold_time as long as a copy may lag behind, such as "2.00:00:00"'
            yield warning((*_PATH, "safety_net_hold_time"), _WHO, message, remedy)


def _sites_with_mailboxes(organization: Organization) -> set[str]:
    copies = (copy for database in organization.databases.values() for copy in database.copies)
    return {organization.servers[copy.server].site for copy in copies if copy.server in organization.servers}
