"""What the lab's mailbox servers of each version answer."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from gatepost.lab.mailbox_web import RELEASES, Answer, Request, answer
from gatepost.organization.model import Version

MESSAGES = "{http://schemas.microsoft.com/exchange/services/2006/messages}"
PHONES = "/Microsoft-Server-ActiveSync"


def ask(version: str, method: str, path: str, body: bytes = b"") -> Answer | None:
    return answer("MBX-01", version, Request(method, path, "user1@contoso.com", body))


@pytest.mark.parametrize(
    ("version", "there", "missing"),
    [
        (
            "2003",
            ["/exchange/user1/Inbox", "/public", "/exchweb/x.gif"],
            ["/owa", "/EWS/Exchange.asmx", "/ecp", "/OAB"],
        ),
        ("2007", ["/owa/", "/exchange", "/public"], ["/ecp/", "/mapi"]),
        ("2010", ["/owa/?ae=Folder", "/ecp/", "/exchange"], ["/mapi", "/dav"]),
        ("modern", ["/owa", "/mapi", "/dav/x", "/anything"], []),
    ],
)
def test_each_version_has_its_paths(version: str, there: list[str], missing: list[str]) -> None:
    """O3: what setting up a server of each version makes."""
    assert [ask(version, "GET", path) for path in there] == [None] * len(there)
    for path in missing:
        found = ask(version, "GET", path)
        assert found is not None
        assert (found.status, path) == (404, path)


@pytest.mark.parametrize(
    ("version", "newest"), [("2003", "2.5"), ("2007", "12.1"), ("2010", "14.1"), ("modern", "16.1")]
)
def test_options_tell_a_phone_the_versions(version: str, newest: str) -> None:
    """Each server's own, newest last."""
    found = ask(version, "OPTIONS", PHONES)
    assert found is not None
    assert found.headers["MS-ASProtocolVersions"].split(",")[-1] == newest
    assert "FolderSync" in found.headers["MS-ASProtocolCommands"].split(",")


def test_a_ping_is_held_for_the_heartbeat_it_asks_for() -> None:
    """Its WBXML says the seconds; without, a default."""
    body = b"\x03\x01\x6a\0\0\x0d\x45\x48\x03480\0\x01\x01"
    pinged = ask("2010", "POST", f"{PHONES}?Cmd=Ping&User=user1", body)
    assert pinged is not None
    assert (pinged.hold, pinged.kind) == (480, "application/vnd.ms-sync.wbxml")
    again = ask("2010", "POST", f"{PHONES}?Cmd=Ping&User=user1")
    assert again is not None
    assert again.hold == 60
    synced = ask("2010", "POST", f"{PHONES}?Cmd=Sync&User=user1", body)
    assert synced is not None
    assert (synced.status, synced.hold) == (200, 0)


def test_a_folder_sync_names_the_server() -> None:
    """In the folder's name."""
    found = ask("2007", "POST", f"{PHONES}?Cmd=FolderSync")
    assert found is not None
    assert b"\x03Inbox on MBX-01\0" in found.body


@pytest.mark.parametrize(
    ("request_name", "response", "code"),
    [
        ("GetFolder", "GetFolderResponse", "ResponseMessages/{0}GetFolderResponseMessage"),
        ("GetUserAvailabilityRequest", "GetUserAvailabilityResponse", "FreeBusyResponseArray/*/{0}ResponseMessage"),
    ],
)
def test_web_services_answer_in_their_form(request_name: str, response: str, code: str) -> None:
    """SOAP whose text names server and user, with the version in its header."""
    body = f"<Envelope><Body><{request_name}/></Body></Envelope>".encode()
    found = ask("2010", "POST", "/EWS/Exchange.asmx", body)
    assert found is not None
    root = ET.fromstring(found.body)
    said = root.find(f".//{MESSAGES}{response}/{MESSAGES}{code.format(MESSAGES)}")
    assert said is not None
    assert said.findtext(f"{MESSAGES}ResponseCode") == "NoError"
    assert said.findtext(f"{MESSAGES}MessageText") == "MBX-01 answered user1@contoso.com"
    assert 'MajorVersion="14" MinorVersion="1"' in found.body.decode()


def test_an_unknown_request_is_a_fault() -> None:
    """With status 500, as SOAP wants it."""
    found = ask("2007", "POST", "/EWS/Exchange.asmx", b"<CreateItem/>")
    assert found is not None
    assert found.status == 500
    assert ET.fromstring(found.body).find(".//faultcode") is not None


def test_names_are_escaped() -> None:
    """A user's name is not markup."""
    found = answer("MBX-01", "2010", Request("POST", "/AS", "<b>&", b"<GetFolder/>"))
    assert found is not None
    assert ET.fromstring(found.body).findtext(f".//{MESSAGES}MessageText") == "MBX-01 answered <b>&"


def test_every_version_has_answers() -> None:
    """Those of the organization's model."""
    assert set(RELEASES) == {version.word for version in Version}
