"""AUTH as a server leads it: PLAIN, LOGIN, and GSSAPI or SCRAM, which others judge (RFC 4954, 4616, 4752)."""

from __future__ import annotations

import base64

from gatepost.wire import sasl
from gatepost.wire.events import Credentials, GssToken
from gatepost.wire.sasl import BadSaslMessage

__all__ = ["BadSaslMessage", "SaslDialogue"]

_ASK = b"334 \r\n"
_USER = b"334 VXNlcm5hbWU6\r\n"
_PASSWORD = b"334 UGFzc3dvcmQ6\r\n"
"""`Username:` and `Password:` in base64, as clients look for them."""


class SaslDialogue:
    """One sign-in by `mechanism`. `challenge` is the line to send before the next response."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._user: str | None = None
        led = mechanism.encode()
        self._gss = sasl.GssDialogue(led) if led in sasl.LED_ELSEWHERE else None
        self.challenge = _USER if mechanism == "LOGIN" else _ASK

    @property
    def max_response(self) -> int:
        """Octets of a line of the client, base64."""
        return sasl.MAX_INITIAL_RESPONSE if self._gss is None else self._gss.max_response

    def ask(self, token: bytes) -> bytes:
        """The challenge with the next token of GSSAPI."""
        return b"334 %b\r\n" % base64.b64encode(token)

    def respond(self, line: bytes) -> Credentials | GssToken | None:
        """The credentials when `line` (base64) completes them, None: `challenge` asks for more.

        A token of GSSAPI is to be judged elsewhere; `ask` then makes the next challenge.

        Raises `BadSaslMessage`, also for `*`, by which a client gives up.
        """
        if line == b"*":
            raise BadSaslMessage("cancelled")
        if self._gss is not None:
            return self._gss.respond(line)
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
