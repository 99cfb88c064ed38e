"""The frames of a shadow channel, for both its sides (SPEC S1, S2). Sans-I/O: octets in, events out, and back.

    ┌ number 8 ┬ kind 1 ┬ length 3 ┬ length octets ┐     all numbers with the most significant octet first

    MESSAGE     a question of `shadow_messages` in msgpack, or the answer to the question of the same number
    CONTENT     a piece of the content of the `Hold` of that number; pieces of several may alternate
    WITHDRAWN   no more content of that `Hold` comes: it is answered `NotHeld`, and nothing of it stays
    ALIVE       number 0, nothing else; said by the client when it has been silent, and said back

Questions are numbered from 1 on, without a gap. Each is answered once, whenever that can be done: a large content does
not hold up the small ones behind it. Neither side believes the other: every frame is bounded before it is read, and
what does not fit is a `ChannelFault`, after which nothing more is read. What was whole before it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

import msgspec

from gatepost.wire.shadow_checks import MAX_TEXT, ChannelFault, check_answer, check_question
from gatepost.wire.shadow_messages import Answer, Hold, Question

MAX_MESSAGE = 4 * 1024 * 1024
"""Octets of a message's frame."""
MAX_PIECE = 256 * 1024
"""Octets of a frame of content."""
MAX_QUESTIONS = 512
"""Questions that are asked and not yet answered."""
MAX_WAITING = 32 * 1024 * 1024
"""Octets of those questions together."""

_HEAD = Struct(">QI")


class Kind(IntEnum):
    """See above."""

    MESSAGE = 0
    CONTENT = 1
    WITHDRAWN = 2
    ALIVE = 3


ALIVE = _HEAD.pack(0, Kind.ALIVE << 24)
"""The frame that says nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The client asks. After a `Hold` with a size comes `Content`, then `Complete` or `Withdrawn`."""

    number: int
    question: Question


@dataclass(frozen=True, slots=True)
class Content:
    """Octets of the content of the `Hold` with this number."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Complete:
    """The content of that `Hold` is there."""

    number: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The client has given that `Hold` up in the midst of its content. It still wants an answer."""

    number: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The server's answer to the question with this number."""

    number: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Alive:
    """The other side is there."""


ServerSideEvent = Asked | Content | Complete | Withdrawn | Alive
ClientSideEvent = Answered | Alive
_IS_ALIVE = Alive()


class _Frames:
    """Octets taken apart: content in whatever pieces it comes, messages whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._waiting = 0
        """Octets of `_parts`."""
        self._wanted = _HEAD.size
        """How many are needed to go on."""
        self._number = 0
        self._left = 0
        """Octets of the frame of content under way."""
        self.fault: ChannelFault | None = None
        """What ended the channel."""

    def _feed(self, data: bytes) -> None:
        if self.fault is not None:
            return
        if self._waiting:
            self._waiting += len(data)
            self._parts.append(data)
            if self._waiting < self._wanted:
                return
            data = b"".join(self._parts)
            self._parts.clear()
            self._waiting = 0
        try:
            at = self._take(data)
        except ChannelFault as fault:
            self.fault = fault
            self._parts.clear()
            return
        if at < len(data):
            self._parts.append(data[at:])
            self._waiting = len(data) - at

    def _take(self, data: bytes) -> int:
        """Read as far as it goes; where that is."""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._content(self._number, piece)
                continue
            begins = at + _HEAD.size
            if begins > end:
                self._wanted = _HEAD.size
                return at
            number, word = _HEAD.unpack_from(data, at)
            kind, length = word >> 24, word & 0xFFFFFF
            if kind == Kind.CONTENT:
                if not 0 < length <= MAX_PIECE:
                    raise ChannelFault("a frame of content without any, or too long")
                self._content_begins(number, length)
                self._number, self._left = number, length
                at = begins
            elif kind == Kind.MESSAGE:
                if not 0 < length <= MAX_MESSAGE:
                    raise ChannelFault("a message that is empty or too long")
                if begins + length > end:
                    self._message_begins(number)
                    self._wanted = _HEAD.size + length
                    return at
                at = begins + length
                self._message(number, data[begins:at])
            elif word == Kind.WITHDRAWN << 24:
                at = begins
                self._withdrawn(number)
            elif word == Kind.ALIVE << 24 and not number:
                at = begins
                self._alive()
            else:
                raise ChannelFault("no frame")
        return at

    def _content_begins(self, number: int, length: int) -> None:
        raise NotImplementedError

    def _content(self, number: int, piece: bytes) -> None:
        raise NotImplementedError

    def _message_begins(self, number: int) -> None:
        raise NotImplementedError

    def _message(self, number: int, data: bytes) -> None:
        raise NotImplementedError

    def _withdrawn(self, number: int) -> None:
        raise NotImplementedError

    def _alive(self) -> None:
        raise NotImplementedError


class ServerFrames(_Frames):
    """The answering side: `receive` says what is asked, `answer` makes the frame of an answer.

    After a fault `fault` is set, and all that has been asked is still to be answered or given up.
    """

    def __init__(self) -> None:
        super().__init__()
        self._events: list[ServerSideEvent] = []
        self._last = 0
        self._sizes: dict[int, int] = {}
        """Octets of the questions that are not answered."""
        self._waiting_octets = 0
        self._missing: dict[int, int] = {}
        """Octets of content that are still to come."""
        self._decode = msgspec.msgpack.Decoder(Question).decode
        self._encode = msgspec.msgpack.Encoder().encode

    @property
    def under_way(self) -> int:
        """Questions that are not answered."""
        return len(self._sizes)

    def receive(self, data: bytes) -> list[ServerSideEvent]:
        """Octets of the client. See `fault` afterwards."""
        self._feed(data)
        events, self._events = self._events, []
        return events

    def answer(self, number: int, answer: Answer) -> bytes:
        """The frame of the answer to a question. Raises ValueError for one that is too long to be sent."""
        data = self._encode(answer)
        if len(data) > MAX_MESSAGE:
            raise ValueError("the answer is too long")
        self._waiting_octets -= self._sizes.pop(number)
        return _HEAD.pack(number, len(data)) + data

    def _message_begins(self, number: int) -> None:
        if number != self._last + 1:
            raise ChannelFault("a question with a wrong number")
        if len(self._sizes) >= MAX_QUESTIONS or self._waiting_octets >= MAX_WAITING:
            raise ChannelFault("too many questions at a time")

    def _message(self, number: int, data: bytes) -> None:
        self._message_begins(number)
        try:
            question = self._decode(data)
        except msgspec.DecodeError as error:  # ValidationError is one
            raise ChannelFault(f"a question that cannot be read: {error}"[:MAX_TEXT]) from None
        check_question(question)
        self._last = number
        self._sizes[number] = len(data)
        self._waiting_octets += len(data)
        self._events.append(Asked(number, question))
        if type(question) is Hold:
            if question.size:
                self._missing[number] = question.size
            else:
                self._events.append(Complete(number))

    def _content_begins(self, number: int, length: int) -> None:
        missing = self._missing.get(number)
        if missing is None or length > missing:
            raise ChannelFault("content that was not announced")

    def _content(self, number: int, piece: bytes) -> None:
        self._events.append(Content(number, piece))
        missing = self._missing[number] - len(piece)
        if missing:
            self._missing[number] = missing
        else:
            del self._missing[number]
            self._events.append(Complete(number))

    def _withdrawn(self, number: int) -> None:
        if self._missing.pop(number, None) is None:
            raise ChannelFault("a copy is withdrawn that is not under way")
        self._events.append(Withdrawn(number))

    def _alive(self) -> None:
        self._events.append(_IS_ALIVE)


class ClientFrames(_Frames):
    """The asking side: `ask`, `content` and `withdraw` make frames, `receive` says what is answered.

    Whoever asks looks at `has_room` first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._events: list[ClientSideEvent] = []
        self._last = 0
        self._asked: dict[int, tuple[Question, int]] = {}
        """Questions that are not answered, and how long they were. Of a `Hold` without its envelope."""
        self._waiting_octets = 0
        self._decode = msgspec.msgpack.Decoder(Answer).decode
        self._encode = msgspec.msgpack.Encoder().encode

    @property
    def under_way(self) -> int:
        """Questions that are not answered."""
        return len(self._asked)

    @property
    def has_room(self) -> bool:
        """Whether another question may be asked now."""
        return len(self._asked) < MAX_QUESTIONS and self._waiting_octets < MAX_WAITING

    def ask(self, question: Question) -> tuple[int, bytes]:
        """The number of a question and its frame. Raises ValueError for one that nobody would take."""
        try:
            check_question(question)
        except ChannelFault as fault:
            raise ValueError(str(fault)) from None
        data = self._encode(question)
        if len(data) > MAX_MESSAGE:
            raise ValueError("the question is too long")
        if not self.has_room:
            raise ValueError("too many questions at a time")
        self._last += 1
        if type(question) is Hold:
            question = Hold(question.token, b"", question.size)
        self._asked[self._last] = (question, len(data))
        self._waiting_octets += len(data)
        return self._last, _HEAD.pack(self._last, len(data)) + data

    def content(self, number: int, piece: bytes) -> bytes:
        """The head of the frame that `piece` is to follow, of 1 to `MAX_PIECE` octets."""
        assert 0 < len(piece) <= MAX_PIECE
        return _HEAD.pack(number, Kind.CONTENT << 24 | len(piece))

    def withdraw(self, number: int) -> bytes:
        """The frame that says that no more content of this `Hold` comes, though some was still to come."""
        return _HEAD.pack(number, Kind.WITHDRAWN << 24)

    def receive(self, data: bytes) -> list[ClientSideEvent]:
        """Octets of the server. See `fault` afterwards."""
        self._feed(data)
        events, self._events = self._events, []
        return events

    def _message_begins(self, number: int) -> None:
        if number not in self._asked:
            raise ChannelFault("an answer to nothing that was asked")

    def _message(self, number: int, data: bytes) -> None:
        self._message_begins(number)
        try:
            answer = self._decode(data)
        except msgspec.DecodeError as error:
            raise ChannelFault(f"an answer that cannot be read: {error}"[:MAX_TEXT]) from None
        question, size = self._asked[number]
        check_answer(question, answer)
        del self._asked[number]
        self._waiting_octets -= size
        self._events.append(Answered(number, answer))

    def _content_begins(self, number: int, length: int) -> None:  # noqa: ARG002 - see the server's
        raise ChannelFault("content from the answering side")

    def _withdrawn(self, number: int) -> None:  # noqa: ARG002 - see the server's
        raise ChannelFault("a copy is withdrawn by the answering side")

    def _alive(self) -> None:
        self._events.append(_IS_ALIVE)
