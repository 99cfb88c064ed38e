"""Taking connections from a listening socket by ourselves, and the PROXY header that some begin with.

For listeners where something comes before the first byte that a protocol reads: a header of exactly known size, a count
of strangers before they may cost a TLS handshake.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from gatepost.wire.proxy_protocol import BadProxyHeader, ProxyHeader, parse

BACKLOG = 4096
"""Connections the kernel keeps for us; a restarted worker takes them over."""
ACCEPTS_AT_ONCE = 64
"""Connections taken before other events get their turn."""
ACCEPT_PAUSE_SECONDS = 0.5
"""Wait when the process or the machine has no more file descriptors."""
CAPACITY_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
MAX_V1_LINE = 107
"""Longest version 1 header (PROXY protocol specification, section 2.1)."""


class Acceptor:
    """Gives each connection of `sock` to `arrived`, with the address it comes from, until `close`.

    `exhausted` is told when there are no more file descriptors; accepting goes on after a pause.
    """

    def __init__(
        self,
        sock: socket.socket,
        arrived: Callable[[socket.socket, str], None],
        exhausted: Callable[[OSError], None],
    ) -> None:
        self._sock = sock
        self._arrived = arrived
        self._exhausted = exhausted
        self._loop = asyncio.get_running_loop()
        self._open = True
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Take no more connections, and close the socket. Safe twice."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in CAPACITY_ERRORS:
                    raise
                self._exhausted(error)
                self._loop.remove_reader(self._sock.fileno())
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume)
                return
            sock.setblocking(False)
            self._arrived(sock, peer[0])

    def _resume(self) -> None:
        if self._open:
            self._loop.add_reader(self._sock.fileno(), self._accept)


async def read_proxy_header(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> ProxyHeader:
    """The PROXY header that `sock` begins with, and not one byte more (field case 88).

    Raises `BadProxyHeader` when there is none (its absence from a listed peer means a wrong set-up) or it is broken.
    """
    head = bytearray(await _exactly(loop, sock, len(V2_SIGNATURE)))
    if head == V2_SIGNATURE:
        head += await _exactly(loop, sock, 4)
        head += await _exactly(loop, sock, int.from_bytes(head[14:16], "big"))
    else:
        if not head.startswith(b"PROXY "):
            raise BadProxyHeader("the connection does not begin with one")
        while not head.endswith(b"\n") and len(head) <= MAX_V1_LINE:
            head += await _exactly(loop, sock, 1)
    parsed = parse(bytes(head))
    if parsed is None:
        raise BadProxyHeader("incomplete")
    return parsed[0]


async def _exactly(loop: asyncio.AbstractEventLoop, sock: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        chunk = await loop.sock_recv(sock, size - len(got))
        if not chunk:
            raise ConnectionResetError("closed within the PROXY header")
        got += chunk
    return bytes(got)
