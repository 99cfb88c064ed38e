"""Kerberos tickets judged by the system's GSSAPI: HTTP Negotiate (RFC 4559) and SASL GSSAPI (RFC 4752).

    token ──► exchange.step ──► bounded queue, threads: accept ──► Challenge ──► token … ──► Accepted or SignInResult

No key distribution centre is asked: a ticket is opened with a key of the keytab. What is amiss with a ticket is the
client's (`WRONG_CREDENTIALS`), what is amiss with our keytab or our machine is not (`UNAVAILABLE`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import gssapi
from gssapi.raw.misc import GSSError

from gatepost.directory.check_queue import CheckQueue, QueueFull
from gatepost.directory.kerberos_onward import OnwardTickets
from gatepost.directory.kerberos_peer import SealedTicket, judge
from gatepost.directory.kerberos_port import MAX_TOKEN, SERVICES, Accepted, Challenge, KerberosExchange
from gatepost.directory.kerberos_ticket import ticket_service
from gatepost.directory.port import SignInResult, Verdict
from gatepost.directory.principals import NoUser, authorization_name, login_name
from gatepost.directory.settings import KerberosSettings
from gatepost.organization.model import Protocol

MAX_STEPS = 6
"""Tokens of one exchange: three with DCE style or a refused first guess of SPNEGO, and two for the security layer."""
STEP_SECONDS = 5.0
"""Longest wait for one step, in the queue and in its thread."""
THREADS = 2
"""A step takes a fraction of a millisecond; threads are for disks and replay caches that hang."""

_KRB5 = gssapi.MechType.kerberos
_SPNEGO = gssapi.OID.from_int_seq("1.3.6.1.5.5.2")
_NTLM = b"NTLMSSP\0"
_NO_LAYER = b"\x01\x00\x00\x00"
"""Offer and choice of "no security layer", with the buffer size that goes with it (RFC 4752 section 3.3)."""
_OUR_FAULTS = frozenset(
    code + (1 << 32) for code in (*range(-1765328225, -1765328211), -1765328200, -1765328173, -1765328169, -1765328149)
)
"""Minor codes of the replay cache (KRB5_RC_… in `krb5.h`), of reading a keytab (KRB5_KT_IOERR, KRB5_KT_FORMAT)."""
_MAX_ERRNO = 200


class Kerberos:
    """Begins exchanges. Belongs to the loop it is used in. The keytab is opened when it is needed, and again after a
    fault, so that a missing one may come later; its keys are read at each ticket, so that they may be rolled over.

    `waiting_limit` and `per_address` bound the steps that wait, as with passwords.
    """

    def __init__(
        self,
        settings: KerberosSettings,
        *,
        waiting_limit: int,
        per_address: int,
        onward: OnwardTickets | None = None,
    ) -> None:
        self.settings = settings
        self.onward = onward
        self.realms = dict(settings.realms)
        self.domains = dict(settings.netbios_domains)
        self.principals = frozenset(name.casefold() for name in settings.service_principals)
        self.queue = CheckQueue(THREADS, waiting_limit, per_address)
        self._credentials: dict[Protocol, gssapi.Credentials] = {}

    def serves(self, protocol: Protocol) -> bool:
        """Whether there is a service principal for this protocol, as far as the configuration says."""
        service = SERVICES.get(protocol, "")
        return any(name.startswith(f"{service.casefold()}/") for name in self.principals)

    def begin(self, protocol: Protocol, client: str) -> KerberosExchange:
        """A new exchange with the client at this address: SPNEGO or Kerberos for HTTPS, else SASL GSSAPI."""
        return _Exchange(self, protocol, client)

    def close(self) -> None:
        """Take no more steps; those that run end in their threads."""
        self.queue.close()

    def credentials(self, protocol: Protocol) -> gssapi.Credentials:
        """The keys of one service, whatever its host. Raises `GSSError`."""
        found = self._credentials.get(protocol)
        if found is None:
            mechanisms = _mechanisms(protocol)
            # No host: what a client calls us is in its ticket, and no name is looked up for it in the DNS.
            name = gssapi.Name(SERVICES[protocol], gssapi.NameType.hostbased_service)
            store: dict[bytes | str, bytes | str] = {"keytab": f"FILE:{self.settings.keytab}"}
            found = gssapi.Credentials(name=name, usage="accept", mechs=mechanisms, store=store)
            self._credentials[protocol] = found
        return found

    def forget_credentials(self) -> None:
        """They did not serve: the next exchange opens the keytab anew."""
        self._credentials.clear()

    def fault(self, error: GSSError, *, begun: bool) -> SignInResult:
        """What is amiss: with the ticket, or with us. `begun`: the keytab could be opened."""
        reason = _words(error)
        fault = self.keytab_fault()
        if fault or not begun or _is_ours(error):
            self.forget_credentials()
            return _unavailable(fault or reason)
        return _wrong(reason)

    async def peer_ticket(self, token: bytes, service: str, client: str, binding: bytes) -> SealedTicket | SignInResult:
        """The ticket of another front end, made for `service` and bound to the TLS channel. Never raises."""
        return await judge(self, token, service, client, binding)

    def keytab_fault(self) -> str:
        """Why the keytab cannot be read; empty: it can."""
        try:
            with Path(self.settings.keytab).open("rb") as file:
                return "" if file.read(1) else "the keytab is empty"
        except OSError as fault:
            return f"the keytab cannot be read: {fault.strerror}"


@dataclass(slots=True)
class _Exchange:
    kerberos: Kerberos
    protocol: Protocol
    client: str
    _steps: int = 0
    _context: gssapi.SecurityContext | None = None
    _principal: str = ""
    _offered: bool = False
    _over: bool = False
    _outcome: Challenge | Accepted | SignInResult = field(
        default_factory=lambda: _unavailable("the ticket could not be judged")
    )

    async def step(self, token: bytes) -> Challenge | Accepted | SignInResult:
        """Take the client's token. After anything but a `Challenge` the exchange is over. Never raises."""
        self._steps += 1
        if self._over or self._steps > MAX_STEPS:
            return _wrong("too many steps")
        if len(token) > MAX_TOKEN:
            self._over = True
            return _wrong("the token is too long")
        if _NTLM in token:
            self._over = True
            return _wrong("NTLM is not accepted")
        try:
            work = self.kerberos.queue.put(self.client, lambda: self._work(token))
        except QueueFull as full:
            self._over = True
            return SignInResult(Verdict.BUSY, reason=str(full))
        await asyncio.wait([work], timeout=STEP_SECONDS)
        if not work.done():
            self._over = True
            return _unavailable("the ticket took too long to judge")
        if work.cancelled():
            self._over = True
            return SignInResult(Verdict.BUSY, reason="the ticket gave way to one of another address")
        work.result()
        if not isinstance(self._outcome, Challenge):
            self._over = True
        return self._outcome

    def _work(self, token: bytes) -> bool:
        """In a thread: sets the outcome. One step at a time: the next token comes after this one's answer."""
        try:
            self._outcome = self._judge(token)
        except NoUser as none:
            self._outcome = _wrong(str(none))
        except GSSError as error:
            self._outcome = self.kerberos.fault(error, begun=self._context is not None)
        return True

    def _judge(self, token: bytes) -> Challenge | Accepted | SignInResult:
        web = self.protocol is Protocol.HTTPS
        context = self._context
        if context is None:
            asked = ticket_service(token)
            if asked and asked.partition("/")[0].casefold() != SERVICES[self.protocol].casefold():
                return _wrong(f"a ticket for another service: {asked}")
            credentials = None
            if self.kerberos.onward is not None and asked:
                self.kerberos.onward.prepare()
                credentials = self.kerberos.onward.acceptor_credentials(_mechanisms(self.protocol))
            credentials = credentials or self.kerberos.credentials(self.protocol)
            context = self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        if self._offered:
            return self._layer_chosen(context, token)
        answer = b""
        if not context.complete:
            answer = context.step(token) or b""
            if not context.complete:
                return Challenge(answer)
            self._principal = str(context.initiator_name)
            self._keep_evidence(context)
        elif token:
            return _wrong("a token after the last")
        name = login_name(self._principal, self.kerberos.realms)
        if web:
            return Accepted(name, self._principal, answer)
        if answer:
            return Challenge(answer)  # its response is empty; then our offer
        self._offered = True
        return Challenge(context.wrap(_NO_LAYER, encrypt=False).message)

    def _keep_evidence(self, context: gssapi.SecurityContext) -> None:
        """The ticket may be carried on to mailbox servers (S4U2Proxy), where our account was at hand."""
        onward, evidence = self.kerberos.onward, context.delegated_creds
        if onward is not None and evidence is not None:
            onward.keep_evidence(login_name(self._principal, self.kerberos.realms), evidence)

    def _layer_chosen(self, context: gssapi.SecurityContext, token: bytes) -> Accepted | SignInResult:
        message = context.unwrap(token).message
        if message[:4] != _NO_LAYER:
            return _wrong("a security layer that was not offered")
        try:
            written = message[4:].decode("utf-8")
        except UnicodeDecodeError:
            return _wrong("an authorization identity that is not UTF-8")
        written = authorization_name(written.rstrip("\0"), self._principal, self.kerberos.domains)
        return Accepted(login_name(self._principal, self.kerberos.realms), self._principal, b"", written)


def _mechanisms(protocol: Protocol) -> list[gssapi.OID]:
    return [_KRB5, _SPNEGO] if protocol is Protocol.HTTPS else [_KRB5]


def _is_ours(error: GSSError) -> bool:
    """Whether the fault is of this machine: the replay cache, a disk, memory."""
    if isinstance(error, gssapi.exceptions.InvalidTokenError):
        return False
    return error.min_code in _OUR_FAULTS or 0 < error.min_code < _MAX_ERRNO


def _words(error: GSSError) -> str:
    """What the library says, in one line."""
    if isinstance(error, gssapi.exceptions.InvalidTokenError):
        return "not a token of Kerberos"
    if isinstance(error, gssapi.exceptions.BadChannelBindingsError):
        return "bound to another TLS connection (channel bindings)"
    texts = [text for text in error.get_all_statuses(error.min_code, False) if text]
    return " ".join(texts or error.get_all_statuses(error.maj_code, True))[:200]


def _wrong(reason: str) -> SignInResult:
    return SignInResult(Verdict.WRONG_CREDENTIALS, reason=f"Kerberos: {reason}")


def _unavailable(reason: str) -> SignInResult:
    return SignInResult(Verdict.UNAVAILABLE, reason=f"Kerberos: {reason}")
