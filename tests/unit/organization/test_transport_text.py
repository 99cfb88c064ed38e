"""Sizes, spans, bindings, ranges, address spaces and smart hosts: read, and written so that they are read the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.organization.transport import AddressRange, AddressSpace, Binding, SmartHost
from gatepost.organization.transport_text import (
    binding_text,
    range_text,
    read_binding,
    read_range,
    read_size,
    read_smart_host,
    read_space,
    read_span,
    size_shown,
    size_text,
    smart_host_text,
    space_text,
    span_text,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("35MB", 36_700_160), ("35 mb", 36_700_160), ("250KB", 256_000), ("1GB", 2**30), ("100", 100), ("7B", 7),
        ("36 MB (37,748,736 bytes)", 37_748_736), ("unlimited", 0), ("Unlimited", 0),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    """As people and the source system's output write them."""
    assert read_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:01:00", 60.0), ("2.00:00:00", 172_800.0), ("00:00:00", 0.0), ("1.02:03:04", 93_784.0), ("00:00:00.5", 0.5),
        ("4:00:00", 14_400.0),
    ],
)  # fmt: skip
def test_spans(text: str, seconds: float) -> None:
    """dd.hh:mm:ss."""
    assert read_span(text) == seconds


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("192.168.1.75", "192.168.1.75", "192.168.1.75"),
        ("192.168.1.0-192.168.1.255", "192.168.1.0", "192.168.1.255"),
        ("192.168.1.0-255", "192.168.1.0", "192.168.1.255"),
        ("10.0.0.0/8", "10.0.0.0", "10.255.255.255"),
        ("0.0.0.0-255.255.255.255", "0.0.0.0", "255.255.255.255"),
        ("fd00::/64", "fd00::", "fd00::ffff:ffff:ffff:ffff"),
        ("::1-::9", "::1", "::9"),
    ],
)
def test_ranges(text: str, first: str, last: str) -> None:
    """The three syntaxes of exchange-facts 4.9, and the example's."""
    assert read_range(text) == AddressRange(ip_address(first), ip_address(last))


@pytest.mark.parametrize(
    ("text", "pattern", "cost"),
    [
        ("*", "*", 1), ("*.Contoso.com", "*.contoso.com", 1), ("contoso.com;5", "contoso.com", 5),
        ("SMTP:contoso.com;100", "contoso.com", 100), ("smtp:*;1", "*", 1), ("contoso.com.", "contoso.com", 1),
    ],
)  # fmt: skip
def test_address_spaces(text: str, pattern: str, cost: int) -> None:
    """`Type:space;cost`, SMTP implied."""
    assert read_space(text) == AddressSpace(pattern, cost)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("relay.contoso.com", "relay.contoso.com", 25), ("relay:587", "relay", 587), ("[10.0.0.1]", "10.0.0.1", 25),
        ("10.0.0.1:2525", "10.0.0.1", 2525), ("[fd00::1]:26", "fd00::1", 26), ("fd00::1", "fd00::1", 25),
    ],
)  # fmt: skip
def test_smart_hosts(text: str, host: str, port: int) -> None:
    """Names and addresses, in brackets or not."""
    assert read_smart_host(text) == SmartHost(host, port)


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (read_size, "35XB", "not a size"), (read_size, "", "not a size"), (read_size, "-1", "not a size"),
        (read_span, "5", "not a time span"), (read_span, "24:00:00", "not a time span"),
        (read_span, "00:60:00", "not a time span"), (read_binding, "0.0.0.0", "not an address with a port"),
        (read_binding, "host:25", "not an address"), (read_binding, "::1:25", "not an address"),
        (read_binding, "0.0.0.0:0", "not an address"), (read_binding, "0.0.0.0:65536", "not an address"),
        (read_range, "10.0.0.9-10.0.0.1", "comes before"), (read_range, "10.0.0.1-::1", "comes before"),
        (read_range, "10.0.0.1/8", "not an address range"), (read_range, "10.0.0.300", "not an address range"),
        (read_space, "*contoso.com", "*.contoso.com means"), (read_space, "X400:c=US", "another type"),
        (read_space, "contoso.com;0", "cost"), (read_space, "contoso.com;101", "cost"), (read_space, "", "not an"),
        (read_space, "*.", "not an address space"), (read_space, "a@b.c", "not an address space"),
        (read_smart_host, "relay:0", "not a host"), (read_smart_host, "re lay", "not a host"),
        (read_smart_host, "[10.0.0.1]:x", "not a host"), (read_smart_host, "", "not a host"),
    ],
)  # fmt: skip
def test_what_is_none(read: Callable[[str], object], text: str, words: str) -> None:
    """With what is wrong in plain words."""
    with pytest.raises(ValueError, match=words.replace("*", r"\*")):
        read(text)


ADDRESSES = st.ip_addresses()
NAMES = st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,8}){0,2}", fullmatch=True)


@st.composite
def ranges(draw: st.DrawFn) -> AddressRange:
    """Any, of one family."""
    version = draw(st.sampled_from((4, 6)))
    ends = sorted((draw(st.ip_addresses(v=version)), draw(st.ip_addresses(v=version))), key=int)  # type: ignore[call-overload]
    return AddressRange(ends[0], ends[1])


@pytest.mark.parametrize(
    ("values", "write", "read"),
    [
        (st.integers(0, 2**40), size_text, read_size),
        (st.integers(0, 2**40), size_shown, read_size),
        (st.integers(0, 100 * 86_400_000).map(lambda ms: ms / 1000), span_text, read_span),
        (st.builds(Binding, ADDRESSES, st.integers(1, 65535)), binding_text, read_binding),
        (ranges(), range_text, read_range),
        (st.builds(AddressSpace, NAMES | NAMES.map("*.{}".format) | st.just("*"), st.integers(1, 100)), space_text,
         read_space),
        (st.builds(SmartHost, NAMES | ADDRESSES.map(str), st.integers(1, 65535)), smart_host_text, read_smart_host),
    ],
    ids=["size", "size shown", "span", "binding", "range", "space", "smart host"],
)  # fmt: skip
def test_what_is_written_is_read_the_same(
    values: st.SearchStrategy[Any], write: Callable[[Any], str], read: Callable[[str], Any]
) -> None:
    """Round trip."""

    @given(values)
    def check(value: object) -> None:
        assert read(write(value)) == value

    check()


@given(st.text(max_size=30))
def test_no_text_breaks_a_reader(text: str) -> None:
    """A value or ValueError."""
    for read in (read_size, read_span, read_binding, read_range, read_space, read_smart_host):
        with suppress(ValueError):
            read(text)
