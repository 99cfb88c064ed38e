"""Where a decision leads, worked out once: pool, Host, how paths and URLs are mapped there and back."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from gatepost.directory.kerberos_port import peer_service, service_of
from gatepost.organization.model import HttpSignIn, Protocol, Server, TlsMode
from gatepost.routing.decision import Target
from gatepost.wire.http_fields import SERVED_BY
from gatepost.wire.http_head import HeadFault
from gatepost.wire.http_path import change_prefix, read_path

if TYPE_CHECKING:
    from gatepost.access.http.pool import Pool

DEFAULT_PORTS = {"https": 443, "http": 80}
_SERVER_NAME = re.compile(rb"[0-9A-Za-z?_.-][0-9A-Za-z?_. -]{0,63}")
"""What a peer may call the mailbox server in a response; `?` stands for letters beyond ASCII."""


class Destination:
    """One virtual directory of one server, as the data path needs it. `fault`: why it cannot be used, or empty."""

    __slots__ = (
        "_origins", "_peer_lines", "fault", "host", "inner", "inner_origin", "outer", "peer", "pool", "response_lines",
        "server", "service", "target", "tell_at", "tells_epoch", "with_header",
    )  # fmt: skip

    def __init__(
        self, target: Target, server: Server, front_end: str, pool: Pool, *, peers_by_ticket: bool = False
    ) -> None:
        """`peers_by_ticket`: this front end has an account by which others may know it."""
        directory = target.directory
        assert directory is not None
        url = urlsplit(target.url or directory.internal_url or "")
        self.target = target
        self.peer = target.peer
        self.server = server
        self.pool = pool
        self.tell_at = 0.0
        """When the health service is to hear again that the server answers, in the loop's time."""
        self.tells_epoch = server.sign_in.send_epoch and not target.peer
        self.with_header = server.sign_in.http is HttpSignIn.HEADER
        self.service = ""
        """The service principal for which each request shows a ticket; empty: it shows none."""
        if not target.peer and server.sign_in.http is HttpSignIn.KERBEROS:
            self.service = service_of(Protocol.HTTPS, server)
        elif target.peer and peers_by_ticket and server.kerberos_principal:
            self.service = peer_service(server, target.endpoint)
        self.host = url.netloc.rpartition("@")[2].encode("ascii", "ignore")
        self.outer = quote(directory.path.rstrip("/"), safe="/~!$&'()*+,=:@").encode()
        self.inner = quote(url.path.rstrip("/"), safe="/~!$&'()*+,=:@%").encode()
        self.inner_origin = b"%b://%b" % (url.scheme.encode(), self.host)
        self._origins = self._server_origins(url.scheme, url.hostname or "", url.port)
        self.response_lines = b"X-FEServer: %b\r\nX-BEServer: %b\r\nrequest-id: " % (
            front_end.encode("ascii", "replace"),
            server.name.encode("ascii", "replace"),
        )
        self._peer_lines = b"X-FEServer: %b\r\nX-CalculatedBETarget: %b\r\nX-BEServer: " % (
            front_end.encode("ascii", "replace"),
            server.name.encode("ascii", "replace"),
        )
        self.fault = self._find_fault(url.scheme)

    def _server_origins(self, scheme: str, host: str, port: int | None) -> tuple[bytes, ...]:
        """How the server may spell its own origin: either scheme (it may not know of TLS), with or without the port."""
        if ":" in host:
            host = f"[{host}]"
        port = port or DEFAULT_PORTS.get(scheme, 443)
        names = [f"{host}:{port}"] if port not in DEFAULT_PORTS.values() else [f"{host}:{port}", host]
        return tuple(f"{s}://{name}".lower().encode() for name in names for s in DEFAULT_PORTS)

    def _find_fault(self, scheme: str) -> str:
        tls = self.target.endpoint.tls
        if tls is TlsMode.STARTTLS:
            return "STARTTLS has no form in HTTP"
        if not self.host or scheme not in DEFAULT_PORTS:
            return "the internal URL has no host or another scheme than http and https"
        if tls is TlsMode.CLEAR and scheme == "https":
            return "the internal URL says https, the endpoint is clear"
        if tls is TlsMode.CLEAR and not _is_loopback(self.target.endpoint.address):
            if self.with_header:
                return "a trusted header needs TLS to the server"
            if self.service:
                return "a ticket needs TLS to the server"
        return ""

    def lines_about(self, kept: dict[bytes, bytes]) -> bytes:
        """What a peer's response says of the servers that it came from (SPEC C14), up to and with `request-id: `.

        `kept` is of its response. A peer's word for the mailbox server counts, if it is a name; the front end
        that a client is told of is the one that it talks to.
        """
        served = kept.get(SERVED_BY, b"")
        if _SERVER_NAME.fullmatch(served) is None:
            return self.response_lines
        return b"%b%b\r\nrequest-id: " % (self._peer_lines, served)

    def server_path(self, path: bytes) -> bytes | None:
        """A client's path as the server knows it, or None when its directory is not spelled plainly."""
        size = len(self.outer)
        if self.inner == self.outer and path.startswith(self.inner) and path[size : size + 1] in (b"/", b""):
            return path
        return change_prefix(path, self.outer, self.inner)

    def client_url(self, url: bytes, origin: bytes) -> bytes:
        """A URL in a response as the client knows it; `origin` is the client's. Others pass unchanged."""
        rest = self._own_path(url, self._origins)
        if rest is None:
            if url[:1] != b"/" or url[:2] == b"//":
                return url
            rest, origin = url, b""
        mapped = change_prefix(rest, self.inner, self.outer) if rest[:1] == b"/" else None
        return origin + (rest if mapped is None else mapped)

    def server_url(self, url: bytes, host: bytes) -> bytes | None:
        """A DAV `Destination` (RFC 4918 section 10.3) as the server knows it; None when outside this directory."""
        rest = self._own_path(url, tuple(b"%b://%b" % (scheme, host.lower()) for scheme in (b"https", b"http")))
        if rest is None:
            rest = url
        if rest[:1] != b"/":
            return None
        try:
            path, query, _ = read_path(rest)
        except HeadFault:
            return None
        mapped = change_prefix(path, self.outer, self.inner)
        return None if mapped is None else self.inner_origin + mapped + query

    def server_conditions(self, value: bytes, host: bytes) -> bytes:
        """A DAV `If` field (RFC 4918 section 10.4) with the tagged resources as the server knows them."""
        for scheme in (b"https", b"http"):
            value = value.replace(
                b"<%b://%b%b/" % (scheme, host, self.outer), b"<%b%b/" % (self.inner_origin, self.inner)
            )
        return value if self.inner == self.outer else value.replace(b"<%b/" % self.outer, b"<%b/" % self.inner)

    @staticmethod
    def _own_path(url: bytes, origins: tuple[bytes, ...]) -> bytes | None:
        """What follows one of `origins` in `url`, or None."""
        low = url.lower()
        for origin in origins:
            if low.startswith(origin) and low[len(origin) : len(origin) + 1] in (b"/", b"?", b"#", b""):
                return url[len(origin) :]
        return None


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
