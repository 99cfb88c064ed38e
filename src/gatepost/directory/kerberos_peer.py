"""The ticket of another front end (SPEC C11): who it is, and whether it has sealed what it says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import gssapi
from gssapi.raw import ChannelBindings
from gssapi.raw.misc import GSSError

from gatepost.directory.check_queue import QueueFull
from gatepost.directory.kerberos_port import MAX_TOKEN
from gatepost.directory.kerberos_ticket import ticket_service
from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import Protocol

if TYPE_CHECKING:
    from gatepost.directory.kerberos import Kerberos

SECONDS = 5.0
_CHANNEL_BOUND = gssapi.RequirementFlag.channel_bound


@dataclass(slots=True)
class SealedTicket:
    """A ticket that was found good. `principal`: whose it is; nothing is said of whether they may do anything."""

    principal: str
    _context: gssapi.SecurityContext = field(repr=False)

    def sealed(self, payload: bytes, seal: bytes) -> bool:
        """Whether whoever has shown the ticket has made `seal` for `payload`."""
        try:
            self._context.verify_signature(payload, seal)
        except GSSError:
            return False
        return True


async def judge(
    kerberos: Kerberos, token: bytes, service: str, client: str, binding: bytes
) -> SealedTicket | SignInResult:
    """Judge the ticket in `token`, made for `service` (`HTTP/host`) and bound to a TLS channel. Never raises."""
    outcome: SealedTicket | SignInResult = _refused(Verdict.UNAVAILABLE, "the ticket could not be judged")

    def work() -> bool:
        nonlocal outcome
        outcome = _judge(kerberos, token, service, binding)
        return True

    try:
        future = kerberos.queue.put(client, work)
    except QueueFull as full:
        return SignInResult(Verdict.BUSY, reason=str(full))
    await asyncio.wait([future], timeout=SECONDS)
    if not future.done():
        return _refused(Verdict.UNAVAILABLE, "the ticket took too long to judge")
    if future.cancelled():
        return SignInResult(Verdict.BUSY, reason="the ticket gave way to one of another address")
    future.result()
    return outcome


def _judge(kerberos: Kerberos, token: bytes, service: str, binding: bytes) -> SealedTicket | SignInResult:
    asked = ticket_service(token) if len(token) <= MAX_TOKEN else ""
    if asked.casefold() != service.casefold():
        return _refused(Verdict.WRONG_CREDENTIALS, f"a ticket for another service: {asked or 'unreadable'}")
    begun = False
    try:
        credentials = kerberos.credentials(Protocol.HTTPS)
        bindings = ChannelBindings(application_data=binding)
        context = gssapi.SecurityContext(creds=credentials, usage="accept", channel_bindings=bindings)
        begun = True
        context.step(token)
        if not context.complete:
            return _refused(Verdict.WRONG_CREDENTIALS, "a ticket that wants another round")
        if not context.actual_flags & _CHANNEL_BOUND:
            return _refused(Verdict.WRONG_CREDENTIALS, "the ticket is not bound to this TLS connection")
        return SealedTicket(str(context.initiator_name), context)
    except GSSError as error:
        return kerberos.fault(error, begun=begun)


def _refused(verdict: Verdict, reason: str) -> SignInResult:
    return SignInResult(verdict, reason=f"Kerberos: {reason}")
