"""A whole hub on loopback: what comes in goes where it belongs (SPEC T1 to T3, T8, T13)."""

from __future__ import annotations

import asyncio
import email
import smtplib
from collections.abc import AsyncIterator
from email.message import Message
from pathlib import Path

import pytest
from hub_stage import HubStage, Played

from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.lab.servers.process import free_ports
from gatepost.routing.decision import Mailbox
from gatepost.transport.operating import NotFound

RETRY_SOON = 'transport = { queue_glitch_retry_interval = "00:00:01", message_retry_interval = "00:00:01" }'


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[HubStage]:
    made = HubStage(tmp_path, RETRY_SOON)
    await made.prepare()
    await made.start()
    yield made
    await made.stop()


async def report_of(stage: HubStage) -> tuple[Message, str]:
    """The only message outside, which is a report, and its delivery-status part."""
    await stage.until(lambda: stage.outside.received)
    [received] = stage.outside.received
    assert received.sender == ""
    message = email.message_from_bytes(received.content)
    [status] = [part for part in message.walk() if part.get_content_type() == "message/delivery-status"]
    return message, "".join(str(part) for part in status.get_payload())


async def test_mail_for_a_mailbox_goes_to_the_server_of_the_active_copy(stage: HubStage) -> None:
    await stage.send("a@example.net", "alice@contoso.com", trusted=False)
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)
    [received] = stage.mailboxes["MBX-01"].received
    assert received.sender == "a@example.net"
    assert received.recipients == ["alice@contoso.com"]
    message = email.message_from_bytes(received.content)
    assert message["Subject"] == "hello"
    assert message["Received"].startswith("from client.example ([127.0.62.7])")
    assert "for <alice@contoso.com>" in message["Received"]
    await stage.until(lambda: not stage.hub.counters()["messages"])


async def test_the_mailbox_server_is_told_the_name_it_knows(stage: HubStage) -> None:
    """An alias and a detail are the directory's business; the detail is kept for the server's filing rules."""
    await stage.send("a@example.net", "Alice.Alias+lists@Contoso.COM", trusted=False)
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)
    assert stage.mailboxes["MBX-01"].received[0].recipients == ["alice+lists@contoso.com"]


async def test_two_recipients_of_one_database_get_one_copy(stage: HubStage) -> None:
    """Delayed fan-out."""
    await stage.send("a@example.net", "alice@contoso.com", "bob@contoso.com", "c@example.org")
    await stage.until(lambda: stage.mailboxes["MBX-01"].received and stage.outside.received)
    assert stage.mailboxes["MBX-01"].received[0].recipients == ["alice@contoso.com", "bob@contoso.com"]
    assert stage.outside.received[0].recipients == ["c@example.org"]


async def test_strangers_may_not_relay(stage: HubStage) -> None:
    with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
        await stage.send("a@example.net", "c@example.org", trusted=False)
    code, _ = refused.value.recipients["c@example.org"]
    assert code == 550


async def test_an_unknown_mailbox_is_refused_at_the_door(stage: HubStage) -> None:
    refused = await stage.send("a@example.net", "alice@contoso.com", "nobody@contoso.com", trusted=False)
    assert list(refused) == ["nobody@contoso.com"]
    assert refused["nobody@contoso.com"][0] == 550


async def test_a_directory_that_cannot_be_read_refuses_nobody_for_good(stage: HubStage) -> None:
    (stage.folder / "directory.sqlite").rename(stage.folder / "away.sqlite")
    await stage.until(lambda: not stage.hub._directory.available)
    with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
        await stage.send("a@example.net", "alice@contoso.com", trusted=False)
    assert refused.value.recipients["alice@contoso.com"][0] == 451


async def test_when_the_active_copy_moves_waiting_mail_goes_to_the_new_server(stage: HubStage) -> None:
    """SPEC A1: told, not asked; the mail waits in the database's queue."""
    await stage.mailboxes["MBX-01"].stop()
    await stage.send("a@example.net", "alice@contoso.com")
    await stage.until(lambda: [q for q in stage.hub.queues if q.last_error])
    stage.registry.activate("DB01", "MBX-02")
    await stage.until(lambda: stage.mailboxes["MBX-02"].received)
    assert stage.mailboxes["MBX-01"].received == []


async def test_what_a_server_refuses_for_good_is_told_to_the_sender(stage: HubStage) -> None:
    stage.mailboxes["MBX-01"].replies["alice@contoso.com"] = "552 5.2.2 Mailbox full"
    await stage.send("sender@example.net", "alice@contoso.com", trusted=False)
    message, status = await report_of(stage)
    assert message["To"] == "<sender@example.net>"
    assert message["Auto-Submitted"] == "auto-replied"
    assert "Action: failed" in status
    assert "Status: 5.2.2" in status
    assert "552 5.2.2 Mailbox full" in status
    await stage.until(lambda: not stage.hub.counters()["messages"])


async def test_a_report_that_cannot_be_delivered_causes_no_report(stage: HubStage) -> None:
    stage.mailboxes["MBX-01"].replies["alice@contoso.com"] = "550 5.1.1 Who?"
    stage.outside.replies["RCPT"] = "550 5.1.1 Nobody"
    await stage.send("sender@example.net", "alice@contoso.com", trusted=False)
    await stage.until(lambda: stage.events("message.dead"))
    await stage.until(lambda: not stage.hub.counters()["messages"])
    assert stage.hub.counters()["reports"] == 1


async def test_what_a_server_puts_off_is_tried_again(stage: HubStage) -> None:
    stage.outside.replies["END"] = "451 4.3.0 Later"
    await stage.send("a@example.net", "c@example.org")
    [queue] = stage.hub.queues
    await stage.until(lambda: queue.deferred)
    del stage.outside.replies["END"]
    await stage.until(lambda: stage.outside.received)
    assert stage.hub.counters()["reports"] == 0


async def test_a_server_that_is_down_is_remembered_and_mail_waits(stage: HubStage) -> None:
    """SPEC T5 to T8."""
    await stage.outside.stop()
    for number in range(3):
        await stage.send("a@example.net", "c@example.org", subject=f"m{number}")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    [entry] = await stage.hub.operate("unhealthy", {})
    assert (entry["address"], entry["port"]) == ("127.0.61.9", stage.outside_port)
    await stage.outside.start()
    await stage.until(lambda: len(stage.outside.received) == 3)
    assert stage.hub.counters()["unhealthy_servers"] == 0
    assert stage.outside.connections == 1


async def test_mail_survives_an_end_and_the_list_of_unhealthy_servers_too(stage: HubStage) -> None:
    """SPEC T2: after the next start it goes on as if nothing had been."""
    await stage.outside.stop()
    await stage.send("a@example.net", "c@example.org")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    await stage.hub.drain(1.0)
    await stage.start()
    assert stage.hub.counters()["unhealthy_servers"] == 1
    await stage.until(lambda: stage.hub.counters()["messages"] == 1 and not stage.hub.counters()["loading"])
    await stage.outside.start()
    await stage.until(lambda: stage.outside.received)


async def test_a_message_under_way_is_finished_at_the_end(stage: HubStage) -> None:
    stage.outside.gate = asyncio.Event()
    await stage.send("a@example.net", "c@example.org")
    await stage.until(lambda: stage.outside.connections)
    ending = asyncio.create_task(stage.hub.drain(10.0))
    await asyncio.sleep(0.05)
    stage.outside.gate.set()
    await ending
    assert len(stage.outside.received) == 1
    await stage.start()
    await stage.until(lambda: not stage.hub.counters()["loading"])
    assert stage.hub.counters()["messages"] == 0


async def test_without_a_connector_mail_waits_in_the_unreachable_queue_until_there_is_one(stage: HubStage) -> None:
    text = stage.configuration()
    limited = (stage.folder / "hub.toml").read_text().replace('["*"]', '["example.com"]')
    (stage.folder / "hub.toml").write_text(limited)
    from gatepost.configuration.load import load

    stage.hub.reload(load(str(stage.folder / "hub.toml")).require())
    await stage.send("a@contoso.com", "c@example.org")
    [entry] = [e for e in await stage.hub.operate("queues", {}) if e["messages"]]
    assert entry["next_hop_domain"] == "Unreachable Domain"
    stage.hub.reload(text)
    await stage.until(lambda: stage.outside.received)


FAR_SITE = """
[sites.far]

[site_links.far]
sites = ["usa", "far"]

[servers.HUB-09]
site = "far"
roles = ["hub-transport"]
address = "127.0.61.8"
endpoints = {{ smtp = {{ port = {port}, tls = "clear" }} }}

[servers.MBX-09]
site = "far"
roles = ["mailbox"]
endpoints = {{ lmtp = {{ tls = "clear" }} }}

[databases.DB09]
copies = [{{ server = "MBX-09" }}]
"""


async def test_mail_that_waits_for_a_site_goes_when_its_hubs_are_due_not_later(tmp_path: Path) -> None:
    """It is routed anew when the site is found to be out of reach; where none is nearer it keeps the queue's time."""
    [port] = free_ports("127.0.61.8", 1)
    stage = HubStage(tmp_path, RETRY_SOON + FAR_SITE.format(port=port))
    await stage.prepare()
    with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
        editor.add(Entry(User("erin@contoso.com", Mailbox("DB09", None)), ()))
    stage.registry.activate("DB09", "MBX-09")
    await stage.start()
    far = Played("127.0.61.8", port)
    try:
        await stage.send("a@example.net", "erin@contoso.com", trusted=False)
        await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
        await asyncio.sleep(1.2)  # the hub looks once a second
        [entry] = [e for e in await stage.hub.operate("queues", {}) if e["messages"]]
        assert (entry["next_hop_domain"], entry["deferred"]) == ("far", 0)
        await far.start()
        await stage.until(lambda: far.received)
    finally:
        await stage.stop()
        await far.stop()


async def test_operators_hold_and_delete_messages(stage: HubStage) -> None:
    await stage.outside.stop()
    for number in range(3):
        await stage.send("sender@contoso.com", f"c{number}@example.org", subject=f"m{number}")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    first, second, third = await stage.hub.operate("messages", {})
    assert await stage.hub.operate("freeze_message", {"message": f"*\\{first['number']}"}) == 1
    assert await stage.hub.operate("drop", {"message": f"{second['queue']}\\{second['number']}", "report": False}) == 1
    await stage.outside.start()
    await stage.until(lambda: stage.outside.received)
    assert stage.outside.received[0].recipients == [third["recipients"][0]["address"]]
    assert await stage.hub.operate("resume_message", {"message": f"*\\{first['number']}"}) == 1
    await stage.until(lambda: len(stage.outside.received) == 2)
    assert stage.hub.counters()["messages"] == 0
    with pytest.raises(NotFound):
        await stage.hub.operate("drop", {"message": f"*\\{second['number']}"})


async def test_a_frozen_message_and_a_frozen_queue_stay_so_over_a_restart(stage: HubStage) -> None:
    await stage.outside.stop()
    await stage.send("a@contoso.com", "c@example.org")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    [message] = await stage.hub.operate("messages", {})
    await stage.hub.operate("freeze_message", {"message": f"*\\{message['number']}"})
    await stage.hub.operate("freeze_queue", {"queue": str(message["queue"])})
    await stage.hub.drain(1.0)
    await stage.outside.start()
    await stage.start()
    await stage.until(lambda: not stage.hub.counters()["loading"])
    [entry] = await stage.hub.operate("queues", {})
    assert entry["status"] == "Suspended"
    await stage.hub.operate("resume_queue", {"queue": str(entry["identity"])})
    await asyncio.sleep(0.05)
    assert stage.outside.received == []
    await stage.hub.operate("resume_message", {"message": f"*\\{message['number']}"})
    await stage.until(lambda: stage.outside.received)


async def test_waiting_mail_is_redirected_to_another_server(stage: HubStage) -> None:
    await stage.outside.stop()
    await stage.send("a@contoso.com", "c@example.org")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    assert await stage.hub.operate("redirect", {"target": "MBX-02"}) == 1
    await stage.until(lambda: stage.mailboxes["MBX-02"].received)
    with pytest.raises(NotFound):
        await stage.hub.operate("redirect", {"target": "HUB-99"})


async def test_a_message_the_process_died_of_twice_is_put_aside(stage: HubStage) -> None:
    """Poison messages: held until an operator says otherwise."""
    stage.outside.replies["END"] = "451 4.3.0 Later"
    await stage.send("a@contoso.com", "c@example.org")
    [queue] = stage.hub.queues
    await stage.until(lambda: queue.deferred)
    [message] = await stage.hub.operate("messages", {})
    spool = stage.hub._spool
    envelope = await spool.envelope(message["number"])
    envelope.crashes = 2
    await spool.update(message["number"], envelope)
    await stage.hub.drain(1.0)
    del stage.outside.replies["END"]
    await stage.start()
    await stage.until(lambda: not stage.hub.counters()["loading"])
    [entry] = await stage.hub.operate("queues", {"queue": "Poison"})
    assert entry["messages"] == 1
    assert stage.outside.received == []
    assert await stage.hub.operate("resume_message", {"message": f"Poison\\{message['number']}"}) == 1
    await stage.until(lambda: stage.outside.received)


async def test_a_message_that_goes_round_in_a_loop_is_refused(stage: HubStage) -> None:
    """smtp-facts row 31."""
    hops = "".join(f"Received: from a by b{number}; now\r\n" for number in range(101))
    body = "text\r\n"

    def go() -> None:
        with smtplib.SMTP("127.0.61.1", stage.port, source_address=("127.0.61.7", 0), timeout=15) as client:
            client.sendmail("a@x.example", ["c@example.org"], f"{hops}Subject: x\r\n\r\n{body}".encode())

    with pytest.raises(smtplib.SMTPDataError) as refused:
        await asyncio.to_thread(go)
    assert refused.value.smtp_code == 554
    assert stage.hub.counters()["messages"] == 0


async def test_an_unknown_verb_of_an_operator_is_refused(stage: HubStage) -> None:
    with pytest.raises(ValueError, match="knows no"):
        await stage.hub.operate("_named", {"name": "*"})
