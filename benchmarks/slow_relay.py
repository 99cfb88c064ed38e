"""A TCP relay that keeps what the server says for some time: a directory far away, or one that has much to do.

python slow_relay.py ADDRESS PORT SERVER_ADDRESS SERVER_PORT SECONDS
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Side(asyncio.Protocol):
    """One end; what comes is written to the other after `seconds`."""

    transport: asyncio.Transport | None = None
    other: Side | None = None

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; say what came before."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        for data in self._early:
            self.transport.write(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        """To the other end."""
        assert self.other is not None
        if self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, self.other.say, data)
        else:
            self.other.say(data)

    def say(self, data: bytes) -> None:
        """Write, as soon as that goes."""
        if self.transport is None:
            self._early.append(data)
        else:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Both ends go together."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Front(Side):
    """The client's end; it opens the server's."""

    def __init__(self, server: tuple[str, int], seconds: float) -> None:
        super().__init__()
        self.other = Side(seconds)
        self.other.other = self
        self._server = server
        self._opening: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect on."""
        super().connection_made(transport)
        assert self.other is not None
        back = self.other
        self._opening = asyncio.ensure_future(asyncio.get_running_loop().create_connection(lambda: back, *self._server))


async def serve(address: str, port: int, server: tuple[str, int], seconds: float) -> None:
    """Relay until the process is ended."""
    listening = await asyncio.get_running_loop().create_server(lambda: Front(server, seconds), address, port)
    await listening.serve_forever()


if __name__ == "__main__":
    _, address, port, server_address, server_port, seconds = sys.argv
    uvloop.run(serve(address, int(port), (server_address, int(server_port)), float(seconds)))
