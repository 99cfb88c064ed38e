"""The real servers of the tests start, let the right people in, and are gone when stopped.

These are checks of the tests' own ground: when one fails, look here before looking at Gatepost.
"""

from __future__ import annotations

import imaplib
import poplib
import ssl
import time
import urllib.request
from base64 import b64encode

import pytest
from doors import Servers

from gatepost.lab.servers.process import ServerProcess, accepts


def test_dovecot_lets_the_master_user_in_as_a_user(servers: Servers) -> None:
    """`alice@contoso.com*gatepost` opens alice's mailbox, whose one message names the server."""
    server = servers.dovecot("MBX-01")
    with imaplib.IMAP4(server.address, server.ports.imap, timeout=10) as client:
        client.login("alice@contoso.com*gatepost", "mpw")
        assert client.select("INBOX", readonly=True)[1] == [b"1"]
        _, found = client.fetch("1", "(BODY[HEADER.FIELDS (SUBJECT)])")
    assert b"alice on MBX-01" in repr(found).encode()
    assert server.sign_in_with(user="alice")


def test_dovecot_refuses_a_wrong_password_at_once(servers: Servers) -> None:
    """No delay is configured (Dovecot's own is 2 s and grows): tests would pay for it."""
    server = servers.dovecot("MBX-01")
    took = []
    for _ in range(3):
        client = poplib.POP3(server.address, server.ports.pop3, timeout=10)
        client.user("alice")
        begun = time.monotonic()
        with pytest.raises(poplib.error_proto, match="AUTH"):
            client.pass_("nonsense")
        took.append(time.monotonic() - begun)
        client.close()
    assert min(took) < 1.5


def test_cyrus_lets_the_master_user_in_by_authorization_identity(servers: Servers) -> None:
    """SASL PLAIN with two names, over implicit TLS with a certificate that verifies."""
    server = servers.cyrus()
    context = ssl.create_default_context(cafile=str(servers.authority.certificate))
    with imaplib.IMAP4_SSL(server.address, server.ports.imaps, ssl_context=context, timeout=10) as client:
        client.authenticate("PLAIN", lambda _: b"carol\0gatepost\0mpw")
        assert client.select("INBOX")[0] == "OK"


def test_nginx_shows_what_reached_it(servers: Servers) -> None:
    """Its page repeats path and headers."""
    server = servers.nginx("WEB-00")
    context = ssl.create_default_context(cafile=str(servers.authority.certificate))
    request = urllib.request.Request(f"https://{server.address}:{server.port}/owa?x=1", headers={"X-Remote-User": "al"})
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        text = answer.read().decode()
    assert "path: /owa?x=1\n" in text
    assert "x-remote-user: al\n" in text


def test_radicale_asks_for_a_password(servers: Servers) -> None:
    """The right one gives the user's home."""
    server = servers.radicale()
    context = ssl.create_default_context(cafile=str(servers.authority.certificate))
    header = "Basic " + b64encode(b"alice:apw").decode()
    url = f"https://{server.address}:{server.port}/alice/"
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(url, context=context, timeout=10)
    refused.value.close()
    request = urllib.request.Request(url, method="PROPFIND", headers={"Authorization": header, "Depth": "0"})
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        assert answer.status == 207


def test_a_stopped_server_is_gone(servers: Servers) -> None:
    """After `stop` nobody accepts on its ports, and it can be started again."""
    server = servers.new_dovecot("MBX-STOP", servers.address())
    with server:
        assert all(accepts(address) for address in server.ready)
    assert isinstance(server, ServerProcess)
    assert not server.running
    assert not any(accepts(address) for address in server.ready)
    with server:
        assert accepts(server.ready[0])
