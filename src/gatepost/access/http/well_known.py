"""What we answer before anybody signs in, whatever mailbox server is down (field case 25).

`/.well-known/caldav` and `carddav` (RFC 6764), autodiscover and autoconfig for mail programs, the root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from gatepost.access.http.answers import page
from gatepost.access.http.autodiscover.urls import mail_endpoints
from gatepost.organization.model import Organization, Server, TlsMode

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg

JMAP = "/.well-known/jmap"
"""Goes to the user's own server (RFC 8620 section 2.2): the exchange sends it there under this path."""
AUTOCONFIG = ("/.well-known/autoconfig/mail/config-v1.1.xml", "/mail/config-v1.1.xml")
DAV_SERVICES = {"/.well-known/caldav": ("caldav", "dav"), "/.well-known/carddav": ("carddav", "dav")}
_XML = b"application/xml; charset=utf-8"


def concerns(route: str) -> bool:
    """Whether a path may be one that is answered here; costs next to nothing for all others."""
    return route == "/" or route[1:13].lower() in {".well-known/", "autodiscover"} or route == AUTOCONFIG[1]


def answer(leg: HttpClientLeg, route: str, query: bytes) -> bool:
    """Answer the request of `leg` if its path is one of ours; False: it goes on like any other."""
    organization = leg.door.configuration.organization
    path = route.rstrip("/").lower() or "/"
    if path in DAV_SERVICES:
        _redirect(leg, directory_path(organization, *DAV_SERVICES[path]), b"/", status=301)
    elif path in AUTOCONFIG:
        leg.answer(
            200, autoconfig(leg.door.configuration.server, organization, leg.door.external_name), content_type=_XML
        )
    elif path.startswith("/autodiscover/"):
        # The other forms are for those who have signed in.
        return leg.door.autodiscover.public(leg, path, query)
    elif path == "/":
        owa = directory_path(organization, "owa")
        if owa is None:
            leg.answer(
                200, page(organization.name, "The mail service is running."), content_type=b"text/html; charset=utf-8"
            )
        else:
            _redirect(leg, owa, b"/", status=302)
    else:
        return False
    return True


def directory_path(organization: Organization, *services: str) -> str | None:
    """The path of the first virtual directory that offers one of `services`."""
    for service in services:
        for directory in organization.virtual_directories:
            if directory.service == service:
                return directory.path.rstrip("/")
    return None


def _redirect(leg: HttpClientLeg, path: str | None, end: bytes, *, status: int) -> None:
    if path is None:
        leg.answer(404)
    else:
        leg.answer(status, b"", fields=b"Location: %b%b\r\n" % (path.encode("ascii", "ignore"), end))


def autoconfig(server: Server, organization: Organization, name: str) -> bytes:
    """Mozilla's autoconfig, version 1.1."""
    domain = escape(organization.default_domain or name)
    incoming = "".join(
        f'<incomingServer type="{e.protocol.value}"><hostname>{escape(name)}</hostname><port>{e.port}</port>'
        f"<socketType>{'SSL' if e.tls is TlsMode.IMPLICIT else 'STARTTLS'}</socketType>"
        "<username>%EMAILADDRESS%</username><authentication>password-cleartext</authentication></incomingServer>"
        for e in mail_endpoints(server)
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><clientConfig version="1.1"><emailProvider id="{domain}">'
        f"<domain>{domain}</domain><displayName>{escape(organization.name)}</displayName>{incoming}"
        "</emailProvider></clientConfig>\n"
    ).encode()
