"""Bearer tokens at all machines that sign clients in: the error in JSON, the dummy answer, whatever the packets."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.organization.transport import PermissionGroup, ReceiveAuthentication, ReceiveConnector
from gatepost.wire.events import Credentials, Refusal, Send, SignIn, TokenHelp
from gatepost.wire.imap_front import ImapFront
from gatepost.wire.pop3_front import Pop3Front
from gatepost.wire.sasl import bearer_message
from gatepost.wire.smtp_server import SmtpServer
from gatepost.wire.submission_front import SubmissionFront

Machine = ImapFront | Pop3Front | SubmissionFront | SmtpServer
HELP = TokenHelp("mail mail.imap", "https://id.contoso.com/.well-known/openid-configuration")
LIMITS: dict[str, Any] = {"bad_commands": 5, "sign_in_attempts": 3, "clear_passwords": False, "starttls": True}


def _hub(bearer: bool, tls: bool) -> SmtpServer:
    how = frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.BASIC})
    connector = ReceiveConnector(
        "Client", "HUB-01", (), permission_groups=frozenset({PermissionGroup.USERS}), authentication=how,
        tarpit_seconds=0,
    )  # fmt: skip
    help_ = HELP if bearer else None
    server = SmtpServer(connector, "hub.contoso.com", None, tls=tls, sign_in=True, tokens=help_)  # type: ignore[arg-type]
    server.greet()
    server.receive(b"EHLO client.contoso.com\r\n")
    return server


MAKERS: dict[str, Callable[[bool, bool], Machine]] = {
    "imap": lambda bearer, tls: ImapFront(tls=tls, bearer=bearer, token_help=HELP, **LIMITS),
    "pop3": lambda bearer, tls: Pop3Front(tls=tls, bearer=bearer, token_help=HELP, **LIMITS),
    "submission": lambda bearer, tls: SubmissionFront(
        tls=tls, bearer=bearer, token_help=HELP, name="mail.contoso.com", **LIMITS
    ),
    "hub": _hub,
}
AUTH = {"imap": b"a AUTHENTICATE ", "pop3": b"AUTH ", "submission": b"AUTH ", "hub": b"AUTH "}
CHALLENGE = {"imap": b"+ ", "pop3": b"+ ", "submission": b"334 ", "hub": b"334 "}
WRONG = {"imap": b"a NO [AUTHENTICATIONFAILED]", "pop3": b"-ERR [AUTH]", "submission": b"535 ", "hub": b"535 "}
LATER = {"imap": b"a NO [UNAVAILABLE]", "pop3": b"-ERR [SYS/TEMP]", "submission": b"454 ", "hub": b"454 "}
DUMMY = {"XOAUTH2": b"\r\n", "OAUTHBEARER": b"AQ==\r\n"}

each = pytest.mark.parametrize("kind", MAKERS)
both = pytest.mark.parametrize("mechanism", DUMMY)


def _said(events: list[Any]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Send))


def _begin(kind: str, mechanism: str) -> bytes:
    message = base64.b64encode(bearer_message(mechanism, "anna@contoso.com", "a.b.c"))
    return AUTH[kind] + mechanism.encode() + b" " + message + b"\r\n"


def _greeted(kind: str, *, bearer: bool = True, tls: bool = True) -> Machine:
    machine = MAKERS[kind](bearer, tls)
    if kind == "submission":
        machine.receive(b"EHLO client.contoso.com\r\n")
    return machine


def _shown(machine: Machine, kind: str, mechanism: str) -> None:
    (event,) = (event for event in machine.receive(_begin(kind, mechanism)) if isinstance(event, SignIn))
    assert event.credentials == Credentials(mechanism, "anna@contoso.com", token="a.b.c")


@each
@both
@pytest.mark.parametrize("refusal", [Refusal.WRONG_CREDENTIALS, Refusal.INSUFFICIENT_SCOPE])
def test_a_refused_token_is_told_in_json_and_then_refused(kind: str, mechanism: str, refusal: Refusal) -> None:
    """RFC 7628 section 3.2.2 and field case 56: status, scope, openid-configuration; then the client's dummy."""
    machine = _greeted(kind)
    _shown(machine, kind, mechanism)
    said = _said(machine.refuse(refusal))
    assert said.startswith(CHALLENGE[kind])
    told = json.loads(base64.b64decode(said.removeprefix(CHALLENGE[kind]).strip()))
    scope = refusal is Refusal.INSUFFICIENT_SCOPE
    statuses = {
        "OAUTHBEARER": "insufficient_scope" if scope else "invalid_token",
        "XOAUTH2": "403" if scope else "400",
    }
    assert told == {
        "status": statuses[mechanism],
        "schemes": "bearer",
        "scope": HELP.scope,
        "openid-configuration": HELP.openid_configuration,
    }
    assert _said(machine.receive(DUMMY[mechanism])).startswith(WRONG[kind])
    _shown(machine, kind, mechanism)


@each
@both
@pytest.mark.parametrize("refusal", [Refusal.UNAVAILABLE, Refusal.BUSY])
def test_a_temporary_fault_has_no_json(kind: str, mechanism: str, refusal: Refusal) -> None:
    """A client that hears of an error throws its token away."""
    machine = _greeted(kind)
    _shown(machine, kind, mechanism)
    assert _said(machine.refuse(refusal)).startswith(LATER[kind])
    _shown(machine, kind, mechanism)


@each
def test_tokens_are_offered_only_within_tls_and_where_they_are_judged(kind: str) -> None:
    ask = {"imap": b"x CAPABILITY\r\n", "pop3": b"CAPA\r\n", "submission": b"EHLO c\r\n", "hub": b"EHLO c\r\n"}[kind]
    for bearer, tls in [(True, True), (True, False), (False, True)]:
        said = _said(MAKERS[kind](bearer, tls).receive(ask))
        assert (b"OAUTHBEARER" in said) is (bearer and tls), said
        assert (b"XOAUTH2" in said) is (bearer and tls), said


@each
@both
@pytest.mark.parametrize(
    "rubbish", [b"", b"n,,\x01\x01", b"user=x\x01\x01", b"n,a=x,\x01auth=Basic x\x01\x01", b"\xff"]
)
def test_a_message_that_is_none_is_a_syntax_error(kind: str, mechanism: str, rubbish: bytes) -> None:
    machine = _greeted(kind)
    line = AUTH[kind] + mechanism.encode() + b" " + (base64.b64encode(rubbish) or b"=") + b"\r\n"
    events = machine.receive(line)
    assert not any(isinstance(event, SignIn) for event in events)
    assert not _said(events).startswith(WRONG[kind])


@pytest.mark.parametrize("kind", MAKERS)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), data=st.data())
def test_packets_make_no_difference(kind: str, cuts: list[int], data: st.DataObject) -> None:
    """A sign-in that is refused, and one that comes behind the dummy without waiting."""
    mechanism = data.draw(st.sampled_from(sorted(DUMMY)))
    octets = _begin(kind, mechanism) + DUMMY[mechanism] + _begin(kind, mechanism)

    def play(pieces: list[bytes]) -> bytes:
        machine, said = _greeted(kind), b""
        for piece in pieces:
            events = machine.receive(piece)
            while events:
                said += _said(events)
                asked = any(isinstance(event, SignIn) for event in events)
                events = machine.refuse(Refusal.WRONG_CREDENTIALS) if asked else []
        return said

    edges = sorted({0, len(octets), *(cut for cut in cuts if cut < len(octets))})
    assert play([octets[a:b] for a, b in pairwise(edges)]) == play([octets])
