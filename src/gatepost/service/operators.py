"""The operators' socket: a Unix socket beside the registry, for the account that runs the supervisor only (mode 0600).

One request a connection, in the frames of `control`: `StatusRequest` in, `ServiceStatus` out; `SessionsRequest` and
`Kick` and `TransportRequest` are answered likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from gatepost.access import tasks
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.service.control import (
    Channel,
    ControlError,
    FrameReader,
    Message,
    ServiceStatus,
    StatusRequest,
    encode,
    receive_first,
)
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest
from gatepost.service.transport_messages import TransportReply, TransportRequest

Answer = TypeVar("Answer", ServiceStatus, SessionsReply, Kicked, TransportReply)
Request = StatusRequest | SessionsRequest | Kick | TransportRequest

PREFIX, SUFFIX = "gatepost-", ".sock"
MAX_CONNECTIONS = 16
"""Operators' commands at once; more wait in the listen queue."""


def socket_path(front_end: FrontEnd) -> Path:
    """Where the operators' socket of a front end is."""
    return Path(front_end.registry).parent / f"{PREFIX}{front_end.server}{SUFFIX}"


def all_sockets(front_end: FrontEnd) -> dict[str, Path]:
    """The operators' sockets of all front ends of this machine that share the folder of the registry, by server."""
    found = sorted(Path(front_end.registry).parent.glob(f"{PREFIX}*{SUFFIX}"))
    return {path.name.removeprefix(PREFIX).removesuffix(SUFFIX): path for path in found}


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """A name for `path` that fits into a socket address (107 bytes), however deep the folder is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Service(Protocol):
    """What operators may ask of (`supervisor.Supervisor`)."""

    async def status(self) -> ServiceStatus:
        """The service and its workers now."""
        ...

    async def sessions(self, request: SessionsRequest) -> SessionsReply:
        """The sessions that match."""
        ...

    async def kick(self, request: Kick) -> Kicked:
        """End the sessions that match."""
        ...

    async def transport(self, request: TransportRequest) -> TransportReply:
        """What the transport says."""
        ...


class OperatorsSocket:
    """Answers operators. Without it the service still serves: a fault is logged, not raised."""

    def __init__(
        self,
        configuration: Configuration,
        service: Service,
        log: FilteringBoundLogger,
    ) -> None:
        self._path = socket_path(configuration.front_end)
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._channels: set[Channel] = set()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._listen()
        except OSError as fault:
            log.warning("service.no_operators_socket", path=str(self._path), reason=str(fault))

    def _listen(self) -> None:
        # A socket left by a supervisor that was killed; the instance lock says that nobody uses it.
        self._path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with _short_path(self._path) as name:
                self._sock.bind(name)
        finally:
            os.umask(before)
        self._sock.listen()
        self._sock.setblocking(False)
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return
        if len(self._channels) >= MAX_CONNECTIONS:
            sock.close()
            return

        def received(message: Message, descriptors: list[int]) -> None:
            for descriptor in descriptors:
                os.close(descriptor)
            if isinstance(message, StatusRequest | SessionsRequest | Kick | TransportRequest):
                tasks.start(self._answer(channel, message), "operators' request")
            else:
                closed()
                channel.close()

        def closed() -> None:
            self._channels.discard(channel)

        channel = Channel(self._loop, sock, received, closed)
        self._channels.add(channel)

    async def _answer(self, channel: Channel, message: Request) -> None:
        answer: ServiceStatus | SessionsReply | Kicked | TransportReply
        match message:
            case SessionsRequest():
                answer = await self._service.sessions(message)
            case Kick():
                answer = await self._service.kick(message)
            case TransportRequest():
                answer = await self._service.transport(message)
            case _:
                answer = await self._service.status()
        channel.send(answer)

    def close(self) -> None:
        """Stops answering and removes the socket."""
        self._loop.remove_reader(self._sock)
        self._sock.close()
        for channel in self._channels:
            channel.close()
        self._path.unlink(missing_ok=True)


def ask(path: Path, seconds: float = 10.0) -> ServiceStatus:
    """The status of the service whose operators' socket is `path`. Blocks. Raises OSError."""
    return request(path, StatusRequest(), ServiceStatus, seconds)


def request(path: Path, message: Request, kind: type[Answer], seconds: float = 10.0) -> Answer:
    """The answer, which is of that `kind`, to one request at the operators' socket `path`. Blocks. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, _short_path(path) as name:
        sock.settimeout(seconds)
        sock.connect(name)
        sock.sendall(encode(message))
        answer, _ = receive_first(sock, FrameReader(), seconds)[0]
    if not isinstance(answer, kind):
        raise ControlError("the supervisor answered something else")
    return answer
