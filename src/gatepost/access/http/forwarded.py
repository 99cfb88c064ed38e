"""What a server is told of the client that a request comes from (RFC 7239, and the older fields)."""

from __future__ import annotations


def forwarded_lines(address: str, host: bytes, *, tls: bool) -> bytes:
    """The lines for a client at `address` that asked for `host`."""
    node = address.partition("%")[0].encode("ascii", "ignore")
    quoted = b'"[%b]"' % node if b":" in node else node
    scheme = b"https" if tls else b"http"
    return b'Forwarded: for=%b;host="%b";proto=%b\r\n' % (
        quoted,
        host,
        scheme,
    ) + b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\nX-Forwarded-Host: %b\r\n" % (node, scheme, host)
