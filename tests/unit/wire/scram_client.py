"""A SCRAM-SHA-256 client for tests, written from RFC 5802 by itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass


@dataclass
class ScramClient:
    """`header` is the GS2 header, `bound` the data it binds by."""

    name: str
    password: str
    header: bytes = b"n,,"
    bound: bytes = b""
    nonce: str = "fyko+d2lbbFgONRv9qkxdawL"
    salt: bytes = b""
    iterations: int = 0
    _spoken: bytes = b""
    _salted: bytes = b""

    def first(self) -> bytes:
        """The first message."""
        return self.header + self._bare

    def last(self, challenge: bytes) -> bytes:
        """The last message, to the server's challenge."""
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        assert fields["r"].startswith(self.nonce)
        assert len(fields["r"]) > len(self.nonce) + 16
        self.salt, self.iterations = base64.b64decode(fields["s"]), int(fields["i"])
        said = b"c=" + base64.b64encode(self.header + self.bound) + b",r=" + fields["r"].encode()
        self._spoken = b",".join((self._bare, challenge, said))
        self._salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), self.salt, self.iterations)
        key = _hmac(self._salted, b"Client Key")
        signature = _hmac(hashlib.sha256(key).digest(), self._spoken)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return said + b",p=" + base64.b64encode(proof)

    def believes(self, verifier: bytes) -> bool:
        """Whether the server has shown that it knows the keys."""
        return verifier == b"v=" + base64.b64encode(_hmac(_hmac(self._salted, b"Server Key"), self._spoken))

    @property
    def _bare(self) -> bytes:
        name = self.name.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}".encode()


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()
