"""What Kerberos onward needs of the realm: accounts that may carry users' tickets on, servers that want them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from kerberos_kit import PRINCIPALS, Realm

from gatepost.lab.servers.samba import REALM

Result = TypeVar("Result")

DELEGATING = f"svc-onward@{REALM}"
"""May ask for tickets of any user for MBX-51, for nothing else."""
KERBEROS_ONLY = f"svc-evidence@{REALM}"
"""May carry on the tickets that users show it, and ask for none by itself."""
MAILBOX = "mbx-51.contoso.com"
SERVICES = tuple(f"{service}/{MAILBOX}" for service in ("HTTP", "imap", "pop", "smtp"))
FORBIDDEN = "imap/mbx-52.contoso.com"
"""A service of the realm that nobody may carry tickets on to."""
EVIDENCE_HOST = "evidence.contoso.com"
FRONT_ENDS = {"cas-41": "cas-01", "cas-42": "cas-02", "cas-43": "cas-43"}
"""Machines' own accounts, and the hosts of their service principals."""


def patiently(attempt: Callable[[], Result], good: Callable[[Result], bool]) -> Result:
    """What comes of `attempt` when it is good, or at last. A ticket that takes too long is a temporary fault."""
    deadline = time.monotonic() + 60
    while True:
        found = attempt()
        if good(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


class Onward:
    """The keytabs: of front ends, of mailbox servers, of each peer."""

    def __init__(self, realm: Realm) -> None:
        self.realm = realm
        os.environ["KRB5_CONFIG"] = str(realm.server.krb5_conf)  # of this process too
        folder = realm.folder
        self.keytab = folder / "onward.keytab"
        self.evidence = folder / "evidence.keytab"
        self.mailbox = folder / "mailbox.keytab"
        evidence = tuple(f"{service}/{EVIDENCE_HOST}" for service in ("HTTP", "imap"))
        peers = {name: (f"HTTP/{host}.contoso.com",) for name, host in FRONT_ENDS.items()}
        realm.server.add(
            {
                "svc-onward": (
                    "Onward-pw1",
                    ("HTTP/onward.contoso.com",),
                ),  # without one it is no service
                "svc-evidence": ("Onward-pw1", evidence),
                "svc-mbx": ("Onward-pw1", SERVICES),
                "svc-mbx2": ("Onward-pw1", (FORBIDDEN,)),
                **{name: ("Onward-pw1", names) for name, names in peers.items()},
            },
            {
                self.keytab: ("svc-onward", *PRINCIPALS),
                self.evidence: ("svc-evidence", *evidence),
                self.mailbox: SERVICES,
                **{self.peer(name): (name, *names) for name, names in peers.items()},
            },
            {"svc-onward": (SERVICES, True), "svc-evidence": (SERVICES, False)},
        )

    def peer(self, name: str) -> Path:
        """The keytab of a front end."""
        return self.realm.folder / f"{name}.keytab"


@pytest.fixture(scope="session")
def onward(realm: Realm) -> Onward:
    """See `Onward`."""
    return Onward(realm)
