"""A mail server that writes down what it takes, and gives trouble.

`python -P -m gatepost.proving.sink ADDRESS PORT FILE [calm]`. A message is a line of FILE before it is answered: its
identity, which is the local part of its recipient, whether its content is as it was sent, its Message-ID, and who has
sent it, by the name at EHLO. The line survives a kill -9 of this process. The reply names who has sent it, too.
SIGUSR1: it takes nothing for a moment.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
from collections import Counter, defaultdict
from typing import cast
from zlib import crc32

import uvloop

CHECK_FIELD = b"X-Proving-Check: "
"""The checksum of what follows the header, in hexadecimal."""
BUSY_SECONDS = 0.7
TROUBLE = {
    "mail": 0.003,  # ended at MAIL by 421
    "rcpt": 0.01,  # the recipient is put off
    "cut": 0.002,  # the connection is cut in the midst of the content
    "end": 0.01,  # the message is put off at its end
    "silent": 0.003,  # it is taken, and the connection cut before the answer: it comes again
}
"""How likely each is, for a message."""
_END = b"\r\n.\r\n"
_MESSAGE_ID = re.compile(rb"^Message-ID: ([!-~]{1,200})\r$", re.IGNORECASE | re.MULTILINE)


def is_whole(content: bytes) -> bool:
    """Whether a message's content, with its dots unstuffed, is what its check field says."""
    header, _, body = content.partition(b"\r\n\r\n")
    _, _, rest = header.partition(CHECK_FIELD)
    return rest.partition(b"\r\n")[0] == b"%08x" % crc32(body)


def message_id(content: bytes) -> str:
    """As its header has it; `-` without one."""
    found = _MESSAGE_ID.search(content.partition(b"\r\n\r\n")[0] + b"\r\n")
    return found[1].decode("ascii") if found else "-"


def whole_messages(taken: str) -> dict[str, Counter[str]]:
    """By the local part of the recipient: how often each Message-ID was taken as it was sent. `taken`: the file."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line in taken.splitlines():
        recipient, whole, identity, *_ = line.split()
        found[recipient][identity] += whole == "1"
    return found


class Sink:
    """What all sessions share: the file, and whether it is busy."""

    def __init__(self, descriptor: int, trouble: dict[str, float], rng: random.Random) -> None:
        self._descriptor = descriptor
        self._trouble = trouble
        self._rng = rng
        self.busy_until = 0.0

    def troubled(self, kind: str) -> bool:
        """Whether this is a moment for that trouble."""
        return self._rng.random() < self._trouble.get(kind, 0.0)

    def take(self, identity: str, content: bytes, client: str) -> None:
        """Write a message down."""
        line = f"{identity} {int(is_whole(content))} {message_id(content)} {client}\n"
        os.write(self._descriptor, line.encode())


class Session(asyncio.Protocol):
    """One connection: SMTP with pipelining, a recipient a message."""

    def __init__(self, sink: Sink, loop: asyncio.AbstractEventLoop) -> None:
        self._sink = sink
        self._loop = loop
        self._buffer = bytearray()
        self._in_content = False
        self._identity = ""
        self._client = b"nobody"
        self._searched = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, or say that there is no time."""
        self._transport = cast(asyncio.Transport, transport)
        if self._loop.time() < self._sink.busy_until:
            self._transport.write(b"421 4.3.2 Busy\r\n")
            self._transport.close()
        else:
            self._transport.write(b"220 sink ESMTP\r\n")

    def data_received(self, data: bytes) -> None:
        """Lines, or content."""
        self._buffer += data
        while not self._transport.is_closing():
            if self._in_content:
                if not self._content():
                    return
                continue
            line, found, rest = self._buffer.partition(b"\r\n")
            if not found:
                return
            self._buffer = rest
            self._command(bytes(line))

    def _command(self, line: bytes) -> None:
        verb = line[:4].upper()
        reply = b"250 2.0.0 Ok"
        match verb:
            case b"EHLO":
                self._client = b"".join(line[5:].split()) or b"nobody"
                reply = b"250-sink\r\n250-PIPELINING\r\n250-ENHANCEDSTATUSCODES\r\n250 8BITMIME"
            case b"MAIL":
                self._identity = ""
                if self._sink.troubled("mail") or self._loop.time() < self._sink.busy_until:
                    self._transport.write(b"421 4.3.2 Ending\r\n")
                    self._transport.close()
                    return
            case b"RCPT":
                if self._sink.troubled("rcpt"):
                    reply = b"451 4.2.0 Later"
                else:
                    self._identity = line[line.index(b"<") + 1 : line.index(b"@")].decode()
            case b"DATA" if self._identity:
                self._in_content, self._searched = True, 0
                reply = b"354 Go on"
            case b"DATA":
                reply = b"503 5.5.1 No recipients"
            case b"QUIT":
                self._transport.write(b"221 2.0.0 Bye\r\n")
                self._transport.close()
                return
        self._transport.write(reply + b"\r\n")

    def _content(self) -> bool:
        """Look for the end; whether it was there."""
        at = self._buffer.find(_END, max(0, self._searched - len(_END)))
        if at < 0:
            self._searched = len(self._buffer)
            if self._sink.troubled("cut"):
                self._transport.abort()
            return False
        content = bytes(self._buffer[: at + 2]).replace(b"\r\n..", b"\r\n.")
        del self._buffer[: at + len(_END)]
        self._in_content = False
        if self._sink.troubled("end"):
            self._transport.write(b"451 4.3.0 Later\r\n")
            return True
        self._sink.take(self._identity, content, self._client.decode("ascii", "replace"))
        if self._sink.troubled("silent"):
            self._transport.abort()
        else:
            self._transport.write(b"250 2.0.0 Taken from %b\r\n" % self._client)
        return True


async def serve(address: str, port: int, file: str, *, calm: bool = False) -> None:
    """Takes mail until it is killed; a `calm` one gives no trouble. Raises OSError."""
    loop = asyncio.get_running_loop()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    sink = Sink(descriptor, {} if calm else TROUBLE, random.Random())  # noqa: S311 - no secret

    def busy() -> None:
        sink.busy_until = loop.time() + BUSY_SECONDS

    loop.add_signal_handler(signal.SIGUSR1, busy)
    server = await loop.create_server(lambda: Session(sink, loop), address, port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], calm=sys.argv[4:] == ["calm"]))
