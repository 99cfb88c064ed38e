"""Tickets that a front end asks for: as itself at other front ends, and for its users at mailbox servers (MS-SFU).

    user ──► evidence of a ticket shown here? ──► else S4U2Self ──► kept ──► S4U2Proxy for the server ──► context
    own account ──► keytab ──► ticket-granting ticket in memory, renewed at half its life ──► context

Unlike judging tickets this asks a key distribution centre, which may hang: that goes on in threads of its own, bounded
in number and time, and what needs no asking does not wait behind it. Whatever fails is a fault between servers, for the
client a temporary one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, TypeVar

import gssapi
from gssapi.raw import ChannelBindings
from gssapi.raw.misc import GSSError

from gatepost.directory.gss_client import GssClient
from gatepost.directory.kerberos_port import NoTicket
from gatepost.directory.principals import NoUser, split_principal, user_principal
from gatepost.directory.settings import KerberosSettings

ASK_SECONDS = 5.0
"""Longest wait for a ticket, whatever the key distribution centre does."""
ASKING_THREADS = 6
THREADS = 2
"""For what is in memory: a tenth of a millisecond each."""
MAX_WAITING = 500
"""Who waits for a thread; more are told to come again."""
MAX_USERS = 4096
"""Users whose tickets are kept, about 10 kB each."""
USER_SECONDS = 900.0
"""After this a user's tickets are asked for anew: by then the directory may not allow them any more."""
OWN_SECONDS = 60.0
"""Between looks at our own ticket; the library renews it at half its life."""
FORGET_SECONDS = 300.0
"""Between two times that our own tickets are thrown away because they were refused."""

_KRB5 = gssapi.MechType.kerberos
_PRINCIPAL = gssapi.NameType.kerberos_principal
_INTEGRITY = gssapi.RequirementFlag.integrity
_MUTUAL = gssapi.RequirementFlag.mutual_authentication
_FIRST_CODE = -1765328384 + (1 << 32)
_NO_CLIENT, _NO_SERVER, _POLICY, _BAD_OPTION = (_FIRST_CODE + code for code in (6, 7, 12, 13))
"""Errors of RFC 4120 section 7.5.9 as the library numbers them."""
_NUMBERS = count(1)
_T = TypeVar("_T")


@dataclass(slots=True)
class _Account:
    """Our own account and its ticket-granting ticket."""

    principal: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    credentials: gssapi.Credentials | None = None
    until: float = 0.0
    cache: str = ""
    anew: bool = False
    """A server took our ticket not: the next one is to be a new one."""
    ready: set[str] = field(default_factory=set)
    """Services whose tickets are in memory."""
    forgotten: float = float("-inf")


@dataclass(slots=True)
class _ForUser:
    """What stands for a user: evidence, or the ticket of S4U2Self."""

    credentials: gssapi.Credentials
    until: float
    evidence: bool
    ready: set[str] = field(default_factory=set)


class OnwardTickets:
    """Asks for tickets. Belongs to the loop it is used in. `clock`: seconds, monotonic."""

    def __init__(self, settings: KerberosSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._domains = {domain.casefold(): realm for realm, domain in reversed(settings.realms)}
        self._accounts = {
            name: _Account(name) for name in (settings.delegation_principal, settings.peer_principal) if name
        }
        self._users: dict[str, _ForUser] = {}
        self._lock = threading.Lock()
        self._asking = ThreadPoolExecutor(ASKING_THREADS, thread_name_prefix="kerberos-ask")
        self._quick = ThreadPoolExecutor(THREADS, thread_name_prefix="kerberos")
        self._waiting = 0
        self._preparing = False
        self.prepare()

    def close(self) -> None:
        """Ask no more; what is under way ends in its threads."""
        self._asking.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=False, cancel_futures=True)

    # --- as a user

    async def dialogue(self, user: str, service: str) -> GssClient:
        """The client's side of SASL GSSAPI as `user` at `service` (`imap/host`), its first token made.

        Raises `NoTicket`.
        """
        return await self._for_user(user, service, lambda c: GssClient(c, c.step() or b""), mutual=True)

    async def web_token(self, user: str, service: str, binding: bytes) -> bytes:
        """A token of HTTP Negotiate for one request of `user`, bound to the TLS channel. Raises `NoTicket`."""
        return await self._for_user(user, service, _first_token, binding=binding)

    def keep_evidence(self, user: str, credentials: gssapi.Credentials) -> None:
        """`user` (canonical) has shown a ticket here that may be carried on. From any thread."""
        try:
            principal = self._principal_of(user)
        except NoTicket:
            return
        seconds = min(_seconds(credentials), USER_SECONDS)
        known = self._users.get(principal)
        if seconds > 0 and (known is None or self._clock() >= known.until):
            self._keep(principal, _ForUser(credentials, self._clock() + seconds, evidence=True))

    def refused(self, user: str, service: str) -> None:
        """A server took the ticket for `service` not: its key may be another by now, so the next one is a new one."""
        name = self._principal_of(user)
        self._drop(name)
        self._forget(service)

    def acceptor_credentials(self, mechanisms: list[gssapi.OID]) -> gssapi.Credentials | None:
        """Credentials that open tickets and keep them as evidence; None while our own ticket is not at hand.

        Never asks anybody: tickets are judged without a key distribution centre.
        """
        account = self._accounts.get(self.settings.delegation_principal)
        if account is None or account.credentials is None or self._clock() >= account.until:
            return None
        keytab = f"FILE:{self.settings.keytab}"
        store: dict[bytes | str, bytes | str] = {"keytab": keytab, "ccache": account.cache}
        return gssapi.Credentials(usage="both", mechs=mechanisms, store=store)

    def prepare(self) -> None:
        """Have our own account's ticket at hand soon, as far as that can be had: evidence is kept only with it."""
        account = self._accounts.get(self.settings.delegation_principal)
        if account is None or self._preparing or self._clock() < account.until:
            return
        self._preparing = True
        try:
            self._asking.submit(self._prepare, account.principal)
        except RuntimeError:  # closed
            self._preparing = False

    def _prepare(self, principal: str) -> None:
        try:
            self._own(principal)
        except GSSError:
            return  # whoever needs it is told
        finally:
            self._preparing = False

    # --- as ourselves

    async def as_peer(self, service: str, binding: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """A token for the front end behind `service`, bound to the TLS channel, and the seal of that context on
        `payload` (a MIC, RFC 2743 section 2.3.1). Raises `NoTicket`.
        """
        account = self._accounts[self.settings.peer_principal]

        def make() -> tuple[bytes, bytes]:
            context = _context(self._own(account.principal), self._full(service), binding)
            token = _first_token(context)
            account.ready.add(service)
            return token, context.get_signature(payload)

        quick = service in account.ready and self._clock() < account.until
        return await self._run(make, quick=quick, about=service)

    def peer_refused(self, service: str) -> None:
        """The front end behind `service` took our ticket not."""
        self._forget(service)

    # --- in the loop

    async def _for_user(
        self,
        user: str,
        service: str,
        use: Callable[[gssapi.SecurityContext], _T],
        *,
        mutual: bool = False,
        binding: bytes = b"",
    ) -> _T:
        principal = self._principal_of(user)
        known = self._users.get(principal)
        quick = known is not None and self._clock() < known.until and service in known.ready
        work = partial(self._as_user, principal, service, use, mutual, binding)
        return await self._run(work, quick=quick, about=f"{service} for {principal}")

    async def _run(self, work: Callable[[], _T], *, quick: bool, about: str = "") -> _T:
        if self._waiting >= MAX_WAITING:
            raise NoTicket("too many wait for Kerberos tickets")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        try:
            future = loop.run_in_executor(self._quick if quick else self._asking, work)
        except RuntimeError:
            self._waiting -= 1
            raise NoTicket("the configuration has changed") from None
        future.add_done_callback(self._ended)
        await asyncio.wait([future], timeout=ASK_SECONDS)
        if future.cancelled():
            raise NoTicket("the configuration has changed")
        if not future.done():
            future.cancel()
            raise NoTicket(f"no ticket within {ASK_SECONDS:g} s: {about}")
        try:
            return future.result()
        except NoUser as none:
            raise NoTicket(str(none)) from none
        except GSSError as error:
            raise NoTicket(self._reason(error, about)) from error

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # nobody may be there to take it

    def _principal_of(self, user: str) -> str:
        if not self.settings.delegation_principal:
            raise NoTicket("configuration: no delegation_principal, so no tickets of users")
        try:
            return user_principal(user, self._domains)
        except NoUser as none:
            raise NoTicket(f"configuration: {none}") from none

    def _reason(self, error: GSSError, about: str) -> str:
        account = self.settings.delegation_principal
        if error.min_code in (_BAD_OPTION, _POLICY):
            return (
                f"configuration: {account} may not get a ticket to {about} (allow the delegation in the directory; "
                "and forwardable = true in krb5.conf)"
            )
        if error.min_code == _NO_SERVER:
            service = about.partition(" for ")[0]
            return f"configuration: the realm has no service principal {service}, or {account} has none of its own"
        if error.min_code == _NO_CLIENT:
            return f"configuration: the realm does not know an account: {about or account}"
        texts = [text for text in error.get_all_statuses(error.min_code, False) if text]
        return f"no ticket to {about}: {' '.join(texts or error.get_all_statuses(error.maj_code, True))[:200]}"

    # --- in threads

    def _as_user(
        self,
        principal: str,
        service: str,
        use: Callable[[gssapi.SecurityContext], _T],
        mutual: bool,
        binding: bytes,
    ) -> _T:
        known = self._users.get(principal)
        if known is not None and self._clock() < known.until:
            try:
                return self._use(known, service, use, mutual, binding)
            except GSSError:
                self._drop(principal)
                if not known.evidence:
                    raise
                # No evidence is a ticket that is not forwardable, or of another account of ours. By protocol
                # transition it may be allowed.
        made = self._impersonate(principal)
        done = self._use(made, service, use, mutual, binding)
        self._keep(principal, made)
        return done

    def _use(
        self,
        known: _ForUser,
        service: str,
        use: Callable[[gssapi.SecurityContext], _T],
        mutual: bool,
        binding: bytes,
    ) -> _T:
        done = use(_context(known.credentials, self._full(service), binding, mutual=mutual))
        known.ready.add(service)
        return done

    def _drop(self, principal: str) -> None:
        with self._lock:
            self._users.pop(principal, None)

    def _impersonate(self, principal: str) -> _ForUser:
        """S4U2Self: the directory says that this account speaks for the user."""
        own = self._own(self.settings.delegation_principal)
        name = gssapi.Name(principal, _PRINCIPAL)
        credentials = own.impersonate(name=name, usage="initiate", mechs=[_KRB5])
        seconds = min(_seconds(credentials), USER_SECONDS)
        return _ForUser(credentials, self._clock() + seconds, evidence=False)

    def _keep(self, principal: str, made: _ForUser) -> None:
        with self._lock:
            self._users.pop(principal, None)
            while len(self._users) >= MAX_USERS:
                del self._users[next(iter(self._users))]
            self._users[principal] = made

    def _own(self, principal: str) -> gssapi.Credentials:
        """Our own credentials, good now. The library renews them from the keytab when they are opened again.

        While that fails, or hangs, those that are good still go on.
        """
        account = self._accounts[principal]
        if account.credentials is not None and self._clock() < account.until:
            return account.credentials
        alive = account.credentials is not None and _seconds(account.credentials) > 0
        if not account.lock.acquire(blocking=not alive):
            assert account.credentials is not None
            return account.credentials
        try:
            if account.credentials is not None and self._clock() < account.until:
                return account.credentials
            if alive:
                account.until = self._clock() + OWN_SECONDS
            try:
                return self._open(account)
            except GSSError:
                if not alive or account.credentials is None:
                    raise
                return account.credentials
        finally:
            account.lock.release()

    def _open(self, account: _Account) -> gssapi.Credentials:
        cache = account.cache if account.cache and not account.anew else f"MEMORY:gatepost-{next(_NUMBERS)}"
        keytab = f"FILE:{self.settings.keytab}"
        store: dict[bytes | str, bytes | str] = {"client_keytab": keytab, "ccache": cache}
        name = gssapi.Name(account.principal, _PRINCIPAL)
        found = gssapi.Credentials(name=name, usage="initiate", mechs=[_KRB5], store=store)
        seconds = _seconds(found)
        if cache != account.cache:
            account.cache, account.anew, account.ready = cache, False, set()
        account.credentials, account.until = found, self._clock() + min(OWN_SECONDS, seconds / 2)
        return found

    def _forget(self, service: str) -> None:
        """Ask for our own tickets anew, those for `service` among them; not again and again."""
        now = self._clock()
        for account in self._accounts.values():
            if service in account.ready and now - account.forgotten >= FORGET_SECONDS:
                account.forgotten, account.until, account.anew = now, 0.0, True

    def _full(self, service: str) -> str:
        """With the realm of our own account, where none is said."""
        if "@" in service:
            return service
        own = self.settings.delegation_principal or self.settings.peer_principal
        return f"{service}@{split_principal(own)[1]}"


def _context(
    credentials: gssapi.Credentials, service: str, binding: bytes, *, mutual: bool = False
) -> gssapi.SecurityContext:
    # The whole principal, not a host: nothing is looked up for it in the DNS.
    return gssapi.SecurityContext(
        name=gssapi.Name(service, _PRINCIPAL),
        creds=credentials,
        usage="initiate",
        mech=_KRB5,
        flags=_INTEGRITY | _MUTUAL if mutual else _INTEGRITY,
        channel_bindings=ChannelBindings(application_data=binding) if binding else None,
    )


def _seconds(credentials: gssapi.Credentials) -> float:
    """For how long they are good yet."""
    try:
        return float(credentials.lifetime or 0)
    except GSSError:
        return 0.0


def _first_token(context: gssapi.SecurityContext) -> bytes:
    token: bytes = context.step() or b""
    assert context.complete  # one way: nothing comes back; also raises what the library has put off
    return token
