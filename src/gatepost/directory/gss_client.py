"""The client's side of SASL GSSAPI (RFC 4752) at a mailbox server, without I/O: the first token is made already.

AUTHENTICATE GSSAPI ◄─ (empty) ─► token ◄─ the server's proof ─► (empty) ◄─ offer of layers ─► "none"
"""

from __future__ import annotations

import gssapi
from gssapi.raw.misc import GSSError

from gatepost.wire.events import BadChallenge

MAX_ROUNDS = 6
_NO_LAYER = 1
_CHOICE = b"\x01\x00\x00\x00"
"""No security layer, since TLS protects the session; no authorization identity: the ticket says who it is."""


class GssClient:
    """See `wire.events.SaslDialogue`. `context` wants mutual authentication and has made `token`."""

    def __init__(self, context: gssapi.SecurityContext, token: bytes) -> None:
        self._context = context
        self._token: bytes | None = token
        self._rounds = 0
        self.complete = False
        """See `SaslDialogue`."""

    def respond(self, challenge: bytes) -> bytes:
        """See `SaslDialogue`. Raises `BadChallenge`."""
        self._rounds += 1
        if self._rounds > MAX_ROUNDS or self.complete:
            raise BadChallenge("too many challenges")
        try:
            return self._respond(challenge)
        except GSSError as error:
            texts = [text for text in error.get_all_statuses(error.min_code, False) if text]
            raise BadChallenge(f"the server's token is not good: {' '.join(texts)[:200]}") from error

    def _respond(self, challenge: bytes) -> bytes:
        if self._token is not None:
            token, self._token = self._token, None
            if challenge:
                raise BadChallenge("a challenge before our token")
            return token
        context = self._context
        if not context.complete:
            answer: bytes = context.step(challenge) or b""
            if not context.complete and not answer:
                raise BadChallenge("the server's proof is missing")
            return answer
        offer = context.unwrap(challenge).message
        if len(offer) != 4 or not offer[0] & _NO_LAYER:
            raise BadChallenge("the server wants a security layer")
        self.complete = True
        wrapped: bytes = context.wrap(_CHOICE, False).message
        return wrapped
