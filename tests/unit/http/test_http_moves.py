"""HTTP after a move of a database (SPEC B5): what is under way ends in its own form, the rest is not touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_harness import Client, World, get, head_of, mailbox_server, response
from websockets.frames import CloseCode, Frame
from websockets.streams import StreamReader

from gatepost.access.http.leaving import LONG_POLL_SECONDS
from gatepost.access.moves import Changed, Outcome, Round
from gatepost.access.sessions import SessionFilter
from gatepost.organization.model import VirtualDirectory
from gatepost.wire.activesync import is_ping

AS = "/Microsoft-Server-ActiveSync"
PING = f"{AS}?Cmd=Ping&User=alice&DeviceId=D1&DeviceType=x"


def world() -> World:
    """Two servers with webmail, web services, phones and DAV."""
    paths = ("/owa", "/EWS", "/dav", AS)
    return World(
        [mailbox_server("MBX-1"), mailbox_server("MBX-2")],
        [
            VirtualDirectory(server, path.strip("/"), path, f"https://{server.lower()}.contoso.com{path}")
            for server in ("MBX-1", "MBX-2")
            for path in paths
        ],
    )


class Moving:
    """DB1 has moved to MBX-2."""

    def __init__(self, w: World, *, forced: float = 10.0, dead: bool = False) -> None:
        self.world = w
        w.active["DB1"], w.epochs["DB1"] = "MBX-2", 2
        loop: Any = w.loop
        self.outcomes: list[Outcome] = []
        leavers = w.door.move([Changed("DB1", "MBX-1", 2)], frozenset({("MBX-1", "https")} if dead else ()))
        self.number = len(leavers)
        Round(loop, leavers, window=0.0, forced=forced, done=self.outcomes.extend)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            await self.world.pass_time(0.05)


async def under_way(w: World, request: bytes, waits: float = 0.0) -> Client:
    """A client whose request is at the server."""
    client = w.client()
    await client.send(request)
    if waits:
        await w.pass_time(waits)
    return client


async def test_an_idle_connection_needs_nothing() -> None:
    """Its next request is decided anew."""
    w = world()
    client = w.client()
    await client.ask(get("/owa/"), response())
    moving = Moving(w)
    await moving.pass_time(1)
    assert moving.number == 0
    assert not client.transport.closed
    await client.send(get("/owa/"))
    assert w.loop.connects[-1][0] == "127.0.2.2"


async def test_a_response_under_way_is_finished_and_the_connection_closed() -> None:
    """Not a byte is missing, and the client's next connection is a new one."""
    w = world()
    client = await under_way(w, get("/owa/a"))
    await client.serve(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
    moving = Moving(w)
    await moving.pass_time(1)
    assert moving.outcomes == []
    await client.serve(b"world")
    await moving.pass_time(0.1)
    assert client.transport.take().endswith(b"helloworld")
    assert client.transport.closed
    assert not client.transport.aborted
    assert moving.outcomes == [Outcome.CLOSED]


async def test_a_response_that_begins_after_the_move_says_that_the_connection_closes() -> None:
    """`Connection: close`, so that the client does not send its next request into nothing."""
    w = world()
    client = await under_way(w, get("/owa/a"))
    moving = Moving(w)
    await moving.pass_time(0.5)
    await client.serve(response())
    _, fields, body = head_of(client.transport.take())
    assert (fields["connection"], body) == ("close", b"hello")
    assert client.transport.closed


async def test_a_ping_is_answered_503_with_a_moment_to_wait() -> None:
    """Not closed: a phone would take its heartbeat for too long. 503 is a fault of the server, and passes."""
    w = world()
    client = await under_way(w, get(PING, method="POST", body=b"\x03\x01j\x00"), waits=60.0)
    w.client()  # another one, in the middle of nothing
    moving = Moving(w)
    await moving.pass_time(0.3)
    first, fields, body = head_of(client.transport.take())
    assert first.startswith("HTTP/1.1 503")
    assert fields["retry-after"] in {"1", "2"}
    assert body == b""
    assert w.servers[0].aborted
    assert moving.outcomes in ([Outcome.STAYED], [Outcome.CLOSED])


async def test_a_ping_that_has_just_come_waits_a_moment() -> None:
    """It may have its answer at once; only what waits for long is a long poll."""
    w = world()
    client = await under_way(w, get(PING, method="POST", body=b"x"))
    moving = Moving(w)
    await moving.pass_time(LONG_POLL_SECONDS - 0.5)
    assert client.transport.take() == b""
    await moving.pass_time(1)
    assert client.transport.take().startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize("method", ["GET", "PROPFIND", "REPORT"])
async def test_a_long_poll_that_changes_nothing_goes_on_at_the_new_server(method: str) -> None:
    """The client notices nothing: the old server's connection is closed, the new server is asked."""
    w = world()
    client = await under_way(w, get("/owa/pending", method=method), waits=60.0)
    moving = Moving(w)
    await moving.pass_time(0.3)
    assert w.servers[0].aborted
    assert client.transport.take() == b""
    got = await client.serve(response())
    assert got.startswith(f"{method} /owa/pending ".encode())
    first, fields, _ = head_of(client.transport.take())
    assert first == "HTTP/1.1 200 OK"
    assert fields["x-beserver" if "x-beserver" in fields else "x-feserver"]
    assert w.loop.connects[-1][0] == "127.0.2.2"
    assert moving.outcomes == [Outcome.STAYED]
    assert not client.transport.closed
    assert client.leg.describe()["epoch"] == 0  # nothing is under way any more


async def test_a_post_under_way_is_finished_or_cut_at_the_deadline() -> None:
    """It may have run: it is not sent again, and the client is told that nothing is known of it."""
    w = world()
    client = await under_way(w, get("/EWS/Exchange.asmx", method="POST", body=b"<CreateItem/>"), waits=60.0)
    moving = Moving(w, forced=2.0)
    await moving.pass_time(1.9)
    assert client.transport.take() == b""
    await moving.pass_time(0.3)
    assert client.transport.take().startswith(b"HTTP/1.1 503")
    assert w.servers[0].aborted
    assert len(w.loop.connects) == 1


async def test_a_body_that_is_still_coming_is_not_cut() -> None:
    """Half a request is not thrown away before the deadline, whatever is known of the server."""
    w = world()
    whole = get(PING, method="POST", body=b"0123456789")
    client = await under_way(w, whole[:-5], waits=20.0)
    moving = Moving(w, dead=True)
    await moving.pass_time(1)
    assert client.transport.take() == b""
    await client.send(whole[-5:])
    await moving.pass_time(1)
    assert client.transport.take().startswith(b"HTTP/1.1 503")


async def test_an_event_stream_ends_between_two_events() -> None:
    """With the last chunk: the browser's EventSource connects again by itself."""
    w = world()
    client = await under_way(w, get("/dav/events"))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    await client.serve(head + b"b\r\ndata: one\n\n\r\n" + b"9\r\ndata: two\r\n")
    moving = Moving(w)
    await moving.pass_time(1)
    assert not client.transport.closed
    await client.serve(b"2\r\n\n\n\r\n")
    await moving.pass_time(0.5)
    got = client.transport.take()
    assert got.endswith(b"\r\n0\r\n\r\n")
    assert client.transport.closed
    assert not client.transport.aborted
    assert w.servers[0].aborted
    assert moving.outcomes == [Outcome.STAYED]  # the request is over


async def test_notifications_of_web_services_end_between_two_envelopes() -> None:
    """GetStreamingEvents: a client that hears the end subscribes again, at the new server."""
    w = world()
    client = await under_way(w, get("/EWS/Exchange.asmx", method="POST", body=b"<GetStreamingEvents/>"))
    part = b"<soap11:Envelope>ok</soap11:Envelope>"
    await client.serve(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"%x\r\n%b\r\n" % (len(part), part)
    )
    moving = Moving(w)
    await moving.pass_time(0.5)
    assert client.transport.take().endswith(b"0\r\n\r\n")
    assert moving.outcomes == [Outcome.STAYED]  # the request is over


async def test_a_download_is_never_ended_as_if_it_were_complete() -> None:
    """At the deadline it is cut so that the client sees that something is missing."""
    w = world()
    client = await under_way(w, get("/owa/big"))
    await client.serve(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/zip\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    )
    moving = Moving(w, forced=1.0)
    await moving.pass_time(1.3)
    assert not client.transport.take().endswith(b"0\r\n\r\n")
    assert client.transport.aborted
    assert moving.outcomes == [Outcome.CLOSED]


async def upgraded(w: World) -> Client:
    """A client with a WebSocket to MBX-1."""
    client = await under_way(w, get("/owa/ws", "Connection: Upgrade", "Upgrade: websocket"))
    await client.serve(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x05he"
    )
    assert client.transport.take().startswith(b"HTTP/1.1 101 ")
    return client


async def test_a_websocket_is_closed_with_1012_between_two_frames() -> None:
    """Not within the server's frame; then "Service Restart" (RFC 6455 section 7.4, IANA)."""
    w = world()
    client = await upgraded(w)
    entry = client.leg.describe()
    assert (entry["user"], entry["database"], entry["server"], entry["epoch"]) == ("alice", "DB1", "MBX-1", 1)
    moving = Moving(w)
    await moving.pass_time(0.5)
    assert not client.transport.closed
    await client.serve(b"llo")
    await moving.pass_time(0.5)
    reader = StreamReader()
    reader.feed_data(client.transport.take()[3:])
    parser = Frame.parse(reader.read_exact, mask=False)
    with pytest.raises(StopIteration) as done:
        next(parser)
    assert done.value.value.data[:2] == CloseCode.SERVICE_RESTART.to_bytes(2, "big")
    assert client.transport.closed
    assert not client.transport.aborted
    assert w.servers[0].aborted
    assert moving.outcomes == [Outcome.CLOSED]


async def test_a_websocket_within_a_frame_is_cut_at_the_deadline() -> None:
    """A close frame in the middle of another would be payload."""
    w = world()
    client = await upgraded(w)
    moving = Moving(w, forced=1.0)
    await moving.pass_time(1.5)
    assert client.transport.take() == b""
    assert moving.outcomes == [Outcome.CLOSED]


async def test_a_request_that_waits_for_a_connection_is_decided_anew() -> None:
    """Nothing of it has been sent: it goes to the new server at once."""
    w = world()
    w.loop.gate = asyncio.Event()
    client = w.client()
    await client.send(get("/EWS/Exchange.asmx", method="POST", body=b"<CreateItem/>"))
    moving = Moving(w)
    await moving.pass_time(0.3)
    w.loop.gate.set()
    await w.settle()
    assert moving.outcomes == [Outcome.STAYED]
    server = next(n for n, s in enumerate(w.servers) if s.peer[0] == "127.0.2.2")
    await client.serve(response(), server)
    assert client.transport.take().startswith(b"HTTP/1.1 200")
    assert [s.take() for s in w.servers if s.peer[0] == "127.0.2.1"] == [b""]


async def test_other_databases_are_not_touched() -> None:
    """bob's long poll goes on."""
    w = world()
    client = await under_way(w, get(PING, method="POST", body=b"x", user="bob"), waits=60.0)
    moving = Moving(w)
    await moving.pass_time(1)
    assert moving.number == 0
    await client.serve(response())
    assert client.transport.take().startswith(b"HTTP/1.1 200")


async def test_a_dead_server_is_not_waited_for() -> None:
    """What it may have done is unknown; the client is told at once instead of at the deadline."""
    w = world()
    client = await under_way(w, get("/EWS/Exchange.asmx", method="POST", body=b"<CreateItem/>"))
    moving = Moving(w, dead=True)
    await moving.pass_time(0.5)
    assert client.transport.take().startswith(b"HTTP/1.1 503")


# --- ended by an operator


async def kicked(w: World, wanted: SessionFilter, seconds: float = 10.0) -> tuple[list[str], list[Outcome]]:
    """The ids, and what came of them after `seconds`."""
    found = w.door.leavers(wanted, "by the test")
    outcomes: list[Outcome] = []
    loop: Any = w.loop
    Round(loop, [leaver for _, leaver in found], window=0.0, forced=seconds, done=outcomes.extend)
    for _ in range(round((seconds + 1) / 0.05)):
        await w.pass_time(0.05)
    return [session for session, _ in found], outcomes


async def test_a_kick_closes_connections_whatever_they_do() -> None:
    """Idle, polling, downloading, uploading, half a request: each in its form, all within the time."""
    w = world()
    idle = w.client()
    await idle.ask(get("/owa/"), response())
    polling = await under_way(w, get("/owa/pending"), waits=6)
    socket = await upgraded(w)
    half = w.client()
    await half.send(get("/owa/")[:-10])
    ids, outcomes = await kicked(w, SessionFilter(address="192.0.2.0/24"), seconds=3)
    assert len(ids) == 4
    assert outcomes == [Outcome.CLOSED] * 4
    assert idle.transport.take() == b""
    assert polling.transport.take().startswith(b"HTTP/1.1 503")
    assert socket.transport.closed
    assert half.transport.aborted  # only at the deadline: it was a command half sent
    assert w.door.sessions() == []


async def test_a_kick_of_a_user_spares_others() -> None:
    """By user, over connections that had several requests."""
    w = world()
    alice, bob = w.client(), w.client()
    await alice.ask(get("/owa/"), response())
    await bob.ask(get("/owa/", user="bob"), response())
    ids, outcomes = await kicked(w, SessionFilter(user="bob"), seconds=1)
    assert (len(ids), outcomes) == (1, [Outcome.CLOSED])
    assert bob.transport.closed
    assert not alice.transport.closed


@pytest.mark.parametrize(
    ("query", "ping"),
    [
        (b"?Cmd=Ping&User=a&DeviceId=x", True),
        (b"?User=a&cmd=PING", True),
        (b"?Cmd=Sync&User=Ping", False),
        (b"?jBIJBBAwOTAxMjM0NTY3ODkwMTIzNARBQUFBC1dpbmRvd3NNYWls", True),  # 8C 12 09 04 10 "0901…": version 14, Ping
        (b"?jAAJBBAwOTAxMjM0NTY3ODkwMTIzNARBQUFBC1dpbmRvd3NNYWls", False),  # 8C 00: Sync
        (b"", False),
        (b"?", False),
        (b"?%%%", False),
    ],
)
def test_which_request_is_a_ping(query: bytes, ping: bool) -> None:
    """In both forms of the query (MS-ASHTTP section 2.2.1.1.1)."""
    assert is_ping(query) is ping
