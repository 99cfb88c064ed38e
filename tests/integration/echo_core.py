"""A worker's core for tests: sessions that echo lines, so that workers can be told apart and made to misbehave.

`pid` answers the worker's process, `version` its configuration's version, `fault` raises in a callback, `hang`
stands still. With `REFUSE` in the organization's name the core cannot start; with `OBJECT` it cannot reload.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable
from typing import Any, cast

from structlog.typing import FilteringBoundLogger

from gatepost.access.sessions import Found, SessionFilter
from gatepost.configuration.settings import Configuration


class _Session(asyncio.Protocol):
    def __init__(self, core: EchoCore) -> None:
        self.core = core

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.core.open.add(self)
        self.transport.write(b"hello\n")

    def data_received(self, data: bytes) -> None:
        word = data.decode().strip()
        if word == "fault":
            raise RuntimeError("asked for")
        if word == "hang":
            time.sleep(3600)
        answers = {"pid": str(os.getpid()), "version": str(self.core.configuration.version), "uid": str(os.getuid())}
        self.transport.write(f"{answers.get(word, word)}\n".encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self.core.open.discard(self)
        self.core.changed.set()
        self.core.log.info("echo.session", password="hidden by the log", outcome="ended")


class EchoCore:
    """Implements `gatepost.service.core.Core`."""

    def __init__(self, configuration: Configuration, log: FilteringBoundLogger) -> None:
        self.configuration = configuration
        self.log = log
        self.open: set[_Session] = set()
        self.changed = asyncio.Event()
        self.servers: dict[str, list[asyncio.Server]] = {}

    async def listen(self, sockets: dict[str, list[socket.socket]]) -> None:
        loop = asyncio.get_running_loop()
        for name, group in sockets.items():
            self.servers[name] = [
                await loop.create_server(lambda: _Session(self), sock=sock, backlog=4096) for sock in group
            ]

    def close_listeners(self, names: Iterable[str]) -> None:
        for name in names:
            for server in self.servers.pop(name, []):
                server.close()

    def reload(self, configuration: Configuration) -> None:
        if "OBJECT" in configuration.organization.name:
            raise RuntimeError("cannot change in place")
        self.configuration = configuration

    async def drain(self, seconds: float) -> None:
        self.close_listeners(list(self.servers))
        try:
            async with asyncio.timeout(seconds):
                while self.open:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            for session in list(self.open):
                session.transport.abort()

    async def find(self, wanted: SessionFilter, limit: int) -> Found:
        found = [entry for entry in map(self._entry, self.open) if wanted.matches(entry)]
        return Found(found[:limit], len(found), {"echo": len(found)})

    async def kick(self, wanted: SessionFilter, reason: str, seconds: float) -> list[tuple[str, str]]:
        found = [(self._entry(session), session) for session in self.open]
        for entry, session in found:
            if wanted.matches(entry):
                session.transport.abort()
        return [(str(entry["session"]), "closed") for entry, _ in found if wanted.matches(entry)]

    @staticmethod
    def _entry(session: _Session) -> dict[str, Any]:
        return {
            "session": str(id(session)),
            "protocol": "echo",
            "client": session.transport.get_extra_info("peername")[0],
        }

    def counters(self) -> dict[str, int]:
        return {"echoes": 0}

    def sessions(self) -> list[dict[str, Any]]:
        return [{"client": str(s.transport.get_extra_info("peername")), "object": object()} for s in self.open]


async def build(configuration: Configuration, log: FilteringBoundLogger) -> EchoCore:
    """The factory."""
    if "REFUSE" in configuration.organization.name:
        raise RuntimeError("this core was told not to start")
    return EchoCore(configuration, log)
