"""A mailbox server loses its mail, another copy becomes active: hubs deliver all of it again, by themselves. Real hubs,
real Dovecots, and what sorts out there what comes twice (exchange-facts 4.5).

    HUB-01, HUB-02 ── LMTP ──► MBX-01 (active, loses its store), MBX-02
"""

from __future__ import annotations

import json
import shutil
import smtplib
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import Servers, missing
from transport_stage import TransportStage, until

from gatepost.lab.servers.gatepost import gatepost_command
from gatepost.lab.servers.process import ServerMissing, require_program

MESSAGES = 20
SIEVE = Path("/usr/lib/dovecot/modules/lib90_sieve_plugin.so")
SCRIPT = 'require ["duplicate"];\nif duplicate { discard; stop; }\n'
SETTINGS = """
protocol lmtp {{
  mail_plugins = sieve
}}
plugin {{
  sieve_before = {script}
  sieve_duplicate_default_period = 3d
}}
"""
"""As docs/safety-net.md has it; the period is longer than mail is kept."""


@pytest.fixture
def stage(servers: Servers) -> Iterator[TransportStage]:
    hubs = {"HUB-01": "usa", "HUB-02": "usa"}
    copies = {"DB01": ["MBX-01", "MBX-02"]}
    with TransportStage(servers, hubs, {"MBX-01": "usa", "MBX-02": "usa"}, copies=copies) as made:
        yield made


def ids(stage: TransportStage, server: str) -> Counter[str]:
    """The Message-IDs in alice's mailbox, and how often."""
    found: Counter[str] = Counter()
    for message in stage.mailboxes[server].mail("alice"):
        found.update(
            line.partition(b":")[2].strip().decode()
            for line in message.split(b"\n\n", 1)[0].splitlines()
            if line.lower().startswith(b"message-id:")
        )
    return found


def deliver(stage: TransportStage) -> Counter[str]:
    """Mail for alice by both hubs, until all of it is in the first mailbox server and both safety nets."""
    sent: Counter[str] = Counter()
    for hub in stage.hubs:
        with stage.client(hub) as client:
            for number in range(MESSAGES // 2):
                name = f"<{hub}-{number}@fabrikam.com>"
                content = (
                    f"From: <s@fabrikam.com>\r\nTo: alice\r\nSubject: {name}\r\nMessage-ID: {name}\r\n\r\ntext\r\n"
                )
                client.sendmail("s@fabrikam.com", ["alice@contoso.com"], content.encode())
                sent[name] += 1
    until(lambda: ids(stage, "MBX-01") == sent, "all mail delivered")
    for hub in stage.hubs.values():
        until(lambda hub=hub: kept(hub) == MESSAGES, "all mail in the net of primary and shadow server")
    return sent


def kept(hub: object) -> int:
    found = json.loads(hub.command("safety-net", "list", "--json"))  # type: ignore[attr-defined]
    return sum(entry["messages"] for entry in found[0]["kept"])


def test_what_a_lost_store_had_is_delivered_again_by_itself(stage: TransportStage) -> None:
    stage.start()
    sent = deliver(stage)
    stage.mailboxes["MBX-01"].stop()
    shutil.rmtree(stage.folder / "mail" / "MBX-01")
    configuration = stage.hubs["HUB-01"].configuration
    gatepost_command(configuration, "database", "activate", "DB01", "--server", "MBX-02", "--lost-since", "1h")
    until(lambda: ids(stage, "MBX-02").keys() == sent.keys(), "all 20 again")
    assert ids(stage, "MBX-02") == sent, "each once"

    # Once more by hand: now nothing was lost, all comes twice, and the recipe for that is tried.
    said = stage.hubs["HUB-02"].command("safety-net", "redeliver", "--database", "DB01", "--since", "1h", "--yes")
    assert said.splitlines()[1:] == [f"  HUB-01: messages: {MESSAGES // 2}", f"  HUB-02: messages: {MESSAGES // 2}"]
    until(lambda: ids(stage, "MBX-02") == sent + sent, "all of it twice")
    program = require_program("doveadm", ("dovecot-core",))
    file = stage.mailboxes["MBX-02"].directory / "dovecot.conf"
    subprocess.run([program, "-c", str(file), "deduplicate", "-u", "alice", "-m", "mailbox", "INBOX"], check=True)
    assert ids(stage, "MBX-02") == sent


def test_sieve_discards_what_comes_twice(stage: TransportStage) -> None:
    """One after the other; two at the same moment for the same user are not told apart, as the page says."""
    if not SIEVE.exists():
        missing(ServerMissing("Dovecot's Sieve", ("dovecot-sieve",)))
    dovecot = stage.mailboxes["MBX-02"]
    script = dovecot.directory / "duplicates.sieve"
    script.write_text(SCRIPT)
    subprocess.run([require_program("sievec", ("dovecot-sieve",)), str(script)], check=True)
    script.with_suffix(".svbin").chmod(0o644)
    with (dovecot.directory / "dovecot.conf").open("a") as file:
        file.write(SETTINGS.format(script=script))
    dovecot.start()
    dovecot.wait_ready()
    for _ in range(2):
        for number in range(3):
            with smtplib.LMTP(dovecot.address, dovecot.lmtp) as client:
                message = f"Message-ID: <{number}@fabrikam.com>\r\n\r\ntext\r\n"
                client.sendmail("s@fabrikam.com", ["alice@contoso.com"], message)
    assert ids(stage, "MBX-02") == Counter(f"<{number}@fabrikam.com>" for number in range(3))
