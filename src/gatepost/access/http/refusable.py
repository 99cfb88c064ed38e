"""A request that is under way, as far as it can fail: what is known of it by then, and the answer that it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.access.http.answers import RETRY_SECONDS
from gatepost.access.http.identity import Identity
from gatepost.access.http.refusals import refusal
from gatepost.routing.outcome import Cause, Mailbox
from gatepost.wire.http_fields import passed_value

if TYPE_CHECKING:
    from gatepost.access.http.asked import Asked
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.destination import Destination
    from gatepost.access.http.server_leg import HttpServerLeg


class Refusable:
    """The part of an `Exchange` that refuses it. `Exchange` sets the attributes, all at once."""

    __slots__ = ("_extra", "_response_begun", "_server", "asked", "destination", "epoch", "identity", "leg", "mailbox")

    leg: HttpClientLeg
    asked: Asked
    identity: Identity
    """Who it is from; not set before that is known."""
    mailbox: Mailbox
    """Whose server the request goes to: the user's own, or another that the request names."""
    destination: Destination
    """Where it goes; not set before that is decided."""
    epoch: int
    """The epoch of the mailbox's database that this was decided by."""
    _extra: bytes
    """Complete header lines for the response."""
    _response_begun: bool
    _server: HttpServerLeg | None
    """The connection that is ours until the response is complete."""

    @property
    def extra(self) -> bytes:
        """Complete header lines for the response."""
        return self._extra

    def end(self) -> None:
        """Nothing more may happen for this exchange; a connection with an open request is closed."""
        raise NotImplementedError

    def refuse(
        self,
        status: int,
        reason: str,
        *,
        cause: Cause | None = None,
        told: str = "",
        close: bool = False,
        retry: int = RETRY_SECONDS,
    ) -> None:
        """End the exchange with an answer in the form that this kind of client understands, and a log line.

        `reason` is for the log; the client is `told` only what names no secret of ours, and when to come back if the
        fault is a temporary one: in `retry` seconds.
        """
        self.end()
        leg = self.leg
        leg.door.refused(leg, status, reason, self)
        asked = self.asked
        accept = passed_value(leg.reader.passed, b"accept") or b""
        status, fields, kind, body = refusal(
            asked.kind, asked.service, status, cause, told, retry, accept, leg.reader.method
        )
        leg.answer(status, body, fields=fields + self._extra, content_type=kind, close=close)

    def fail(self, status: int, reason: str, *, close: bool) -> None:
        """The exchange cannot go on through the client's fault."""
        if self._response_begun:
            self.end()
            self.leg.abort(reason)
        else:
            self.refuse(status, reason, close=close)

    def expired(self) -> None:
        """The time for the response, or for the next piece of a body, is over."""
        if self._response_begun:
            self.end()
            self.leg.abort("a body stood still")
        elif self.leg.body is not None and self._server is not None:
            self.refuse(408, "the body took too long", close=True)
        else:
            self.refuse(503, "no response in time", cause=Cause.NO_ANSWER)

    def give_way(self) -> None:
        """Others wait for what this one holds, and its user holds more than a share (`balancing.fair_share`)."""
        reason = "gave way: its user has too many requests under way, and others wait"
        if self._response_begun:
            self.end()
            self.leg.abort(reason)
        else:
            self.refuse(503, reason, cause=Cause.BUSY)

    def client_gone(self) -> None:
        """The client has closed: the server need not go on (field case 21)."""
        self.end()

    def add_fields(self, fields: bytes) -> None:
        """Complete header lines for the response, such as a renewed cookie."""
        self._extra += fields

    # --- the log

    @property
    def server_name(self) -> str:
        """Name of the server that the request goes to; empty while it is not decided."""
        return self.destination.server.name if hasattr(self, "destination") else ""

    @property
    def database(self) -> str:
        """Name of the database that the request is about; empty while that is not known."""
        return (self.mailbox.database or "") if hasattr(self, "mailbox") else ""

    @property
    def user_name(self) -> str:
        """Canonical name of the user, once signed in."""
        return self.identity.user.name if hasattr(self, "identity") else ""

    @property
    def request_id(self) -> str:
        """The id that server and client were given."""
        return self.leg.request_id().decode()
