"""Responses that end only when somebody ends them: event streams, and the notifications of web services."""

from __future__ import annotations

from gatepost.wire.http_fields import passed_value
from gatepost.wire.http_head import ResponseReader

_EVENTS = b"text/event-stream"
_WEB_SERVICES = "ews"
_KEPT = 24


class EventStream:
    """Knows whether a stream is between two of its events, by how the last piece ended."""

    __slots__ = ("_ends", "_tail")

    def __init__(self, ends: tuple[bytes, ...], tail: bytes = b"") -> None:
        self._ends = ends
        self._tail = tail

    def feed(self, payload: bytes) -> None:
        """A piece of the body."""
        self._tail = (self._tail + payload[-_KEPT:])[-_KEPT:]

    @property
    def at_boundary(self) -> bool:
        """Whether its end here would cut no event."""
        return self._tail.endswith(self._ends)


def event_stream(reader: ResponseReader, service: str) -> EventStream | None:
    """The stream that this response is, or None: its body ends by itself.

    An event of `text/event-stream` ends with an empty line (WHATWG HTML section 9.2.6), which is also where a comment
    to keep it alive ends. Streaming notifications of Exchange Web Services are one SOAP envelope after another.
    """
    kind = (passed_value(reader.passed, b"content-type") or b"").lower()
    if kind.startswith(_EVENTS):
        return EventStream((b"\n\n", b"\r\n\r\n", b"\r\r"), b"\n\n")
    if service == _WEB_SERVICES and b"xml" in kind:
        return EventStream((b"Envelope>", b"Envelope>\n", b"Envelope>\r\n"))
    return None
