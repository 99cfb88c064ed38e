"""When a stranger's session may be handed to a hub (SPEC B7, T12)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.events import BackEvent, ClientFacts, Failed, FailureKind, Send, SignedIn
from gatepost.wire.hub_greeting import HubGreeting

CLIENT = ClientFacts("203.0.113.9", 4711, "192.0.2.1", 25)
OFFER = b"250-hub-01\r\n250 XCLIENT NAME ADDR PORT\r\n"
PLAIN_OFFER = b"250-hub-01\r\n250 PIPELINING\r\n"


def play(client: ClientFacts | None, *answers: bytes) -> tuple[bytes, list[BackEvent]]:
    """What is sent, and the other events."""
    machine = HubGreeting("mail.contoso.com", client)
    assert machine.connected() == []
    sent, others = b"", []
    for answer in answers:
        for event in machine.receive(answer):
            if isinstance(event, Send):
                sent += event.data
            else:
                others.append(event)
    return sent, others


@pytest.mark.parametrize("greeting", [b"220 hub-01 ready\r\n", b"220-wait", b"220 ", b"220\r\n"])
def test_handed_over_at_the_first_bytes_of_a_greeting(greeting: bytes) -> None:
    """The client hears them as they come, so that a hub's test of who does not wait is one of the client."""
    assert play(None, greeting) == (b"", [SignedIn(b"", rest=greeting)])


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"421 4.3.2 too busy\r\n", FailureKind.UNAVAILABLE),
        (b"554 5.7.1 not you\r\n", FailureKind.UNAVAILABLE),
        (b"* OK IMAP\r\n", FailureKind.PROTOCOL),
        (b"250 ok\r\n", FailureKind.PROTOCOL),
        (b"421 " + b"x" * 5000, FailureKind.UNAVAILABLE),
    ],
)
def test_another_hub_is_tried(answer: bytes, kind: FailureKind) -> None:
    """For a refusal of whatever kind, and for what is no SMTP."""
    sent, others = play(None, answer)
    assert (sent, [type(event) for event in others]) == (b"", [Failed])
    assert isinstance(others[0], Failed)
    assert others[0].kind is kind


def test_told_by_xclient() -> None:
    """The greeting that comes after it is the client's; in the end the hub must not take XCLIENT any more."""
    sent, others = play(CLIENT, b"220 hub-01\r\n", OFFER, b"220-hub-01\r\n220 for you\r\n", PLAIN_OFFER)
    assert sent == (
        b"EHLO mail.contoso.com\r\nXCLIENT ADDR=203.0.113.9 PORT=4711 NAME=[UNAVAILABLE]\r\nEHLO mail.contoso.com\r\n"
    )
    assert others == [SignedIn(b"", rest=b"220-hub-01\r\n220 for you\r\n")]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((b"220 hub-01\r\n", PLAIN_OFFER), "XCLIENT is not offered"),
        ((b"220 hub-01\r\n", OFFER, b"550 5.7.0 no\r\n"), "XCLIENT: 550 5.7.0 no"),
        ((b"220 hub-01\r\n", OFFER, b"220 hub-01\r\n", OFFER), "would take XCLIENT from the client too"),
        ((b"220 hub-01\r\n", b"502 what\r\n"), "EHLO: 502 what"),
    ],
)
def test_a_hub_that_would_take_strangers_for_us_is_not_used(answers: tuple[bytes, ...], words: str) -> None:
    """They would have the rights of the front end's address there: to relay, to say XCLIENT."""
    _, others = play(CLIENT, *answers)
    assert isinstance(others[0], Failed)
    assert others[0].kind is FailureKind.PROTOCOL
    assert words in others[0].text


@pytest.mark.parametrize(
    "answers", [(b"421 4.3.2 x\r\n",), (b"220 hub\r\n", b"451 x\r\n"), (b"220 hub\r\n", OFFER, b"421 x\r\n")]
)
def test_temporary_faults_with_xclient(answers: tuple[bytes, ...]) -> None:
    """They are no fault of the set-up."""
    _, others = play(CLIENT, *answers)
    assert isinstance(others[0], Failed)
    assert others[0].kind is FailureKind.UNAVAILABLE


@given(st.booleans(), st.lists(st.integers(0, 150), max_size=6))
def test_any_split_gives_the_same_with_xclient(refused: bool, cuts: list[int]) -> None:
    """And nothing comes back after the end. Without XCLIENT what has come of the greeting is handed over."""
    data = b"220 hub-01\r\n" + OFFER + (b"550 no\r\n" if refused else b"220 you\r\n" + PLAIN_OFFER)
    places = sorted({min(cut, len(data)) for cut in cuts})
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    assert play(CLIENT, *pieces) == play(CLIENT, data)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30))
def test_any_split_of_a_refusal_gives_the_same(sizes: list[int]) -> None:
    """Byte by byte, for instance."""
    data, pieces = b"554 5.7.1 not you\r\n", []
    rest = data
    for size in sizes * len(data):
        pieces.append(rest[:size])
        rest = rest[size:]
    assert play(None, *pieces) == play(None, data)
