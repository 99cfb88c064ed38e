"""A real ActiveSync and webmail server behind the front door: SOGo, on the mailboxes of a Dovecot."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from activesync import Phone
from browser import Browsers
from doors import FrontDoor, Servers, add_sogo, start

from gatepost.lab.servers.gatepost import LabUser

HEARTBEAT = 10
"""Seconds: two of SOGo's looks into the mailbox."""
LONG_HEARTBEAT = 60


@pytest.fixture(scope="module")
def door(servers: Servers) -> Iterator[FrontDoor]:
    """CAS-01 before MBX-04, whose web part is SOGo."""
    users = [LabUser("alice@contoso.com", "apw", database="DB04")]
    with start(servers, lambda _, organization: add_sogo(servers, organization), users) as made:
        yield made


@pytest.fixture
def phone(door: FrontDoor, request: pytest.FixtureRequest) -> Phone:
    """A phone of alice, new for each test."""
    address, port = door.addresses["https"]
    device = f"d{abs(hash(request.node.name)) % 10**9}"
    return Phone(address, port, "alice@contoso.com", "apw", door.client_context, device, name="mail.contoso.com")


def test_a_phone_asks_for_versions(phone: Phone) -> None:
    """OPTIONS comes from SOGo as it is."""
    answer = phone.options()
    assert (answer.status, answer.headers["X-Sogo-Server"]) == (200, "MBX-04")
    assert answer.headers["MS-ASProtocolVersions"] == "2.5,12.0,12.1,14.0,14.1"


def test_a_phone_gets_its_folders_and_mail(phone: Phone) -> None:
    """FolderSync and Sync pass in both directions; the mail is Dovecot's."""
    folders = phone.folder_sync().folders()
    assert {"INBOX", "Personal Calendar", "Personal Address Book"} <= folders.keys()
    first = phone.sync(folders["INBOX"])
    assert first.element("AirSync:Status") == "1"
    subjects = [e.content for e in phone.sync(folders["INBOX"]).root.all("Email:Subject")]
    assert "alice on MBX-04" in subjects


def test_a_wrong_password_is_refused_by_the_front_door(phone: Phone) -> None:
    """And SOGo does not see it."""
    phone.password = "wrong"
    answer = phone.options()
    assert answer.status == 401
    assert "X-Sogo-Server" not in answer.headers


def test_a_ping_is_held_for_its_heartbeat(phone: Phone) -> None:
    """A quiet request of many seconds is not cut."""
    folder = phone.folder_sync().folders()["Sent"]
    phone.sync(folder)
    began = time.monotonic()
    answer = phone.ping(folder, HEARTBEAT)
    assert answer.element("Ping:Status") == "1"
    assert time.monotonic() - began >= HEARTBEAT - 1


def test_new_mail_ends_a_ping(phone: Phone, servers: Servers) -> None:
    """Push: the answer comes when mail does, long before the heartbeat ends, and Sync brings it."""
    folder = phone.folder_sync().folders()["INBOX"]
    phone.sync(folder)
    phone.sync(folder)
    subject = f"pushed to {phone.device}"
    deliver = threading.Timer(
        1.0, servers.dovecot("MBX-04").deliver, ("alice", f"Subject: {subject}\r\n\r\nNew.\r\n".encode(), phone.device)
    )
    deliver.start()
    began = time.monotonic()
    answer = phone.ping(folder, LONG_HEARTBEAT)
    deliver.join()
    assert answer.element("Ping:Status") == "2"
    assert time.monotonic() - began < LONG_HEARTBEAT / 2
    assert subject in [e.content for e in phone.sync(folder).root.all("Email:Subject")]


def test_webmail_in_a_browser(door: FrontDoor, browser: Browsers) -> None:
    """Signed in at the front door alone, the user sees his inbox."""
    address, port = door.addresses["https"]
    context = browser.context({"mail.contoso.com": f"{address}:{port}"})
    context.set_extra_http_headers({"Authorization": "Basic YWxpY2VAY29udG9zby5jb206YXB3"})
    page = context.new_page()
    page.goto("https://mail.contoso.com/SOGo/")
    page.get_by_text("alice on MBX-04").first.wait_for()
    assert page.url.startswith("https://mail.contoso.com/SOGo/so/alice/Mail/view")
