"""Paths: how a request's path is read for routing, and how paths and URLs are mapped between client and server.

A path that a server could read otherwise than we do is refused: encoded dots, `..`, backslashes, double encoding.
"""

from __future__ import annotations

import re

from gatepost.wire.http_head import HeadFault

_PLAIN = re.compile(rb"(?:/[A-Za-z0-9_~!$&'()*+,=:@-][A-Za-z0-9._~!$&'()*+,=:@-]*)+/?|/")
"""Segments that need no decoding: none begins with a dot or holds a path parameter."""
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_DOTS = re.compile(rb"(?:^|/)\.{1,2}(?:;[^/]*)?(?=/|$)")
"""A dot segment, with or without a path parameter that some servers cut off after they looked for dots."""
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def read_path(target: bytes) -> tuple[bytes, bytes, str]:
    """`(path, query, route)` of an origin-form target. Raises `HeadFault`.

    `path` is for the server: as it came, but with needless escapes undone (RFC 3986 section 6.2.2.2). `query` begins
    with its `?` and is untouched. `route` is the decoded path for the routing decision.
    """
    mark = target.find(b"?")
    path, query = (target, b"") if mark < 0 else (target[:mark], target[mark:])
    if b"#" in target:
        raise HeadFault(400, "a fragment in the target")
    if _PLAIN.fullmatch(path):
        return path, query, path.decode("ascii")
    return _read_odd(path), query, _decode(path)


def _read_odd(path: bytes) -> bytes:
    if len(_ESCAPE.findall(path)) != path.count(b"%"):
        raise HeadFault(400, "bad percent-encoding")
    decoded = _unescape(path)
    if any(c < 32 or c in b"\x7f\\" for c in decoded):
        raise HeadFault(400, "a control character or backslash in the path")
    if path.startswith(b"//") or _DOTS.search(decoded) or _ambiguous(decoded):
        raise HeadFault(400, "an ambiguous path")
    return _ESCAPE.sub(_undo_needless, path)


def _ambiguous(decoded: bytes) -> bool:
    """Whether decoding once more, as some servers do, would lead elsewhere."""
    if b"%" not in decoded:
        return False
    again = _unescape(decoded)
    return again.count(b"/") != decoded.count(b"/") or b"\\" in again or _DOTS.search(again) is not None


def _unescape(data: bytes) -> bytes:
    return _ESCAPE.sub(lambda m: bytes((int(m[1], 16),)), data)


def _undo_needless(match: re.Match[bytes]) -> bytes:
    value = int(match[1], 16)
    return bytes((value,)) if value in _UNRESERVED else match[0]


def _decode(path: bytes) -> str:
    return _unescape(path).decode("utf-8", "replace")


def change_prefix(path: bytes, old: bytes, new: bytes) -> bytes | None:
    """`path` with its leading segments `old` (any case) replaced by `new`, or None when they are not its own.

    Neither prefix ends with a slash; the empty one is the root.
    """
    size = len(old)
    if path[:size].lower() != old.lower() or path[size : size + 1] not in (b"/", b"?", b"#", b""):
        return None
    return new + path[size:] if new or path[size:] else b"/"
