"""A manager's probes of the mailbox servers: connect, TLS verified, greeting and, where there is a canary, a sign-in.

    for each service of each server that holds copies: one task ── Probed ──► the manager's mind

A probe that is refused is repeated sooner: that nothing listens is known at once, and whether it stays so soon after.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from contextlib import suppress

from gatepost.activemanager import probes
from gatepost.activemanager.manager_events import Probed
from gatepost.activemanager.probes import FAREWELL, Probe, connected, judge, look, plan
from gatepost.activemanager.seen import Sight, services_of
from gatepost.configuration.manager_settings import Canary, ManagerSettings
from gatepost.organization.model import Endpoint, Organization, Protocol, Server, SignInForm, TlsMode
from gatepost.peers.login_token import login_token
from gatepost.wire.events import BackEvent, BackSignIn, Failed, FailureKind, Send, SignedIn, StartTls
from gatepost.wire.imap_back import ImapBack
from gatepost.wire.pop3_back import Pop3Back

SILENCE = 2 / 3
"""A probe is given up after this part of `failed_seconds`: with the time up to its start one silence is a failure."""
REFUSED = 0.25
"""After this part of `probe_seconds` a refused service is asked again."""
MAX_LINES = 20
"""Lines of a server before its answer to STARTTLS."""

_TLS = {Protocol.IMAP: (b"a STARTTLS\r\n", b"a "), Protocol.POP3: (b"STLS\r\n", b"")}
"""The command that begins TLS, and what its answer begins with."""
_FULL = {FailureKind.IN_USE, FailureKind.LIMIT}
"""What a canary may hear of a service that works: its mailbox is locked, it has too many sessions."""

ContextOf = Callable[[Server], ssl.SSLContext]
"""Verified TLS contexts for connections to a server."""


async def probe_service(
    probe: Probe, canary: Canary | None, context: ssl.SSLContext | None, seconds: float
) -> tuple[Sight, str]:
    """Probes one service for at most `seconds`: what was met, and why it is not well."""
    if probe.endpoint.protocol not in FAREWELL:
        return await look(probes.ask(probe, context), seconds)
    if canary is not None:
        return await look(_sign_in(probe, canary, context), seconds)
    return await look(_greeting(probe, context), seconds)


async def _greeting(probe: Probe, context: ssl.SSLContext | None) -> str:
    endpoint = probe.endpoint
    async with connected(endpoint, context) as (reader, writer):
        reason = judge(probe, await reader.readuntil(b"\n"))
        if not reason and endpoint.tls is TlsMode.STARTTLS and context is not None:
            reason = await _start_tls(endpoint, context, reader, writer)
        writer.write(FAREWELL[endpoint.protocol])
    return reason


async def _start_tls(
    endpoint: Endpoint, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> str:
    """A certificate that clients' sessions could not be carried with is a fault like any other."""
    command, tag = _TLS[endpoint.protocol]
    writer.write(command)
    for _ in range(MAX_LINES):
        line = await reader.readuntil(b"\n")
        if line.startswith(tag):
            if not line[len(tag) :].upper().startswith((b"OK", b"+OK")):
                return "no STARTTLS"
            await writer.start_tls(context, server_hostname=endpoint.tls_name or endpoint.address)
            return ""
    return "no answer to STARTTLS"


def canary_sign_in(server: Server, endpoint: Endpoint, canary: Canary) -> BackSignIn:
    """How the canary signs in at `server`: as users are signed in there."""
    how = server.sign_in
    login = canary.user.replace("{server}", server.name.lower())
    mechanism, user, password, authorization, token = "LOGIN", login, canary.password, "", ""
    if how.form is SignInForm.MASTER_NAME:
        user, password = f"{login}{how.separator}{how.master_user}", how.master_password
    elif how.form is SignInForm.MASTER_AUTHZID:
        mechanism, user, password, authorization = "PLAIN", how.master_user, how.master_password, login
    elif how.form is SignInForm.ASSERTION:
        mechanism, password, token = "OAUTHBEARER", "", login_token(server, login)
    return BackSignIn(
        mechanism=mechanism,
        user=user,
        password=password,
        authorization_id=authorization,
        token=token,
        starttls=endpoint.tls is TlsMode.STARTTLS,
        pipelined=how.pipelined,
    )


async def _sign_in(probe: Probe, canary: Canary, context: ssl.SSLContext | None) -> str:
    endpoint = probe.endpoint
    sign_in = canary_sign_in(probe.server, endpoint, canary)
    back = ImapBack(sign_in) if endpoint.protocol is Protocol.IMAP else Pop3Back(sign_in)
    async with connected(endpoint, context) as (reader, writer):
        events: list[BackEvent] = back.connected()
        while True:
            for event in events:
                if isinstance(event, Send):
                    writer.write(event.data)
                elif isinstance(event, SignedIn):
                    writer.write(FAREWELL[endpoint.protocol])
                    return ""
                elif isinstance(event, Failed):
                    return "" if event.kind in _FULL else f"the canary: {event.kind.value} at {back.state_name}"
            if any(isinstance(event, StartTls) for event in events):
                assert context is not None
                await writer.start_tls(context, server_hostname=endpoint.tls_name or endpoint.address)
                events = back.tls_started()
                continue
            data = await reader.read(probes.MAX_LINE)
            if not data:
                raise EOFError
            events = back.receive(data)


class Prober:
    """Probes all services again and again and tells each result. `clock` is the manager's."""

    def __init__(
        self,
        settings: ManagerSettings,
        organization: Organization,
        context_of: ContextOf,
        told: Callable[[Probed], None],
        clock: Callable[[], float],
    ) -> None:
        self._told = told
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self.configure(settings, organization, context_of)

    def configure(self, settings: ManagerSettings, organization: Organization, context_of: ContextOf) -> None:
        """Probe by this from now on."""
        self.close()
        self._settings, self._organization, self._context_of = settings, organization, context_of
        for server, services in services_of(organization).items():
            for service in services:
                if not settings.services or service in settings.services:
                    task = asyncio.get_running_loop().create_task(self._again(server, service), name="probe")
                    self._tasks.add(task)
                    task.add_done_callback(self._ended)

    def close(self) -> None:
        """Probe no more."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a probe failed", "exception": fault, "task": task})

    async def _again(self, server: str, service: str) -> None:
        settings = self._settings
        probe = plan(self._organization, server, service)
        if probe is None:
            return
        clear = probe.endpoint.tls is TlsMode.CLEAR
        canary = settings.canaries.get(service)
        # So that the probes of many servers do not come all at once.
        await asyncio.sleep(random.uniform(0, settings.probe_seconds))  # noqa: S311 - no secret
        while True:
            started = self._clock()
            context = None if clear else self._context_of(probe.server)
            sight, reason = await probe_service(probe, canary, context, SILENCE * settings.failed_seconds)
            self._told(Probed(server, service, sight, reason, started))
            pause = settings.probe_seconds * (REFUSED if sight is Sight.REFUSED else 1.0)
            await asyncio.sleep(max(pause - (self._clock() - started), pause * REFUSED))

    async def wait_closed(self) -> None:
        """After `close`, until the last probe has let go of its connection."""
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
