"""The POP3 dialogue with clients: transcripts, bounds, and that no split of the input makes a difference."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.events import Close, Credentials, FrontEvent, Refusal, Send, SignIn, StartTls
from gatepost.wire.pop3_front import MAX_AUTH_LINE, MAX_COMMANDS, Pop3Front
from gatepost.wire.pop3_lines import MAX_LINE
from gatepost.wire.sasl import bearer_message


def make_front(**changes: Any) -> Pop3Front:
    settings: dict[str, Any] = {
        "tls": True, "starttls": True, "clear_passwords": False, "bearer": True, "bad_commands": 4,
        "sign_in_attempts": 2,
    }  # fmt: skip
    return Pop3Front(**(settings | changes))


class Client:
    """A client with a driver in between: answers are collected, sign-ins answered from a list of verdicts."""

    def __init__(self, front: Pop3Front, verdicts: Iterable[Refusal | None] = ()) -> None:
        self.front = front
        self.verdicts = list(verdicts)
        self.output = bytearray()
        self.events: list[FrontEvent] = []

    def send(self, data: bytes) -> bytes:
        """The answers to `data`."""
        before = len(self.output)
        self._run(self.front.receive(data))
        return bytes(self.output[before:])

    def _run(self, events: Sequence[FrontEvent]) -> None:
        for event in events:
            if isinstance(event, Send):
                self.output += event.data
                continue
            self.events.append(event)
            if isinstance(event, StartTls):
                self._run(self.front.tls_started())
            elif isinstance(event, SignIn) and self.verdicts:
                verdict = self.verdicts.pop(0)
                if verdict is None:
                    self.output += self.front.signed_in(None, b"Welcome")
                else:
                    self._run(self.front.refuse(verdict))

    @property
    def credentials(self) -> Credentials:
        (event,) = [e for e in self.events if isinstance(e, SignIn)]
        return event.credentials

    @property
    def ended(self) -> str:
        return next((e.reason for e in self.events if isinstance(e, Close)), "")


def b64(data: bytes) -> bytes:
    return base64.b64encode(data)


def test_the_greeting_has_no_apop_timestamp() -> None:
    """A client that sees `<…>` would try APOP, which no store here can check."""
    assert make_front().greeting() == b"+OK Gatepost ready\r\n"
    with pytest.raises(ValueError, match="APOP"):
        make_front(banner=b"ready <1.2@host>")


def test_capa_over_tls_is_a_lower_bound() -> None:
    """Only what holds for every server is listed; STLS is gone once TLS is there."""
    assert Client(make_front()).send(b"CAPA\r\n") == (
        b"+OK Capability list follows\r\nTOP\r\nUIDL\r\nRESP-CODES\r\nAUTH-RESP-CODE\r\n"
        b"USER\r\nSASL PLAIN LOGIN XOAUTH2 OAUTHBEARER\r\n.\r\n"
    )


def test_capa_in_clear_offers_no_way_to_send_a_password() -> None:
    answer = Client(make_front(tls=False)).send(b"capa\r\n")
    assert b"STLS\r\n" in answer
    assert b"USER" not in answer
    assert b"SASL" not in answer


def test_clear_passwords_are_offered_when_allowed() -> None:
    answer = Client(make_front(tls=False, clear_passwords=True, bearer=False)).send(b"CAPA\r\n")
    assert b"USER\r\nSASL PLAIN LOGIN\r\n" in answer


def test_user_and_pass() -> None:
    client = Client(make_front(), [None])
    assert client.send(b"USER alice@contoso.com\r\n") == b"+OK Send the password.\r\n"
    assert client.send(b"PASS secret\r\n") == b"+OK Welcome\r\n"
    assert client.credentials == Credentials("LOGIN", "alice@contoso.com", password="secret")


@pytest.mark.parametrize("password", ["two words", " leading", "trailing ", "päß wörd", "🔑", '"quoted\\"', "%s{}"])
def test_a_password_is_all_after_pass(password: str) -> None:
    """RFC 1939 section 7: spaces belong to it."""
    client = Client(make_front())
    client.send(b"USER a\r\nPASS " + password.encode() + b"\r\n")
    assert client.credentials.password == password


@pytest.mark.parametrize("line", [b"USER alice", b"PASS secret", b"AUTH PLAIN AGEAYg==", b"AUTH LOGIN"])
def test_in_clear_every_sign_in_is_refused_and_not_as_a_wrong_password(line: bytes) -> None:
    client = Client(make_front(tls=False))
    answer = client.send(line + b"\r\n")
    assert answer.startswith(b"-ERR [SYS/PERM] ")
    assert b"STLS" in answer
    assert client.events == []


def test_pass_needs_user_first() -> None:
    client = Client(make_front())
    assert client.send(b"PASS secret\r\n").startswith(b"-ERR ")
    assert client.events == []


@pytest.mark.parametrize("line", [b"USER a\0b", b"USER a\rb", b"USER \xff", b"USER", b"USER "])
def test_names_that_cannot_travel_are_a_syntax_error(line: bytes) -> None:
    """Field case 60: never `[AUTH]`, never a sign-in."""
    client = Client(make_front())
    answer = client.send(line + b"\r\n")
    assert answer.startswith(b"-ERR USER")
    assert client.send(b"PASS x\r\n").startswith(b"-ERR ")
    assert client.events == []


@pytest.mark.parametrize("line", [b"PASS a\0b", b"PASS a\r", b"PASS \xff", b"PASS", b"PASS "])
def test_passwords_that_cannot_travel_are_a_syntax_error(line: bytes) -> None:
    client = Client(make_front())
    client.send(b"USER a\r\n")
    assert client.send(line + b"\r\n").startswith(b"-ERR PASS")
    assert client.events == []


@pytest.mark.parametrize("mechanism", [b"PLAIN", b"plain"])
def test_auth_plain_with_and_without_initial_response(mechanism: bytes) -> None:
    message = b64(b"bob\0alice\0sec ret")
    with_it = Client(make_front())
    assert with_it.send(b"AUTH " + mechanism + b" " + message + b"\r\n") == b""
    without = Client(make_front())
    assert without.send(b"AUTH " + mechanism + b"\r\n") == b"+ \r\n"
    assert without.send(message + b"\r\n") == b""
    assert with_it.credentials == without.credentials == Credentials("PLAIN", "alice", "bob", password="sec ret")


def test_auth_login_asks_for_both_or_takes_the_name_at_once() -> None:
    client = Client(make_front())
    assert client.send(b"AUTH LOGIN\r\n") == b"+ VXNlcm5hbWU6\r\n"
    assert client.send(b64(b"alice") + b"\r\n") == b"+ UGFzc3dvcmQ6\r\n"
    assert client.send(b64("ü ".encode()) + b"\r\n") == b""
    at_once = Client(make_front())
    assert at_once.send(b"AUTH LOGIN " + b64(b"alice") + b"\r\n") == b"+ UGFzc3dvcmQ6\r\n"
    at_once.send(b64("ü ".encode()) + b"\r\n")
    assert client.credentials == at_once.credentials == Credentials("LOGIN", "alice", password="ü ")


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "OAUTHBEARER"])
def test_a_bearer_token_of_12_kb_is_taken(mechanism: str) -> None:
    """Field cases 53 and 54: on the AUTH line and as a response."""
    message = b64(bearer_message(mechanism, "alice@contoso.com", "t" * 12288))
    line = Client(make_front())
    line.send(b"AUTH " + mechanism.encode() + b" " + message + b"\r\n")
    response = Client(make_front())
    assert response.send(b"AUTH " + mechanism.encode() + b"\r\n") == b"+ \r\n"
    response.send(message + b"\r\n")
    assert line.credentials == response.credentials
    assert line.credentials.token == "t" * 12288
    assert line.credentials.authentication_id == "alice@contoso.com"


@pytest.mark.parametrize(("mechanism", "status"), [("XOAUTH2", b"400"), ("OAUTHBEARER", b"invalid_token")])
def test_a_refused_token_is_told_in_a_challenge_first(mechanism: str, status: bytes) -> None:
    """RFC 7628 section 3.2.3: challenge, the client's dummy answer, then the refusal."""
    client = Client(make_front(), [Refusal.WRONG_CREDENTIALS])
    answer = client.send(b"AUTH %b %b\r\n" % (mechanism.encode(), b64(bearer_message(mechanism, "a", "t"))))
    assert answer.startswith(b"+ ")
    assert status in base64.b64decode(answer[2:])
    assert client.send(b"AQ==\r\n") == b"-ERR [AUTH] Authentication failed.\r\n"
    assert client.send(b"QUIT\r\n").startswith(b"+OK")


def test_a_token_that_could_not_be_checked_is_no_wrong_token() -> None:
    client = Client(make_front(), [Refusal.UNAVAILABLE])
    answer = client.send(b"AUTH XOAUTH2 " + b64(bearer_message("XOAUTH2", "a", "t")) + b"\r\n")
    assert answer.startswith(b"-ERR [SYS/TEMP] ")


def test_bearer_mechanisms_are_unknown_without_a_verifier() -> None:
    client = Client(make_front(bearer=False))
    assert client.send(b"AUTH XOAUTH2\r\n") == b"-ERR Unknown mechanism.\r\n"
    assert client.send(b"AUTH\r\n") == b"+OK Mechanisms follow\r\nPLAIN\r\nLOGIN\r\n.\r\n"


@pytest.mark.parametrize("response", [b"*", b"!", b"", b"=", b64(b"a"), b64(b"\0\0x"), b64(b"\0a\0b\nUSER c")])
def test_bad_responses_end_the_exchange_and_not_the_session(response: bytes) -> None:
    client = Client(make_front())
    client.send(b"AUTH PLAIN\r\n")
    answer = client.send(response + b"\r\n")
    assert answer.startswith(b"-ERR ")
    assert b"[AUTH]" not in answer
    assert client.send(b"USER a\r\n").startswith(b"+OK")
    assert client.events == []


@pytest.mark.parametrize(
    ("refusal", "start"),
    [
        (Refusal.WRONG_CREDENTIALS, b"-ERR [AUTH] "),
        (Refusal.UNAVAILABLE, b"-ERR [SYS/TEMP] "),
        (Refusal.PROTOCOL_NOT_ALLOWED, b"-ERR [SYS/PERM] "),
        (Refusal.OTHER_SERVER, b"-ERR [SYS/PERM] "),
        (Refusal.IN_USE, b"-ERR [IN-USE] "),
        (Refusal.LIMIT, b"-ERR [SYS/TEMP] "),
        (Refusal.BUSY, b"-ERR [SYS/TEMP] "),
    ],
)
def test_each_refusal_has_its_code(refusal: Refusal, start: bytes) -> None:
    """RFC 2449 section 8.1 and RFC 3206; the session goes on."""
    client = Client(make_front(), [refusal])
    answer = client.send(b"USER a\r\nPASS b\r\n").removeprefix(b"+OK Send the password.\r\n")
    assert answer.startswith(start)
    assert answer.count(b"\r\n") == 1
    assert client.send(b"QUIT\r\n").startswith(b"+OK")


def test_a_refusal_can_name_the_right_server_and_cannot_be_two_lines() -> None:
    """SPEC C9."""
    front = make_front()
    front.receive(b"USER a\r\nPASS b\r\n")
    (sent,) = front.refuse(Refusal.OTHER_SERVER, "Use cas-02.contoso.com.\r\n+OK")
    assert sent == Send(b"-ERR [SYS/PERM] Use cas-02.contoso.com.??+OK\r\n")


def test_wrong_credentials_end_the_connection_after_so_many() -> None:
    client = Client(make_front(sign_in_attempts=2), [Refusal.WRONG_CREDENTIALS] * 2)
    client.send(b"USER a\r\nPASS b\r\n")
    assert client.ended == ""
    assert client.send(b"USER a\r\nPASS b\r\n").endswith(b"-ERR [AUTH] Authentication failed.\r\n")
    assert client.ended == "too many refused sign-ins"
    assert client.send(b"QUIT\r\n") == b""


def test_temporary_refusals_do_not_count_as_attempts() -> None:
    client = Client(make_front(sign_in_attempts=1), [Refusal.UNAVAILABLE] * 5)
    client.send(b"USER a\r\nPASS b\r\n" * 5)
    assert client.ended == ""


def test_busy_counts_as_an_attempt() -> None:
    """Whoever guesses faster than passwords are checked is closed like any other guesser."""
    client = Client(make_front(sign_in_attempts=2), [Refusal.BUSY] * 3)
    client.send(b"USER a\r\nPASS b\r\n" * 3)
    assert client.output.count(b"-ERR [SYS/TEMP] Too many sign-ins") == 2
    assert client.ended == "too many refused sign-ins"


def test_a_refused_sign_in_forgets_the_name() -> None:
    client = Client(make_front(), [Refusal.UNAVAILABLE])
    client.send(b"USER a\r\nPASS b\r\n")
    assert client.send(b"PASS b\r\n").startswith(b"-ERR Send USER")


def test_bad_commands_end_the_connection() -> None:
    """Field case 106."""
    client = Client(make_front(bad_commands=3))
    client.send(b"STAT\r\nNOOP\r\n")
    assert client.ended == ""
    assert client.send(b"GET / HTTP/1.1\r\nUSER a\r\n") == b"-ERR Too many bad commands.\r\n"
    assert client.ended == "too many bad commands"


def test_good_commands_end_the_connection_too() -> None:
    client = Client(make_front())
    client.send(b"CAPA\r\n" * MAX_COMMANDS)
    assert client.ended == ""
    client.send(b"CAPA\r\n" * 10_000)
    assert client.ended == "too many commands"
    assert client.front.buffered == 0


@pytest.mark.parametrize("line", [b"APOP alice c4c9334bac560ecc979e58001b3e22fb", b"XCLIENT ADDR=1.2.3.4", b"STAT"])
def test_commands_that_are_not_ours_are_refused(line: bytes) -> None:
    assert Client(make_front()).send(line + b"\r\n").startswith(b"-ERR ")


@pytest.mark.parametrize(
    ("start", "limit"),
    [(b"USER ", MAX_LINE), (b"", MAX_LINE), (b"AUTH PLAIN ", MAX_AUTH_LINE), (b"auth PLAIN\r\n", None)],
)
def test_a_line_has_a_bound_whether_it_ends_or_not(start: bytes, limit: int | None) -> None:
    fill = b"A" * (limit - len(start) - 2 if limit else MAX_AUTH_LINE - 2)
    fits = Client(make_front())
    fits.send(start + fill + b"\r\n")
    assert fits.ended == ""
    for end in (b"A\r\n", b"AAA"):
        client = Client(make_front())
        assert client.send(start + fill + end).endswith(b"-ERR Line too long.\r\n")
        assert client.ended == "line too long"
        assert client.front.buffered == 0


def test_no_byte_beyond_the_bound_is_waited_for() -> None:
    client = Client(make_front())
    client.send(b"A" * (MAX_LINE - 1))
    assert client.ended == ""
    client.send(b"A")
    assert client.ended == "line too long"


def test_stls_drops_what_came_with_it_and_forgets_the_name() -> None:
    """Field case 79: nothing said in clear is obeyed after the handshake."""
    client = Client(make_front(tls=False, clear_passwords=True, utf8=True))
    client.send(b"UTF8\r\nUSER mallory\r\n")
    assert client.send(b"STLS\r\nQUIT\r\nUSER mallory\r\n") == b"+OK Begin TLS.\r\n"
    assert client.events == [StartTls()]
    assert client.front.utf8 is False
    assert client.send(b"PASS x\r\n") == b"-ERR Send USER first.\r\n"
    assert client.send(b"STLS\r\n") == b"-ERR TLS is active.\r\n"


def test_bytes_before_the_handshake_are_dropped() -> None:
    front = make_front(tls=False)
    assert StartTls() in front.receive(b"STLS\r\n")
    assert front.receive(b"CAPA\r\n") == []
    assert front.tls_started() == []
    assert front.buffered == 0
    assert front.receive(b"USER a\r\n") == [Send(b"+OK Send the password.\r\n")]


def test_stls_is_refused_where_it_is_not_offered() -> None:
    assert Client(make_front(tls=False, starttls=False)).send(b"STLS\r\n") == b"-ERR STLS is not possible.\r\n"


def test_a_parked_sign_in_only_buffers_and_the_rest_is_byte_exact() -> None:
    """What a client pipelined belongs to the mailbox server, exactly once."""
    rest = b"STAT\r\nRETR 1\r\n\0\xff no line"
    front = make_front()
    events = front.receive(b"USER a\r\nPASS b\r\n" + rest[:9])
    assert isinstance(events[-1], SignIn)
    assert front.receive(rest[9:]) == []
    assert front.buffered == len(rest)
    assert front.signed_in(None, b"\xffdone\r\nX") == b"+OK ?done??X\r\n"
    assert front.rest == rest


def test_a_servers_words_steer_no_terminal() -> None:
    """C1 controls and marks that turn the direction of writing do not arrive; POP3's answers are ASCII anyway."""
    front = make_front()
    front.receive(b"USER a\r\nPASS b\r\n")
    said = front.signed_in(None, "in\x9b31m\u202e".encode())
    assert said.isascii()
    assert said.rstrip(b"\r\n").decode().isprintable()


def test_commands_pipelined_behind_a_refused_sign_in_are_answered() -> None:
    front = make_front()
    front.receive(b"USER a\r\nPASS b\r\nSTAT\r\nQUIT\r\n")
    *sent, closed = front.refuse(Refusal.UNAVAILABLE)
    assert [type(e) for e in sent] == [Send, Send, Send]
    assert closed == Close("quit")


def test_utf8_is_only_offered_on_the_operators_word() -> None:
    """The server that has to know it is found after the sign-in, the command comes before."""
    plain = Client(make_front())
    assert plain.send(b"UTF8\r\n").startswith(b"-ERR ")
    assert plain.front.utf8 is False
    promised = Client(make_front(utf8=True))
    assert b"UTF8 USER\r\n" in promised.send(b"CAPA\r\n")
    assert promised.send(b"UTF8\r\n").startswith(b"+OK")
    assert promised.front.utf8 is True


def test_lang_lists_its_one_language_and_takes_only_that() -> None:
    """RFC 6856 section 3."""
    client = Client(make_front())
    assert client.send(b"LANG\r\n") == (
        b"+OK Language listing follows\r\ni-default Default language\r\nen English\r\n.\r\n"
    )
    assert client.send(b"LANG *\r\n").startswith(b"+OK i-default ")
    assert client.send(b"LANG EN\r\n").startswith(b"+OK en ")
    assert client.send(b"LANG de\r\n").startswith(b"-ERR ")


def test_bye_is_temporary_and_the_end() -> None:
    front = make_front()
    front.receive(b"USER a\r\n")
    assert front.bye("no sign-in in time") == b"-ERR [SYS/TEMP] no sign-in in time\r\n"
    assert front.receive(b"PASS b\r\n") == []


def test_an_aborted_exchange_leaves_nothing_behind() -> None:
    """Field case 65."""
    client = Client(make_front(bad_commands=10_000))
    for _ in range(MAX_COMMANDS - 1):
        client.send(b"AUTH LOGIN\r\n" + b64(b"alice") + b"\r\n*\r\n")
        assert client.front.buffered == 0
    assert client.send(b"AUTH LOGIN\r\n") == b"+ VXNlcm5hbWU6\r\n"


SESSIONS = [
    b"CAPA\r\nUSER alice\r\nPASS sec ret \r\nSTAT\r\nQUIT\r\n",
    b"UTF8\r\nLANG\r\nSTLS\r\n",
    b"AUTH\r\nAUTH PLAIN " + b64(b"\0a\0b") + b"\nAUTH LOGIN\r\n" + b64(b"a") + b"\r\n" + b64(b"b") + b"\r\nSTAT\r\n",
    b"AUTH XOAUTH2 " + b64(bearer_message("XOAUTH2", "a", "t" * 300)) + b"\r\n\r\nUSER x\r\nPASS y\r\nrest",
    b"AUTH PLAIN\r\n*\r\nAUTH PLAIN\r\n!\r\nFOO\r\nBAR\r\nBAZ\r\n",
    b"USER " + b"x" * 600 + b"\r\n",
    b"AUTH PLAIN " + b"A" * (MAX_AUTH_LINE + 9) + b"\r\nQUIT\r\n",
    b"\r\n\n\r\r\nUSER \xc3\xbc\r\nPASS \xf0\x9f\x94\x91\r\nQUIT\r\n",
]


def run_in_pieces(data: bytes, cuts: Sequence[int], verdicts: Sequence[Refusal | None], tls: bool) -> tuple[Any, ...]:
    client = Client(make_front(tls=tls, clear_passwords=True, utf8=True), verdicts)
    places = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(places):
        client.send(data[start:end])
    return bytes(client.output), client.events, client.front.rest


@pytest.mark.parametrize("data", SESSIONS)
@pytest.mark.parametrize("verdicts", [[], [None], [Refusal.WRONG_CREDENTIALS] * 2, [Refusal.UNAVAILABLE, None]])
def test_a_split_at_every_byte_makes_no_difference(data: bytes, verdicts: list[Refusal | None]) -> None:
    whole = run_in_pieces(data, [], verdicts, tls=False)
    assert run_in_pieces(data, range(1, len(data)), verdicts, tls=False) == whole
    if len(data) < 1000:
        for cut in range(1, len(data)):
            assert run_in_pieces(data, [cut], verdicts, tls=False) == whole


LINES = st.sampled_from(
    [line + b"\r\n" for session in SESSIONS for line in session.split(b"\r\n") if b"STLS" not in line]
)


@given(
    st.lists(LINES | st.binary(max_size=20), max_size=12).map(b"".join),
    st.lists(st.integers(0, 2000), max_size=8),
    st.lists(st.sampled_from([None, *Refusal]), max_size=4),
)
def test_no_split_of_any_input_makes_a_difference(data: bytes, cuts: list[int], verdicts: list[Refusal | None]) -> None:
    """Nor does any input raise."""
    cuts = [cut % (len(data) + 1) for cut in cuts]
    assert run_in_pieces(data, cuts, verdicts, tls=True) == run_in_pieces(data, [], verdicts, tls=True)
