"""The POP3 dialogue with mailbox servers: transcripts, hostile servers, and that no split makes a difference."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gatepost.wire.events import (
    BackEvent,
    BackSignIn,
    ClientFacts,
    Credentials,
    Failed,
    FailureKind,
    Send,
    SignedIn,
    SignIn,
    StartTls,
)
from gatepost.wire.pop3_back import MAX_ANSWER, Pop3Back, pack_xclient, xclient_items
from gatepost.wire.pop3_front import Pop3Front
from gatepost.wire.pop3_lines import MAX_COMMAND, MAX_TEXT

CLIENT = ClientFacts("203.0.113.8", 4712, "198.51.100.1", 995, tls=True, session="s-1")
XCLIENT = b"XCLIENT ADDR=203.0.113.8 PORT=4712 SESSION=s-1 TTL=4\r\n"


def make_back(**changes: Any) -> Pop3Back:
    settings: dict[str, Any] = {"mechanism": "LOGIN", "user": "alice", "password": "secret"}
    back = Pop3Back(BackSignIn(**(settings | changes)))
    assert back.connected() == []
    return back


def talk(back: Pop3Back, *dialogue: tuple[bytes, bytes]) -> None:
    """Each pair is what the server says and what it is then sent."""
    for said, sent in dialogue:
        assert back.receive(said) == ([Send(sent)] if sent else []), back.state_name


def failure(events: Sequence[BackEvent]) -> Failed:
    (event,) = events
    assert isinstance(event, Failed)
    return event


def test_user_and_pass_one_at_a_time() -> None:
    back = make_back()
    talk(back, (b"+OK ready\r\n", b"USER alice\r\n"), (b"+OK\r\n", b"PASS secret\r\n"))
    assert back.receive(b"+OK Logged in.\r\n") == [SignedIn(b"Logged in.")]
    assert back.state_name == "signed in"


def test_the_rest_after_the_answer_is_byte_exact() -> None:
    rest = b"+OK 2 320\r\n\0\xff."
    back = make_back()
    talk(back, (b"+OK\r\n", b"USER alice\r\n"), (b"+OK\r\n", b"PASS secret\r\n"))
    assert back.receive(b"+OK Logged in.\r\n" + rest) == [SignedIn(b"Logged in.", rest=rest)]
    assert back.receive(b"more") == []


def test_pipelined_sends_all_at_once_and_takes_the_answers_in_order() -> None:
    back = make_back(pipelined=True, client=CLIENT, utf8=True)
    talk(back, (b"+OK [XCLIENT] ready\r\n", XCLIENT + b"UTF8\r\nUSER alice\r\nPASS secret\r\n"))
    talk(back, (b"+OK Updated\r\n", b""), (b"+OK\r\n+OK\r\n", b""))
    assert back.state_name == "PASS"
    assert back.receive(b"+OK in\r\n") == [SignedIn(b"in")]


def test_stls_comes_first_and_nothing_is_said_in_clear() -> None:
    for pipelined in (False, True):
        back = make_back(starttls=True, pipelined=pipelined)
        talk(back, (b"+OK ready\r\n", b"STLS\r\n"))
        assert back.receive(b"+OK begin\r\n") == [StartTls()]
        assert back.state_name == "TLS"
        assert back.tls_started() == [Send(b"USER alice\r\n" + (b"PASS secret\r\n" if pipelined else b""))]
        assert back.tls_started() == []


@pytest.mark.parametrize("answer", [b"-ERR unknown command\r\n", b"-ERR [SYS/TEMP] later\r\n", b"+ \r\n", b"STLS\r\n"])
def test_stripped_stls_ends_the_sign_in(answer: bytes) -> None:
    """Field cases 80 and 81: required means required."""
    back = make_back(starttls=True)
    talk(back, (b"+OK ready\r\n", b"STLS\r\n"))
    assert failure(back.receive(answer)).kind is FailureKind.PROTOCOL
    assert back.tls_started() == []


def test_bytes_behind_the_answer_to_stls_end_the_sign_in() -> None:
    """In the same packet there is not even a handshake; in a later one it is given up."""
    back = make_back(starttls=True)
    back.receive(b"+OK ready\r\n")
    assert failure(back.receive(b"+OK begin\r\n+OK injected\r\n")).kind is FailureKind.PROTOCOL
    assert back.tls_started() == []
    back = make_back(starttls=True)
    back.receive(b"+OK ready\r\n")
    assert back.receive(b"+OK begin\r\n") == [StartTls()]
    assert failure(back.receive(b"+")).kind is FailureKind.PROTOCOL
    assert back.tls_started() == []


def test_xclient_tells_the_clients_address_where_offered() -> None:
    back = make_back(client=CLIENT)
    talk(back, (b"+OK [XCLIENT] Dovecot ready.\r\n", XCLIENT), (b"+OK Updated\r\n", b"USER alice\r\n"))
    assert back.notes == []


def test_xclient_goes_after_tls() -> None:
    back = make_back(client=CLIENT, starttls=True)
    talk(back, (b"+OK [XCLIENT] ready\r\n", b"STLS\r\n"))
    back.receive(b"+OK\r\n")
    assert back.tls_started() == [Send(XCLIENT)]


def test_no_xclient_where_not_offered_but_a_note() -> None:
    back = make_back(client=CLIENT)
    talk(back, (b"+OK ready [XCLIENT]\r\n", b"USER alice\r\n"))
    assert "not offered" in back.notes[0]


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_refused_xclient_is_noted_and_not_fatal(pipelined: bool) -> None:
    """Field case 41."""
    back = make_back(client=CLIENT, pipelined=pipelined)
    back.receive(b"+OK [XCLIENT] ready\r\n")
    back.receive(b"-ERR You are not from trusted IP\r\n")
    back.receive(b"+OK\r\n")
    assert back.receive(b"+OK\r\n") == [SignedIn(b"")]
    assert back.notes == ["XCLIENT refused: You are not from trusted IP"]


@pytest.mark.parametrize(
    ("client", "items"),
    [
        (ClientFacts("2001:db8::7", 1), [b"ADDR=2001:db8::7", b"PORT=1", b"TTL=4"]),
        (ClientFacts("fe80::1%eth0", 1), [b"ADDR=fe80::1", b"PORT=1", b"TTL=4"]),
        (ClientFacts("::ffff:192.0.2.1", 1), [b"ADDR=192.0.2.1", b"PORT=1", b"TTL=4"]),
        (ClientFacts("192.0.2.1", 1, session="a b"), [b"ADDR=192.0.2.1", b"PORT=1", b"TTL=4"]),
        (ClientFacts("192.0.2.1", 1, session="x" * 65), [b"ADDR=192.0.2.1", b"PORT=1", b"TTL=4"]),
        (ClientFacts("unix socket", 0, session="s"), []),
        (ClientFacts("1.2.3.4\r\nDELE 1", 0), []),
        (ClientFacts("", 0), []),
    ],
)
def test_only_what_fits_goes_into_xclient(client: ClientFacts, items: list[bytes]) -> None:
    """A value that the server rejects would cost the address too."""
    assert xclient_items(client) == items


def test_no_address_means_no_xclient() -> None:
    back = make_back(client=ClientFacts("", 0))
    talk(back, (b"+OK [XCLIENT]\r\n", b"USER alice\r\n"))
    assert back.notes == ["XCLIENT not sent: no address that fits"]


@given(st.lists(st.text("abc=", min_size=1, max_size=200).map(str.encode), min_size=1, max_size=12))
def test_long_xclient_is_several_commands(items: list[bytes]) -> None:
    """Field case 54: none longer than a command may be, nothing lost, in order."""
    lines = pack_xclient(items)
    assert all(len(line) <= MAX_COMMAND and line.endswith(b"\r\n") for line in lines)
    words = [line.removesuffix(b"\r\n").split(b" ") for line in lines]
    assert all(word[0] == b"XCLIENT" for word in words)
    assert [item for word in words for item in word[1:]] == items


def test_utf8_is_asked_for_before_the_sign_in_and_must_be_granted() -> None:
    """The client was promised it."""
    back = make_back(utf8=True)
    talk(back, (b"+OK\r\n", b"UTF8\r\n"), (b"+OK\r\n", b"USER alice\r\n"))
    back = make_back(utf8=True)
    back.receive(b"+OK\r\n")
    failed = failure(back.receive(b"-ERR unknown\r\n"))
    assert failed == Failed(FailureKind.REFUSED, "UTF8: unknown")


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "alice smith"},
        {"user": "ülice"},
        {"password": "pässword"},
        {"password": "trailing "},
        {"password": " leading"},
        {"password": "tab\there"},
        {"user": "x" * 251},
        {"mechanism": "PLAIN"},
        {"authorization_id": "bob"},
    ],
)
def test_what_user_cannot_carry_goes_by_auth_plain(changes: dict[str, str]) -> None:
    back = make_back(**changes)
    (sent,) = back.receive(b"+OK\r\n")
    assert isinstance(sent, Send)
    assert sent.data.startswith(b"AUTH PLAIN")


def test_a_password_with_inner_spaces_goes_by_pass() -> None:
    back = make_back(password="two words")
    talk(back, (b"+OK\r\n", b"USER alice\r\n"), (b"+OK\r\n", b"PASS two words\r\n"))


@pytest.mark.parametrize(("length", "at_once"), [(173, True), (174, False)])
def test_the_initial_response_is_used_while_the_line_is_short_enough(length: int, at_once: bool) -> None:
    """RFC 5034 section 4: 255 octets with CRLF; beyond it the challenge form."""
    password = "ü" + "p" * (length - 2)
    response = base64.b64encode(b"\0alice\0" + password.encode())
    back = make_back(password=password)
    if at_once:
        assert len(b"AUTH PLAIN " + response + b"\r\n") <= 255
        talk(back, (b"+OK\r\n", b"AUTH PLAIN " + response + b"\r\n"))
    else:
        assert len(b"AUTH PLAIN " + response + b"\r\n") > 255
        talk(back, (b"+OK\r\n", b"AUTH PLAIN\r\n"), (b"+ \r\n", response + b"\r\n"))
    assert back.receive(b"+OK in\r\n") == [SignedIn(b"in")]


def test_ok_in_place_of_the_challenge_is_no_sign_in() -> None:
    """Nothing was proved to the server yet, so it can mean nobody's session."""
    back = make_back(mechanism="XOAUTH2", token="t" * 400)
    talk(back, (b"+OK\r\n", b"AUTH XOAUTH2\r\n"))
    assert failure(back.receive(b"+OK\r\n")).kind is FailureKind.PROTOCOL


@pytest.mark.parametrize(("mechanism", "dummy"), [("XOAUTH2", b"\r\n"), ("OAUTHBEARER", b"AQ==\r\n")])
def test_a_refused_token_is_acknowledged_and_told(mechanism: str, dummy: bytes) -> None:
    """RFC 7628 section 3.2.3: the error comes as a challenge that wants an answer."""
    back = make_back(mechanism=mechanism, token="tok")
    (sent,) = back.receive(b"+OK\r\n")
    assert isinstance(sent, Send)
    assert sent.data.startswith(b"AUTH " + mechanism.encode() + b" ")
    talk(back, (b"+ " + base64.b64encode(b'{"status":"401"}') + b"\r\n", dummy))
    failed = failure(back.receive(b"-ERR [AUTH] no\r\n"))
    assert failed == Failed(FailureKind.REFUSED, 'AUTH: [AUTH] no ({"status":"401"})')


@pytest.mark.parametrize("answer", [b"+ eyJ9\r\n", b"+OK\r\n"])
def test_after_the_error_challenge_only_a_refusal_is_right(answer: bytes) -> None:
    back = make_back(mechanism="XOAUTH2", token="tok")
    back.receive(b"+OK\r\n")
    back.receive(b"+ not base64!\r\n")
    assert failure(back.receive(answer)).kind is FailureKind.PROTOCOL


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"-ERR [IN-USE] locked", FailureKind.IN_USE),
        (b"-ERR [in-use] locked", FailureKind.IN_USE),
        (b"-ERR [SYS/TEMP] later", FailureKind.UNAVAILABLE),
        (b"-ERR [LOGIN-DELAY] wait", FailureKind.UNAVAILABLE),
        (b"-ERR [AUTH] wrong", FailureKind.REFUSED),
        (b"-ERR [SYS/PERM] never", FailureKind.REFUSED),
        (b"-ERR", FailureKind.REFUSED),
    ],
)
def test_each_refusal_has_its_kind(answer: bytes, kind: FailureKind) -> None:
    """Field case 130 and RFC 3206."""
    back = make_back()
    talk(back, (b"+OK\r\n", b"USER alice\r\n"), (b"+OK\r\n", b"PASS secret\r\n"))
    assert failure(back.receive(answer + b"\r\n")).kind is kind
    assert back.state_name == "failed"


def test_a_greeting_that_refuses_is_unavailable() -> None:
    assert failure(make_back().receive(b"-ERR [SYS/PERM] too many\r\n")).kind is FailureKind.UNAVAILABLE


@pytest.mark.parametrize(
    "echo",
    [
        b"unknown command PASS se cret-1",
        b"AUTH PLAIN " + base64.b64encode(b"\0alice\0se cret-1"),
        b"AUTH XOAUTH2 " + base64.b64encode(b"user=alice\x01auth=Bearer to.ken\x01\x01"),
        b"what is to.ken",
    ],
)
def test_a_server_that_repeats_the_command_does_not_put_secrets_into_our_log(echo: bytes) -> None:
    back = make_back(password="se cret-1", token="to.ken")
    back.receive(b"+OK\r\n")
    failed = failure(back.receive(b"-ERR " + echo + b"\r\n"))
    for secret in ("cret-1", "to.ken", "AGFsaWNlAHNlIGNyZXQtMQ", "dXNlcj1hbGljZQFhdXRo"):
        assert secret not in failed.text
    assert "***" in failed.text


def test_a_failure_text_is_one_bounded_printable_line() -> None:
    back = make_back()
    failed = failure(back.receive(b"-ERR \x1b[31m\xff" + b"x" * 5000 + b"\r\n"))
    assert failed.text.startswith("greeting: ?[31m?xxx")
    assert len(failed.text) == MAX_TEXT


@pytest.mark.parametrize("field", ["user", "password", "authorization_id", "token"])
@pytest.mark.parametrize("character", ["\r", "\n", "\0"])
def test_a_name_or_password_never_becomes_a_command(field: str, character: str) -> None:
    """Field case 60."""
    settings: dict[str, Any] = {"mechanism": "LOGIN", "user": "alice", "password": "x", field: f"a{character}DELE 1"}
    back = Pop3Back(BackSignIn(**settings))
    (failed,) = back.connected()
    assert isinstance(failed, Failed)
    assert back.receive(b"+OK\r\n") == []


HOSTILE = {
    "endless line": b"+OK " + b"x" * 1_000_000,
    "long line": b"+OK " + b"x" * MAX_ANSWER + b"\r\n",
    "NUL": b"+OK\0\r\n",
    "another protocol": b"* OK IMAP4rev1 ready\r\n",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "lower case": b"+ok ready\r\n",
    "a challenge": b"+ \r\n",
    "an empty line": b"\r\n",
    "many challenges": b"+OK\r\n" + b"+ \r\n" * 10_000,
    "many refusals": b"-ERR\r\n" * 10_000,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_servers_end_the_sign_in(data: bytes) -> None:
    """Field case 59: one failure, nothing kept, nothing sent after it."""
    back = make_back()
    events = back.receive(data)
    assert isinstance(events[-1], Failed)
    assert all(isinstance(event, Send) for event in events[:-1])
    assert back.receive(data) == []
    assert len(back._lines) == 0


def test_thousands_of_answers_cannot_make_us_send_more_than_the_sign_in() -> None:
    back = make_back()
    events = back.receive(b"+OK\r\n" * 10_000)
    assert events[:2] == [Send(b"USER alice\r\n"), Send(b"PASS secret\r\n")]
    assert events[2:] == [SignedIn(b"", rest=b"+OK\r\n" * 9_997)]


def outcome(sign_in: BackSignIn, data: bytes, cuts: Sequence[int]) -> tuple[bytes, list[BackEvent], str]:
    back = Pop3Back(sign_in)
    output = bytearray()
    events: list[BackEvent] = list(back.connected())
    rest = b""
    for start, end in pairwise([0, *sorted(cuts), len(data)]):
        if back.state_name == "signed in":
            rest += data[start:end]
        events += back.receive(data[start:end])
    for event in events:
        if isinstance(event, Send):
            output += event.data
        elif isinstance(event, SignedIn):
            rest = event.rest + rest
    others: list[BackEvent] = [
        SignedIn(e.text) if isinstance(e, SignedIn) else e for e in events if not isinstance(e, Send)
    ]
    return bytes(output), others, rest.hex()


SIGN_INS = [
    BackSignIn("LOGIN", "alice", "secret", client=CLIENT),
    BackSignIn("LOGIN", "alice", "secret", client=CLIENT, pipelined=True),
    BackSignIn("PLAIN", "proxy", "p" * 300, authorization_id="alice", utf8=True),
    BackSignIn("XOAUTH2", "alice", token="tok"),
]
ANSWERS = [
    b"+OK [XCLIENT] ready\r\n+OK Updated\r\n+OK\r\n+OK in\r\nrest\r\n\0",
    b"+OK [XCLIENT] ready\r\n-ERR no\r\n+OK\r\n-ERR [IN-USE] locked\r\n",
    b"+OK ready\n+OK\n+ \n+OK in\n+OK rest\n",
    b"+OK ready\r\n+ eyJzdGF0dXMiOiI0MDAifQ==\r\n-ERR [AUTH] no\r\n",
    b"-ERR busy\r\n",
    b"+OK" + b" " * MAX_ANSWER,
]


@pytest.mark.parametrize("sign_in", SIGN_INS)
@pytest.mark.parametrize("data", ANSWERS)
def test_a_split_at_every_byte_makes_no_difference(sign_in: BackSignIn, data: bytes) -> None:
    whole = outcome(sign_in, data, [])
    assert outcome(sign_in, data, range(1, len(data))) == whole
    if len(data) < 1000:
        for cut in range(1, len(data)):
            assert outcome(sign_in, data, [cut]) == whole


LINES = st.sampled_from([line + b"\r\n" for data in ANSWERS for line in data.split(b"\r\n")])


@given(
    st.sampled_from(SIGN_INS),
    st.lists(LINES | st.binary(max_size=20), max_size=10).map(b"".join),
    st.lists(st.integers(0, 500), max_size=8),
)
def test_no_split_of_any_input_makes_a_difference(sign_in: BackSignIn, data: bytes, cuts: list[int]) -> None:
    """Nor does any input raise."""
    cuts = [cut % (len(data) + 1) for cut in cuts]
    assert outcome(sign_in, data, cuts) == outcome(sign_in, data, [])


NASTY = st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), min_size=1, max_size=200)


@given(
    NASTY,
    NASTY,
    st.sampled_from(["", "bob", "b ob ü"]),
    st.sampled_from(["LOGIN", "PLAIN", "XOAUTH2", "OAUTHBEARER"]),
    st.booleans(),
)
@example("alice", "trailing ", "", "LOGIN", False)
@example("ali ce", '"quoted\\"', "", "LOGIN", True)
@example("ülice", "🔑", "", "LOGIN", True)
@example("alice", "p", "", "LOGIN", False)
@example("a,l=ice", "t", "", "OAUTHBEARER", False)
def test_what_the_back_says_the_front_understands(
    user: str, secret: str, authorization: str, mechanism: str, pipelined: bool
) -> None:
    """Whatever the name and the password are, the server gets exactly those (field cases 61, 62)."""
    bearer = mechanism in ("XOAUTH2", "OAUTHBEARER")
    if bearer:
        secret, authorization = "tok.en-_~+/=" * len(secret), ""
        if mechanism == "XOAUTH2":
            user = user.replace("\x01", "")
        user = user.replace("\x01", "") or "u"
    sign_in = BackSignIn(
        mechanism,
        user,
        password="" if bearer else secret,
        token=secret if bearer else "",
        authorization_id=authorization,
        pipelined=pipelined,
    )
    back = Pop3Back(sign_in)
    front = Pop3Front(tls=True, starttls=False, clear_passwords=False, bearer=True, bad_commands=1, sign_in_attempts=1)
    assert back.connected() == []
    credentials = converse(back, front)
    assert credentials.authentication_id == user
    assert credentials.authorization_id == authorization
    assert (credentials.token if bearer else credentials.password) == secret


def converse(back: Pop3Back, front: Pop3Front) -> Credentials:
    """Have the two talk until the front knows who signs in, and let that one in."""
    found: list[Credentials] = []
    to_back = front.greeting()
    for _ in range(5):
        to_front = b""
        for said in back.receive(to_back):
            if isinstance(said, SignedIn):
                assert said.text == b"Signed in."
                return found[0]
            assert isinstance(said, Send)
            to_front += said.data
        to_back = b""
        for heard in front.receive(to_front):
            if isinstance(heard, SignIn):
                found.append(heard.credentials)
                to_back += front.signed_in(None, b"")
            else:
                assert isinstance(heard, Send)
                to_back += heard.data
    raise AssertionError("no end")
