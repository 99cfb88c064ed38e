"""SCRAM and EXTERNAL at all machines that sign clients in: messages out, challenges in, whatever the packets."""

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
from gatepost.wire.sasl import MAX_LED_RESPONSE
from gatepost.wire.smtp_server import SmtpServer
from gatepost.wire.submission_front import SubmissionFront

Machine = ImapFront | Pop3Front | SubmissionFront | SmtpServer
MESSAGES = (b"n,,n=user,r=nonce", b"c=biws,r=both,p=proof", b"")
LIMITS: dict[str, Any] = {"bad_commands": 5, "sign_in_attempts": 3, "bearer": False, "clear_passwords": False}
ALL = (b"SCRAM-SHA-256", b"SCRAM-SHA-256-PLUS", b"EXTERNAL")


def _hub(tls: bool) -> SmtpServer:
    how = frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.BASIC_REQUIRE_TLS})
    groups = frozenset({PermissionGroup.USERS})
    connector = ReceiveConnector("Client", "HUB-01", (), permission_groups=groups, authentication=how)
    server = SmtpServer(connector, "hub.contoso.com", None, tls=tls, sign_in=True, scram=True)  # type: ignore[arg-type]
    server.greet()
    return server


def _front(made: Any) -> Any:
    made.exchanges = ALL
    return made


MAKERS: dict[str, Callable[[bool], Machine]] = {
    "imap": lambda tls: _front(ImapFront(tls=tls, starttls=True, **LIMITS)),
    "pop3": lambda tls: _front(Pop3Front(tls=tls, starttls=True, **LIMITS)),
    "submission": lambda tls: _front(SubmissionFront(tls=tls, starttls=True, name="mail.contoso.com", **LIMITS)),
    "hub": _hub,
}
WORDS = {
    "imap": (b"a CAPABILITY\r\n", b"b AUTHENTICATE "),
    "pop3": (b"CAPA\r\n", b"AUTH "),
    "submission": (b"EHLO client.contoso.com\r\n", b"AUTH "),
    "hub": (b"EHLO client.contoso.com\r\n", b"AUTH "),
}
each = pytest.mark.parametrize("kind", MAKERS)
fronts = pytest.mark.parametrize("kind", ["imap", "pop3", "submission"])


def _line(message: bytes) -> bytes:
    return base64.b64encode(message) + b"\r\n"


def _said(events: list[Any]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Send))


def _greeted(kind: str, *, tls: bool = True) -> tuple[Machine, bytes]:
    machine = MAKERS[kind](tls)
    return machine, _said(list(machine.receive(WORDS[kind][0])))


def _play(kind: str, pieces: list[bytes]) -> tuple[bytes, list[GssToken]]:
    """What was written, and the messages; each is answered with a challenge until the last, which is refused."""
    machine, written = _greeted(kind)
    found: list[GssToken] = []
    for piece in pieces:
        events = list(machine.receive(piece))
        while events:
            written += _said(events)
            new = [event for event in events if isinstance(event, GssToken)]
            assert len(new) <= 1
            found += new
            events = []
            if new:
                last = len(found) == len(MESSAGES)
                refused = machine.refuse
                events = list(refused(Refusal.UNAVAILABLE) if last else machine.challenge(b"answer %d" % len(found)))
    return written, found


@each
def test_it_is_offered_within_tls_alone(kind: str) -> None:
    assert b"SCRAM-SHA-256" in _greeted(kind)[1]
    assert b"SCRAM-SHA-256" not in _greeted(kind, tls=False)[1]


@fronts
def test_what_is_not_offered_is_unknown(kind: str) -> None:
    machine, _ = _greeted(kind)
    machine.exchanges = ALL[:1]  # type: ignore[union-attr]
    events = list(machine.receive(WORDS[kind][1] + b"SCRAM-SHA-256-PLUS\r\n"))
    assert not [event for event in events if isinstance(event, GssToken)]


def test_a_hub_does_not_offer_it_where_it_takes_no_passwords() -> None:
    connector = ReceiveConnector("Internal", "HUB-01", (), permission_groups=frozenset({PermissionGroup.USERS}))
    server = SmtpServer(connector, "hub.contoso.com", None, tls=True, sign_in=True, scram=True)  # type: ignore[arg-type]
    server.greet()
    assert b"SCRAM" not in _said(list(server.receive(WORDS["hub"][0])))


@each
@pytest.mark.parametrize("initial", [True, False])
def test_the_messages_of_an_exchange(kind: str, initial: bool) -> None:
    begin = WORDS[kind][1] + b"SCRAM-SHA-256" + (b" " if initial else b"\r\n") + _line(MESSAGES[0])
    written, found = _play(kind, [begin, _line(MESSAGES[1]), _line(MESSAGES[2])])
    assert [(each.mechanism, each.token, each.first) for each in found] == [
        ("SCRAM-SHA-256", MESSAGES[0], True),
        ("SCRAM-SHA-256", MESSAGES[1], False),
        ("SCRAM-SHA-256", MESSAGES[2], False),
    ]
    assert base64.b64encode(b"answer 2") in written


@each
@given(st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_any_split_is_the_same(kind: str, sizes: list[int]) -> None:
    said = WORDS[kind][1] + b"SCRAM-SHA-256\r\n" + b"".join(map(_line, MESSAGES))
    whole = _play(kind, [said])
    pieces, at, turn = [], 0, 0
    while at < len(said):
        size = sizes[turn % len(sizes)]
        pieces.append(said[at : at + size])
        at, turn = at + size, turn + 1
    assert _play(kind, pieces) == whole


@fronts
@pytest.mark.parametrize("initial", [b" =\r\n", b"\r\n\r\n"])
def test_external_without_a_name(kind: str, initial: bytes) -> None:
    machine, _ = _greeted(kind)
    events = list(machine.receive(WORDS[kind][1] + b"EXTERNAL" + initial))
    (found,) = [event for event in events if isinstance(event, GssToken)]
    assert (found.mechanism, found.token, found.first) == ("EXTERNAL", b"", True)


@each
def test_a_message_that_is_too_long_is_refused(kind: str) -> None:
    machine, _ = _greeted(kind)
    machine.receive(WORDS[kind][1] + b"SCRAM-SHA-256\r\n")
    events = list(machine.receive(b"A" * (MAX_LED_RESPONSE + 4) + b"\r\n"))
    assert not [event for event in events if isinstance(event, GssToken)]
    assert _said(events) or [event for event in events if isinstance(event, Close)]


@each
def test_a_client_may_give_up(kind: str) -> None:
    machine, _ = _greeted(kind)
    (found,) = [
        event
        for event in machine.receive(WORDS[kind][1] + b"SCRAM-SHA-256 " + _line(MESSAGES[0]))
        if isinstance(event, GssToken)
    ]
    assert found.first
    machine.challenge(b"answer")
    events = list(machine.receive(b"*\r\n"))
    assert _said(events)
    again = list(machine.receive(WORDS[kind][1] + b"SCRAM-SHA-256 " + _line(MESSAGES[0])))
    assert [event.first for event in again if isinstance(event, GssToken)] == [True]
