"""Host names, addresses, URLs and paths: pure judgements that the check and the loader share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

MAX_HOST_NAME = 253
"""Characters: 255 octets on the wire less two for the framing (RFC 1035 section 3.1)."""

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_SEGMENT = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%-]+")
_HOST_BITS = 64
"""What one IPv6 subscriber gets at least (RFC 6177): a /64, to fill with addresses as it likes."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def is_ip_address(text: str) -> bool:
    """Whether `text` is an IPv4 or IPv6 address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_host_name(text: str) -> bool:
    """Whether `text` can be a DNS name (RFC 1123 section 2.1; underscores are seen in the field and let through)."""
    labels = text.removesuffix(".").split(".")
    if len(text) > MAX_HOST_NAME or labels[-1].isdigit():
        return False
    return all(_LABEL.fullmatch(label) for label in labels)


@lru_cache(maxsize=4096)
def is_address(text: str) -> bool:
    """Whether one can connect to `text`: an IP address or a host name. A server's name is asked for many times."""
    return is_ip_address(text) or is_host_name(text)


def is_loopback(address: str) -> bool:
    """Whether `address` cannot leave this machine: a loopback address or `localhost`; other names may lead anywhere."""
    return ip_address(address).is_loopback if is_ip_address(address) else address.casefold() == "localhost"


def is_header_name(text: str) -> bool:
    """Whether `text` is a field name (RFC 9110 section 5.1)."""
    return bool(_TOKEN.fullmatch(text))


def normal_path(path: str) -> str:
    """`path` with one leading and no trailing slash; the root stays `/`."""
    return "/" + path.strip("/")


def path_fault(path: str) -> str:
    """What is wrong with a virtual directory's normalised path; empty when it is fine."""
    if path == "/":
        return ""
    for segment in path.removeprefix("/").split("/"):
        if segment in {"", ".", ".."}:
            return "has an empty or dot segment"
        if "%" in segment or not _SEGMENT.fullmatch(segment):
            return "has characters that a path cannot hold as they are"
    return ""


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """An absolute HTTP URL without query; `host` is lower case, without brackets."""

    scheme: str
    host: str
    port: int
    path: str


def parse_http_url(text: str) -> HttpUrl:
    """The parts of `text`. Raises ValueError with what is wrong in plain words."""
    if not text.isascii() or any(character <= " " or character == "\x7f" for character in text):
        raise ValueError("has spaces or characters that are not ASCII")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("has no valid host name") from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError("does not begin with https://")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueError("has a query or fragment")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a user name in it")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("has a port that is not a number from 1 to 65535") from None
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("has a port that is not a number from 1 to 65535")
    host = parts.hostname or ""
    if not is_address(host):
        raise ValueError("has no valid host name")
    default = 443 if parts.scheme == "https" else 80
    return HttpUrl(parts.scheme, host, port or default, parts.path)


@lru_cache(maxsize=4096)
def owner_of(client: str) -> str:
    """Whose a client address is: itself, or its /64 in IPv6. An IPv4 address mapped into IPv6 is the IPv4 address."""
    try:
        ip = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return f"{IPv6Address(int(ip) >> _HOST_BITS << _HOST_BITS)}/{128 - _HOST_BITS}"
