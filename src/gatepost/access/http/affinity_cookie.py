"""The cookie by which a browser stays with the server chosen first (SPEC B1), at whatever front end it asks next.

Sealed, and even inside no server is named: only a digest, so that a cookie can choose among the servers a decision
offers and nothing else (SPEC C14). It counts for the user it was made for, nobody else.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Collection, Sequence
from hashlib import blake2b

import msgspec

from gatepost.access.http.sealed import Sealer
from gatepost.configuration.settings import OtherKey
from gatepost.wire.http_cookies import AFFINITY, set_line

PURPOSE = b"affinity"
MAX_SERVICES = 8
"""Services of one user that have a server remembered; the one chosen longest ago goes first."""
MAX_KNOWN = 5_000
"""What cookies kept, remembered so that they need not be opened with each request; half a KiB each."""
_SALT_BYTES = 16
_DIGEST_BYTES = 16


class _Kept(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What is sealed. `salt` is the key of all digests, another in each browser."""

    salt: bytes
    user: bytes
    servers: dict[str, bytes]
    """By service, oldest choice first."""


class AffinityCookie:
    """Makes and reads the cookie at one front end. `value` is always the cookie's value as it came, or empty.

    Raises ValueError for a key that cannot be read.
    """

    def __init__(self, private_key: bytes, also_opens: Sequence[OtherKey] = ()) -> None:
        self._sealer = Sealer([private_key], PURPOSE, also_opens)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(_Kept).decode
        self._known: dict[tuple[bytes, str, str], str] = {}
        """Servers by value, user and service. It outlives a key that opens no more: it is a wish among candidates."""

    def kept(self, value: bytes, user: str, service: str, candidates: Collection[str], now: float) -> str | None:
        """Which of `candidates` (servers' names) `user` was given for `service`; None if none, or not by us.

        `now` is in seconds since 1970.
        """
        known = self._known.get((value, user, service))
        if known is not None and known in candidates:
            return known
        kept = self._open(value, user, now)
        wanted = kept.servers.get(service) if kept is not None else None
        if kept is None or wanted is None:
            return None
        found = next((name for name in candidates if _digest(kept.salt, b"server", name) == wanted), None)
        if found is not None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[value, user, service] = found
        return found

    def line(self, value: bytes, user: str, service: str, server: str, now: float) -> bytes:
        """The Set-Cookie line by which `user` stays with `server` for `service`; what `value` kept for others stays."""
        kept = self._open(value, user, now)
        if kept is None:
            salt = os.urandom(_SALT_BYTES)
            kept = _Kept(salt, _digest(salt, b"user", user), {})
        kept.servers.pop(service, None)
        while len(kept.servers) >= MAX_SERVICES:
            del kept.servers[next(iter(kept.servers))]
        kept.servers[service] = _digest(kept.salt, b"server", server)
        return set_line(AFFINITY, self._sealer.seal(self._encode(kept)))

    def _open(self, value: bytes, user: str, now: float) -> _Kept | None:
        plain = self._sealer.open(value, now) if value else None
        if plain is None:
            return None
        try:
            kept = self._decode(plain)
        except msgspec.MsgspecError:  # sealed by another version of this product
            return None
        if len(kept.salt) != _SALT_BYTES or not hmac.compare_digest(kept.user, _digest(kept.salt, b"user", user)):
            return None
        return kept


def _digest(salt: bytes, kind: bytes, name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), key=salt, person=kind, digest_size=_DIGEST_BYTES).digest()
