"""Steps of the tour: what changes while it runs. Moves, faults, reloads, dying workers, the end."""

from __future__ import annotations

import imaplib
import os
import signal
import time

from gatepost.lab.clients import MailAnswer, imap, imap_read, imap_server
from gatepost.lab.servers.process import accepts
from gatepost.lab.tour import Differs, Step, Visit, expect

MOVE_SECONDS = 3.0
"""From the command's end until new sessions go to the new server."""
RESTART_SECONDS = 10.0
"""Until a killed worker has a successor, on a busy machine."""
DRAIN_SECONDS = 15.0
"""From the last session's end until the process is gone."""
POLL_SECONDS = 0.05
FOLLOW_SECONDS = 12.0
"""Until a session has left a server that its database has left: what is at no boundary is cut after 10."""


def steps() -> list[Step]:
    """In the order to take them."""
    return [
        Step("user1 signs in at CAS-01 and stays", "a session with MBX-01", _stay),
        Step("gatepost database activate DB01 --server MBX-02", "new sessions are at MBX-02 within 3 s", _move),
        Step("the session from before the move", "goes on at MBX-02, or was told [UNAVAILABLE]", _followed),
        Step("DB01 back to MBX-01; user1 signs in again", "new sessions are at MBX-01 within 3 s", _move_back),
        Step("EX10-01 is stopped; user4 by IMAP", "NO [UNAVAILABLE], no word of a wrong password", _stopped_imap),
        Step("user4 by POP3", "-ERR [SYS/TEMP]", _stopped_pop3),
        Step("user4 by HTTPS", "503", _stopped_web),
        Step("EX10-01 is started again", "user4 is served at once", _started),
        Step("SIGHUP to CAS-01", "the open session goes on, new ones work", _reload),
        Step("kill -9 of a worker of CAS-02", "CAS-02 goes on and has as many workers again", _kill_worker),
        Step(
            "SIGTERM to CAS-01 with a session open",
            "no new session, the open one goes on; exit status 0",
            _drain,
        ),
    ]


def _stay(visit: Visit) -> str:
    user = visit.users["user1"]
    client = imap(visit.address("CAS-01", "imaps"), visit.tls)
    client.login(user.name, user.password)
    server = imap_read(client)
    visit.kept["user1"] = client
    return expect(f"signed in, read the message on {server}", server == "MBX-01")


def _moved_to(visit: Visit, server: str) -> str:
    visit.fleet.command("database", "activate", "DB01", "--server", server)
    begun = time.monotonic()
    while True:
        answers = [visit.imap(front_end, "user1") for front_end in ("CAS-01", "CAS-02")]
        seconds = time.monotonic() - begun
        if all(answer.server == server for answer in answers):
            return expect(f"both front ends: {answers[0].text}, {seconds:.2f} s later", seconds < MOVE_SECONDS)
        if seconds > 5 * MOVE_SECONDS:
            raise Differs(f"after {seconds:.1f} s still {[answer.text for answer in answers]}")


def _move(visit: Visit) -> str:
    return _moved_to(visit, "MBX-02")


def _move_back(visit: Visit) -> str:
    came = _moved_to(visit, "MBX-01")
    _stay(visit)
    return came


def _followed(visit: Visit) -> str:
    """The copies of DB01 are not the same mail, so a session may be carried over only if nothing shows it."""
    client = visit.kept.pop("user1")
    came = until_elsewhere(client, "MBX-01")
    client.shutdown()
    return expect(came, came == "MBX-02" or "[UNAVAILABLE]" in came)


def until_elsewhere(client: imaplib.IMAP4, old: str) -> str:
    """The server, another one than `old`, at which a session goes on, or the farewell that it was told."""
    begun = time.monotonic()
    while time.monotonic() - begun < FOLLOW_SECONDS:
        try:
            server = imap_server(client)
        except imaplib.IMAP4.abort as ended:
            return str(ended)
        if server != old:
            return server
        time.sleep(4 * POLL_SECONDS)
    raise Differs(f"after {FOLLOW_SECONDS:g} s the session is still at {old}")


def _unavailable(answer: MailAnswer, code: str) -> str:
    wrong = any(word in answer.text.upper() for word in ("AUTHENTICATIONFAILED", "PASSWORD", "[AUTH]"))
    return expect(answer.text, code in answer.text and not answer.server and not wrong)


def _stopped_imap(visit: Visit) -> str:
    visit.fleet.mailbox_servers["EX10-01"].stop()
    visit.fleet.web_servers["EX10-01"].stop()
    return _unavailable(visit.imap("CAS-03", "user4"), "[UNAVAILABLE]")


def _stopped_pop3(visit: Visit) -> str:
    return _unavailable(visit.pop3("CAS-03", "user4"), "[SYS/TEMP]")


def _stopped_web(visit: Visit) -> str:
    answer = visit.web("CAS-03", "user4")
    return expect(f"{answer.status}: {answer.text.strip()[:100]}", answer.status == 503)


def _started(visit: Visit) -> str:
    for server in (visit.fleet.mailbox_servers["EX10-01"], visit.fleet.web_servers["EX10-01"]):
        server.start()
        server.wait_ready()
    answer, page = visit.imap("CAS-03", "user4"), visit.web("CAS-03", "user4")
    right = answer.server == "EX10-01" and page.facts.get("mailbox_server") == "EX10-01"
    return expect(f"{answer.text}; page {page.status}", right)


def _reload(visit: Visit) -> str:
    visit.fleet.front_ends["CAS-01"].signal(signal.SIGHUP)
    client = visit.kept["user1"]
    client.noop()
    answer = visit.imap("CAS-01", "user1")
    client.noop()
    return expect(f"the open session answered twice; a new one {answer.text}", answer.server == "MBX-01")


def _kill_worker(visit: Visit) -> str:
    front = visit.fleet.front_ends["CAS-02"]
    before = front.workers()
    if not before:
        raise Differs("there is no worker")
    os.kill(before[0], signal.SIGKILL)
    begun = time.monotonic()
    answers = [visit.imap("CAS-02", "user2") for _ in range(4)]
    while len(set(front.workers()) - {before[0]}) < len(before):
        if time.monotonic() - begun > RESTART_SECONDS:
            raise Differs(f"workers before {before}, now {front.workers()}")
        time.sleep(POLL_SECONDS)
    served = sum(answer.server == "MBX-02" for answer in answers)
    seconds = time.monotonic() - begun
    came = f"{served} of 4 sessions served meanwhile; {len(before)} workers again after {seconds:.1f} s"
    return expect(came, served == 4)


def _drain(visit: Visit) -> str:
    front = visit.fleet.front_ends["CAS-01"]
    client = visit.kept["user1"]
    front.signal(signal.SIGTERM)
    begun = time.monotonic()
    while accepts(front.addresses["imaps"]):
        if time.monotonic() - begun > DRAIN_SECONDS:
            raise Differs("new connections are still accepted")
        time.sleep(POLL_SECONDS)
    client.noop()
    server = imap_read(client)
    del visit.kept["user1"]
    ended_by_us = client.logout()[0] == "BYE"
    status = front.wait(DRAIN_SECONDS)
    came = f"the open session read on {server} and signed out, then exit status {status}"
    return expect(came, server == "MBX-01" and ended_by_us and status == 0)
