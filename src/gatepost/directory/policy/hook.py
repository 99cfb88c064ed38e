"""Asks a service that speaks weakforced's protocol before each judgement, and tells it what came of it.

    POST URL?command=allow   {"login", "remote", "pwhash", "protocol", …} ──► {"status": -1 | 0 | n, "msg"}
    POST URL?command=report  the same and "success", "policy_reject"

`status`: -1 refuses, 0 allows, a number above it is a delay in seconds. The password never goes there: `pwhash` is 12
bits of a digest, enough to tell most different passwords apart.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2
import msgspec
import structlog

from gatepost.directory.policy.settings import HookSettings

MAX_ANSWER_BYTES = 16 * 1024
MAX_DELAY_SECONDS = 20.0
"""What the service may have a client wait: below the 30 seconds after which clients give up."""
MAX_REPORTS = 1000
"""Reports under way; further ones are not made while the service is slow."""
CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Asked:
    """One sign-in as the service is told of it."""

    login: str
    remote: str
    protocol: str
    pwhash: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service says. `status` as above; `fault` is why it does not, with `status` 0."""

    status: float = 0
    message: str = ""
    fault: str = ""


class _Allowed(msgspec.Struct, frozen=True):
    status: float
    msg: str = ""


class PolicyHook:
    """Belongs to the loop it is made in. `transport` is for tests."""

    def __init__(self, settings: HookSettings, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self.settings = settings
        context = ssl.create_default_context(cadata=settings.ca.decode() if settings.ca else None)
        self._client = httpx2.AsyncClient(
            verify=context,
            auth=("wforce", settings.password),
            timeout=settings.seconds,
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
        )
        self._reports: set[asyncio.Task[None]] = set()
        self._failing = False
        self._log = structlog.get_logger("gatepost")
        self.not_reported = 0
        """Reports that were not made because too many were under way."""

    def asked(self, login: str, password: str, protocol: str, remote: str) -> Asked:
        """What the service is told of a sign-in."""
        told = f"{self.settings.nonce}{login}\0{password}".encode("utf-8", "surrogatepass")
        return Asked(login, remote, protocol, sha256(told).hexdigest()[:3])

    async def allow(self, asked: Asked) -> Answer:
        """What the service says of a sign-in that wants to be judged. Bounded in time; never raises."""
        try:
            async with asyncio.timeout(self.settings.seconds):
                answer = msgspec.json.decode(await self._post("allow", _body(asked)), type=_Allowed)
        except (TimeoutError, httpx2.HTTPError, OSError, msgspec.DecodeError, _NotAnAnswer) as fault:
            return Answer(fault=self._failed(fault))
        self._worked()
        return Answer(min(answer.status, MAX_DELAY_SECONDS), answer.msg[:200])

    def report(self, asked: Asked, *, success: bool, policy_reject: bool = False) -> None:
        """Tell the service what came of a sign-in. Nobody waits for it."""
        if len(self._reports) >= MAX_REPORTS:
            self.not_reported += 1
            return
        body = _body(asked) | {"success": success, "policy_reject": policy_reject}
        task = asyncio.ensure_future(self._report(body))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def close(self) -> None:
        """Drop what is under way and close all connections."""
        for task in self._reports:
            task.cancel()
        await asyncio.gather(*self._reports, return_exceptions=True)
        await self._client.aclose()

    async def _report(self, body: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self.settings.seconds):
                await self._post("report", body)
        except (TimeoutError, httpx2.HTTPError, OSError, _NotAnAnswer) as fault:
            self._failed(fault)
        else:
            self._worked()

    async def _post(self, command: str, body: dict[str, Any]) -> bytes:
        """Raises `_NotAnAnswer`, and what the client raises."""
        content = msgspec.json.encode(body)
        headers = {"content-type": "application/json", "accept": "application/json"}
        url = _with_command(self.settings.url, command)
        async with self._client.stream("POST", url, content=content, headers=headers) as response:
            if response.status_code != httpx2.codes.OK:
                raise _NotAnAnswer(f"status {response.status_code}")
            found = bytearray()
            async for part in response.aiter_bytes():
                found += part
                if len(found) > MAX_ANSWER_BYTES:
                    raise _NotAnAnswer("a longer answer than any has")
            return bytes(found)

    def _failed(self, fault: Exception) -> str:
        """One line when it begins."""
        reason = f"{type(fault).__name__}: {fault}".rstrip(": ")[:300]
        if not self._failing:
            self._failing = True
            open_word = "open" if self.settings.open_on_failure else "closed"
            self._log.error("sign_in.hook_failed", url=self.settings.url, reason=reason, sign_ins=open_word)
        return reason

    def _worked(self) -> None:
        if self._failing:
            self._failing = False
            self._log.info("sign_in.hook_answers", url=self.settings.url)


def _body(asked: Asked) -> dict[str, Any]:
    return {
        "login": asked.login.encode("utf-8", "replace").decode(),
        "remote": asked.remote,
        "pwhash": asked.pwhash,
        "protocol": asked.protocol,
        "attrs": {},
    }


def _with_command(url: str, command: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=f"command={command}"))


class _NotAnAnswer(Exception):
    """What came is not what the protocol says."""
