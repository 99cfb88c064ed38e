"""The log lines of HTTP: one for a refusal, one for a connection that ends, one for each request where that is wanted.

What anybody can cause who can connect must not fill the disk: such lines are bounded by address and counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gatepost.access.busy_log import FURTHER_STRANGERS, FURTHER_UNSIGNED, BusyLog
from gatepost.organization.names import MAX_LOGIN_NAME

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.collected import Collected
    from gatepost.access.http.connection import HttpConnection
    from gatepost.access.http.refusable import Refusable

MAX_LOGGED_PATH = 200
"""Characters of a path in the log; the query, which may hold secrets, is never logged."""


class RequestLog:
    """The part of an `HttpDoor` that writes to the log."""

    def __init__(self, log: Any, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ANN401 - any structlog logger
        self.log = log
        self._busy = BusyLog(log, "http.refused", loop)
        self._unsigned = BusyLog(log, "http.refused", loop, level="info", further=FURTHER_UNSIGNED)
        self._strangers = BusyLog(log, "http.connection", loop, level="info", further=FURTHER_STRANGERS)

    def refused(
        self,
        leg: HttpClientLeg,
        status: int,
        reason: str,
        exchange: Refusable | Collected | None = None,
        *,
        judged: bool | None = None,
    ) -> None:
        """A request was refused or failed: one log line each, when it happens (field case 101).

        Only those without credentials (without `exchange`, unless `judged` says otherwise) are counted by address
        while nobody has signed in on the connection: they cost a stranger nothing.
        """
        fields = {
            "session": leg.session,
            "status": status,
            "reason": reason,
            "user": (exchange.user_name if exchange is not None else "")
            or (leg.credentials[0][:MAX_LOGIN_NAME] if leg.credentials else ""),
            "server": exchange.server_name if exchange is not None else "",
            "request_id": leg.request_id().decode(),
        }
        judged = exchange is not None if judged is None else judged
        leg.tried = leg.tried or judged
        if status in {502, 503}:
            # Between us and the servers something is wrong: the operator must see it.
            self.log.warning("http.refused", client=leg.address[0], **fields)
        elif judged or leg.settled:
            self.log.info("http.refused", client=leg.address[0], **fields)
        else:
            self._unsigned.refused(leg.address[0], **fields)

    def busy(self, leg: HttpClientLeg, reason: str) -> None:
        """A request was refused because too many passwords are being checked: the lines for that are bounded."""
        user = leg.credentials[0][:MAX_LOGIN_NAME] if leg.credentials else ""
        request_id = leg.request_id().decode()
        self._busy.refused(
            leg.address[0], session=leg.session, status=503, reason=reason, user=user, request_id=request_id
        )

    def request_done(
        self, leg: HttpClientLeg, status: int, path: str, exchange: Refusable | Collected | None = None
    ) -> None:
        """The line for a request, where the configuration wants one."""
        self.log.info(
            "http.request",
            session=leg.session,
            client=leg.address[0],
            user=exchange.user_name if exchange is not None else "",
            method=leg.reader.method.decode(),
            path=path[:MAX_LOGGED_PATH],
            status=status,
            server=exchange.server_name if exchange is not None else "",
            request_id=exchange.request_id if exchange is not None else "",
        )

    def ended(self, leg: HttpConnection, reason: str, seconds: float) -> None:
        """The line for a connection, or one more in the count of those that nobody tried to sign in on."""
        fields: dict[str, Any] = {
            "session": leg.session,
            "user": next(iter(leg.users)) if len(leg.users) == 1 else "",
            "users": len(leg.users),
            "requests": leg.requests,
            "outcome": "signed in" if leg.users else "no sign-in",
            "reason": reason,
            "seconds": round(seconds, 3),
            "bytes_in": leg.bytes_in,
            "bytes_out": leg.bytes_out,
        }
        if leg.users or leg.settled or leg.tried:
            self.log.info("http.connection", client=leg.address[0], **fields)
        else:
            self._strangers.refused(leg.address[0], **fields)
