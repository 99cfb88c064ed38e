"""The server's side of one AUTHENTICATE exchange: base64 lines in, challenges or credentials out."""

from __future__ import annotations

import base64

from gatepost.wire import sasl
from gatepost.wire.events import Credentials, GssToken, Refusal, TokenHelp

BEARER = (b"XOAUTH2", b"OAUTHBEARER")
PASSWORD = (b"PLAIN", b"LOGIN")
KERBEROS = (b"GSSAPI",)

_PARSERS = {b"PLAIN": sasl.parse_plain, b"XOAUTH2": sasl.parse_xoauth2, b"OAUTHBEARER": sasl.parse_oauthbearer}
_ASK_USER = base64.b64encode(b"Username:")
_ASK_PASSWORD = base64.b64encode(b"Password:")


class SaslExchange:
    """One exchange. Answers are the next challenge in base64, the credentials, or a token of GSSAPI to judge.

    They raise `sasl.BadSaslMessage`.
    """

    __slots__ = ("_gss", "_mechanism", "_user")

    def __init__(self, mechanism: bytes) -> None:
        self._mechanism = mechanism
        self._user: str | None = None
        self._gss = sasl.GssDialogue(mechanism) if mechanism in sasl.LED_ELSEWHERE else None

    @property
    def max_response(self) -> int:
        """Octets of a line of the client, base64."""
        return sasl.MAX_INITIAL_RESPONSE if self._gss is None else self._gss.max_response

    def start(self, initial: bytes | None) -> bytes | Credentials | GssToken:
        """Begin, with the client's initial response where it sent one (RFC 4959)."""
        if self._mechanism == b"LOGIN" and initial in (None, b"="):
            return _ASK_USER  # this mechanism's server speaks first: an empty response is no name yet
        return b"" if initial is None else self.respond(initial)

    def respond(self, line: bytes) -> bytes | Credentials | GssToken:
        """Take one response line of the client, which is not `*`."""
        if self._gss is not None:
            return self._gss.respond(line)
        message = sasl.decode_base64(line)
        if self._mechanism != b"LOGIN":
            return _PARSERS[self._mechanism](message)
        if self._user is None:
            self._user = sasl.text(message)
            return _ASK_PASSWORD
        return Credentials("LOGIN", self._user, password=sasl.text(message))

    def error_challenge(self, refusal: Refusal, told: TokenHelp) -> bytes | None:
        """The challenge, in base64, that tells of a refused token before the refusal; None where there is none."""
        if self._mechanism not in BEARER:
            return None
        return base64.b64encode(sasl.bearer_error(self._mechanism.decode(), refusal, told))
