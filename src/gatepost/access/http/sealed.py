"""Sealed values: what a front end gives a client to keep, and only front ends with the same certificate can read.

The key comes from the certificate's private key, which all front ends of one name share (SPEC B6): AES-256-GCM
(NIST SP 800-38D) under a key of HKDF-SHA256 (RFC 5869). A value is base64url, without padding, of

    version (1) | key id (4) | nonce (12) | ciphertext | tag (16)

Version, key id and purpose are authenticated with it, so that no value passes for one of another purpose.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from gatepost.configuration.settings import OtherKey

VERSION = b"\x01"
MAX_PLAIN = 2900
"""Octets that can be sealed: browsers keep cookies of 4096 octets, name and attributes included (RFC 6265 6.1)."""
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12
"""Random, 96 bits: good for 2^32 values under one key (SP 800-38D section 8.3), far more than a certificate lives."""
_HEAD_BYTES = 1 + _KEY_ID_BYTES + _NONCE_BYTES
_LEAST = _HEAD_BYTES + 16
_MOST = (_LEAST + MAX_PLAIN) * 4 // 3 + 4
_ALPHABET = re.compile(rb"[A-Za-z0-9_-]+")


class Sealer:
    """Seals with the first of `keys`, opens what any of them has sealed.

    `keys` are private keys in PEM, RSA or elliptic; how the file spells a key does not matter. `also_opens` are keys
    that only open, each until its moment: those of the certificate before, or of the one to come. `purpose` separates
    kinds of values: what is sealed for one never opens for another. Raises ValueError for a key that cannot be read.
    """

    __slots__ = ("_keys", "_purpose", "_seals_with")

    def __init__(self, keys: Sequence[bytes], purpose: bytes, also_opens: Sequence[OtherKey] = ()) -> None:
        if not keys:
            raise ValueError("nothing can be sealed without a key")
        self._purpose = purpose
        self._keys: dict[bytes, tuple[AESGCM, float]] = {}
        for other in also_opens:
            key_id, key = _derive(other.private_key, purpose)
            self._keys[key_id] = (key, other.until.timestamp())
        for pem in reversed(keys):
            key_id, key = _derive(pem, purpose)
            self._keys[key_id] = (key, float("inf"))
        self._seals_with = key_id

    def seal(self, plain: bytes) -> bytes:
        """A value that opens to `plain`, another one each time. Raises ValueError over `MAX_PLAIN` octets."""
        if len(plain) > MAX_PLAIN:
            raise ValueError("too long to be sealed")
        head = VERSION + self._seals_with
        nonce = os.urandom(_NONCE_BYTES)
        key, _ = self._keys[self._seals_with]
        return base64.urlsafe_b64encode(head + nonce + key.encrypt(nonce, plain, head + self._purpose)).rstrip(b"=")

    def open(self, value: bytes, now: float) -> bytes | None:
        """What was sealed, or None for anything else. `now` is in seconds since 1970. Never raises."""
        if not _LEAST <= len(value) <= _MOST or _ALPHABET.fullmatch(value) is None:
            return None
        try:
            data = base64.urlsafe_b64decode(value + b"=" * (-len(value) % 4))
        except binascii.Error:
            return None
        key, until = self._keys.get(data[1 : 1 + _KEY_ID_BYTES], (None, 0.0))
        # One value has one spelling: what the last digit's unused bits say is judged too.
        if key is None or now >= until or data[:1] != VERSION or len(data) < _LEAST or not _is_spelling(value, data):
            return None
        try:
            return key.decrypt(
                data[1 + _KEY_ID_BYTES : _HEAD_BYTES],
                data[_HEAD_BYTES:],
                data[: 1 + _KEY_ID_BYTES] + self._purpose,
            )
        except InvalidTag:
            return None

    def opens_until(self, value: bytes) -> float:
        """When the key of `value`, which must be one that opens, opens nothing any more; mostly never (infinity)."""
        start = base64.urlsafe_b64decode(value[:8])
        return self._keys[start[1 : 1 + _KEY_ID_BYTES]][1]


def _is_spelling(value: bytes, data: bytes) -> bool:
    tail = len(data) % 3
    return not tail or base64.urlsafe_b64encode(data[-tail:]).rstrip(b"=") == value[-tail - 1 :]


def _derive(pem: bytes, purpose: bytes) -> tuple[bytes, AESGCM]:
    """Key id and key for `purpose`."""
    private = load_pem_private_key(pem, password=None)
    secret = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    info = b"gatepost sealed value " + VERSION + purpose
    derived = HKDF(SHA256(), 32 + _KEY_ID_BYTES, salt=None, info=info).derive(secret)
    return derived[32:], AESGCM(derived[:32])
