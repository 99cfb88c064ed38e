"""One probe of one server's service: is anybody there who speaks the protocol? (SPEC B7)

Nobody signs in. What counts is an answer of the service itself, not of the machine.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from gatepost.activemanager.seen import Sight
from gatepost.organization.model import (
    PROXIED,
    ClientAddress,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    TlsMode,
    Version,
    VirtualDirectory,
)
from gatepost.wire.proxy_protocol import encode_v1, encode_v2

MAX_LINE = 8192
"""Octets of the first line of an answer."""
HEALTH_PAGE = "/healthcheck.htm"
"""Below a virtual directory's path: what front ends and Exchange answer for balancers."""
ALIVE_ABOVE_499 = frozenset({501, 505})
"""A server that does not know the method or version is there; other answers from 500 on say that its service is not."""

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")
FAREWELL = {
    Protocol.IMAP: b"a LOGOUT\r\n",
    Protocol.POP3: b"QUIT\r\n",
    Protocol.SUBMISSION: b"QUIT\r\n",
    Protocol.SMTP: b"QUIT\r\n",
}
"""Without it servers log each probe as a lost connection (field case 134)."""


MAIL = frozenset({Protocol.IMAP.value, Protocol.POP3.value, Protocol.SUBMISSION.value, Protocol.SMTP.value})
"""Services whose server speaks first."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What to ask of whom. `request` is empty where the server speaks first."""

    server: Server
    endpoint: Endpoint
    request: bytes = b""
    peer: bool = False
    """At another front end's endpoint for peers; only 200 counts as alive there."""


def plan(organization: Organization, server_name: str, service: str) -> Probe | None:
    """The probe for a service (one of `MAIL`, `https`, or the word of an HTTP service); None where there is none."""
    server = organization.servers.get(server_name)
    if server is None:
        return None
    if service in MAIL:
        endpoint = server.endpoint(Protocol(service))
        return Probe(server, endpoint) if endpoint is not None else None
    directory = directory_of(organization, server, service)
    endpoint = server.peer_endpoint
    if directory is not None and endpoint is not None and Role.CLIENT_ACCESS in server.roles:
        path = _page(directory.path)
        return Probe(server, endpoint, _request("GET", path, server.fqdn), peer=True)
    endpoint = server.endpoint(Protocol.HTTPS)
    if endpoint is None or endpoint.tls is TlsMode.STARTTLS:
        return None
    if directory is None or not directory.peer_url:
        return Probe(server, endpoint, _request("OPTIONS", "*", server.fqdn))
    url = urlsplit(directory.peer_url)
    host = url.netloc.rpartition("@")[2] or server.fqdn
    if server.version < Version.MODERN:
        return Probe(server, endpoint, _request("GET", _page(url.path), host))
    return Probe(server, endpoint, _request("HEAD", url.path or "/", host))


async def run(probe: Probe, context: ssl.SSLContext | None, seconds: float) -> str:
    """Probes; empty when the service is alive, else why not. `context` is there unless the endpoint is clear.

    `seconds` are for connecting, TLS and the first line together.
    """
    return (await look(ask(probe, context), seconds))[1]


async def look(asking: Coroutine[None, None, str], seconds: float) -> tuple[Sight, str]:
    """What came of asking a service for at most `seconds`: what that means, and why it is not well."""
    try:
        async with asyncio.timeout(seconds):
            reason = await asking
    except TimeoutError:
        return Sight.SILENT, f"no answer within {seconds:g} s"
    except ssl.SSLCertVerificationError as error:  # a ValueError too
        return Sight.ILL, f"certificate refused: {error.verify_message or error.reason}"
    except (asyncio.IncompleteReadError, EOFError):
        return Sight.ILL, "closed without an answer"
    except (asyncio.LimitOverrunError, ValueError):
        return Sight.ILL, "an answer that is not understood"
    except ConnectionRefusedError as error:
        return Sight.REFUSED, f"cannot connect: {error.strerror or type(error).__name__}"
    except OSError as error:
        return Sight.ILL, f"cannot connect: {error.strerror or type(error).__name__}"
    return (Sight.ILL if reason else Sight.WELL), reason


@asynccontextmanager
async def connected(
    endpoint: Endpoint, context: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to `endpoint`, its PROXY header said and its implicit TLS done; closed without waiting."""
    proxied = endpoint.client_address in PROXIED
    name = (endpoint.tls_name or endpoint.address) if endpoint.tls is TlsMode.IMPLICIT else None
    at_once = name if not proxied else None
    reader, writer = await asyncio.open_connection(
        endpoint.address, endpoint.port, limit=MAX_LINE, ssl=context if at_once else None, server_hostname=at_once
    )
    try:
        if proxied:
            writer.write(_for_ourselves(endpoint, writer))
            if name is not None and context is not None:
                await writer.start_tls(context, server_hostname=name)
        yield reader, writer
        writer.close()
    except BaseException:
        writer.transport.abort()  # nothing is to be waited for, and TLS would
        raise


def _for_ourselves(endpoint: Endpoint, writer: asyncio.StreamWriter) -> bytes:
    """The PROXY header of who has no client. Version 1 can say so too, but Postfix does not take it for an answer."""
    if endpoint.client_address is not ClientAddress.PROXY_V1:
        return encode_v2(None, None)
    here, there = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
    return encode_v1((here[0], here[1]), (there[0], there[1]))


async def ask(probe: Probe, context: ssl.SSLContext | None) -> str:
    """The first line of the service, judged: empty when it is alive. Raises what a connection may raise."""
    async with connected(probe.endpoint, context) as (reader, writer):
        if probe.request:
            writer.write(probe.request)
        line = await reader.readuntil(b"\n")
        writer.write(FAREWELL.get(probe.endpoint.protocol, b""))
    return judge(probe, line)


def judge(probe: Probe, line: bytes) -> str:
    """What the first line of the answer says; empty: alive."""
    if probe.endpoint.protocol is Protocol.IMAP:
        return "" if line[:5].upper() == b"* OK " or line[:9].upper() == b"* PREAUTH" else f"it says {_shown(line)}"
    if probe.endpoint.protocol in {Protocol.SMTP, Protocol.SUBMISSION}:
        # A greeting of several lines has begun: the service is there, however long it makes its client wait.
        return "" if line[:3] == b"220" else f"it says {_shown(line)}"
    if probe.endpoint.protocol is Protocol.POP3:
        return "" if line[:3] == b"+OK" else f"it says {_shown(line)}"
    found = _STATUS.match(line)
    if found is None:
        return f"no HTTP: it says {_shown(line)}"
    status = int(found[1])
    alive = status == 200 if probe.peer else status < 500 or status in ALIVE_ABOVE_499
    return "" if alive else f"HTTP {status}"


def directory_of(organization: Organization, server: Server, word: str) -> VirtualDirectory | None:
    """The virtual directory that a word means at `server`: that of its service, or of its path's first segment.

    A front end that others reach serves what servers of its site have, without a directory of its own.
    """
    word = word.casefold()
    found = _meant(organization.directories_by_server.get(server.name, ()), word)
    return _meant(organization.virtual_directories, word) if found is None and server.peer_endpoint else found


def _meant(directories: Iterable[VirtualDirectory], word: str) -> VirtualDirectory | None:
    by_segment = None
    for directory in directories:
        if directory.service.casefold() == word:
            return directory
        if by_segment is None and directory.path[1:].partition("/")[0].casefold() == word:
            by_segment = directory
    return by_segment


def _page(path: str) -> str:
    return path.rstrip("/") + HEALTH_PAGE


def _request(method: str, path: str, host: str) -> bytes:
    target = quote(path, safe="/~!$&'()*+,=:@%")
    lines = (f"{method} {target} HTTP/1.1", f"Host: {host}", "User-Agent: Gatepost-Health", "Connection: close", "", "")
    return "\r\n".join(lines).encode("ascii", "ignore")


def _shown(line: bytes) -> str:
    """A server's line for the log: printable and short."""
    text = line.decode("ascii", "replace").strip()[:60]
    return repr("".join(c if c.isprintable() else "?" for c in text))
