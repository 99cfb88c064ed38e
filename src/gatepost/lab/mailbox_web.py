"""What the web part of a mailbox server of 2003, 2007, 2010 or today answers, as far as a front door can tell.

Not a mail system: each answer has the right form (headers, WBXML, SOAP, a page) and names the server, so that a client
sees where it came out. Forms by MS-ASHTTP, MS-ASCMD, MS-ASWBXML, and the web services' messages and types schemas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

SERVER_HEADER = "X-Lab-Server"
"""In every answer: the server's name."""
WBXML = "application/vnd.ms-sync.wbxml"
SOAP = "text/xml; charset=utf-8"
ACTIVESYNC = "microsoft-server-activesync"
OLD_PAGES = frozenset({"exchange", "public", "exchweb"})
WEB_SERVICES = frozenset({"ews", "as"})
_NEW = frozenset({"owa", ACTIVESYNC, "oab", "autodiscover"}) | WEB_SERVICES | OLD_PAGES

HEARTBEAT = re.compile(rb"\x48\x03(\d{1,5})\x00")
"""`HeartbeatInterval` and its text in a Ping's WBXML."""
DEFAULT_HEARTBEAT = 60
"""Seconds, of a Ping that says none: it repeats its last one, which is not kept here."""
COMMANDS = "Sync,FolderSync,Ping,SendMail,Settings,Provision"


@dataclass(frozen=True, slots=True)
class Release:
    """What distinguishes one version's answers: first path segments served (None: any), ActiveSync, EWS."""

    services: frozenset[str] | None
    activesync: str
    protocols: str
    build: tuple[int, int]


RELEASES = {
    "2003": Release(OLD_PAGES | {ACTIVESYNC}, "6.5.7638.1", "1.0,2.0,2.1,2.5", (6, 5)),
    "2007": Release(_NEW, "8.1", "1.0,2.0,2.1,2.5,12.0,12.1", (8, 1)),
    "2010": Release(_NEW | {"ecp"}, "14.1", "2.0,2.1,2.5,12.0,12.1,14.0,14.1", (14, 1)),
    "modern": Release(None, "15.2", "2.0,2.1,2.5,12.0,12.1,14.0,14.1,16.0,16.1", (15, 2)),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, given after `hold` seconds."""

    status: int = 200
    kind: str = "text/plain"
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hold: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """What an answer depends on. `user` may be empty; `path` has the query."""

    method: str
    path: str
    user: str
    body: bytes

    @property
    def service(self) -> str:
        """The first path segment in lower case."""
        return urlsplit(self.path).path.strip("/").split("/")[0].casefold()


def answer(server: str, version: str, request: Request) -> Answer | None:
    """The special answer of a path, None where the page that shows the request's facts is the answer.

    `version` is one of `RELEASES`.
    """
    release = RELEASES[version]
    service = request.service
    if release.services is not None and service and service not in release.services:
        return Answer(404, body=f"{server} has no /{service}\n".encode())
    if service == ACTIVESYNC:
        return _activesync(server, release, request)
    if service in WEB_SERVICES and request.method == "POST":
        return _web_service(server, release, request)
    if service == "oab":
        return Answer(kind="text/xml", body=_address_book(server).encode())
    return None


def _activesync(server: str, release: Release, request: Request) -> Answer | None:
    headers = {"MS-Server-ActiveSync": release.activesync}
    if request.method == "OPTIONS":
        headers |= {"MS-ASProtocolVersions": release.protocols, "MS-ASProtocolCommands": COMMANDS}
        return Answer(headers=headers | {"Allow": "OPTIONS,POST", "Public": "OPTIONS,POST"})
    if request.method != "POST":
        return None
    command = parse_qs(urlsplit(request.path).query).get("Cmd", [""])[0].casefold()
    hold = 0.0
    if command == "ping":
        match = HEARTBEAT.search(request.body)
        hold = float(match[1]) if match else DEFAULT_HEARTBEAT
        body = _wbxml(b"\0\x0d", _element(0x05, _text(0x07, "1")))
    elif command == "foldersync":
        inbox = _element(0x0F, _text(0x08, "1"), _text(0x09, "0"), _text(0x07, f"Inbox on {server}"), _text(0x0A, "2"))
        changes = _element(0x0E, _text(0x17, "1"), inbox)
        body = _wbxml(b"\0\x07", _element(0x16, _text(0x0C, "1"), _text(0x12, "1"), changes))
    else:  # nothing changed, in the form of most commands
        body = b""
    return Answer(kind=WBXML, body=body, headers=headers, hold=hold)


def _wbxml(page: bytes, root: bytes) -> bytes:
    """A document: WBXML 1.3, UTF-8, no string table; `page` switches to the code page of `root`."""
    return b"\x03\x01\x6a\0" + page + root


def _element(tag: int, *children: bytes) -> bytes:
    return bytes((tag | 0x40,)) + b"".join(children) + b"\x01"


def _text(tag: int, text: str) -> bytes:
    return _element(tag, b"\x03" + text.encode() + b"\0")


def _web_service(server: str, release: Release, request: Request) -> Answer:
    """Answers of GetFolder and GetUserAvailability; a fault for all else."""
    said = f"{server} answered {request.user or 'nobody'}"
    if b"GetUserAvailabilityRequest" in request.body:
        body = _AVAILABILITY.format(said=escape(said))
    elif b"GetFolder" in request.body:
        body = _FOLDER.format(said=escape(said))
    else:
        fault = _FAULT.format(said=escape(f"{server} knows GetFolder and GetUserAvailability only"))
        return Answer(500, SOAP, _envelope(release, fault))
    return Answer(kind=SOAP, body=_envelope(release, body))


def _envelope(release: Release, body: str) -> bytes:
    return _ENVELOPE.format(major=release.build[0], minor=release.build[1], body=body).encode()


def _address_book(server: str) -> str:
    return f'<?xml version="1.0" encoding="utf-8"?>\n<OAB><OAL id="1" dn="/" name="\\Of {escape(server)}"/></OAB>\n'


_ENVELOPE = """\
<?xml version="1.0" encoding="utf-8"?>
<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"
 xmlns:m="http://schemas.microsoft.com/exchange/services/2006/messages"
 xmlns:t="http://schemas.microsoft.com/exchange/services/2006/types">
<s:Header><t:ServerVersionInfo MajorVersion="{major}" MinorVersion="{minor}"/></s:Header>
<s:Body>{body}</s:Body>
</s:Envelope>
"""

_FOLDER = """
<m:GetFolderResponse><m:ResponseMessages><m:GetFolderResponseMessage ResponseClass="Success">
<m:MessageText>{said}</m:MessageText><m:ResponseCode>NoError</m:ResponseCode>
<m:Folders><t:Folder><t:FolderId Id="inbox"/><t:DisplayName>Inbox</t:DisplayName></t:Folder></m:Folders>
</m:GetFolderResponseMessage></m:ResponseMessages></m:GetFolderResponse>"""

_AVAILABILITY = """
<m:GetUserAvailabilityResponse><m:FreeBusyResponseArray><m:FreeBusyResponse>
<m:ResponseMessage ResponseClass="Success"><m:MessageText>{said}</m:MessageText>
<m:ResponseCode>NoError</m:ResponseCode></m:ResponseMessage>
<m:FreeBusyView><t:FreeBusyViewType>FreeBusy</t:FreeBusyViewType></m:FreeBusyView>
</m:FreeBusyResponse></m:FreeBusyResponseArray></m:GetUserAvailabilityResponse>"""

_FAULT = "<s:Fault><faultcode>s:Client</faultcode><faultstring>{said}</faultstring></s:Fault>"
