"""A message's content as it leaves: with the fields that were added and without those that were taken out.

Sizes are exact, since what is sent is compared with them, and SIZE says them (RFC 1870). So a header that may lose
fields is read before anything else is done; what only gains some is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from gatepost.transport.headers.edits import MAX_HELD, left_out
from gatepost.transport.headers.kinds import FENCED_PREFIXES
from gatepost.transport.message import Envelope
from gatepost.transport.ports import BodyReader
from gatepost.transport.spool.reading import MemoryBody

_END = b"\r\n\r\n"


async def as_it_leaves(body: BodyReader, envelope: Envelope) -> BodyReader:
    """The content with the envelope's edits, if there are any. Raises OSError."""
    if not envelope.added and not envelope.left_out:
        return body
    return await changed(body, envelope.added, [name.encode("latin-1") for name in envelope.left_out])


async def changed(
    body: BodyReader, before: bytes = b"", without: Collection[bytes] = (), *, fenced: bool = False
) -> BodyReader:
    """The content with the fields `before` in front, and less those whose names (lower case) are in `without`.

    With `fenced` less those too that servers of the organization tell each other. What is put in front stays. `body`
    is the caller's to close, too. Raises OSError.
    """
    whole_content: bytes | None = getattr(body, "whole", None)
    if whole_content is not None:
        return _changed_at_once(body, whole_content, before, without, fenced=fenced)
    if not without and not fenced:
        return _Leaving(body, before, b"", None, body.size) if before else body
    chunks = body.chunks()
    held, whole = b"", False
    try:
        while not (held.startswith(b"\r\n") or _END in held or len(held) > MAX_HELD or len(held) >= body.size):
            block = await anext(chunks, b"")
            if not block:
                break
            held += block
        whole = len(held) >= body.size
    finally:
        if whole:
            await _close(chunks)
    kept = held
    if without or _is_fenced(held):
        kept = left_out(held, without, fenced=fenced)
    return _Leaving(body, before, kept, None if whole else chunks, body.size - len(held) + len(kept))


def _changed_at_once(
    body: BodyReader, content: bytes, before: bytes, without: Collection[bytes], *, fenced: bool
) -> BodyReader:
    kept = content
    if without or (fenced and _is_fenced(content)):
        kept = left_out(content, without, fenced=fenced)
    return body if kept is content and not before else MemoryBody(before + kept)


def _is_fenced(content: bytes) -> bool:
    header = content[: content.find(_END) + 2].lower()
    return any(prefix in header for prefix in FENCED_PREFIXES)


class _Leaving:
    """Fields in front, what has been read of the content, and the rest of it. A `BodyReader`."""

    __slots__ = ("_before", "_body", "_held", "_rest", "size")

    def __init__(
        self, body: BodyReader, before: bytes, held: bytes, rest: AsyncIterator[bytes] | None, size: int
    ) -> None:
        self._body = body
        self._before = before
        self._held = held
        self._rest = rest
        self.size = len(before) + size

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `BodyReader`."""
        rest, first = self._rest, self._before + self._held
        if rest is None and len(first) < self.size:  # nothing has been read yet
            rest = self._body.chunks()
            first += await anext(rest, b"")
        if first:
            yield first
        if rest is not None:
            try:
                async for block in rest:
                    yield block
            finally:
                await _close(rest)

    def close(self) -> None:
        """See `BodyReader`."""
        self._body.close()


async def _close(chunks: AsyncIterator[bytes]) -> None:
    if (close := getattr(chunks, "aclose", None)) is not None:
        await close()
