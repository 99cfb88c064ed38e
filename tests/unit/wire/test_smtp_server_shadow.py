"""XSHADOW at a receive connector: to hubs of the organization, known by their certificate, and to nobody else (S1)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smtp_play import Play, connector

from gatepost.organization.transport import PermissionGroup, ReceiveAuthentication
from gatepost.wire.shadow_words import ShadowHub, ShadowOffer, encode_hub, is_token, parse_hub
from gatepost.wire.smtp_server_events import OpenChannel

OWN = ShadowHub("HUB-01", "identity-1")
OFFER = ShadowOffer(OWN, frozenset({"HUB-02", "Zürich 2"}))
HUB: dict[str, Any] = {"tls": True, "server": "HUB-02", "shadow": OFFER}
EHLO = "EHLO hub-02.example"
OPEN = b"XSHADOW HUB-02 identity-2\r\n"

SECURED = connector(authentication=frozenset({ReceiveAuthentication.EXTERNALLY_SECURED}))
WITHOUT_CERTIFICATES = connector(authentication=frozenset({ReceiveAuthentication.TLS}))
WITHOUT_SERVERS = connector(permission_groups=frozenset({PermissionGroup.ANONYMOUS}))
STRANGERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a stranger": (connector(), {"tls": True, "shadow": OFFER}),
    "a partner": (
        connector(permission_groups=frozenset(PermissionGroup)),
        {"tls": True, "partner": True, "shadow": OFFER},
    ),
    "before TLS": (connector(), {**HUB, "tls": False}),
    "another server of the organization": (connector(), {**HUB, "server": "CAS-01"}),
    "shadow redundancy is off": (connector(), {**HUB, "shadow": None}),
    "an externally secured network": (SECURED, {"tls": True, "shadow": OFFER}),
    "such a network, with a certificate besides": (SECURED, HUB),
    "a connector that knows no servers": (WITHOUT_CERTIFICATES, HUB),
    "a connector that is not for servers": (WITHOUT_SERVERS, HUB),
}


def opened(play: Play) -> list[OpenChannel]:
    return [event for event in play.events if isinstance(event, OpenChannel)]


def test_a_hub_is_told_who_we_are() -> None:
    play = Play(**HUB)
    assert "250 XSHADOW HUB-01 identity-1" in play.lines(EHLO)
    assert not any("XSHADOW" in line for line in play.lines("HELO hub-02.example"))


def test_the_session_becomes_a_channel_and_what_follows_is_the_channels() -> None:
    play = Play(**HUB)
    play.lines(EHLO)
    assert play.say(OPEN + b"\0\0frames\r\nQUIT\r\n") == ["250 2.0.0 HUB-01 identity-1"]
    assert opened(play) == [OpenChannel(ShadowHub("HUB-02", "identity-2"), b"\0\0frames\r\nQUIT\r\n")]
    assert play.say(b"NOOP\r\n") == []


@given(st.lists(st.integers(1, 30), min_size=1, max_size=10))
def test_any_split_gives_the_same_channel(sizes: list[int]) -> None:
    stream = f"{EHLO}\r\nMAIL FROM:<a@b.ours> XSHADOW=a-1\r\nRSET\r\n".encode() + OPEN + bytes(range(100))
    whole, parts = Play(**HUB), Play(**HUB)
    answers = whole.say(stream)
    heard, at, turn, rest = [], 0, 0, b""
    while at < len(stream):
        piece = stream[at : at + sizes[turn % len(sizes)]]
        at, turn = at + len(piece), turn + 1
        if opened(parts):
            rest += piece
        else:
            heard += parts.say(piece)
    assert heard == answers
    assert opened(parts)[0].rest + rest == opened(whole)[0].rest == bytes(range(100))


@pytest.mark.parametrize("who", STRANGERS)
def test_nobody_else_is_offered_or_can_use_any_of_it(who: str) -> None:
    wanted, how = STRANGERS[who]
    play = Play(wanted, **how)
    assert not any("XSHADOW" in line for line in play.lines(EHLO))
    assert play.codes(OPEN) == ["502 5.5.1"]
    answer = play.codes(b"MAIL FROM:<a@far.example> XSHADOW=a-1\r\n")
    assert answer == ["555 5.5.4"]
    assert play.judge.open is None
    assert not opened(play)


def test_what_was_offered_is_gone_where_the_certificate_is_not_there_any_more() -> None:
    play = Play(**HUB)
    play.run(play.session.tls_started(server="", partner=True))
    assert not any("XSHADOW" in line for line in play.lines(EHLO))
    assert play.codes(OPEN) == ["502 5.5.1"]


def test_a_hub_is_offered_it_after_its_handshake() -> None:
    play = Play(**{**HUB, "tls": False, "server": ""})
    assert not any("XSHADOW" in line for line in play.lines(EHLO))
    play.lines("STARTTLS")
    play.run(play.session.tls_started(server="HUB-02"))
    assert any("XSHADOW" in line for line in play.lines(EHLO))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (b"XSHADOW\r\n", "501 5.5.4"),
        (b"XSHADOW HUB-02\r\n", "501 5.5.4"),
        (b"XSHADOW HUB-02 identity 2\r\n", "501 5.5.4"),
        (b"XSHADOW HUB-02 \xc3\xa4\r\n", "501 5.5.4"),
        (b"XSHADOW HUB+2D02 " + b"x" * 65 + b"\r\n", "501 5.5.4"),
        (b"XSHADOW HUB-03 identity-2\r\n", "550 5.7.1"),
        (b"XSHADOW hub-02 identity-2\r\n", "550 5.7.1"),
        (b"XSHADOW HUB-01 identity-1\r\n", "550 5.7.1"),
    ],
)
def test_only_the_certificates_own_name(command: bytes, code: str) -> None:
    play = Play(**HUB)
    play.lines(EHLO)
    assert play.codes(command) == [code]
    assert not opened(play)
    assert play.codes(b"NOOP\r\n") == ["250 2.0.0"]


def test_not_before_ehlo_nor_in_the_midst_of_a_message() -> None:
    play = Play(**HUB)
    play.heard()
    assert play.codes(OPEN) == ["503 5.5.1"]
    play.lines("HELO hub-02.example")
    assert play.codes(OPEN) == ["503 5.5.1"]
    play.begin("a@x.ours")
    assert play.codes(OPEN) == ["503 5.5.1"]
    play.lines("RSET")
    assert play.say(OPEN)[0].startswith("250 ")


def test_mail_carries_the_token() -> None:
    play = Play(**HUB)
    play.lines(EHLO)
    assert play.codes(b"MAIL FROM:<a@b.ours> SIZE=10 XSHADOW=0a-1f\r\n") == ["250 2.1.0"]
    assert play.judge.open is not None
    assert play.judge.open.mail.shadow == "0a-1f"
    play.lines("RSET")
    play.begin("a@x.ours")
    assert play.judge.open is not None
    assert play.judge.open.mail.shadow == ""


@pytest.mark.parametrize("token", ["", "=", "=A", "=g", "=a b", "=" + "a" * 65, "=a/b"])
def test_a_bad_token_is_refused(token: str) -> None:
    play = Play(**HUB)
    play.lines(EHLO)
    assert play.lines(f"MAIL FROM:<a@b.ours> XSHADOW{token}")[0].startswith(("501 5.5.4", "555 5.5.4"))
    assert play.judge.open is None


def test_names_of_any_kind_can_be_said() -> None:
    hub = ShadowHub("Zürich 2", "x-2")
    play = Play(**{**HUB, "server": hub.server})
    play.lines(EHLO)
    assert play.say(f"XSHADOW {encode_hub(hub)}\r\n".encode())[0].startswith("250 ")
    assert opened(play)[0].hub == hub


@given(st.text(min_size=1, max_size=255).filter(str.isprintable), st.from_regex(r"[0-9A-Za-z-]{1,64}", fullmatch=True))
def test_words_come_back_as_they_were(server: str, identity: str) -> None:
    hub = ShadowHub(server, identity)
    text = encode_hub(hub)
    assert text.isascii()
    assert text.count(" ") == 1
    assert parse_hub(text) == hub


@pytest.mark.parametrize("text", ["", "a", " x", "a x y", "a+0A x", "a+C3 x", "a\tx", "a x\n", "+20 "])
def test_what_is_no_hub_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_hub(text)


def test_tokens() -> None:
    assert is_token("0123456789abcdef-")
    assert not any(map(is_token, ("", "A", "g", "a" * 65, "a\n", " a")))
