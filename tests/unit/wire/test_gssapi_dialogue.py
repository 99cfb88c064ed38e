"""SASL GSSAPI at all machines that sign clients in: tokens out, challenges in, whatever the packets."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.organization.transport import PermissionGroup, ReceiveAuthentication, ReceiveConnector
from gatepost.wire.events import Close, GssToken, Refusal, Send
from gatepost.wire.imap_front import ImapFront
from gatepost.wire.pop3_front import Pop3Front
from gatepost.wire.sasl import MAX_GSS_RESPONSE
from gatepost.wire.smtp_server import SmtpServer
from gatepost.wire.submission_front import SubmissionFront

Machine = ImapFront | Pop3Front | SubmissionFront | SmtpServer
TOKENS = (b"first token", b"", b"the layer")
LIMITS: dict[str, Any] = {"bad_commands": 5, "sign_in_attempts": 3, "bearer": False}


def _hub(kerberos: bool, tls: bool) -> SmtpServer:
    how = frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.KERBEROS})
    connector = ReceiveConnector(
        "Client", "HUB-01", (), permission_groups=frozenset({PermissionGroup.USERS}), authentication=how
    )
    server = SmtpServer(connector, "hub.contoso.com", None, tls=tls, sign_in=True, kerberos=kerberos)  # type: ignore[arg-type]
    server.greet()
    return server


MAKERS: dict[str, Callable[[bool, bool], Machine]] = {
    "imap": lambda kerberos, tls: ImapFront(tls=tls, starttls=True, clear_passwords=False, kerberos=kerberos, **LIMITS),
    "pop3": lambda kerberos, tls: Pop3Front(tls=tls, starttls=True, clear_passwords=False, kerberos=kerberos, **LIMITS),
    "submission": lambda kerberos, tls: SubmissionFront(
        tls=tls, starttls=True, clear_passwords=False, kerberos=kerberos, name="mail.contoso.com", **LIMITS
    ),
    "hub": _hub,
}
WORDS = {
    "imap": (b"a CAPABILITY\r\n", b"b AUTHENTICATE GSSAPI"),
    "pop3": (b"CAPA\r\n", b"AUTH GSSAPI"),
    "submission": (b"EHLO client.contoso.com\r\n", b"AUTH GSSAPI"),
    "hub": (b"EHLO client.contoso.com\r\n", b"AUTH GSSAPI"),
}
each = pytest.mark.parametrize("kind", MAKERS)


def _line(token: bytes) -> bytes:
    return base64.b64encode(token) + b"\r\n"


def _said(events: list[Any]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Send))


def _greeted(kind: str, *, kerberos: bool = True, tls: bool = True) -> tuple[Machine, bytes]:
    machine = MAKERS[kind](kerberos, tls)
    return machine, _said(list(machine.receive(WORDS[kind][0])))


def _play(kind: str, pieces: list[bytes], *, initial: bool) -> tuple[bytes, list[GssToken]]:
    """What was written, and the tokens; each is answered with a challenge until the last, which is refused."""
    machine, written = _greeted(kind)
    tokens: list[GssToken] = []
    for piece in pieces:
        events = list(machine.receive(piece))
        while events:
            written += _said(events)
            found = [event for event in events if isinstance(event, GssToken)]
            assert len(found) <= 1
            tokens += found
            events = []
            if found:
                last = len(tokens) == len(TOKENS)
                events = list(
                    machine.refuse(Refusal.UNAVAILABLE) if last else machine.challenge(b"answer %d" % len(tokens))
                )
    return written, tokens


@each
def test_it_is_offered_only_where_it_is_configured(kind: str) -> None:
    assert b"GSSAPI" in _greeted(kind)[1]
    assert b"GSSAPI" not in _greeted(kind, kerberos=False)[1]
    machine, _ = _greeted(kind, kerberos=False)
    events = list(machine.receive(WORDS[kind][1] + b"\r\n"))
    assert not [event for event in events if isinstance(event, GssToken)]
    assert _said(events)[:1] in b"b-5"  # NO, -ERR or 5xx


@each
def test_it_is_not_offered_in_clear(kind: str) -> None:
    """No security layer is negotiated: TLS protects what follows."""
    assert b"GSSAPI" not in _greeted(kind, tls=False)[1]


@each
@pytest.mark.parametrize("initial", [True, False])
def test_the_tokens_of_an_exchange(kind: str, initial: bool) -> None:
    first = b" " + _line(TOKENS[0]) if initial else b"\r\n" + _line(TOKENS[0])
    whole = [WORDS[kind][1] + first, _line(TOKENS[1]), _line(TOKENS[2])]
    written, tokens = _play(kind, whole, initial=initial)
    assert [(token.token, token.first) for token in tokens] == [
        (TOKENS[0], True),
        (TOKENS[1], False),
        (TOKENS[2], False),
    ]
    assert base64.b64encode(b"answer 1") in written
    assert base64.b64encode(b"answer 2") in written


@each
@given(st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_any_split_is_the_same(kind: str, sizes: list[int]) -> None:
    said = WORDS[kind][1] + b"\r\n" + b"".join(_line(token) for token in TOKENS)
    pieces, at, turn = [], 0, 0
    while at < len(said):
        pieces.append(said[at : at + sizes[turn % len(sizes)]])
        at, turn = at + sizes[turn % len(sizes)], turn + 1
    assert _play(kind, pieces, initial=False) == _play(kind, [said], initial=False)


@each
def test_a_client_gives_up_and_begins_anew(kind: str) -> None:
    machine, _ = _greeted(kind)
    begin = WORDS[kind][1] + b" " + _line(b"one")
    (token,) = [event for event in machine.receive(begin) if isinstance(event, GssToken)]
    machine.challenge(b"more")
    events = list(machine.receive(b"*\r\n"))
    assert not [event for event in events if isinstance(event, GssToken | Close)]
    (token,) = [event for event in machine.receive(begin) if isinstance(event, GssToken)]
    assert (token.token, token.first) == (b"one", True)


@each
def test_a_large_token_is_taken_and_a_larger_one_ends_the_connection(kind: str) -> None:
    """Tickets carry the groups of their user."""
    machine, _ = _greeted(kind)
    machine.receive(WORDS[kind][1] + b"\r\n")
    (token,) = [e for e in machine.receive(_line(b"x" * 65000)) if isinstance(e, GssToken)]
    assert len(token.token) == 65000
    machine, _ = _greeted(kind)
    machine.receive(WORDS[kind][1] + b"\r\n")
    events: list[Any] = []
    for _ in range(MAX_GSS_RESPONSE // 1000 + 3):
        events += machine.receive(b"x" * 1000)
    assert [event for event in events if isinstance(event, Close)]


@each
@pytest.mark.parametrize("line", [b"?\r\n", b"=\r\n", b"\r\n"])
def test_what_is_no_token_is_a_bad_response(kind: str, line: bytes) -> None:
    machine, _ = _greeted(kind)
    machine.receive(WORDS[kind][1] + b"\r\n")
    events = list(machine.receive(line))
    assert not [event for event in events if isinstance(event, GssToken)]
    assert _said(events)[:1] in b"b-5"
