"""What a request asks for, read from its target. A connection that asks for the same again has it at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.access.http import health_page, well_known
from gatepost.organization.model import AuthenticationMethod, PathClass, VirtualDirectory
from gatepost.wire.http_path import read_path

if TYPE_CHECKING:
    from gatepost.access.http.door import HttpDoor


class Asked:
    """One target at one front end, under the configuration as it was then. Never changed."""

    __slots__ = (
        "by_certificate",
        "by_cookie",
        "by_password",
        "by_ticket",
        "by_token",
        "kind",
        "ours",
        "page",
        "path",
        "query",
        "route",
        "service",
        "verbatim",
    )

    def __init__(self, door: HttpDoor, target: bytes) -> None:
        """`target` is in origin form. Raises `HeadFault` for a path that could be read in two ways."""
        self.path, self.query, route = read_path(target)
        self.kind: PathClass
        """Who asks for such a path: the form of answers."""
        self.service: str
        self.kind, self.service = door.router.path_class(route)
        self.page: VirtualDirectory | None = door.forms.directory_of(route)
        """This front end's directory for it, where browsers are shown the sign-in page."""
        self.by_cookie = self.page is not None or self.kind is PathClass.INTERACTIVE
        """Whether the sign-in cookie counts: it is for browsers, and programs' paths are out of a page's reach."""
        self.by_password = self.page is None or AuthenticationMethod.BASIC in self.page.authentication
        """Whether Basic credentials count: a directory with the page may be for those alone who use it."""
        self.by_ticket = door.takes_ticket(route)
        """Whether a Kerberos ticket counts (HTTP Negotiate)."""
        self.by_certificate = door.takes_certificate(route)
        """Whether the certificate that a client showed to TLS counts."""
        self.by_token = door.takes_token(route)
        """Whether a bearer token counts."""
        self.ours = well_known.concerns(route) or door.forms.concerns(route) or health_page.concerns(route)
        """Whether it may be one of the pages that need nobody signed in."""
        self.verbatim = route == well_known.JMAP and door.jmap_path is not None
        """The server gets the path as it is, although `route` is another one."""
        self.route = (door.jmap_path or route) if self.verbatim else route
        """The decoded path: what decides where to."""
