"""AUTH as a server leads it: PLAIN, LOGIN, bearer tokens, and GSSAPI or SCRAM, which others judge (RFC 4954, 7628)."""

from __future__ import annotations

import base64

from gatepost.wire import sasl
from gatepost.wire.events import Credentials, GssToken, Refusal, TokenHelp
from gatepost.wire.sasl import BadSaslMessage
from gatepost.wire.smtp_server_rights import BEARER

__all__ = ["BadSaslMessage", "SaslDialogue"]

_PARSERS = {"PLAIN": sasl.parse_plain, "XOAUTH2": sasl.parse_xoauth2, "OAUTHBEARER": sasl.parse_oauthbearer}
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
        self.bearer = mechanism in BEARER
        """Whether a token is shown; a refused one is told of in a challenge."""
        self.refused = False
        """That has been told: the client's next line ends the exchange, whatever it is (RFC 7628 section 3.2.3)."""
        self.challenge = _USER if mechanism == "LOGIN" else _ASK

    @property
    def max_response(self) -> int:
        """Octets of a line of the client, base64."""
        return sasl.MAX_INITIAL_RESPONSE if self._gss is None else self._gss.max_response

    def ask(self, token: bytes) -> bytes:
        """The challenge with the next token of GSSAPI."""
        return b"334 %b\r\n" % base64.b64encode(token)

    def error(self, refusal: Refusal, told: TokenHelp) -> bytes:
        """The challenge that says why a token was refused."""
        self.refused = True
        return b"334 %b\r\n" % base64.b64encode(sasl.bearer_error(self._mechanism, refusal, told))

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
        if self._mechanism in _PARSERS:
            return _PARSERS[self._mechanism](message)
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
