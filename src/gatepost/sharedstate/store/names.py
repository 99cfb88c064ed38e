"""How the shared store spells what it is asked for: digests under a key that only the front ends have."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from hashlib import blake2b

from gatepost.sharedstate.tables import digest


@dataclass(frozen=True, slots=True)
class Names:
    """Keys of the store, all below one prefix. Who reads the store learns neither names, nor addresses, nor passwords.

    `secret` is the same at all front ends. A device's or a session's digest is that of the front end's own file, so
    that what lies there can be named here.
    """

    prefix: str
    secret: bytes = field(repr=False)

    @property
    def marks_key(self) -> bytes:
        """For the digests of passwords: 32 bytes, the same at all front ends."""
        return blake2b(b"marks", key=self._secret, digest_size=32, person=b"gp-shared").digest()

    def text(self, kind: str, text: str) -> str:
        """The key for a name of any length."""
        return self.digest(kind, digest(text))

    def digest(self, kind: str, name: bytes) -> str:
        """The key for a name that is a digest already."""
        hidden = blake2b(name, key=self._secret, digest_size=16, person=b"gp-name").digest()
        return self.plain(kind, base64.urlsafe_b64encode(hidden).rstrip(b"=").decode())

    def plain(self, kind: str, word: str) -> str:
        """The key for a word that tells nothing of anybody."""
        return f"{self.prefix}/{kind}/{word}"

    @property
    def _secret(self) -> bytes:
        """As blake2b takes it: 64 bytes at most."""
        return blake2b(self.secret, digest_size=64, person=b"gp-secret").digest()
