"""What may be asked and answered on a shadow channel, beyond what msgpack checks: bounds, and which answer fits."""

from __future__ import annotations

from gatepost.wire.shadow_messages import (
    Answer,
    Ask,
    AskStatus,
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
from gatepost.wire.shadow_words import is_token

MAX_ENVELOPE = 2 * 1024 * 1024
"""Octets of an encoded envelope: some five thousand recipients."""
MAX_CONTENT = 4 * 1024**3
"""Octets of a message's content."""
MAX_TOKENS = 20_000
"""Tokens of one question."""
MAX_EVENTS = 10_000
"""Discard events of one answer."""
MAX_TEXT = 1000
"""Characters of names and reasons."""

_STATUSES = frozenset(Status)


class ChannelFault(ValueError):
    """What came is no frame, or not one that may come now; the channel is of no more use. The text is for logs."""


def check_question(question: Question) -> None:
    """Raises `ChannelFault` for what msgpack has let through and nobody means."""
    kind = type(question)
    if kind is Hold:
        assert isinstance(question, Hold)
        if not is_token(question.token):
            raise ChannelFault("a bad token")
        if len(question.envelope) > MAX_ENVELOPE:
            raise ChannelFault("an envelope too large")
        if not 0 <= question.size <= MAX_CONTENT:
            raise ChannelFault("a content too large")
    elif isinstance(question, Ask):
        if question.after < 0 or not 0 < question.limit <= MAX_EVENTS:
            raise ChannelFault("a bad number of events")
    elif isinstance(question, AskStatus | TookOver):
        if len(question.tokens) > MAX_TOKENS or not all(map(is_token, question.tokens)):
            raise ChannelFault("bad tokens")
    elif isinstance(question, Redeliver) and not (
        0 < len(question.request) <= MAX_TEXT
        and 0 < len(question.database) <= MAX_TEXT
        and question.since <= question.until
    ):
        raise ChannelFault("a bad request to deliver again")


def check_answer(question: Question, answer: Answer) -> None:
    """Raises `ChannelFault` when `answer` does not fit `question`."""
    if type(question) is Hold and isinstance(answer, Held | NotHeld):
        fits = answer.token == question.token
    elif isinstance(question, Ask) and isinstance(answer, Events):
        fits = answer.number > 0 and len(answer.events) <= question.limit and _are_events(answer)
    elif isinstance(question, AskStatus | TookOver) and isinstance(answer, Statuses):
        fits = len(answer.statuses) == len(question.tokens) and _STATUSES.issuperset(answer.statuses)
    else:
        fits = isinstance(question, Redeliver) and isinstance(answer, Redelivered) and answer.count >= 0
    if not fits:
        raise ChannelFault("an answer that does not fit its question")


def _are_events(answer: Events) -> bool:
    return all(
        is_token(event.token)
        and (event.places is None or all(place >= 0 for place in event.places))
        and all(place >= 0 for place in event.late)
        and all(len(name) <= MAX_TEXT for name in event.databases)
        for event in answer.events
    )
