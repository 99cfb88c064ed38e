"""The submission dialogue with a client up to its sign-in, in whatever pieces it comes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire import submission_front
from gatepost.wire.events import Close, Credentials, FrontEvent, Refusal, Send, SignIn, StartTls
from gatepost.wire.submission_front import MAX_COMMANDS, SubmissionFront

NAME = "mail.contoso.com"
PLAIN = base64.b64encode(b"\0alice\0secret-apw")


def front(**changes: Any) -> SubmissionFront:
    """Within TLS, unless changed."""
    settings: dict[str, Any] = {
        "tls": True,
        "starttls": False,
        "clear_passwords": False,
        "bearer": True,
        "bad_commands": 10,
        "sign_in_attempts": 3,
        "name": NAME,
    }
    return SubmissionFront(**(settings | changes))


def said(events: list[FrontEvent]) -> bytes:
    """All that is sent."""
    return b"".join(event.data for event in events if isinstance(event, Send))


def others(events: list[FrontEvent]) -> list[FrontEvent]:
    """Everything else."""
    return [event for event in events if not isinstance(event, Send)]


def ask(machine: SubmissionFront, line: bytes) -> bytes:
    """One line; its answer."""
    return said(machine.receive(line + b"\r\n"))


def named(**changes: Any) -> SubmissionFront:
    """One that has heard EHLO."""
    machine = front(**changes)
    machine.receive(b"EHLO laptop.fabrikam.com\r\n")
    return machine


def test_greeting_and_ehlo() -> None:
    """What every server of today has, and how to sign in; no number with SIZE, since nobody knows the server yet."""
    machine = front()
    assert machine.greeting() == b"220 mail.contoso.com ESMTP ready\r\n"
    assert ask(machine, b"EHLO laptop.fabrikam.com").split(b"\r\n")[:-1] == [
        b"250-mail.contoso.com",
        b"250-PIPELINING",
        b"250-SIZE",
        b"250-8BITMIME",
        b"250-ENHANCEDSTATUSCODES",
        b"250 AUTH PLAIN LOGIN XOAUTH2 OAUTHBEARER",
    ]
    assert machine.helo == "laptop.fabrikam.com"
    assert ask(machine, b"HELO other") == b"250 mail.contoso.com\r\n"
    assert machine.helo == "other"


def test_in_clear_only_starttls_is_offered() -> None:
    """AUTH neither offered nor taken; mail is refused with the way out (RFC 3207 section 4)."""
    machine = named(tls=False, starttls=True, bearer=False)
    answer = ask(machine, b"EHLO x")
    assert b"STARTTLS" in answer
    assert b"AUTH" not in answer
    assert ask(machine, b"AUTH PLAIN " + PLAIN) == b"530 5.7.0 Must issue a STARTTLS command first\r\n"
    assert ask(machine, b"MAIL FROM:<a@b>") == b"530 5.7.0 Must issue a STARTTLS command first\r\n"
    nowhere = named(tls=False)
    assert ask(nowhere, b"AUTH PLAIN " + PLAIN).startswith(b"538 5.7.11 ")


@pytest.mark.parametrize(
    "line", [b"MAIL FROM:<a@b>", b"rcpt to:<a@b>", b"DATA", b"VRFY a", b"EXPN a", b"HELP", b"ETRN a", b"BURL x"]
)
def test_nothing_before_the_sign_in(line: bytes) -> None:
    """RFC 4954 section 6: 530 5.7.0."""
    assert ask(named(), line) == b"530 5.7.0 Authentication required\r\n"


def test_bdat_before_the_sign_in_ends_the_connection() -> None:
    """The octets that follow are a message's, and could be read as commands."""
    events = named().receive(b"BDAT 30\r\nAUTH PLAIN " + PLAIN + b"\r\n")
    assert said(events) == b"530 5.7.0 Authentication required\r\n"
    assert others(events) == [Close("BDAT before the sign-in")]


def test_plain_with_and_without_initial_response() -> None:
    """Both, and what follows is kept for the server."""
    expected = [SignIn(Credentials("PLAIN", "alice", password="secret-apw"))]
    machine = named()
    assert others(machine.receive(b"auth plain " + PLAIN + b"\r\nMAIL FROM:<a@b>\r\n")) == expected
    assert machine.signed_in(None, b"") == b"235 2.7.0 Authentication successful\r\n"
    assert machine.rest == b"MAIL FROM:<a@b>\r\n"
    assert machine.receive(b"RCPT") == []
    assert machine.rest == b"MAIL FROM:<a@b>\r\nRCPT"
    machine = named()
    assert ask(machine, b"AUTH PLAIN") == b"334 \r\n"
    assert others(machine.receive(PLAIN + b"\r\n")) == expected


@pytest.mark.parametrize("initial", [b"", b" " + base64.b64encode(b"alice")])
def test_login(initial: bytes) -> None:
    """Asked for by the words that clients look for."""
    machine = named()
    answer = ask(machine, b"AUTH LOGIN" + initial)
    if not initial:
        assert answer == b"334 VXNlcm5hbWU6\r\n"
        answer = ask(machine, base64.b64encode(b"alice"))
    assert answer == b"334 UGFzc3dvcmQ6\r\n"
    expected = [SignIn(Credentials("LOGIN", "alice", password="secret-apw"))]
    assert machine.receive(base64.b64encode(b"secret-apw") + b"\r\n") == expected


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "OAUTHBEARER"])
def test_bearer_tokens(mechanism: str) -> None:
    """Up to 12 KiB in one line (field case 53); the error is told in a challenge before the 535 (RFC 7628)."""
    token = "t" * 12288
    message = f"user=alice\x01auth=Bearer {token}\x01\x01"
    if mechanism == "OAUTHBEARER":
        message = f"n,a=alice,\x01auth=Bearer {token}\x01\x01"
    machine = named()
    line = f"AUTH {mechanism} ".encode() + base64.b64encode(message.encode()) + b"\r\n"
    assert machine.receive(line) == [SignIn(Credentials(mechanism, "alice", token=token))]
    challenge = said(machine.refuse(Refusal.WRONG_CREDENTIALS))
    assert challenge.startswith(b"334 ")
    assert b"schemes" in base64.b64decode(challenge[4:])
    assert ask(machine, b"").startswith(b"535 5.7.8 ")
    assert ask(machine, b"NOOP") == b"250 2.0.0 Ok\r\n"


def test_bearer_is_not_offered_without_a_verifier() -> None:
    """504, not a wrong token."""
    machine = named(bearer=False)
    assert b"XOAUTH2" not in ask(machine, b"EHLO x")
    assert ask(machine, b"AUTH XOAUTH2 x").startswith(b"504 5.5.4 ")


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (Refusal.WRONG_CREDENTIALS, b"535 5.7.8 Authentication credentials invalid\r\n"),
        (Refusal.UNAVAILABLE, b"454 4.7.0 "),
        (Refusal.BUSY, b"454 4.7.0 "),
        (Refusal.LIMIT, b"454 4.7.0 "),
        (Refusal.IN_USE, b"454 4.7.0 "),
        (Refusal.PROTOCOL_NOT_ALLOWED, b"525 5.7.13 "),
        (Refusal.OTHER_SERVER, b"550 5.7.1 "),
    ],
)
def test_only_wrong_credentials_are_535(refusal: Refusal, answer: bytes) -> None:
    """Field cases 111 and 112: a client would ask its user for another password."""
    machine = named()
    machine.receive(b"AUTH PLAIN " + PLAIN + b"\r\n")
    assert said(machine.refuse(refusal)).startswith(answer)
    assert ask(machine, b"NOOP") == b"250 2.0.0 Ok\r\n"


def test_words_of_a_refusal_are_one_line() -> None:
    """What the decision says is shown, never more than a line of ASCII."""
    machine = named()
    machine.receive(b"AUTH PLAIN " + PLAIN + b"\r\n")
    text = "use mail.asia.contoso.com\r\n250 ok \u00e4"
    assert said(machine.refuse(Refusal.OTHER_SERVER, text)) == b"550 5.7.1 use mail.asia.contoso.com??250 ok ?\r\n"


def test_attempts_and_bad_commands_are_counted() -> None:
    """Field cases 106 and 110."""
    machine = named(sign_in_attempts=2)
    machine.receive(b"AUTH PLAIN " + PLAIN + b"\r\n")
    machine.refuse(Refusal.UNAVAILABLE)
    for refusal in (Refusal.BUSY, Refusal.WRONG_CREDENTIALS):
        machine.receive(b"AUTH PLAIN " + PLAIN + b"\r\n")
        events = machine.refuse(refusal)
    assert others(events) == [Close("too many refused sign-ins")]
    machine = named(bad_commands=3)
    events = machine.receive(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: y\r\nAUTH PLAIN " + PLAIN + b"\r\n")
    assert others(events) == [Close("too many bad commands")]
    assert said(events).splitlines()[-1].startswith(b"421 4.7.0 ")
    machine = front()
    events = machine.receive(b"NOOP\r\n" * (MAX_COMMANDS + 1))
    assert others(events) == [Close("too many commands")]


def test_what_was_said_in_clear_is_forgotten_by_tls() -> None:
    """Field case 79: nothing behind STARTTLS is obeyed, and EHLO has to be said again (RFC 3207 section 4.2)."""
    machine = named(tls=False, starttls=True)
    events = machine.receive(b"STARTTLS\r\nAUTH PLAIN " + PLAIN + b"\r\n")
    assert events[1:] == [StartTls()]
    assert said(events) == b"220 2.0.0 Ready to start TLS\r\n"
    assert machine.receive(b"AUTH PLAIN " + PLAIN + b"\r\n") == []
    assert machine.tls_started() == []
    assert ask(machine, b"AUTH PLAIN " + PLAIN) == b"503 5.5.1 Send EHLO first\r\n"
    assert b"STARTTLS" not in ask(machine, b"EHLO x")
    assert ask(machine, b"STARTTLS").startswith(b"503 5.5.1 ")
    assert ask(named(tls=False, starttls=True), b"STARTTLS now").startswith(b"501 ")


@pytest.mark.parametrize("bad", [b"!", b"=", base64.b64encode(b"\0alice"), base64.b64encode(b"\0a\0b\r\nQUIT")])
def test_a_response_that_is_none_is_a_fault_of_syntax(bad: bytes) -> None:
    """501, not 535 (field case 60)."""
    assert ask(named(), b"AUTH PLAIN " + bad).startswith(b"501 5.5.2 ")
    machine = named()
    machine.receive(b"AUTH PLAIN\r\n")
    assert ask(machine, b"*").startswith(b"501 5.7.0 ")


def test_lines_have_bounds() -> None:
    """Commands 2 KiB, responses as long as tokens are."""
    assert others(named().receive(b"x" * submission_front.MAX_LINE)) == [Close("line too long")]
    machine = named()
    assert others(machine.receive(b"AUTH PLAIN " + b"x" * 20000)) == []
    assert others(machine.receive(b"x" * 2000)) == [Close("line too long")]


def test_names_of_users_programs_are_taken_as_they_are() -> None:
    """They are only refused when there is none."""
    for name in (b"[::1]", b"my_pc", "b\u00fcro".encode(), b"Anna's laptop"):
        assert b"250-" in ask(front(), b"EHLO " + name)
    assert ask(front(), b"EHLO").startswith(b"501 5.5.4 ")


def test_xclient_is_not_believed() -> None:
    """Who the client is comes from the connection; only the count of front ends may go down, to end a loop (C11)."""
    machine = named()
    assert b"XCLIENT" not in ask(machine, b"EHLO x")
    assert ask(machine, b"XCLIENT ADDR=192.0.2.1 LOGIN=bob").startswith(b"500 ")
    assert ask(machine, b"XCLIENT TTL=2") == machine.greeting()
    assert (machine.ttl, machine.helo) == (2, "")
    machine.receive(b"XCLIENT TTL=200\r\n")
    assert machine.ttl == 2


def test_goodbyes() -> None:
    """By the client, and by us."""
    events = named().receive(b"QUIT\r\nNOOP\r\n")
    assert (said(events), others(events)) == (b"221 2.0.0 Goodbye\r\n", [Close("quit")])
    machine = named()
    assert machine.bye("going down") == b"421 4.3.2 going down\r\n"
    assert machine.receive(b"NOOP\r\n") == []


LINES = [
    b"EHLO x", b"HELO y", b"NOOP", b"RSET", b"MAIL FROM:<a@b>", b"AUTH PLAIN " + PLAIN, b"AUTH PLAIN", PLAIN,
    b"AUTH LOGIN", base64.b64encode(b"alice"), b"*", b"QUIT", b"STARTTLS", b"nonsense", b"", b"BDAT 5",
    b"XCLIENT TTL=3", b"AUTH OAUTHBEARER " + base64.b64encode(b"n,a=alice,\x01auth=Bearer t\x01\x01"),
]  # fmt: skip


@given(
    st.lists(st.sampled_from(LINES), max_size=12),
    st.lists(st.integers(0, 400), max_size=6),
    st.sampled_from([True, False]),
    st.sampled_from(list(Refusal)),
)
def test_any_split_gives_the_same(lines: list[bytes], cuts: list[int], tls: bool, refusal: Refusal) -> None:
    """Output and events, with every sign-in refused."""
    data = b"".join(line + b"\r\n" for line in lines)

    def play(pieces: list[bytes]) -> tuple[bytes, list[FrontEvent]]:
        machine = front(tls=tls, starttls=True, clear_passwords=not tls)
        output, seen = b"", []
        for piece in pieces:
            events = machine.receive(piece)
            while events:
                output += said(events)
                seen += others(events)
                events = machine.refuse(refusal) if isinstance(events[-1], SignIn) else []
        return output, seen

    places = sorted({min(cut, len(data)) for cut in cuts})
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    assert play(pieces) == play([data])
