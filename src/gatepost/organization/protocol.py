"""What is spoken at an endpoint, by whom, and how a client's address travels there."""

from __future__ import annotations

from enum import StrEnum


class Protocol(StrEnum):
    """What is spoken at an endpoint. The value is the word used in configuration, commands and logs."""

    IMAP = "imap"
    POP3 = "pop3"
    HTTPS = "https"
    SMTP = "smtp"
    """Between servers: to hubs and edges, and to mailbox servers that take deliveries by it (RFC 5321)."""
    LMTP = "lmtp"
    """Deliveries to a mailbox server (RFC 2033)."""
    SUBMISSION = "submission"
    """SMTP by users who sign in (RFC 6409)."""


MAILBOX_PROTOCOLS = (Protocol.IMAP, Protocol.POP3, Protocol.HTTPS)
"""What users read their mail by: a mailbox server that does not serve it any more has failed."""
CLIENT_PROTOCOLS = (*MAILBOX_PROTOCOLS, Protocol.SUBMISSION)
"""What users sign in by at a front end, in the order of lists."""


class ClientAddress(StrEnum):
    """How the client's address travels to a mailbox server."""

    NONE = "none"
    PROXY_V1 = "proxy-v1"
    """PROXY protocol version 1 header, a line of text."""
    PROXY_V2 = "proxy-v2"
    """PROXY protocol version 2 header, the first bytes of the connection."""
    ID = "id"
    """IMAP `ID ("x-originating-ip" …)` (RFC 2971, Dovecot's field names)."""
    XCLIENT = "xclient"
    """`XCLIENT ADDR=… PORT=…`: of POP3 as Dovecot understands it, of SMTP as Postfix and Dovecot do."""
    XCLIENT_LOGIN = "xclient-login"
    """SMTP `XCLIENT` with `LOGIN=…`: the server believes us who has signed in, and no AUTH follows."""


PROXIED = frozenset({ClientAddress.PROXY_V1, ClientAddress.PROXY_V2})
"""Ways by which the connection itself begins with the client's address."""
