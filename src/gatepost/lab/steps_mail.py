"""Steps of the tour: mail. Into mailboxes, out of them, with a hub that dies and a host that is not there."""

from __future__ import annotations

import os
import re
import signal
import smtplib
import time
from pathlib import Path

from gatepost.lab import hubs
from gatepost.lab.clients import CLIENT_SECONDS, imap, imap_messages
from gatepost.lab.servers.gatepost import gatepost_command
from gatepost.lab.tour import Differs, Step, Visit, expect

FRONT = hubs.MAIL_FRONT_ENDS[0]
OUTSIDE = "127.0.9.9"
"""A stranger's address, to be found in the trace of the message."""
SENDER = "stranger@example.org"
ARRIVAL_SECONDS = 10.0
"""From `250` until the message is in the mailbox, on a busy machine; milliseconds are usual."""
POLL_SECONDS = 0.02
FIRST, SECOND = hubs.HUBS


def steps() -> list[Step]:
    """In the order to take them."""
    return [
        Step(
            f"a stranger sends mail to user1 and user3 at {FRONT}, port 25",
            f"it is in both mailboxes, and its trace names a hub and {OUTSIDE}",
            _from_outside,
        ),
        Step(
            "from this machine's own address to nobody@contoso.com, and to x@example.net",
            "550 for each, nothing is taken",
            _refused,
        ),
        Step(
            f"user1 submits mail to user7 at {FRONT}, port 587",
            f"proxied to {hubs.SUBMISSION_HUB}, in the mailbox, marked as user1's",
            _submitted,
        ),
        Step("gatepost explain --mail user1 user7", "the way of the message, ends at the server with DB04", _explained),
        Step(f"kill -9 of {FIRST}; a stranger sends four messages to user1", "none is lost or refused", _hub_killed),
        Step(
            "user1 submits mail to x@example.net; gatepost queue list",
            "it waits in Retry: nobody is at the smart host",
            _waits,
        ),
        Step("gatepost queue drop of that message", "it is gone, and user1 has a report", _dropped),
    ]


def _client(visit: Visit, endpoint: str, source: str = OUTSIDE) -> smtplib.SMTP:
    """A connection from `source`; empty: from the machine's own address, as programs that try the lab."""
    host, port = visit.address(FRONT, endpoint)
    return smtplib.SMTP(host, port, "client.example.org", CLIENT_SECONDS, (source, 0) if source else None)


def _message(subject: str, sender: str, recipient: str) -> bytes:
    return f"From: <{sender}>\r\nTo: <{recipient}>\r\nSubject: {subject}\r\n\r\nHello.\r\n".encode()


def _send(visit: Visit, subject: str, *users: str, source: str = OUTSIDE) -> dict[str, tuple[int, bytes]]:
    """A stranger's message; the recipients that were refused."""
    recipients = [user if "@" in user else visit.users[user].name for user in users]
    with _client(visit, "smtp", source) as client:
        return client.sendmail(SENDER, recipients, _message(subject, SENDER, recipients[0]))


def _submit(visit: Visit, subject: str, recipient: str) -> None:
    user = visit.users["user1"]
    with _client(visit, "submission", "") as client:
        client.starttls(context=visit.tls)
        client.login(user.name, user.password)
        client.sendmail(user.name, [recipient], _message(subject, user.name, recipient))


def _arrived(visit: Visit, user: str, *subjects: str) -> tuple[bytes, float]:
    """The last of the messages with these subjects once all are in the user's INBOX, and how long that took."""
    known, begun = visit.users[user], time.monotonic()
    client = imap(visit.address(FRONT, "imaps"), visit.tls)
    try:
        client.login(known.name, known.password)
        while True:
            found = [m for subject in subjects for m in imap_messages(client) if f"Subject: {subject}\r".encode() in m]
            seconds = time.monotonic() - begun
            if len(found) == len(subjects):
                return found[-1], seconds
            if seconds > ARRIVAL_SECONDS:
                raise Differs(f"{len(found)} of {len(subjects)} messages are in {user}'s mailbox after {seconds:.1f} s")
            time.sleep(POLL_SECONDS)
    finally:
        client.logout()


def _trace(message: bytes) -> str:
    """The hub's `Received` field on one line."""
    fields = re.findall(r"^Received: (.*\r?\n(?:[ \t].*\r?\n)*)", message.decode(errors="replace"), re.MULTILINE)
    return next((" ".join(field.split()) for field in fields if "(Gatepost " in field), "")


def _from_outside(visit: Visit) -> str:
    refused = _send(visit, "From outside", "user1", "user3")
    traces = []
    for user in ("user1", "user3"):
        message, _ = _arrived(visit, user, "From outside")
        traces.append(_trace(message))
    right = not refused and all(OUTSIDE in trace and "by hub-0" in trace for trace in traces)
    return expect(f"arrived; {traces[0]}", right)


def _refused(visit: Visit) -> str:
    codes = []
    for recipient in ("nobody@contoso.com", "x@example.net"):
        try:
            _send(visit, "refused", recipient, source="")
            codes.append("250")
        except smtplib.SMTPRecipientsRefused as refused:
            code, text = refused.recipients[recipient]
            codes.append(f"{code} {text.decode(errors='replace')}")
    return expect("; ".join(codes), all(code.startswith("550 ") for code in codes))


def _submitted(visit: Visit) -> str:
    _submit(visit, "From user1", visit.users["user7"].name)
    message, _ = _arrived(visit, "user7", "From user1")
    trace = _trace(message)
    right = f"by {hubs.SUBMISSION_HUB.lower()}" in trace and "SA " in trace and b"\nmessage-id: " in message.lower()
    return expect(trace, right)


def _explained(visit: Visit) -> str:
    names = [visit.users[user].name for user in ("user1", "user7")]
    text = gatepost_command(_hub_file(visit), "explain", "--mail", *names)
    return expect("\n" + "\n".join(f"      {line}" for line in text.strip().splitlines()), "MBX-04" in text)


def _hub_killed(visit: Visit) -> str:
    hub = visit.fleet.hubs[FIRST]
    os.killpg(hub.pid, signal.SIGKILL)
    hub.wait(CLIENT_SECONDS)
    subjects = [f"Without {FIRST}, {number}" for number in range(1, 5)]
    refused = [_send(visit, subject, "user1") for subject in subjects]
    message, seconds = _arrived(visit, "user1", *subjects)
    right = not any(refused) and f"by {SECOND.lower()}" in _trace(message)
    return expect(f"all four arrived by {SECOND} within {seconds:.2f} s", right)


def _waits(visit: Visit) -> str:
    _submit(visit, "To nobody there", "x@example.net")
    begun = time.monotonic()
    while True:
        text = _queue(visit, "list", "--no-empty")
        if "Retry" in text or time.monotonic() - begun > ARRIVAL_SECONDS:
            return expect("\n" + text.rstrip(), "Retry" in text and hubs.OUTSIDE in text)


def _dropped(visit: Visit) -> str:
    said = _queue(visit, "drop", f"[{hubs.OUTSIDE}]/*", "--yes")
    message, _ = _arrived(visit, "user1", "Undeliverable: To nobody there")
    right = said.strip() == "messages: 1" and b"Action: failed" in message
    return expect(f"{said.strip()}, a report is in the mailbox", right)


def _queue(visit: Visit, *arguments: str) -> str:
    return gatepost_command(_hub_file(visit), "queue", *arguments)


def _hub_file(visit: Visit) -> Path:
    return visit.fleet.hubs[SECOND].configuration
