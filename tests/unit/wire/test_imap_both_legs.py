"""What the machine towards mailbox servers says is understood by the machine towards clients."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imap_play import front

from gatepost.wire.events import BackEvent, BackSignIn, Credentials, Failed, FrontEvent, Refusal, Send, SignedIn, SignIn
from gatepost.wire.imap_back import ImapBack

NASTY = [
    '"', "\\", '\\"', " ", "  a  ", "%", "%s%n", "*", "{5+}", "{5}", "a {3+}", "ü", "日本", "🔑" * 50, "\x01", "\x7f",
    "\t", "NIL", "(", ")", "a" * 900, "a" * 5000, "ü" * 2000, "=", "+", "user*master", "]", "[ALERT]",
    "\x80", "\ufeff",
]  # fmt: skip


def talk(sign_in: BackSignIn, *, accept: bool, greeting: bytes = b"") -> tuple[Credentials | None, BackEvent]:
    """Let a back machine sign in at a front machine; what was understood, and how it ended."""
    server, client = front(), ImapBack(sign_in)
    understood: Credentials | None = None
    to_client = [greeting or server.greeting()]
    for _ in range(20):
        to_server: list[bytes] = []
        for event in (e for data in to_client for e in client.receive(data)):
            if not isinstance(event, Send):
                return understood, event
            to_server.append(event.data)
        to_client = []
        events: list[FrontEvent] = [e for data in to_server for e in server.receive(data)]
        while events:
            said = events.pop(0)
            if isinstance(said, Send):
                to_client.append(said.data)
            elif isinstance(said, SignIn):
                understood = said.credentials
                if accept:
                    to_client.append(server.signed_in(b"IMAP4rev1", b"in"))
                else:
                    events = [*server.refuse(Refusal.WRONG_CREDENTIALS), *events]
    raise AssertionError("the dialogue has no end")


def same(sign_in: BackSignIn, understood: Credentials | None) -> bool:
    return understood is not None and (
        understood.authentication_id,
        understood.password,
        understood.token,
        understood.authorization_id,
    ) == (sign_in.user, sign_in.password, sign_in.token, sign_in.authorization_id)


@pytest.mark.parametrize("greeting", [b"", b"* OK nothing known\r\n"], ids=["SASL-IR known", "unknown"])
@pytest.mark.parametrize("password", NASTY)
def test_nasty_passwords(password: str, greeting: bytes) -> None:
    """Every odd password and name arrives as it was, by LOGIN or SASL (field cases 61, 62)."""
    for user in ("bob", password):
        for authorization_id in ("", "ann"):
            sign_in = BackSignIn("PLAIN" if authorization_id else "LOGIN", user, password, authorization_id)
            understood, end = talk(sign_in, accept=True, greeting=greeting)
            assert same(sign_in, understood)
            assert end == SignedIn(b"in", b"IMAP4rev1")


# Not the surrogates, which are no text; not what the machine refuses to send.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), min_size=1, max_size=60)


@given(texts, texts, st.sampled_from(["LOGIN", "PLAIN"]), st.booleans(), st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_password(user: str, password: str, mechanism: str, pipelined: bool, accept: bool) -> None:
    """Any text arrives as it was; wrong credentials end in a refusal on the other side."""
    sign_in = BackSignIn(mechanism, user, password, pipelined=pipelined)
    understood, end = talk(sign_in, accept=accept)
    assert same(sign_in, understood)
    assert isinstance(end, SignedIn if accept else Failed)


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "OAUTHBEARER"])
@pytest.mark.parametrize("token", ["t", "t" * 300, "t" * 12288])
@pytest.mark.parametrize("accept", [True, False])
def test_tokens(mechanism: str, token: str, accept: bool) -> None:
    """Tokens of every length arrive; a refused one ends the exchange on both sides (RFC 7628 section 3.2.3)."""
    sign_in = BackSignIn(mechanism, "bob,=x@contoso.com", token=token)
    understood, end = talk(sign_in, accept=accept)
    assert same(sign_in, understood)
    assert isinstance(end, SignedIn if accept else Failed)
