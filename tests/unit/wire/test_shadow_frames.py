"""Frames of a shadow channel: any split gives the same, everything is bounded, nothing is believed (SPEC S1, S2)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.shadow_checks import MAX_CONTENT, MAX_ENVELOPE, MAX_EVENTS, MAX_TOKENS
from gatepost.wire.shadow_frames import (
    ALIVE,
    MAX_MESSAGE,
    MAX_PIECE,
    MAX_QUESTIONS,
    Alive,
    Answered,
    Asked,
    ClientFrames,
    Complete,
    Content,
    ServerFrames,
    Withdrawn,
)
from gatepost.wire.shadow_messages import (
    Answer,
    Ask,
    AskStatus,
    Discarded,
    Events,
    Held,
    Hold,
    NotHeld,
    Question,
    Redeliver,
    Redelivered,
    Status,
    Statuses,
    TookOver,
)

QUESTIONS: list[Question] = [
    Hold("a-1", b"envelope", 0),
    Hold("a-2", b"envelope", 700),
    Ask(0, 100),
    AskStatus(["a-1", "a-2"]),
    TookOver([]),
    Redeliver("request 1", "DB01", 1.0, 2.0),
]
ANSWERS: list[Answer] = [
    Held("a-1"),
    NotHeld("a-2", "no room"),
    Events(1, [Discarded("b-1"), Discarded("b-2", [0, 3], ["DB01"], 7.0)], more=True),
    Statuses([Status.HELD, Status.UNKNOWN]),
    Statuses([]),
    Redelivered(4),
]


def joined(events: Sequence[object]) -> list[object]:
    """The events, contents that follow each other as one."""
    found: list[object] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, Content) and isinstance(last, Content) and event.number == last.number:
            found[-1] = Content(event.number, last.data + event.data)
        else:
            found.append(event)
    return found


def cut(stream: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at, turn = [], 0, 0
    while at < len(stream):
        pieces.append(stream[at : at + sizes[turn % len(sizes)]])
        at += len(pieces[-1])
        turn += 1
    return pieces


def asking(questions: Sequence[Question], seed: int) -> bytes:
    """A client's octets: contents of several holds alternate, some are withdrawn, now and then it says it is alive."""
    client, turn, out = ClientFrames(), random.Random(seed), b""
    left: dict[int, int] = {}
    for question in [*questions, None]:
        if question is not None:
            number, frame = client.ask(question)
            out += frame
            if isinstance(question, Hold) and question.size:
                left[number] = question.size
        while left and (question is None or turn.random() < 0.5):
            number = turn.choice(list(left))
            if turn.random() < 0.1:
                out += client.withdraw(number)
                del left[number]
                continue
            piece = bytes([number]) * turn.randint(1, left[number])
            out += client.content(number, piece) + piece
            left[number] -= len(piece)
            if not left[number]:
                del left[number]
        if turn.random() < 0.3:
            out += ALIVE
    return out


@given(st.lists(st.sampled_from(QUESTIONS), max_size=12), st.integers(), st.lists(st.integers(1, 60), min_size=1))
def test_any_split_of_questions_gives_the_same(questions: list[Question], seed: int, sizes: list[int]) -> None:
    stream = asking(questions, seed)
    whole, parts = ServerFrames(), ServerFrames()
    events = joined(whole.receive(stream))
    assert joined([event for piece in cut(stream, sizes) for event in parts.receive(piece)]) == events
    assert whole.fault is None
    assert parts.fault is None
    assert [event.question for event in events if isinstance(event, Asked)] == questions
    ended = [event for event in events if isinstance(event, Complete | Withdrawn)]
    assert len(ended) == sum(isinstance(question, Hold) for question in questions)


@given(st.lists(st.integers(0, 5), max_size=12), st.randoms(), st.lists(st.integers(1, 60), min_size=1))
def test_any_split_of_answers_gives_the_same(kinds: list[int], turn: random.Random, sizes: list[int]) -> None:
    server, whole, parts = ServerFrames(), ClientFrames(), ClientFrames()
    numbers = {}
    for kind in kinds:
        number, frame = whole.ask(QUESTIONS[kind])
        assert parts.ask(QUESTIONS[kind]) == (number, frame)
        question = QUESTIONS[kind]
        server.receive(frame)
        if isinstance(question, Hold) and question.size:
            server.receive(whole.withdraw(number))
        numbers[number] = kind
    order = list(numbers)
    turn.shuffle(order)
    stream = b"".join(server.answer(number, ANSWERS[numbers[number]]) + ALIVE for number in order)
    assert not server.under_way
    wanted = [event for number in order for event in (Answered(number, ANSWERS[numbers[number]]), Alive())]
    assert whole.receive(stream) == wanted
    assert [event for piece in cut(stream, sizes) for event in parts.receive(piece)] == wanted
    assert whole.fault is parts.fault is None
    assert whole.under_way == parts.under_way == 0


@given(st.lists(st.binary(max_size=80), max_size=20), st.booleans())
def test_rubbish_is_a_fault_and_nothing_else(pieces: list[bytes], begun: bool) -> None:
    server, client = ServerFrames(), ClientFrames()
    _, frame = client.ask(Hold("a", b"", 100))
    if begun:
        server.receive(frame)
    for piece in pieces:
        server.receive(piece)
        client.receive(piece)
    assert server.under_way <= MAX_QUESTIONS
    if server.fault is not None:
        assert server.receive(frame) == []


def raw(number: int, kind: int, body: bytes = b"", length: int | None = None) -> bytes:
    word = kind << 24 | (len(body) if length is None else length)
    return number.to_bytes(8, "big") + word.to_bytes(4, "big") + body


def question(number: int, *fields: object) -> bytes:
    return raw(number, 0, msgspec.msgpack.encode(list(fields)))


HOLD = question(1, 1, "a", b"e", 10)


@pytest.mark.parametrize(
    "stream",
    [
        raw(1, 0),
        raw(1, 0, length=MAX_MESSAGE + 1),
        raw(1, 4),
        raw(1, 3),
        raw(0, 3, length=1),
        raw(0, 0, b"\x90"),
        question(2, 4, 0, 1),
        question(1, 4, 0, 1) + question(1, 4, 0, 1),
        question(1, 2, "a"),
        question(1, 99),
        question(1, 4, 0),
        question(1, 4, "0", 1),
        question(1, 4, -1, 1),
        question(1, 4, 0, 0),
        question(1, 4, 0, MAX_EVENTS + 1),
        question(1, 1, "A", b"", 0),
        question(1, 1, "", b"", 0),
        question(1, 1, "a" * 65, b"", 0),
        question(1, 1, "a\r\n", b"", 0),
        question(1, 1, "a", b"", -1),
        question(1, 1, "a", b"", MAX_CONTENT + 1),
        question(1, 1, "a", b"e" * (MAX_ENVELOPE + 1), 0),
        question(1, 6, ["a", "?"]),
        question(1, 7, ["a"] * (MAX_TOKENS + 1)),
        question(1, 9, "", "DB", 0.0, 1.0),
        question(1, 9, "r", "", 0.0, 1.0),
        question(1, 9, "r", "DB", 1.0, 0.0),
        question(1, 9, "r", "DB", float("nan"), 0.0),
        raw(1, 0, b"\x92\x06\xdd\xff\xff\xff\xff"),
        raw(1, 1, b"x"),
        raw(1, 2),
        HOLD + raw(1, 1),
        HOLD + raw(1, 1, length=MAX_PIECE + 1),
        HOLD + raw(1, 1, b"x" * 11),
        HOLD + raw(1, 1, b"x" * 10) + raw(1, 1, b"x"),
        HOLD + raw(1, 1, b"x" * 10) + raw(1, 2),
        HOLD + raw(1, 2) + raw(1, 2),
        HOLD + raw(1, 2, length=1),
        HOLD + raw(2, 1, b"x"),
    ],
)
def test_what_a_client_must_not_send_ends_the_channel(stream: bytes) -> None:
    for pieces in ([stream], [stream[at : at + 1] for at in range(min(len(stream), 500))] + [stream[500:]]):
        server = ServerFrames()
        for piece in pieces:
            server.receive(piece)
        assert server.fault is not None
        assert server.receive(question(server.under_way + 1, 4, 0, 1)) == []


@pytest.mark.parametrize(
    "stream",
    [
        question(2, 2, "a"),
        question(1, 2, "b"),
        question(1, 3, "b", "no"),
        question(1, 5, 1, []),
        question(1, 8, [1]),
        question(1, 10, 1),
        question(1, 1, "a", b"", 0),
        question(1, 2, "a") + question(1, 2, "a"),
        raw(1, 1, b"x"),
        raw(1, 2),
        raw(1, 0),
        b"250 2.0.0 OK\r\n",
    ],
)
def test_what_a_server_must_not_answer_ends_the_channel(stream: bytes) -> None:
    client = ClientFrames()
    client.ask(Hold("a", b"", 0))
    client.receive(stream)
    assert client.fault is not None


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (Ask(0, 1), [5, 0, []]),
        (Ask(0, 1), [5, 1, [["a"], ["b"]]]),
        (Ask(0, 1), [5, 1, [["A"]]]),
        (Ask(0, 1), [5, 1, [["a", [-1]]]]),
        (Ask(0, 1), [5, 1, [["a", None, ["D" * 2000]]]]),
        (Ask(0, 1), [2, "a"]),
        (AskStatus(["a"]), [8, []]),
        (AskStatus(["a"]), [8, [4]]),
        (TookOver(["a"]), [8, [1, 1]]),
        (Redeliver("r", "DB", 0.0, 1.0), [10, -1]),
        (Redeliver("r", "DB", 0.0, 1.0), [8, []]),
    ],
)
def test_an_answer_must_fit_its_question(asked: Question, answer: list[object]) -> None:
    client = ClientFrames()
    number, _ = client.ask(asked)
    client.receive(question(number, *answer))
    assert client.fault is not None


def test_the_number_of_questions_is_bounded_on_both_sides() -> None:
    client, server = ClientFrames(), ServerFrames()
    for _ in range(MAX_QUESTIONS):
        assert client.has_room
        server.receive(client.ask(Ask(0, 1))[1])
    assert not client.has_room
    with pytest.raises(ValueError, match="too many"):
        client.ask(Ask(0, 1))
    assert server.fault is None
    answered = client.receive(server.answer(7, Events(1, [])))
    assert answered == [Answered(7, Events(1, []))]
    server.receive(client.ask(Ask(0, 1))[1])
    assert server.fault is None
    server.receive(question(MAX_QUESTIONS + 2, 4, 0, 1))
    assert server.fault is not None


def test_the_octets_of_questions_are_bounded_on_both_sides() -> None:
    client, server = ClientFrames(), ServerFrames()
    while client.has_room:
        assert client.under_way < 20
        server.receive(client.ask(Hold("a", b"e" * MAX_ENVELOPE, 0))[1])
    assert server.fault is None
    server.receive(question(client.under_way + 1, 4, 0, 1))
    assert server.fault is not None


def test_what_nobody_would_take_is_not_said() -> None:
    client = ClientFrames()
    for bad in (Hold("?", b"", 0), Hold("a", b"e" * (MAX_ENVELOPE + 1), 0), Ask(0, 0), AskStatus(["a"] * 30_000)):
        with pytest.raises(ValueError, match=r"bad|too large"):
            client.ask(bad)
    assert client.ask(Ask(0, 1))[0] == 1
    server = ServerFrames()
    server.receive(question(1, 4, 0, 1))
    with pytest.raises(ValueError, match="too long"):
        server.answer(1, NotHeld("a", "x" * MAX_MESSAGE))
    assert server.answer(1, Events(1, []))


def test_what_was_whole_before_a_fault_counts() -> None:
    server = ServerFrames()
    events = server.receive(HOLD + raw(1, 1, b"x" * 10) + question(2, 4, 0, 5) + raw(9, 9))
    assert joined(events) == [
        Asked(1, Hold("a", b"e", 10)), Content(1, b"x" * 10), Complete(1), Asked(2, Ask(0, 5)),
    ]  # fmt: skip
    assert server.fault is not None
