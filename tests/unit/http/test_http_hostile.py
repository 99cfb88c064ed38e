"""Heads and bodies that two parsers could read in two ways: refused, and nothing of them reaches a server."""

from __future__ import annotations

import h11
import httptools
import pytest
from http_harness import World, basic, get, response
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatepost.configuration.settings import Limits
from gatepost.wire.http_body import ChunkedBody
from gatepost.wire.http_fields import request_rules, response_rules
from gatepost.wire.http_head import END, HeadFault, RequestReader, ResponseReader, split_target
from gatepost.wire.http_path import read_path

HOST = b"Host: mail.contoso.com\r\n"
AUTH = basic("alice").encode() + b"\r\n"


def request(line: bytes = b"GET /owa/ HTTP/1.1", fields: bytes = b"", host: bytes = HOST) -> bytes:
    return line + b"\r\n" + host + AUTH + fields + b"\r\n"


HOSTILE = {
    "CL and TE": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")),
    "TE and CL": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")),
    "CL twice": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: 5\r\nContent-Length: 5\r\n")),
    "CL twice, different": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: 5\r\nContent-Length: 6\r\n")),
    "CL as a list": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: 5, 5\r\n")),
    "CL with a sign": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: +5\r\n")),
    "CL negative": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: -5\r\n")),
    "CL hexadecimal": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: 0x5\r\n")),
    "CL empty": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length:\r\n")),
    "CL with a space inside": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: 5 5\r\n")),
    "CL over 64 bits": (400, request(b"POST /owa/ HTTP/1.1", b"Content-Length: 18446744073709551617\r\n")),
    "TE of another coding": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding: gzip, chunked\r\n")),
    "TE chunked twice": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding: chunked, chunked\r\n")),
    "TE repeated": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n")),
    "TE not chunked": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding: identity\r\n")),
    "TE misspelled": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding: xchunked\r\n")),
    "TE with VT": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding: \x0bchunked\r\n")),
    "TE with a parameter": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding: chunked;x=y\r\n")),
    "TE in HTTP/1.0": (400, request(b"POST /owa/ HTTP/1.0", b"Transfer-Encoding: chunked\r\n")),
    "bare LF after the line": (400, b"GET /owa/ HTTP/1.1\n" + HOST + AUTH + b"\r\n"),
    "bare LF after a field": (400, request(fields=b"X: 1\nY: 2\r\n")),
    "bare LF everywhere": (400, request().replace(b"\r\n", b"\n")),
    "bare CR in a value": (400, request(fields=b"X: a\rb\r\n")),
    "bare CR before a name": (400, request(fields=b"\rX: a\r\n")),
    "obs-fold": (400, request(fields=b"X: a\r\n b\r\n")),
    "obs-fold with a tab": (400, request(fields=b"X: a\r\n\tb\r\n")),
    "fold of the first field": (400, b"GET /owa/ HTTP/1.1\r\n X: a\r\n" + HOST + AUTH + b"\r\n"),
    "space before the colon": (400, request(fields=b"X : a\r\n")),
    "TE, space before the colon": (400, request(b"POST /owa/ HTTP/1.1", b"Transfer-Encoding : chunked\r\n")),
    "no name": (400, request(fields=b": a\r\n")),
    "no colon": (400, request(fields=b"X\r\n")),
    "name with a space": (400, request(fields=b"X Y: a\r\n")),
    "name with a bracket": (400, request(fields=b"X(Y): a\r\n")),
    "name beyond ASCII": (400, request(fields=b"X\xc3\xa4: a\r\n")),
    "name with NUL": (400, request(fields=b"X\x00: a\r\n")),
    "NUL in a value": (400, request(fields=b"X: a\x00b\r\n")),
    "control in a value": (400, request(fields=b"X: a\x01b\r\n")),
    "DEL in a value": (400, request(fields=b"X: a\x7fb\r\n")),
    "no Host": (400, request(host=b"")),
    "Host twice": (400, request(host=HOST + HOST)),
    "Host empty": (400, request(host=b"Host:\r\n")),
    "Host with a path": (400, request(host=b"Host: mail.contoso.com/owa\r\n")),
    "Host with a user": (400, request(host=b"Host: evil@mail.contoso.com\r\n")),
    "Host with two names": (400, request(host=b"Host: a, b\r\n")),
    "Host with a bad port": (400, request(host=b"Host: mail.contoso.com:99999\r\n")),
    "Host with quotes": (400, request(host=b'Host: a"b\r\n')),
    "absolute form of another host": (400, request(b"GET http://evil.test/owa/ HTTP/1.1")),
    "absolute form with a user": (400, request(b"GET http://x@mail.contoso.com/owa/ HTTP/1.1")),
    "another scheme": (400, request(b"GET ftp://mail.contoso.com/owa/ HTTP/1.1")),
    "authority form": (400, request(b"GET mail.contoso.com:443 HTTP/1.1")),
    "no target": (400, request(b"GET HTTP/1.1")),
    "two spaces": (400, request(b"GET  /owa/ HTTP/1.1")),
    "a tab": (400, request(b"GET\t/owa/ HTTP/1.1")),
    "space at the end": (400, request(b"GET /owa/ HTTP/1.1 ")),
    "HTTP/0.9": (400, b"GET /owa/\r\n\r\n"),
    "HTTP/1.2": (400, request(b"GET /owa/ HTTP/1.2")),
    "HTTP/2.0": (400, request(b"GET /owa/ HTTP/2.0")),
    "HTTP/0.9 written out": (400, request(b"GET /owa/ HTTP/0.9")),
    "another protocol": (400, request(b"DESCRIBE /owa/ RTSP/1.0")),
    "lower-case version": (400, request(b"GET /owa/ http/1.1")),
    "HTTP/2 preface": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a TLS hello": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    "CONNECT": (405, request(b"CONNECT mail.contoso.com:443 HTTP/1.1")),
    "TRACE": (405, request(b"TRACE /owa/ HTTP/1.1")),
    "unknown method": (501, request(b"BREW /owa/ HTTP/1.1")),
    "lower-case method": (501, request(b"get /owa/ HTTP/1.1")),
    "a fragment": (400, request(b"GET /owa/#x HTTP/1.1")),
    "target beyond ASCII": (400, request(b"GET /owa/\xc3\xa4 HTTP/1.1")),
    "a control character in the target": (400, request(b"GET /owa/\x01 HTTP/1.1")),
    "percent alone": (400, request(b"GET /owa/% HTTP/1.1")),
    "percent and nonsense": (400, request(b"GET /owa/%zz HTTP/1.1")),
    "encoded NUL": (400, request(b"GET /owa/%00 HTTP/1.1")),
    "encoded CR LF": (400, request(b"GET /owa/%0d%0aX: HTTP/1.1")),
    "dot segments": (400, request(b"GET /owa/../ecp/ HTTP/1.1")),
    "a dot segment": (400, request(b"GET /./owa/ HTTP/1.1")),
    "dot segments at the end": (400, request(b"GET /owa/.. HTTP/1.1")),
    "encoded dots": (400, request(b"GET /owa/%2e%2e/ecp/ HTTP/1.1")),
    "half encoded dots": (400, request(b"GET /owa/.%2E/ecp/ HTTP/1.1")),
    "encoded slash and dots": (400, request(b"GET /owa/..%2fecp/ HTTP/1.1")),
    "dots with a parameter": (400, request(b"GET /owa/..;/ecp/ HTTP/1.1")),
    "double encoding": (400, request(b"GET /owa/%252e%252e/ecp/ HTTP/1.1")),
    "double encoded slash": (400, request(b"GET /owa/x%252fy HTTP/1.1")),
    "a backslash": (400, request(b"GET /owa\\..\\ecp HTTP/1.1")),
    "an encoded backslash": (400, request(b"GET /owa/%5c..%5cecp HTTP/1.1")),
    "two slashes first": (400, request(b"GET //evil.test/owa HTTP/1.1")),
    "an encoded slash in the directory": (400, request(b"GET /owa%2fx HTTP/1.1")),
    "Authorization twice": (400, request(fields=AUTH)),
    "another expectation": (417, request(b"POST /owa/ HTTP/1.1", b"Expect: 200-ok\r\nContent-Length: 5\r\n")),
    "target too long": (414, request(b"GET /owa/" + b"a" * 8200 + b" HTTP/1.1")),
    "head too large": (431, request(fields=b"X: " + b"a" * 33000 + b"\r\n")),
    "head without an end": (431, request(fields=b"X: " + b"a" * 33000)[:-2]),
    "line without an end": (414, b"GET /owa/" + b"a" * 33000),
    "too many fields": (431, request(fields=b"X: a\r\n" * 100)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_head_is_refused(name: str, world: World) -> None:
    """The right status, Connection: close, and no octet to a server, even with a good request behind it."""
    status, data = HOSTILE[name]
    client = world.client()
    answer = await client.send(data + get())
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:80]
    assert answer.count(b"HTTP/1.1") == 1
    assert world.log.of("http.refused")[0]["status"] == status
    assert b"\r\nConnection: close\r\n" in answer
    assert world.loop.connects == []


BAD_BODIES = {
    "size with a sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "size with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "size with a space": b"5 \r\nhello\r\n0\r\n\r\n",
    "size with a leading space": b" 5\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "size too large": b"1" * 16 + b"\r\nhello\r\n0\r\n\r\n",
    "bare LF after the size": b"5\nhello\r\n0\r\n\r\n",
    "bare CR after the size": b"5\rhello\r\n0\r\n\r\n",
    "no line end after the data": b"5\r\nhello0\r\n\r\n",
    "LF after the data": b"5\r\nhello\n0\r\n\r\n",
    "data too long": b"5\r\nhello!\r\n0\r\n\r\n",
    "bare CR in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "bare LF in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "an endless extension": b"5;" + b"a" * 400 + b"\r\nhello\r\n0\r\n\r\n",
    "bare LF after the last": b"5\r\nhello\r\n0\n\n",
    "a trailer without a colon": b"5\r\nhello\r\n0\r\nX\r\n\r\n",
    "a folded trailer": b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n",
    "endless trailers": b"5\r\nhello\r\n0\r\n" + b"X: a\r\n" * 2000 + b"\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_a_hostile_body_ends_both_connections(name: str, world: World) -> None:
    """A chunked body that breaks its grammar: 400, and the server's half-fed connection is closed, not reused."""
    client = world.client()
    answer = await client.send(get("/owa/", "Transfer-Encoding: chunked", method="POST"))
    assert answer == b""
    answer = await client.send(BAD_BODIES[name] + get())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nConnection: close\r\n" in answer
    assert world.servers[0].aborted
    assert b"0\r\n\r\n" not in world.servers[0].written.partition(END)[2]


async def test_trailers_are_dropped(world: World) -> None:
    """A trailer cannot become a field at the server."""
    client = world.client()
    body = b"5;ext=1\r\nhello\r\n0\r\nX-Remote-User: bob\r\nHost: x\r\n\r\n"
    await client.send(get("/owa/", "Transfer-Encoding: chunked", method="POST") + body)
    sent = world.servers[0].take()
    assert sent.endswith(b"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    assert b"bob" not in sent


BAD_RESPONSES = {
    "not HTTP": b"220 mail ESMTP\r\n\r\n",
    "CL and TE": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "CL twice": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "another coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    "chunked in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\n\r\n",
    "status 000": b"HTTP/1.1 000 OK\r\nContent-Length: 5\r\n\r\nhello",
    "status 042": b"HTTP/1.1 042 OK\r\nContent-Length: 5\r\n\r\nhello",
    "obs-fold": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
    "NUL": b"HTTP/1.1 200 OK\r\nX: a\x00\r\n\r\n",
    "too large": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000,
    "too many fields": b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 300 + b"\r\n",
    "unasked 101": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "endless interim": b"HTTP/1.1 102 Wait\r\n\r\n" * 30,
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_RESPONSES)
async def test_a_bad_head_from_a_server_is_502(name: str, world: World) -> None:
    """Servers are strangers too: 502 with a log line, the connection closed, the client's kept."""
    client = world.client()
    answer = await client.ask(get(), BAD_RESPONSES[name])
    assert b"HTTP/1.1 502 " in answer
    assert answer.count(b"HTTP/1.1 502") == 1
    assert world.servers[0].aborted
    assert world.log.of("http.refused")[0]["server"] == "MBX-1"
    assert (await client.ask(get(), response())).endswith(b"hello")


async def test_a_reason_with_odd_octets_is_left_out(world: World) -> None:
    """A status line cannot carry control characters to the client."""
    answer = await world.client().ask(get(), b"HTTP/1.1 200 O\x00K\r\nContent-Length: 0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 \r\n")


async def test_octets_after_a_response_close_the_connection(world: World) -> None:
    """What comes behind a response would be the answer to the next user's request."""
    client = world.client()
    answer = await client.ask(get(), response() + response(body=b"for the next"))
    assert answer.count(b"HTTP/1.1") == 1
    assert world.servers[0].aborted
    await client.ask(get(), response(body=b"right"))
    assert len(world.servers) == 2


async def test_octets_on_an_unused_connection_close_it(world: World) -> None:
    """A pooled connection that speaks unasked (a 408, a smuggled response) is not used again."""
    client = world.client()
    await client.ask(get(), response())
    world.servers[0].protocol.data_received(response("408 Request Timeout"))
    assert world.servers[0].aborted
    assert (await client.ask(get(), response(body=b"mine"))).endswith(b"mine")
    assert len(world.servers) == 2


# --- against other parsers

LINES = st.sampled_from([b"GET / HTTP/1.1", b"POST /owa HTTP/1.1", b"POST / HTTP/1.0", b"HEAD /owa HTTP/1.1"])
NAMES = st.sampled_from(
    [b"Host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"X-A", b"content-length", b"Expect", b"Upgrade"]
)
VALUES = st.one_of(
    st.sampled_from(
        [b"a", b"5", b"0", b"05", b"5,5", b"chunked", b"Chunked", b"chunked, chunked", b"identity", b"close"]
    ),
    st.binary(max_size=6),
)
COLONS = st.sampled_from([b": ", b":", b" : ", b":\t", b": \x0b"])
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n ", b"\r\r\n"])
FIELDS = st.lists(st.tuples(NAMES, COLONS, VALUES, ENDS).map(b"".join), max_size=5)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """Heads with a good skeleton and odd pieces."""
    return (
        draw(LINES)
        + draw(ENDS)
        + b"Host: a\r\n" * draw(st.sampled_from([0, 1, 1, 1, 2]))
        + b"".join(draw(FIELDS))
        + b"\r\n"
    )


def by_us(data: bytes) -> tuple[bytes, bytes, int | None] | None:
    """Method, target and body length (None: chunked) as we read the first head, or None when refused."""
    end = data.find(END)
    if end < 0:
        return None
    reader = RequestReader(request_rules(()), 100)
    try:
        reader.read(data[: end + 4])
        split_target(reader.target, reader.kept.get(b"host"), http_1_0=reader.http_1_0)
    except HeadFault:
        return None
    return reader.method, reader.target, None if reader.chunked else reader.length


def by_h11(data: bytes) -> tuple[bytes, bytes, int | None] | None:
    """The same, as h11 reads it; None when it refuses."""
    connection = h11.Connection(h11.SERVER)
    try:
        connection.receive_data(data)
        event = connection.next_event()
        if not isinstance(event, h11.Request):
            return None
        coding = [v for n, v in event.headers if n == b"transfer-encoding"]
        length = [v for n, v in event.headers if n == b"content-length"]
    except h11.RemoteProtocolError:
        return None
    return event.method, event.target, None if coding else int(length[0]) if length else 0


@settings(max_examples=300, deadline=None)
@given(heads())
@example(b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n")
def test_what_we_take_h11_takes_alike(data: bytes) -> None:
    """Whatever passes here has the same method, target and body length for another reader."""
    ours = by_us(data)
    if ours is not None:
        assert by_h11(data) == ours


@settings(max_examples=400, deadline=None)
@given(heads())
def test_what_we_take_ends_where_llhttp_ends_it(data: bytes) -> None:
    """The head that we cut at the first empty line is complete for the parser, not more and not less."""
    if by_us(data) is None:
        return
    seen: list[str] = []

    class Watch:
        def on_headers_complete(self) -> None:
            seen.append("complete")

        def on_message_begin(self) -> None:
            seen.append("begin")

    parser = httptools.HttpRequestParser(Watch())
    head = data[: data.find(END) + 4]
    try:
        parser.feed_data(head[:-1])
        assert seen == ["begin"]
        parser.feed_data(head[-1:])
    except httptools.HttpParserUpgrade:
        pass
    assert seen == ["begin", "complete"]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_octets_are_a_head_or_a_fault(data: bytes) -> None:
    """No input makes the readers raise anything but their own fault."""
    for reader in (RequestReader(request_rules(()), 100), ResponseReader(response_rules())):
        status = 200
        try:
            reader.read(data + END)
        except HeadFault as fault:
            status = fault.status
        assert status in {200, 400, 405, 414, 431, 501, 502}


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="/.%25e2fE5cC;a\\", max_size=14))
def test_a_path_that_passes_reads_the_same_twice(text: str) -> None:
    """A path that is passed on holds no dot segment, however often and in what order a server decodes it."""
    try:
        path, query, route = read_path(b"/" + text.encode())
    except HeadFault:
        return
    assert query == b""
    again = route
    for _ in range(2):
        segments = [s.partition(";")[0] for s in again.replace("\\", "/").split("/")]
        assert "." not in segments
        assert ".." not in segments
        again = read_again(again)
    assert read_path(path)[0] == path


def read_again(path: str) -> str:
    """One more round of percent-decoding, as a careless server does it."""
    from urllib.parse import unquote

    return unquote(path)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_octets_are_a_chunked_body_or_a_fault(data: bytes) -> None:
    """The chunked reader ends, uses no more than it got, and raises only its own fault."""
    body = ChunkedBody()
    try:
        payload, used = body.take(data)
    except HeadFault:
        return
    assert used <= len(data)
    assert len(payload) < max(used, 1)
    assert body.done or used == len(data)


async def test_bounds_are_settings() -> None:
    """http_head_bytes and http_headers are what counts."""
    world = World(limits=Limits(http_head_bytes=300, http_headers=4))
    assert (await world.client().send(get("/owa/", "X: " + "a" * 300))).startswith(b"HTTP/1.1 431 ")
    assert (await world.client().send(get("/owa/", "X: 1", "Y: 1", "Z: 1"))).startswith(b"HTTP/1.1 431 ")
    client = world.client()
    await client.send(get("/owa/", "X: 1", "Y: 1"))
    assert world.servers[0].take() != b""
