"""Connections of a library that blocks, in threads that are bounded: several servers, a deadline, no waiting for one
that hangs.

    run ── whose turn (`Servers`) ── a free thread ── a connection (kept, or a new one) ── answer
                    ▲                                      │ deadline
                    └───────── the next server ◄───────────┴── the connection is cut, which ends its thread's wait
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar
from typing import Protocol as Port

import structlog

from gatepost.directory.port import DirectoryBusy, DirectoryUnavailable
from gatepost.directory.servers import Servers

IDLE_SECONDS = 60.0
"""A connection that nobody has used for longer is closed instead of used: firewalls forget it."""
WAITING_FOR_EACH = 64
"""Questions that wait for each thread; more are refused."""


class Broken(OSError):
    """The connection is of no use any more, or could not be made. The message is for the log."""


class Session(Port):
    """A connection, used by one thread at a time."""

    def cut(self) -> None:
        """Called from another thread: whoever waits on the connection is to fail at once. Never raises."""
        ...

    def close(self) -> None:
        """Close it. Never raises."""
        ...


S = TypeVar("S", bound=Session)
T = TypeVar("T")


def cut_off(sock: socket.socket | None) -> None:
    """Have whoever waits at the socket in a thread hear of its end; how a `Session` is cut."""
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class _Turn(Generic[S]):
    """One question at one server; what its thread holds."""

    def __init__(self) -> None:
        self.session: S | None = None
        self.given_up = False

    def require_wanted(self) -> None:
        """Raises `Broken` when nobody waits for the answer any more."""
        if self.given_up:
            raise Broken("given up")

    def give_up(self) -> None:
        self.given_up = True
        session = self.session
        if session is not None:
            session.cut()


class Pool(Generic[S]):
    """Asks servers by `connect`: server name → a function that opens a session there, or raises `Broken`.

    `seconds`: the longest for a question, waiting included; `try_seconds`: at one server. Belongs to the loop.
    """

    def __init__(
        self,
        name: str,
        connect: Mapping[str, Callable[[], S]],
        *,
        threads: int,
        seconds: float,
        try_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        first_pause: float = 1.0,
    ) -> None:
        self._name = name
        self._connect = connect
        self._seconds = seconds
        self._try_seconds = try_seconds
        self._clock = clock
        self._threads = threads
        self._servers = Servers(connect, first_pause)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = asyncio.Semaphore(threads)
        self._waiting = 0
        self._idle: dict[str, list[tuple[S, float]]] = {server: [] for server in connect}
        self._turns: set[_Turn[S]] = set()
        self._probes: set[asyncio.Task[object]] = set()
        self._closed = False
        self._log = structlog.get_logger("gatepost")

    def __contains__(self, server: str) -> bool:
        return server in self._servers

    async def run(self, question: Callable[[S], T], server: str = "") -> T:
        """What `question` answers at the first server that answers; at `server` alone if one is given.

        It runs in a thread. What it raises besides `Broken` is the answer. Raises `DirectoryUnavailable`.
        """
        if self._closed:
            raise DirectoryUnavailable("no more questions are taken")
        if self._waiting >= WAITING_FOR_EACH * self._threads:
            raise DirectoryBusy(f"{self._name}: too many questions are waiting")
        now = self._clock()
        deadline = now + self._seconds
        order = [server] if server else self._servers.take(now)
        if not order:
            raise DirectoryUnavailable(f"{self._name} is down: {self._servers.reasons()}")
        self._waiting += 1
        try:
            for name in order:
                try:
                    answer = await self._ask(name, question, deadline)
                except Broken as fault:
                    self._failed(name, str(fault))
                    continue
                except DirectoryBusy:
                    raise
                except Exception:  # an answer, and perhaps one that all servers give
                    self._worked(name)
                    raise
                self._worked(name)
                self._try_again(question)
                return answer
        finally:
            self._waiting -= 1
        raise DirectoryUnavailable(f"{self._name}: {self._servers.reasons() or 'no server answers'}")

    async def close(self) -> None:
        """Cut what is under way; the threads end by themselves."""
        self._closed = True
        for turn in list(self._turns):
            turn.give_up()
        for probe in list(self._probes):
            probe.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)
        for kept in self._idle.values():
            while kept:
                kept.pop()[0].close()

    async def _ask(self, server: str, question: Callable[[S], T], deadline: float) -> T:
        """Raises `Broken`, `DirectoryBusy`."""
        try:
            async with asyncio.timeout(deadline - self._clock()):
                await self._free.acquire()
        except TimeoutError:
            raise DirectoryBusy(f"{self._name}: every connection is busy") from None
        turn: _Turn[S] = _Turn()
        self._turns.add(turn)
        work = asyncio.get_running_loop().run_in_executor(self._executor, self._answer, server, question, turn)
        work.add_done_callback(lambda ended: self._ended(turn, ended))
        patience = max(min(deadline - self._clock(), self._try_seconds), 0.0)
        try:
            done, _ = await asyncio.wait([work], timeout=patience)
        except asyncio.CancelledError:
            turn.give_up()
            raise
        if not done:
            turn.give_up()
            if patience < min(self._seconds, self._try_seconds) / 2:  # most of its time went while others were asked
                raise DirectoryBusy(f"{self._name}: no time was left to ask")
            raise Broken(f"no answer in {patience:.1f} s")
        return work.result()

    def _ended(self, turn: _Turn[S], ended: asyncio.Future[T]) -> None:
        """A thread is free again, perhaps long after its question was given up."""
        self._turns.discard(turn)
        self._free.release()
        if not ended.cancelled():
            ended.exception()  # looked at, whoever has given up

    def _answer(self, server: str, question: Callable[[S], T], turn: _Turn[S]) -> T:
        """In a thread. A kept connection may have been closed by the server: then a new one is tried."""
        while True:
            session = self._kept(server)
            if session is None:
                break
            try:
                return self._use(server, session, question, turn)
            except Broken:
                if turn.given_up:
                    raise
        return self._use(server, self._connect[server](), question, turn)

    def _use(self, server: str, session: S, question: Callable[[S], T], turn: _Turn[S]) -> T:
        turn.session = session
        whole = False
        try:
            turn.require_wanted()
            answer = question(session)
            whole = True
            return answer
        except (Broken, DirectoryUnavailable):
            raise
        except Exception:
            whole = True
            raise
        finally:
            turn.session = None
            if whole and not turn.given_up and not self._closed:
                self._idle[server].append((session, self._clock()))
            else:
                session.close()

    def _kept(self, server: str) -> S | None:
        kept = self._idle[server]
        while True:
            try:
                session, since = kept.pop()
            except IndexError:
                return None
            if self._clock() - since <= IDLE_SECONDS:
                return session
            session.close()

    def _failed(self, server: str, reason: str) -> None:
        self._servers.failed(server, self._clock(), reason)
        self._log.warning("directory.server_failed", directory=self._name, server=server, reason=reason)

    def _worked(self, server: str) -> None:
        if self._servers.worked(server):
            self._log.info("directory.server_answers", directory=self._name, server=server)

    def _try_again(self, question: Callable[[S], T]) -> None:
        """Ask a server that is down and due the same, beside: nobody waits for it."""
        server = self._servers.probe(self._clock())
        if server is None or self._closed:
            return

        async def probe() -> None:
            try:
                await self._ask(server, question, self._clock() + self._try_seconds)
            except Broken as fault:
                self._servers.failed(server, self._clock(), str(fault))
            except DirectoryBusy:
                return
            except Exception:  # noqa: BLE001 - it answers; what it says is for who asks
                self._worked(server)
            else:
                self._worked(server)

        task = asyncio.ensure_future(probe())
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)
