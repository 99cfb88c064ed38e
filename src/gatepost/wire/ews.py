"""Exchange Web Services, as far as the front door must look at them: whose free times a request asks for (SPEC C8).

Availability requests are about another mailbox than the caller's. The first mailbox that one asks for says where it
goes; the server there fetches the rest itself.
"""

from __future__ import annotations

from gatepost.wire.mailbox_address import mailbox_address
from gatepost.wire.xml_reading import MAX_XML, BadXml, Path, read_xml

MAX_BODY = MAX_XML
"""Octets of a request that is collected to see whether it asks for free times."""

_ADDRESS = ("GetUserAvailabilityRequest", "MailboxDataArray", "MailboxData", "Email", "Address")
_OPERATION = b"/getuseravailability"


def is_availability(soap_action: bytes, content_type: bytes) -> bool:
    """Whether a request says that it asks for free times: by `SOAPAction`, or in SOAP 1.2 by the type's `action`."""
    return _OPERATION in soap_action.lower() or _OPERATION in content_type.lower()


def may_be_availability(soap_action: bytes, content_type: bytes, length: int | None) -> bool:
    """Whether a request could ask for free times and is short enough to look: some clients send no `SOAPAction`."""
    if soap_action.strip(b'" ') or b"action=" in content_type.lower():
        return is_availability(soap_action, content_type)
    return b"xml" in content_type.lower() and length is not None and 0 < length <= MAX_BODY


def availability_target(body: bytes) -> str | None:
    """The address of the first mailbox in a GetUserAvailability request, or None: it is no such request, or malformed.

    Never raises. Prefixes may be any; only the first `MAX_BODY` octets are looked at.
    """
    found: list[str | None] = []

    def element(path: Path, text: str) -> bool:
        if len(path) >= 2 and path[1] == "Body" and path[2:3] not in {(), _ADDRESS[:1]}:
            return True
        if path[2:] == _ADDRESS:
            found.append(mailbox_address(text))
        return bool(found)

    try:
        read_xml(body, element)
    except BadXml:
        return None
    return found[0] if found else None
