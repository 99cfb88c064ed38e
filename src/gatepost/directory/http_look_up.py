"""The HTTP engine: a service of the operator's own answers in JSON. The contract is in `docs/directories.md`."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import httpx2
import msgspec
import structlog

from gatepost.directory.passwords import BadPasswordHash
from gatepost.directory.port import BY_DIRECTORY, DirectoryUnavailable, User
from gatepost.directory.schemes import stored_hash
from gatepost.directory.servers import Servers
from gatepost.directory.settings import HttpLookUpSettings
from gatepost.organization.model import CLIENT_PROTOCOLS
from gatepost.organization.names import canonical_login_name
from gatepost.routing.outcome import Mailbox

MAX_ANSWER_BYTES = 64 * 1024
"""A user is some hundred octets."""


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
    """See `directory.port.Engine`. Belongs to the loop it is made in. `transport` is for tests."""

    def __init__(
        self,
        name: str,
        settings: HttpLookUpSettings,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._servers = Servers(settings.urls)
        context = ssl.create_default_context(cadata=settings.ca.decode() if settings.ca else None)
        headers = {"accept": "application/json", "content-type": "application/json"}
        if settings.token:
            headers["authorization"] = f"Bearer {settings.token}"
        self._client = httpx2.AsyncClient(
            verify=context,
            headers=headers,
            timeout=settings.try_seconds,
            limits=httpx2.Limits(max_connections=settings.connections, max_keepalive_connections=settings.connections),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
        )
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
        await self._client.aclose()

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
        order = self._servers.take(self._clock())
        probe = self._servers.probe(self._clock())
        for url in [*order, *([probe] if probe else [])]:
            left = min(deadline - self._clock(), self._settings.try_seconds)
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    answer = msgspec.json.decode(await self._post(urljoin(url, path), content), type=kind)
            except (TimeoutError, httpx2.HTTPError, OSError, msgspec.DecodeError, _NotAnAnswer) as fault:
                reason = f"{type(fault).__name__}: {fault}".rstrip(": ")[:300]
                self._servers.failed(url, self._clock(), reason)
                self._log.warning("directory.server_failed", directory=self._name, server=url, reason=reason)
                continue
            self._servers.worked(url)
            return answer
        raise DirectoryUnavailable(f"directory {self._name}: {self._servers.reasons() or 'no server answers'}")

    async def _post(self, url: str, content: bytes) -> bytes:
        """Raises `_NotAnAnswer`, and what the client raises."""
        async with self._client.stream("POST", url, content=content) as response:
            if response.status_code != httpx2.codes.OK:
                raise _NotAnAnswer(f"status {response.status_code}")
            parts, size = [], 0
            async for part in response.aiter_bytes():
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    raise _NotAnAnswer("a longer answer than any user needs")
                parts.append(part)
            return b"".join(parts)


class _NotAnAnswer(Exception):
    """What came is not what the contract says."""
