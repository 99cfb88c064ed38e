"""One message on its way to a second disk (see `protecting`)."""

from __future__ import annotations

import asyncio

from gatepost.transport.dispatch import settling
from gatepost.transport.message import Envelope, Watcher
from gatepost.transport.shadow.offered import copy_of


class Protection:
    """What is known of it. Without partners it is over from the beginning."""

    __slots__ = (
        "before", "content", "encoded", "envelope", "finished", "identity", "is_adopted", "is_held", "is_over",
        "is_settled", "moment", "number", "on_disk", "partners", "size", "task", "tried", "waiter",
    )  # fmt: skip

    def __init__(self, envelope: Envelope, content: bytes | None, partners: list[str]) -> None:
        self.envelope = envelope
        self.encoded = copy_of(envelope) if partners else b""
        self.content = content
        self.before = envelope.watchers
        """Its watchers until now; not needed any more when it has a shadow."""
        self.finished = count_finished(envelope)
        self.size = envelope.size
        self.partners = partners
        self.tried: list[Watcher] = []
        """Those that may have got a copy."""
        self.number: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Known when the message is on our disk; cancelled when it does not come there."""
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.is_held = False
        self.is_over = not partners
        """Nothing more is tried."""
        self.is_settled = False
        """The message has ended meanwhile."""
        self.is_adopted = False
        self.on_disk: list[Watcher] = []
        """The watchers that the envelope on disk says."""
        self.identity = ""
        """Of the queue database that it was offered to last, and"""
        self.moment = 0
        """when that was asked (see `Primary`)."""

    def wake(self) -> None:
        """Whoever waits for it looks again."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


def count_finished(envelope: Envelope) -> int:
    """How many recipients are settled."""
    return sum(recipient.state not in settling.OPEN for recipient in envelope.recipients)
