"""The lines that proving clients read, and what else they wait for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gatepost.proving import connection
from gatepost.proving.connection import Connection, Ended, Signal


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.sent = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def made() -> Connection:
    made = Connection()
    wire: Any = Wire()
    made.connection_made(wire)
    return made


async def test_lines_come_in_any_pieces_and_an_empty_one_is_one(made: Connection) -> None:
    made.data_received(b"* OK he")
    reading = asyncio.ensure_future(made.line())
    await asyncio.sleep(0)
    assert not reading.done()
    made.data_received(b"llo\r\n\r\nrest")
    assert await reading == b"* OK hello"
    assert await made.line() == b""
    assert await made.octets(4, 1.0) == b"rest"


async def test_the_end_comes_after_the_last_line(made: Connection) -> None:
    made.data_received(b"* BYE later\r\nhalf")
    made.connection_lost(None)
    assert await made.line() == b"* BYE later"
    with pytest.raises(Ended, match="end of the connection"):
        await made.line()


async def test_an_end_is_noticed_while_waiting(made: Connection) -> None:
    for waiting in (made.line(), made.line_or(Signal()), made.octets(9, 20.0)):
        waits = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        made.connection_lost(ConnectionResetError())
        with pytest.raises(Ended, match="ConnectionResetError"):
            await waits


async def test_no_answer_in_time_is_said(made: Connection) -> None:
    with pytest.raises(TimeoutError):
        await made.line(0.01)
    with pytest.raises(TimeoutError):
        await made.octets(1, 0.01)
    assert await made.line_or(None, 0.01) is None


async def test_a_signal_ends_a_wait_and_loses_no_line(made: Connection) -> None:
    signal = Signal()
    waiting = asyncio.ensure_future(made.line_or(signal))
    await asyncio.sleep(0)
    signal.set()
    assert await waiting is None
    assert await made.line_or(signal) is None
    made.data_received(b"+ idling\r\n")
    assert await made.line_or(signal) == b"+ idling"
    signal.clear()
    assert not await signal.wait(0.01)
    waits = asyncio.ensure_future(signal.wait(20.0))
    await asyncio.sleep(0)
    signal.set()
    assert await waits


async def test_one_who_says_too_much_is_cut_off(made: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINE_BYTES", 100)
    made.data_received(b"x" * 101)
    with pytest.raises(Ended, match="too much"):
        await made.line()
    assert made._transport.aborted  # type: ignore[union-attr]
