"""SCRAM-SHA-256 as a server leads it (RFC 5802, 7677): messages, strict and bounded, and whether a proof is right.

    client-first ── first ──► whose keys? ── challenge ──► client-final ── final ── is_right ──► verifier

Nothing here knows users: who drives it finds the keys, or makes up some for a name that nobody has. Randomness comes
from outside.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from gatepost.wire.sasl import BadSaslMessage, text

PLAIN_NAME = "SCRAM-SHA-256"
PLUS_NAME = "SCRAM-SHA-256-PLUS"
MAX_MESSAGE = 2048
"""Octets of one message: names, nonces and a proof."""
MAX_NONCE = 256
DIGEST_BYTES = 32

_NONCE = re.compile(rb"[\x21-\x2b\x2d-\x7e]{1,%d}" % MAX_NONCE)
_EXTENSION = re.compile(r"[A-Za-z]=[^,]+")
_ESCAPE = re.compile("=(2C|3D)")


@dataclass(frozen=True, slots=True)
class Keys:
    """What a store holds of a password (RFC 5802 section 3)."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message. `flag` is `n`, `y` or `p`; `binding` the type that it binds by."""

    flag: str
    binding: str
    authorization_id: str
    name: str
    nonce: str
    header: bytes = field(repr=False)
    bare: bytes = field(repr=False)


class ScramServer:
    """One exchange. `bindings`: what can be bound by, by type; `offers_plus`: the client was told so.

    `nonce`: ours, random, printable, without a comma.
    """

    __slots__ = ("_bindings", "_challenge", "_first", "_offers_plus", "_plus", "_proof", "_said", "nonce")

    def __init__(self, mechanism: str, bindings: Mapping[str, bytes], nonce: str, *, offers_plus: bool) -> None:
        self._plus = mechanism == PLUS_NAME
        self._bindings = bindings
        self._offers_plus = offers_plus
        self.nonce = nonce
        self._first: ClientFirst | None = None
        self._challenge = b""
        self._said = b""
        """The client's last message without its proof."""
        self._proof = b""

    def first(self, message: bytes) -> ClientFirst:
        """Take the client's first message. Raises `BadSaslMessage`, also for a binding that does not fit (5802, 6)."""
        first = _read_first(message)
        if self._plus:
            if first.flag != "p":
                raise BadSaslMessage("no channel binding where the mechanism has it")
            if first.binding not in self._bindings:
                raise BadSaslMessage("a channel binding of a type that is not offered")
        elif first.flag == "p":
            raise BadSaslMessage("channel binding where the mechanism has none")
        elif first.flag == "y" and self._offers_plus:
            raise BadSaslMessage("the client was not told of channel binding: somebody is in between")
        self._first = first
        return first

    def challenge(self, keys: Keys) -> bytes:
        """The server's first message."""
        assert self._first is not None, "the client's first message is missing"
        salt = base64.b64encode(keys.salt).decode()
        self._challenge = f"r={self._first.nonce}{self.nonce},s={salt},i={keys.iterations}".encode()
        return self._challenge

    def final(self, message: bytes) -> None:
        """Take the client's last message. Raises `BadSaslMessage` where it does not belong to this exchange."""
        first = self._first
        assert first is not None, "the client's first message is missing"
        if len(message) > MAX_MESSAGE:
            raise BadSaslMessage("a message that is too long")
        said, mark, proof = message.rpartition(b",p=")
        parts = said.split(b",")
        if not mark or len(parts) < 2 or parts[0][:2] != b"c=" or parts[1][:2] != b"r=":
            raise BadSaslMessage("not a last message")
        _read_extensions(parts[2:])
        bound = first.header + (self._bindings[first.binding] if self._plus else b"")
        if not hmac.compare_digest(_decoded(parts[0][2:]), bound):
            raise BadSaslMessage("the channel bindings do not match")
        if parts[1][2:] != f"{first.nonce}{self.nonce}".encode():
            raise BadSaslMessage("another nonce")
        self._said, self._proof = said, _decoded(proof)
        if len(self._proof) != DIGEST_BYTES:
            raise BadSaslMessage("a proof of another length")

    def is_right(self, keys: Keys) -> bool:
        """Whether the client's proof shows that it knows the password behind `keys`."""
        signature = _hmac(keys.stored_key, self._spoken)
        client_key = bytes(a ^ b for a, b in zip(self._proof, signature, strict=True))
        return hmac.compare_digest(sha256(client_key).digest(), keys.stored_key)

    def verifier(self, keys: Keys) -> bytes:
        """The server's last message, which shows the client that we know the keys."""
        return b"v=" + base64.b64encode(_hmac(keys.server_key, self._spoken))

    @property
    def _spoken(self) -> bytes:
        assert self._first is not None, "the client's first message is missing"
        return b",".join((self._first.bare, self._challenge, self._said))


def make_keys(prepared: bytes, salt: bytes, iterations: int) -> Keys:
    """The keys of a password, which SASLprep has prepared. Slow: `iterations` steps of PBKDF2."""
    from hashlib import pbkdf2_hmac

    salted = pbkdf2_hmac("sha256", prepared, salt, iterations)
    stored = sha256(_hmac(salted, b"Client Key")).digest()
    return Keys(iterations, salt, stored, _hmac(salted, b"Server Key"))


def _read_first(message: bytes) -> ClientFirst:
    if len(message) > MAX_MESSAGE:
        raise BadSaslMessage("a message that is too long")
    flag, comma, rest = message.partition(b",")
    authorization, second, bare = rest.partition(b",")
    if not comma or not second:
        raise BadSaslMessage("not a first message")
    word, _, binding = flag.partition(b"=")
    if word not in (b"n", b"y", b"p") or (word == b"p") != bool(binding) or (word != b"p" and flag != word):
        raise BadSaslMessage("a bad GS2 header")
    if authorization and not authorization.startswith(b"a="):
        raise BadSaslMessage("a bad authorization identity")
    parts = bare.split(b",")
    if len(parts) < 2 or parts[0][:2] != b"n=" or parts[1][:2] != b"r=":
        raise BadSaslMessage("an extension that is not known" if parts[0][:2] == b"m=" else "no name or nonce")
    _read_extensions(parts[2:])
    nonce = parts[1][2:]
    if _NONCE.fullmatch(nonce) is None:
        raise BadSaslMessage("a bad nonce")
    name = _unescaped(parts[0][2:])
    if not name:
        raise BadSaslMessage("no name")
    header = message[: len(message) - len(bare)]
    return ClientFirst(
        word.decode(), text(binding), _unescaped(authorization[2:]), name, nonce.decode("ascii"), header, bare
    )


def _read_extensions(parts: list[bytes]) -> None:
    """Extensions that may be passed over (section 5.1)."""
    for part in parts:
        if _EXTENSION.fullmatch(text(part)) is None or part[:2] == b"m=":
            raise BadSaslMessage("a bad extension")


def _unescaped(value: bytes) -> str:
    name = text(value)
    if "=" in _ESCAPE.sub("", name):
        raise BadSaslMessage("a bad name")
    return _ESCAPE.sub(lambda found: "," if found[1] == "2C" else "=", name)


def _decoded(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise BadSaslMessage("not base64") from error


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
