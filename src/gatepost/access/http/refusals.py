"""What a client is answered that cannot be served: each in its own form (SPEC C3 to C8, B4).

Browsers get a page in plain words, phones a status without a body, programs that speak SOAP a fault with the response
code of Exchange Web Services, all others JSON or a line of text. A temporary fault is 503 with `Retry-After`, never
401: no client may take it for a wrong password.
"""

from __future__ import annotations

import json
from html import escape
from http import HTTPStatus
from typing import NamedTuple

from gatepost.access.http.answers import TEXTS, Answer
from gatepost.access.http.pages import PAGE_FIELDS, PAGE_TYPE, document
from gatepost.organization.model import PathClass
from gatepost.routing.outcome import Cause

STATUS_OF_CAUSE = {
    Cause.NO_VIRTUAL_DIRECTORY: 404,
    Cause.OTHER_SITE: 403,
    Cause.NOT_SUPPORTED: 403,
    Cause.OLD_MAILBOX: 403,
    Cause.NO_CLIENT_ACCESS_SERVER: 500,
    Cause.VERSION_MISMATCH: 500,
    Cause.NO_INTERNAL_URL: 500,
    Cause.NO_INTEGRATED: 500,
    Cause.LOOP: 508,
}
"""The status of a refused decision; all other causes are temporary: 503."""

SOAP_SERVICES = frozenset({"ews", "as"})
"""Services whose clients read SOAP faults, case-folded."""

RESPONSE_CODES = {
    Cause.NO_MAILBOX: "ErrorMailboxStoreUnavailable",
    Cause.NO_ACTIVE_COPY: "ErrorMailboxStoreUnavailable",
    Cause.NO_ENDPOINT: "ErrorProxyServiceDiscoveryFailed",
    Cause.CONFIGURATION: "ErrorProxyServiceDiscoveryFailed",
    Cause.NO_VIRTUAL_DIRECTORY: "ErrorNoApplicableProxyCASServersAvailable",
    Cause.OTHER_SITE: "ErrorCrossSiteRequest",
    Cause.NOT_SUPPORTED: "ErrorWrongServerVersion",
    Cause.OLD_MAILBOX: "ErrorWrongServerVersion",
    Cause.NO_CLIENT_ACCESS_SERVER: "ErrorNoApplicableProxyCASServersAvailable",
    Cause.VERSION_MISMATCH: "ErrorNoDestinationCASDueToVersionMismatch",
    Cause.NO_INTERNAL_URL: "ErrorNoApplicableProxyCASServersAvailable",
    Cause.NO_INTEGRATED: "ErrorNoDestinationCASDueToKerberosRequirements",
    Cause.NO_ANSWER: "ErrorNoRespondingCASInDestinationSite",
    Cause.BUSY: "ErrorServerBusy",
    Cause.LOOP: "ErrorProxyRequestNotAllowed",
}
"""The response code of Exchange Web Services for each cause."""
_CODE_OF_STATUS = {
    403: "ErrorAccessDenied", 502: "ErrorConnectionFailed", 503: "ErrorServerBusy", 508: "ErrorProxyRequestNotAllowed",
}  # fmt: skip
"""The same where there is no cause; all other statuses: 4xx is the request's fault, 5xx ours."""

_TYPES = "http://schemas.microsoft.com/exchange/services/2006/types"
_ERRORS = "http://schemas.microsoft.com/exchange/services/2006/errors"
_TEXT = b"text/plain; charset=utf-8"
_SAFE_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PROPFIND", b"REPORT", b"SEARCH"})


class _Page(NamedTuple):
    """What a browser shows: plain text, and HTML."""

    title: str
    body: str


_AGAIN = '<p><a class="button" href="">Try again</a></p>'
"""An empty reference is the page's own address, with its query."""
_UNREACHABLE = _Page(
    "Your mailbox cannot be opened from here",
    "<p>The servers are not set up to open it at this address. Trying again will not help: please tell your "
    "administrator what you see here.</p>",
)
_PAGES = {
    Cause.OLD_MAILBOX: _Page(
        "Please use another address",
        "<p>Your mailbox is on an Exchange 2003 server, which is not opened here. Use the address that ends with "
        '/exchange:</p>\n<p><a class="button" href="/exchange/">Open my mailbox at /exchange</a></p>\n'
        "<p>Please keep that address as your bookmark.</p>",
    ),
    Cause.NO_MAILBOX: _Page(
        "There is no mailbox here",
        "<p>You have signed in, but no mailbox belongs to this account, or it is just being set up. If this stays so, "
        "please tell your administrator.</p>\n" + _AGAIN,
    ),
    Cause.NO_ACTIVE_COPY: _Page(
        "Your mailbox is not open at the moment",
        "<p>No server has it open just now: it is being moved, or a server has failed and another takes over. This is "
        "mostly over in a moment. Nothing is wrong with your password.</p>\n" + _AGAIN,
    ),
    Cause.BUSY: _Page(
        "Too busy at the moment",
        "<p>There is more to do than can be done at once. Please wait a little, then try again.</p>\n" + _AGAIN,
    ),
    Cause.NO_VIRTUAL_DIRECTORY: _Page(
        "There is nothing at this address",
        "<p>The server that holds your mailbox does not offer this service. Please check the address.</p>",
    ),
    Cause.LOOP: _Page(
        "The request went in a circle",
        "<p>The servers sent your request back to where it had been. This is a mistake in their settings: please tell "
        "your administrator.</p>",
    ),
    Cause.OTHER_SITE: _UNREACHABLE,
    Cause.NOT_SUPPORTED: _UNREACHABLE,
    Cause.NO_CLIENT_ACCESS_SERVER: _UNREACHABLE,
    Cause.VERSION_MISMATCH: _UNREACHABLE,
    Cause.NO_INTERNAL_URL: _UNREACHABLE,
    Cause.NO_INTEGRATED: _UNREACHABLE,
}
_TEMPORARY_PAGE = _Page(
    "The service is not available at the moment",
    "<p>The server that holds your mailbox does not answer. Nothing is wrong with your password. Please wait a little, "
    "then try again.</p>\n" + _AGAIN,
)


def status_of(cause: Cause, path_class: PathClass) -> int:
    """The status for a refused decision.

    A phone that is refused for good gets 403, not 500: for both it asks Autodiscover anew (MS-ASHTTP section
    3.1.5.2.1), but 500 makes it try again at once.
    """
    status = STATUS_OF_CAUSE.get(cause, 503)
    return 403 if path_class is PathClass.DEVICE and status == 500 else status


def refusal(
    path_class: PathClass,
    service: str,
    status: int,
    cause: Cause | None,
    message: str,
    retry_after: int,
    accept: bytes,
    method: bytes,
) -> Answer:
    """The answer for a request to a path of `service` that is refused with `status`.

    `message` is the decision's line for clients, where there is one; `retry_after` (seconds) is said with 503 only;
    `accept` is the request's `Accept`, empty if it has none.
    """
    fields = b"Retry-After: %d\r\n" % retry_after if status == 503 else b""
    if path_class is PathClass.DEVICE:
        return Answer(status, fields, _TEXT, b"")
    if service.casefold() in SOAP_SERVICES:
        return _fault(status, cause, message, retry_after, fields)
    if path_class is PathClass.INTERACTIVE and (b"html" in accept.lower() or b"json" not in accept.lower()):
        page = _html(status, cause, changes=method not in _SAFE_METHODS)
        return Answer(status, PAGE_FIELDS + fields, PAGE_TYPE, page)
    text = message or TEXTS.get(status, _phrase(status))
    if b"json" in accept.lower():
        # RFC 9457, which JMAP uses too (RFC 8620 section 3.6.1).
        problem = {"type": "about:blank", "title": _phrase(status), "status": status, "detail": text}
        return Answer(status, fields, b"application/problem+json", json.dumps(problem).encode())
    return Answer(status, fields, _TEXT, text.encode("utf-8", "replace") + b"\n")


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Refused"


def _html(status: int, cause: Cause | None, *, changes: bool) -> bytes:
    if cause in _PAGES:
        title, body = _PAGES[cause]
    elif status == 503:
        title, body = _TEMPORARY_PAGE
    else:
        title, body = _phrase(status), f"<p>{escape(TEXTS.get(status, 'The request cannot be served.'))}</p>"
    if changes:
        body = '<p class="bad">What you just sent may not have arrived: look before you send it again.</p>\n' + body
    return document(title, body)


def _fault(status: int, cause: Cause | None, message: str, retry_after: int, fields: bytes) -> Answer:
    """A SOAP 1.1 fault as Exchange Web Services makes it.

    What is refused for good is 500, the only status that SOAP 1.1 has for a fault (section 6.2) and under which
    clients look for one; what is temporary keeps 503, by which programs that know no fault wait as well.
    """
    if cause is not None:
        code = RESPONSE_CODES[cause]
        status = 503 if status == 503 else 500
    else:
        code = _CODE_OF_STATUS.get(status, "ErrorInvalidRequest" if status < 500 else "ErrorInternalServerError")
    text = escape(message or TEXTS.get(status, _phrase(status)))
    wait = (
        f'<t:MessageXml xmlns:t="{_TYPES}"><t:Value Name="BackOffMilliseconds">{retry_after * 1000}</t:Value>'
        "</t:MessageXml>"
        if status == 503
        else ""
    )
    body = (
        '<?xml version="1.0" encoding="utf-8"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
        f'<s:Fault><faultcode xmlns:a="{_TYPES}">a:{code}</faultcode><faultstring xml:lang="en-US">{text}</faultstring>'
        f'<detail><e:ResponseCode xmlns:e="{_ERRORS}">{code}</e:ResponseCode>'
        f'<e:Message xmlns:e="{_ERRORS}">{text}</e:Message>{wait}</detail></s:Fault></s:Body></s:Envelope>'
    )
    return Answer(status, fields, b"text/xml; charset=utf-8", body.encode("utf-8", "replace"))
