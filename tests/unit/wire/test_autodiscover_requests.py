"""Autodiscover requests as clients write them, and as nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.autodiscover import MAX_BODY, MAX_WORD, Schema, read_plain, read_settings
from gatepost.wire.xml_reading import BadXml

PHONE = b"""<?xml version="1.0" encoding="utf-8"?>
<Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/mobilesync/requestschema/2006">
  <Request>
    <EMailAddress> alice@contoso.com </EMailAddress>
    <AcceptableResponseSchema>
      http://schemas.microsoft.com/exchange/autodiscover/mobilesync/responseschema/2006
    </AcceptableResponseSchema>
  </Request>
</Autodiscover>"""
SOAP = b"""<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:w="http://www.w3.org/2005/08/addressing"
 xmlns:a="http://schemas.microsoft.com/exchange/2010/Autodiscover"><s:Header>
<a:RequestedServerVersion>Exchange2016</a:RequestedServerVersion><w:MessageID>urn:uuid:7</w:MessageID></s:Header><s:Body>
<a:GetUserSettingsRequestMessage><a:Request><a:Users><a:User><a:Mailbox>alice@contoso.com</a:Mailbox></a:User></a:Users>
<a:RequestedSettings><a:Setting>UserDN</a:Setting><a:Setting>ExternalEwsUrl</a:Setting></a:RequestedSettings>
</a:Request></a:GetUserSettingsRequestMessage></s:Body></s:Envelope>"""


def test_a_phones_request() -> None:
    """With white space and in another encoding."""
    for body in (PHONE, PHONE.decode().replace("utf-8", "utf-16").encode("utf-16")):
        request = read_plain(body)
        assert (request.address, request.schema) == ("alice@contoso.com", Schema.MOBILE_SYNC)


def test_the_first_form_that_there_is_is_taken() -> None:
    """A client may accept several."""
    schema = b"<AcceptableResponseSchema>%b</AcceptableResponseSchema>"
    several = schema % b"urn:new" + schema % Schema.OUTLOOK.value.encode()
    request = b"<Autodiscover><Request><EMailAddress>a@b.de</EMailAddress>%b</Request></Autodiscover>"
    assert read_plain(request % several).schema is Schema.OUTLOOK
    assert read_plain(request % (schema % b"urn:new")).schema is None


def test_an_exchange_name_is_no_address() -> None:
    """Outlook may ask by one."""
    body = PHONE.replace(b"EMailAddress", b"LegacyDN").replace(b"alice@contoso.com", b"/o=contoso/cn=alice")
    assert read_plain(body).address is None


def test_a_request_for_settings() -> None:
    """The message's id is kept for the answer, a long name of a setting is cut."""
    request = read_settings(SOAP)
    assert request.addresses == ("alice@contoso.com",)
    assert request.settings == ("UserDN", "ExternalEwsUrl")
    assert request.message_id == "urn:uuid:7"
    assert read_settings(SOAP.replace(b"UserDN", b"x" * 5000)).settings[0] == "x" * MAX_WORD


@pytest.mark.parametrize("body", [PHONE, SOAP])
def test_a_body_that_is_too_long_is_not_read(body: bytes) -> None:
    """Even if what counts stands at its head."""
    with pytest.raises(BadXml):
        (read_plain if body is PHONE else read_settings)(body + b" " * MAX_BODY)


@given(st.binary(max_size=60), st.integers(0, 700))
def test_what_is_no_request_is_bad_and_nothing_else(noise: bytes, place: int) -> None:
    """No other exception comes out, whatever stands in the middle of a request."""
    for read, body in ((read_plain, PHONE), (read_settings, SOAP)):
        try:
            read(body[:place] + noise + body[place:])
        except BadXml:
            continue
