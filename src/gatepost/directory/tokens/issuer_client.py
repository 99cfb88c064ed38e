"""Questions to an issuer over HTTP: verified TLS, bounded in time and octets, no redirect is followed."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any
from urllib.parse import quote_plus, urlsplit

import httpx2

from gatepost.directory.port import TokenVerifierUnavailable
from gatepost.directory.settings import TokenIssuer
from gatepost.organization.addresses import is_loopback, parse_http_url

MAX_ANSWER_BYTES = 256 * 1024
"""Metadata and sets of keys are some kB."""
MAX_CONNECTIONS = 32
"""Of one worker to one issuer; what waits longer than the time for a question is a temporary fault."""

_METADATA = "/.well-known/openid-configuration"
_METADATA_OF_RFC_8414 = "/.well-known/oauth-authorization-server"
_NOT_FOUND = 404


class IssuerFault(TokenVerifierUnavailable):
    """The issuer did not answer, or not as an issuer does."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


def metadata_url(issuer: str) -> str:
    """Where OpenID Connect Discovery 1.0 puts an issuer's metadata."""
    return issuer.rstrip("/") + _METADATA


class IssuerClient:
    """Asks one issuer. Belongs to the loop it is made in. `transport` is for tests."""

    def __init__(self, settings: TokenIssuer, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        context = ssl.create_default_context(cadata=settings.ca.decode() if settings.ca else None)
        self._client = httpx2.AsyncClient(
            verify=context,
            # What is packed could be a thousand times as large once unpacked.
            headers={"accept": "application/json", "accept-encoding": "identity"},
            timeout=settings.seconds,
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=4),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    async def metadata(self) -> dict[str, Any]:
        """What the issuer says of itself (OpenID Connect Discovery 1.0, else RFC 8414). Raises `IssuerFault`."""
        issuer = self._settings.issuer
        try:
            found = await self.get(metadata_url(issuer))
        except IssuerFault as fault:
            if fault.status != _NOT_FOUND:
                raise
            url = urlsplit(issuer)
            found = await self.get(f"{url.scheme}://{url.netloc}{_METADATA_OF_RFC_8414}{url.path.rstrip('/')}")
        if found.get("issuer") != issuer:
            # RFC 8414 section 3.3: else another issuer's keys could be slipped in.
            raise IssuerFault(f"the metadata of {issuer} are another issuer's: {str(found.get('issuer'))[:200]!r}")
        return found

    async def uri(self, key: str) -> str:
        """A URI of the issuer's metadata, such as `jwks_uri`. Raises `IssuerFault`."""
        value = (await self.metadata()).get(key)
        try:
            url = parse_http_url(value if isinstance(value, str) else "")
        except ValueError:
            raise IssuerFault(f"the metadata of {self._settings.issuer} have no {key}") from None
        if url.scheme != "https" and not is_loopback(url.host):
            raise IssuerFault(f"the {key} of {self._settings.issuer} is in clear text")
        return str(value)

    async def get(self, url: str) -> dict[str, Any]:
        """The JSON object at `url`. Raises `IssuerFault`."""
        return await self._bounded("GET", url)

    async def ask(self, url: str, form: dict[str, str]) -> dict[str, Any]:
        """The JSON object that answers a form, with our client's credentials. Raises `IssuerFault`."""
        settings = self._settings
        auth = None
        if settings.client_id:
            # Encoded before they are put together (RFC 6749 section 2.3.1).
            auth = httpx2.BasicAuth(quote_plus(settings.client_id), quote_plus(settings.client_secret))
        return await self._bounded("POST", url, data=form, auth=auth)

    async def _bounded(self, method: str, url: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - httpx's
        try:
            async with asyncio.timeout(self._settings.seconds):
                return await self._answer(method, url, more)
        except IssuerFault:
            raise
        except (
            TimeoutError,
            httpx2.HTTPError,
            httpx2.StreamError,
            httpx2.InvalidURL,
            OSError,
            ValueError,
            RecursionError,
        ) as fault:
            # Never the fault's own text with the request in it: that holds the token.
            reason = f"{type(fault).__name__}: {fault}".rstrip(": ")[:200]
            raise IssuerFault(f"{url}: {reason}") from None

    async def _answer(self, method: str, url: str, more: dict[str, Any]) -> dict[str, Any]:
        async with self._client.stream(method, url, **more) as response:
            if response.status_code != httpx2.codes.OK:
                raise IssuerFault(f"{url}: status {response.status_code}", response.status_code)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise IssuerFault(f"{url}: a packed answer")
            content = bytearray()
            async for part in response.aiter_raw():
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    raise IssuerFault(f"{url}: an answer of more than {MAX_ANSWER_BYTES} bytes")
        found = json.loads(content.decode())
        if not isinstance(found, dict):
            raise IssuerFault(f"{url}: no JSON object")
        return found
