"""What happens to a message between the disk and its acknowledgement: content hook, signature (SPEC T13; RFC 6376)."""

from __future__ import annotations

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from gatepost.configuration.hub_settings import ContentHookSettings, HubSettings
from gatepost.transport.dkim.keys import DkimKey
from gatepost.transport.dkim.signer import DkimSigner
from gatepost.transport.headers.edits import edited
from gatepost.transport.hooks.command import CommandHook, CommandSettings
from gatepost.transport.hooks.hook import ContentHook, OnFailure, Question
from gatepost.transport.hooks.rspamd import RspamdHook, RspamdSettings
from gatepost.transport.message import Envelope
from gatepost.transport.ports import Spool
from gatepost.wire.smtp_reply import Reply

UNREADABLE = Reply(451, "The message could not be kept, try again later", "4.3.0")


class Checks:
    """Asks the content hook about mail of strangers and users, and signs mail of users and of our own servers."""

    def __init__(
        self, settings: HubSettings, fqdn: str, spool: Spool, clock: Callable[[], float], log: FilteringBoundLogger
    ) -> None:
        """Raises `DkimKeyFault` for a key that cannot sign."""
        self._spool = spool
        self._clock = clock
        self._log = log
        self._max_bytes = settings.content_hook.max_bytes if settings.content_hook is not None else 0
        self._hook = _hook(settings.content_hook, fqdn) if settings.content_hook is not None else None
        self._signer = DkimSigner([DkimKey(k.domain, k.selector, k.private_key) for k in settings.dkim])
        self._signs = bool(settings.dkim)

    def wants(self, envelope: Envelope) -> bool:
        """Whether there is something to do for a message."""
        return self._is_asked(envelope) or self._is_signed(envelope)

    async def __call__(self, number: int, envelope: Envelope) -> Reply | None:
        """Look at message `number`. A reply refuses it; fields that are to be added go into the envelope."""
        try:
            if self._hook is not None and self._is_asked(envelope):
                refusal = await self._ask(self._hook, number, envelope)
                if refusal is not None:
                    return refusal
            if self._is_signed(envelope):
                await self._sign(number, envelope)
        except (KeyError, OSError) as fault:
            self._log.error("message.unreadable", message=number, reason=str(fault))
            return UNREADABLE
        return None

    async def close(self) -> None:
        """Let connections, processes and threads go."""
        if self._hook is not None:
            await self._hook.close()
        self._signer.close()

    def _is_asked(self, envelope: Envelope) -> bool:
        return self._hook is not None and not envelope.source.internal and envelope.size <= self._max_bytes

    def _is_signed(self, envelope: Envelope) -> bool:
        return self._signs and bool(envelope.source.user or envelope.source.internal)

    async def _ask(self, hook: ContentHook, number: int, envelope: Envelope) -> Reply | None:
        body = await self._spool.body(number)
        try:
            verdict = await hook.check(Question(str(number), envelope, envelope.size), body.chunks())
        finally:
            body.close()
        level = self._log.info if verdict.asked else self._log.error
        level("message.checked", message=number, action=verdict.action.value, asked=verdict.asked, note=verdict.note)
        envelope.added = verdict.before
        envelope.left_out = sorted(name.decode("latin-1") for name in verdict.without)
        return verdict.reply

    async def _sign(self, number: int, envelope: Envelope) -> None:
        body = await self._spool.body(number)
        try:
            chunks = edited(body.chunks(), envelope.added, _names(envelope))
            envelope.added = await self._signer.sign_message(chunks, self._clock()) + envelope.added
        finally:
            body.close()


def _hook(settings: ContentHookSettings, fqdn: str) -> ContentHook:
    on_failure = OnFailure(settings.unavailable)
    if settings.command:
        return CommandHook(CommandSettings(settings.command, settings.seconds, on_failure))
    url = settings.url.rstrip("/").removesuffix("/checkv2")
    return RspamdHook(RspamdSettings(url, settings.seconds, on_failure, mta_name=fqdn))


def _names(envelope: Envelope) -> frozenset[bytes]:
    return frozenset(name.encode("latin-1") for name in envelope.left_out)
