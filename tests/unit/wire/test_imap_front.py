"""The IMAP machine towards clients: bounds, refusals, tokens, ID, and input that nobody planned."""

from __future__ import annotations

import base64
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imap_play import (
    BEARER_BOB,
    BOB,
    CAPABILITIES,
    PASSWORDS,
    WELCOME,
    XOAUTH2_BOB,
    b64,
    clear,
    front,
    play,
    split_evenly,
    turn_away,
)

from gatepost.wire.events import Close, Credentials, Refusal, StartTls
from gatepost.wire.imap_command import MAX_LITERAL
from gatepost.wire.imap_front import MAX_COMMANDS, ImapFront
from gatepost.wire.imap_syntax import human

words = st.sampled_from(
    [b"a", b" ", b"LOGIN", b"bob", b"secret", b'"', b"\\", b"{3}", b"{3+}", b"{0}", b"\r\n", b"\n", b"\r", b"\0",
     b"NOOP", b"AUTHENTICATE", b"PLAIN", b"=", b"*", b64("\0bob\0secret"), b"ID", b"(", b")", b"NIL", b"STARTTLS",
     b"\xc3\xbc", b"a LOGIN bob secret\r\n", b"b AUTHENTICATE LOGIN\r\n", b'c LOGIN "bob" "wr\\"ong"\r\n', b"}", b"+"]
)  # fmt: skip


@given(st.lists(words, max_size=40).map(b"".join), st.lists(st.integers(1, 9), min_size=1, max_size=9), st.booleans())
@settings(max_examples=250, deadline=None)
def test_any_split_of_anything(said: bytes, sizes: list[int], in_clear: bool) -> None:
    """Whatever a client says, it does not matter how it was cut into packets."""

    def machine() -> ImapFront:
        return clear() if in_clear else front()

    pieces = split_evenly(said, *sizes)
    wrong = turn_away(Refusal.WRONG_CREDENTIALS)
    assert play(machine(), pieces, wrong) == play(machine(), [said], wrong)
    assert play(machine(), pieces) == play(machine(), [said])


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_noise_is_answered_in_whole_lines(said: bytes) -> None:
    """Noise breaks nothing; answers are lines of printable ASCII."""
    written, _, _ = play(front(), [said], turn_away(Refusal.WRONG_CREDENTIALS))
    assert not written or written.endswith(b"\r\n")
    assert all(32 <= c < 127 for line in written.split(b"\r\n") for c in line)


def test_greeting_tells_what_capability_tells() -> None:
    """One source for the list, before and after STARTTLS."""
    machine = clear(banner=b"[Contoso]\r\nx")
    assert machine.greeting() == b"* OK [CAPABILITY " + CAPABILITIES + b" STARTTLS LOGINDISABLED] Contoso]??x\r\n"
    assert play(machine, [b"a STARTTLS\r\n"])[1] == [StartTls()]
    assert machine.tls_started() == []
    assert machine.greeting().startswith(b"* OK [CAPABILITY " + CAPABILITIES + PASSWORDS + b"] ")


def test_nothing_said_in_clear_survives_starttls() -> None:
    """Pipelined bytes are dropped, whether they came with STARTTLS or later; the ID is forgotten (field case 79)."""
    machine = clear()
    play(machine, [b'a ID ("name" "x")\r\nb STARTTLS\r\nc LOGIN bob', b" secret\r\n"])
    assert machine.client_id == (("name", "x"),)
    machine.tls_started()
    assert (machine.client_id, machine.buffered) == ((), 0)
    assert play(machine, [b"d LOGIN bob secret\r\n"]) == (b"d" + WELCOME, [BOB], b"")


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        (b"a ID NIL\r\n", ()),
        (b"a ID ()\r\n", ()),
        (b'a ID ("name" "Mail")\r\n', (("name", "Mail"),)),
        (b'a ID ( "name" "Mail" )\r\n', (("name", "Mail"),)),
        (b'a ID ("name" NIL "os" "\\"x\\"")\r\n', (("os", '"x"'),)),
        (b'a ID ({4}\r\nname {4+}\r\nMail "nil" "NIL")\r\n', (("name", "Mail"), ("nil", "NIL"))),
        (
            b"a ID (" + b" ".join(b'"k%d" "v"' % i for i in range(30)) + b")\r\n",
            tuple((f"k{i}", "v") for i in range(30)),
        ),
        (b'a ID ("k" "' + b"v" * 1024 + b'")\r\n', (("k", "v" * 1024),)),
        (b'a ID ("name" "\xfc")\r\n', (("name", "\ufffd"),)),
    ],
)
def test_id_fields(said: bytes, fields: tuple[tuple[str, str], ...]) -> None:
    """Every form of parameter list is understood (RFC 2971)."""
    machine = front()
    assert play(machine, [said])[0].endswith(b"a OK ID noted\r\n")
    assert machine.client_id == fields


@pytest.mark.parametrize(
    "parameters",
    [
        b"x",
        b"(",
        b'("name")',
        b'("name" "x"',
        b"(name x)",
        b'("a" "1" "A" "2")',
        b'("' + b"k" * 31 + b'" "v")',
        b'("k" "' + b"v" * 1025 + b'")',
        b"(" + b" ".join(b'"k%d" "v"' % i for i in range(31)) + b")",
        b'("k" {3+}\r\n1\r\n)',
        b'("k" "v") x',
    ],
)
def test_bad_id_parameters(parameters: bytes) -> None:
    """Out of form or out of bounds: BAD, and the fields before stay."""
    machine = front()
    play(machine, [b'a ID ("name" "Mail")\r\n'])
    assert play(machine, [b"b ID " + parameters + b"\r\n"])[0].startswith(b"b BAD ")
    assert machine.client_id == (("name", "Mail"),)


@pytest.mark.parametrize(
    ("refusal", "text", "server", "answer"),
    [
        (
            Refusal.UNAVAILABLE,
            "",
            "",
            b"[UNAVAILABLE] The mailbox cannot be reached at the moment. Please try again later.",
        ),
        (Refusal.UNAVAILABLE, "Come\r\nback", "", b"[UNAVAILABLE] Come??back"),
        (Refusal.PROTOCOL_NOT_ALLOWED, "", "", b"[AUTHORIZATIONFAILED] IMAP is not allowed for this account."),
        (Refusal.IN_USE, "", "", b"[INUSE] The mailbox is in use by another session."),
        (Refusal.LIMIT, "", "", b"[LIMIT] Too many sessions of this user."),
        (Refusal.OTHER_SERVER, "Please use MBX-02.", "", b"[CONTACTADMIN] Please use MBX-02."),
        (
            Refusal.OTHER_SERVER,
            "",
            "mbx-02.contoso.com",
            b"[REFERRAL imap://b%5Do%20b%40x;AUTH=*@mbx-02.contoso.com/] This mailbox is served by mbx-02.contoso.com.",
        ),
        (Refusal.OTHER_SERVER, "", "evil]\r\n", b"[CONTACTADMIN] This mailbox is served by another server."),
    ],
)
def test_refusals(refusal: Refusal, text: str, server: str, answer: bytes) -> None:
    """Each refusal has its response code; none of these counts as a wrong password (RFC 5530, RFC 2221)."""
    machine = front(sign_in_attempts=1)
    written, events, _ = play(machine, [b'a LOGIN "b]o b@x" secret\r\nb NOOP\r\n'], turn_away(refusal, text, server))
    assert written == b"a NO " + answer + b"\r\nb OK Nothing done\r\n"
    assert events == [Credentials("LOGIN", "b]o b@x", password="secret")]


@pytest.mark.parametrize("sign", ["\x80", "\x9b", "\u061c", "\u200e", "\u2028", "\u202e", "\u2066"])
def test_a_servers_words_steer_no_terminal(sign: str) -> None:
    """C1 controls and marks that turn the direction of writing are replaced; what is left is the user's language."""
    said = f"Grüße{sign}31m 收件箱".encode()
    assert human(said, 100, b"") == "Grüße?31m 收件箱".encode()
    machine = front()
    machine.receive(b"a LOGIN b c\r\n")
    assert machine.signed_in(None, said) == "a OK Grüße?31m 收件箱\r\n".encode()


def test_busy_sounds_temporary_and_counts_as_an_attempt() -> None:
    """Whoever guesses faster than passwords are checked is closed like any other guesser."""
    written, events, _ = play(front(sign_in_attempts=2), [b"a LOGIN b c\r\n" * 3], turn_away(Refusal.BUSY))
    answer = b"a NO [UNAVAILABLE] Too many sign-ins at the moment. Please try again later.\r\n"
    assert written == answer * 2 + b"* BYE Too many failed sign-ins\r\n"
    assert events[-1] == Close("too many failed sign-ins")


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "OAUTHBEARER"])
@pytest.mark.parametrize("dismissal", [b"\r\n", b"AQ==\r\n", b"*\r\n"])
def test_refused_token_is_told_by_a_challenge(mechanism: str, dismissal: bytes) -> None:
    """The error goes in a challenge, the client owes one line, then comes the tagged NO (RFC 7628 section 3.2.3)."""
    machine = front()
    message = b64(XOAUTH2_BOB if mechanism == "XOAUTH2" else BEARER_BOB)
    line = b"a AUTHENTICATE %s %s\r\n" % (mechanism.encode(), message)
    written, _, _ = play(machine, [line], turn_away(Refusal.WRONG_CREDENTIALS))
    assert written.startswith(b"+ ")
    assert written.count(b"\r\n") == 1
    assert b'"status"' in base64.b64decode(written[2:-2], validate=True)
    answer, _, _ = play(machine, [dismissal + b"b NOOP\r\n"])
    assert answer == b"a NO [AUTHENTICATIONFAILED] Wrong user name or password.\r\nb OK Nothing done\r\n"


def test_token_refused_for_a_temporary_fault_gets_no_challenge() -> None:
    """Only wrong credentials are told by the error challenge."""
    line = b"a AUTHENTICATE XOAUTH2 " + b64(XOAUTH2_BOB) + b"\r\n"
    assert play(front(), [line], turn_away(Refusal.UNAVAILABLE))[0].startswith(b"a NO [UNAVAILABLE] ")


@pytest.mark.parametrize("form", ["initial response", "continuation"])
def test_long_tokens(form: str) -> None:
    """A token of 12288 bytes is taken in both forms (field case 53)."""
    token = "t" * 12288
    message = b64(f"user=bob@contoso.com\x01auth=Bearer {token}\x01\x01")
    between = b" " if form == "initial response" else b"\r\n"
    _, events, _ = play(front(), [b"a AUTHENTICATE XOAUTH2" + between + message + b"\r\n"])
    assert events == [Credentials("XOAUTH2", "bob@contoso.com", token=token)]


@pytest.mark.parametrize("plus", [b"", b"+"])
def test_literals_up_to_their_bound(plus: bytes) -> None:
    """Two literals of the greatest size make a sign-in."""
    name, password = b"n" * MAX_LITERAL, b"p" * MAX_LITERAL
    said = b"a LOGIN {%d%b}\r\n%b {%d%b}\r\n%b\r\n" % (MAX_LITERAL, plus, name, MAX_LITERAL, plus, password)
    _, events, _ = play(front(), [said])
    assert events == [Credentials("LOGIN", name.decode(), password=password.decode())]


def test_literals_count_towards_the_command() -> None:
    """Many literals of allowed size do not make an endless command."""
    said = b"a ID (" + b"".join(b"{%d+}\r\n%b " % (MAX_LITERAL, b"x" * MAX_LITERAL) for _ in range(3)) + b")\r\n"
    written, events, _ = play(front(), [said])
    assert (written, events) == (b"a BAD Literal too large\r\n", [Close("literal too large")])


def test_good_commands_are_counted_too() -> None:
    """A client that never signs in cannot make us write for ever."""
    written, events, _ = play(front(), [b"a NOOP\r\n" * (MAX_COMMANDS + 5)])
    assert events == [Close("too many commands")]
    assert written.count(b"\r\n") == MAX_COMMANDS + 1


def test_parked_machine_only_buffers() -> None:
    """While a sign-in is judged nothing is answered, and the driver sees how much is kept."""
    machine = front()
    machine.receive(b"a LOGIN bob secret\r\nb NO")
    assert machine.receive(b"OP\r\n") == []
    assert machine.buffered == len(b"b NOOP\r\n")
    machine.signed_in(None, b"ok")
    assert machine.rest == b"b NOOP\r\n"


def test_signed_in_text_and_capabilities_are_cleaned() -> None:
    """A mailbox server's words cannot break out of the line, nor pass for a response code."""
    machine = front()
    machine.receive(b"a LOGIN bob secret\r\n")
    assert machine.signed_in(b"IMAP4rev1 X]\r\nb X-\xff IDLE", b"[ALERT] x\r\n* BYE") == (
        b"a OK [CAPABILITY IMAP4rev1 b IDLE] ALERT] x??* BYE\r\n"
    )
    machine = front()
    machine.receive(b"a LOGIN bob secret\r\n")
    assert machine.signed_in(None, b"") == b"a OK Signed in\r\n"


def test_bye_ends_the_dialogue() -> None:
    """After BYE nothing is answered any more."""
    machine = front()
    assert machine.bye("Too\r\nslow") == b"* BYE Too??slow\r\n"
    assert machine.receive(b"a NOOP\r\n") == []


def test_secrets_are_in_no_repr() -> None:
    """Events may be logged."""
    events = front().receive(b"a LOGIN bob s3cr3t\r\n")
    assert "s3cr3t" not in repr(events)
    assert "bob" in repr(events)


def test_aborted_exchanges_leave_nothing_behind() -> None:
    """Aborting at every step, again and again, keeps memory flat (field case 65)."""
    said = (
        b"a AUTHENTICATE LOGIN\r\n"
        + b64("x" * 5000)
        + b"\r\n*\r\nb AUTHENTICATE PLAIN\r\n*\r\nc AUTHENTICATE XOAUTH2\r\n*\r\n"
    )
    machine = front(bad_commands=10**9)
    for _ in range(50):
        machine.receive(said)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(250):
        machine.receive(said)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 4096
    assert machine.buffered == 0
