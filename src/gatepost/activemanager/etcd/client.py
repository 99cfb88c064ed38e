"""Calls of etcd's JSON gateway: several members, TLS, sign-in, short waits. Knows nothing of the registry.

Every call may be carried out twice, when the first answer is lost: callers make changes that depend on what they saw.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from gatepost.activemanager.etcd.layout import Json
from gatepost.activemanager.port import RegistryUnavailable
from gatepost.configuration.key_pairs import load_key_pair
from gatepost.configuration.settings import EtcdSettings

ATTEMPT_SECONDS = 1.0
"""For one answer of one member; it takes milliseconds, and a member that stands still never answers."""
CALL_SECONDS = 8.0
"""For a call, all members tried again and again: etcd elects a new leader in one or two seconds by default."""
PAUSE_SECONDS = 0.1
"""Between two rounds of the members, doubled each time."""
LONGEST_PAUSE_SECONDS = 1.0
LINE_BYTES = 64 * 1024 * 1024
"""Of one message of a stream: etcd takes 1.5 MB in one change, and sends those that were missed together."""
SHOWN_BYTES = 200
"""Of an answer that is not etcd's own form of a fault."""

UNAVAILABLE_CODES = frozenset({1, 2, 4, 14})
"""Canceled, unknown, deadline exceeded, unavailable (gRPC): another member, or this one later, may do better."""
_INVALID_ARGUMENT, _OUT_OF_RANGE, _UNAUTHENTICATED = 3, 11, 16


class EtcdFault(RuntimeError):
    """The cluster has answered that it will not do this. `code` is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def compacted(self) -> bool:
        """Whether a revision was asked for that the cluster has forgotten."""
        return self.code == _OUT_OF_RANGE

    @property
    def signed_out(self) -> bool:
        """Whether the sign-in is not known any more: its time was over, or accounts were changed."""
        old = self.code == _INVALID_ARGUMENT and "revision" in str(self) and "auth" in str(self)
        return self.code == _UNAUTHENTICATED or old


class EtcdClient:
    """Of one event loop. Goes on with the member that answered last."""

    def __init__(self, settings: EtcdSettings, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """Raises `ssl.SSLError` for a certificate or key that cannot be used. Tests give a `transport` of their own."""
        self._settings = settings
        self._current = 0
        self._token = ""
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=60.0)
        verify = _context(settings) if any(url.startswith("https:") for url in settings.endpoints) else False
        # No proxy of the environment stands between a front end and its registry.
        self._http = httpx2.AsyncClient(
            verify=verify, trust_env=False, timeout=ATTEMPT_SECONDS, limits=limits, transport=transport
        )

    @property
    def endpoint(self) -> str:
        """The member that the next call goes to."""
        return self._settings.endpoints[self._current % len(self._settings.endpoints)]

    def turn_away(self, endpoint: str) -> None:
        """Go on with another member than `endpoint`."""
        if endpoint == self.endpoint:
            self._current += 1

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def call(self, path: str, body: Json, seconds: float = CALL_SECONDS) -> Json:
        """The answer of `/v3/<path>`. Raises `EtcdFault`, `RegistryUnavailable` after `seconds`."""
        reasons: dict[str, str] = {}
        pause = PAUSE_SECONDS
        try:
            async with asyncio.timeout(seconds):
                while True:
                    for _ in self._settings.endpoints:
                        endpoint = self.endpoint
                        try:
                            return await self._signed_in(endpoint, path, body)
                        except _NoAnswer as fault:
                            reasons[endpoint] = str(fault)
                            self.turn_away(endpoint)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        except TimeoutError:
            told = "; ".join(f"{endpoint}: {reason}" for endpoint, reason in reasons.items())
            raise RegistryUnavailable(f"etcd has not answered within {seconds:g} s ({told or 'silence'})") from None

    @asynccontextmanager
    async def stream(self, path: str, body: Json) -> AsyncIterator[AsyncIterator[Json]]:
        """The messages of `/v3/<path>` from the present member, until it ends the stream.

        Raises `EtcdFault`, `RegistryUnavailable`, also while it is read.
        """
        endpoint = self.endpoint
        timeout = httpx2.Timeout(ATTEMPT_SECONDS, read=None)
        try:
            if self._settings.user and not self._token:
                await self._sign_in(endpoint)
            request = self._http.build_request(
                "POST", f"{endpoint}/v3/{path}", json=body, headers=self._headers(), timeout=timeout
            )
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code != httpx2.codes.OK:
                    raise _fault(await response.aread(), response.status_code)
                yield _messages(response)
            finally:
                await response.aclose()
        except _NoAnswer as fault:
            raise RegistryUnavailable(f"{endpoint}: {fault}") from fault
        except (httpx2.HTTPError, OSError) as fault:
            raise RegistryUnavailable(f"{endpoint}: {_words(fault)}") from fault
        except EtcdFault as fault:
            if fault.signed_out:
                self._token = ""
            raise

    async def _signed_in(self, endpoint: str, path: str, body: Json) -> Json:
        if not self._settings.user:
            return await self._post(endpoint, path, body)
        for again in (False, True):
            if not self._token:
                await self._sign_in(endpoint)
            try:
                return await self._post(endpoint, path, body)
            except EtcdFault as fault:
                if again or not fault.signed_out:
                    raise
                self._token = ""
        raise AssertionError("the second attempt returns or raises")

    async def _sign_in(self, endpoint: str) -> None:
        given = {"name": self._settings.user, "password": self._settings.password}
        answer = await self._post(endpoint, "auth/authenticate", given, signed_in=False)
        token = answer.get("token")
        if not isinstance(token, str) or not token:
            raise EtcdFault(_UNAUTHENTICATED, "etcd gave no token for the sign-in")
        self._token = token

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    async def _post(self, endpoint: str, path: str, body: Json, *, signed_in: bool = True) -> Json:
        """One attempt at one member. Raises `EtcdFault`, `_NoAnswer`."""
        headers = self._headers() if signed_in else {}
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                response = await self._http.post(f"{endpoint}/v3/{path}", json=body, headers=headers)
        except (httpx2.HTTPError, OSError) as fault:
            raise _NoAnswer(_words(fault)) from fault
        if response.status_code != httpx2.codes.OK:
            raise _fault(response.content, response.status_code)
        # A call that is a stream for gRPC, such as keeping a lease, answers with its first message.
        found = _object(response.content.partition(b"\n")[0])
        if "error" in found:
            raise _fault_of(found["error"])
        result = found.get("result", found)
        return result if isinstance(result, dict) else found


class _NoAnswer(RuntimeError):
    """This member does not answer, or cannot now."""


def _context(settings: EtcdSettings) -> ssl.SSLContext:
    ca = settings.ca.decode("ascii", "ignore")
    context = ssl.create_default_context(cadata=ca) if ca else ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.certificate:
        load_key_pair(context, settings.certificate, settings.private_key)
    return context


async def _messages(response: httpx2.Response) -> AsyncIterator[Json]:
    """The stream's messages, one a line."""
    rest = bytearray()
    async for data in response.aiter_bytes():
        searched = len(rest)
        rest += data
        while (end := rest.find(b"\n", searched)) >= 0:
            line = bytes(rest[:end])
            del rest[: end + 1]
            searched = 0
            found = _object(line)
            if "error" in found:
                raise _fault_of(found["error"])
            if isinstance(found.get("result"), dict):
                yield found["result"]
        if len(rest) > LINE_BYTES:
            raise _NoAnswer(f"a message of more than {LINE_BYTES} bytes")


def _object(content: bytes) -> Json:
    try:
        found = json.loads(content)
    except ValueError as fault:
        raise _NoAnswer("not the answer of an etcd (is a proxy in between?)") from fault
    if not isinstance(found, dict):
        raise _NoAnswer("not the answer of an etcd (is a proxy in between?)")
    return found


def _fault(content: bytes, status: int) -> EtcdFault | _NoAnswer:
    """What an answer that is no success means."""
    try:
        return _fault_of(json.loads(content))
    except ValueError:
        said = content[:SHOWN_BYTES].decode(errors="replace").strip()
        text = f"HTTP status {status}{f': {said}' if said else ''}"
        # The request is at fault, and would be at every member.
        return EtcdFault(_INVALID_ARGUMENT, text) if 400 <= status < 500 else _NoAnswer(text)


def _fault_of(error: Any) -> EtcdFault | _NoAnswer:  # noqa: ANN401 - what the member sent
    """An error object: of a call, or of a stream (whose code has another name, by the gateway's version)."""
    if not isinstance(error, dict):
        return _NoAnswer(str(error))
    code = error.get("code", error.get("grpc_code", 2))
    message = str(error.get("message") or error.get("error") or "no reason given")
    if not isinstance(code, int) or code in UNAVAILABLE_CODES:
        return _NoAnswer(message)
    return EtcdFault(code, message)


def _words(fault: BaseException) -> str:
    """A fault of the connection in words; some have none of their own."""
    if isinstance(fault, TimeoutError | httpx2.TimeoutException):
        return "no answer in time"
    return str(fault) or f"it has ended the connection ({type(fault).__name__})"
