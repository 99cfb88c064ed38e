"""The submission dialogue with a user's own server: what is said, what is believed, what is refused."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.events import BackEvent, BackSignIn, ClientFacts, Failed, FailureKind, Send, SignedIn, StartTls
from gatepost.wire.submission_back import MAX_COMMAND, SubmissionBack, xclient_items

CLIENT = ClientFacts("203.0.113.9", 4711, "192.0.2.1", 587, tls=True, session="1a2b-3", ttl=4)
BASE = BackSignIn("LOGIN", "alice", "secret-apw", helo="laptop.fabrikam.com", extensions=("SIZE", "PIPELINING"))
GREETING = b"220 mbx-01 ready\r\n"
POSTFIX_WORDS = "NAME ADDR PROTO HELO REVERSE_NAME PORT LOGIN DESTADDR DESTPORT"
DOVECOT_WORDS = "ADDR PORT PROTO HELO LOGIN SESSION TTL TIMEOUT FORWARD"
EHLO = b"EHLO laptop.fabrikam.com\r\n"
PLAIN = b"AUTH PLAIN " + base64.b64encode(b"\0alice\0secret-apw") + b"\r\n"
IN = b"235 2.7.0 in\r\n"


def offer(*lines: str, xclient: str = "", auth: str = "PLAIN LOGIN") -> bytes:
    """An answer to EHLO."""
    words = ["mbx-01", "SIZE 1000", "PIPELINING", f"AUTH {auth}", *lines, *([f"XCLIENT {xclient}"] if xclient else [])]
    return "".join(f"250{'-' if n < len(words) - 1 else ' '}{word}\r\n" for n, word in enumerate(words)).encode()


def play(sign_in: BackSignIn, *answers: bytes) -> tuple[list[bytes], list[BackEvent], SubmissionBack]:
    """What is sent after each answer, and the other events."""
    machine = SubmissionBack(sign_in)
    sent, others = [], list(machine.connected())
    for answer in answers:
        events = machine.tls_started() if answer == b"TLS" else machine.receive(answer)
        sent.append(b"".join(event.data for event in events if isinstance(event, Send)))
        others += [event for event in events if not isinstance(event, Send)]
    return sent, others, machine


def test_a_sign_in_with_the_users_own_password() -> None:
    """EHLO with the client's name, AUTH PLAIN, EHLO once more: then the server stands where the client believes it."""
    sent, others, machine = play(BASE, GREETING, offer(), IN, offer())
    assert sent == [EHLO, PLAIN, EHLO, b""]
    assert others == [SignedIn(b"")]
    assert machine.notes == []


def test_by_a_master_user() -> None:
    """As authorization identity, and with both names in one."""
    authzid = replace(BASE, mechanism="PLAIN", user="gatepost", password="mpw", authorization_id="alice")
    sent, _, _ = play(authzid, GREETING, offer())
    assert sent[1] == b"AUTH PLAIN " + base64.b64encode(b"alice\0gatepost\0mpw") + b"\r\n"
    sent, _, _ = play(replace(BASE, user="alice*gatepost", password="mpw"), GREETING, offer())
    assert sent[1] == b"AUTH PLAIN " + base64.b64encode(b"\0alice*gatepost\0mpw") + b"\r\n"


def test_a_server_with_login_only() -> None:
    """Its two questions are answered in turn; `AUTH=LOGIN` is the old spelling."""
    old = b"250-mbx-01\r\n250-SIZE\r\n250-PIPELINING\r\n250 AUTH=LOGIN\r\n"
    sent, others, _ = play(BASE, GREETING, old, b"334 VXNlcm5hbWU6\r\n", b"334 UGFzc3dvcmQ6\r\n", IN, old)
    assert sent[1:4] == [
        b"AUTH LOGIN\r\n",
        base64.b64encode(b"alice") + b"\r\n",
        base64.b64encode(b"secret-apw") + b"\r\n",
    ]
    assert others == [SignedIn(b"")]


def test_long_credentials_take_the_challenge() -> None:
    """Field case 53: a line keeps to 512 octets."""
    sent, others, _ = play(replace(BASE, password="p" * 500), GREETING, offer(), b"334 \r\n", IN, offer())
    assert sent[1] == b"AUTH PLAIN\r\n"
    assert sent[2] == base64.b64encode(b"\0alice\0" + b"p" * 500) + b"\r\n"
    assert others == [SignedIn(b"")]


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "OAUTHBEARER"])
def test_bearer_tokens(mechanism: str) -> None:
    """Passed on; an error challenge is answered, and what it says is in the log."""
    sign_in = replace(BASE, mechanism=mechanism, password="", token="t0ken")
    _, others, _ = play(sign_in, GREETING, offer(auth=mechanism), IN, offer())
    assert others == [SignedIn(b"")]
    error = b"334 " + base64.b64encode(b'{"status":"401"}') + b"\r\n"
    sent, others, _ = play(sign_in, GREETING, offer(auth=mechanism), error, b"535 5.7.8 no\r\n")
    assert sent[2] == (b"AQ==\r\n" if mechanism == "OAUTHBEARER" else b"\r\n")
    assert others == [Failed(FailureKind.REFUSED, 'AUTH: 535 5.7.8 no ({"status":"401"})')]


def test_starttls_is_required_when_it_is_asked_for() -> None:
    """Also where it is not offered: who strips the offer gains nothing (field cases 80 and 81)."""
    sign_in = replace(BASE, starttls=True)
    sent, others, _ = play(sign_in, GREETING, offer(), b"220 go\r\n", b"TLS", offer(), IN, offer())
    assert sent == [EHLO, b"STARTTLS\r\n", b"", EHLO, PLAIN, EHLO, b""]
    assert others == [StartTls(), SignedIn(b"")]
    _, others, _ = play(sign_in, GREETING, offer(), b"454 4.7.0 no TLS\r\n")
    assert others == [Failed(FailureKind.PROTOCOL, "STARTTLS: TLS is required but refused: 454 4.7.0 no TLS")]
    _, others, _ = play(sign_in, GREETING, offer(), b"220 go\r\n250-mbx-01\r\n250 AUTH PLAIN\r\n")
    assert others == [Failed(FailureKind.PROTOCOL, "TLS: bytes in clear behind the answer to STARTTLS")]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (POSTFIX_WORDS, b"XCLIENT ADDR=203.0.113.9 PORT=4711 NAME=[UNAVAILABLE] DESTADDR=192.0.2.1 DESTPORT=587\r\n"),
        (DOVECOT_WORDS, b"XCLIENT ADDR=203.0.113.9 PORT=4711 SESSION=1a2b-3 TTL=4\r\n"),
    ],
)
def test_xclient_says_what_the_server_knows(words: str, line: bytes) -> None:
    """The session begins anew with a greeting; EHLO again."""
    sign_in = replace(BASE, client=CLIENT)
    sent, others, _ = play(sign_in, GREETING, offer(xclient=words), GREETING, offer(), IN, offer())
    assert sent == [EHLO, line, EHLO, PLAIN, EHLO, b""]
    assert others == [SignedIn(b"")]


def test_xclient_that_is_not_offered_or_refused_is_noted() -> None:
    """Field cases 41 and 91: the sign-in goes on, the log says it."""
    sign_in = replace(BASE, client=CLIENT)
    _, others, machine = play(sign_in, GREETING, offer(), IN, offer())
    assert others == [SignedIn(b"")]
    assert machine.notes == ["XCLIENT not offered: the server does not take the client's address from here"]
    _, others, machine = play(sign_in, GREETING, offer(xclient="ADDR"), b"501 5.5.4 bad\r\n", IN, offer())
    assert others == [SignedIn(b"")]
    assert machine.notes == ["XCLIENT refused: 501 5.5.4 bad"]


def test_the_user_named_by_xclient() -> None:
    """No AUTH follows; the name is xtext."""
    sign_in = replace(BASE, client=CLIENT, login="alice+x=y@contoso.com")
    sent, others, _ = play(sign_in, GREETING, offer(xclient="LOGIN ADDR"), GREETING, offer())
    assert sent[1] == b"XCLIENT LOGIN=alice+2Bx+3Dy@contoso.com ADDR=203.0.113.9\r\n"
    assert others == [SignedIn(b"")]
    for words in ("", "ADDR PORT"):
        _, others, _ = play(sign_in, GREETING, offer(xclient=words))
        text = "EHLO: the user cannot be named: XCLIENT LOGIN is not offered"
        assert others == [Failed(FailureKind.PROTOCOL, text)]
    _, others, _ = play(sign_in, GREETING, offer(xclient="LOGIN ADDR"), b"550 5.7.0 no\r\n")
    assert others == [Failed(FailureKind.PROTOCOL, "XCLIENT: 550 5.7.0 no")]
    _, others, _ = play(sign_in, GREETING, offer(xclient="LOGIN ADDR"), b"451 4.3.0 later\r\n")
    assert others == [Failed(FailureKind.UNAVAILABLE, "XCLIENT: 451 4.3.0 later")]


def test_a_server_that_would_believe_the_client_is_not_used() -> None:
    """It goes by our address: behind the hand-over any user could name any other by XCLIENT LOGIN."""
    _, others, _ = play(BASE, GREETING, offer(xclient=POSTFIX_WORDS), IN, offer(xclient=POSTFIX_WORDS))
    assert isinstance(others[0], Failed)
    assert others[0].kind is FailureKind.PROTOCOL
    assert "would take XCLIENT from the client" in others[0].text


def test_a_server_that_lacks_what_was_promised_is_not_used() -> None:
    """What it offers after the sign-in counts: a relay behind it may have less."""
    sign_in = replace(BASE, extensions=("SIZE", "DSN", "SMTPUTF8"))
    _, others, _ = play(sign_in, GREETING, offer("DSN", "SMTPUTF8"), IN, offer("DSN"))
    text = "EHLO: the server lacks SMTPUTF8, which clients are promised (submission_extensions)"
    assert others == [Failed(FailureKind.PROTOCOL, text)]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ((b"421 4.3.2 down\r\n",), FailureKind.UNAVAILABLE),
        ((b"554 5.3.2 no service\r\n",), FailureKind.UNAVAILABLE),
        ((b"* OK IMAP\r\n",), FailureKind.PROTOCOL),
        ((GREETING, b"451 4.3.0 later\r\n"), FailureKind.UNAVAILABLE),
        ((GREETING, b"502 5.5.1 what\r\n"), FailureKind.PROTOCOL),
        ((GREETING, offer(), b"535 5.7.8 wrong\r\n"), FailureKind.REFUSED),
        ((GREETING, offer(), b"454 4.7.0 later\r\n"), FailureKind.UNAVAILABLE),
        ((GREETING, offer(), b"421 4.3.2 down\r\n"), FailureKind.UNAVAILABLE),
        ((GREETING, offer(), b"451 4.3.0 X-NOT-MINE another server has it\r\n"), FailureKind.NOT_MINE),
        ((GREETING, offer(), b"250 what\r\n"), FailureKind.PROTOCOL),
        ((GREETING, offer(), b"334 \r\n"), FailureKind.PROTOCOL),
        ((GREETING, offer(auth="GSSAPI")), FailureKind.PROTOCOL),
        ((GREETING, b"250 mbx-01\r\n"), FailureKind.PROTOCOL),
        ((GREETING, offer(), IN, b"421 4.4.0 lost connection to the relay\r\n"), FailureKind.UNAVAILABLE),
        ((GREETING, b"250-x\r\n" * 1000), FailureKind.PROTOCOL),
        ((b"220 " + b"x" * 5000,), FailureKind.PROTOCOL),
        ((b"220-x\r\n221 y\r\n",), FailureKind.PROTOCOL),
    ],
)
def test_failures(answers: tuple[bytes, ...], kind: FailureKind) -> None:
    """A server's refusal of our sign-in is a fault between servers, never the user's (field case 76)."""
    _, others, machine = play(BASE, *answers)
    assert [type(event) for event in others] == [Failed]
    assert isinstance(others[0], Failed)
    assert others[0].kind is kind
    assert machine.receive(IN) == []


def test_secrets_are_not_in_the_log() -> None:
    """Some servers repeat the command that they did not like (field case 138)."""
    _, others, _ = play(BASE, GREETING, offer(), b"500 5.5.2 what is " + PLAIN)
    assert isinstance(others[0], Failed)
    assert "***" in others[0].text
    assert base64.b64encode(b"\0alice\0secret-apw").decode() not in others[0].text


@pytest.mark.parametrize("part", ["user", "password"])
def test_what_cannot_be_sent_is_refused(part: str) -> None:
    """Field case 60."""
    _, others, _ = play(replace(BASE, **{part: "a\r\nMAIL FROM:<x@y>"}))
    assert [type(event) for event in others] == [Failed]


def test_another_front_end_is_told_how_many_may_follow() -> None:
    """It takes XCLIENT TTL without offering it (C11)."""
    sent, _, _ = play(replace(BASE, ttl=3), GREETING, offer(), GREETING, offer())
    assert sent[1:] == [b"XCLIENT TTL=3\r\n", EHLO, PLAIN]


@pytest.mark.parametrize(
    ("helo", "said"),
    [("", b"unknown"), ("[::1]", b"unknown"), ("b\u00fcro.de", b"xn--bro-hoa.de"), ("my_pc", b"my_pc")],
)
def test_the_name_at_ehlo(helo: str, said: bytes) -> None:
    """Nothing that a server could take for something else."""
    assert play(replace(BASE, helo=helo), GREETING)[0] == [b"EHLO " + said + b"\r\n"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("2001:db8::1", b"ADDR=IPV6:2001:db8::1"),
        ("::ffff:192.0.2.9", b"ADDR=192.0.2.9"),
        ("fe80::1%eth0", b"ADDR=IPV6:fe80::1"),
    ],
)
def test_addresses_in_xclient(address: str, said: bytes) -> None:
    """IPv6 is marked; one that is mapped is told as IPv4."""
    assert xclient_items(replace(CLIENT, address=address), ["ADDR"]) == [said]


def test_no_usable_address_no_xclient() -> None:
    """A Unix socket's, for instance."""
    assert xclient_items(replace(CLIENT, address="/run/x"), ["ADDR"]) == []
    assert xclient_items(CLIENT, ["PORT"]) == []


def test_epoch_and_line_length() -> None:
    """The database's epoch where the server wants it (A3); what does not fit the line is left out, last first."""
    facts = replace(CLIENT, database="DB 01", epoch=7)
    items = xclient_items(facts, ["ADDR", "DATABASE", "EPOCH"])
    assert items[1:] == [b"DATABASE=DB%2001", b"EPOCH=7"]
    sign_in = replace(BASE, client=replace(facts, database="D" * 600))
    sent, _, _ = play(sign_in, GREETING, offer(xclient="ADDR DATABASE EPOCH"))
    assert sent[1] == b"XCLIENT ADDR=203.0.113.9 EPOCH=7\r\n"
    assert all(len(line) <= MAX_COMMAND for line in sent)


ANSWERS = [
    GREETING,
    offer(),
    offer(xclient=POSTFIX_WORDS),
    IN,
    b"334 \r\n",
    b"454 4.7.0 x\r\n",
    b"220 go\r\n",
    b"250 ok\r\n",
    b"x",
]


@given(st.lists(st.sampled_from(ANSWERS), max_size=8), st.lists(st.integers(0, 600), max_size=6), st.booleans())
def test_any_split_gives_the_same(answers: list[bytes], cuts: list[int], told: bool) -> None:
    """However a server's bytes come."""
    data = b"".join(answers)
    sign_in = replace(BASE, client=CLIENT if told else None)
    places = sorted({min(cut, len(data)) for cut in cuts})
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    whole, split = play(sign_in, data), play(sign_in, *pieces)
    assert b"".join(whole[0]) == b"".join(split[0])
    ended = [[e for e in events if not isinstance(e, SignedIn)] for events in (whole[1], split[1])]
    assert ended[0] == ended[1]
    signed = [[type(e) for e in events] for events in (whole[1], split[1])]
    assert signed[0] == signed[1]
