"""Autodiscover requests: the plain XML form (MS-OXDSCLI, MS-ASCMD) and SOAP's GetUserSettings (MS-OXWSADISC)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gatepost.wire.mailbox_address import mailbox_address
from gatepost.wire.xml_reading import BadXml, Path, read_xml

MAX_BODY = 64 * 1024
"""Octets of a request: one for a hundred mailboxes and all settings has 20 KiB."""
MAX_USERS = 100
"""Mailboxes that one SOAP request may ask for; the source system's own bound."""
MAX_SETTINGS = 100
"""Settings that one SOAP request may ask for; the schema has about 80."""
MAX_WORD = 100
"""Characters of a setting's name that are repeated in the answer."""


class Schema(Enum):
    """A form of answer, by its namespace."""

    OUTLOOK = "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"
    MOBILE_SYNC = "http://schemas.microsoft.com/exchange/autodiscover/mobilesync/responseschema/2006"


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request in plain XML."""

    address: str | None
    """None: it names a mailbox that no address can be (or an Exchange name)."""
    schema: Schema | None
    """The first wanted form of answer that there is; None: there is none."""


@dataclass(frozen=True, slots=True)
class SettingsRequest:
    """A SOAP request for users' settings."""

    addresses: tuple[str, ...]
    """As they came: what is no address is answered as such."""
    settings: tuple[str, ...]
    message_id: str = ""
    """The request's `MessageID`, for `RelatesTo`; empty: none."""


def read_plain(body: bytes) -> PlainRequest:
    """Read a plain request. Raises `BadXml` when it is not well formed or says neither mailbox nor form."""
    found: dict[str, list[str]] = {"EMailAddress": [], "LegacyDN": [], "AcceptableResponseSchema": []}

    def element(path: Path, text: str) -> bool:
        if len(path) == 3 and path[:2] == ("Autodiscover", "Request") and path[2] in found:
            found[path[2]].append(text)
        return False

    read_xml(_bounded(body), element)
    addresses, wanted = found["EMailAddress"], found["AcceptableResponseSchema"]
    if not (addresses or found["LegacyDN"]) or not wanted:
        raise BadXml("no mailbox, or no form of answer")
    known = {schema.value: schema for schema in Schema}
    schema = next((known[word] for word in wanted if word in known), None)
    return PlainRequest(mailbox_address(addresses[0]) if addresses else None, schema)


def read_settings(body: bytes) -> SettingsRequest:
    """Read a GetUserSettings request. Raises `BadXml` when it is none, or asks for too much."""
    addresses: list[str] = []
    settings: list[str] = []
    message_id: list[str] = []
    request = ("Envelope", "Body", "GetUserSettingsRequestMessage", "Request")

    def element(path: Path, text: str) -> bool:
        if path == (*request, "Users", "User", "Mailbox"):
            addresses.append(text)
        elif path == (*request, "RequestedSettings", "Setting"):
            settings.append(text[:MAX_WORD])
        elif path == ("Envelope", "Header", "MessageID"):
            message_id.append(text[:MAX_WORD])
        return len(addresses) > MAX_USERS or len(settings) > MAX_SETTINGS

    read_xml(_bounded(body), element)
    if not addresses or not settings:
        raise BadXml("no GetUserSettings request")
    if len(addresses) > MAX_USERS or len(settings) > MAX_SETTINGS:
        raise BadXml("too many users or settings")
    return SettingsRequest(tuple(addresses), tuple(settings), "".join(message_id[:1]))


def _bounded(body: bytes) -> bytes:
    if len(body) > MAX_BODY:
        raise BadXml("too long")
    return body
