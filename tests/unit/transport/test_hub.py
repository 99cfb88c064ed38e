"""A whole hub on loopback: what comes in goes where it belongs (SPEC T1 to T3, T8, T13)."""

from __future__ import annotations

import asyncio
import email
import smtplib
from collections.abc import AsyncIterator
from dataclasses import replace
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


async def test_a_connection_to_the_old_server_takes_no_more_mail_after_a_move(stage: HubStage) -> None:
    """SPEC A1: what it took would be in a copy that nobody reads."""
    await stage.send("a@example.net", "alice@contoso.com")
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)
    stage.registry.activate("DB01", "MBX-02")
    await stage.until(lambda: [q for q in stage.hub.queues if q.moves])
    assert [q.connections for q in stage.hub.queues] == [1], "it would still take some"
    await stage.send("a@example.net", "alice@contoso.com")
    await stage.until(lambda: stage.mailboxes["MBX-02"].received)
    assert len(stage.mailboxes["MBX-01"].received) == 1


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
    await stage.until(lambda: stage.outside.contents)
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


async def test_a_message_that_routing_trips_over_is_kept_and_tried_again(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug must not cost an acknowledged message, nor its sender a second copy."""
    router = stage.hub._categorizer.router
    with monkeypatch.context() as patched:
        patched.setattr(router, "route", lambda *_args, **_named: 1 / 0)
        await stage.send("a@example.net", "alice@contoso.com")
        assert stage.events("message.not_routed")
        [entry] = await stage.hub.operate("queues", {"queue": "Submission"})
        assert entry["messages"] == 1
    await stage.hub.operate("retry_queue", {"queue": "Submission"})
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)


async def test_an_unknown_verb_of_an_operator_is_refused(stage: HubStage) -> None:
    with pytest.raises(ValueError, match="knows no"):
        await stage.hub.operate("_named", {"name": "*"})


async def test_an_operators_retry_tries_a_server_that_is_known_to_be_down(stage: HubStage) -> None:
    """Once, though the selector's time for it has not come."""
    await stage.outside.stop()
    settings = stage.hub._selector.settings
    stage.hub._selector.settings = replace(settings, queue_glitch_retry_interval=3600.0)
    await stage.send("a@contoso.com", "c@example.org")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    [entry] = await stage.hub.operate("queues", {})
    await stage.until(lambda: not next(iter(stage.hub.queues)).connecting)
    await stage.outside.start()
    assert await stage.hub.operate("retry_queue", {"queue": str(entry["identity"])}) == 1
    await stage.until(lambda: stage.outside.received)


async def test_rates_of_a_queue_are_told(stage: HubStage) -> None:
    for number in range(3):
        await stage.send("a@contoso.com", "c@example.org", subject=f"m{number}")
    await stage.until(lambda: len(stage.outside.received) == 3)
    await stage.until(lambda: not stage.hub.counters()["messages"])
    [entry] = await stage.hub.operate("queues", {})
    assert entry["incoming_rate"] == entry["outgoing_rate"] == pytest.approx(0.05)
    assert entry["velocity"] == 0.0


async def test_a_large_message_is_exported_in_parts(stage: HubStage) -> None:
    await stage.outside.stop()
    body = "".join(f"{number:030}\r\n" for number in range(300_000))
    await stage.send("a@contoso.com", "c@example.org", body=body)
    [message] = await stage.hub.operate("messages", {})
    found, parts, more = b"", 0, True
    while more:
        part = await stage.hub.operate("content", {"message": f"*\\{message['number']}", "offset": len(found)})
        found, more, parts = found + part["data"], part["more"], parts + 1
    assert parts == 3
    assert found.endswith(body.encode())
    assert len(found) == message["size"]
    with pytest.raises(NotFound):
        await stage.hub.operate("content", {"message": "*\\99999"})


SECRET = "X-MS-Exchange-Organization-SCL: -1\r\nX-Gatepost-Note: ours\r\n"


async def test_what_our_servers_tell_each_other_does_not_leave_the_organization(stage: HubStage) -> None:
    """The header firewall on the way out (exchange-facts 4.9); SIZE is that of what is sent."""
    await stage.send("a@contoso.com", "c@example.org", "alice@contoso.com", fields=SECRET)
    await stage.until(lambda: stage.outside.received and stage.mailboxes["MBX-01"].received)
    [outside], [inside] = stage.outside.received, stage.mailboxes["MBX-01"].received
    assert b"X-MS-Exchange" in inside.content
    assert b"X-Gatepost-Note" in inside.content
    assert b"X-MS-Exchange" not in outside.content
    assert b"X-Gatepost" not in outside.content
    for received in (outside, inside):
        assert f"SIZE={len(received.content)}" in received.mail


async def test_a_large_message_leaves_without_them_too(stage: HubStage) -> None:
    body = "x" * 70 + "\r\n"
    await stage.send("a@contoso.com", "c@example.org", fields=SECRET, body=body * 20_000)
    await stage.until(lambda: stage.outside.received)
    [outside] = stage.outside.received
    assert b"X-Gatepost" not in outside.content
    assert outside.content.endswith(body.encode() * 20_000)
    assert f"SIZE={len(outside.content)}" in outside.mail


async def test_a_mailbox_server_of_lmtp_writes_return_path_itself(stage: HubStage) -> None:
    await stage.send("a@example.net", "alice@contoso.com", trusted=False)
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)
    assert b"Return-Path" not in stage.mailboxes["MBX-01"].received[0].content


@pytest.mark.parametrize("lines", [1, 20_000])
async def test_before_a_mailbox_server_of_smtp_return_path_is_ours_to_write(tmp_path: Path, lines: int) -> None:
    """RFC 5321, section 4.4: final delivery adds it, once, in front; and what it adds counts in SIZE."""
    stage = HubStage(tmp_path, protocol="smtp")
    await stage.prepare()
    await stage.start()
    try:
        fields = "Return-Path: <forged@example.net>\r\n"
        body = ("x" * 70 + "\r\n") * lines
        await stage.send("a@example.net", "alice@contoso.com", trusted=False, fields=fields, body=body)
        await stage.until(lambda: stage.mailboxes["MBX-01"].received)
        [received] = stage.mailboxes["MBX-01"].received
        assert received.content.startswith(b"Return-Path: <a@example.net>\r\nReceived:")
        assert received.content.count(b"Return-Path:") == 1
        assert f"SIZE={len(received.content)}" in received.mail
    finally:
        await stage.stop()


async def test_our_own_words_in_a_report_are_no_servers(stage: HubStage) -> None:
    """`Diagnostic-Code: smtp; …` is what a server said; an operator's deletion is none (RFC 3464, section 2.3.6)."""
    stage.mailboxes["MBX-01"].replies["alice@contoso.com"] = "450 4.2.0 Busy"
    await stage.send("sender@example.net", "alice@contoso.com", trusted=False)
    [queue] = stage.hub.queues
    await stage.until(lambda: queue.deferred)
    [message] = await stage.hub.operate("messages", {})
    assert message["recipients"][0]["server"]
    await stage.hub.operate("drop", {"message": f"*\\{message['number']}"})
    _, status = await report_of(stage)
    assert "deleted by an administrator" in status.replace("\n ", " ")
    assert "smtp;" not in status
    assert "Remote-MTA" not in status
