"""The lab's web part of a mailbox server as a process: pages and facts, a phone, a dead service."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time

import pytest
from activesync import Phone
from doors import Servers

from gatepost.lab.servers.mailbox_web import MailboxWeb


@pytest.fixture(scope="module")
def old(servers: Servers) -> MailboxWeb:
    """A server of 2003, without TLS as they were."""
    return servers.mailbox_web("EX03-01", "2003", tls=False)


@pytest.fixture(scope="module")
def new(servers: Servers) -> MailboxWeb:
    """A server of 2010."""
    return servers.mailbox_web("EX10-01", "2010")


@pytest.fixture(scope="module")
def trust(servers: Servers) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(servers.authority.certificate))


def get(server: MailboxWeb, path: str, trust: ssl.SSLContext | None = None, **headers: str) -> tuple[int, str]:
    """Status and text; patience of a second."""
    if trust is None:
        connection = http.client.HTTPConnection(server.address, server.port, timeout=1)
    else:
        connection = http.client.HTTPSConnection(server.address, server.port, timeout=1, context=trust)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        assert answer.headers["X-Lab-Server"] in ("EX03-01", "EX10-01")
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_pages_name_user_server_and_path(old: MailboxWeb) -> None:
    """The user by header or else by Basic authentication, whose password is not shown."""
    status, page = get(old, "/exchange/alice/Inbox/?Cmd=contents", X_Remote_User="alice@contoso.com")
    assert status == 200
    assert "Mailbox of alice@contoso.com on EX03-01" in page
    assert "/exchange/alice/Inbox/?Cmd=contents" in page
    basic = "Basic Ym9iOnNlY3JldA=="
    _, text = get(old, "/public/", Authorization=basic, Accept="application/json")
    facts = json.loads(text)
    assert (facts["user"], facts["mailbox_server"], facts["version"]) == ("bob", "EX03-01", "2003")
    assert "secret" not in text
    assert get(old, "/owa/")[0] == 404


def test_a_phone_at_each_version(old: MailboxWeb, new: MailboxWeb, trust: ssl.SSLContext) -> None:
    """OPTIONS and FolderSync."""
    phones = {
        "2.5": Phone(old.address, old.port, "alice", "apw"),
        "14.1": Phone(new.address, new.port, "alice", "apw", trust),
    }
    for newest, phone in phones.items():
        assert phone.options().headers["MS-ASProtocolVersions"].endswith(newest)
        synced = phone.folder_sync()
        assert synced.folders() == {f"Inbox on {synced.headers['X-Lab-Server']}": "1"}


def test_a_ping_is_held(new: MailboxWeb, trust: ssl.SSLContext) -> None:
    """For its heartbeat."""
    began = time.monotonic()
    answer = Phone(new.address, new.port, "alice", "apw", trust).ping("1", heartbeat=1)
    assert answer.element("Ping:Status") == "1"
    assert 0.9 < time.monotonic() - began < 10


def test_a_dead_service_accepts_connections(servers: Servers, trust: ssl.SSLContext) -> None:
    """It hangs, closes, fails, and lives again; the request that hung is answered then."""
    server = servers.mailbox_web("EX10-02", "2010")
    phone = Phone(server.address, server.port, "alice", "apw", trust)
    server.go_down()
    with pytest.raises(TimeoutError):
        phone.request("OPTIONS", phone.path, patience=0.5)
    server.go_down("close")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError, ssl.SSLError)):
        phone.options()
    server.go_down("error")
    assert phone.options().status == 500
    server.go_down()
    back = threading.Timer(0.5, server.come_back)
    back.start()
    assert phone.options().status == 200
    back.join()
