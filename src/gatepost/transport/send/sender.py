"""One connection to a server, over which messages are handed to it one after the other.

    connect() ─► SmtpSender ─► send() ─► Outcome ─┐
                     ▲                            │ while `usable`
                     └────────────────────────────┘  quit()

The dialogue runs in callbacks; whoever sends a message waits once, for its outcome, and more often only when the
content is larger than one piece.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable

from gatepost.routing.next_hop import Transfer
from gatepost.transport.message import Envelope, Recipient, RecipientState
from gatepost.transport.ports import BodyReader
from gatepost.transport.send.connection import Ahead, SmtpConnection
from gatepost.transport.send.outcome import ConnectFailed, Outcome, RecipientOutcome, judged
from gatepost.transport.send.plan import Plan, make_plan
from gatepost.transport.send.tls import shows_server
from gatepost.wire.shadow_words import ShadowHub
from gatepost.wire.smtp_client_events import Broken, ChannelOpen, Fate, Finished, SessionFault, Step, Verdict
from gatepost.wire.smtp_data import DataEncoder
from gatepost.wire.smtp_downgrade import CannotConvert, Downgrade
from gatepost.wire.smtp_reply import Reply

Reopen = Callable[[], Awaitable[BodyReader]]
NewToken = Callable[[], str]
"""A token for each transaction: what the server takes in each is a message of its own there."""


class SmtpSender(SmtpConnection):
    """A session that stands. Made by `Outbound.connect`; used by one message at a time."""

    __slots__ = ()

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.client.step.value if self._started else "connected"
        return f"<SmtpSender {self.way.host} {self.endpoint} {state} messages={self.messages_sent}>"

    # What the scheduler asks

    @property
    def usable(self) -> bool:
        """Whether `send` may be called now."""
        if self.closed or not self._started:
            return False
        if self._said is not None:
            return self.client.step not in (Step.OVER, Step.QUIT)
        if self.client.step is not Step.IDLE:
            return False
        limit = self.client.extensions.max_messages
        return not limit or self.transactions < limit

    @property
    def busy(self) -> bool:
        """Whether a message is being sent."""
        return not self.closed and self._started and self.client.step not in (Step.IDLE, Step.OVER, Step.QUIT)

    @property
    def primary(self) -> ShadowHub | None:
        """The server, where it may become the primary of what it is sent (SPEC S1): a server of the organization that
        offers XSHADOW, is the one that was wanted, and has shown so by its certificate."""
        hub = self.client.extensions.shadow if self._started else None
        if hub is None or not self.way.mutual or not self.verified or hub.server != self.way.server:
            return None
        if self._proven is None:
            self._proven = shows_server(self.transport, hub.server)
        return hub if self._proven else None

    async def open_channel(self, own: ShadowHub) -> tuple[asyncio.Transport, ShadowHub]:
        """Have the session become a shadow channel, in place of messages: its connection, which is the caller's from
        then on, with nothing read from it, and the hub at the other end. Raises `ConnectFailed`."""
        try:
            hub = await self._channel_open(own)
        except BaseException:
            self.abort()
            raise
        self.closed = True
        self._outbound.open.discard(self)
        return self.transport, hub

    async def _channel_open(self, own: ShadowHub) -> ShadowHub:
        wanted = self.primary
        if wanted is None or not self.usable:
            raise ConnectFailed(SessionFault.REFUSED, "the server offers no shadow channel")
        self._opened = self._loop.create_future()
        self._write(self.client.open_channel(own))
        self._touch()
        event = await self._opened
        if isinstance(event, Broken):
            raise ConnectFailed(event.fault, event.text, reply=event.reply)
        assert isinstance(event, ChannelOpen)
        if event.hub.server != wanted.server:
            raise ConnectFailed(SessionFault.PROTOCOL, "another server answers than was asked")
        if self.closed or self.transport.is_closing():
            raise ConnectFailed(SessionFault.LOST, "connection closed")
        return event.hub

    def prepare(
        self, envelope: Envelope, recipients: list[Recipient], body: BodyReader, token: NewToken | None = None
    ) -> None:
        """Say what is sent after the next `send`: where the server is prompt and takes pipelined commands, they go
        together with the end of that message's content, which saves both sides a wait. Nothing else may be sent then.
        """
        content: bytes | None = getattr(body, "whole", None)
        extensions = self.client.extensions
        most = min(self.options.max_recipients, extensions.max_recipients or self.options.max_recipients)
        room = not extensions.max_messages or self.transactions + 2 <= extensions.max_messages
        if content is None or not (self.prompt and extensions.pipelining and room) or len(recipients) > most:
            return
        if not self._outbound.takes_ahead(self):
            return
        size = len(content)
        plan = make_plan(
            envelope,
            recipients,
            extensions,
            content,
            size,
            whole=True,
            verified=self.verified,
            token=self._token(token),
        )
        if not (plan.refused or plan.chunked or plan.convert):
            self._ahead = Ahead(envelope, recipients, plan, content)

    async def send(
        self,
        envelope: Envelope,
        recipients: list[Recipient],
        body: BodyReader,
        reopen: Reopen | None = None,
        token: NewToken | None = None,
    ) -> Outcome:
        """Hand the message over for these recipients. The caller closes `body`.

        Where the server takes only some of the recipients at a time the rest follows in this session; for a message
        larger than one piece `reopen` opens the content anew for that, and without it the rest waits. With `token` a
        server that may is made the primary of what it takes, under a token for each transaction. Raises OSError when
        the content cannot be read (the session is then over if it had begun to send it), RuntimeError when the session
        is not usable. When cancelled the connection is cut.
        """
        if not self.usable:
            raise RuntimeError("the session is not usable")
        outcomes: dict[int, RecipientOutcome] = {}
        pending = recipients
        again: BodyReader | None = None
        try:
            while True:
                pending, whole = await self._send_once(envelope, pending, again or body, outcomes, token)
                if again is not None:
                    again.close()
                    again = None
                if not pending or not self.usable or self._said is not None:
                    break
                if whole is not None:
                    again = _Memory(whole)
                elif reopen is not None:
                    again = await reopen()
                else:
                    break
        finally:
            if again is not None:
                again.close()
            self._ahead = None
            if self.busy and (self._said is None or not self._said.begun):
                self._cut_off(SessionFault.LOST, "given up")
        self.idle_since = self._loop.time()
        if any(outcome.state is RecipientState.DELIVERED for outcome in outcomes.values()):
            self.messages_sent += 1
        return Outcome([outcomes[id(recipient)] for recipient in recipients], self.broken)

    async def quit(self) -> None:
        """Say goodbye and close. Never raises for what the server does, and takes a few seconds at most."""
        if not self.closed and self._started and self.client.step is Step.IDLE:
            self._leaving = True
            self._why = "quit"
            self._finished = None
            self._waiter = self._loop.create_future()
            self._write(self.client.quit())
            self._touch()
            await self._wait()
        self.abort()

    # One transaction

    async def _send_once(
        self,
        envelope: Envelope,
        recipients: list[Recipient],
        body: BodyReader,
        outcomes: dict[int, RecipientOutcome],
        new_token: NewToken | None,
    ) -> tuple[list[Recipient], bytes | None]:
        """One transaction, noted in `outcomes`; who is left for another, and the content if it is in memory."""
        extensions = self.client.extensions
        said, self._said = self._said, None
        if said is not None:
            return await self._send_said(said, envelope, recipients, outcomes)
        limit = min(self.options.max_recipients, extensions.max_recipients or self.options.max_recipients)
        recipients, left = recipients[:limit], recipients[limit:]
        in_memory: bytes | None = getattr(body, "whole", None)
        chunks = body.chunks() if in_memory is None else _NOTHING
        try:
            head = await anext(chunks, b"") if in_memory is None else in_memory
            whole = len(head) >= body.size
            plan = make_plan(
                envelope,
                recipients,
                extensions,
                head,
                body.size,
                whole=whole,
                verified=self.verified,
                token=self._token(new_token),
            )
            for recipient, reply in plan.refused:
                outcomes[id(recipient)] = RecipientOutcome(recipient, RecipientState.FAILED, reply, ours=True)
            finished, refusal = await self._transact(plan, head, chunks, body.size)
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()
        again = self._judge(plan, finished, refusal, outcomes)
        for recipient in left:
            outcomes[id(recipient)] = judged(recipient, Verdict(Fate.LATER), finished.broken, dsn=False, lmtp=False)
        return again + left, head if whole else None

    async def _send_said(
        self, said: Ahead, envelope: Envelope, recipients: list[Recipient], outcomes: dict[int, RecipientOutcome]
    ) -> tuple[list[Recipient], bytes | None]:
        """The transaction whose commands were sent with the end of the last message's content."""
        self._finished = said.finished
        is_it = said.envelope is envelope and [*map(id, said.recipients)] == [*map(id, recipients)]
        if not is_it:
            self._cut_off(SessionFault.LOST, "another message was announced")
            said.plan.recipients = recipients
        if self.closed or self.client.over or not is_it:
            self._finished = Finished([Verdict(Fate.LATER)] * len(said.plan.recipients), self.broken)
        else:
            self._inline = said.content
            self.transactions += 1
            self._waiter = self._loop.create_future()
            self._envelope_deadline = self._loop.time() + self.options.times.envelope
            if said.wanted:
                self._content()
            self._touch()
            await self._wait()
            self._inline = None
        finished = self._result()
        assert finished is not None
        return self._judge(said.plan, finished, None, outcomes), said.content

    def _token(self, new: NewToken | None) -> str:
        return new() if new is not None and self.primary is not None else ""

    def _judge(
        self, plan: Plan, finished: Finished, refusal: Reply | None, outcomes: dict[int, RecipientOutcome]
    ) -> list[Recipient]:
        """Note the verdicts; who is left for another transaction."""
        dsn = self.client.extensions.dsn
        lmtp = self.way.transfer is Transfer.LMTP
        again: list[Recipient] = []
        for recipient, verdict in zip(plan.recipients, finished.verdicts, strict=True):
            if refusal is not None and verdict.fate in (Fate.LATER, Fate.AGAIN) and verdict.reply is None:
                outcomes[id(recipient)] = RecipientOutcome(recipient, RecipientState.FAILED, refusal, ours=True)
                continue
            outcome = judged(recipient, verdict, finished.broken, dsn=dsn, lmtp=lmtp)
            outcomes[id(recipient)] = outcome
            if verdict.fate in (Fate.TAKEN, Fate.UNCERTAIN):
                outcome.token = plan.token
            if verdict.fate is Fate.AGAIN:
                again.append(recipient)
        return again

    async def _transact(
        self, plan: Plan, head: bytes, chunks: AsyncIterator[bytes], size: int
    ) -> tuple[Finished, Reply | None]:
        """The verdicts over `plan.recipients`; with a reply of ours when the content cannot be sent to this server."""
        if not plan.recipients:
            return Finished([]), None
        whole = len(head) >= size
        size -= len(head)
        converter = Downgrade() if plan.convert else None
        if converter is not None:
            try:
                head = converter.feed(head)
                if whole:
                    head += converter.finish()
            except CannotConvert as error:
                return Finished([Verdict(Fate.LATER)] * len(plan.recipients)), Reply(554, str(error), "5.6.3")
        if self.client.step is not Step.IDLE:  # the server went while the content was being opened
            return Finished([Verdict(Fate.LATER)] * len(plan.recipients), self.broken), None
        self._finished = None
        self._inline = head if whole and not plan.chunked else None
        self.transactions += 1
        self._waiter = self._loop.create_future()
        self._envelope_deadline = self._loop.time() + self.options.times.envelope
        self._write(self.client.transact(plan.mail, plan.commands, chunked=plan.chunked))
        self._touch()
        await self._wait()
        refusal: Reply | None = None
        if self._result() is None:
            try:
                if plan.chunked:
                    await self._send_chunks(head, _Rest(chunks, size))
                else:
                    await self._stream(head, _Rest(chunks, size), converter)
            except CannotConvert as error:
                refusal = Reply(554, str(error), "5.6.3")
                self._cut_off(SessionFault.PROTOCOL, f"given up in the middle of the content: {error}")
            await self._wait()
        self._inline = None
        finished = self._result()
        assert finished is not None
        return finished, refusal

    async def _stream(self, data: bytes, chunks: _Rest, converter: Downgrade | None) -> None:
        """Send content that comes in pieces after DATA."""
        encoder = DataEncoder()
        more: bytes | None = data
        while more is not None:
            self.octets_sent += len(more)
            self._write(encoder.encode(more))
            await self._drain()
            if self._result() is not None:
                return
            more = await chunks.next()
            if converter is not None and more is not None:
                more = converter.feed(more)
        rest = encoder.encode(converter.finish()) if converter is not None else b""
        if self._result() is None:
            self._waiter = self._loop.create_future()
            self.client.content_end()
            self._write(rest + encoder.finish())
            self._touch()

    async def _send_chunks(self, data: bytes, chunks: _Rest) -> None:
        """Send content by BDAT, each chunk after the answer to the one before (RFC 3030)."""
        more: bytes | None = data
        while more is not None:
            self.octets_sent += len(more)
            following = await chunks.next()
            if self._result() is not None:
                return
            self._waiter = self._loop.create_future()
            self._write(self.client.chunk(len(more), last=following is None) + more)
            self._touch()
            await self._drain()
            await self._wait()
            if self._result() is not None:
                return
            more = following


class _Nothing(AsyncIterator[bytes]):
    """What follows a content that was had at once."""

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration


_NOTHING = _Nothing()


class _Rest:
    """What follows the first piece of a content."""

    def __init__(self, chunks: AsyncIterator[bytes], size: int) -> None:
        self._chunks = chunks
        self._left = size

    async def next(self) -> bytes | None:
        """The next piece, None at the end. Raises OSError, also when it ends too early: no half message is sent."""
        piece = await anext(self._chunks, None)
        if piece is not None:
            self._left -= len(piece)
        elif self._left > 0:
            raise OSError(errno.EIO, "the content is shorter than it was")
        return piece


class _Memory:
    """A content that is in memory."""

    def __init__(self, data: bytes) -> None:
        self.whole = data
        self.size = len(data)

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it."""
        yield self.whole

    def close(self) -> None:
        """Nothing is open."""
