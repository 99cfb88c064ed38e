"""Sessions over all workers: found, ended, and what is said of workers that do not answer."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import CapturingLogger

from gatepost.access.sessions import SessionFilter
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.organization.model import Organization
from gatepost.service import operators, sessions
from gatepost.service.control import FrameReader, ServiceStatus, encode
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest
from gatepost.service.worker_process import WorkerProcess

EVERYBODY = SessionFilter()
ALICE = SessionFilter(user="alice")


class FakeWorker:
    """A worker with sessions; it may be silent, or end when it is told to end sessions."""

    def __init__(self, pid: int, ids: list[str], *, silent: bool = False, ends: bool = False) -> None:
        self.pid = pid
        self.ids = ids
        self.silent = silent
        self.ends = ends
        self.serves = True
        self.asked: list[SessionsRequest | Kick] = []

    async def ask(self, message: SessionsRequest | Kick, seconds: float) -> SessionsReply | Kicked | None:
        assert seconds > 0
        self.asked.append(message)
        await asyncio.sleep(0)
        if isinstance(message, Kick) and self.ends:
            self.serves = False
            return None
        if self.silent:
            return None
        if isinstance(message, Kick):
            return Kicked([(one, "closed") for one in self.ids])
        return SessionsReply(
            [{"session": one} for one in self.ids[: message.limit]], len(self.ids), {"imap": len(self.ids)}
        )


def workers(*found: FakeWorker) -> list[WorkerProcess]:
    return cast(list[WorkerProcess], list(found))


async def test_lists_of_all_workers_are_one() -> None:
    """With the worker of each session; `limit` holds for all of them together, the numbers count everybody."""
    found = workers(FakeWorker(1, ["a", "b"]), FakeWorker(2, ["c"]), FakeWorker(3, []))
    reply = await sessions.find(found, SessionsRequest(EVERYBODY, 100), "CAS-01")
    assert [(entry["session"], entry["worker"]) for entry in reply.sessions] == [("a", 1), ("b", 1), ("c", 2)]
    assert (reply.total, reply.protocols, reply.missing, reply.server) == (3, {"imap": 3}, [], "CAS-01")
    bounded = await sessions.find(found, SessionsRequest(EVERYBODY, 1), "CAS-01")
    assert (len(bounded.sessions), bounded.total) == (1, 3)


async def test_a_worker_that_does_not_answer_is_named() -> None:
    """Never taken for one without sessions; one that is starting has none, one that has ended neither."""
    starting = FakeWorker(3, [])
    starting.serves = False
    found = workers(FakeWorker(1, ["a"]), FakeWorker(2, ["b"], silent=True), starting)
    reply = await sessions.find(found, SessionsRequest(EVERYBODY, 100), "CAS-01")
    assert (reply.total, reply.missing) == (1, [2])
    kicked = await sessions.kick(found, Kick(ALICE, "x", 1.0), "CAS-01")
    assert (kicked.outcomes, kicked.missing) == ([("a", "closed")], [2])
    assert starting.asked == []


async def test_a_worker_that_ends_while_sessions_are_ended_has_closed_them() -> None:
    """The kernel has: its sessions are listed before, so that they can be named."""
    found = workers(FakeWorker(1, ["a"], ends=True), FakeWorker(2, ["b"]))
    kicked = await sessions.kick(found, Kick(ALICE, "x", 1.0), "CAS-01")
    assert (sorted(kicked.outcomes), kicked.missing) == ([("a", "closed"), ("b", "closed")], [])


async def test_nobody_is_never_everybody() -> None:
    """An empty filter ends nothing, unless it is said that all are meant."""
    worker = FakeWorker(1, ["a"])
    refused = await sessions.kick(workers(worker), Kick(EVERYBODY, "x", 1.0), "CAS-01")
    assert (refused.outcomes, refused.error != "") == ([], True)
    assert worker.asked == []
    done = await sessions.kick(workers(worker), Kick(EVERYBODY, "x", 1.0, everything=True), "CAS-01")
    assert done.outcomes == [("a", "closed")]


async def test_the_time_for_ending_is_bounded() -> None:
    """Whatever an operator asks for."""
    worker = FakeWorker(1, ["a"])
    await sessions.kick(workers(worker), Kick(ALICE, "x", 1e9), "CAS-01")
    told = worker.asked[-1]
    assert isinstance(told, Kick)
    assert told.seconds == sessions.MAX_KICK_SECONDS


@pytest.mark.parametrize(
    "message",
    [
        SessionsRequest(SessionFilter(user="12345", address="192.0.2.0/24", protocol="imap"), 10, 7),
        SessionsReply([{"session": "a", "seconds": 1.5}], 1, {"imap": 1}, "CAS-01", [4], 7),
        Kick(SessionFilter(session="a-1"), "because", 2.5, everything=True),
        Kicked([("a-1", "closed")], "CAS-01", [5], "", 9),
    ],
)
def test_messages_arrive_as_they_were(message: Any) -> None:
    """Through the frames of `control`."""
    ((got, _),) = FrameReader().feed(encode(message))
    assert got == message


def test_a_filter_with_no_address_is_no_message() -> None:
    """A worker never sees a filter that it cannot apply."""
    data = msgspec.msgpack.encode({"type": "SessionsRequest", "wanted": {"address": "nonsense"}, "limit": 1})
    with pytest.raises(ConnectionError, match="not a message"):
        FrameReader().feed(len(data).to_bytes(4, "big") + data)


class FakeService:
    """What stands behind the operators' socket."""

    async def status(self) -> ServiceStatus:
        return ServiceStatus("CAS-01", 1, 1, 0, [])

    async def sessions(self, request: SessionsRequest) -> SessionsReply:
        return SessionsReply([], 3, {"imap": 3}, "CAS-01", request=request.request)

    async def kick(self, request: Kick) -> Kicked:
        return Kicked([(request.wanted.session, "closed")], "CAS-01")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """An operators' socket that is served on a loop in a thread."""
    front_end = FrontEnd("CAS-01", "", str(tmp_path / "registry.sqlite"))
    configuration = Configuration(Organization("contoso"), front_end)
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    made: list[operators.OperatorsSocket] = []

    async def begin() -> None:
        made.append(operators.OperatorsSocket(configuration, FakeService(), cast(Any, CapturingLogger())))

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(begin())
        loop.call_soon(ready.set)  # not before: a stop that comes before it runs for good would be forgotten
        loop.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(5)
    yield operators.socket_path(front_end)
    loop.call_soon_threadsafe(made[0].close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_operators_ask_at_the_socket(served: Path) -> None:
    """Status, sessions, kick; one request a connection."""
    assert operators.ask(served).server == "CAS-01"
    assert operators.request(served, SessionsRequest(ALICE, 10), SessionsReply).total == 3
    kicked = operators.request(served, Kick(SessionFilter(session="a-1"), "x", 1.0), Kicked)
    assert kicked.outcomes == [("a-1", "closed")]


def test_sockets_beside_the_registry_are_found_by_their_servers(served: Path, tmp_path: Path) -> None:
    """Front ends of one registry on one machine; other files are none of theirs."""
    for name in ("gatepost-CAS-02.sock", "gatepost-CAS-01.lock", "registry.sqlite", "other.sock"):
        (tmp_path / name).touch()
    found = operators.all_sockets(FrontEnd("CAS-01", "", str(tmp_path / "registry.sqlite")))
    assert list(found) == ["CAS-01", "CAS-02"]
    with pytest.raises(OSError, match=os.strerror(111)):
        operators.ask(found["CAS-02"], 1.0)
