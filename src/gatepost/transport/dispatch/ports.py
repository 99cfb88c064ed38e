"""What the dispatcher asks of those who reach servers and speak to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from gatepost.routing.next_hop import NextHop
from gatepost.transport.message import Envelope, RecipientState
from gatepost.transport.ports import BodyReader
from gatepost.transport.reports.rules import Fate
from gatepost.wire.shadow_words import ShadowHub
from gatepost.wire.smtp_reply import Reply

Reopen = Callable[[], Awaitable[BodyReader]]
"""Opens a message's content from its beginning; the caller closes it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one recipient. `place` is its place in the envelope, `reply` the words of the server or ours."""

    place: int
    state: RecipientState
    reply: str
    tell: Fate | None = None
    """The report of success that is ours to write, where one was asked for (RFC 3461, section 5.2)."""
    ours: bool = False
    """No server has said these words."""
    token: str = ""
    """What the message is called at the server that has become its primary (`SHADOWED`), or may have (`UNCERTAIN`)."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of handing a message over: an answer for each recipient that it was handed over for.

    `fault` says why the session is of no more use; recipients without an answer of their own then are `WAITING`.
    """

    answers: tuple[Answer, ...]
    fault: str = ""
    primary: ShadowHub | None = None
    """The server, where it was told to become the primary (SPEC S1)."""


NewToken = Callable[[], str]
"""Answers a token that no copy has ever had."""


class Sender(Protocol):
    """A connection to a server of a next hop, ready for a message."""

    @property
    def server(self) -> str:
        """Host name and address, for reports and logs."""

    @property
    def address(self) -> str:
        """The server's IP address."""

    @property
    def usable(self) -> bool:
        """Whether another message may be sent on it."""

    @property
    def prompt(self) -> bool:
        """Whether it is worth while to `prepare`."""

    async def prepare(
        self, envelope: Envelope, places: tuple[int, ...], body: BodyReader, token: NewToken | None = None
    ) -> None:
        """What is sent after the next `send`, as far as is known; nothing else may be sent then.

        Raises OSError when the content cannot be read.
        """

    async def send(
        self,
        envelope: Envelope,
        places: tuple[int, ...],
        body: BodyReader,
        reopen: Reopen,
        token: NewToken | None = None,
    ) -> Sent:
        """Hand a message over for the recipients at `places`; `reopen` opens the content once more.

        With `token` a hub that knows shadow redundancy is made the primary, under a token for each of its messages (a
        server may take the recipients in several): who it takes is `SHADOWED` instead of `DELIVERED`.
        Raises OSError when the content cannot be read.
        """

    async def quit(self) -> None:
        """Take leave, within a short time. Never raises."""


class NotReached(Exception):
    """No server of the next hop takes a connection now: try again at `retry_at`, or, with `failure`, never."""

    def __init__(self, reason: str, retry_at: float, failure: Reply | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_at = retry_at
        self.failure = failure


class Moved(Exception):
    """The next hop is none any more, or another way is better now: its messages are to be routed anew."""


class Reach(Protocol):
    """Opens connections to next hops: enhanced DNS, healthy server selector, hedged connects (SPEC T4 to T8)."""

    def most_connections(self, next_hop: NextHop) -> int:
        """How many connections a next hop may have at a time."""

    async def connect(self, next_hop: NextHop, failures: int, queued: int, first: str = "") -> Sender:
        """A connection; `failures` are those in a row before this one, `queued` messages wait. A server at the
        address `first` is tried before all others: it may have a message already.

        Raises `NotReached`, `Moved`.
        """
