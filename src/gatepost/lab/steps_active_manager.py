"""Steps of the tour: the active manager. Moves with sessions open, a server killed, a drain, a manager killed."""

from __future__ import annotations

import imaplib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from gatepost.lab.clients import imap, imap_server
from gatepost.lab.steps_running import until_elsewhere
from gatepost.lab.tour import Differs, Step, Visit, expect

FIRST, SECOND = "MBX-04", "MBX-05"
DATABASE, USER = "DB04", "user7"
WORK_SECONDS = 5.0
"""From a command's end until a user is at work at the new server."""
FAILOVER_SECONDS = 8.0
"""From a server's death until a sign-in that waited is served, on a busy machine; 1 to 2 seconds is usual."""
WAIT_SECONDS = 15.0
"""For what a manager does by itself."""
POLL_SECONDS = 0.05


def steps() -> list[Step]:
    """In the order to take them."""
    return [
        Step("gatepost database status", "a manager holds the lease, and sees all copies well", _status),
        Step(f"{USER} is idle at CAS-01; gatepost database move {DATABASE} --to {SECOND} --wait", *_IDLE),
        Step(f"gatepost sessions list --server {FIRST}", f"no session of {DATABASE}", _nobody_left),
        Step(f"kill -9 of {SECOND}; {USER} signs in at once", f"waits, and is served from {FIRST}", _killed),
        Step(f"{SECOND} is started again", f"it is well again, and {DATABASE} stays on {FIRST}", _started),
        Step(f"gatepost server drain {FIRST}", f"{DATABASE} and DB05 are on {SECOND}", _drained),
        Step(f"gatepost server resume {FIRST}; back there", f"{USER} is served from {FIRST}", _resumed),
        Step("kill -9 of the manager that holds the lease", "the other front end's takes over", _manager_killed),
    ]


def _databases(visit: Visit) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(visit.fleet.command("database", "status", "--no-lag", "--json"))
    return found


def _until(visit: Visit, right: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """The status once it is `right`."""
    begun = time.monotonic()
    while True:
        found = _databases(visit)
        if right(found):
            return found
        if time.monotonic() - begun > WAIT_SECONDS:
            raise Differs(f"not {what} after {WAIT_SECONDS:g} s: {json.dumps(found)}")
        time.sleep(POLL_SECONDS)


def _row(found: dict[str, Any], database: str = DATABASE) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in found["databases"] if row["database"] == database)
    return row


def _is_well(row: dict[str, Any], server: str) -> bool:
    copy = next(copy for copy in row["copies"] if copy["server"] == server)
    return str(copy["status"]) in {"Healthy", "Mounted"}


def _status(visit: Visit) -> str:
    found = _until(
        visit,
        lambda s: s["manager"] is not None and all(_is_well(_row(s), name) for name in (FIRST, SECOND)),
        "all copies well",
    )
    copies = ", ".join(f"{copy['server']} {copy['status']}" for copy in _row(found)["copies"])
    return expect(f"{found['manager']['holder'].partition('/')[0]} holds the lease; {DATABASE}: {copies}", True)


def _signed_in(visit: Visit) -> imaplib.IMAP4:
    user = visit.users[USER]
    client = imap(visit.address("CAS-01", "imaps"), visit.tls)
    client.login(user.name, user.password)
    client.select("INBOX", readonly=True)
    return client


def _idle(client: imaplib.IMAP4) -> bool:
    """Begin IDLE; false where the server has none."""
    if "IDLE" not in client.capabilities:
        return False
    client.send(b"i1 IDLE\r\n")
    return client.readline().startswith(b"+")


def _moved(visit: Visit) -> str:
    client = _signed_in(visit)
    idle = _idle(client)
    visit.fleet.command("database", "move", DATABASE, "--to", SECOND, "--wait")
    begun = time.monotonic()
    try:
        lines = _awake(client) if idle else []
        came = until_elsewhere(client, FIRST)
    except imaplib.IMAP4.abort as ended:
        came = str(ended)
    finally:
        client.shutdown()
    carried = came == SECOND
    again = visit.imap("CAS-01", USER)
    seconds = time.monotonic() - begun
    how = f"carried over to {SECOND}, client told {lines}" if carried else f"told: {came}"
    right = (carried or "[UNAVAILABLE]" in came) and again.text.startswith("signed in") and seconds < WORK_SECONDS
    return expect(f"{how}; a new session {again.text.partition(',')[0]}, all {seconds:.1f} s after the move", right)


_IDLE = (
    f"carried over or told [UNAVAILABLE]; at work on {SECOND} within {WORK_SECONDS:g} s, no password asked",
    _moved,
)


def _awake(client: imaplib.IMAP4) -> list[str]:
    """End IDLE; what the client was told meanwhile. Raises `imaplib.IMAP4.abort` when the session has ended."""
    lines: list[str] = []
    try:
        client.send(b"DONE\r\n")
        while True:
            line = client.readline().decode(errors="replace").strip()
            if not line or line.startswith("* BYE"):
                raise imaplib.IMAP4.abort(line or " ".join(lines) or "end of the connection")
            if line.startswith("i1 "):
                return lines
            lines.append(line)
    except OSError as fault:
        raise imaplib.IMAP4.abort(str(fault)) from fault


def _nobody_left(visit: Visit) -> str:
    words = ("sessions", "list", "--db", DATABASE, "--server", FIRST, "--json")
    found = json.loads(visit.fleet.command(*words))
    return expect(f"{found['total']} sessions", found["total"] == 0)


def _server_of(visit: Visit) -> tuple[str, str]:
    """The refusal, or where the user is served."""
    user = visit.users[USER]
    client = imap(visit.address("CAS-01", "imaps"), visit.tls)
    try:
        client.login(user.name, user.password)
        server = imap_server(client)
        client.logout()
    except imaplib.IMAP4.abort as ended:
        return f"ended: {ended}", ""
    except imaplib.IMAP4.error as refused:
        client.shutdown()
        return f"refused: {refused}", ""
    return f"signed in at {server}", server


def _killed(visit: Visit) -> str:
    os.killpg(visit.fleet.mailbox_servers[SECOND].pid, signal.SIGKILL)
    os.killpg(visit.fleet.web_servers[SECOND].pid, signal.SIGKILL)
    begun = time.monotonic()
    visit.fleet.mailbox_servers[SECOND].wait(WORK_SECONDS)
    visit.fleet.web_servers[SECOND].wait(WORK_SECONDS)
    came, server = _server_of(visit)
    seconds = time.monotonic() - begun
    epoch = _row(_databases(visit))["epoch"]
    right = server == FIRST and seconds < FAILOVER_SECONDS
    return expect(f"{came}, {seconds:.1f} s after the death; epoch {epoch}", right)


def _started(visit: Visit) -> str:
    for server in (visit.fleet.mailbox_servers[SECOND], visit.fleet.web_servers[SECOND]):
        server.start()
        server.wait_ready()
    row = _row(_until(visit, lambda s: _is_well(_row(s), SECOND), f"{SECOND} well"))
    return expect(f"{SECOND} is well, {DATABASE} on {row['active']}", row["active"] == FIRST)


def _drained(visit: Visit) -> str:
    begun = time.monotonic()
    visit.fleet.command("server", "drain", FIRST, "--wait")
    seconds = time.monotonic() - begun
    found = _databases(visit)
    active = {name: _row(found, name)["active"] for name in (DATABASE, "DB05")}
    return expect(f"{active}, {seconds:.1f} s", set(active.values()) == {SECOND})


def _resumed(visit: Visit) -> str:
    visit.fleet.command("server", "resume", FIRST)
    for database in (DATABASE, "DB05"):
        visit.fleet.command("database", "move", database, "--to", FIRST, "--wait")
    came, server = _server_of(visit)
    return expect(came, server == FIRST)


def _manager_killed(visit: Visit) -> str:
    before = _databases(visit)["manager"]
    for front in ("CAS-01", "CAS-02"):
        pid = visit.fleet.front_ends[front].manager()
        if pid is not None and f"/{pid}/" in before["holder"]:
            os.kill(pid, signal.SIGKILL)
            break
    else:
        raise Differs(f"no manager here is {before['holder']}")
    begun = time.monotonic()
    found = _until(
        visit, lambda s: s["manager"] is not None and s["manager"]["term"] > before["term"], "another manager"
    )
    seconds = time.monotonic() - begun
    came = f"{before['holder']}, term {before['term']} → {found['manager']['holder']}, term {found['manager']['term']}"
    return expect(f"{came}, {seconds:.1f} s later", True)
