"""Makes `DKIM-Signature` fields (RFC 6376; Ed25519 by RFC 8463), relaxed/relaxed, always over the whole body.

The work is done in threads of the signer's own: the hash of a small body and one signature at once, a large body block
by block as it is read, so that it is never in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

from gatepost.transport.dkim.canonical import BodyHash, fields_of, relaxed_field
from gatepost.transport.dkim.keys import DkimKey, DkimKeyFault
from gatepost.transport.headers.author import author_domain

SIGNED: Final = (
    b"from", b"reply-to", b"sender", b"to", b"cc", b"subject", b"date", b"message-id", b"in-reply-to", b"references",
    b"mime-version", b"content-type", b"content-transfer-encoding", b"resent-from", b"resent-to", b"resent-date",
    b"list-id", b"list-unsubscribe", b"list-unsubscribe-post",
)  # fmt: skip
"""Fields that are signed where they are there (RFC 6376, section 5.4.1)."""
SEALED: Final = frozenset(
    {b"from", b"to", b"subject", b"date", b"message-id", b"mime-version", b"content-type", b"reply-to"}
)
"""Fields that are named once more than they are there: another one cannot be put in (RFC 6376, section 8.15)."""
WIDTH = 72


class DkimSigner:
    """Signs for the domains of `keys`, of which one may have several. Raises `DkimKeyFault` for a key that is none."""

    def __init__(self, keys: Iterable[DkimKey], threads: int = 1) -> None:
        self._keys: dict[str, list[tuple[DkimKey, RSAPrivateKey | Ed25519PrivateKey]]] = {}
        for key in keys:
            self._keys.setdefault(key.domain.lower().rstrip("."), []).append((key, key.load()))
        self._threads = ThreadPoolExecutor(threads, "dkim") if self._keys else None

    def signs_for(self, from_field: bytes) -> str:
        """The domain that a message with this `From` value is signed for; empty for none."""
        if not self._keys:
            return ""
        domain = author_domain(from_field)
        return domain if domain in self._keys else ""

    async def sign(self, domain: str, header: bytes, body: AsyncIterator[bytes], now: float) -> bytes:
        """The signature fields of a message, one for each key of `domain`, with line ends; to be put before it.

        `header` is the header block, `body` what follows its empty line. Raises what `body` raises, and KeyError for a
        domain without a key.
        """
        keys, threads = self._keys[domain], self._threads
        assert threads is not None
        loop = asyncio.get_running_loop()
        body_hash = BodyHash()
        async for block in body:
            await loop.run_in_executor(threads, body_hash.update, block)
        return await loop.run_in_executor(threads, _signatures, keys, fields_of(header), body_hash.digest(), int(now))

    async def sign_message(self, chunks: AsyncIterator[bytes], now: float) -> bytes:
        """The same for a message as it is read from the spool: the signatures of its author's domain, or nothing."""
        held = b""
        async for block in chunks:
            held += block
            if held.startswith(b"\r\n") or b"\r\n\r\n" in held:
                break
        end = 0 if held.startswith(b"\r\n") else held.find(b"\r\n\r\n") + 2
        header = held[:end] if end > 1 else held
        authors = [value for name, value in fields_of(header) if name == b"from"]
        # With two authors' fields programs differ in which they show: not for us to vouch for.
        domain = self.signs_for(authors[0]) if len(authors) == 1 else ""
        if not domain:
            return b""

        async def body() -> AsyncIterator[bytes]:
            yield held[end + 2 :] if end > 1 else b""
            async for block in chunks:
                yield block

        return await self.sign(domain, header, body(), now)

    def close(self) -> None:
        """Let the threads end."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _signatures(
    keys: list[tuple[DkimKey, RSAPrivateKey | Ed25519PrivateKey]],
    fields: list[tuple[bytes, bytes]],
    body_hash: bytes,
    now: int,
) -> bytes:
    names, text = _signed(fields)
    return b"".join(_signature(key, private, names, text, body_hash, now) for key, private in keys)


def _signed(fields: list[tuple[bytes, bytes]]) -> tuple[list[bytes], bytes]:
    """The names for `h=`, and the fields in relaxed form. The last field of a name is taken first (section 5.4.2)."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        found.setdefault(name, []).append(value)
    names: list[bytes] = []
    text: list[bytes] = []
    for name in SIGNED:
        for value in reversed(found.get(name, [])):
            names.append(name)
            text.append(relaxed_field(name, value) + b"\r\n")
        if name in SEALED:
            names.append(name)
    return names, b"".join(text)


def _signature(
    key: DkimKey,
    private: RSAPrivateKey | Ed25519PrivateKey,
    names: list[bytes],
    text: bytes,
    body_hash: bytes,
    now: int,
) -> bytes:
    algorithm = "rsa-sha256" if isinstance(private, RSAPrivateKey) else "ed25519-sha256"
    lines = _folded(":".join(name.decode("ascii") for name in names), ":")
    unsigned = (
        f" v=1; a={algorithm}; c=relaxed/relaxed; d={key.domain};\r\n\ts={key.selector}; t={now};\r\n"
        f"\th={lines};\r\n\tbh={b64encode(body_hash).decode('ascii')};\r\n\tb="
    ).encode()
    hashed = text + relaxed_field(b"dkim-signature", unsigned)
    if isinstance(private, RSAPrivateKey):
        value = private.sign(hashed, PKCS1v15(), SHA256())
    else:
        value = private.sign(hashlib.sha256(hashed).digest())
    encoded = b64encode(value).decode("ascii")
    pieces = "\r\n\t ".join(encoded[at : at + WIDTH] for at in range(0, len(encoded), WIDTH))
    return b"DKIM-Signature:" + unsigned + pieces.encode("ascii") + b"\r\n"


def _folded(text: str, parted_by: str) -> str:
    lines: list[str] = [""]
    for word in text.split(parted_by):
        if len(lines[-1]) + len(word) > WIDTH - 4:
            lines.append("")
        lines[-1] += f"{word}{parted_by}"
    return "\r\n\t ".join(lines).removesuffix(parted_by)


__all__ = ["DkimKey", "DkimKeyFault", "DkimSigner"]
