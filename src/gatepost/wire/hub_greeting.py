"""The dialogue with a hub until a stranger's session can be handed to it (SPEC B7, T12).

    greeting begins with 220 ──► handed over                                    the client hears it as it comes
    with XCLIENT:  greeting ─► EHLO ─► XCLIENT ─► greeting anew ─► EHLO ──► handed over
    anything else ──► failed: another hub is tried

Without XCLIENT not more is read than it takes to see that the hub is willing. A hub that makes its clients wait in the
middle of its greeting, to catch those who do not, does so with ours.
"""

from __future__ import annotations

import re

from gatepost.wire.events import BackEvent, ClientFacts, Failed, FailureKind, Send, SignedIn
from gatepost.wire.pop3_lines import CRLF, clean
from gatepost.wire.smtp_client_extensions import offers
from gatepost.wire.smtp_client_reply import MAX_LINE, BadReply, ReplyReader
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.submission_back import xclient_items

_WILLING = re.compile(rb"220[ \r\n-]")
_REFUSAL = re.compile(rb"[45][0-9]{2}[ \r\n-]")
_SHORTEST = 4


class HubGreeting:
    """Hands over at the greeting; by XCLIENT `client` is told first. `name` is what we call ourselves at EHLO.

    The outcome is `SignedIn`, whose `rest` is what the client is to hear. `state_name` is for the log.
    """

    def __init__(self, name: str, client: ClientFacts | None) -> None:
        self._name = name
        self._client = client
        self._begun = b""
        """Without XCLIENT: the greeting as far as it has come."""
        self._replies = ReplyReader()
        self._replies.whole = True
        self._greeting = Reply(220, "")
        self._told = False
        self.state_name = "greeting"
        self.notes: list[str] = []
        """Nothing: what a hub does not take is a reason not to use it."""

    def connected(self) -> list[BackEvent]:
        """The connection stands; the hub speaks first."""
        return []

    def tls_started(self) -> list[BackEvent]:
        """TLS is between the client and the hub."""
        return []

    def receive(self, data: bytes) -> list[BackEvent]:
        """Take bytes of the hub. Once handed over or failed, nothing comes back."""
        if self.state_name in {"handed over", "failed"}:
            return []
        if self._client is None:
            return self._first_bytes(data)
        events: list[BackEvent] = []
        try:
            self._replies.feed(data)
            while self.state_name not in {"handed over", "failed"} and (reply := self._replies.take()) is not None:
                events += self._reply(reply, self._client)
        except BadReply as error:
            events += self._fail(FailureKind.PROTOCOL, str(error))
        return events

    def _first_bytes(self, data: bytes) -> list[BackEvent]:
        self._begun += data
        begun = self._begun
        if len(begun) < _SHORTEST:
            return []
        if _WILLING.match(begun):
            return self._hand_over(begun)
        line, end, _ = begun.partition(b"\n")
        if not _REFUSAL.match(begun):
            return self._fail(FailureKind.PROTOCOL, "not an SMTP greeting")
        if not end and len(begun) < MAX_LINE:
            return []
        return self._fail(FailureKind.UNAVAILABLE, clean(line))

    def _reply(self, reply: Reply, client: ClientFacts) -> list[BackEvent]:
        if self.state_name == "EHLO":
            return self._offered(reply, client)
        if reply.code != 220:
            # What a hub does not believe of a client it would believe of us: a stranger would have our rights there.
            kind = FailureKind.UNAVAILABLE
            if self.state_name == "XCLIENT" and reply.permanent:
                kind = FailureKind.PROTOCOL
            return self._fail(kind, str(reply))
        self._greeting = reply
        self._told = self.state_name == "XCLIENT"
        self.state_name = "EHLO"
        return [Send(b"EHLO %b\r\n" % self._name.encode("ascii", "ignore"))]

    def _offered(self, reply: Reply, client: ClientFacts) -> list[BackEvent]:
        if reply.code != 250:
            kind = FailureKind.UNAVAILABLE if reply.transient else FailureKind.PROTOCOL
            return self._fail(kind, str(reply))
        words = offers(reply).get("XCLIENT")
        if self._told:
            if words is not None:
                text = "the hub would take XCLIENT from the client too: it goes by our address, not by the client's"
                return self._fail(FailureKind.PROTOCOL, text)
            return self._hand_over(self._greeting.encode() + self._replies.rest())
        items = xclient_items(client, words or [])
        if not items:
            text = "XCLIENT is not offered: it would take every client for us" if not words else "no address that fits"
            return self._fail(FailureKind.PROTOCOL, text)
        self.state_name = "XCLIENT"
        return [Send(b"XCLIENT " + b" ".join(items) + CRLF)]

    def _hand_over(self, heard: bytes) -> list[BackEvent]:
        self.state_name = "handed over"
        self._begun = b""
        self._replies.clear()
        return [SignedIn(b"", rest=heard)]

    def _fail(self, kind: FailureKind, text: str) -> list[BackEvent]:
        step, self.state_name = self.state_name, "failed"
        self._begun = b""
        self._replies.clear()
        return [Failed(kind, clean(f"{step}: {text}"))]
