"""Changes in Active Directory: one domain controller is asked, again and again, which users have changed.

    every few seconds ── the last number of its changes? ── higher ── who has a higher one than last time? ── told

A domain controller numbers its changes, and an entry bears the number of its last one (`uSNChanged`). The numbers are
that controller's own: with another one, or one that was restored (another `invocationId`), all answers are void and the
counting begins anew. What is left of a deleted user is hidden from accounts without a right; see
`docs/active-directory.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from gatepost.directory.ldap.entries import Entry, texts_of
from gatepost.directory.ldap.mapping import Mapping as Attributes
from gatepost.directory.ldap.session import LdapSession, TooMany
from gatepost.directory.pool import Broken
from gatepost.directory.port import DirectoryUnavailable
from gatepost.organization.names import BadLoginName, canonical_login_name

MAX_CHANGED = 500
"""Users who have changed since the last question and are told one by one; of more, everybody is asked for anew."""
AGAIN_SECONDS = 1.0
"""After a controller has failed, until the next is tried; twice as long after each round in which all have failed."""
LONGEST_SECONDS = 60.0
"""The longest pause: a wrong password must not lock the account, and what is no domain controller becomes none."""
_USERS = "(objectClass=user)(!(objectClass=computer))"
"""What users are also once they are deleted or the directory's own filter does not let them through any more."""


class CannotTell(Broken):
    """The server does not number its changes, or hides the numbers. The message is for the log."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the changes of a domain controller are known."""

    invocation: bytes
    """Which life of which controller counts."""
    number: int


def moved(before: Mark | None, now: Mark) -> bool:
    """Whether the numbers are others than those that were counted, so that nobody knows what was missed."""
    return before is None or before.invocation != now.invocation or now.number < before.number


def mark_of(session: LdapSession) -> Mark:
    """The controller's mark now. Raises `CannotTell`, `Broken`, `DirectoryUnavailable`."""
    root = session.read("", ("highestCommittedUSN", "dsServiceName"))
    numbers = texts_of(root, "highestcommittedusn") if root is not None else []
    services = texts_of(root, "dsservicename") if root is not None else []
    if not numbers or not (numbers[0].isascii() and numbers[0].isdigit()) or not services:
        raise CannotTell("the server does not number its changes: it is no domain controller")
    service = session.read(services[0], ("invocationId",))
    invocations = service[1].get("invocationid", []) if service is not None else []
    if not invocations:
        raise CannotTell(f"the account may not read invocationId of {services[0]}")
    return Mark(invocations[0], int(numbers[0]))


def told(attributes: Attributes, entries: list[Entry]) -> tuple[str, ...]:
    """The names and references of the users whose entries these are; an empty one, for anybody, if one was deleted.

    What is left of a deleted user does not say which names it had.
    """
    found: dict[str, None] = {}
    for entry in entries:
        if any(text.upper() == "TRUE" for text in texts_of(entry, "isdeleted")):
            return ("",)
        found[entry[0]] = None
        for login in attributes.logins:
            for text in texts_of(entry, login.attribute.lower()):
                for name in attributes.names(login, text):
                    try:
                        found[canonical_login_name(name, "")] = None
                    except BadLoginName:
                        continue
    return tuple(found)


class Changes:
    """Asks in a thread of its own. `connect`: server name → a function that opens a session, in order of preference.

    `tell` is called in that thread with names and references, "" for anybody.
    """

    def __init__(
        self,
        name: str,
        connect: Mapping[str, Callable[[], LdapSession]],
        base: str,
        attributes: Attributes,
        seconds: float,
        tell: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._name = name
        self._connect = connect
        self._base = base
        self._attributes = attributes
        self._wanted = tuple(dict.fromkeys(("isDeleted", *(login.attribute for login in attributes.logins))))
        self._seconds = seconds
        self._tell = tell
        self._mark: Mark | None = None
        self._fault = ""
        self._session: LdapSession | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"changes of {name}", daemon=True)
        self._log = structlog.get_logger("gatepost")

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; `join` waits for the end."""
        self._ended.set()
        session = self._session
        if session is not None:
            session.cut()

    def join(self) -> None:
        """Until the thread has ended."""
        self._thread.join()

    def look(self, session: LdapSession) -> None:
        """Ask once, and tell. Raises `Broken`, `DirectoryUnavailable`."""
        now = mark_of(session)
        before, self._mark = self._mark, now
        if before is None or moved(before, now):
            self._tell(("",))
        elif now.number > before.number:
            try:
                names = told(self._attributes, self._changed(session, before))
            except TooMany:
                names = ("",)
            except (Broken, DirectoryUnavailable):
                self._mark = before  # nothing was told: the next controller, or the next question, begins there
                raise
            if names:
                self._tell(names)

    def _changed(self, session: LdapSession, since: Mark) -> list[Entry]:
        wanted = f"(&(uSNChanged>={since.number + 1}){_USERS})"
        return session.pages(self._base, wanted, self._wanted, MAX_CHANGED, deleted=True)

    def _run(self) -> None:
        pause = AGAIN_SECONDS
        while not self._ended.is_set():
            for server, connect in self._connect.items():
                before = self._mark
                try:
                    self._follow(server, connect)
                except (Broken, DirectoryUnavailable) as fault:
                    self._failed(server, str(fault))
                except Exception:  # noqa: BLE001 - whatever a server sends, the next question is asked
                    self._log.exception("directory.engine_failed", directory=self._name)
                if self._mark is not before:
                    pause = AGAIN_SECONDS  # it did answer
                if self._ended.wait(pause):
                    return
            pause = min(2 * pause, LONGEST_SECONDS)

    def _follow(self, server: str, connect: Callable[[], LdapSession]) -> None:
        """Ask this controller for as long as it answers. Raises `Broken`, `DirectoryUnavailable`."""
        session = self._session = connect()
        try:
            while not self._ended.is_set():
                self.look(session)
                if self._fault:
                    self._fault = ""
                    self._log.info("directory.told_again", directory=self._name, server=server)
                self._ended.wait(self._seconds)
        finally:
            self._session = None
            session.close()

    def _failed(self, server: str, reason: str) -> None:
        if not self._ended.is_set() and reason != self._fault:
            self._log.warning("directory.not_told", directory=self._name, server=server, reason=reason)
            self._fault = reason
