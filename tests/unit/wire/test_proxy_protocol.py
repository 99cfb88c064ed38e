"""The PROXY protocol: both versions, against an independent implementation, and against bytes of strangers."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxyprotocol.result import ProxyResult, ProxyResultIPv4, ProxyResultIPv6, ProxyResultLocal
from proxyprotocol.tlv import ProxyProtocolSSLTLV, ProxyProtocolTLV
from proxyprotocol.v1 import ProxyProtocolV1
from proxyprotocol.v2 import ProxyProtocolV2

from gatepost.wire.proxy_protocol import (
    MAX_V1,
    MAX_V2,
    MAX_VALUE,
    V2_SIGNATURE,
    BadProxyHeader,
    NotProxy,
    ProxyHeader,
    crc32c,
    encode_v1,
    encode_v2,
    parse,
)

INET = bytes([192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x34, 0x03, 0xE1])
ENDS: dict[str, Any] = {"source": ("192.0.2.1", 0x1234), "destination": ("198.51.100.2", 993)}


def v2(body: bytes, command: int = 0x21, family: int = 0x11) -> bytes:
    return V2_SIGNATURE + struct.pack("!BBH", command, family, len(body)) + body


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!BH", kind, len(value)) + value


def ssl(client: int, verify: int, *values: bytes) -> bytes:
    return tlv(0x20, struct.pack("!BI", client, verify) + b"".join(values))


def parsed(data: bytes) -> ProxyHeader:
    found = parse(data)
    assert found is not None
    assert found[1] == len(data)
    return found[0]


# Version 1


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 993\r\n", ProxyHeader(**ENDS)),
        (b"PROXY TCP4 0.0.0.0 1.0.0.9 0 65535\r\n", ProxyHeader(source=("0.0.0.0", 0), destination=("1.0.0.9", 65535))),
        (b"PROXY TCP6 2001:DB8::1 ::1 1 2\r\n", ProxyHeader(source=("2001:db8::1", 1), destination=("::1", 2))),
        (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", ProxyHeader(source=("192.0.2.1", 1), destination=("::1", 2))),
        (b"PROXY UNKNOWN\r\n", ProxyHeader()),
        (b"PROXY UNKNOWN ffff::1 what ever 99999\r\n", ProxyHeader()),
    ],
)  # fmt: skip
def test_version_1(line: bytes, header: ProxyHeader) -> None:
    assert parsed(line) == header
    assert parse(line + b"PROXY TCP4 ...") == (header, len(line))


@pytest.mark.parametrize(
    "line",
    [
        b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 993\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 4660\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 993 \r\n",
        b"PROXY TCP4  192.0.2.1 198.51.100.2 4660 993\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 04660 993\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 +460 993\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 993\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 4_6 993\r\n",
        b"PROXY TCP4 192.0.2.01 198.51.100.2 1 993\r\n",
        b"PROXY TCP4 192.0.2 198.51.100.2 1 993\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        b"PROXY TCP4 \xd9\xa1.0.0.1 198.51.100.2 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY \r\n",
        b"PROXY UNKNOWN\rX\r\n",
        b"PROXY UNKNOWN x\rX\r\n",
        b"PROXY UNKNOWN x\nX\r\n",
        b"PROXY UNKNOWN " + b"x" * MAX_V1,
        b"PROXY UNKNOWN " + b"x" * (MAX_V1 - 15) + b"\r\n",
    ],
)
def test_version_1_is_strict(line: bytes) -> None:
    with pytest.raises(BadProxyHeader):
        parse(line)


def test_the_longest_version_1_line_fits() -> None:
    line = b"PROXY UNKNOWN " + b"x" * (MAX_V1 - 16) + b"\r\n"
    assert len(line) == MAX_V1
    assert parsed(line) == ProxyHeader()


# Version 2


def test_version_2_with_ipv4_and_ipv6() -> None:
    assert parsed(v2(INET)) == ProxyHeader(**ENDS)
    inet6 = IPv6Address("2001:db8::1").packed + IPv6Address("::ffff:198.51.100.2").packed + INET[8:]
    header = parsed(v2(inet6, family=0x21))
    assert header == ProxyHeader(source=("2001:db8::1", 0x1234), destination=("198.51.100.2", 993))


@pytest.mark.parametrize("body", [b"", INET, b"\xff" * 50])
@pytest.mark.parametrize("family", [0x00, 0x11, 0x21, 0x12, 0xFF])
def test_local_means_the_connections_own_addresses(body: bytes, family: int) -> None:
    """Whatever follows is skipped, the family too (specification, section 2.2)."""
    assert parsed(v2(body, command=0x20, family=family)) == ProxyHeader(local=True)


def test_families_without_an_ip_address_give_none() -> None:
    assert parsed(v2(b"\xff" * 30, family=0x00)) == ProxyHeader()
    assert parsed(v2(b"/run/x".ljust(216, b"\0"), family=0x31)) == ProxyHeader()


def test_values_are_read_and_unknown_ones_skipped() -> None:
    values = (
        tlv(0xEA, b"aws") + tlv(0x01, b"h2") + tlv(0x02, b"mail.contoso.com") + tlv(0x04, bytes(9))
        + tlv(0x05, b"id\xff") + ssl(0x01, 1, tlv(0x21, b"TLSv1.3"), tlv(0x23, b"cipher")) + tlv(0x30, b"netns")
    )  # fmt: skip
    assert parsed(v2(INET + values)) == ProxyHeader(
        **ENDS,
        tls=True,
        tls_version="TLSv1.3",
        alpn=b"h2",
        authority="mail.contoso.com",
        unique_id=b"id\xff",
    )


@pytest.mark.parametrize(
    ("client", "verify", "verified"),
    [
        (0x03, 0, True),
        (0x05, 0, True),
        (0x07, 0, True),
        (0x07, 1, False),
        (0x07, 0x01000000, False),
        (0x01, 0, False),
        (0x06, 0, False),
        (0x00, 0, False),
    ],
)
def test_a_client_certificate_counts_only_when_verified(client: int, verify: int, verified: bool) -> None:
    """Field case 86: neither the flag nor the common name without the balancer's word that it was."""
    header = parsed(v2(INET + ssl(client, verify, tlv(0x22, b"alice"))))
    assert header.client_certificate_verified is verified
    assert header.common_name == ("alice" if verified else "")
    assert header.tls is bool(client & 1)


@pytest.mark.parametrize(
    "data",
    [
        V2_SIGNATURE + b"\x11",
        V2_SIGNATURE + b"\x31",
        V2_SIGNATURE + b"\x22",
        V2_SIGNATURE + b"\x21\x41",
        V2_SIGNATURE + b"\x21\x13",
        V2_SIGNATURE + b"\x21\x11" + struct.pack("!H", MAX_V2 - 16 + 1),
        v2(INET, family=0x12),
        v2(INET[:-1]),
        v2(INET, family=0x21),
        v2(INET, family=0x31),
        v2(INET + b"\x01"),
        v2(INET + b"\x01\x00\x05h2"),
        v2(INET + tlv(0x02, b"\xff")),
        v2(INET + tlv(0x02, b"a\r\nb")),
        v2(INET + tlv(0x02, b"a" * (MAX_VALUE + 1))),
        v2(INET + tlv(0x02, b"a") + tlv(0x02, b"b")),
        v2(INET + ssl(1, 1) + ssl(7, 0)),
        v2(INET + tlv(0x20, b"\x01\0\0\0")),
        v2(INET + ssl(1, 1, b"\x21\x00")),
        v2(INET + ssl(7, 0, tlv(0x22, b"a"), tlv(0x22, b"b"))),
        v2(INET + tlv(0x03, b"\0\0\0\0")),
        v2(INET + tlv(0x03, b"\0\0")),
    ],
)
def test_version_2_is_strict(data: bytes) -> None:
    """And refused as soon as it is certain: the first ones are not even complete."""
    with pytest.raises(BadProxyHeader):
        parse(data)


def test_the_longest_version_2_header_fits() -> None:
    body = INET + tlv(0xE0, bytes(MAX_V2 - 16 - len(INET) - 3))
    assert parsed(v2(body)).source == ENDS["source"]


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"A", b"PROXX", b"\r\n\r\n\0\r\nQUIX", b"proxy "]
)
def test_other_bytes_are_no_proxy_header(data: bytes) -> None:
    with pytest.raises(NotProxy):
        parse(data)


def test_nothing_yet_is_not_an_error() -> None:
    assert parse(b"") is None


def test_crc32c_has_the_check_value_of_its_definition() -> None:
    assert crc32c(b"123456789") == 0xE3069283


GOOD = [
    b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 993\r\n",
    b"PROXY UNKNOWN\r\n",
    v2(b"", command=0x20, family=0),
    v2(INET + tlv(0x02, b"a") + ssl(1, 1)),
]


@pytest.mark.parametrize("header", GOOD)
def test_every_beginning_is_incomplete_and_no_byte_after_the_end_is_taken(header: bytes) -> None:
    """Field case 88."""
    for end in range(len(header)):
        assert parse(header[:end]) is None
    for after in (b"\r\n", b"PROXY ", V2_SIGNATURE, b"\xff" * 5000):
        assert parse(bytearray(header + after)) == (parsed(header), len(header))


def verdict(data: bytes) -> tuple[ProxyHeader, int] | BadProxyHeader | None:
    try:
        return parse(data)
    except BadProxyHeader as error:
        return error


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(lambda b: b"PROXY " + b),
        st.text("TCP46UNKOW .:0123456789abf\r\n", max_size=110).map(lambda t: b"PROXY " + t.encode()),
        st.binary(max_size=300).map(lambda b: V2_SIGNATURE + b),
        st.builds(v2, st.binary(max_size=300), st.sampled_from([0x20, 0x21]), st.sampled_from([0, 0x11, 0x21, 0x31])),
        st.binary(max_size=100).map(lambda b: v2(INET + b)),
        st.binary(max_size=60).map(lambda b: v2(INET + tlv(0x20, b))),
    ),
    st.binary(max_size=20),
)
def test_strangers_bytes_give_a_header_or_a_refusal_and_more_bytes_do_not_change_it(data: bytes, more: bytes) -> None:
    """Nothing but `BadProxyHeader` is raised, nothing is consumed that is not there, a verdict is final."""
    first = verdict(data)
    if isinstance(first, tuple):
        assert 0 < first[1] <= len(data)
        assert parse(data[: first[1]]) == first
        assert verdict(data + more) == first
    elif first is not None:
        assert isinstance(verdict(data + more), BadProxyHeader)


# Against an independent implementation

PORTS = st.integers(0, 65535)
V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6)


def text(address: IPv4Address | IPv6Address) -> str:
    """As `ProxyHeader` gives it."""
    return str((isinstance(address, IPv6Address) and address.ipv4_mapped) or address)


@given(
    st.one_of(st.tuples(V4, V4), st.tuples(V6, V6)),
    PORTS,
    PORTS,
    st.text(st.characters(categories=["L", "N"]), max_size=60),
    st.booleans(),
    st.booleans(),
)
def test_what_another_implementation_writes_is_read(
    ends: tuple[IPv4Address, IPv4Address] | tuple[IPv6Address, IPv6Address],
    port: int,
    port2: int,
    name: str,
    certificate: bool,
    verified: bool,
) -> None:
    """With its checksum."""
    values = ProxyProtocolTLV(
        authority=name,
        unique_id=b"id",
        alpn=b"imap",
        ssl=ProxyProtocolSSLTLV(has_ssl=True, has_cert_conn=certificate, verified=verified, version="TLSv1.3", cn=name),
        auto_crc32c=True,
    )
    result: ProxyResult
    if isinstance(ends[0], IPv4Address) and isinstance(ends[1], IPv4Address):
        result = ProxyResultIPv4((ends[0], port), (ends[1], port2), protocol=socket.SOCK_STREAM, tlv=values)
    else:
        assert isinstance(ends[0], IPv6Address)
        assert isinstance(ends[1], IPv6Address)
        result = ProxyResultIPv6((ends[0], port), (ends[1], port2), protocol=socket.SOCK_STREAM, tlv=values)
    data = ProxyProtocolV2().pack(result)
    trusted = certificate and verified
    assert parsed(data) == ProxyHeader(
        source=(text(ends[0]), port),
        destination=(text(ends[1]), port2),
        tls=True,
        tls_version="TLSv1.3",
        client_certificate_verified=trusted,
        common_name=name if trusted else "",
        alpn=b"imap",
        authority=name,
        unique_id=b"id",
    )
    line = ProxyProtocolV1().pack(result)
    assert parsed(line) == ProxyHeader(source=(text(ends[0]), port), destination=(text(ends[1]), port2))


@given(st.binary(min_size=1, max_size=30), st.data())
def test_one_changed_byte_breaks_the_checksum(unique_id: bytes, data: st.DataObject) -> None:
    values = ProxyProtocolTLV(unique_id=unique_id, auto_crc32c=True)
    ends = (IPv4Address("192.0.2.1"), 1), (IPv4Address("192.0.2.2"), 2)
    header = bytearray(ProxyProtocolV2().pack(ProxyResultIPv4(*ends, protocol=socket.SOCK_STREAM, tlv=values)))
    header[data.draw(st.integers(16, 27) | st.integers(len(header) - len(unique_id), len(header) - 1))] ^= data.draw(
        st.integers(1, 255)
    )
    with pytest.raises(BadProxyHeader, match="checksum"):
        parse(header)


@given(V4 | V6, V4 | V6, PORTS, PORTS, st.booleans())
def test_what_we_write_is_read_by_another_implementation_and_by_ourselves(
    source: IPv4Address | IPv6Address, destination: IPv4Address | IPv6Address, port: int, port2: int, tls: bool
) -> None:
    data = encode_v2((str(source), port), (str(destination), port2), tls=tls, tls_version="TLSv1.3", unique_id=b"s-1")
    ours = parsed(data)
    assert ours.source == (text(source), port)
    assert ours.destination == (text(destination), port2)
    assert (ours.tls, ours.tls_version) == ((True, "TLSv1.3") if tls else (False, ""))
    assert (ours.client_certificate_verified, ours.unique_id) == (False, b"s-1")
    theirs = ProxyProtocolV2().unpack(data)
    assert isinstance(theirs, ProxyResultIPv4 | ProxyResultIPv6)
    assert (text(theirs.source[0]), theirs.source[1]) == (text(source), port)
    assert (text(theirs.dest[0]), theirs.dest[1]) == (text(destination), port2)
    assert theirs.protocol is socket.SOCK_STREAM
    assert theirs.tlv.ssl.has_ssl is tls
    assert not theirs.tlv.ssl.verified


def test_without_addresses_we_write_local() -> None:
    data = encode_v2(None, ("192.0.2.1", 1))
    assert parsed(data) == ProxyHeader(local=True)
    assert isinstance(ProxyProtocolV2().unpack(data), ProxyResultLocal)


def test_mapped_addresses_travel_as_ipv4_and_scope_ids_not_at_all() -> None:
    data = encode_v2(("::ffff:192.0.2.1", 0x1234), ("::ffff:198.51.100.2", 993))
    assert data == v2(INET)
    assert parsed(encode_v2(("fe80::1%eth0", 1), ("::1", 2))).source == ("fe80::1", 1)


@pytest.mark.parametrize("source", [("unix socket", 1), ("", 0), ("192.0.2.1", 65536), ("192.0.2.1", -1)])
def test_what_is_no_address_is_not_written(source: tuple[str, int]) -> None:
    with pytest.raises(ValueError, match=r"address|port"):
        encode_v2(source, ("192.0.2.1", 1))


@pytest.mark.parametrize(
    ("source", "destination", "line"),
    [
        (("203.0.113.9", 4711), ("192.0.2.1", 25), b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 25\r\n"),
        (("::ffff:203.0.113.9", 1), ("192.0.2.1", 25), b"PROXY TCP4 203.0.113.9 192.0.2.1 1 25\r\n"),
        (("2001:db8::1%eth0", 1), ("2001:db8::2", 25), b"PROXY TCP6 2001:db8::1 2001:db8::2 1 25\r\n"),
        (None, ("192.0.2.1", 25), b"PROXY UNKNOWN\r\n"),
    ],
)
def test_version_1_as_we_write_it(source: tuple[str, int] | None, destination: tuple[str, int], line: bytes) -> None:
    """And read it again."""
    assert encode_v1(source, destination) == line
    assert parse(line) is not None


def test_version_1_of_two_families_is_read_again() -> None:
    """The IPv4 one mapped."""
    found = parse(encode_v1(("203.0.113.9", 1), ("2001:db8::2", 25)))
    assert found is not None
    assert found[0].source == ("203.0.113.9", 1)
