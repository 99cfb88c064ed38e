"""AUTH as a server leads it: PLAIN and LOGIN (RFC 4954, 4616)."""

from __future__ import annotations

from gatepost.wire import sasl
from gatepost.wire.events import Credentials
from gatepost.wire.sasl import BadSaslMessage

__all__ = ["MECHANISMS", "BadSaslMessage", "SaslDialogue"]

MECHANISMS = frozenset({"PLAIN", "LOGIN"})

_ASK = b"334 \r\n"
_USER = b"334 VXNlcm5hbWU6\r\n"
_PASSWORD = b"334 UGFzc3dvcmQ6\r\n"
"""`Username:` and `Password:` in base64, as clients look for them."""


class SaslDialogue:
    """One sign-in by `mechanism`. `challenge` is the line to send before the next response."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._user: str | None = None
        self.challenge = _USER if mechanism == "LOGIN" else _ASK

    def respond(self, line: bytes) -> Credentials | None:
        """The credentials when `line` (base64) completes them, None: `challenge` asks for more.

        Raises `BadSaslMessage`, also for `*`, by which a client gives up.
        """
        if line == b"*":
            raise BadSaslMessage("cancelled")
        message = sasl.decode_base64(line)
        if self._mechanism == "PLAIN":
            return sasl.parse_plain(message)
        if self._user is None:
            self._user = sasl.text(message)
            if not self._user:
                raise BadSaslMessage("no name")
            self.challenge = _PASSWORD
            return None
        password = sasl.text(message)
        if not password:
            raise BadSaslMessage("no password")
        return Credentials("LOGIN", self._user, password=password)
