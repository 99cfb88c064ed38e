"""The HTTP engine: a service of the operator's own answers in JSON. The contract is in `docs/directories.md`."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import msgspec
import structlog

from gatepost.directory.passwords import BadPasswordHash
from gatepost.directory.port import BY_DIRECTORY, DirectoryBusy, DirectoryUnavailable, User
from gatepost.directory.posts import Posts
from gatepost.directory.schemes import stored_hash
from gatepost.directory.servers import Servers
from gatepost.directory.settings import HttpLookUpSettings
from gatepost.organization.model import CLIENT_PROTOCOLS
from gatepost.organization.names import canonical_login_name
from gatepost.routing.outcome import Mailbox

WAITING_FOR_EACH = 64
"""Questions that wait for each connection; more are refused."""


class _Found(msgspec.Struct, frozen=True):
    """A user as the service tells it. Keys that are not known are not looked at."""

    name: str
    database: str = ""
    home_server: str = ""
    password_hash: str = ""
    password_version: str = ""
    protocols: list[str] | None = None
    disabled: bool = False
    login_at_server: str = ""
    send_as: list[str] = []
    groups: list[str] = []


class _Answer(msgspec.Struct, frozen=True):
    user: _Found | None


class _Judged(msgspec.Struct, frozen=True):
    right: bool


class HttpEngine:
    """See `directory.port.Engine`. Belongs to the loop it is made in."""

    def __init__(
        self,
        name: str,
        settings: HttpLookUpSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._servers = Servers(settings.urls)
        context = ssl.create_default_context(cadata=settings.ca.decode() if settings.ca else None)
        fields = {"Accept": "application/json", "Content-Type": "application/json"}
        if settings.token:
            fields["Authorization"] = f"Bearer {settings.token}"
        self._posts = Posts(fields, context)
        self._free = asyncio.Semaphore(settings.connections)
        self._waiting = 0
        self._least_patience = min(settings.seconds, settings.try_seconds) / 2
        """Who has had less time than this has not failed."""
        self._log = structlog.get_logger("gatepost")

    async def find(self, canonical_name: str) -> User | None:
        """See `Engine`."""
        answer = await self._ask("", {"name": canonical_name}, _Answer)
        if answer.user is None:
            return None
        try:
            return self._user(answer.user)
        except ValueError as fault:
            self._log.error("directory.no_user", directory=self._name, name=canonical_name, reason=str(fault))
            return None

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        """See `Engine`."""
        for attempt in tries:
            body = {"name": user.name, "password": attempt.decode()}
            if (await self._ask(self._settings.check_path, body, _Judged)).right:
                return True
        return False

    def on_invalid(self, callback: Callable[[str], None]) -> None:
        """See `Engine`: the service is not listened to, so nothing is ever told."""

    async def close(self) -> None:
        """See `Engine`."""
        await self._posts.close()

    def _user(self, found: _Found) -> User:
        """Raises ValueError. A user whose hash cannot be used gets mail and cannot sign in."""
        if not found.database and not found.home_server:
            raise ValueError("no database")
        if self._settings.check_path:
            password_hash = BY_DIRECTORY + found.password_version
        else:
            password_hash = ""
            try:
                password_hash = stored_hash(found.password_hash, allow_plain=self._settings.allow_plain)
            except BadPasswordHash as fault:
                self._log.error("directory.bad_user", directory=self._name, name=found.name, reason=str(fault))
        return User(
            name=canonical_login_name(found.name, ""),
            mailbox=Mailbox(found.database) if found.database else Mailbox(home_server=found.home_server),
            password_hash=password_hash,
            protocols=frozenset(p for p in CLIENT_PROTOCOLS if found.protocols is None or p.value in found.protocols),
            disabled=found.disabled,
            login_at_server=found.login_at_server,
            send_as=tuple(word.casefold() for word in found.send_as),
            groups=frozenset(group.lower() for group in found.groups),
        )

    async def _ask(self, path: str, body: dict[str, str], kind: type[Any]) -> Any:  # noqa: ANN401
        """The answer of the first server that has one. Raises `DirectoryUnavailable`."""
        deadline = self._clock() + self._settings.seconds
        try:
            content = msgspec.json.encode(body)
        except UnicodeEncodeError:
            raise DirectoryUnavailable("a name that is no text") from None
        if self._free.locked():
            await self._wait_for_turn()
        else:
            await self._free.acquire()
        try:
            return await self._ask_servers(path, content, kind, deadline)
        finally:
            self._free.release()

    async def _wait_for_turn(self) -> None:
        """Until one of the connections is free, which is no server's fault. Raises `DirectoryBusy`."""
        if self._waiting >= WAITING_FOR_EACH * self._settings.connections:
            raise DirectoryBusy(f"directory {self._name}: too many questions are waiting")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.seconds):
                await self._free.acquire()
        except TimeoutError:
            raise DirectoryBusy(f"directory {self._name}: every connection is busy") from None
        finally:
            self._waiting -= 1

    async def _ask_servers(self, path: str, content: bytes, kind: type[Any], deadline: float) -> Any:  # noqa: ANN401
        order = self._servers.take(self._clock())
        probe = self._servers.probe(self._clock())
        for url in [*order, *([probe] if probe else [])]:
            left = min(deadline - self._clock(), self._settings.try_seconds)
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    told = await self._posts.post(urljoin(url, path) if path else url, content)
                answer = msgspec.json.decode(told, type=kind)
            except (TimeoutError, OSError, msgspec.DecodeError) as fault:
                if isinstance(fault, TimeoutError) and left < self._least_patience:
                    break  # it had no time: most of that went while others were asked
                reason = f"{type(fault).__name__}: {fault}".rstrip(": ")[:300]
                self._servers.failed(url, self._clock(), reason)
                self._log.warning("directory.server_failed", directory=self._name, server=url, reason=reason)
                continue
            self._servers.worked(url)
            return answer
        if not order or self._servers.reasons():
            raise DirectoryUnavailable(f"directory {self._name}: {self._servers.reasons() or 'no server answers'}")
        raise DirectoryBusy(f"directory {self._name}: no time was left to ask")
