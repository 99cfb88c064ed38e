"""SASL as a server needs it: messages of PLAIN, LOGIN, XOAUTH2, OAUTHBEARER and others. Strict, bounded, byte-exact.

Bytes of names and passwords are UTF-8 (RFC 4616); anything else, and NUL, CR or LF inside, is `BadSaslMessage`
(field case 60). Names are not changed here: `organization.names` brings them to one form.
"""

from __future__ import annotations

import base64
import binascii
import json

from gatepost.wire.events import NO_HELP, BadChallenge, Credentials, GssToken, Refusal, SaslDialogue, TokenHelp

MAX_INITIAL_RESPONSE = 20480
"""Base64 characters of one response: tokens of 12288 bytes and what is around them must fit (field case 53)."""

MAX_GSS_RESPONSE = 87384
"""Base64 characters of a response of GSSAPI: tokens of 65536 octets, with the groups of the largest users."""


SCRAM = (b"SCRAM-SHA-256", b"SCRAM-SHA-256-PLUS")
EXTERNAL = b"EXTERNAL"
LED_ELSEWHERE = frozenset({b"GSSAPI", *SCRAM, EXTERNAL})
"""Mechanisms whose messages others judge, one by one (`GssToken`)."""

MAX_LED_RESPONSE = 4096
"""Base64 characters of a response of theirs, but for GSSAPI's."""
TOKEN_REFUSED = frozenset({Refusal.WRONG_CREDENTIALS, Refusal.INSUFFICIENT_SCOPE})
"""Refusals that are told in a challenge first where a token was shown (RFC 7628 section 3.2.2)."""


class BadSaslMessage(ValueError):
    """The client's message does not fit its mechanism. Shown as a syntax error, not as a wrong password."""


def decode_base64(data: bytes, limit: int = MAX_INITIAL_RESPONSE) -> bytes:
    """Strict base64; `=` alone is the empty string (RFC 4954 section 4). Raises `BadSaslMessage`."""
    if data == b"=":
        return b""
    if len(data) > limit:
        raise BadSaslMessage("response too long")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise BadSaslMessage("not base64") from error


class GssDialogue:
    """The client's responses of one exchange of GSSAPI, or another mechanism whose messages others judge."""

    __slots__ = ("_first", "_mechanism", "max_response")

    def __init__(self, mechanism: bytes = b"GSSAPI") -> None:
        self._first = True
        self._mechanism = mechanism.decode("ascii")
        self.max_response = MAX_GSS_RESPONSE if mechanism == b"GSSAPI" else MAX_LED_RESPONSE
        """Base64 characters of a response."""

    def respond(self, line: bytes) -> GssToken:
        """One response in base64, which is not `*`. Raises `BadSaslMessage`."""
        token = decode_base64(line, self.max_response)
        first, self._first = self._first, False
        if first and not token and self._mechanism != EXTERNAL.decode():
            raise BadSaslMessage("an empty token")
        return GssToken(token, first, self._mechanism)


def answer(dialogue: SaslDialogue, challenge: bytes) -> bytes:
    """The response to a server's challenge, both in base64. Raises `BadChallenge`."""
    try:
        return base64.b64encode(dialogue.respond(decode_base64(challenge.strip(b" "))))
    except BadSaslMessage as error:
        raise BadChallenge(f"a challenge that is {error}") from error


def text(data: bytes) -> str:
    """`data` as text that may travel in any protocol. Raises `BadSaslMessage`."""
    try:
        decoded = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadSaslMessage("not UTF-8") from error
    if "\0" in decoded or "\r" in decoded or "\n" in decoded:
        raise BadSaslMessage("a control character")
    return decoded


def parse_plain(message: bytes) -> Credentials:
    """`authzid NUL authcid NUL passwd` (RFC 4616 section 2). Raises `BadSaslMessage`."""
    parts = message.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise BadSaslMessage("not a PLAIN message")
    authorization, authentication, password = (text(p) for p in parts)
    return Credentials("PLAIN", authentication, authorization, password=password)


def plain_message(credentials_user: str, password: str, authorization_id: str = "") -> bytes:
    """The PLAIN message for these, not yet in base64."""
    return b"\0".join(s.encode() for s in (authorization_id, credentials_user, password))


def parse_xoauth2(message: bytes) -> Credentials:
    """`user=… ^A auth=Bearer … ^A ^A`. Raises `BadSaslMessage`."""
    fields = _key_values(message.split(b"\x01"))
    return Credentials("XOAUTH2", text(fields.get(b"user", b"")), token=_bearer(fields))


def parse_oauthbearer(message: bytes) -> Credentials:
    """`gs2-header ^A key=value ^A … ^A` (RFC 7628 section 3.1), without channel binding. Raises `BadSaslMessage`."""
    header, *rest = message.split(b"\x01")
    gs2 = header.split(b",")
    if len(gs2) != 3 or gs2[0] not in (b"n", b"y") or gs2[2]:
        raise BadSaslMessage("a bad GS2 header")
    user = gs2[1]
    if user and not user.startswith(b"a="):
        raise BadSaslMessage("a bad authorization identity")
    name = user[2:].replace(b"=2C", b",").replace(b"=3D", b"=")
    return Credentials("OAUTHBEARER", text(name), token=_bearer(_key_values(rest)))


def bearer_message(mechanism: str, user: str, token: str) -> bytes:
    """The client's message of `XOAUTH2` or `OAUTHBEARER`, not yet in base64."""
    if mechanism == "XOAUTH2":
        return f"user={user}\x01auth=Bearer {token}\x01\x01".encode()
    name = user.replace("=", "=3D").replace(",", "=2C")
    return f"n,a={name},\x01auth=Bearer {token}\x01\x01".encode()


def bearer_error(mechanism: str, refusal: Refusal = Refusal.WRONG_CREDENTIALS, told: TokenHelp = NO_HELP) -> bytes:
    """The challenge that tells a client why its token was refused (RFC 7628 section 3.2.2), not yet in base64."""
    status = "insufficient_scope" if refusal is Refusal.INSUFFICIENT_SCOPE else "invalid_token"
    if mechanism == "XOAUTH2":  # its clients know numbers
        status = "403" if refusal is Refusal.INSUFFICIENT_SCOPE else "400"
    found = {"status": status, "schemes": "bearer", "scope": told.scope}
    if told.openid_configuration:
        found["openid-configuration"] = told.openid_configuration
    return json.dumps(found).encode()


def _key_values(parts: list[bytes]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    if len(parts) < 2 or parts[-2:] != [b"", b""]:
        raise BadSaslMessage("a message without its end")
    for part in parts[:-2]:
        key, equals, value = part.partition(b"=")
        if not equals or key in fields:
            raise BadSaslMessage("a bad or repeated field")
        fields[key] = value
    return fields


def _bearer(fields: dict[bytes, bytes]) -> str:
    scheme, _, token = fields.get(b"auth", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise BadSaslMessage("no bearer token")
    return text(token.strip())
