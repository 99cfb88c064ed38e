"""LMTP (RFC 2033) of the lab's own mailbox server: takes what hubs deliver, as far as a lab needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import protocol
from twisted.protocols import basic


class Lmtp(basic.LineReceiver):
    """One connection. Recipients are accounts with any domain; a detail behind `+` is cut off."""

    MAX_LENGTH = 65536

    def __init__(self, name: str, has: Callable[[str], bool], deliver: Callable[[str, bytes], None]) -> None:
        self._name = name
        self._has = has
        self._deliver = deliver
        self._users: list[str] = []
        self._content: list[bytes] | None = None

    def connectionMade(self) -> None:
        """Greet."""
        self._say(f"220 {self._name} LMTP")

    def lineReceived(self, line: bytes) -> None:
        """A command, or a line of the message."""
        if self._content is not None:
            self._content_line(line)
            return
        words = line.decode(errors="replace").split(" ", 1)
        match words[0].upper():
            case "LHLO":
                self._say(f"250-{self._name}", "250-PIPELINING", "250-8BITMIME", "250 ENHANCEDSTATUSCODES")
            case "MAIL" | "RSET":
                self._users = []
                self._say("250 2.0.0 OK")
            case "RCPT":
                self._recipient(words[-1])
            case "DATA" if self._users:
                self._content = []
                self._say("354 Go on")
            case "NOOP":
                self._say("250 2.0.0 OK")
            case "QUIT":
                self._say("221 2.0.0 Bye")
                self.transport.loseConnection()
            case _:
                self._say("503 5.5.1 Not now")

    def _recipient(self, path: str) -> None:
        address = path.partition("<")[2].partition(">")[0]
        user = address.partition("@")[0].partition("+")[0].lower()
        if self._has(user):
            self._users.append(user)
            self._say("250 2.1.5 OK")
        else:
            self._say("550 5.1.1 No such mailbox")

    def _content_line(self, line: bytes) -> None:
        assert self._content is not None
        if line != b".":
            self._content.append(line.removeprefix(b"."))
            return
        message = b"\r\n".join([*self._content, b""])
        self._content = None
        for user in self._users:
            self._deliver(user, message)
            self._say(f"250 2.0.0 <{user}> saved")
        self._users = []

    def _say(self, *lines: str) -> None:
        for line in lines:
            self.sendLine(line.encode())


class LmtpFactory(protocol.ServerFactory):
    """LMTP connections."""

    def __init__(self, name: str, has: Callable[[str], bool], deliver: Callable[[str, bytes], None]) -> None:
        self._given = name, has, deliver

    def buildProtocol(self, addr: Any) -> protocol.Protocol:  # noqa: ARG002
        """A connection."""
        return Lmtp(*self._given)
