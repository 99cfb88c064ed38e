"""Virtual directories: the paths that servers serve over HTTP, and what may be answered there (SPEC C3 to C8)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AuthenticationMethod(StrEnum):
    """A method that a virtual directory accepts."""

    BASIC = "basic"
    INTEGRATED = "integrated"
    FORMS = "forms"
    CERTIFICATE = "certificate"
    """Clients' certificates (`[front_end.client_certificates]`)."""
    OAUTH = "oauth"
    """Bearer tokens (RFC 6750)."""


class PathClass(StrEnum):
    """Who asks for a path, and so what may be answered (SPEC C3 to C8)."""

    INTERACTIVE = "interactive"
    """A person with a browser: may be shown a page."""
    DEVICE = "device"
    """A phone with ActiveSync: understands 451."""
    API = "api"
    """A program: its requests are proxied, it is never sent elsewhere."""


class CrossSiteRedirect(StrEnum):
    """How a browser is sent to another site (`CrossSiteRedirectType` of the source system)."""

    MANUAL = "manual"
    """A page with the link; the user clicks."""
    SILENT = "silent"


CLASS_OF_SERVICE = {
    "owa": PathClass.INTERACTIVE,
    "ecp": PathClass.INTERACTIVE,
    "exchange": PathClass.INTERACTIVE,
    "public": PathClass.INTERACTIVE,
    "exchweb": PathClass.INTERACTIVE,
    "microsoft-server-activesync": PathClass.DEVICE,
}
"""The class of a service's paths, by its case-folded word, where a virtual directory says none; all others: API."""


def class_of_service(service: str) -> PathClass:
    """The class of a service that says none itself."""
    return CLASS_OF_SERVICE.get(service.casefold(), PathClass.API)


@dataclass(frozen=True, slots=True)
class VirtualDirectory:
    """A path that a server serves over HTTP, and where others reach it.

    `path` has a leading and no trailing slash and matches whole path segments, without regard to case.
    `internal_url` is where peers and front ends send requests for it; `external_url` is what clients outside are told.
    """

    server: str
    service: str
    path: str
    internal_url: str | None = None
    external_url: str | None = None
    authentication: frozenset[AuthenticationMethod] = frozenset({AuthenticationMethod.INTEGRATED})
    name: str = ""
    """The source system's name for it, such as `owa (Default Web Site)`."""
    path_class: PathClass = PathClass.API
    redirect_to_optimal_owa_server: bool = True
    """On a front end's interactive directory: whether browsers may be redirected to the mailbox's site (SPEC C6)."""
    cross_site_redirect: CrossSiteRedirect = CrossSiteRedirect.MANUAL
    internal_bypass_url: str | None = None
    """Where peers reach this one machine when `internal_url` is a balanced name (`InternalNLBBypassUrl`)."""

    @property
    def peer_url(self) -> str | None:
        """The URL that a peer sends proxied requests to."""
        return self.internal_bypass_url or self.internal_url
