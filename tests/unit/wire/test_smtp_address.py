"""Addresses of envelopes: RFC 5321 with round trips, UTF-8, domains (smtp-facts c.1, case 11; c.3, case 35)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.smtp_address import (
    BadAddress,
    NeedsUtf8,
    domain_of,
    literal_address,
    normal_domain,
    parse_address,
    parse_path,
    quote_local,
    split_address,
)


@pytest.mark.parametrize(
    ("path", "address", "local", "domain"),
    [
        ("<a@b.example>", "a@b.example", "a", "b.example"),
        ("<A.b+c@B.Example>", "A.b+c@B.Example", "A.b+c", "b.example"),
        ('<"a b"@x.example>', '"a b"@x.example', "a b", "x.example"),
        ('<"<>"@x.example>', '"<>"@x.example', "<>", "x.example"),
        ('<"a@b"@x.example>', '"a@b"@x.example', "a@b", "x.example"),
        ('<"a\\"\\\\b"@x.example>', '"a\\"\\\\b"@x.example', 'a"\\b', "x.example"),
        ('<"joe"@x.example>', "joe@x.example", "joe", "x.example"),
        ('<"j\\oe"@x.example>', "joe@x.example", "joe", "x.example"),
        ('<".a..b"@x.example>', '".a..b"@x.example', ".a..b", "x.example"),
        ("<@r.example:u@x.example>", "u@x.example", "u", "x.example"),
        ("<@r.example,@[192.0.2.1]:u@x.example>", "u@x.example", "u", "x.example"),
        ("<u@[192.0.2.1]>", "u@[192.0.2.1]", "u", "[192.0.2.1]"),
        ("<u@[IPv6:2001:DB8:0::1]>", "u@[IPv6:2001:DB8:0::1]", "u", "[ipv6:2001:db8::1]"),
        ("<u@x.example.>", "u@x.example", "u", "x.example"),
        ("<u@under_score.example>", "u@under_score.example", "u", "under_score.example"),
        ("<u@localhost>", "u@localhost", "localhost", None),
        ("<{a}$/?=^`|~!#%&'*@x.example>", "{a}$/?=^`|~!#%&'*@x.example", "{a}$/?=^`|~!#%&'*", "x.example"),
    ],
)
def test_paths_have_one_form(path: str, address: str, local: str, domain: str | None) -> None:
    read = parse_path(path)
    assert read == address
    assert parse_address(read) == read
    if domain is not None:
        assert split_address(read)[0] == local
        assert domain_of(read) == domain


@pytest.mark.parametrize(
    "path",
    [
        "", "<", ">", "<>", "a@b.example", "<a>", "<a@>", "<@b.example>", "<a@b.example", "<a b@x.example>", "<a@b c>",
        "<a..b@x.example>", "<.a@x.example>", "<a.@x.example>", '<"a@x.example>', '<""@x.example>', '<"a"b@x.example>',
        '<"a\r"@x.example>', "<a@-x.example>", "<a@x..example>", "<a@1.2.3.4>", "<a@[1.2.3]>", "<a@[1.2.3.4>",
        "<a@[IPv6:::1%eth0]>", "<a@[tag:x]>", "<@r.example u@x.example>", "<a@b@c.example>", "<a\0b@x.example>",
        f"<{'a' * 65}@x.example>", f'<"{"a" * 63}"@x.example>', f"<a@{'b' * 64}.example>",
        f"<a@{'.'.join(['b' * 60] * 5)}>", f"<@{'r' * 60}.example:{'a' * 60}@{'.'.join(['b' * 60] * 3)}.example>",
    ],
)  # fmt: skip
def test_what_is_no_address(path: str) -> None:
    with pytest.raises(BadAddress):
        parse_path(path, utf8=True)


def test_limits_are_reached() -> None:
    domain = ".".join(["b" * 60] * 3)
    assert parse_path(f"<{'a' * 64}@{domain}>")
    assert parse_path(f'<"{"a" * 60} "@{domain}>')


def test_null_sender_and_postmaster() -> None:
    assert parse_path("<>", null=True) == ""
    assert parse_path("<Postmaster>", postmaster=True) == "Postmaster"
    assert domain_of("") == domain_of("Postmaster") == ""


def test_beyond_ascii_only_with_smtputf8() -> None:
    with pytest.raises(NeedsUtf8):
        parse_path("<jürgen@bücher.example>")
    assert parse_path("<jürgen@bücher.example>", utf8=True) == "jürgen@bücher.example"
    assert parse_path('<"jür gen"@x.example>', utf8=True) == '"jür gen"@x.example'


def test_limits_count_octets_of_utf8() -> None:
    assert parse_path(f"<{'ü' * 32}@x.example>", utf8=True)
    with pytest.raises(BadAddress):
        parse_path(f"<{'ü' * 33}@x.example>", utf8=True)


@pytest.mark.parametrize(
    ("domain", "normal"),
    [
        ("Bücher.Example", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),  # not "strasse": UTS 46 without its transitional rules
        ("ΣΊΣΥΦΟΣ.example", "xn--kxa6akbbkh.example"),
        ("bücher\u3002example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("x.example.", "x.example"),
        ("[192.0.2.1]", "[192.0.2.1]"),
    ],
)
def test_domains_in_one_form(domain: str, normal: str) -> None:
    assert normal_domain(domain) == normal


@pytest.mark.parametrize(
    "domain", ["", ".", "a b", "ex\u2028ample", "a\u0301\u200bb.example", "\u0301a.example", "☃.x"]
)
def test_what_is_no_domain(domain: str) -> None:
    with pytest.raises(BadAddress):
        normal_domain(domain)


def test_literals() -> None:
    assert literal_address(domain_of("a@[192.0.2.1]")) == "192.0.2.1"
    assert literal_address(domain_of("a@[IPv6:2001:db8::1]")) == "2001:db8::1"
    assert literal_address("x.example") == ""


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=30))
def test_every_local_part_makes_the_round_trip(local: str) -> None:
    address = f"{quote_local(local)}@x.example"
    assert parse_path(f"<{address}>") == address
    assert split_address(address) == (local, "x.example")


@given(st.text(max_size=40))
def test_nothing_but_bad_address_is_raised(text: str) -> None:
    try:
        address = parse_path(f"<{text}>", utf8=True)
    except BadAddress:
        return
    assert parse_path(f"<{address}>", utf8=True) == address
    assert "\r" not in address
    assert "\n" not in address
