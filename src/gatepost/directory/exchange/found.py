"""What an Exchange organization is, as it was found: plain values between Active Directory's entries and our file."""

from __future__ import annotations

from dataclasses import dataclass, field

from gatepost.organization.model import AuthenticationMethod, Network, Role, Version


@dataclass(frozen=True, slots=True)
class FoundSite:
    """A site. `hub_site` is None where Exchange has said nothing about it."""

    name: str
    subnets: tuple[Network, ...] = ()
    hub_site: bool | None = None


@dataclass(frozen=True, slots=True)
class FoundLink:
    """A site link; costs that are None are not set."""

    name: str
    sites: tuple[str, ...]
    cost: int | None = None
    exchange_cost: int | None = None


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server with what of its roles Gatepost knows."""

    name: str
    fqdn: str
    site: str
    version: Version
    roles: frozenset[Role]


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """A virtual directory; URLs that are None are not set, methods that are None are none that Gatepost knows."""

    server: str
    service: str
    path: str
    name: str
    internal_url: str | None = None
    external_url: str | None = None
    internal_bypass_url: str | None = None
    authentication: frozenset[AuthenticationMethod] | None = None


@dataclass(frozen=True, slots=True)
class FoundDatabase:
    """A database with its copies: server and activation preference, in that order of preference."""

    name: str
    copies: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The whole. Mappings are by name, as Active Directory spells it."""

    organization: str = ""
    sites: dict[str, FoundSite] = field(default_factory=dict)
    site_links: dict[str, FoundLink] = field(default_factory=dict)
    servers: dict[str, FoundServer] = field(default_factory=dict)
    directories: tuple[FoundDirectory, ...] = ()
    databases: dict[str, FoundDatabase] = field(default_factory=dict)
    not_mapped: tuple[str, ...] = ()
    """What was there and has no place in the file, one line each, for the operator."""


class Ambiguous(ValueError):
    """What was found can mean two things. Each of `faults` is one line for the operator."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
