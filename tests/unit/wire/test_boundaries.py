"""Where a relayed session may be ended, from the last bytes of each side: every split of every dialogue."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode
from websockets.streams import StreamReader

from gatepost.relay.noting import ImapTails, Notes, Pop3Tails, WebSocketNotes
from gatepost.wire.boundaries import KEPT, WebSocketFrames, imap_farewell, kept, websocket_close


class Said(NamedTuple):
    """One side says something; `rests`: the session may be ended after it."""

    side: str
    data: bytes
    rests: bool


def client(data: bytes) -> Said:
    """A client's words never put a session to rest."""
    return Said("client", data, rests=False)


def server(data: bytes, *, rests: bool) -> Said:
    """The server's may."""
    return Said("server", data, rests)


LONG = b"x" * (3 * KEPT)
IMAP = [
    client(b"a1 NOOP\r\n"),
    server(b"a1 OK done\r\n", rests=True),
    client(b"a2 IDLE\r\n"),
    server(b"+ idling\r\n", rests=True),
    server(b"* 3 EXISTS\r\n", rests=True),
    client(b"DONE\r\n"),
    server(b"* 4 EXISTS\r\n", rests=False),
    server(b"a2 OK idled\r\n", rests=True),
    client(b"a3 APPEND INBOX {14}\r\n"),
    server(b"+ go ahead\r\n", rests=False),
    client(b"hello\r\nworld\r\n"),
    client(b"\r\n"),
    server(b"a3 OK [APPENDUID 1 2] done\r\n", rests=True),
    client(b"a4 append INBOX {" + str(len(LONG)).encode() + b"+}\r\n" + LONG + b"\r\n"),
    server(b"a4 OK done\r\n", rests=True),
    client(b"a5 UID FETCH 1 BODY[]\r\n"),
    server(b"* 1 FETCH (BODY[] {12}\r\n", rests=False),
    server(b"b1 OK done\r\n", rests=False),  # the text of a message
    server(b"\n)\r\n", rests=False),
    server(b"a5 NO partly\r\n", rests=True),
    client(b"a6 NOOP\r\na7 CHECK\r\n"),
    server(b"a6 OK done\r\n", rests=False),
    server(b"a7 BAD what\r\n", rests=True),
    client(b"a8 LOGOUT\r\n"),
    server(b"* BYE\r\n", rests=False),
    server(b"a8 OK out\r\n", rests=True),
]
POP3 = [
    client(b"STAT\r\n"),
    server(b"+OK 2 300\r\n", rests=True),
    client(b"list\r\n"),
    server(b"+OK 2 messages\r\n", rests=False),
    server(b"1 100\r\n2 200\r\n", rests=False),
    server(b".\r\n", rests=True),
    client(b"LIST 1\r\n"),
    server(b"+OK 1 100\r\n", rests=True),
    client(b"RETR 1\r\n"),
    server(b"+OK\r\n" + LONG + b"\r\n", rests=False),
    server(b"+OK this is text\r\n", rests=False),
    server(b".\r\n", rests=True),
    client(b"RETR 9\r\n"),
    server(b"-ERR none\r\n", rests=True),
    client(b"DELE 1\r\n"),
    server(b"+OK marked\r\n", rests=False),  # it would stay, and be there again
    client(b"NOOP\r\n"),
    server(b"+OK\r\n", rests=False),
    client(b"RSET\r\n"),
    server(b"+OK\r\n", rests=True),
]


def _whole_lines(data: bytes, position: int) -> bool:
    return data[:position].endswith(b"\n")


@given(st.data())
@pytest.mark.parametrize(("dialogue", "kind"), [(IMAP, ImapTails), (POP3, Pop3Tails)], ids=["imap", "pop3"])
def test_only_whole_answers_put_a_session_to_rest(dialogue: list[Said], kind: type[Notes], data: st.DataObject) -> None:
    """However the bytes are cut: at rest after the whole answer, never within a command or within a line."""
    notes = kind()
    assert notes.at_rest()  # signed in, nothing said
    for said in dialogue:
        feed = notes.client if said.side == "client" else notes.server
        cuts = data.draw(st.sets(st.integers(1, len(said.data)), max_size=4)) - {len(said.data)}
        begin = 0
        for end in sorted(cuts):
            feed(said.data[begin:end])
            begin = end
            if said.side == "client" or not _whole_lines(said.data, end):
                assert not notes.at_rest(), (said, end)
        feed(said.data[begin:])
        assert notes.at_rest() is said.rests, said


@pytest.mark.parametrize("dialogue", [IMAP, POP3], ids=["imap", "pop3"])
def test_every_single_cut(dialogue: list[Said]) -> None:
    """At each byte of each command a pause: the session is not at rest."""
    for place, said in enumerate(dialogue):
        if said.side != "client":
            continue
        for cut in range(1, len(said.data)):
            notes = ImapTails() if dialogue is IMAP else Pop3Tails()
            for before in dialogue[:place]:
                (notes.client if before.side == "client" else notes.server)(before.data)
            notes.client(said.data[:cut])
            assert not notes.at_rest(), said.data[:cut]


def test_what_was_sent_ahead_of_the_answer_counts() -> None:
    """A client that pipelines has not had its answer yet."""
    notes = ImapTails()
    notes.client(b"a1 SELECT INBOX\r\n")
    assert not notes.at_rest()


def test_what_is_kept_is_bounded() -> None:
    """However much passes without the end of a line."""
    tail = b""
    for _ in range(100):
        tail = kept(tail, b"y" * 100)
    assert tail == b"y" * KEPT
    assert kept(tail, b"z" * 1000) == b"z" * KEPT
    assert kept(b"a1 OK\r\n", b"* next") == b"* next"


@pytest.mark.parametrize(
    ("said", "speaks"),
    [
        ([], True),
        ([client(b"a NOOP\r\n"), server(b"a OK\r\n", rests=True)], True),
        ([client(b"a IDLE\r\n"), server(b"+ idling\r\n", rests=True), client(b"DO")], True),
        ([client(b"a FETCH 1 BODY[]\r\n"), server(b"* 1 FETCH (BODY[] {9}\r\nhalf a", rests=False)], False),
        ([client(b"a FETCH 1 BODY[]\r\n"), server(b"* 1 FETCH (BODY[] {9}\r\nline\r\n", rests=False)], False),
    ],
)
def test_a_forced_end_says_bye_only_where_it_is_a_line(said: list[Said], speaks: bool) -> None:
    """Within a message's text BYE would be text."""
    notes = ImapTails()
    for one in said:
        (notes.client if one.side == "client" else notes.server)(one.data)
    assert notes.farewell("moved") == (b"* BYE [UNAVAILABLE] moved\r\n" if speaks else b"")


def test_a_compressed_session_gets_its_bye_compressed_and_the_end_of_the_stream() -> None:
    """Field case 51: BYE and the deflate trailer, behind whatever the server has flushed."""
    deflate = zlib.compressobj(wbits=-15)
    inflate = zlib.decompressobj(wbits=-15)
    upwards = zlib.compressobj(wbits=-15)
    notes = ImapTails()
    notes.client(b"a1 COMPRESS DEFLATE\r\n")
    assert not notes.at_rest()
    notes.server(b"a1 OK compressed from now on\r\n")
    assert notes.at_rest()
    first = zlib.decompressobj(wbits=-15)
    assert first.decompress(notes.farewell("moved")) == b"* BYE [UNAVAILABLE] moved\r\n"
    assert first.eof
    command = upwards.compress(b"a2 NOOP\r\n") + upwards.flush(zlib.Z_SYNC_FLUSH)
    notes.client(command[:5])
    assert not notes.at_rest()
    notes.client(command[5:])
    assert not notes.at_rest()
    answer = deflate.compress(b"a2 OK done\r\n" * 50) + deflate.flush(zlib.Z_SYNC_FLUSH)
    notes.server(answer)
    assert notes.at_rest()
    plain = inflate.decompress(answer + notes.farewell("moved"))
    assert plain == b"a2 OK done\r\n" * 50 + b"* BYE [UNAVAILABLE] moved\r\n"
    assert inflate.eof


def test_pop3_is_told_nothing() -> None:
    """An unsolicited line would be taken for an answer."""
    assert Pop3Tails().farewell("moved") == b""


def test_imap_farewell_before_anything_was_said() -> None:
    """The client has the answer to its sign-in and nothing else."""
    assert imap_farewell(b"moved", b"", b"") == b"* BYE [UNAVAILABLE] moved\r\n"


@pytest.mark.parametrize(
    ("said", "over"),
    [
        ([client(b"a NOOP\r\n"), server(b"a OK\r\n", rests=True)], False),
        ([client(b"a logout\r\n"), server(b"* BYE\r\n", rests=False), server(b"a OK\r\n", rests=True)], True),
        ([client(b"a IDLE\r\n"), server(b"+ idling\r\n", rests=True), server(b"* BYE down\r\n", rests=True)], True),
    ],
)
def test_a_goodbye_is_said_once(said: list[Said], over: bool) -> None:
    """The server's own is enough."""
    notes = ImapTails()
    for one in said:
        (notes.client if one.side == "client" else notes.server)(one.data)
    assert notes.is_over is over


# --- WebSocket

SIZES = st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000])


def frame(size: int, opcode: Opcode = Opcode.BINARY, *, fin: bool = True) -> bytes:
    """A server's frame, by another implementation."""
    return Frame(opcode, b"f" * size, fin).serialize(mask=False)


@given(st.lists(SIZES, min_size=1, max_size=4), st.data())
def test_a_close_frame_of_ours_comes_between_two_frames(sizes: list[int], data: st.DataObject) -> None:
    """Every split of the stream: a boundary is where a frame ends, and nowhere else."""
    frames = [frame(size) for size in sizes]
    stream = b"".join(frames)
    ends = {sum(map(len, frames[: n + 1])) for n in range(len(frames))}
    near = {end + delta for end in ends for delta in (-2, -1, 0, 1, 2, 5)}
    cuts = {cut for cut in near | data.draw(st.sets(st.integers(1, len(stream)), max_size=5)) if 0 < cut <= len(stream)}
    counted = WebSocketFrames()
    begin = 0
    for end in sorted(cuts | {len(stream)}):
        counted.feed(stream[begin:end])
        begin = end
        assert counted.at_boundary is (end in ends)


def test_the_close_frame_is_legal_and_says_restart() -> None:
    """RFC 6455 section 5.5.1, read by another implementation; a fragmented message may be interrupted by it."""
    notes = WebSocketNotes()
    notes.server(frame(5, Opcode.TEXT, fin=False))
    assert notes.at_rest()
    reader = StreamReader()
    reader.feed_data(notes.farewell("please connect again"))
    parser = Frame.parse(reader.read_exact, mask=False)
    with pytest.raises(StopIteration) as done:
        next(parser)
    got = done.value.value
    got.check()
    assert (got.opcode, got.data[:2], got.data[2:]) == (
        Opcode.CLOSE, CloseCode.SERVICE_RESTART.to_bytes(2, "big"), b"please connect again",
    )  # fmt: skip


def test_nothing_follows_the_servers_own_close() -> None:
    """The server has said goodbye itself."""
    notes = WebSocketNotes()
    notes.server(websocket_close(1000, b""))
    assert not notes.at_rest()
    assert notes.farewell("moved") == b""


def test_a_reason_fits_a_control_frame() -> None:
    """125 octets of payload at most (RFC 6455 section 5.5)."""
    assert len(websocket_close(1012, b"r" * 500)) == 127
