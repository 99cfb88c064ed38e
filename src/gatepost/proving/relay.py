"""What the mailbox servers of a proving hand submissions to: the sink, which gives no trouble here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gatepost.lab import figure
from gatepost.lab.servers import dovecot
from gatepost.lab.servers.process import ServerMissing, ServerProcess, free_ports
from gatepost.proving.hub_stage import SINK, new_sink
from gatepost.proving.sink import whole_messages


def new_relay(directory: Path) -> ServerProcess:
    """Not started. Raises `ServerMissing` when the mailbox servers could not take submissions."""
    if not dovecot.takes_submissions():
        raise ServerMissing("Dovecot's submission", dovecot.SUBMISSION_PACKAGES)
    return new_sink(directory, free_ports(SINK, 1)[0], calm=True)


def relayed(relay: ServerProcess | None) -> dict[str, Counter[str]]:
    """By user: how often each Message-ID has come to it, whole."""
    if relay is None:
        return {}
    taken = whole_messages((relay.directory / "taken").read_text())
    return {f"{name}@{figure.DOMAIN}": found for name, found in taken.items()}
