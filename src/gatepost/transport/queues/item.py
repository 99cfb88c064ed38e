"""One message's part in one delivery queue."""

from __future__ import annotations

EVERY_FIRST = (0,)
"""The recipients of a message that has one: one tuple for all of them, since a million may wait."""


class Item:
    """A message's recipients that share a next hop. `recipients` are their places in the envelope.

    `attend` is when somebody must look at it whatever its queue does: a delay is to be told, or the message expires.
    `due` is when it may be tried next.
    """

    __slots__ = ("attempts", "attend", "due", "expires", "faults", "gone", "number", "recipients", "server", "size",
                 "suspended")  # fmt: skip

    def __init__(self, number: int, recipients: tuple[int, ...], size: int, expires: float, attend: float) -> None:
        self.number = number
        self.recipients = EVERY_FIRST if recipients == EVERY_FIRST else recipients
        self.size = size
        self.expires = expires
        self.attend = attend
        self.due = 0.0
        self.attempts = 0
        self.faults = 0
        """Sessions in a row that ended under it without an answer about it."""
        self.server = ""
        """Who is to be tried first: after an uncertain outcome the same server again (RFC 1047)."""
        self.suspended = False
        self.gone = False
        """Taken away while it waited; whoever meets it next forgets it."""

    def __repr__(self) -> str:
        return f"Item({self.number}, {self.recipients}, due={self.due:g})"
