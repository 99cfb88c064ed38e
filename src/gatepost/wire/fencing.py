"""What mailbox servers are told of a database's epoch, and how they say that a database is not theirs (SPEC A3).

            epoch                                               "not mine"
    IMAP    ID ("x-gatepost-database" … "x-gatepost-epoch" …)   NO or BYE with [X-NOT-MINE], or [REFERRAL …] (RFC 2221)
    POP3    XCLIENT DATABASE=… EPOCH=…, if both are announced   -ERR [SYS/TEMP] X-NOT-MINE …
    HTTP    X-Gatepost-Database: …, X-Gatepost-Epoch: …         421 Misdirected Request (RFC 9110 section 15.5.20)

A response code of one's own begins with X (RFC 3501 section 7.1), and clients that do not know it ignore it. Where a
referral points to is not followed: only the registry says where a database is.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

NOT_MINE = b"X-NOT-MINE"
"""The word for it in IMAP and POP3."""
REFERRAL = b"REFERRAL"
MISDIRECTED = 421
ID_DATABASE = "x-gatepost-database"
ID_EPOCH = "x-gatepost-epoch"
XCLIENT_WORDS = (b"DATABASE", b"EPOCH")
"""What a POP3 server announces in its greeting, `+OK [XCLIENT … DATABASE EPOCH]`, if it wants to be told."""
HTTP_DATABASE = b"X-Gatepost-Database"
HTTP_EPOCH = b"X-Gatepost-Epoch"
MAX_REMEMBERED = 4096
"""Names of databases whose spelling is remembered."""


@lru_cache(MAX_REMEMBERED)
def database_word(name: str) -> str:
    """A database's name as one word that fits each protocol: percent-encoded UTF-8 (RFC 3986 section 2.1)."""
    return quote(name, safe="")


def http_lines(database: str, epoch: int) -> bytes:
    """The header lines of a request."""
    return b"%b: %b\r\n%b: %d\r\n" % (HTTP_DATABASE, database_word(database).encode(), HTTP_EPOCH, epoch)
