"""How many proxies may still hand a session on (SPEC C11): said and read in IMAP and POP3 as Dovecot does."""

from __future__ import annotations

import pytest
from imap_play import front, play

from gatepost.wire.events import FIRST_TTL, BackSignIn, ClientFacts, Send
from gatepost.wire.imap_back import ImapBack
from gatepost.wire.imap_id import origin_id_command, proxy_ttl
from gatepost.wire.pop3_back import Pop3Back, xclient_items
from gatepost.wire.pop3_front import Pop3Front

TO_FRONT_END = BackSignIn("LOGIN", "alice", password="secret", ttl=3)


def pop3_front() -> Pop3Front:
    return Pop3Front(tls=True, starttls=False, clear_passwords=False, bearer=False, bad_commands=9, sign_in_attempts=3)


def test_a_session_begins_with_five_and_a_server_is_told_of_four() -> None:
    """As Dovecot counts, whose servers may be proxies themselves."""
    assert FIRST_TTL == 5
    facts = ClientFacts("192.0.2.7", 4000)
    assert b'"x-proxy-ttl" "4"' in origin_id_command(facts)
    assert xclient_items(facts)[-1] == b"TTL=4"
    assert (front().ttl, pop3_front().ttl) == (5, 5)


def test_an_imap_front_end_is_told_by_id_without_a_word_on_the_client() -> None:
    """It would not believe that anyway."""
    back = ImapBack(TO_FRONT_END)
    assert back.receive(b"* OK ready\r\n") == [Send(b'gate1 ID ("x-proxy-ttl" "3")\r\n')]
    assert back.receive(b"* ID NIL\r\ngate1 OK noted\r\n") == [Send(b'gate2 LOGIN "alice" "secret"\r\n')]


def test_a_pop3_front_end_is_told_by_xclient_though_it_does_not_offer_it() -> None:
    """One that is no Gatepost refuses, and the sign-in goes on."""
    back = Pop3Back(TO_FRONT_END)
    back.connected()
    assert back.receive(b"+OK ready\r\n") == [Send(b"XCLIENT TTL=3\r\n")]
    assert back.receive(b"-ERR Unknown command.\r\n") == [Send(b"USER alice\r\n")]
    assert back.notes == ["XCLIENT refused: Unknown command."]


def test_what_is_said_is_read_at_the_other_end() -> None:
    """The two machines of each protocol understand each other."""
    imap = front()
    said = ImapBack(TO_FRONT_END).receive(b"* OK ready\r\n")[0]
    assert isinstance(said, Send)
    play(imap, [said.data])
    assert imap.ttl == 3
    pop3 = pop3_front()
    assert pop3.receive(b"XCLIENT TTL=3\r\n") == [Send(b"+OK Noted.\r\n")]
    assert pop3.ttl == 3


@pytest.mark.parametrize(
    ("value", "ttl"), [("0", 0), ("1", 1), ("5", 5), ("99", 5), ("-1", 5), ("", 5), ("٣", 5), ("1" * 400, 5), ("x", 5)]
)
def test_a_client_can_only_shorten_the_way(value: str, ttl: int) -> None:
    """So anybody may say it, and no trust is needed."""
    assert proxy_ttl((("name", "x"), ("X-Proxy-TTL", value))) == ttl


def test_xclient_says_nothing_but_that_and_raises_nothing() -> None:
    """An address from a stranger is refused as before (field case 89)."""
    pop3 = pop3_front()
    for line in (
        b"XCLIENT ADDR=1.2.3.4",
        b"XCLIENT TTL=2 ADDR=1.2.3.4",
        b"XCLIENT TTL=",
        b"XCLIENT",
        b"XCLIENT TTL=9999",
    ):
        answer = pop3.receive(line + b"\r\n")[0]
        assert isinstance(answer, Send)
        assert answer.data.startswith(b"-ERR ")
    assert pop3.ttl == FIRST_TTL
    pop3.receive(b"XCLIENT TTL=2\r\nXCLIENT TTL=4\r\n")
    assert pop3.ttl == 2


def test_pop3_does_not_offer_it() -> None:
    """Offered, it would say to a proxy that its word on the client counts."""
    pop3 = pop3_front()
    said = pop3.receive(b"CAPA\r\n")[0]
    assert isinstance(said, Send)
    assert b"XCLIENT" not in pop3.greeting() + said.data
