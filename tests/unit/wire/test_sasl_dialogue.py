"""Signing in at a mailbox server by a mechanism with challenges (GSSAPI): IMAP, POP3, submission."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatepost.wire.events import BackEvent, BackSignIn, BadChallenge, Failed, FailureKind, Send, SignedIn
from gatepost.wire.imap_back import ImapBack
from gatepost.wire.pop3_back import Pop3Back
from gatepost.wire.submission_back import SubmissionBack

Back = ImapBack | Pop3Back | SubmissionBack


class Dialogue:
    """Says `token`, nothing, `choice`; wants to hear nothing, `proof`, `offer`."""

    def __init__(self) -> None:
        self.heard = [b"", b"proof", b"offer"]
        self.said = [b"token " + b"x" * 600, b"", b"choice"]

    @property
    def complete(self) -> bool:
        return not self.said

    def respond(self, challenge: bytes) -> bytes:
        if not self.heard or challenge != self.heard.pop(0):
            raise BadChallenge("not the server that it should be")
        return self.said.pop(0)


def b64(data: bytes) -> bytes:
    return base64.b64encode(data)


TOKEN, CHOICE = b64(b"token " + b"x" * 600), b64(b"choice")
PROOF, OFFER = b64(b"proof"), b64(b"offer")
IMAP = b"* OK ready\r\n+ \r\n+ %b\r\n+ %b\r\ngate1 OK [CAPABILITY IMAP4rev1] in\r\n" % (PROOF, OFFER)
POP3 = b"+OK ready\r\n+ \r\n+ %b\r\n+ %b\r\n+OK in\r\n" % (PROOF, OFFER)
SMTP = b"220 ready\r\n250-x\r\n250 AUTH GSSAPI\r\n334 \r\n334 %b\r\n334 %b\r\n235 in\r\n250 x\r\n" % (PROOF, OFFER)
SENT = {
    ImapBack: b"gate1 AUTHENTICATE GSSAPI\r\n%b\r\n\r\n%b\r\n" % (TOKEN, CHOICE),
    Pop3Back: b"AUTH GSSAPI\r\n%b\r\n\r\n%b\r\n" % (TOKEN, CHOICE),
    SubmissionBack: b"EHLO c.example\r\nAUTH GSSAPI\r\n%b\r\n\r\n%b\r\nEHLO c.example\r\n" % (TOKEN, CHOICE),
}
KINDS: list[tuple[type[Back], bytes]] = [(ImapBack, IMAP), (Pop3Back, POP3), (SubmissionBack, SMTP)]


def play(kind: type[Back], server: bytes, cuts: list[int]) -> tuple[bytes, list[BackEvent]]:
    back = kind(BackSignIn("GSSAPI", "alice", helo="c.example", dialogue=Dialogue()))
    events = back.connected()
    places = sorted({0, len(server), *(cut % (len(server) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        events += back.receive(server[start:end])
    sent = b"".join(event.data for event in events if isinstance(event, Send))
    return sent, [event for event in events if not isinstance(event, Send)]


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 300), max_size=12), which=st.sampled_from(KINDS))
def test_each_protocol_carries_it_however_the_servers_words_are_split(
    cuts: list[int], which: tuple[type[Back], bytes]
) -> None:
    kind, server = which
    sent, events = play(kind, server, cuts)
    assert sent == SENT[kind]
    assert [type(event) for event in events] == [SignedIn]


def _early(server: bytes) -> bytes:
    """Success comes after our token already."""
    return server.replace(b"+ %b\r\n+ %b\r\n" % (PROOF, OFFER), b"").replace(
        b"334 %b\r\n334 %b\r\n" % (PROOF, OFFER), b""
    )


def _other(server: bytes) -> bytes:
    return server.replace(PROOF, b64(b"false"))


def _no_base64(server: bytes) -> bytes:
    return server.replace(PROOF, b"???")


@pytest.mark.parametrize("kind", KINDS, ids=["imap", "pop3", "submission"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_early, "before the server has proved who it is"),
        (_other, "not the server that it should be"),
        (_no_base64, "not base64"),
    ],
)
def test_a_server_that_does_not_prove_who_it_is_gets_no_session(
    kind: tuple[type[Back], bytes], change: Callable[[bytes], bytes], words: str
) -> None:
    """A fault between servers, never a wrong password."""
    _, events = play(kind[0], change(kind[1]), [])
    (failed,) = events
    assert isinstance(failed, Failed)
    assert failed.kind is FailureKind.PROTOCOL
    assert words in failed.text


@pytest.mark.parametrize("kind", [ImapBack, Pop3Back])
def test_it_is_never_pipelined_ahead_of_its_challenges(kind: type[Back]) -> None:
    """What is said next follows from what the server says."""
    greeting = b"* OK ready\r\n" if kind is ImapBack else b"+OK ready\r\n"
    sent, _ = play(kind, greeting, [])
    assert sent.endswith(b"GSSAPI\r\n")
