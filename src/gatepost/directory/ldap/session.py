"""One connection to an LDAP server, by python-ldap (OpenLDAP's library). Everything here blocks, in threads."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

os.environ.setdefault("LDAPNOINIT", "1")  # what /etc/ldap/ldap.conf and ~/.ldaprc say is for others' programs

import ldap
from ldap.controls import LDAPControl, SimplePagedResultsControl

from gatepost.directory.ldap.entries import Entry
from gatepost.directory.ldap.road import Roads
from gatepost.directory.pool import Broken, cut_off
from gatepost.directory.port import DirectoryUnavailable
from gatepost.directory.settings import LdapServer

MAX_ENTRIES = 4
"""A name is one user's: of more entries than this none is looked at."""
PLAIN = "ldap://"
"""To the library every connection is one in clear; see `road`."""
PAGE_ENTRIES = 500
"""Half of what Active Directory sends at most in one page."""
MAX_PAGES = 1000
"""A server that sends more of them, perhaps empty ones, has lost its way."""
SHOW_DELETED = "1.2.840.113556.1.4.417"
"""The control by which Active Directory shows what is left of deleted entries."""
LOOP_SECONDS = 2.0
"""So much longer than its own deadline a thread waits for the loop that connects for it."""

_LOST = (
    ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT, ldap.DECODING_ERROR, ldap.LOCAL_ERROR, ldap.BUSY,
    ldap.UNAVAILABLE, ldap.TIMELIMIT_EXCEEDED,
)  # fmt: skip
"""The connection is of no use any more, or another server may have time."""
_REFUSED = {
    "525": "no such account", "52e": "wrong password", "530": "not at this time", "531": "not from this machine",
    "532": "the password has expired", "533": "disabled", "701": "the account has expired",
    "773": "the password must be changed", "775": "locked out",
}  # fmt: skip
"""What Active Directory says behind `data` when a bind is refused."""


WRONG = "wrong password"
"""Of an account that there is not, servers say the same."""


class Referred(Exception):
    """The server does not have what was asked for and names another one."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class TooMany(DirectoryUnavailable):
    """More entries match than are looked at."""


class LdapSession:
    """A connection; `bind` says whose."""

    def __init__(self, server: LdapServer, roads: Roads, loop: asyncio.AbstractEventLoop) -> None:
        """Connects, with the help of `loop`, which another thread runs. Raises `Broken`."""
        self._seconds = server.seconds
        connecting = roads.open(server)
        try:
            opening = asyncio.run_coroutine_threadsafe(connecting, loop)
        except RuntimeError as ended:  # the loop is closed; so is whatever wanted the session
            connecting.close()
            raise Broken("given up") from ended
        try:
            self._socket: socket.socket | None = opening.result(server.seconds + LOOP_SECONDS)
        except (OSError, FutureTimeoutError, CancelledError) as fault:
            opening.cancel()
            raise Broken(str(fault) or "cannot connect") from fault
        try:
            # The library closes what it is given; ours stays to be cut.
            self._ldap = ldap.initialize(PLAIN, fileno=os.dup(self._socket.fileno()), bytes_strictness="silent")
            self._ldap.set_option(ldap.OPT_PROTOCOL_VERSION, ldap.VERSION3)
            self._ldap.set_option(ldap.OPT_REFERRALS, ldap.OPT_OFF)
            self._ldap.set_option(ldap.OPT_TIMEOUT, server.seconds)
            self._ldap.set_option(ldap.OPT_RESTART, ldap.OPT_OFF)
        except ldap.LDAPError as fault:
            self._socket.close()
            raise Broken(describe(fault)) from fault

    def bind(self, dn: str, password: bytes) -> str:
        """Become `dn`. Empty, or why that was refused. Raises `Broken`, `DirectoryUnavailable`.

        An empty password is refused here: for a server it means "nobody in particular", and always succeeds
        (RFC 4513 section 5.1.2).
        """
        if not password or not dn:
            return "an empty password"
        try:
            self._ldap.simple_bind_s(dn, password)
        except ldap.INVALID_CREDENTIALS as fault:
            return _refusal(fault)
        except (ldap.INAPPROPRIATE_AUTH, ldap.NO_SUCH_OBJECT) as fault:
            return describe(fault)
        except ldap.LDAPError as fault:
            raise self._fault(fault) from fault
        return ""

    def search(self, base: str, question: str, attributes: tuple[str, ...]) -> list[Entry]:
        """The entries below `base` that match the filter `question`. Raises `Broken`, `Referred` and
        `DirectoryUnavailable`.
        """
        try:
            message = self._ldap.search_ext(
                base,
                ldap.SCOPE_SUBTREE,
                question,
                list(attributes),
                timeout=self._seconds,
                sizelimit=MAX_ENTRIES,
            )
            _, found = self._ldap.result(message, all=1, timeout=self._seconds)
        except ldap.REFERRAL as fault:
            raise Referred(_referred_to(fault)) from fault
        except ldap.SIZELIMIT_EXCEEDED as fault:
            raise DirectoryUnavailable(f"more than {MAX_ENTRIES} entries match {question}") from fault
        except ldap.NO_SUCH_OBJECT as fault:
            raise DirectoryUnavailable(f"the server has no entry {base!r} to search below") from fault
        except ldap.INSUFFICIENT_ACCESS as fault:
            raise DirectoryUnavailable(f"the account may not search below {base!r}: {describe(fault)}") from fault
        except ldap.LDAPError as fault:
            raise self._fault(fault) from fault
        return _entries(found)

    def read(self, dn: str, attributes: tuple[str, ...]) -> Entry | None:
        """The entry `dn`, empty for the server's own (RFC 4512 section 5.1); None where it is not, or hidden.

        Raises `Broken`, `DirectoryUnavailable`.
        """
        try:
            message = self._ldap.search_ext(dn, ldap.SCOPE_BASE, attrlist=list(attributes), timeout=self._seconds)
            _, found = self._ldap.result(message, all=1, timeout=self._seconds)
        except ldap.NO_SUCH_OBJECT:
            return None
        except ldap.LDAPError as fault:
            raise self._fault(fault) from fault
        return next(iter(_entries(found)), None)

    def pages(
        self, base: str, question: str, attributes: tuple[str, ...], most: int, *, deleted: bool = False
    ) -> list[Entry]:
        """All entries below `base` that match, fetched by pages (RFC 2696); none where there is no `base`.

        With `deleted` also those that are deleted, as far as the account may see them. Raises `Broken`,
        `DirectoryUnavailable` and, for more than `most` entries, `TooMany`.
        """
        page = SimplePagedResultsControl(criticality=True, size=PAGE_ENTRIES, cookie=b"")
        controls = [page, *([LDAPControl(SHOW_DELETED, False, None)] if deleted else [])]
        entries: list[Entry] = []
        for _ in range(MAX_PAGES):
            try:
                message = self._ldap.search_ext(
                    base,
                    ldap.SCOPE_SUBTREE,
                    question,
                    list(attributes),
                    serverctrls=controls,
                    timeout=self._seconds,
                )
                _, found, _, answered = self._ldap.result3(message, all=1, timeout=self._seconds)
            except ldap.NO_SUCH_OBJECT:
                return entries
            except ldap.LDAPError as fault:
                raise self._fault(fault) from fault
            entries += _entries(found)
            if len(entries) > most:
                raise TooMany(f"more than {most} entries match {question}")
            cookies = [control.cookie for control in answered if control.controlType == page.controlType]
            if not cookies or not cookies[0]:
                return entries
            page.cookie = cookies[0]
        raise DirectoryUnavailable(f"more than {MAX_PAGES} pages for {question}")

    def cut(self) -> None:
        """See `Session`."""
        cut_off(self._socket)

    def close(self) -> None:
        """See `Session`."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
        with suppress(ldap.LDAPError):
            self._ldap.unbind_ext_s()

    def _fault(self, fault: ldap.LDAPError) -> Exception:
        """Whether the connection is lost or the server has answered that it cannot."""
        if isinstance(
            fault, (ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT, ldap.DECODING_ERROR, ldap.LOCAL_ERROR)
        ):
            return Broken(describe(fault))
        if isinstance(fault, (ldap.BUSY, ldap.UNAVAILABLE, ldap.TIMELIMIT_EXCEEDED)):
            return Broken(describe(fault))  # another server may have time
        return DirectoryUnavailable(describe(fault))


def _entries(found: Iterable[tuple[str | None, Any]]) -> list[Entry]:
    """Without references (None): other servers have more below the base; `docs/directories.md`."""
    return [(dn, {name.lower(): list(each) for name, each in values.items()}) for dn, values in found if dn is not None]


def describe(fault: ldap.LDAPError) -> str:
    """One line for the log."""
    told = fault.args[0] if fault.args and isinstance(fault.args[0], dict) else {}
    parts = [str(told.get(key)) for key in ("desc", "info") if told.get(key)]
    return " ".join(": ".join(parts).split())[:300] or type(fault).__name__


def _refusal(fault: ldap.LDAPError) -> str:
    told = fault.args[0] if fault.args and isinstance(fault.args[0], dict) else {}
    _, found, rest = str(told.get("info", "")).partition(", data ")
    return _REFUSED.get(rest.partition(",")[0].strip().lower(), WRONG) if found else WRONG


def _referred_to(fault: ldap.LDAPError) -> str:
    told = fault.args[0] if fault.args and isinstance(fault.args[0], dict) else {}
    lines = str(told.get("info", "")).split()
    return next((line for line in lines if line.lower().startswith(("ldap:", "ldaps:"))), "another server")
