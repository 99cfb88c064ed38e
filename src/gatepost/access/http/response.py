"""The head that a client gets for a server's response."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from gatepost.wire.http_fields import PEER_REFUSED
from gatepost.wire.http_head import ResponseReader

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.destination import Destination

MAX_REASON = 200
"""Characters of a peer's reason that are logged."""
_BINDING_SCHEMES = (b"ntlm", b"negotiate", b"kerberos")


class Framing(Enum):
    """How the body goes to the client."""

    AS_IS = "as is"
    """None, or of the length in the head."""
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"
    """A client of HTTP/1.0 and a body of unknown length."""


def response_head(
    reader: ResponseReader,
    leg: HttpClientLeg,
    destination: Destination,
    request_id: bytes,
    *,
    bodiless: bool,
    keep: bool,
    extra: bytes = b"",
) -> tuple[Framing, list[bytes]]:
    """How the body goes on, and the parts of the head with its empty line. `bodiless`: HEAD, 204, 304.

    `extra` are complete header lines of our own.
    """
    kept = reader.kept
    parts = [reader.status_line, *reader.passed]
    if extra:
        parts.append(extra)
    if len(kept) > 1 or (kept and b"content-length" not in kept):
        _add_kept(parts, kept, destination, leg.origin)
    framing = Framing.AS_IS
    if reader.length is not None:
        # HEAD and 304 announce the length of what they leave out.
        if reader.status != 204:
            parts.append(b"Content-Length: %d\r\n" % reader.length)
    elif bodiless:
        pass
    elif leg.reader.http_1_0:
        framing = Framing.UNTIL_CLOSE
    else:
        framing = Framing.CHUNKED
        parts.append(b"Transfer-Encoding: chunked\r\n")
    if not keep:
        parts.append(b"Connection: close\r\n")
    about = destination.lines_about(kept) if destination.peer else destination.response_lines
    parts += (about, request_id, b"\r\n\r\n")
    return framing, parts


def _add_kept(parts: list[bytes], kept: dict[bytes, bytes], destination: Destination, origin: bytes) -> None:
    for name, label in ((b"location", b"Location"), (b"content-location", b"Content-Location")):
        url = kept.get(name)
        if url is not None:
            parts.append(b"%b: %b\r\n" % (label, destination.client_url(url, origin)))
    # What a server says of sign-in is between it and us, on a connection that the client is not on: it ends here.


def binds(kept: dict[bytes, bytes]) -> bool:
    """Whether a response says that its connection belongs to the request's user (NTLM, Negotiate: RFC 4559)."""
    if b"persistent-auth" in kept:
        return True
    challenge = kept.get(b"www-authenticate")
    return challenge is not None and any(scheme in challenge.lower() for scheme in _BINDING_SCHEMES)


def peer_refusal(kept: dict[bytes, bytes], status: int) -> tuple[int, str] | None:
    """What a client is told when a peer has not let its request in: status and reason for the log; else None.

    `kept` is of the peer's response. It is a fault between front ends, so for the client a temporary one; only a loop
    stays what it is.
    """
    reason = kept.get(PEER_REFUSED)
    if reason is None:
        return None
    text = "".join(c if c.isprintable() else "?" for c in reason.decode("latin-1")[:MAX_REASON])
    return 508 if status == 508 else 503, f"refused by the peer: {text}"
