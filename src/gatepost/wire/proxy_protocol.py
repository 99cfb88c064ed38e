"""The PROXY protocol, versions 1 and 2: a balancer's word on who the client is, ahead of the client's own bytes.

Read from listed peers only (that is the caller's part), and written to mailbox servers that take it. Exactly the
header is consumed, never a byte more (field case 88).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
MAX_V1 = 107
"""Octets of a version 1 line with its CRLF: the longest that the specification knows (its section 2.1)."""
MAX_V2 = 4096
"""Octets of a version 2 header. Everyone must take 536; a balancer that sends a client certificate needs some 2,000."""
MAX_VALUE = 255
"""Octets of a name inside: authority (a host name), common name, unique id (128 by specification), ALPN."""

_V1_PREFIX = b"PROXY "
_HEAD = struct.Struct("!12sBBH")
_INET = struct.Struct("!4s4sHH")
_INET6 = struct.Struct("!16s16sHH")
_UNIX_SIZE = 216
_TLV_HEAD = struct.Struct("!BH")
_SSL_HEAD = struct.Struct("!BI")

_ALPN, _AUTHORITY, _CRC32C, _UNIQUE_ID, _SSL = 0x01, 0x02, 0x03, 0x05, 0x20
_SSL_VERSION, _SSL_CN = 0x21, 0x22
_CLIENT_SSL, _CLIENT_CERTIFICATE = 0x01, 0x02 | 0x04
"""Bits of the SSL TLV: the client used TLS; it showed a certificate in this connection or earlier in its session."""


_End = tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """What a header says.

    `local`: the peer speaks for itself, a health check for instance; the connection's own addresses hold.
    `source` and `destination` are (address, port) as the balancer saw the client's connection, None when it does not
    say. An IPv4 address mapped into IPv6 is given as IPv4.
    """

    local: bool = False
    source: tuple[str, int] | None = None
    destination: tuple[str, int] | None = None
    tls: bool = False
    tls_version: str = ""
    client_certificate_verified: bool = False
    """Only when the balancer says both that there was a certificate and that it was verified (field case 86)."""
    common_name: str = ""
    """Of the client's certificate; empty unless that was verified, so that nobody trusts a mere claim."""
    alpn: bytes = b""
    authority: str = ""
    unique_id: bytes = b""


class BadProxyHeader(ValueError):
    """The header breaks the specification or a bound; the connection has to be closed."""


class NotProxy(BadProxyHeader):
    """The bytes are not the beginning of a PROXY header at all."""


def parse(buffer: bytes | bytearray) -> tuple[ProxyHeader, int] | None:
    """The header at the start of `buffer` with its length, None while bytes are missing.

    Raises `BadProxyHeader` as soon as it is certain that no further byte can make it right.
    """
    signature = bytes(buffer[:12])
    if signature == V2_SIGNATURE:
        return _parse_v2(buffer)
    if signature.startswith(_V1_PREFIX):
        return _parse_v1(bytes(buffer[:MAX_V1]))
    if V2_SIGNATURE.startswith(signature) or _V1_PREFIX.startswith(signature):
        return None
    raise NotProxy("no PROXY header")


def encode_v2(
    source: tuple[str, int] | None,
    destination: tuple[str, int] | None,
    *,
    tls: bool = False,
    tls_version: str = "",
    authority: str = "",
    unique_id: bytes = b"",
) -> bytes:
    """A version 2 header: PROXY for these addresses, LOCAL when one is None. A scope id (`%eth0`) is left out.

    One address of each family: both travel as IPv6, the IPv4 one mapped. Raises ValueError for what is no IP address
    or port.
    """
    if source is None or destination is None:
        return _HEAD.pack(V2_SIGNATURE, 0x20, 0x00, 0)
    values = [
        _tlv(_AUTHORITY, authority.encode()),
        _tlv(_UNIQUE_ID, unique_id),
        # Verify is not 0: no certificate of the client was verified.
        _tlv(_SSL, _SSL_HEAD.pack(_CLIENT_SSL, 1) + _tlv(_SSL_VERSION, tls_version.encode())) if tls else b"",
    ]
    ends = (_address(source[0]), _address(destination[0]))
    ports = (_port(source[1]), _port(destination[1]))
    if all(isinstance(end, IPv4Address) for end in ends):
        family = 0x11
        addresses = _INET.pack(ends[0].packed, ends[1].packed, *ports)
    else:
        family = 0x21
        addresses = _INET6.pack(*map(_packed_v6, ends), *ports)
    body = addresses + b"".join(values)
    return _HEAD.pack(V2_SIGNATURE, 0x21, family, len(body)) + body


def encode_v1(source: tuple[str, int] | None, destination: tuple[str, int] | None) -> bytes:
    """A version 1 header; UNKNOWN when an address is not known. As `encode_v2` in all else."""
    if source is None or destination is None:
        return b"PROXY UNKNOWN\r\n"
    ends: tuple[IPv4Address | IPv6Address, ...] = (_address(source[0]), _address(destination[0]))
    kind = "TCP4"
    if not all(isinstance(end, IPv4Address) for end in ends):
        kind = "TCP6"
        ends = tuple(IPv6Address(_packed_v6(end)) for end in ends)
    return f"PROXY {kind} {ends[0]} {ends[1]} {_port(source[1])} {_port(destination[1])}\r\n".encode()


# Version 1


def _parse_v1(line: bytes) -> tuple[ProxyHeader, int] | None:
    end = line.find(b"\n")
    if end < 0:
        if len(line) == MAX_V1 or b"\r" in line[:-1]:
            raise BadProxyHeader("a line without CRLF at its end")
        return None
    if line.find(b"\r") != end - 1:
        raise BadProxyHeader("a line without CRLF at its end")
    kind, *fields = line[len(_V1_PREFIX) : end - 1].split(b" ")
    if kind == b"UNKNOWN":
        # Whatever follows is to be ignored (specification, section 2.1).
        return ProxyHeader(), end + 1
    version = {b"TCP4": 4, b"TCP6": 6}.get(kind)
    if version is None or len(fields) != 4:
        raise BadProxyHeader("not the fields of a version 1 header")
    source, destination, source_port, destination_port = fields
    header = ProxyHeader(
        source=(_text_address(source, version), _text_port(source_port)),
        destination=(_text_address(destination, version), _text_port(destination_port)),
    )
    return header, end + 1


def _text_address(field: bytes, version: int) -> str:
    try:
        address = ip_address(field.decode("ascii"))
    except ValueError as error:
        raise BadProxyHeader("not an IP address") from error
    if address.version != version or b"%" in field:
        raise BadProxyHeader("an address of another family")
    return str(_unmapped(address))


def _text_port(field: bytes) -> int:
    if not field.isdigit() or len(field) > 5 or (field[:1] == b"0" and field != b"0") or int(field) > 0xFFFF:
        raise BadProxyHeader("not a port")
    return int(field)


# Version 2


def _parse_v2(buffer: bytes | bytearray) -> tuple[ProxyHeader, int] | None:
    if len(buffer) > 12 and buffer[12] not in (0x20, 0x21):
        raise BadProxyHeader("unknown version or command")
    if len(buffer) > 13 and buffer[12] == 0x21 and (buffer[13] >> 4 > 3 or buffer[13] & 0x0F > 2):
        raise BadProxyHeader("unknown address family or transport")
    if len(buffer) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(buffer)
    size = _HEAD.size + length
    if size > MAX_V2:
        raise BadProxyHeader("a header too long")
    if len(buffer) < size:
        return None
    if command == 0x20 or family >> 4 == 0:
        # LOCAL: everything that follows is to be ignored, the family too; UNSPEC: nobody knows where values begin.
        return ProxyHeader(local=command == 0x20), size
    if family & 0x0F != 1:
        raise BadProxyHeader("not a stream connection")
    source, destination, start = _addresses(family, buffer, size)
    if start == size:
        return ProxyHeader(source=source, destination=destination), size
    return _with_values(source, destination, bytes(buffer[:size]), start), size


def _addresses(family: int, buffer: bytes | bytearray, size: int) -> tuple[_End, _End, int]:
    """Source, destination and where the values begin. Raises `BadProxyHeader` when `size` is too short for them."""
    start = _HEAD.size + {1: _INET.size, 2: _INET6.size, 3: _UNIX_SIZE}[family >> 4]
    if size < start:
        raise BadProxyHeader("a header too short for its addresses")
    if family >> 4 == 3:
        return None, None, start
    if family >> 4 == 1:
        source, destination, source_port, destination_port = _INET.unpack_from(buffer, _HEAD.size)
        return (".".join(map(str, source)), source_port), (".".join(map(str, destination)), destination_port), start
    source, destination, source_port, destination_port = _INET6.unpack_from(buffer, _HEAD.size)
    return (
        (str(_unmapped(IPv6Address(source))), source_port),
        (str(_unmapped(IPv6Address(destination))), destination_port),
        start,
    )


def _with_values(source: _End, destination: _End, header: bytes, start: int) -> ProxyHeader:
    values = _values(header[start:])
    checksum = values.get(_CRC32C)
    if checksum is not None and not _checksum_holds(header, start, checksum):
        raise BadProxyHeader("a wrong checksum")
    tls, version, verified, common_name = _ssl(values[_SSL]) if _SSL in values else (False, "", False, "")
    return ProxyHeader(
        source=source,
        destination=destination,
        tls=tls,
        tls_version=version,
        client_certificate_verified=verified,
        common_name=common_name,
        alpn=_bounded(values.get(_ALPN, b"")),
        authority=_name(values.get(_AUTHORITY, b"")),
        unique_id=_bounded(values.get(_UNIQUE_ID, b"")),
    )


def _ssl(value: bytes) -> tuple[bool, str, bool, str]:
    """TLS used, its version, client certificate verified, common name."""
    if len(value) < _SSL_HEAD.size:
        raise BadProxyHeader("an SSL value too short")
    client, verify = _SSL_HEAD.unpack_from(value)
    values = _values(value[_SSL_HEAD.size :])
    common_name = _name(values.get(_SSL_CN, b""))
    tls = bool(client & _CLIENT_SSL)
    verified = tls and bool(client & _CLIENT_CERTIFICATE) and verify == 0
    return tls, _name(values.get(_SSL_VERSION, b"")), verified, common_name if verified else ""


def _values(data: bytes) -> dict[int, bytes]:
    """Type to value. A type that comes twice could mean one thing here and another elsewhere: refused if we use it."""
    values: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if len(data) - at < _TLV_HEAD.size:
            raise BadProxyHeader("a value cut short")
        kind, length = _TLV_HEAD.unpack_from(data, at)
        at += _TLV_HEAD.size
        if len(data) - at < length:
            raise BadProxyHeader("a value cut short")
        if kind in values and kind in _USED:
            raise BadProxyHeader("a value given twice")
        values[kind] = data[at : at + length]
        at += length
    return values


_USED = frozenset({_ALPN, _AUTHORITY, _CRC32C, _UNIQUE_ID, _SSL, _SSL_VERSION, _SSL_CN})


def _bounded(value: bytes) -> bytes:
    if len(value) > MAX_VALUE:
        raise BadProxyHeader("a value too long")
    return value


def _name(value: bytes) -> str:
    try:
        name = _bounded(value).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadProxyHeader("a name that is not UTF-8") from error
    if not name.isprintable():
        raise BadProxyHeader("a control character in a name")
    return name


# CRC32C (Castagnoli), reflected: the specification's checksum; Python has only the other CRC-32.


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """The CRC32C of `data` (RFC 9260 appendix A)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _checksum_holds(header: bytes, start: int, checksum: bytes) -> bool:
    """Whether `checksum` is that of the whole header with the checksum's own four octets as zeros."""
    if len(checksum) != 4:
        return False
    at = start
    while header[at] != _CRC32C:
        at += _TLV_HEAD.size + _TLV_HEAD.unpack_from(header, at)[1]
    at += _TLV_HEAD.size
    return crc32c(header[:at] + bytes(4) + header[at + 4 :]) == int.from_bytes(checksum, "big")


# Addresses


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _address(text: str) -> IPv4Address | IPv6Address:
    return _unmapped(ip_address(text.partition("%")[0]))


def _packed_v6(address: IPv4Address | IPv6Address) -> bytes:
    return address.packed if isinstance(address, IPv6Address) else b"\0" * 10 + b"\xff\xff" + address.packed


def _port(port: int) -> int:
    if not 0 <= port <= 0xFFFF:
        raise ValueError("not a port")
    return port


def _tlv(kind: int, value: bytes) -> bytes:
    """One value, nothing when it is empty. Raises ValueError when it is longer than we would accept ourselves."""
    if len(value) > MAX_VALUE:
        raise ValueError("a value too long")
    return _TLV_HEAD.pack(kind, len(value)) + value if value else b""
