"""Keytab files of MIT and Heimdal (format 0x0502): whose keys are in one. The keys themselves are not looked at."""

from __future__ import annotations

_VERSION = b"\x05\x02"
_HEAD = 2


class BadKeytab(ValueError):
    """The file is no keytab that can be read."""


def keytab_principals(data: bytes) -> tuple[str, ...]:
    """`service/host@REALM` of each entry, each once. Raises `BadKeytab`."""
    if data[:_HEAD] != _VERSION:
        raise BadKeytab("not a keytab of format 5.2")
    found: dict[str, None] = {}
    at = _HEAD
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if size > 0:  # else a hole where an entry was
            if at + size > len(data):
                raise BadKeytab("an entry is cut off")
            found[_principal(data[at : at + size])] = None
        elif size == 0:
            break
        at += abs(size)
    return tuple(found)


def _principal(entry: bytes) -> str:
    count = int.from_bytes(entry[:2], "big")
    at = 2
    words = []
    for _ in range(count + 1):
        size = int.from_bytes(entry[at : at + 2], "big")
        at += 2
        if at + size > len(entry):
            raise BadKeytab("a principal is cut off")
        words.append(entry[at : at + size].decode("utf-8", "replace"))
        at += size
    return f"{'/'.join(words[1:])}@{words[0]}"
