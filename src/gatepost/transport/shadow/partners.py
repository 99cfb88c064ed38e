"""Which hubs are asked to hold a copy (SPEC S1; exchange-facts 4.4, 2013). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gatepost.balancing.equal_share import EqualShare
from gatepost.organization.model import Organization, Version
from gatepost.organization.transport import ShadowPreference


class Partners:
    """The hubs that may keep shadows of a hub's messages; they take turns."""

    def __init__(self, organization: Organization, name: str) -> None:
        self._name = name
        self._turns = EqualShare()
        self.configure(organization)

    def configure(self, organization: Organization) -> None:
        """Another organization from now on."""
        self._organization = organization
        self._hubs = {
            site: [hub.name for hub in hubs if hub.name != self._name and hub.version is Version.MODERN]
            for site, hubs in organization.hubs_by_site.items()
        }
        own = organization.servers.get(self._name)
        self._site = own.site if own is not None else ""
        self._remote_of: dict[str, tuple[str, ...]] = {}
        """Other sites with a copy, by database."""
        for name, database in organization.databases.items():
            sites = dict.fromkeys(organization.servers[copy.server].site for copy in database.copies)
            if len(sites) > 1:
                self._remote_of[name] = tuple(site for site in sites if site != self._site)

    @property
    def alone(self) -> bool:
        """Whether there is no other hub in this site: only mail for databases of several sites can be protected."""
        return not self._hubs.get(self._site)

    def choose(self, databases: Iterable[str], ready: Callable[[str], bool]) -> list[str]:
        """Hubs to try for one copy, in order, as many as the settings let be tried; those that are down are left out.

        `databases` are those of the recipients' mailboxes; `ready` says whether a hub is not known to be down.
        """
        settings = self._organization.transport_config
        if not settings.shadow_redundancy_enabled:
            return []
        preference = settings.shadow_message_preference
        local = self._up(self._hubs.get(self._site, ()), ready)
        remote: list[str] = []
        if preference is not ShadowPreference.LOCAL_ONLY:
            sites = dict.fromkeys(site for name in databases for site in self._remote_of.get(name, ()))
            remote = self._up((hub for site in sites for hub in self._hubs.get(site, ())), ready)
            if sites and preference is ShadowPreference.REMOTE_ONLY:
                local = []
        found = remote[: settings.max_retries_for_remote_site_shadow]
        found += local[: settings.max_retries_for_local_site_shadow]
        if found:
            self._turns.give(found[0])
        return found

    def _up(self, hubs: Iterable[str], ready: Callable[[str], bool]) -> list[str]:
        return [hub for hub in self._turns.order(hubs, ready) if ready(hub)]
