"""`Pop3Back` against real servers: every way to sign in, alone, without a front door around it."""

from __future__ import annotations

import socket
import ssl

import pytest
from doors import MASTER, Servers

from gatepost.lab.servers.cyrus import Cyrus
from gatepost.lab.servers.dovecot import Dovecot
from gatepost.wire.events import BackEvent, BackSignIn, ClientFacts, Failed, FailureKind, Send, SignedIn, StartTls
from gatepost.wire.pop3_back import Pop3Back
from gatepost.wire.proxy_protocol import encode_v2

SECONDS = 15
CLIENT = ClientFacts("203.0.113.8", 4712, "198.51.100.1", 995, tls=True, session="pop3-back-1")


def sign_in(server: Dovecot | Cyrus, how: BackSignIn, *, port: int = 0, first: bytes = b"") -> SignedIn | Failed:
    """What comes of signing in at `server`; where that succeeds, the session answers STAT too."""
    back = Pop3Back(how)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = socket.create_connection((server.address, port or server.ports.pop3), timeout=SECONDS)
    try:
        connection.sendall(first)
        events: list[BackEvent] = back.connected()
        while True:
            for event in events:
                if isinstance(event, Send):
                    connection.sendall(event.data)
                elif isinstance(event, Failed):
                    return event
                elif isinstance(event, SignedIn):
                    connection.sendall(b"STAT\r\n")
                    assert connection.recv(1000).startswith(b"+OK ")
                    return event
            if events and isinstance(events[-1], StartTls):
                connection = context.wrap_socket(connection)
                events = back.tls_started()
            else:
                data = connection.recv(4096)
                assert data, back.state_name
                events = back.receive(data)
    finally:
        connection.close()


@pytest.mark.parametrize("starttls", [False, True])
@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("long", [False, True])
def test_dovecot_takes_every_form(servers: Servers, starttls: bool, pipelined: bool, long: bool) -> None:
    """In clear and by STLS, one command at a time and all at once, by USER and PASS and by AUTH in challenge form."""
    dovecot = servers.dovecot()
    user = f"alice@{'x' * 300}.com" if long else "alice"
    how = BackSignIn("LOGIN", user, "apw", starttls=starttls, pipelined=pipelined, client=CLIENT)
    assert isinstance(sign_in(dovecot, how), SignedIn)
    assert dovecot.sign_in_with(user="alice", rip="203.0.113.8", session="pop3-back-1")


def test_dovecot_takes_a_master_user_in_both_forms(servers: Servers) -> None:
    dovecot = servers.dovecot()
    by_name = BackSignIn("LOGIN", f"bob*{MASTER.name}", MASTER.password)
    by_authorization = BackSignIn("PLAIN", MASTER.name, MASTER.password, authorization_id="bob")
    for how in (by_name, by_authorization):
        assert isinstance(sign_in(dovecot, how), SignedIn)
        assert dovecot.sign_in_with(user="bob")


def test_dovecot_takes_our_proxy_header(servers: Servers) -> None:
    dovecot = servers.dovecot()
    for source, destination in (("203.0.113.9", "198.51.100.1"), ("2001:db8::9", "2001:db8::1")):
        header = encode_v2((source, 4711), (destination, 995), tls=True, tls_version="TLSv1.3", unique_id=b"s-1")
        how = BackSignIn("LOGIN", "alice", "apw")
        assert isinstance(sign_in(dovecot, how, port=dovecot.ports.pop3_proxy, first=header), SignedIn)
        assert dovecot.sign_in_with(rip=source, rport="4711", lip=destination)


def test_cyrus_takes_a_user_and_an_authorization_identity(servers: Servers) -> None:
    """It offers no XCLIENT; that costs nothing but a note."""
    cyrus = servers.cyrus()
    own = BackSignIn("LOGIN", "carol", "cpw", starttls=True, client=CLIENT)
    master = BackSignIn("PLAIN", MASTER.name, MASTER.password, authorization_id="carol", starttls=True)
    assert isinstance(sign_in(cyrus, own), SignedIn)
    assert isinstance(sign_in(cyrus, master), SignedIn)


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_refusal_is_a_refusal(servers: Servers, pipelined: bool) -> None:
    failed = sign_in(servers.dovecot(), BackSignIn("LOGIN", "alice", "wr0ng", pipelined=pipelined))
    assert isinstance(failed, Failed)
    assert failed.kind is FailureKind.REFUSED
    assert "wr0ng" not in failed.text
