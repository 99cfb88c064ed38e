"""Messages between the supervisor and its workers, and how they travel.

A frame is four bytes of length (big-endian) and one msgpack message on a Unix stream socket. File descriptors ride on
the frame's first byte (SCM_RIGHTS), so whoever has a whole frame has its descriptors too.

    supervisor ── Start, Reload, Drain, Ping, StatusRequest ──► worker
    supervisor ◄── Ready, Failed, Reloaded, Leaving, Pong, StatusReply ── worker
    operator   ── StatusRequest ──► supervisor ── ServiceStatus ──► operator
    sessions   ── SessionsRequest, Kick: see `session_messages`
    transport  ── TransportRequest: see `transport_messages`

Secrets (private key, master passwords) travel here in the configuration: never on a command line or in the environment.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest
from gatepost.service.transport_messages import TransportReply, TransportRequest

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""One message: an organization of tens of thousands of objects is a few MB, 20,000 sessions are about 6 MB."""
MAX_WAITING_BYTES = 2 * MAX_FRAME_BYTES
"""Unsent bytes towards one peer. A peer that lets more pile up hangs; the connection is closed."""
MAX_DESCRIPTORS = 250
"""Descriptors of one message (the kernel's SCM_MAX_FD is 253)."""
_READ_BYTES = 256 * 1024
_HEAD_BYTES = 4


class ControlError(ConnectionError):
    """The other side broke the protocol or sends more than a bound allows."""


class _Message(msgspec.Struct, frozen=True, tag=True):
    """A message; its tag is the class name."""


class Opened(msgspec.Struct, frozen=True):
    """An endpoint to listen on, whose `count` listening sockets ride on the message."""

    name: str
    count: int


class Configured(_Message, frozen=True):
    """A configuration for a worker, as `handing_over.pack` makes it, and what belongs to it.

    The descriptors are: the log file if `log` is set, then the sockets in the order of `opened`.
    """

    version: int
    configuration: bytes
    opened: list[Opened]
    log: bool

    def __repr__(self) -> str:
        return f"{type(self).__name__}(version={self.version}, {len(self.configuration)} bytes)"


class Start(Configured, frozen=True):
    """The first message to a worker."""

    slot: int
    user: str
    """Account to run as; empty: unchanged."""


class Reload(Configured, frozen=True):
    """A new configuration. First the endpoints in `closed` are closed, last those in `opened` are opened."""

    closed: list[str]


class Drain(_Message, frozen=True):
    """Accept nothing more and end when the last session has, or after `seconds`."""

    seconds: float


class Ping(_Message, frozen=True):
    """Asks whether the worker's loop turns."""


class StatusRequest(_Message, frozen=True):
    """Asks for a `StatusReply` (worker) or a `ServiceStatus` (supervisor)."""


class Ready(_Message, frozen=True):
    """The worker accepts connections."""


class Failed(_Message, frozen=True):
    """The worker cannot start; it ends."""

    reason: str


class Reloaded(_Message, frozen=True):
    """The worker runs with `version`, or, when `error` is not empty, goes on with what it had."""

    version: int
    error: str = ""


class Leaving(_Message, frozen=True):
    """The worker was told to end by a signal of its own: a replacement is wanted, then a `Drain`."""


class Pong(_Message, frozen=True):
    """The answer to `Ping`."""


class ManagerReply(msgspec.Struct, frozen=True):
    """What an active manager does. `acts`: it holds the lease; `holder` and `term` are the lease's, whoever has it."""

    acts: bool
    holder: str
    term: int
    moving: list[str]
    """Databases with a move under way."""
    ill: dict[str, str]
    """Services that do not answer well, with the reasons."""


class StatusReply(_Message, frozen=True):
    """What a worker does. `sessions` holds at most `MAX_SESSIONS_LISTED` of `counters["sessions"]`.

    `manager` is there when it is the active manager's; the transport's has counters only.
    """

    version: int
    counters: dict[str, int]
    sessions: list[dict[str, Any]]
    manager: ManagerReply | None = None


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker as the supervisor sees it. `status` is None when it did not answer in time."""

    slot: int
    pid: int
    state: str
    status: StatusReply | None


class ManagerStatus(msgspec.Struct, frozen=True):
    """The active manager's process as the supervisor sees it. `status` is None when it did not answer in time."""

    pid: int
    state: str
    restarts: int
    status: ManagerReply | None


class TransportStatus(msgspec.Struct, frozen=True):
    """The transport's process as the supervisor sees it. `counters` is None when it did not answer in time."""

    pid: int
    state: str
    restarts: int
    counters: dict[str, int] | None


class ServiceStatus(_Message, frozen=True):
    """The whole front end. `manager` and `transport` are None where it runs none."""

    server: str
    pid: int
    version: int
    restarts: int
    workers: list[WorkerStatus]
    manager: ManagerStatus | None = None
    transport: TransportStatus | None = None


MAX_SESSIONS_LISTED = 20_000
"""Sessions in one `StatusReply`; keeps it well under `MAX_FRAME_BYTES`."""

Message = (
    Start
    | Reload
    | Drain
    | Ping
    | StatusRequest
    | Ready
    | Failed
    | Reloaded
    | Leaving
    | Pong
    | StatusReply
    | ServiceStatus
    | SessionsRequest
    | SessionsReply
    | Kick
    | Kicked
    | TransportRequest
    | TransportReply
)

_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The frame of `message`. Raises `ControlError` when it is over `MAX_FRAME_BYTES`."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ControlError(f"message of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return len(body).to_bytes(_HEAD_BYTES, "big") + body


class FrameReader:
    """Cuts a byte stream into messages and hands each the descriptors that came with it."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._descriptors: deque[int] = deque()

    def feed(self, data: bytes, descriptors: Sequence[int] = ()) -> list[tuple[Message, list[int]]]:
        """The messages that `data` completes. Raises `ControlError`; the connection is then of no more use."""
        self._buffer += data
        self._descriptors.extend(descriptors)
        found = []
        while len(self._buffer) >= _HEAD_BYTES:
            length = int.from_bytes(self._buffer[:_HEAD_BYTES], "big")
            if length > MAX_FRAME_BYTES:
                raise ControlError(f"frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}")
            if len(self._buffer) < _HEAD_BYTES + length:
                break
            body = bytes(self._buffer[_HEAD_BYTES : _HEAD_BYTES + length])
            del self._buffer[: _HEAD_BYTES + length]
            found.append(self._message(body))
        return found

    def _message(self, body: bytes) -> tuple[Message, list[int]]:
        try:
            message = _decoder.decode(body)
        except msgspec.MsgspecError as fault:
            raise ControlError(f"not a message: {type(fault).__name__}") from fault
        count = message.log + sum(o.count for o in message.opened) if isinstance(message, Configured) else 0
        if count > len(self._descriptors):
            raise ControlError("descriptors are missing")
        return message, [self._descriptors.popleft() for _ in range(count)]

    def close(self) -> None:
        """Closes descriptors that no message took."""
        while self._descriptors:
            os.close(self._descriptors.popleft())


def send_with_descriptors(sock: socket.socket, data: bytes | memoryview, descriptors: Sequence[int]) -> int:
    """`sock.send` with `descriptors` on the first byte; answers the bytes taken. Raises OSError."""
    if not descriptors:
        return sock.send(data)
    return sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


def receive_with_descriptors(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Bytes (empty at the end) and descriptors, which are close-on-exec. Raises OSError, `ControlError`."""
    size = MAX_DESCRIPTORS * array.array("i").itemsize
    data, ancillary, flags, _ = sock.recvmsg(_READ_BYTES, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise ControlError("descriptors were cut off: the limit of open files is too low")
    return data, list(descriptors)


class Channel:
    """One end of a control connection on an event loop.

    `on_message(message, descriptors)` is called for each message and owns the descriptors; `on_close()` once when the
    other side has gone or broke the protocol, not when this side closes. Neither may raise.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_message: Callable[[Message, list[int]], None],
        on_close: Callable[[], None],
        reader: FrameReader | None = None,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._on_message = on_message
        self._on_close = on_close
        self._reader = reader or FrameReader()
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()
        self._waiting_bytes = 0
        self.closed = False
        self.received_bytes = 0
        sock.setblocking(False)
        loop.add_reader(sock, self._readable)

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Sends, now or when the other side reads. Raises `ControlError` when the message is too big."""
        frame = encode(message)
        if self.closed:
            return
        if self._waiting_bytes + len(frame) > MAX_WAITING_BYTES:
            self._lost()
            return
        # Duplicates, since the caller may close its own before these bytes leave.
        self._waiting.append((memoryview(frame), [os.dup(d) for d in descriptors]))
        self._waiting_bytes += len(frame)
        if len(self._waiting) == 1:
            self._writable()

    def _writable(self) -> None:
        try:
            while self._waiting:
                frame, descriptors = self._waiting[0]
                sent = send_with_descriptors(self._sock, frame, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                self._waiting_bytes -= sent
                if sent < len(frame):
                    self._waiting[0] = (frame[sent:], [])
                else:
                    self._waiting.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._sock, self._writable)
            return
        except OSError:
            self._lost()
            return
        self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            data, descriptors = receive_with_descriptors(self._sock)
            self.received_bytes += len(data)
            messages = self._reader.feed(data, descriptors)
        except BlockingIOError:
            return
        except OSError:
            self._lost()
            return
        for message, owned in messages:
            self._on_message(message, owned)
        if not data and not self.closed:
            self._lost()

    def read_rest(self) -> None:
        """Reads what a peer that has ended left behind."""
        while not self.closed:
            before = self.received_bytes
            self._readable()
            if self.received_bytes == before:
                return

    def _lost(self) -> None:
        if not self.closed:
            self.close()
            self._on_close()

    def close(self) -> None:
        """Closes this end."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._reader.close()
        for _, descriptors in self._waiting:
            for descriptor in descriptors:
                os.close(descriptor)
        self._waiting.clear()


def receive_first(sock: socket.socket, reader: FrameReader, seconds: float) -> list[tuple[Message, list[int]]]:
    """The first message and what came along with it, before there is a loop. Raises TimeoutError, `ControlError`."""
    sock.settimeout(seconds)
    while True:
        data, descriptors = receive_with_descriptors(sock)
        if not data:
            raise ControlError("the supervisor is gone")
        messages = reader.feed(data, descriptors)
        if messages:
            return messages
