"""Our own cookies among those of the servers behind us (RFC 6265).

They are between a browser and the front ends: no server sees them, and no server can set them. The prefix `__Host-`
keeps other hosts and clear pages from setting one (RFC 6265bis section 4.1.3.2).
"""

from __future__ import annotations

SIGN_IN = b"__Host-gatepost"
AFFINITY = b"__Host-gatepost-server"
FORM = b"__Host-gatepost-form"
"""Proves that a form was shown to the browser that sends it."""
OWN = frozenset({SIGN_IN, AFFINITY, FORM})
MAX_OWN_VALUE = 4096
"""Octets of a cookie of ours: browsers keep no larger ones (RFC 6265 section 6.1)."""

_LOW = SIGN_IN.lower()
_BLANK = b" \t"


def take_own(field: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """`(rest, own)` of a Cookie field: the others' cookies byte for byte, and ours by name. Never raises.

    One of ours that comes twice, or is too large, is there with an empty value, which nothing opens: browsers keep one
    cookie of such a name, so nobody can tell which of two is the user's.
    """
    if SIGN_IN not in field:
        return field, {}
    own: dict[bytes, bytes] = {}
    rest = []
    for pair in field.split(b";"):
        name, _, value = pair.partition(b"=")
        name = name.strip(_BLANK)
        if name not in OWN:
            rest.append(pair)
        elif name in own or len(value) > MAX_OWN_VALUE:
            own[name] = b""
        else:
            own[name] = value.strip(_BLANK)
    return b";".join(rest).strip(_BLANK), own


def sets_own(value: bytes) -> bool:
    """Whether a Set-Cookie field's value would set a cookie that comes back under a name of ours.

    A cookie without a name comes back as its value alone, which may look like a cookie of ours. Case does not help.
    """
    pair = value.partition(b";")[0].lower().lstrip(b"= \t")
    return pair.startswith(_LOW) and pair.partition(b"=")[0].rstrip(_BLANK) in _OWN_LOW


def set_line(name: bytes, value: bytes) -> bytes:
    """The line that gives a browser a cookie of ours until it is closed; `Secure` is what the prefix asks for."""
    return b"Set-Cookie: %b=%b; Path=/; Secure; HttpOnly; SameSite=Lax\r\n" % (name, value)


def clear_line(name: bytes) -> bytes:
    """The line that takes a cookie of ours away."""
    return b"Set-Cookie: %b=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0\r\n" % name


_OWN_LOW = frozenset(name.lower() for name in OWN)
