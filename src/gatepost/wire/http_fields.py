"""Which header fields pass through the front door, which never do, and which it looks at itself.

A field is `PASSED` as it came, `DROPPED` (hop-by-hop, RFC 9110 section 7.6.1, or one that a server would believe
if a client forged it) or `KEPT`: taken out of the head and put in a table for the machine that reads the head.
`JUDGED` is passed line by line, unless its value says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PASSED, DROPPED, KEPT, JUDGED = range(4)

HOP_BY_HOP = frozenset({
    b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"http2-settings",
})  # fmt: skip
"""Fields of one connection; `connection`, `transfer-encoding` and `upgrade` are read before they are dropped."""

FORGEABLE = frozenset({
    b"forwarded", b"x-real-ip", b"x-client-ip", b"client-ip", b"true-client-ip", b"x-cluster-client-ip", b"x-host",
    b"x-original-url", b"x-original-host", b"x-rewrite-url", b"proxy", b"x-request-id", b"request-id", b"x-feserver",
    b"x-beserver", b"x-targetbeserver", b"x-targetserver", b"x-remote-user", b"remote-user", b"x-commonaccesstoken",
    b"x-isfromcafe", b"x-proxyuri",
})  # fmt: skip
"""What servers believe of a front door, so that no client may say it (SPEC C14)."""

FORGEABLE_PREFIXES = (b"x-forwarded", b"x-backend", b"x-webobjects-", b"x-gatepost-")
"""`x-webobjects-` is SOGo's: it takes the user's name from one. The last is what front ends tell each other."""

ASSERTION_HEADER = "X-Gatepost-Assertion"
"""On requests to a peer: who the user is (SPEC C11)."""
ASSERTION = ASSERTION_HEADER.lower().encode()
PEER_REFUSED_HEADER = "X-Gatepost-Refused"
"""On a peer's response: it has not let the request in, for this reason. It is no word of a mailbox server."""
PEER_REFUSED = PEER_REFUSED_HEADER.lower().encode()
SERVED_BY = b"x-beserver"
"""On responses: the mailbox server that made it (SPEC C14)."""

REQUEST_KEPT = frozenset({
    b"host", b"authorization", b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect",
    b"destination", b"if", b"via", b"cookie",
})  # fmt: skip
RESPONSE_KEPT = frozenset({
    b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"location", b"content-location",
    b"www-authenticate", b"persistent-auth", b"keep-alive",
})  # fmt: skip
RESPONSE_JUDGED = frozenset({b"set-cookie"})
"""No server sets a cookie of ours."""
REPEATABLE = {
    b"connection": b", ", b"upgrade": b", ", b"if": b", ", b"via": b", ", b"www-authenticate": b", ",
    b"keep-alive": b", ", b"cookie": b"; ",
}  # fmt: skip
"""Kept fields that may come twice, and what joins their values. Any other twice is a fault."""

MAX_REMEMBERED = 1024
"""Spellings of names whose kind is remembered: a strange client cannot make the table grow."""


class FieldRules:
    """The kind of a field by its name as it was spelled; remembered, since clients spell few names again and again."""

    __slots__ = ("_dropped", "_judged", "_kept", "_prefixes", "remembered")

    def __init__(
        self,
        kept: frozenset[bytes],
        dropped: Iterable[bytes],
        prefixes: tuple[bytes, ...] = (),
        judged: frozenset[bytes] = frozenset(),
    ) -> None:
        self._kept = kept
        self._judged = judged
        self._dropped = frozenset(dropped) - kept
        self._prefixes = prefixes
        self.remembered: dict[bytes, int] = {}
        """Kinds of names that were seen; look here first."""

    def kind(self, name: bytes) -> int:
        """`PASSED`, `DROPPED`, `KEPT` or `JUDGED`, worked out anew."""
        low = name.lower()
        if low in self._kept:
            kind = KEPT
        # Gateway interfaces read `_` as `-`: X_Remote_User would become X-Remote-User. nginx drops such names too.
        elif low in self._dropped or (self._prefixes and (b"_" in low or low.startswith(self._prefixes))):
            kind = DROPPED
        else:
            kind = JUDGED if low in self._judged else PASSED
        if len(self.remembered) < MAX_REMEMBERED:
            self.remembered[name] = kind
        return kind


def request_rules(trusted_headers: Iterable[str], *, peer: bool = False) -> FieldRules:
    """Rules for clients' requests, or those of peers; `trusted_headers` name users at servers, so nobody may send one.

    A peer's word on the client is in its assertion and nowhere else.
    """
    trusted = {name.lower().encode("ascii", "ignore") for name in trusted_headers}
    kept = REQUEST_KEPT | {ASSERTION} if peer else REQUEST_KEPT
    return FieldRules(kept, HOP_BY_HOP | FORGEABLE | trusted, FORGEABLE_PREFIXES)


def response_rules(*, peer: bool = False) -> FieldRules:
    """Rules for servers' responses, or those of peers: our own diagnostic fields replace theirs (SPEC C14)."""
    own = {
        b"x-feserver", b"x-beserver", b"x-targetbeserver", b"x-calculatedbetarget", b"request-id", b"x-request-id",
        PEER_REFUSED,
    }  # fmt: skip
    kept = RESPONSE_KEPT | {PEER_REFUSED, SERVED_BY} if peer else RESPONSE_KEPT
    return FieldRules(kept, (HOP_BY_HOP | own) - {b"proxy-authenticate"}, judged=RESPONSE_JUDGED)


def passed_value(passed: Sequence[bytes], name: bytes) -> bytes | None:
    """The first value of the field `name` (lower case) among those that pass; None when it is not there.

    `passed` is a reader's list: name, separator, value, line end, again and again.
    """
    for i in range(0, len(passed), 4):
        found = passed[i]
        if len(found) == len(name) and found.lower() == name:
            return passed[i + 2]
    return None
