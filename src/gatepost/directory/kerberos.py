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
from gssapi.exceptions import GSSError

from gatepost.directory.check_queue import CheckQueue, QueueFull
from gatepost.directory.kerberos_port import (
    MAX_TOKEN,
    Accepted,
    Challenge,
    KerberosExchange,
)
from gatepost.directory.port import SignInResult, Verdict
from gatepost.directory.principals import NoUser, authorization_name, login_name, split_principal
from gatepost.directory.settings import KerberosSettings
from gatepost.organization.model import Protocol

SERVICES = {Protocol.HTTPS: "http", Protocol.IMAP: "imap", Protocol.POP3: "pop", Protocol.SUBMISSION: "smtp"}
"""First component of the service principal, by protocol (RFC 4559 section 4, RFC 4752 with the protocols' profiles)."""

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
_OUR_FAULTS = frozenset({gssapi.exceptions.MissingCredentialsError, gssapi.exceptions.ExpiredCredentialsError})
_TICKET_EXPIRED = -1765328352
"""KRB5KRB_AP_ERR_TKT_EXPIRED: GSSAPI reports it with the same major code as expired keys of ours."""
_LAST = -1765328130
_FIRST = -1765328384
"""Codes of the Kerberos library itself (`krb5.h`); a minor code beyond them is the operating system's or the disk's."""
_KEY_FAULTS = frozenset({-1765328205, -1765328203 - 1_000_000})
_REPLAY_FAULTS = range(-1765328202, -1765328189)


class Kerberos:
    """Begins exchanges. Belongs to the loop it is used in. The keytab is opened when it is needed, and again after a
    fault, so that a missing one may come later; its keys are read at each ticket, so that they may be rolled over.

    `waiting_limit` and `per_address` bound the steps that wait, as with passwords.
    """

    def __init__(self, settings: KerberosSettings, *, waiting_limit: int, per_address: int) -> None:
        self.settings = settings
        self.realms = dict(settings.realms)
        self.domains = dict(settings.netbios_domains)
        self.principals = frozenset(name.casefold() for name in settings.service_principals)
        self.queue = CheckQueue(THREADS, waiting_limit, per_address)
        self._credentials: dict[bool, gssapi.Credentials] = {}

    def serves(self, protocol: Protocol) -> bool:
        """Whether there is a service principal for this protocol, as far as the configuration says."""
        service = SERVICES.get(protocol)
        if service is None:
            return False
        return not self.principals or any(name.startswith(f"{service}/") for name in self.principals)

    def begin(self, protocol: Protocol, client: str) -> KerberosExchange:
        """A new exchange with the client at this address: SPNEGO or Kerberos for HTTPS, else SASL GSSAPI."""
        return _Exchange(self, protocol, client)

    def close(self) -> None:
        """Take no more steps; those that run end in their threads."""
        self.queue.close()

    def credentials(self, *, spnego: bool) -> gssapi.Credentials:
        """Ours, from the keytab. Raises `GSSError`."""
        found = self._credentials.get(spnego)
        if found is None:
            mechanisms = [_KRB5, _SPNEGO] if spnego else [_KRB5]
            store = {"keytab": f"FILE:{self.settings.keytab}"}
            found = gssapi.Credentials(usage="accept", mechs=mechanisms, store=store)
            self._credentials[spnego] = found
        return found

    def forget_credentials(self) -> None:
        """They did not serve: the next exchange opens the keytab anew."""
        self._credentials.clear()

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
            self._outcome = self._fault(error)
        return True

    def _judge(self, token: bytes) -> Challenge | Accepted | SignInResult:
        web = self.protocol is Protocol.HTTPS
        context = self._context
        if context is None:
            credentials = self.kerberos.credentials(spnego=web)
            context = self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        if self._offered:
            return self._layer_chosen(context, token)
        answer = b""
        if not context.complete:
            answer = context.step(token) or b""
            if not context.complete:
                return Challenge(answer)
            self._check_service(context)
            self._principal = str(context.initiator_name)
        elif token:
            return _wrong("a token after the last")
        name = login_name(self._principal, self.kerberos.realms)
        if web:
            return Accepted(name, self._principal, answer)
        if answer:
            return Challenge(answer)  # its response is empty; then our offer
        self._offered = True
        return Challenge(context.wrap(_NO_LAYER, encrypt=False).message)

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

    def _check_service(self, context: gssapi.SecurityContext) -> None:
        """A ticket for one service is none for another, although the keytab has both keys. Raises `NoUser`."""
        parts, _ = split_principal(str(context.target_name))
        name = "/".join(parts)
        if parts[0].casefold() != SERVICES[self.protocol]:
            raise NoUser(f"a ticket for another service: {name}")
        if self.kerberos.principals and name.casefold() not in self.kerberos.principals:
            raise NoUser(f"a ticket for a service principal that is not configured: {name}")

    def _fault(self, error: GSSError) -> SignInResult:
        reason = _words(error)
        fault = self.kerberos.keytab_fault()
        if fault or self._context is None or _is_ours(error.min_code):
            self.kerberos.forget_credentials()
            return _unavailable(fault or reason)
        return _wrong(reason)


def _is_ours(minor: int) -> bool:
    """Whether the fault is of this machine: the replay cache, a disk, memory."""
    return minor in _REPLAY_FAULTS or 0 < minor < 200


def _words(error: GSSError) -> str:
    """What the library says, in one line."""
    texts = [text for text in error.get_all_statuses(error.min_code, False) if text]
    return " ".join(texts or error.get_all_statuses(error.maj_code, True))[:200]


def _wrong(reason: str) -> SignInResult:
    return SignInResult(Verdict.WRONG_CREDENTIALS, reason=f"Kerberos: {reason}")


def _unavailable(reason: str) -> SignInResult:
    return SignInResult(Verdict.UNAVAILABLE, reason=f"Kerberos: {reason}")
