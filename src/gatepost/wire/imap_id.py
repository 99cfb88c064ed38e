"""ID commands (RFC 2971) to a mailbox server: where a client comes from, and what it calls itself."""

from __future__ import annotations

from gatepost.wire.events import FIRST_TTL, ClientFacts
from gatepost.wire.fencing import ID_DATABASE, ID_EPOCH, database_word
from gatepost.wire.imap_syntax import ID_NAME_BYTES, ID_VALUE_BYTES, is_quotable, quote

_TTL = "x-proxy-ttl"
MAX_TTL_DIGITS = 3
MAX_CLIENT_ID = 960
"""Bytes of the client's fields: the line stays below 1000 (RFC 2683 section 3.2.1.5), which fits twenty usual ones."""


def origin_id_command(client: ClientFacts) -> bytes:
    """`ID (...)` with the client's address, in the field names Dovecot reads from trusted networks, and the epoch."""
    fields = [("x-originating-ip", client.address), ("x-originating-port", str(client.port))]
    if client.local_address:
        fields += [("x-connected-ip", client.local_address), ("x-connected-port", str(client.local_port))]
    if client.session:
        fields.append(("x-session-id", client.session))
    fields.append((_TTL, str(client.ttl)))
    if client.database:
        fields += [(ID_DATABASE, database_word(client.database)), (ID_EPOCH, str(client.epoch))]
    return b"ID (%s)" % b" ".join(_pair(*f) for f in fields)


def ttl_id_command(ttl: int) -> bytes:
    """`ID (...)` that says only how many proxies may still hand the session on."""
    return b"ID (%s)" % _pair(_TTL, str(ttl))


def proxy_ttl(fields: tuple[tuple[str, str], ...]) -> int:
    """How many proxies may still hand on the session of a client whose ID has these fields.

    Anybody is believed, for it can only shorten the way of the own session.
    """
    for name, value in fields:
        if name.lower() == _TTL and value.isascii() and value.isdigit() and len(value) <= MAX_TTL_DIGITS:
            return min(int(value), FIRST_TTL)
    return FIRST_TTL


def client_id_command(fields: tuple[tuple[str, str], ...]) -> bytes | None:
    """`ID (...)` with what the client said of itself (field case 42), as many fields as fit; None when nothing is left.

    Without fields that begin with `x-`: those are how proxies speak to a server that trusts them, and a client must not
    speak so through us (field case 89).
    """
    pairs: list[bytes] = []
    size = 0
    for name, value in fields:
        pair = _pair(name, value)
        if not name.lower().startswith("x-") and size + len(pair) + 1 <= MAX_CLIENT_ID:
            pairs.append(pair)
            size += len(pair) + 1
    return b"ID (%s)" % b" ".join(pairs) if pairs else None


def _pair(name: str, value: str) -> bytes:
    return b"%s %s" % (quote(_ascii(name, ID_NAME_BYTES)), quote(_ascii(value, ID_VALUE_BYTES)))


def _ascii(text: str, limit: int) -> str:
    """What every server takes in a quoted string; free text may lose its odd characters."""
    if is_quotable(text) and len(text) <= limit:
        return text
    return "".join(c if " " <= c <= "~" else "?" for c in text[:limit])
