"""Frames between supervisor and workers."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.service import control
from gatepost.service.control import (
    Channel,
    ControlError,
    Drain,
    FrameReader,
    Message,
    Opened,
    Ping,
    Reload,
    Start,
    StatusReply,
    encode,
    receive_first,
)


def start(**changes: object) -> Start:
    """A first message."""
    fields: dict[str, object] = {
        "version": 1, "configuration": b"secret", "opened": [], "log": False, "slot": 0, "user": "",
    }  # fmt: skip
    return Start(**(fields | changes))  # type: ignore[arg-type]


@given(st.data())
def test_any_split_gives_the_same_messages(data: st.DataObject) -> None:
    """However the stream is cut, the messages are the same."""
    sent: list[Message] = [Ping(), start(), Drain(1.5), StatusReply(3, {"sessions": 1}, [{"client": "::1"}])]
    stream = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    reader = FrameReader()
    got = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += [message for message, _ in reader.feed(stream[begin:end])]
    assert got == sent


def test_oversized_frame_is_refused() -> None:
    """A length over the limit ends the connection before anything is buffered for it."""
    with pytest.raises(ControlError, match="over the limit"):
        FrameReader().feed((control.MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xc1\xff", b"\x81\xa4type\xa5Other"])
def test_garbage_is_refused(body: bytes) -> None:
    """What is no message raises the protocol's own error."""
    with pytest.raises(ControlError):
        FrameReader().feed(len(body).to_bytes(4, "big") + body)


def test_missing_descriptors_are_noticed() -> None:
    """A message that announces sockets but brings none is an error, not a later crash."""
    with pytest.raises(ControlError, match="missing"):
        FrameReader().feed(encode(start(opened=[Opened("imap", 1)])))


def test_repr_hides_file_contents() -> None:
    """A message in a traceback or log shows no key."""
    assert "secret" not in repr(start())


async def test_descriptors_arrive_with_their_message() -> None:
    """Each message gets its own descriptors, in order, and they are not inherited by programs."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    channel = Channel(loop, ours, lambda *_: None, lambda: None)
    pipes = [os.pipe() for _ in range(3)]
    channel.send(start(log=True, opened=[Opened("imap", 1)]), [pipes[0][1], pipes[1][1]])
    channel.send(Reload(version=2, configuration=b"", opened=[], log=True, closed=[]), [pipes[2][1]])
    reader = FrameReader()
    got = receive_first(theirs, reader, 5.0)
    while len(got) < 2:
        got += receive_first(theirs, reader, 5.0)
    descriptors = [d for _, found in got for d in found]
    assert [len(found) for _, found in got] == [2, 1]
    for number, descriptor in enumerate(descriptors):
        assert not os.get_inheritable(descriptor)
        os.write(descriptor, b"%d" % number)
        os.close(descriptor)
    assert [os.read(read, 10) for read, _ in pipes] == [b"0", b"1", b"2"]
    for ends in pipes:
        for end in ends:
            os.close(end)
    channel.close()
    theirs.close()


async def test_big_message_passes_in_pieces() -> None:
    """A message larger than the socket's buffer is sent as the other side reads."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    received: asyncio.Future[Message] = loop.create_future()
    sender = Channel(loop, ours, lambda *_: None, lambda: None)
    receiver = Channel(loop, theirs, lambda message, _: received.set_result(message), lambda: None)
    sent = start(configuration=os.urandom(3_000_000))
    sender.send(sent)
    assert await asyncio.wait_for(received, 10) == sent
    sender.close()
    receiver.close()


async def test_peer_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsent bytes are bounded."""
    monkeypatch.setattr(control, "MAX_WAITING_BYTES", 2_000_000)
    ours, theirs = socket.socketpair()
    closed: list[bool] = []
    channel = Channel(asyncio.get_running_loop(), ours, lambda *_: None, lambda: closed.append(True))
    for _ in range(10):
        channel.send(start(configuration=bytes(500_000)))
    assert closed == [True]
    theirs.close()


async def test_end_of_the_peer_is_reported_once() -> None:
    """EOF closes the channel and calls back; messages before it are delivered."""
    ours, theirs = socket.socketpair()
    got: list[object] = []
    ended = asyncio.Event()
    Channel(asyncio.get_running_loop(), ours, lambda message, _: got.append(message), ended.set)
    theirs.sendall(encode(Ping()))
    theirs.close()
    await asyncio.wait_for(ended.wait(), 5)
    assert got == [Ping()]
