"""Our own cookies: taken out of requests, never set by a server; all others pass byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.http_cookies import (
    AFFINITY,
    FORM,
    MAX_OWN_VALUE,
    OWN,
    SIGN_IN,
    clear_line,
    set_line,
    sets_own,
    take_own,
)
from gatepost.wire.http_fields import request_rules, response_rules
from gatepost.wire.http_head import RequestReader, ResponseReader

S, A, F = SIGN_IN, AFFINITY, FORM


@pytest.mark.parametrize(
    ("field", "rest", "own"),
    [
        (b"", b"", {}),
        (b"a=1; b=2", b"a=1; b=2", {}),
        (b"%b=x" % S, b"", {S: b"x"}),
        (b"%b=x; a=1" % S, b"a=1", {S: b"x"}),
        (b"a=1; %b=x" % S, b"a=1", {S: b"x"}),
        (b"a=1; %b=x; b=2" % S, b"a=1; b=2", {S: b"x"}),
        (b"a=1;%b=x;b=2" % S, b"a=1;b=2", {S: b"x"}),
        (b"%b=x; a=1; %b=y; b=2; %b=z" % (S, A, F), b"a=1; b=2", {S: b"x", A: b"y", F: b"z"}),
        (b"a= 1 ;; ;\tb=\"2\"; %b = x " % S, b"a= 1 ;; ;\tb=\"2\"", {S: b"x"}),
        (b"%b=x==; a==" % S, b"a==", {S: b"x=="}),
        (b"%b; a=1" % S, b"a=1", {S: b""}),
        (b"%b=; a=1" % S, b"a=1", {S: b""}),
        (b"a=%b" % S, b"a=%b" % S, {}),
        (b"x%b=1; %bx=2; %b=3" % (S, S, S.lower()), b"x%b=1; %bx=2; %b=3" % (S, S, S.lower()), {}),
        (b'a="1; %b=x; 2"' % S, b'a="1; 2"', {S: b"x"}),
    ],
)  # fmt: skip
def test_ours_are_taken_out_wherever_they_stand(field: bytes, rest: bytes, own: dict[bytes, bytes]) -> None:
    """And only ours."""
    assert take_own(field) == (rest, own)


def test_one_that_comes_twice_opens_nothing() -> None:
    """No browser keeps two of a `__Host-` name: whoever slipped one in decides nothing, in whatever order."""
    assert take_own(b"%b=x; a=1; %b=y; %b=x" % (S, S, S)) == (b"a=1", {S: b""})
    assert take_own(b"%b=x; %b=x; %b=y" % (S, S, A)) == (b"", {S: b"", A: b"y"})


def test_too_large_opens_nothing_and_is_not_passed_on() -> None:
    """The bound."""
    assert take_own(b"%b=%b" % (S, b"x" * MAX_OWN_VALUE)) == (b"", {S: b"x" * MAX_OWN_VALUE})
    assert take_own(b"%b=%b; a=1" % (S, b"x" * (MAX_OWN_VALUE + 1))) == (b"a=1", {S: b""})


NAME = st.sampled_from([*OWN, b"a", b"SESSIONID", b"__Host-other", b"", b"__host-gatepost"])
VALUE = st.binary(max_size=12).map(lambda v: v.replace(b";", b""))


@given(st.lists(st.tuples(NAME, VALUE), max_size=8))
def test_the_others_pass_byte_for_byte(pairs: list[tuple[bytes, bytes]]) -> None:
    """As a browser writes them, whatever octets are in their values."""
    field = b"; ".join(b"%b=%b" % pair for pair in pairs)
    rest, own = take_own(field)
    others = b"; ".join(b"%b=%b" % (n, v) for n, v in pairs if n not in OWN)
    assert rest == (others.strip(b" \t") if own else field)
    assert set(own) == {n for n, _ in pairs if n in OWN}


@given(st.binary(max_size=200) | st.lists(st.sampled_from([S, A, b"=", b";", b" ", b"a", b"\t", b'"'])).map(b"".join))
def test_no_field_raises_and_no_own_cookie_is_left(field: bytes) -> None:
    """Rubbish too; what is passed on holds none of ours, in whatever way it is split."""
    rest, own = take_own(field)
    assert all(p.partition(b"=")[0].strip(b" \t") not in OWN for p in rest.split(b";"))
    assert set(own) <= OWN
    sets_own(field)


@pytest.mark.parametrize(
    ("value", "ours"),
    [
        (b"%b=x; Path=/" % S, True),
        (b"%b=x" % A, True),
        (b" %b =x" % F, True),
        (b"__HOST-Gatepost=x", True),
        (b"=%b=x" % S, True),
        (b" = %b=x" % S, True),
        (b"%b" % S, True),
        (b"a=%b" % S, False),
        (b"%bx=1" % S, False),
        (b"%b-more=1" % S, False),
        (b"a=b; %b=x" % S, False),
        (b"", False),
    ],
)
def test_what_would_set_one_of_ours(value: bytes, ours: bool) -> None:
    """Names in any case; a nameless cookie that looks like one of ours."""
    assert sets_own(value) is ours


def test_a_server_sets_its_cookies_and_none_of_ours() -> None:
    """Each line as it came, in the order they came."""
    reader = ResponseReader(response_rules())
    lines = [b"set-cookie: a=1; Path=/; Expires=Wed, 09 Jun 2027 10:18:14 GMT", b"SET-COOKIE: %b=x" % S]
    lines += [b"Set-Cookie: %b=; Max-Age=0" % A, b"Set-Cookie: b=2, c=3", b"X: y"]
    reader.read(b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(lines) + b"\r\n\r\n")
    assert b"".join(reader.passed) == b"\r\n".join([lines[0], lines[3], lines[4], b""])
    assert reader.kept == {}


def test_two_cookie_fields_are_one() -> None:
    """Joined as RFC 9113 section 8.2.3 joins them, so that ours is found in the second as well."""
    reader = RequestReader(request_rules([]), 100)
    reader.read(b"GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\ncookie: %b=x; b=2\r\n\r\n" % S)
    assert take_own(reader.kept[b"cookie"]) == (b"a=1; b=2", {S: b"x"})
    assert reader.passed == []


def test_the_lines_that_set_and_clear() -> None:
    """Secure, HttpOnly, SameSite, the whole host, until the browser is closed (SPEC B6)."""
    line = set_line(S, b"x")
    assert line == b"Set-Cookie: __Host-gatepost=x; Path=/; Secure; HttpOnly; SameSite=Lax\r\n"
    assert clear_line(S).endswith(b"; Max-Age=0\r\n")
    assert b"Domain" not in line
