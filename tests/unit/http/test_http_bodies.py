"""Bodies both ways: framing is ours, pieces pass as they come, nobody waits for more than is there."""

from __future__ import annotations

from itertools import pairwise

import pytest
from http_harness import World, basic, get, head_of, response
from hypothesis import given, settings
from hypothesis import strategies as st

from gatepost.configuration.settings import Limits

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_body_passes_as_it_comes(world: World) -> None:
    """Each piece of a request's body is passed on at once, with the length in the head."""
    client = world.client()
    await client.send(get(method="PUT", body=b"0123456789")[:-6])
    assert world.servers[0].take().endswith(b"\r\nContent-Length: 10\r\n\r\n0123")
    await client.send(b"45")
    assert world.servers[0].take() == b"45"
    await client.send(b"6789")
    assert world.servers[0].take() == b"6789"


async def test_a_chunked_request_is_framed_anew(world: World) -> None:
    """The client's chunks, their extensions and their odd sizes end here."""
    client = world.client()
    await client.send(get("/owa/", "Transfer-Encoding: Chunked", method="POST") + b"0005;x=y\r\nhel")
    assert world.servers[0].take().endswith(b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n")
    await client.send(b"lo\r\n1\r\n!\r\n0\r\n\r\n")
    assert world.servers[0].take() == b"3\r\nlo!\r\n0\r\n\r\n"


async def test_the_first_byte_of_a_stream_is_passed_on_at_once(world: World) -> None:
    """An event stream: head first, then each event, for an hour of silence between them."""
    client = world.client()
    await client.send(get())
    await client.serve(CHUNKED)
    assert client.transport.take().endswith(b"\r\n\r\n")
    for event in (b"a", b"bc"):
        await client.serve(b"%x\r\n%b\r\n" % (len(event), event))
        assert client.transport.take() == b"%x\r\n%b\r\n" % (len(event), event)
        await world.pass_time(3599)
    await client.serve(b"0\r\nX-Trailer: 1\r\n\r\n")
    assert client.transport.take() == b"0\r\n\r\n"
    assert not client.transport.closed


async def test_a_long_poll_is_left_alone(world: World) -> None:
    """ActiveSync Ping: 59 minutes without an octet (field case 120), then the answer."""
    client = world.client()
    await client.send(get(method="POST", body=b"ping"))
    for _ in range(59):
        await world.pass_time(60)
    assert not world.servers[0].closed
    await client.serve(response(body=b"changes"))
    assert client.transport.take().endswith(b"changes")


async def test_a_server_that_hangs_is_given_up() -> None:
    """After http_response_seconds: 503 with Retry-After, its connection closed."""
    world = World(limits=Limits(http_response_seconds=100))
    client = world.client()
    await client.send(get())
    await world.pass_time(101)
    answer = client.transport.take()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After" in answer
    assert world.servers[0].aborted


async def test_an_upload_that_stands_still_ends() -> None:
    """A body that stops half way is cut after idle_seconds, not before."""
    world = World(limits=Limits(idle_seconds=500))
    client = world.client()
    await client.send(get(method="PUT", body=b"0123456789")[:-5])
    await world.pass_time(450)
    await client.send(b"5")
    await world.pass_time(499)
    assert not world.servers[0].closed
    await world.pass_time(2)
    assert client.transport.take().startswith(b"HTTP/1.1 408 ")
    assert world.servers[0].aborted


async def test_a_body_until_close_becomes_chunked(world: World) -> None:
    """A server of HTTP/1.0 ends its body by closing; the client's connection stays."""
    client = world.client()
    await client.send(get())
    await client.serve(b"HTTP/1.0 200 OK\r\n\r\nhel")
    await client.serve(b"lo")
    world.servers[0].lose()
    await world.settle()
    _, fields, rest = head_of(client.transport.take())
    assert fields["transfer-encoding"] == "chunked"
    assert rest == b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
    assert not client.transport.closed


@pytest.mark.parametrize("lost", [ConnectionResetError("reset"), None])
async def test_a_body_that_breaks_off_is_seen(world: World, lost: Exception | None) -> None:
    """A server that goes away within a body: the client's connection is cut, no last chunk is made up."""
    client = world.client()
    await client.send(get())
    await client.serve(CHUNKED + b"5\r\nhel")
    world.servers[0].lose(lost)
    await world.settle()
    assert client.transport.aborted
    assert b"0\r\n\r\n" not in client.transport.take().partition(b"\r\n\r\n")[2]


async def test_http_1_0_clients(world: World) -> None:
    """No chunks and no 1xx for them; the end is the end of the connection; no Host is needed."""
    client = world.client()
    request = f"GET /owa/ HTTP/1.0\r\n{basic('alice')}\r\n\r\n".encode()
    await client.send(request)
    await client.serve(b"HTTP/1.1 102 Wait\r\n\r\n" + CHUNKED + b"5\r\nhello\r\n")
    await client.serve(b"0\r\n\r\n")
    _, fields, rest = head_of(client.transport.take())
    assert (fields["connection"], rest) == ("close", b"hello")
    assert "transfer-encoding" not in fields
    await world.settle()
    assert client.transport.closed


@pytest.mark.parametrize(
    ("method", "status", "lines", "wanted"),
    [
        ("HEAD", "200 OK", ["Content-Length: 5000"], "5000"),
        ("HEAD", "200 OK", ["Transfer-Encoding: chunked"], None),
        ("GET", "304 Not Modified", ["Content-Length: 5000"], "5000"),
        ("GET", "204 No Content", [], None),
    ],
)
async def test_responses_without_a_body(
    world: World, method: str, status: str, lines: list[str], wanted: str | None
) -> None:
    """HEAD, 204, 304: the head is all, whatever length it tells; both connections are used again."""
    client = world.client()
    for _ in range(2):
        await client.send(get(method=method))
        await client.serve("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode())
        first, fields, rest = head_of(client.transport.take())
        assert first == f"HTTP/1.1 {status}"
        assert fields.get("content-length") == wanted
        assert "transfer-encoding" not in fields
        assert rest == b""
    assert len(world.servers) == 1


async def test_expect_100_is_end_to_end(world: World) -> None:
    """The server is asked, its 100 passes, then the body goes on."""
    client = world.client()
    head = get("/owa/", "Expect: 100-continue", method="PUT", body=b"12345")[:-5]
    assert await client.send(head) == b""
    assert b"\r\nExpect: 100-continue\r\n" in world.servers[0].take()
    await client.serve(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert client.transport.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.send(b"12345")
    assert world.servers[0].take() == b"12345"
    await client.serve(response("201 Created"))
    assert client.transport.take().startswith(b"HTTP/1.1 201 ")
    assert not client.transport.closed


async def test_a_final_answer_instead_of_100(world: World) -> None:
    """The client may or may not send its body now: both connections end after the answer."""
    client = world.client()
    await client.send(get("/owa/", "Expect: 100-continue", method="PUT", body=b"12345")[:-5])
    await client.serve(response("413 Too Large", body=b"no"))
    _, fields, rest = head_of(client.transport.take())
    assert (fields["connection"], rest) == ("close", b"no")
    assert world.servers[0].closed
    await world.pass_time(3)
    assert client.transport.closed


async def test_an_early_answer_while_the_body_comes(world: World) -> None:
    """The answer passes at once, late octets of the body are dropped and do not become a request."""
    client = world.client()
    await client.send(get(method="PUT", body=b"x" * 1000)[:-900])
    await client.serve(response("507 Full", body=b"full"))
    assert client.transport.take().endswith(b"full")
    assert await client.send(get("/owa/smuggled")) == b""
    assert world.servers[0].closed
    assert len(world.servers) == 1
    await world.pass_time(3)
    assert client.transport.closed


async def test_the_body_may_go_on_after_the_answer_began(world: World) -> None:
    """Full duplex: both go on to their ends; then the connection ends, since the client was told so."""
    client = world.client()
    await client.send(get(method="POST", body=b"0123456789")[:-5])
    await client.serve(CHUNKED + b"1\r\na\r\n")
    assert (await client.send(b"56789")).endswith(b"1\r\na\r\n")
    assert world.servers[0].written.endswith(b"56789")
    await client.serve(b"1\r\nb\r\n0\r\n\r\n")
    assert client.transport.take() == b"1\r\nb\r\n0\r\n\r\n"
    await world.settle()
    assert client.transport.closed


async def test_a_client_that_leaves_takes_its_server_connection_along(world: World) -> None:
    """Within a response, within a body, while waiting (field case 21)."""
    for stage in range(3):
        client = world.client()
        await client.send(get(method="PUT", body=b"12345")[: None if stage else -2])
        if stage == 2:
            await client.serve(CHUNKED + b"1\r\na\r\n")
        client.transport.lose(ConnectionResetError())
        await world.settle()
        assert world.servers[stage].aborted
    assert world.door.sessions() == []
    assert [line["reason"] for line in world.log.of("http.connection")] == ["client lost: ConnectionResetError"] * 3


async def test_pipelined_requests_are_answered_in_order(world: World) -> None:
    """One at a time goes to the servers; answers keep the order though the users' servers differ."""
    client = world.client()
    await client.send(get("/owa/1") + get("/owa/2", user="bob") + get("/", user="") + get("/owa/3"))
    assert len(world.servers) == 1
    await client.serve(response(body=b"one"), 0)
    assert len(world.servers) == 2
    await client.serve(response(body=b"two"), 1)
    await client.serve(response(body=b"three"), 0)
    answer = client.transport.take()
    assert [answer.find(w) for w in (b"one", b"two", b"302", b"three")] == sorted(
        answer.find(w) for w in (b"one", b"two", b"302", b"three")
    )


async def test_many_pipelined_own_answers(world: World) -> None:
    """Thousands of them in one read end in a loop, not in a recursion."""
    client = world.client()
    answer = await client.send(get("/", user="") * 3000)
    assert answer.count(b"HTTP/1.1 302") == 3000


async def test_what_is_sent_ahead_is_bounded(world: World) -> None:
    """A client that sends on while its request is served is not read beyond the bound, and loses nothing."""
    client = world.client()
    await client.send(get())
    ahead = get("/owa/next", "X-Fill: " + "x" * 8000) * 12
    await client.send(ahead)
    assert not client.transport.reading
    for _ in range(13):
        await client.serve(response())
    assert client.transport.take().count(b"HTTP/1.1 200") == 13
    assert client.transport.reading


async def test_a_slow_client_stops_the_server(world: World) -> None:
    """Back-pressure on responses: the server is not read while the client does not read."""
    client = world.client()
    await client.send(get())
    await client.serve(CHUNKED + b"1\r\na\r\n")
    client.leg.pause_writing()
    assert not world.servers[0].reading
    client.leg.resume_writing()
    assert world.servers[0].reading


async def test_a_connection_goes_back_readable(world: World) -> None:
    """A response that ends while the client is slow: the server's connection can be read for the next user."""
    client = world.client()
    await client.send(get())
    await client.serve(CHUNKED + b"1\r\na\r\n")
    client.leg.pause_writing()
    await client.serve(b"0\r\n\r\n")
    assert world.servers[0].reading
    await client.send(get())
    assert world.servers[0].written == b""
    client.leg.resume_writing()
    await world.settle()
    assert world.servers[0].written.count(b"GET ") == 1


async def test_a_slow_server_stops_the_client(world: World) -> None:
    """Back-pressure on uploads: the client is not read while the server does not read."""
    client = world.client()
    await client.send(get(method="PUT", body=b"x" * 1000)[:-900])
    leg = world.servers[0].protocol
    leg.pause_writing()
    assert not client.transport.reading
    leg.resume_writing()
    assert client.transport.reading
    leg.pause_writing()
    await client.serve(response("413 Too Large"))
    assert client.transport.reading


async def test_heads_that_come_too_slowly() -> None:
    """Slow loris: from the first octet to the end of the head (http_head_seconds), trickling does not help."""
    world = World(limits=Limits(http_head_seconds=10, http_keep_alive_seconds=60))
    client = world.client()
    await client.ask(get(), response())
    await world.pass_time(50)
    got = b""
    for octet in get()[:11]:
        got += await client.send(bytes([octet]))
        await world.pass_time(1)
    assert (got + client.transport.take()).startswith(b"HTTP/1.1 408 ")
    idle = world.client()
    await idle.ask(get(), response())
    await world.pass_time(59)
    assert not idle.transport.closed
    await world.pass_time(2)
    assert idle.transport.closed
    silent = world.client()
    await world.pass_time(11)
    assert silent.transport.closed
    assert silent.transport.take() == b""


@pytest.mark.parametrize("close", [False, True])
async def test_the_last_response_reaches_a_slow_reader_whole(close: bool) -> None:
    """As long as the client takes some of it; one that takes nothing any more is cut."""
    world = World(limits=Limits(http_keep_alive_seconds=10))
    client = world.client()
    await client.send(get("/owa/", *(["Connection: close"] if close else [])))
    client.transport.unsent = 5000
    await client.serve(response())
    for left in range(4900, 4000, -100):
        await world.pass_time(31)
        assert not client.transport.aborted
        client.transport.unsent = left
    await world.pass_time(31)
    await world.pass_time(31)
    await world.pass_time(31)
    assert client.transport.aborted


async def test_a_refused_body_is_dropped_and_the_connection_kept(world: World) -> None:
    """A POST without credentials (every EWS client's first): 401, its body dropped, the next request understood."""
    client = world.client()
    answer = await client.send(get(user="", method="POST", body=b"<soap/>" * 100) + get("/owa/again"))
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert (await client.serve(response())).startswith(b"GET /owa/again ")
    assert client.transport.take().endswith(b"hello")
    assert not client.transport.closed


async def test_a_large_refused_body_ends_the_connection(world: World) -> None:
    """Nobody uploads a gigabyte to be told to sign in."""
    client = world.client()
    head = get(user="", method="POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 1000000000\r\n\r\n")
    await client.send(head)
    for _ in range(3):
        await client.send(b"x" * 50000)
    await world.pass_time(3)
    assert client.transport.closed


# --- every split of the octets gives the same result

CONVERSATIONS = {
    "length": (get(method="PUT", body=b"0123456789"), response("200 OK", "X-A: b")),
    "chunked": (
        get("/owa/", "Transfer-Encoding: chunked", method="POST") + b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\n",
        CHUNKED + b"3\r\nabc\r\n4;x\r\ndefg\r\n0\r\nX: y\r\n\r\n",
    ),
    "no body": (
        get("/owa/?q", "Connection: x-b", "X-B: c"),
        b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
    ),
}  # fmt: skip


def bodies_joined(data: bytes) -> bytes:
    """Octets with the chunks of a chunked body put together, for framing may differ where payload may not."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return data
    payload = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        payload += rest[: int(size, 16)]
        if int(size, 16) == 0:
            return head + end + payload + b"|end|" + rest
        rest = rest[int(size, 16) + 2 :]
    return head + end + payload


async def converse(name: str, cuts: list[int], answer_cuts: list[int]) -> tuple[bytes, bytes]:
    """Upstream octets and the client's, with request and response cut at these places."""
    world = World()
    world.door._request_prefix = b"00000000-0000-0000-0000-"
    request, answer = CONVERSATIONS[name]
    client = world.client()
    for piece in pieces(request, cuts):
        await client.send(piece)
        client.transport.written[:0] = b""
    for piece in pieces(answer, answer_cuts):
        world.servers[0].protocol.data_received(piece)
    await world.settle()
    got = bytes(client.transport.written)
    if name == "no body":
        got = got.replace(b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", b"")
    return bodies_joined(bytes(world.servers[0].written)), bodies_joined(got)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at `cuts`."""
    places = [0, *sorted({c for c in cuts if 0 < c < len(data)}), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_every_single_cut(name: str) -> None:
    """Cut once at every octet, on both legs."""
    whole = await converse(name, [], [])
    assert whole[1].startswith(b"HTTP/1.1 20")
    request, answer = CONVERSATIONS[name]
    for place in range(1, len(request)):
        assert await converse(name, [place], []) == whole
    for place in range(1, len(answer)):
        assert await converse(name, [], [place]) == whole
    assert await converse(name, list(range(len(request))), list(range(len(answer)))) == whole


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(CONVERSATIONS)),
    st.lists(st.integers(1, 300), max_size=6),
    st.lists(st.integers(1, 120), max_size=6),
)
async def test_any_cuts(name: str, cuts: list[int], answer_cuts: list[int]) -> None:
    """Any cuts on both legs at once."""
    assert await converse(name, cuts, answer_cuts) == await converse(name, [], [])
