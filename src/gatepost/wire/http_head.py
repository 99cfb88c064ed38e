"""Heads of HTTP/1.1 messages (RFC 9112), read strictly: a head that two parsers could read in two ways is refused.

httptools reads the grammar; here stands what it leaves to us: the exact request line, Host, repeated fields, the
framing of HTTP/1.0, bounds. Nothing of a client's framing is passed on: both legs get heads that we build.

Fields that pass are collected in `passed` as `name, b": ", value, b"\\r\\n"` in turn, ready to be joined.
"""

from __future__ import annotations

import re

import httptools

from gatepost.wire.http_cookies import sets_own
from gatepost.wire.http_fields import JUDGED, KEPT, PASSED, REPEATABLE, FieldRules

END = b"\r\n\r\n"
MAX_TARGET = 8192
"""Octets of a request target (RFC 9112 section 3: at least 8000)."""
MAX_RESPONSE_HEAD = 65536
"""Octets of a server's head; Set-Cookie and CSP fields make them larger than requests."""
MAX_RESPONSE_FIELDS = 200
MAX_LENGTH_DIGITS = 18
"""Digits of a Content-Length: below 2^63."""

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}))(?::([0-9]{1,5}))?")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE)
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ ")
_REFUSED_METHODS = frozenset({b"CONNECT", b"TRACE"})
_NEVER_UPGRADED = (b"h2c", b"h2", b"http", b"tls")
"""Tokens that would change the protocol under us; a server that took one could be given smuggled requests."""
_status_lines: dict[bytes, tuple[bytes, bool]] = {}
MAX_STATUS_LINES = 256
"""Status lines whose reading is remembered: servers use a few, and a strange one cannot make the table grow."""


class HeadFault(ValueError):
    """A head (or body framing) that is refused; `status` is what its sender is told, the text is the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class _Reader:
    """What both kinds of heads share: fields sorted by their rules, bounds."""

    __slots__ = ("_count", "_fault", "_kind", "_max_fields", "_seen", "kept", "passed")

    def __init__(self, rules: FieldRules, max_fields: int) -> None:
        self._kind = rules.kind
        self._seen = rules.remembered
        self._max_fields = max_fields
        # Each `read` begins with these four.
        self.kept: dict[bytes, bytes] = {}
        self.passed: list[bytes] = []
        self._count = 0
        self._fault = ""

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field (called by httptools)."""
        self._count += 1
        kind = self._seen.get(name)
        if kind is None:
            kind = self._kind(name)
        if kind == PASSED:
            self.passed += (name, b": ", value, b"\r\n")
        elif kind == KEPT:
            name = name.lower()
            earlier = self.kept.get(name)
            if earlier is None:
                self.kept[name] = value.rstrip(b" \t")
            elif name in REPEATABLE:
                self.kept[name] = earlier + REPEATABLE[name] + value
            else:
                self._fault = f"repeated {name.decode()}"
        elif kind == JUDGED and not sets_own(value):
            self.passed += (name, b": ", value, b"\r\n")

    def _remove_listed(self, connection: bytes) -> tuple[bytes, ...]:
        """Take out the fields that `Connection` names (RFC 9110 section 7.6.1); answers its tokens, in lower case."""
        tokens = tuple(token.strip(b" \t") for token in connection.lower().split(b","))
        listed = {t for t in tokens if t not in (b"close", b"keep-alive", b"upgrade")}
        if listed:
            old = self.passed
            self.passed = []
            for i in range(0, len(old), 4):
                if old[i].lower() not in listed:
                    self.passed += old[i : i + 4]
        return tokens

    def _length(self) -> int | None:
        """Content-Length. The parser has seen to it that it is digits."""
        text = self.kept.get(b"content-length")
        if text is None:
            return None
        if len(text) > MAX_LENGTH_DIGITS or not text.isdigit():
            raise HeadFault(400, "bad Content-Length")
        return int(text)


class RequestReader(_Reader):
    """Reads one request head after another. After `read` the attributes hold the request's."""

    __slots__ = ("_parser", "chunked", "close", "http_1_0", "length", "method", "target", "upgrade")

    def __init__(self, rules: FieldRules, max_fields: int) -> None:
        super().__init__(rules, max_fields)
        self._parser: httptools.HttpRequestParser | None = None
        self.method = b""
        self.target = b""
        self.http_1_0 = False
        self.length = 0
        """Octets of the body; meaningless when `chunked`."""
        self.chunked = False
        self.close = False
        """The client will send nothing more after this request."""
        self.upgrade = b""
        """The protocols that the client would change to, or empty."""

    def on_url(self, url: bytes) -> None:
        """The request target (called by httptools)."""
        self.target = url

    def forget(self) -> None:
        """Let the parser go: it and this object hold each other."""
        self._parser = None

    def read(self, head: bytes) -> None:
        """Read `head`, which ends with its empty line. Raises `HeadFault`."""
        self.kept = {}
        self.passed = []
        self._count = 0
        self._fault = ""
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            self._parser = None
        except httptools.HttpParserInvalidMethodError as error:
            raise HeadFault(501 if _METHOD.match(head) else 400, "unknown method") from error
        except httptools.HttpParserError as error:
            raise HeadFault(400, f"bad head: {error}") from error
        method = self.method = parser.get_method()
        line = b"%b %b HTTP/1." % (method, self.target)
        self.http_1_0 = not head.startswith(b"1\r\n", len(line))
        # The parser takes leading empty lines, several spaces and other protocols' names; we take the one spelling.
        if not head.startswith(line) or (self.http_1_0 and not head.startswith(b"0\r\n", len(line))):
            raise HeadFault(400, "bad request line")
        if self._fault:
            raise HeadFault(400, self._fault)
        if self._count > self._max_fields:
            raise HeadFault(431, "too many fields")
        if len(self.target) > MAX_TARGET:
            raise HeadFault(414, "target too long")
        if method in _REFUSED_METHODS:
            raise HeadFault(405, "method refused")
        self._frame()

    def _frame(self) -> None:
        kept = self.kept
        connection = kept.get(b"connection")
        tokens = self._remove_listed(connection) if connection is not None else ()
        self.close = self.http_1_0 or b"close" in tokens
        self.upgrade = b""
        coding = kept.get(b"transfer-encoding")
        self.chunked = coding is not None
        if coding is None:
            self.length = self._length() or 0
        elif self.http_1_0 or coding.lower() != b"chunked" or b"content-length" in kept:
            raise HeadFault(400, "ambiguous framing")
        if self.length or self.chunked:
            # The parser now waits for the body, which it will not get.
            self._parser = None
        elif b"upgrade" in kept and b"upgrade" in tokens and not self.http_1_0:
            self.upgrade = upgradable(kept[b"upgrade"])


def upgradable(protocols: bytes) -> bytes:
    """The protocols of an Upgrade field that may be passed on, or empty."""
    names = [p.strip(b" \t") for p in protocols.split(b",")]
    return b", ".join(p for p in names if p and p.lower().partition(b"/")[0] not in _NEVER_UPGRADED)


class ResponseReader(_Reader):
    """Reads one server's response heads."""

    __slots__ = ("_parser", "chunked", "close", "http_1_0", "length", "status", "status_line")

    def __init__(self, rules: FieldRules) -> None:
        super().__init__(rules, MAX_RESPONSE_FIELDS)
        self._parser: httptools.HttpResponseParser | None = None
        self.status = 0
        self.status_line = b""
        """As the client gets it, with its line end."""
        self.length: int | None = None
        """Octets of the body as announced; None when it is `chunked` or ends with the connection."""
        self.chunked = False
        self.close = False
        self.http_1_0 = False

    def forget(self) -> None:
        """Let the parser go: it and this object hold each other."""
        self._parser = None

    def read(self, head: bytes) -> None:
        """Read `head`, which ends with its empty line. Raises `HeadFault` (always 502)."""
        self.kept = {}
        self.passed = []
        self._count = 0
        self._fault = ""
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpResponseParser(self)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as error:
            raise HeadFault(502, f"bad head from the server: {error}") from error
        if self._fault or self._count > self._max_fields:
            raise HeadFault(502, self._fault or "too many fields from the server")
        self.status = status = parser.get_status_code()
        line = head[: head.index(b"\r\n") + 2]
        known = _status_lines.get(line)
        if known is None:
            known = _read_status_line(line, status)
        self.status_line, self.http_1_0 = known
        self._frame()

    def _frame(self) -> None:
        kept = self.kept
        connection = kept.get(b"connection")
        tokens = self._remove_listed(connection) if connection is not None else ()
        self.close = b"close" in tokens or self.http_1_0
        coding = kept.get(b"transfer-encoding")
        self.chunked = coding is not None
        self.length = None
        if coding is not None:
            if self.http_1_0 or coding.lower() != b"chunked" or b"content-length" in kept:
                raise HeadFault(502, "ambiguous framing from the server")
        else:
            try:
                self.length = self._length()
            except HeadFault as fault:
                raise HeadFault(502, "bad Content-Length from the server") from fault
        if self.length != 0:
            # The parser now waits for a body; it does not know of HEAD either.
            self._parser = None


def _read_status_line(line: bytes, status: int) -> tuple[bytes, bool]:
    """The status line for the client, and whether the server speaks HTTP/1.0. Raises `HeadFault`."""
    http_1_0 = not line.startswith(b"HTTP/1.1 %d" % status)
    # Below 100 would pass for an interim response, with fewer digits than a status has (RFC 9112 section 4).
    if status < 100 or (http_1_0 and not line.startswith(b"HTTP/1.0 %d" % status)):
        raise HeadFault(502, "bad status line from the server")
    # A reason is for people only; one with odd octets is left out.
    reason = line[12:-2]
    clean = reason.isascii() and reason.decode().isprintable()
    known = (b"HTTP/1.1 %d%b\r\n" % (status, reason if clean and reason else b" "), http_1_0)
    if len(_status_lines) < MAX_STATUS_LINES and len(line) < 64:
        _status_lines[line] = known
    return known


def split_target(target: bytes, host: bytes | None, *, http_1_0: bool) -> bytes:
    """The origin form of a request's target: path and query. Raises `HeadFault`.

    Host must be there, once and well formed (RFC 9112 section 3.2); an absolute form must name the same authority.
    """
    if host is None:
        if not http_1_0:
            raise HeadFault(400, "no Host")
        host = b""
    elif not _good_host(host):
        raise HeadFault(400, "bad Host")
    if target[:1] == b"/":
        return target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        if target == b"*":
            return target
        raise HeadFault(400, "bad target")
    authority, rest = absolute.groups()
    if not _good_host(authority) or (host and authority.lower() != host.lower()):
        raise HeadFault(400, "Host and target differ")
    return rest if rest[:1] == b"/" else b"/" + rest


def _good_host(host: bytes) -> bool:
    match = _HOST.fullmatch(host)
    return match is not None and (match[2] is None or int(match[2]) < 65536)


def host_name(host: bytes) -> str:
    """The name in a well-formed Host, lower-case, without its port; brackets stay."""
    match = _HOST.fullmatch(host)
    return match[1].decode().lower() if match else ""
