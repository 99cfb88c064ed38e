"""Replies of our SMTP server (RFC 5321, section 4.2; enhanced codes RFC 3463, 5248), and its list of extensions."""

from __future__ import annotations

from gatepost.organization.transport import ReceiveConnector
from gatepost.wire.shadow_words import ShadowHub, encode_hub
from gatepost.wire.smtp_reply import Reply

SENDER_OK = Reply(250, "Sender OK", "2.1.0").encode()
RECIPIENT_OK = Reply(250, "Recipient OK", "2.1.5").encode()
GO_AHEAD = Reply(354, "Start mail input; end with <CRLF>.<CRLF>").encode()
OK = Reply(250, "OK", "2.0.0").encode()
SIGNED_IN = Reply(235, "Authentication successful", "2.7.0").encode()
READY_FOR_TLS = Reply(220, "Ready to start TLS", "2.0.0").encode()
CLOSING = Reply(221, "Closing the connection", "2.0.0").encode()
NO_VERIFY = Reply(252, "Cannot verify; send mail and it will be tried", "2.5.2").encode()
HELP = Reply(214, "See RFC 5321", "2.0.0").encode()

STOPPING = Reply(421, "Service is shutting down, try again later", "4.3.2").encode()
NO_ROOM = Reply(421, "Insufficient system resources, try another server or later", "4.3.1").encode()
TOO_MANY_CONNECTIONS = Reply(421, "Too many connections, try again later", "4.7.0").encode()
TIMED_OUT = Reply(421, "Connection timed out", "4.4.2").encode()
TOO_MANY_ERRORS = Reply(421, "Too many errors", "4.7.0").encode()
TOO_MANY_FAILURES = Reply(421, "Too many failed sign-ins", "4.7.0").encode()
TOO_MANY_COMMANDS = Reply(421, "Too many commands without a message", "4.7.0").encode()
NO_SERVICE = Reply(421, "No service for this address here", "4.3.2").encode()

TOO_MANY_RECIPIENTS = Reply(452, "Too many recipients", "4.5.3").encode()
NO_RESOURCES = Reply(452, "Insufficient system resources", "4.3.1")
TLS_NOT_AVAILABLE = Reply(454, "TLS is not available now", "4.7.0").encode()
SIGN_IN_UNAVAILABLE = Reply(454, "Temporary authentication failure", "4.7.0").encode()

UNKNOWN = Reply(500, "Unknown command", "5.5.1").encode()
SYNTAX = Reply(500, "Syntax error", "5.5.2").encode()
LINE_TOO_LONG = Reply(500, "Line too long", "5.5.2").encode()
BAD_LINE_END = Reply(500, "A line that does not end in CR LF", "5.5.2").encode()
NEEDS_ARGUMENT = Reply(501, "An argument is needed", "5.5.4").encode()
NO_ARGUMENT = Reply(501, "No argument is allowed", "5.5.4").encode()
BAD_CHUNK = Reply(501, "Syntax: BDAT size [LAST]", "5.5.4").encode()
BAD_RESPONSE = Reply(501, "Authentication cancelled or a bad response", "5.5.2").encode()
BAD_HUB = Reply(501, "Syntax: XSHADOW server identity", "5.5.4").encode()
BAD_CLAIM = Reply(501, "Bad XCLIENT", "5.5.4").encode()
NOT_HERE = Reply(502, "Not available here", "5.5.1").encode()
GREET_FIRST = Reply(503, "Say EHLO first", "5.5.1").encode()
NO_MAIL = Reply(503, "MAIL first", "5.5.1").encode()
NESTED_MAIL = Reply(503, "A message has begun already", "5.5.1").encode()
NOT_NOW = Reply(503, "Not at this moment", "5.5.1").encode()
UNKNOWN_MECHANISM = Reply(504, "Unknown authentication mechanism", "5.5.4").encode()
TLS_REQUIRED = Reply(530, "STARTTLS is required first", "5.7.0").encode()
TLS_FOR_MESSAGE = Reply(530, "REQUIRETLS needs TLS", "5.7.10").encode()
SIGN_IN_REQUIRED = Reply(530, "Authentication required", "5.7.0").encode()
NO_SUBMISSION = Reply(525, "Submission is not enabled for this account", "5.7.13").encode()
WRONG_CREDENTIALS = Reply(535, "Authentication unsuccessful", "5.7.8").encode()
TLS_FOR_SIGN_IN = Reply(538, "Encryption is required for authentication", "5.7.11").encode()
NO_PERMISSION = Reply(550, "You are not allowed to send here", "5.7.1").encode()
NOT_THAT_HUB = Reply(550, "Your certificate is not that server's", "5.7.1").encode()
NO_RELAY = Reply(550, "Unable to relay", "5.7.1").encode()
AMBIGUOUS_CONTENT = Reply(550, "The message has NUL characters, or lines that do not end in CR LF", "5.6.0").encode()
LINE_IN_CONTENT_TOO_LONG = Reply(550, "The message has a line that is too long", "5.6.0").encode()
TOO_LARGE = Reply(552, "The message is too large", "5.3.4").encode()
HEADER_TOO_LARGE = Reply(552, "The message's header is too large", "5.3.4").encode()
NO_RECIPIENTS = Reply(554, "No valid recipients", "5.5.1").encode()
TOO_MANY_HOPS = Reply(554, "Too many hops: the mail is looping", "5.4.6").encode()
TALKS_TOO_EARLY = Reply(554, "You spoke before you were greeted", "5.5.1").encode()
INJECTED = Reply(554, "Nothing may follow STARTTLS before the handshake", "5.5.1").encode()
NO_SMTP = Reply(554, "This is no web server", "5.5.1").encode()


def extensions(
    connector: ReceiveConnector,
    host: str,
    *,
    starttls: bool,
    sign_in: tuple[str, ...],
    tls: bool,
    xclient: bool,
    shadow: ShadowHub | None,
) -> bytes:
    """The answer to EHLO. `sign_in`: the mechanisms of AUTH."""
    lines = [f"{host} Hello", f"SIZE {connector.max_message_size}", "PIPELINING", "DSN", "ENHANCEDSTATUSCODES"]
    if starttls:
        lines.append("STARTTLS")
    if sign_in:
        lines.append(f"AUTH {' '.join(sign_in)}")
    lines += ["8BITMIME", "CHUNKING", "SMTPUTF8", f"LIMITS RCPTMAX={connector.max_recipients}"]
    if tls:
        lines.append("REQUIRETLS")
    if xclient:
        lines.append("XCLIENT NAME ADDR PORT PROTO HELO LOGIN DESTADDR DESTPORT")
    if shadow is not None:
        lines.append(f"XSHADOW {encode_hub(shadow)}")
    return Reply(250, "\n".join(lines)).encode()
