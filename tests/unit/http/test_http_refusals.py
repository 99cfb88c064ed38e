"""Refusals: browsers, phones, Exchange Web Services and other programs each in their form; never 401."""

from __future__ import annotations

import json
from itertools import product
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.access.http.answers import Answer
from gatepost.access.http.refusals import RESPONSE_CODES, refusal, status_of
from gatepost.organization.model import PathClass
from gatepost.routing.outcome import Cause

SOAP = "{http://schemas.xmlsoap.org/soap/envelope/}"
TYPES = "{http://schemas.microsoft.com/exchange/services/2006/types}"
ERRORS = "{http://schemas.microsoft.com/exchange/services/2006/errors}"
SERVICE = {PathClass.INTERACTIVE: "owa", PathClass.DEVICE: "Microsoft-Server-ActiveSync", PathClass.API: "dav"}


def refused(
    path_class: PathClass,
    cause: Cause | None,
    *,
    service: str = "",
    status: int = 0,
    message: str = "why",
    accept: bytes = b"",
    method: bytes = b"GET",
) -> Answer:
    status = status or (503 if cause is None else status_of(cause, path_class))
    return refusal(path_class, service or SERVICE[path_class], status, cause, message, 10, accept, method)


@pytest.mark.parametrize(("path_class", "cause"), list(product(PathClass, [*Cause, None])))
def test_a_temporary_fault_is_503_and_says_when_to_come_back(path_class: PathClass, cause: Cause | None) -> None:
    """Never 401, never without `Retry-After`; what is for good never says to come back (field cases 76 and 112)."""
    got = refused(path_class, cause)
    assert got.status != 401
    temporary = cause is None or cause.temporary
    assert (got.status == 503) == temporary
    assert (b"Retry-After: 10\r\n" in got.fields) == temporary


def test_an_error_code_is_returned_to_the_mobile_phone_if_the_request_is_rejected() -> None:
    """The source's sentence: a status, no body; 403 for good, for which the phone asks Autodiscover."""
    for cause in (Cause.NO_INTEGRATED, Cause.NO_INTERNAL_URL, Cause.NO_CLIENT_ACCESS_SERVER, Cause.VERSION_MISMATCH):
        got = refused(PathClass.DEVICE, cause, method=b"POST", accept=b"text/html, application/json")
        assert (got.status, got.fields, got.body) == (403, b"", b"")
    busy = refused(PathClass.DEVICE, Cause.BUSY)
    assert (busy.status, busy.fields, busy.body) == (503, b"Retry-After: 10\r\n", b"")


def test_an_error_tells_them_that_their_mailbox_is_on_an_exchange_2003_server() -> None:
    """The source: `/owa` with a 2003 mailbox; they must use the Exchange directory, and the page links to it."""
    got = refused(PathClass.INTERACTIVE, Cause.OLD_MAILBOX)
    assert got.status == 403
    assert got.content_type == b"text/html; charset=utf-8"
    assert b"Exchange 2003 server" in got.body
    assert b'<a class="button" href="/exchange/">' in got.body


@pytest.mark.parametrize("cause", [*Cause, None])
def test_browsers_get_a_page_in_plain_words(cause: Cause | None) -> None:
    """A title, no server's name, a link to try again where that can help."""
    got = refused(PathClass.INTERACTIVE, cause, message="MBX-7: connection refused", accept=b"text/html,*/*;q=0.8")
    assert got.content_type.startswith(b"text/html")
    assert b"Content-Security-Policy" in got.fields
    assert b"MBX-7" not in got.body
    assert b"<h1>" in got.body
    assert (b'href="">Try again' in got.body) == (got.status == 503)
    assert b"may not have arrived" not in got.body


def test_what_was_sent_may_not_have_arrived() -> None:
    """A form's sender is told to look before sending it again."""
    assert b"may not have arrived" in refused(PathClass.INTERACTIVE, None, method=b"POST").body


@pytest.mark.parametrize(
    ("cause", "status", "code"),
    [
        (Cause.NO_INTEGRATED, 500, "ErrorNoDestinationCASDueToKerberosRequirements"),
        (Cause.VERSION_MISMATCH, 500, "ErrorNoDestinationCASDueToVersionMismatch"),
        (Cause.NO_CLIENT_ACCESS_SERVER, 500, "ErrorNoApplicableProxyCASServersAvailable"),
        (Cause.NO_ANSWER, 503, "ErrorNoRespondingCASInDestinationSite"),
        (Cause.BUSY, 503, "ErrorServerBusy"),
        (Cause.LOOP, 500, "ErrorProxyRequestNotAllowed"),
        (Cause.NOT_SUPPORTED, 500, "ErrorWrongServerVersion"),
        (None, 503, "ErrorServerBusy"),
    ],
)
@pytest.mark.parametrize("service", ["EWS", "ews", "AS"])
def test_exchange_web_services_get_a_fault(service: str, cause: Cause | None, status: int, code: str) -> None:
    """The response code in the fault's code and detail; how long to wait where that helps."""
    got = refused(PathClass.API, cause, service=service, method=b"POST", message="a <b> & c")
    assert (got.status, got.content_type) == (status, b"text/xml; charset=utf-8")
    fault = ET.fromstring(got.body).find(f"{SOAP}Body/{SOAP}Fault")
    assert fault is not None
    assert (fault.findtext("faultcode") or "").endswith(f":{code}")
    assert fault.findtext("faultstring") == "a <b> & c"
    assert fault.findtext(f"detail/{ERRORS}ResponseCode") == code
    value = fault.find(f"detail/{TYPES}MessageXml/{TYPES}Value")
    if status == 503:
        assert value is not None
        assert (value.get("Name"), value.text) == ("BackOffMilliseconds", "10000")
    else:
        assert value is None


def test_every_cause_has_a_response_code() -> None:
    """A new cause must be given one."""
    assert set(RESPONSE_CODES) == set(Cause)


def test_other_programs_get_json_or_text() -> None:
    """By what they accept: RFC 9457 for JSON."""
    got = refused(PathClass.API, Cause.NO_ACTIVE_COPY, accept=b"application/json")
    assert got.content_type == b"application/problem+json"
    assert json.loads(got.body) == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "why",
    }
    assert refused(PathClass.API, Cause.NO_ACTIVE_COPY).body == b"why\n"
    assert refused(PathClass.API, None, message="").body.startswith(b"The service is not available")
    script = refused(PathClass.INTERACTIVE, None, accept=b"application/json, text/plain, */*")
    assert script.content_type == b"application/problem+json"


@given(
    st.sampled_from(PathClass), st.sampled_from([*Cause, None]), st.sampled_from(["ews", "owa", "x"]),
    st.integers(400, 599), st.text(st.characters(codec="utf-8", exclude_categories=("C",))), st.binary(), st.binary(),
)  # fmt: skip
def test_no_request_makes_a_broken_answer(
    path_class: PathClass, cause: Cause | None, service: str, status: int, message: str, accept: bytes, method: bytes
) -> None:
    """Faults are well-formed, JSON is JSON, and a message makes no tag."""
    got = refusal(path_class, service, status, cause, message, 5, accept, method)
    if got.content_type.startswith(b"text/xml"):
        ET.fromstring(got.body)
    elif got.content_type == b"application/problem+json":
        assert json.loads(got.body)["status"] == status
    elif got.content_type.startswith(b"text/html"):
        assert got.body.count(b"<h1>") == 1
