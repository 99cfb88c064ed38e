"""Opening sessions: connection, TLS as the way wants it, greeting, sign-in. And the clock that watches all of them."""

from __future__ import annotations

import asyncio
import errno
import secrets
import ssl
from typing import Any

from gatepost.routing.next_hop import Transfer, Way
from gatepost.transport.send.connection import SmtpConnection, keep_alive
from gatepost.transport.send.options import Endpoint, SendOptions, TlsFacts
from gatepost.transport.send.outcome import ConnectFailed
from gatepost.transport.send.sender import SmtpSender
from gatepost.transport.send.tls import NotedHosts, TlsContexts, TlsMaterial, server_name, use, verifies
from gatepost.wire.events import StartTls
from gatepost.wire.smtp_client import SmtpClient
from gatepost.wire.smtp_client_events import Broken, ClientSettings, SessionFault, TlsUse

SWEEP_SECONDS = 1.0


class Outbound:
    """Makes sessions with next servers and knows those that are open. One a process."""

    def __init__(
        self,
        log: Any,  # noqa: ANN401 - a structlog logger of whatever kind
        material: TlsMaterial | None = None,
        *,
        without_tls: NotedHosts | None = None,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._log = log
        self._contexts = TlsContexts(material or TlsMaterial())
        self._without_tls = without_tls or NotedHosts()
        self._one_by_one = NotedHosts()
        self._sweep_seconds = sweep_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.open: set[SmtpConnection] = set()
        """All sessions, also those that are being opened."""

    def renew(self, material: TlsMaterial) -> None:
        """Use these certificates for connections from now on."""
        self._contexts = TlsContexts(material)

    async def connect(self, endpoint: Endpoint, way: Way, options: SendOptions) -> SmtpSender:
        """A session that stands: `reach`, then `greet`. Raises `ConnectFailed`."""
        return await self.greet(await self.reach(endpoint, way, options))

    async def reach(self, endpoint: Endpoint, way: Way, options: SendOptions) -> SmtpSender:
        """A connection over which nothing has been said, for `greet`, or for `abort` when another was faster.

        Raises `ConnectFailed`, always with `SessionFault.CONNECT` and the socket's error.
        """
        sender = SmtpSender(self, endpoint, way, options, secrets.token_hex(8).upper())
        loop = asyncio.get_running_loop()
        local = (options.source_address, 0) if options.source_address else None
        seconds = options.times.connect
        try:
            async with asyncio.timeout(seconds):
                transport, _ = await loop.create_connection(
                    lambda: sender, endpoint.ip, endpoint.port, local_addr=local
                )
        except TimeoutError as error:
            late = OSError(errno.ETIMEDOUT, "no answer")
            raise ConnectFailed(SessionFault.CONNECT, f"no connection in {seconds:g} s", error=late) from error
        except OSError as error:
            raise ConnectFailed(SessionFault.CONNECT, _words(error), error=error) from error
        keep_alive(transport)
        if not sender.closed:
            self.open.add(sender)
        return sender

    async def greet(self, sender: SmtpSender) -> SmtpSender:
        """Have the session begin: TLS as the way wants it, greeting, sign-in. Raises `ConnectFailed`.

        Where TLS is opportunistic and its handshake fails the host is spoken to once more, without it, and stays noted
        for an hour (field case 25): what is returned is then another sender. A password is never sent without TLS.
        """
        endpoint, way, options = sender.endpoint, sender.way, sender.options
        starttls = use(way)
        now = asyncio.get_running_loop().time()
        if starttls is TlsUse.IF_OFFERED and not options.user and (endpoint, now) in self._without_tls:
            starttls = TlsUse.NEVER
        try:
            return await self._stand(sender, starttls)
        except ConnectFailed as error:
            again = starttls is TlsUse.IF_OFFERED and not way.implicit_tls and not options.user
            if error.fault is not SessionFault.TLS or not again or self._closed:
                raise
            self._without_tls.note(endpoint, asyncio.get_running_loop().time())
            self._log.warning("send.without_tls", host=way.host, server=str(endpoint), reason=error.text)
        return await self._stand(await self.reach(endpoint, way, options), TlsUse.NEVER)

    def one_by_one(self, sender: SmtpConnection) -> None:
        """A session ended when the next message's commands came with the end of a content: for an hour this host is
        sent one message at a time, so that no message becomes uncertain by that twice."""
        self._one_by_one.note(sender.endpoint, asyncio.get_running_loop().time())
        self._log.warning("send.one_by_one", host=sender.way.host, server=str(sender.endpoint))

    def takes_ahead(self, sender: SmtpConnection) -> bool:
        """Whether the host may be sent the next message's commands with the end of a content."""
        return (sender.endpoint, asyncio.get_running_loop().time()) not in self._one_by_one

    def close(self) -> None:
        """Cut all sessions; those that are being opened are not tried again."""
        self._closed = True
        for sender in list(self.open):
            sender.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _stand(self, sender: SmtpSender, starttls: TlsUse) -> SmtpSender:
        way, options = sender.way, sender.options
        settings = ClientSettings(
            options.name,
            lmtp=way.transfer is Transfer.LMTP,
            starttls=TlsUse.NEVER if way.implicit_tls else starttls,
            secured=way.implicit_tls,
            user=options.user,
            password=options.password,
        )
        try:
            secure = await self._handshake(sender) if way.implicit_tls else None
            self._watch()
            sender.begin(SmtpClient(settings), secure, _facts(secure, way) if secure is not None else None)
            event = await sender.opened()
            if isinstance(event, StartTls):
                secure = await self._handshake(sender)
                sender.tls_started(secure, _facts(secure, way))
                event = await sender.opened()
        except BaseException:
            sender.abort()
            self.open.discard(sender)
            raise
        if isinstance(event, Broken):
            self.open.discard(sender)
            raise ConnectFailed(event.fault, event.text, reply=event.reply)
        sender.stands()
        return sender

    async def _handshake(self, sender: SmtpSender) -> asyncio.Transport:
        context = self._context(sender.way)
        loop = asyncio.get_running_loop()
        transport = sender.transport
        name = server_name(sender.way, context)
        if sender.has_spoken:
            raise ConnectFailed(SessionFault.TLS, "speaks in clear where TLS was due")
        try:
            if transport.is_closing():  # the loop would raise RuntimeError
                raise ConnectionResetError(errno.ECONNRESET, "closed before the TLS handshake")
            transport.pause_reading()
            async with asyncio.timeout(sender.options.times.tls):
                secure = await loop.start_tls(transport, sender, context, server_hostname=name)
            # uvloop hands out a transport also when the connection was closed in the middle, and tells nobody.
            if secure is None or secure.get_extra_info("ssl_object") is None:
                raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
        except OSError as error:  # SSLError and TimeoutError too
            raise ConnectFailed(SessionFault.TLS, _words(error)) from error
        return secure

    def _context(self, way: Way) -> ssl.SSLContext:
        try:
            return self._contexts.of(way)
        except (ssl.SSLError, ValueError) as error:
            raise ConnectFailed(SessionFault.TLS, f"our own TLS material: {error}") from error

    # Sessions that are open

    def ended(self, sender: SmtpConnection, why: str) -> None:
        """Called by a session that has ended."""
        self.open.discard(sender)
        if sender.stood:
            sender.told_of_end(why)
            self._log.info(
                "send.session",
                session=sender.session,
                host=sender.way.host,
                server=str(sender.endpoint),
                tls=f"{sender.tls.version} {sender.tls.cipher}" if sender.tls else "",
                verified=sender.verified,
                messages=sender.messages_sent,
                octets=sender.octets_sent,
                why=why,
            )

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        """Deadlines of all sessions by one timer; it rests while there is none."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for sender in [sender for sender in self.open if sender.deadline <= now]:
            sender.overdue(now)
        if self.open:
            self._watch()


def _facts(transport: asyncio.Transport, way: Way) -> TlsFacts:
    ssl_object = transport.get_extra_info("ssl_object")
    cipher = ssl_object.cipher() if ssl_object is not None else None
    return TlsFacts((ssl_object and ssl_object.version()) or "", cipher[0] if cipher else "", verifies(way))


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message or error.reason}"
    if isinstance(error, TimeoutError):
        return "no answer in the TLS handshake"
    return f"{type(error).__name__} {error.strerror or (error.args[-1] if error.args else '')}".strip()
