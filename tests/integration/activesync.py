"""A phone for the tests: the commands of ActiveSync that it takes to be pushed to, with their WBXML made by hand.

How to use it (every answer has `status` and `headers`, so that a 451 or 503 is an answer like any other)::

    phone = Phone("127.0.1.1", 443, "alice@contoso.com", "apw", context=front_door.client_context)
    phone.options().headers["MS-ASProtocolVersions"]
    folders = phone.folder_sync().folders()              # display name to folder id; also makes the key for the next
    phone.sync(folders["INBOX"])                         # twice: the first makes the key, the second takes stock
    phone.ping(folders["INBOX"], heartbeat=60).element("Ping:Status")       # "2": something changed; "1": nothing did

`X-MS-Location` of a 451: `phone.at(url)` is the same device at the other place.
Tokens: MS-ASWBXML 2.1.2.1; the encoding is WBXML 1.3, of which ActiveSync uses inline strings and code pages only.
"""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.message import Message
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

PATH = "/Microsoft-Server-ActiveSync"
WBXML = "application/vnd.ms-sync.wbxml"
PATIENCE_SECONDS = 30.0
"""For an answer; a Ping gets its heartbeat besides."""

HEAD = bytes((3, 1, 106, 0))
"""WBXML 1.3, no public identifier, UTF-8, empty string table."""
SWITCH_PAGE, END, INLINE_STRING, OPAQUE, HAS_CONTENT = 0, 1, 3, 0xC3, 0x40

PAGES: dict[str, tuple[int, dict[str, int]]] = {
    "AirSync": (
        0,
        {"Sync": 5, "Add": 7, "Change": 8, "Delete": 9, "SyncKey": 11, "ServerId": 13, "Status": 14, "Collection": 15}
        | {"Class": 16, "CollectionId": 18, "GetChanges": 19, "MoreAvailable": 20, "WindowSize": 21, "Commands": 22}
        | {"Options": 23, "FilterType": 24, "Collections": 28, "ApplicationData": 29},
    ),
    "Email": (2, {"DateReceived": 15, "Subject": 20, "Read": 21, "To": 22, "From": 24}),
    "FolderHierarchy": (
        7,
        {"DisplayName": 7, "ServerId": 8, "ParentId": 9, "Type": 10, "Status": 12, "Changes": 14, "Add": 15}
        | {"SyncKey": 18, "FolderSync": 22, "Count": 23},
    ),
    "Ping": (13, {"Ping": 5, "Status": 7, "HeartbeatInterval": 8, "Folders": 9, "Folder": 10, "Id": 11, "Class": 12}),
}
NAMES = {(page, code): f"{name}:{tag}" for name, (page, tags) in PAGES.items() for tag, code in tags.items()}


class Element(NamedTuple):
    """An element by the name `Page:Tag`, with its text or its children."""

    name: str
    content: str | tuple[Element, ...] = ()

    def all(self, name: str) -> Iterator[Element]:
        """The elements of that name here and below."""
        if self.name == name:
            yield self
        if not isinstance(self.content, str):
            for child in self.content:
                yield from child.all(name)

    def text(self, name: str) -> str:
        """The text of the first element of that name; empty without one."""
        found = next(self.all(name), None)
        return found.content if found is not None and isinstance(found.content, str) else ""


def encode(root: Element) -> bytes:
    """A document."""
    made = bytearray(HEAD)
    page = 0

    def put(element: Element) -> None:
        nonlocal page
        space, tag = element.name.split(":")
        number, tags = PAGES[space]
        if number != page:
            made.extend((SWITCH_PAGE, number))
            page = number
        made.append(tags[tag] | (HAS_CONTENT if element.content else 0))
        if isinstance(element.content, str) and element.content:
            made.append(INLINE_STRING)
            made.extend(element.content.encode() + b"\0")
        elif not isinstance(element.content, str):
            for child in element.content:
                put(child)
        if element.content:
            made.append(END)

    put(root)
    return bytes(made)


def decode(data: bytes) -> Element:
    """The root of a document. Tags that are not in `PAGES` get names such as `17:10`. Raises ValueError."""
    if data[:4] != HEAD:
        raise ValueError(f"no WBXML of ActiveSync: {data[:40]!r}")
    at, page = 4, 0
    open_elements: list[tuple[str, list[Element], list[str]]] = [("", [], [])]
    while at < len(data):
        code = data[at]
        at += 1
        if code == SWITCH_PAGE:
            page, at = data[at], at + 1
        elif code == END:
            name, children, texts = open_elements.pop()
            open_elements[-1][1].append(Element(name, "".join(texts) if texts else tuple(children)))
        elif code == INLINE_STRING:
            end = data.index(0, at)
            open_elements[-1][2].append(data[at:end].decode())
            at = end + 1
        elif code == OPAQUE:
            size, at = _integer(data, at)
            open_elements[-1][2].append(data[at : at + size].decode(errors="replace"))
            at += size
        else:
            name = NAMES.get((page, code & 0x3F), f"{page}:{code & 0x3F}")
            if code & HAS_CONTENT:
                open_elements.append((name, [], []))
            else:
                open_elements[-1][1].append(Element(name))
    if len(open_elements) != 1 or len(open_elements[0][1]) != 1:
        raise ValueError("an element does not end")
    return open_elements[0][1][0]


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    while True:
        value = value << 7 | data[at] & 0x7F
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


@dataclass(frozen=True)
class Answer:
    """What came back. `reason` is the text of the status line."""

    status: int
    reason: str
    headers: Message
    body: bytes

    @property
    def root(self) -> Element:
        """The document. Raises ValueError if the body is none."""
        return decode(self.body)

    def element(self, name: str) -> str:
        """The text of an element, `Page:Tag`; empty without one."""
        return self.root.text(name)

    def folders(self) -> dict[str, str]:
        """The folders of a FolderSync: display name to id."""
        space = "FolderHierarchy"
        return {
            folder.text(f"{space}:DisplayName"): folder.text(f"{space}:ServerId")
            for folder in self.root.all(f"{space}:Add")
        }


@dataclass
class Phone:
    """A device of one user at one place. Each request has its own connection."""

    host: str
    port: int
    user: str
    password: str
    context: ssl.SSLContext | None = None
    """None: without TLS."""
    device: str = "phone1"
    kind: str = "iPhone"
    version: str = "14.1"
    agent: str = "Apple-iPhone/1.0"
    name: str = ""
    """The Host header, if it is not `host`."""
    path: str = PATH
    headers: dict[str, str] = field(default_factory=dict)
    """Sent besides; an empty value takes a header away."""
    keys: dict[str, str] = field(default_factory=lambda: {"": "0"})
    """Folder id (empty: the hierarchy) to the key that the next Sync says."""

    def at(self, url: str, host: str = "", port: int = 0) -> Phone:
        """This device at another place; `host` and `port` say where the URL's host is reached."""
        parts = urlsplit(url)
        default = 443 if parts.scheme == "https" else 80
        return replace(
            self,
            host=host or parts.hostname or "",
            port=port or parts.port or default,
            name=parts.netloc,
            path=parts.path or PATH,
        )

    def options(self) -> Answer:
        """OPTIONS: which versions and commands there are."""
        return self.request("OPTIONS", self.path)

    def folder_sync(self) -> Answer:
        """The folders that changed since the last one: all, the first time."""
        key = Element("FolderHierarchy:SyncKey", self.keys[""])
        answer = self.command("FolderSync", Element("FolderHierarchy:FolderSync", (key,)))
        if answer.status == 200 and (new := answer.element("FolderHierarchy:SyncKey")):
            self.keys[""] = new
        return answer

    def sync(self, folder: str) -> Answer:
        """Take stock of a folder. The first one of a folder brings the key only, the second one what is in it."""
        key = self.keys.get(folder, "0")
        parts = [Element("AirSync:SyncKey", key), Element("AirSync:CollectionId", folder)]
        if key != "0":
            everything = Element("AirSync:Options", (Element("AirSync:FilterType", "0"),))
            parts += [Element("AirSync:GetChanges"), Element("AirSync:WindowSize", "100"), everything]
        collections = Element("AirSync:Collections", (Element("AirSync:Collection", tuple(parts)),))
        answer = self.command("Sync", Element("AirSync:Sync", (collections,)))
        if answer.status == 200 and answer.body and (new := answer.element("AirSync:SyncKey")):
            self.keys[folder] = new
        return answer

    def ping(self, folder: str, heartbeat: int, kind: str = "Email") -> Answer:
        """Wait for a change of a folder, at most `heartbeat` seconds."""
        watched = Element("Ping:Folder", (Element("Ping:Id", folder), Element("Ping:Class", kind)))
        parts = (Element("Ping:HeartbeatInterval", str(heartbeat)), Element("Ping:Folders", (watched,)))
        return self.command("Ping", Element("Ping:Ping", parts), PATIENCE_SECONDS + heartbeat)

    def command(self, name: str, document: Element | None = None, patience: float = PATIENCE_SECONDS) -> Answer:
        """A command: POST with the query that names user and device."""
        query = urlencode({"Cmd": name, "User": self.user, "DeviceId": self.device, "DeviceType": self.kind})
        return self.request("POST", f"{self.path}?{query}", encode(document) if document else b"", patience)

    def request(self, method: str, target: str, body: bytes = b"", patience: float = PATIENCE_SECONDS) -> Answer:
        """Any request with this device's headers. Raises OSError and `http.client.HTTPException`."""
        headers = {
            "Authorization": "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode(),
            "User-Agent": self.agent,
            "MS-ASProtocolVersion": self.version,
        }
        headers |= {"Content-Type": WBXML} if body else {}
        headers |= {"Host": self.name} if self.name else {}
        headers |= self.headers
        if self.context is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=patience)
        else:
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=patience, context=self.context)
        try:
            sent = {key: value for key, value in headers.items() if value}
            connection.request(method, target, body or None, sent)
            found = connection.getresponse()
            return Answer(found.status, found.reason, found.headers, found.read())
        finally:
            connection.close()
