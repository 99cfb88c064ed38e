"""A message's content as our SMTP server takes it, by DATA or BDAT, and why it is refused."""

from __future__ import annotations

from gatepost.organization.transport import ReceiveConnector
from gatepost.wire import smtp_server_replies as replies
from gatepost.wire.smtp_data import DataDecoder, TextDecoder
from gatepost.wire.smtp_header import HeaderScan


class Content:
    """What both ways share. Once content will be refused, `feed` gives nothing more of it."""

    def __init__(self, connector: ReceiveConnector, decoder: DataDecoder | TextDecoder) -> None:
        self._connector = connector
        self._decoder = decoder
        self.header = HeaderScan(connector.max_header_size)
        self.size = 0
        """Octets of content so far."""

    @property
    def eight_bit(self) -> bool:
        """Whether it goes beyond ASCII."""
        return self._decoder.eight_bit

    @property
    def ambiguous(self) -> bool:
        """Whether there was something by which others see another end of DATA: a bare CR or LF, a NUL."""
        fault = self._decoder.fault
        return bool(fault) and fault.ambiguous

    @property
    def refusal(self) -> bytes | None:
        """The reply to content that is not taken, as far as it has been seen; None: it is."""
        fault = self._decoder.fault
        if fault and fault.ambiguous:
            return replies.AMBIGUOUS_CONTENT
        if self.size > self._connector.max_message_size:
            return replies.TOO_LARGE
        if self.header.too_large:
            return replies.HEADER_TOO_LARGE
        if fault:
            return replies.LINE_IN_CONTENT_TOO_LONG
        return replies.TOO_MANY_HOPS if self.header.hops > self._connector.max_hop_count else None

    def feed(self, data: bytes) -> bytes:
        """What of `data` is to be written."""
        return self._count(self._decoder.feed(data))

    def _count(self, piece: bytes) -> bytes:
        self.size += len(piece)
        if not self.header.ended:
            self.header.feed(piece)
        if self._decoder.fault or self.size > self._connector.max_message_size or self.header.too_large:
            return b""
        return piece


class DataContent(Content):
    """Content of DATA. `ended`: the end has been seen, `rest` came after it."""

    _decoder: DataDecoder

    def __init__(self, connector: ReceiveConnector) -> None:
        super().__init__(connector, DataDecoder(bare_line_feeds=connector.bare_line_feeds))

    @property
    def ended(self) -> bool:
        """Whether CR LF `.` CR LF has come."""
        return self._decoder.ended

    @property
    def rest(self) -> bytes:
        """What came after the end."""
        return self._decoder.rest


class ChunkContent(Content):
    """Content of BDAT, one chunk after the other."""

    _decoder: TextDecoder

    def __init__(self, connector: ReceiveConnector) -> None:
        super().__init__(connector, TextDecoder(bare_line_feeds=connector.bare_line_feeds))

    def finish(self) -> bytes:
        """What is left to be written after the last chunk."""
        return self._count(self._decoder.finish())
