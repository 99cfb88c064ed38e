"""Messages that were put aside for a damaged content or envelope: listed, released, forgotten by operators (SPEC T2).

They are in no queue. Those that the process has died of too often are: in the queue `Poison` (see `operating`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from structlog.typing import FilteringBoundLogger

from gatepost.transport.categorizer import Categorizer
from gatepost.transport.message import Envelope
from gatepost.transport.operating import NotFound
from gatepost.transport.spool.spool import DiskSpool

QUARANTINE_VERBS = frozenset({"quarantined", "release", "forget_message"})
"""What it does for operators."""


class Quarantine:
    """Carries out operators' requests. Each answers values that msgspec can encode. Raises `NotFound`, OSError."""

    def __init__(self, spool: DiskSpool, categorizer: Categorizer, log: FilteringBoundLogger) -> None:
        self._spool = spool
        self._categorizer = categorizer
        self._log = log
        self.forgotten: Callable[[int, Envelope], None] = lambda _number, _envelope: None
        """Told of each message that an operator has removed."""

    async def quarantined(self) -> list[dict[str, Any]]:
        """What is there, by number. Without a readable envelope the fields of it are empty."""
        return [
            {
                "number": found.number,
                "reason": found.reason,
                "at": found.at,
                "from": found.envelope.sender if found.envelope else "",
                "message_id": found.envelope.message_id if found.envelope else "",
                "subject": found.envelope.subject if found.envelope else "",
                "size": found.envelope.size if found.envelope else 0,
                "received": found.envelope.received if found.envelope else 0.0,
                "recipients": [recipient.address for recipient in found.envelope.recipients] if found.envelope else [],
            }
            for found in await self._spool.quarantined()
        ]

    async def release(self, number: int) -> int:
        """Queue it again, as after a repair; what is still damaged comes back here. Answers 1."""
        if await self._find(number) is None:
            raise NotFound(f"the envelope of message {number} cannot be read: nobody knows where it is to go")
        await self._spool.resume(number)
        self._log.info("message.released", message=number)
        self._categorizer.place(number, await self._spool.envelope(number))
        return 1

    async def forget_message(self, number: int) -> int:
        """Remove it with its content; its sender is not told. Answers 1."""
        envelope = await self._find(number)
        await self._spool.forget(number)
        if envelope is not None:
            self.forgotten(number, envelope)
        sender = envelope.sender if envelope is not None else ""
        self._log.info("message.forgotten", message=number, sender=sender)
        return 1

    async def _find(self, number: int) -> Envelope | None:
        for found in await self._spool.quarantined():
            if found.number == number:
                return found.envelope
        raise NotFound(f"there is no quarantined message {number}")
