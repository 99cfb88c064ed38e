"""The head that a server gets for a client's request.

Nothing of the client's framing, of its word on itself or of our own cookies is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.access.http.basic import basic_line, name_line
from gatepost.organization.model import HttpSignIn
from gatepost.wire.fencing import http_lines
from gatepost.wire.http_head import HeadFault

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.destination import Destination
    from gatepost.access.http.exchange import Exchange
    from gatepost.access.http.identity import Identity


def build(exchange: Exchange, path: bytes | None, query: bytes) -> bytes:
    """The head for `exchange.destination`. Raises `HeadFault` for a request that cannot be put to that server."""
    leg = exchange.leg
    reader = leg.reader
    destination = exchange.destination
    kept = reader.kept
    if path is None:
        raise HeadFault(400, "an ambiguous path")
    identity = exchange.identity
    if identity.line_for is not destination:
        identity.line = b"" if destination.peer or destination.service else sign_in_line(destination, identity)
        identity.line_for = destination
    request_id = leg.request_id()
    parts = [
        reader.method, b" ", path, query, b" HTTP/1.1\r\nHost: ", destination.host, b"\r\n", *reader.passed,
        leg.forwarded, identity.line, b"X-Request-Id: ", request_id, b"\r\nrequest-id: ", request_id, b"\r\n",
    ]  # fmt: skip
    if destination.peer and not destination.service:
        assert leg.door.peers is not None  # the destination says so
        parts.append(leg.door.peers.assertion_line(identity, request_id, destination.target, leg))
    if destination.tells_epoch and exchange.database and exchange.epoch:
        parts.append(http_lines(exchange.database, exchange.epoch))
    if len(kept) > 2 or b"authorization" not in kept:  # most have it and Host alone
        _add_kept(parts, leg, destination)
    parts.append(leg.door.via_line)
    body = exchange.collected
    if body is not None:
        parts.append(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    elif reader.chunked:
        parts.append(b"Transfer-Encoding: chunked\r\n\r\n")
    elif leg.body is not None or b"content-length" in kept:
        parts.append(b"Content-Length: %d\r\n\r\n" % reader.length)
    else:
        parts.append(b"\r\n")
    return b"".join(parts)


def _add_kept(parts: list[bytes], leg: HttpClientLeg, destination: Destination) -> None:
    """Fields that need a look before they go on."""
    kept = leg.reader.kept
    host = kept.get(b"host", b"")
    if leg.cookies:
        parts.append(b"Cookie: %b\r\n" % leg.cookies)
    if b"destination" in kept:
        url = destination.server_url(kept[b"destination"], host)
        if url is None:
            raise HeadFault(502, "the destination is on another server")
        parts.append(b"Destination: %b\r\n" % url)
    if b"if" in kept:
        parts.append(b"If: %b\r\n" % destination.server_conditions(kept[b"if"], host))
    if b"via" in kept:
        if leg.door.has_passed(kept[b"via"]):
            raise HeadFault(508, "the request has been here before")
        parts.append(b"Via: %b\r\n" % kept[b"via"])
    if b"expect" in kept and leg.body is not None and not leg.reader.http_1_0:
        parts.append(b"Expect: 100-continue\r\n")
    if leg.reader.upgrade:
        parts.append(b"Connection: Upgrade\r\nUpgrade: %b\r\n" % leg.reader.upgrade)


def sign_in_line(destination: Destination, identity: Identity) -> bytes:
    """The line by which a mailbox server learns who the user is. Raises `HeadFault` when there is none."""
    user, sign_in = identity.user, destination.server.sign_in
    if sign_in.http is HttpSignIn.MASTER:
        return basic_line(f"{user.server_login}{sign_in.separator}{sign_in.master_user}", sign_in.master_password)
    if not destination.with_header:
        audience = sign_in.token_audience
        if identity.token and audience and audience in identity.audiences:
            # Whoever it is not meant for could use it elsewhere (RFC 6750 section 5.2).
            return b"Authorization: Bearer %b\r\n" % identity.token.encode("ascii")
        if not identity.password:
            raise HeadFault(503, f"{destination.server.name} wants the user's password, which is not known here")
        return basic_line(user.server_login, identity.password)
    line = name_line(destination.server.sign_in.http_header, user.server_login)
    if line is None:
        raise HeadFault(503, "the user's name at the server fits no header")
    return line
