"""Header work on the way out: fields put before a message's content, and fields left out of it, as it is read."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection

from gatepost.transport.headers.kinds import FENCED_PREFIXES

MAX_HELD = 1024 * 1024
"""Octets of a header that are held to leave fields out. Bounded on the way in; a longer one passes whole."""


_FENCED = re.compile(b"|".join(map(re.escape, FENCED_PREFIXES)), re.IGNORECASE)


async def edited(
    chunks: AsyncIterator[bytes], before: bytes = b"", without: Collection[bytes] = (), *, fenced: bool = False
) -> AsyncIterator[bytes]:
    """The content with the fields `before` in front, and less those whose names (lower case) are in `without`.

    With `fenced` less those too that servers of the organization tell each other (the header firewall on the way to
    others). What is put in front is never left out. Raises what `chunks` raises.
    """
    held = b""
    if without or fenced:
        async for block in chunks:
            held += block
            if held.startswith(b"\r\n") or b"\r\n\r\n" in held or len(held) > MAX_HELD:
                break
        if without or _FENCED.search(held):
            held = left_out(held, without, fenced=fenced)
    first = before + held
    if first:
        yield first
    async for block in chunks:
        yield block


def left_out(content: bytes, names: Collection[bytes], *, fenced: bool = False) -> bytes:
    """`content`, which begins with a header, without the fields of these names (lower case), and `FENCED_PREFIXES`."""
    end = 0 if content.startswith(b"\r\n") else content.find(b"\r\n\r\n") + 2
    if end < 2:
        return content
    kept: list[bytes] = []
    leaving = False
    for line in content[:end].split(b"\r\n"):
        if not line.startswith((b" ", b"\t")):
            name = line.partition(b":")[0].rstrip(b" \t").lower()
            leaving = name in names or (fenced and name.startswith(FENCED_PREFIXES))
        if not leaving:
            kept.append(line)
    return b"\r\n".join(kept) + content[end:]
