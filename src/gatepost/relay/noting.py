"""Watches that note as much of what passes as it takes to end a session where nothing is cut (`wire.boundaries`).

What they cost is a few stores a packet; what they keep is at most 256 bytes a side.
"""

from __future__ import annotations

from gatepost.wire.boundaries import (
    KEPT,
    WebSocketFrames,
    imap_at_rest,
    imap_farewell,
    imap_is_over,
    kept,
    pop3_at_rest,
    pop3_deletes,
    websocket_close,
)
from gatepost.wire.smtp_tracker import SmtpTracker

GOING_AWAY = 1012
"""WebSocket's "Service Restart": the client may come back at once (IANA's registry of close codes)."""


class _Tails:
    """The end of what each side said, and who was the last to say something."""

    __slots__ = ("client_tail", "server_spoke_last", "server_tail")

    def __init__(self) -> None:
        self.client_tail = b""
        self.server_tail = b""
        self.server_spoke_last = False

    def client(self, data: bytes) -> None:
        """Bytes that the client sent."""
        self.server_spoke_last = False
        # `boundaries.kept`, without the call for the usual packet: whole lines, few.
        tail = self.client_tail
        self.client_tail = data if len(data) < KEPT and (not tail or tail[-1] == 10) else kept(tail, data)

    def server(self, data: bytes) -> None:
        """Bytes that the server sent."""
        self.server_spoke_last = True
        tail = self.server_tail
        self.server_tail = data if len(data) < KEPT and (not tail or tail[-1] == 10) else kept(tail, data)

    @property
    def command_is_whole(self) -> bool:
        """Whether the client's last line is complete, answered or not."""
        return not self.client_tail or self.client_tail.endswith(b"\n")


class ImapTails(_Tails):
    """Of an IMAP session."""

    __slots__ = ()

    def at_rest(self) -> bool:
        """Whether it is between commands or in IDLE, when nothing has passed for a moment."""
        return imap_at_rest(self.client_tail, self.server_tail, server_spoke_last=self.server_spoke_last)

    def farewell(self, text: str) -> bytes:
        """What the client is told, nothing where it could not be understood."""
        return imap_farewell(text.encode(), self.client_tail, self.server_tail)

    @property
    def is_over(self) -> bool:
        """Whether the server has said its own goodbye, by itself or because the client asked for it."""
        return imap_is_over(self.client_tail, self.server_tail)


class Pop3Tails(_Tails):
    """Of a POP3 session. Messages marked as deleted stay when it ends without QUIT, so it is better let finish."""

    __slots__ = ("_deletes",)

    def __init__(self) -> None:
        super().__init__()
        self._deletes = False

    def client(self, data: bytes) -> None:
        """Bytes that the client sent."""
        super().client(data)
        self._deletes = pop3_deletes(self.client_tail, before=self._deletes)

    def at_rest(self) -> bool:
        """Whether it is between commands and nothing is marked, when nothing has passed for a moment."""
        at_rest = pop3_at_rest(self.client_tail, self.server_tail, server_spoke_last=self.server_spoke_last)
        return at_rest and not self._deletes

    def farewell(self, text: str) -> bytes:  # noqa: ARG002
        """Nothing: POP3 has no unsolicited lines, one between two commands would be taken for an answer."""
        return b""


class WebSocketNotes:
    """Of a WebSocket: where the server's frames end."""

    __slots__ = ("_frames",)

    command_is_whole = True

    def __init__(self) -> None:
        self._frames = WebSocketFrames()

    def client(self, data: bytes) -> None:
        """Bytes that the client sent: nobody needs to know of them."""

    def server(self, data: bytes) -> None:
        """Bytes that the server sent."""
        self._frames.feed(data)

    def at_rest(self) -> bool:
        """Whether a frame of ours may follow."""
        return self._frames.at_boundary

    def farewell(self, text: str) -> bytes:
        """A close frame, where one is possible."""
        return websocket_close(GOING_AWAY, text.encode()) if self._frames.at_boundary else b""


MailNotes = ImapTails | Pop3Tails | SmtpTracker
"""Of a session of a mail protocol. SMTP needs more than tails: what a message holds looks like commands."""
Notes = MailNotes | WebSocketNotes
"""What tells when a relayed session may be ended, and what its client is told."""
