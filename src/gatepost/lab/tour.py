"""The tour: step by step, what is expected and what came. It is the whole front door's own acceptance test."""

from __future__ import annotations

import http.client
import imaplib
import poplib
import smtplib
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gatepost.lab import figure
from gatepost.lab.clients import MailAnswer, WebAnswer, imap_visit, pop3_visit, web_visit
from gatepost.lab.fleet import Fleet
from gatepost.lab.servers.gatepost import CommandFailed
from gatepost.lab.servers.process import Address, ServerNotStarted, accepts

Say = Callable[[str], None]

STEP_FAULTS = (
    AssertionError,
    OSError,
    ValueError,
    KeyError,
    CommandFailed,
    ServerNotStarted,
    imaplib.IMAP4.error,
    poplib.error_proto,
    smtplib.SMTPException,
    http.client.HTTPException,
)
"""What makes a step fail; anything else is a bug of the tour and ends it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what is done, what must come, and how. `run` answers what came, or raises with it."""

    title: str
    expected: str
    run: Callable[[Visit], str]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a step."""

    title: str
    expected: str
    came: str
    ok: bool
    seconds: float


class Differs(AssertionError):
    """Something else came than was expected."""


def expect(came: object, is_right: bool) -> str:
    """`came` as text if it is right. Raises `Differs` otherwise."""
    if not is_right:
        raise Differs(str(came))
    return str(came)


class Visit:
    """What the steps work with: the fleet, and clients that trust its certificates."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.tls = ssl.create_default_context(cafile=str(fleet.ca))
        self.users = {user.name.partition("@")[0]: user for user in figure.USERS}
        self.kept: dict[str, imaplib.IMAP4] = {}
        """Sessions that stay open over several steps."""
        self.cookies: dict[str, str] = {}
        """What a browser keeps over several steps."""

    def address(self, front_end: str, endpoint: str) -> Address:
        """Where a front end listens."""
        return self.fleet.front_ends[front_end].addresses[endpoint]

    def imap(self, front_end: str, user: str, *, starttls: bool = False, password: str = "") -> MailAnswer:
        """One visit by IMAP. `user` is `user1` and so on."""
        known = self.users[user]
        address = self.address(front_end, "imap" if starttls else "imaps")
        return imap_visit(address, self.tls, known.name, password or known.password, implicit=not starttls)

    def pop3(self, front_end: str, user: str, *, starttls: bool = False) -> MailAnswer:
        """One visit by POP3."""
        known = self.users[user]
        address = self.address(front_end, "pop3" if starttls else "pop3s")
        return pop3_visit(address, self.tls, known.name, known.password, implicit=not starttls)

    def web(
        self,
        front_end: str,
        user: str = "",
        path: str = "/owa",
        headers: Mapping[str, str] | None = None,
        **how: Any,  # noqa: ANN401 - method and body, as `web_visit` has them
    ) -> WebAnswer:
        """A page, /owa if none is named; signed in by Basic if a user is given."""
        address = self.address(front_end, "https")
        if not user:
            return web_visit(address, self.tls, path, headers=headers, **how)
        known = self.users[user]
        return web_visit(address, self.tls, path, known.name, known.password, headers, **how)

    def close(self) -> None:
        """End the sessions that are still open."""
        for client in self.kept.values():
            client.shutdown()


def take(fleet: Fleet, steps: list[Step], say: Say) -> list[Result]:
    """Take all steps; one that fails does not end the tour."""
    visit = Visit(fleet)
    results = []
    try:
        for number, step in enumerate(steps, 1):
            say(f"\n{number:2}. {step.title}\n    expected: {step.expected}")
            result = _take(step, visit)
            say(f"    came:     {result.came}\n    {'ok' if result.ok else 'FAILED'} ({result.seconds:.2f} s)")
            results.append(result)
            if not result.ok:
                say("\n".join(f"    {front.name}: {front.log_tail()}" for front in fleet.front_ends.values()))
    finally:
        visit.close()
    return results


def nothing_left(fleet: Fleet, say: Say) -> Result:
    """The last step, after `fleet.stop()`: no process runs, no port accepts."""
    expected = "no process runs, no port accepts"
    running = [server.name for server in fleet.processes if server.running]
    addresses = [address for server in fleet.processes for address in server.ready]
    open_ports = [f"{host}:{port}" for host, port in addresses if accepts((host, port))]
    ok = not running and not open_ports
    came = expected if ok else f"running: {running}, accepting: {open_ports}"
    say(f"\n    The end.\n    expected: {expected}\n    came:     {came}\n    {'ok' if ok else 'FAILED'}")
    return Result("The end", expected, came, ok, 0.0)


def _take(step: Step, visit: Visit) -> Result:
    begun = time.monotonic()
    try:
        came, ok = step.run(visit), True
    except STEP_FAULTS as fault:
        name = "" if isinstance(fault, Differs) else f"{type(fault).__name__}: "
        came, ok = f"{name}{fault}", False
    return Result(step.title, step.expected, came, ok, time.monotonic() - begun)


def summary(results: list[Result], seconds: float, mailbox_servers: str) -> dict[str, Any]:
    """The tour as data: `ok`, `seconds`, `mailbox_servers` (their kind), `steps`."""
    steps = [asdict(result) for result in results]
    ok = bool(results) and all(result.ok for result in results)
    return {"ok": ok, "seconds": round(seconds, 2), "mailbox_servers": mailbox_servers, "steps": steps}
