"""What servers are told of an epoch, and how they say that a database is not theirs, in each protocol's words."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote

import pytest

from gatepost.wire.events import BackSignIn, ClientFacts, Failed, FailureKind, Send
from gatepost.wire.fencing import database_word, http_lines
from gatepost.wire.http_fields import DROPPED, request_rules
from gatepost.wire.imap_back import ImapBack
from gatepost.wire.pop3_back import Pop3Back

CLIENT = ClientFacts("192.0.2.7", 4711, database="Mailbox Database 01", epoch=12)
SIGN_IN = BackSignIn("LOGIN", "alice", password="secret", client=CLIENT)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("DB01", "DB01"),
        ("Mailbox Database 01", "Mailbox%20Database%2001"),
        ("Büro/1", "B%C3%BCro%2F1"),
        ('"\r\n', "%22%0D%0A"),
    ],
)
def test_a_name_is_one_word_that_can_be_read_back(name: str, word: str) -> None:
    assert database_word(name) == word
    assert unquote(word) == name


def imap(*lines: bytes) -> tuple[ImapBack, list[object]]:
    """A dialogue; the machine's last events."""
    back = ImapBack(SIGN_IN)
    events: list[object] = []
    for line in lines:
        events = list(back.receive(line + b"\r\n"))
    return back, events


def failed(events: list[object]) -> Failed:
    (event,) = events
    assert isinstance(event, Failed)
    return event


def test_imap_says_it_by_id_before_the_sign_in() -> None:
    _, events = imap(b"* OK [CAPABILITY IMAP4rev1 ID] ready")
    (sent,) = events
    assert isinstance(sent, Send)
    assert sent.data == (
        b'gate1 ID ("x-originating-ip" "192.0.2.7" "x-originating-port" "4711" "x-proxy-ttl" "4"'
        b' "x-gatepost-database" "Mailbox%20Database%2001" "x-gatepost-epoch" "12")\r\n'
    )


@pytest.mark.parametrize(
    "dialogue",
    [
        [b"* BYE [X-NOT-MINE] I am passive"],
        [b"* BYE [REFERRAL imap://mbx-02/] gone"],
        [b"* OK [CAPABILITY IMAP4rev1 ID] ready", b"gate1 NO [X-NOT-MINE] epoch 12 is over"],
        [b"* OK [CAPABILITY IMAP4rev1 ID] ready", b"gate1 OK", b"gate2 NO [X-Not-Mine] not here"],
        [b"* OK [CAPABILITY IMAP4rev1 ID] ready", b"gate1 OK", b"gate2 NO [REFERRAL imap://x/] Use another server"],
        [b"* OK [CAPABILITY IMAP4rev1 ID] ready", b"gate1 OK", b"* BYE [X-NOT-MINE] not here"],
    ],
    ids=["greeting", "referral in the greeting", "to ID", "to the sign-in", "referral", "in the middle"],
)
def test_imap_servers_say_not_mine(dialogue: list[bytes]) -> None:
    _, events = imap(*dialogue)
    assert failed(events).kind is FailureKind.NOT_MINE


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"gate2 NO X-NOT-MINE in the text only", FailureKind.REFUSED),
        (b"gate2 NO [UNAVAILABLE] X-NOT-MINE", FailureKind.UNAVAILABLE),
        (b"* BYE X-NOT-MINE", FailureKind.UNAVAILABLE),
    ],
)
def test_imap_only_the_code_counts(line: bytes, kind: FailureKind) -> None:
    _, events = imap(b"* OK [CAPABILITY IMAP4rev1 ID] ready", b"gate1 OK", line)
    assert failed(events).kind is kind


# --- POP3


def xclient(greeting: bytes, client: ClientFacts = CLIENT) -> bytes:
    """What the machine says first to a server with this greeting."""
    back = Pop3Back(replace(SIGN_IN, client=client))
    back.connected()
    (sent,) = back.receive(greeting + b"\r\n")
    assert isinstance(sent, Send)
    return sent.data


def test_pop3_says_it_only_where_it_was_announced() -> None:
    """Dovecot announces `[XCLIENT]` and refuses what it does not know."""
    usual = b"XCLIENT ADDR=192.0.2.7 PORT=4711 TTL=4"
    assert xclient(b"+OK [XCLIENT] Dovecot ready.") == usual + b"\r\n"
    assert xclient(b"+OK [XCLIENT ADDR PORT EPOCH] ready") == usual + b"\r\n"
    told = usual + b" DATABASE=Mailbox%20Database%2001 EPOCH=12\r\n"
    assert xclient(b"+OK [XCLIENT ADDR PORT DATABASE EPOCH] ready") == told
    assert xclient(b"+OK [XCLIENT DATABASE EPOCH]", replace(CLIENT, database="")) == usual + b"\r\n"
    assert xclient(b"+OK ready [XCLIENT DATABASE EPOCH]") == b"USER alice\r\n"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([b"-ERR [SYS/TEMP] X-NOT-MINE passive"], FailureKind.NOT_MINE),
        ([b"+OK [XCLIENT]", b"-ERR [SYS/TEMP] X-NOT-MINE epoch 12 is over"], FailureKind.NOT_MINE),
        ([b"+OK ready", b"+OK", b"-ERR [SYS/TEMP] x-not-mine"], FailureKind.NOT_MINE),
        ([b"+OK ready", b"+OK", b"-ERR [SYS/TEMP] this is X-NOT-MINE"], FailureKind.UNAVAILABLE),
        ([b"+OK ready", b"+OK", b"-ERR [AUTH] X-NOT-MINE"], FailureKind.REFUSED),
        ([b"-ERR [SYS/TEMP] busy"], FailureKind.UNAVAILABLE),
    ],
    ids=["greeting", "to XCLIENT", "to PASS", "elsewhere in the text", "another code", "busy"],
)
def test_pop3_servers_say_not_mine(lines: list[bytes], kind: FailureKind) -> None:
    back = Pop3Back(SIGN_IN)
    events: list[object] = list(back.connected())
    for line in lines:
        events = list(back.receive(line + b"\r\n"))
    assert failed(events).kind is kind


# --- HTTP


def test_http_lines() -> None:
    assert http_lines("Mailbox Database 01", 12) == (
        b"X-Gatepost-Database: Mailbox%20Database%2001\r\nX-Gatepost-Epoch: 12\r\n"
    )


@pytest.mark.parametrize("name", [b"X-Gatepost-Epoch", b"x-gatepost-database", b"X_Gatepost_Epoch"])
@pytest.mark.parametrize("peer", [True, False])
def test_no_client_and_no_peer_says_it(name: bytes, peer: bool) -> None:
    """A server believes them."""
    assert request_rules([], peer=peer).kind(name) == DROPPED
