"""The shared front doors of the tests lead where their description says."""

from __future__ import annotations

import imaplib
import poplib

from doors import FrontDoor


def subject(door: FrontDoor, user: str, password: str) -> bytes:
    """The subject of the user's first message, by IMAP with TLS."""
    with imaplib.IMAP4_SSL(*door.addresses["imaps"], ssl_context=door.client_context, timeout=10) as client:
        client.login(user, password)
        client.select("INBOX", readonly=True)
        _, found = client.fetch("1", "(BODY[HEADER.FIELDS (SUBJECT)])")
        return found[0][1] if isinstance(found[0], tuple) else b""


def test_each_user_reaches_their_own_server(front_door: FrontDoor) -> None:
    """One server is reached in clear, the other by TLS after a PROXY header."""
    assert b"alice on MBX-01" in subject(front_door, "alice@contoso.com", "apw")
    assert b"bob on MBX-02" in subject(front_door, "bob", "bpw")
    for user, server in (("alice", "MBX-01"), ("bob", "MBX-02")):
        front_door.process.wait_for_event("imap.session", user=f"{user}@contoso.com", server=server)


def test_a_cyrus_is_reached_as_well(cyrus_door: FrontDoor) -> None:
    """STARTTLS and an authorization identity, both protocols."""
    with imaplib.IMAP4_SSL(*cyrus_door.addresses["imaps"], ssl_context=cyrus_door.client_context, timeout=10) as client:
        client.login("carol@contoso.com", "cpw")
        assert client.select("INBOX")[0] == "OK"
    client = poplib.POP3_SSL(*cyrus_door.addresses["pop3s"], context=cyrus_door.client_context, timeout=10)
    client.user("carol@contoso.com")
    assert client.pass_("cpw").startswith(b"+OK")
    client.quit()
