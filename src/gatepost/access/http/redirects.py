"""What a client is answered that must go elsewhere (SPEC C3, C5, C7): a page with the link, 302, or 451.

Where to comes from the organization alone; the client's path and query only follow it. They stay percent-encoded, and
whatever a URL cannot hold is encoded before it gets near a header or a page.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from gatepost.access.http.answers import Answer
from gatepost.access.http.pages import PAGE_FIELDS, PAGE_TYPE, document
from gatepost.routing.outcome import Redirect, RedirectForm
from gatepost.wire.http_path import change_prefix

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg

_NO_URL_CHARACTER = re.compile(rb"[^A-Za-z0-9\-._~:/?\[\]@!$&()*+,;=%]")
"""All but unreserved and reserved characters and the percent sign (RFC 3986 section 2); `#` and `'` are out as well."""
_TEXT = b"text/plain; charset=utf-8"


def redirect(leg: HttpClientLeg, decision: Redirect, path: bytes, query: bytes) -> Answer:
    """The answer to the current request of `leg`, whose path and query (with its `?`) are as the client sent them.

    A page is 200 for what a browser shows. A request that would change something (POST) has not been carried out, and
    a script must not take it for done: it gets the same page with 403, which browsers show all the same.
    """
    if decision.form is RedirectForm.DEVICE:
        location = _clean(decision.location.encode("ascii", "ignore"))
        return Answer(451, b"X-MS-Location: %b\r\nCache-Control: private\r\n" % location, _TEXT, b"")
    link = deep_link(decision, path, query)
    if decision.form is not RedirectForm.PAGE:
        return Answer(302, b"Location: %b\r\n" % link, _TEXT, b"")
    status = 200 if leg.reader.method in {b"GET", b"HEAD"} else 403
    return Answer(status, PAGE_FIELDS, PAGE_TYPE, _page(decision, link, done=status == 200))


def deep_link(decision: Redirect, path: bytes, query: bytes) -> bytes:
    """`decision.location` with what follows the prefix in `path`, and the query; without them for another path."""
    location = _clean(decision.location.encode("ascii", "ignore")).rstrip(b"/")
    prefix = quote(decision.prefix.rstrip("/"), safe="/~!$&'()*+,=:@%").encode()
    rest = change_prefix(path, prefix, b"")
    if rest is None:
        return location or b"/"
    if rest == b"/" and path[len(prefix) :] == b"":
        rest = b""
    link = _clean(location + rest + query)
    # A path that began with two slashes would be read as a host.
    return link if location else b"/" + link.lstrip(b"/")


def _clean(url: bytes) -> bytes:
    return _NO_URL_CHARACTER.sub(lambda match: b"%%%02X" % match[0][0], url)


def _page(decision: Redirect, link: bytes, *, done: bool) -> bytes:
    href = escape(link.decode("ascii"))
    address = escape(decision.location.encode("ascii", "ignore").decode("ascii"))
    missed = "" if done else '<p class="bad">What you just sent has not been carried out.</p>\n'
    return document(
        "Your mailbox is at another address",
        f"{missed}<p>Your mailbox is opened at this address:</p>\n"
        f'<p><a class="button" href="{href}">{address}</a></p>\n'
        "<p>Please use it from now on, and keep it as your bookmark. You may be asked to sign in again there.</p>",
    )
