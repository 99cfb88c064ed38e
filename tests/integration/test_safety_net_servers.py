"""A mailbox server loses its mail, another copy becomes active: hubs deliver all of it again, by themselves. Real hubs,
real Dovecots, which sort out what comes twice (exchange-facts 4.5).

    HUB-01, HUB-02 ── LMTP ──► MBX-01 (active, loses its store), MBX-02 (knows what it has had: Sieve's `duplicate`)
"""

from __future__ import annotations

import json
import shutil
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
"""As docs/shadow-redundancy.md has it; the period is longer than the safety net's."""


@pytest.fixture
def stage(servers: Servers) -> Iterator[TransportStage]:
    if not SIEVE.exists():
        missing(ServerMissing("Dovecot's Sieve", ("dovecot-sieve",)))
    hubs = {"HUB-01": "usa", "HUB-02": "usa"}
    with TransportStage(
        servers, hubs, {"MBX-01": "usa", "MBX-02": "usa"}, copies={"DB01": ["MBX-01", "MBX-02"]}
    ) as made:
        dovecot = made.mailboxes["MBX-02"]
        script = dovecot.directory / "duplicates.sieve"
        script.write_text(SCRIPT)
        subprocess.run([require_program("sievec", ("dovecot-sieve",)), str(script)], check=True)
        script.with_suffix(".svbin").chmod(0o644)
        with (dovecot.directory / "dovecot.conf").open("a") as file:
            file.write(SETTINGS.format(script=script))
        made.start()
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
    sent = deliver(stage)
    lost = stage.mailboxes["MBX-01"]
    lost.stop()
    shutil.rmtree(stage.folder / "mail" / "MBX-01")
    configuration = stage.hubs["HUB-01"].configuration
    gatepost_command(configuration, "database", "activate", "DB01", "--server", "MBX-02", "--lost-since", "1h")
    until(lambda: ids(stage, "MBX-02").keys() == sent.keys(), "all 20 again")
    assert ids(stage, "MBX-02") == sent, "each once"

    # Once more by hand: the mailbox server knows what it has had, and sorts it out.
    said = stage.hubs["HUB-02"].command("safety-net", "redeliver", "--database", "DB01", "--since", "1h", "--yes")
    assert said.splitlines()[1:] == [f"  HUB-01: messages: {MESSAGES // 2}", f"  HUB-02: messages: {MESSAGES // 2}"]
    for hub in stage.hubs.values():
        until(lambda hub=hub: hub.counters()["safety_net_redelivered"] == MESSAGES, "delivered again by hand")
        until(lambda hub=hub: hub.counters()["messages"] == 0, "all taken")
    assert ids(stage, "MBX-02") == sent


def test_without_sieve_duplicates_are_expunged_by_doveadm(stage: TransportStage) -> None:
    """The first server has no Sieve: what it has not lost comes twice, and the recipe for that is tried."""
    sent = deliver(stage)
    stage.hubs["HUB-01"].command("safety-net", "redeliver", "--database", "DB01", "--since", "1h", "--yes")
    until(lambda: ids(stage, "MBX-01") == sent + sent, "all of it twice")
    dovecot = stage.mailboxes["MBX-01"]
    program = require_program("doveadm", ("dovecot-core",))
    command = [program, "-c", str(dovecot.directory / "dovecot.conf"), "deduplicate", "-u", "alice", "-m"]
    subprocess.run([*command, "mailbox", "INBOX"], check=True)
    assert ids(stage, "MBX-01") == sent
