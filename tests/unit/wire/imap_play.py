"""Plays a client's words to a front machine. Shared by the tests of the IMAP machines."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

from gatepost.wire.events import Credentials, FrontEvent, Refusal, Send, SignIn
from gatepost.wire.imap_front import ImapFront

Judge = Callable[[ImapFront, Credentials], list[FrontEvent]]


def front(**changes: object) -> ImapFront:
    """A machine on a TLS connection, unless told otherwise."""
    options: dict[str, object] = {
        "tls": True,
        "starttls": True,
        "clear_passwords": False,
        "bearer": True,
        "bad_commands": 10,
        "sign_in_attempts": 3,
    }
    return ImapFront(**(options | changes))  # type: ignore[arg-type]


def clear(**changes: object) -> ImapFront:
    """A machine on a connection in clear."""
    return front(tls=False, **changes)


def let_in(machine: ImapFront, _: Credentials) -> list[FrontEvent]:
    return [Send(machine.signed_in(b"IMAP4rev1 IDLE", b"Welcome"))]


def turn_away(refusal: Refusal, text: str = "", server: str = "") -> Judge:
    return lambda machine, _: machine.refuse(refusal, text, server)


def play(
    machine: ImapFront, pieces: Iterable[bytes], judge: Judge = let_in, *, late: bool = False
) -> tuple[bytes, list[object], bytes]:
    """Feed `pieces`; what was written, the other events, and the bytes left for the mailbox server.

    With `late`, sign-ins are judged only after all the pieces came.
    """
    written = bytearray()
    others: list[object] = []
    waiting: list[FrontEvent] = []

    def handle(events: list[FrontEvent], *, may_judge: bool) -> None:
        queue = waiting + events
        waiting.clear()
        while queue:
            event = queue.pop(0)
            if isinstance(event, SignIn) and not may_judge:
                waiting.extend([event, *queue])
                return
            if isinstance(event, Send):
                written.extend(event.data)
            elif isinstance(event, SignIn):
                others.append(event.credentials)
                queue = [*judge(machine, event.credentials), *queue]
            else:
                others.append(event)

    for piece in pieces:
        handle(machine.receive(piece), may_judge=not late)
    handle([], may_judge=True)
    return bytes(written), others, machine.rest


def b64(text: str | bytes) -> bytes:
    return base64.b64encode(text.encode() if isinstance(text, str) else text)


BOB = Credentials("LOGIN", "bob", password="secret")
WELCOME = b" OK [CAPABILITY IMAP4rev1 IDLE] Welcome\r\n"
BEARER_BOB = "n,a=bob,\x01auth=Bearer t0ken\x01\x01"
XOAUTH2_BOB = "user=bob\x01auth=Bearer t0ken\x01\x01"

CAPABILITIES = b"IMAP4rev1 SASL-IR ID LOGIN-REFERRALS"
PASSWORDS = b" AUTH=PLAIN AUTH=LOGIN AUTH=XOAUTH2 AUTH=OAUTHBEARER"


def split_evenly(data: bytes, *sizes: int) -> list[bytes]:
    """`data` in pieces of these sizes, over and over."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    return pieces
