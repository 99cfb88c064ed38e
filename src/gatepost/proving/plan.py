"""Who takes part in a move under load: users, clients, and servers that have room for all of them."""

from __future__ import annotations

from gatepost.lab import figure
from gatepost.lab.fleet import Fleet
from gatepost.lab.servers.gatepost import LabUser
from gatepost.proving.clients import Task
from gatepost.proving.connection import Address
from gatepost.proving.history import Kind

FRONTS = ("CAS-01", "CAS-02")
ENDPOINTS = {
    Kind.IMAP_IDLE: "imaps",
    Kind.IMAP_BUSY: "imaps",
    Kind.POP3: "pop3s",
    Kind.HTTP: "https",
    Kind.HTTP_POLL: "https",
    Kind.SUBMISSION: "submissions",
}
MOST_USERS = 200
"""Users of the proving; each has several programs and devices. More would be hours of hashing passwords."""
ACTIONS_PER_SECOND = 100
"""What all clients do together while nothing moves: it is the move that is looked at."""
STARTS_PER_SECOND = 60
"""New clients while they begin: sign-ins, TLS and password checks of a machine that has them all at once."""
MAILBOX_SETTINGS = """
default_process_limit = 2000
default_client_limit = 20000
mail_max_userip_connections = 20000
service imap {
  client_limit = 50
  process_limit = 2000
  service_count = 0
}
service pop3 {
  client_limit = 50
  process_limit = 2000
  service_count = 0
}
service auth {
  client_limit = 40000
}
service anvil {
  client_limit = 40000
}
service stats {
  client_limit = 40000
}
service imap-login {
  client_limit = 20000
}
service pop3-login {
  client_limit = 20000
}
"""
SUBMISSION_SETTINGS = """
service submission {
  client_limit = 50
  process_limit = 2000
  service_count = 0
}
service submission-login {
  client_limit = 20000
}
"""
"""More of them, for servers that take submissions."""


def users(count: int) -> list[LabUser]:
    """Users of the proving, on the shared databases in turn."""
    names = [f"p{number:04}" for number in range(min(count, MOST_USERS))]
    databases = figure.SHARED
    return [
        LabUser(f"{name}@{figure.DOMAIN}", f"pw-{name}", database=databases[number % len(databases)])
        for number, name in enumerate(names)
    ]


def shares(sessions: int, *, submission: bool) -> dict[Kind, int]:
    """How many clients of each script: `sessions` of each protocol, half of IMAP's and of HTTP's of either kind."""
    busy, polls = sessions // 2, sessions // 2
    return {
        Kind.IMAP_IDLE: sessions - busy,
        Kind.IMAP_BUSY: busy,
        Kind.POP3: sessions,
        Kind.HTTP: sessions - polls,
        Kind.HTTP_POLL: polls,
        Kind.SUBMISSION: sessions if submission else 0,
    }


def tasks(fleet: Fleet, sessions: int) -> list[Task]:
    """What each client is to do, at both front ends in turn, from many addresses."""
    known = fleet.variant.users
    counts = shares(sessions, submission=fleet.variant.relay is not None)
    total = sum(counts.values())
    think = max(1.0, total / ACTIONS_PER_SECOND)
    made = []
    for kind, count in counts.items():
        for number in range(count):
            user = known[number % len(known)]
            host, port = fleet.front_ends[FRONTS[number // len(known) % 2 ^ number % 2]].addresses[ENDPOINTS[kind]]
            address = Address(host, port, f"127.0.9.{1 + number % 250}")
            name = f"{kind.value}-{number}"
            made.append(Task(name, kind.value, user.name, user.password, user.database, address, think, ramp(total)))
    return made


def ramp(clients: int) -> float:
    """Over how many seconds so many clients begin."""
    return clients / STARTS_PER_SECOND
