"""Cmdlets and commands for queues and messages, at a hub that runs (SPEC T13, V1; exchange-facts 4.6, 5.4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hub_stage import HubStage
from shell_stage import Operator, Stage

from gatepost.cli.main import run
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session
from gatepost.shell.things import Text, Thing


class QueueStage(HubStage):
    """The hub with a shell, and mail that waits: its server outside is away."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.operator = Operator()
        self.shell = Stage(folder / "hub.toml", Session(str(folder / "hub.toml"), self.operator), self.operator)

    async def outputs(self, text: str) -> list[Thing | Text]:
        return list(await asyncio.to_thread(self.shell.outputs, text))

    async def things(self, text: str) -> list[Thing]:
        return [each for each in await self.outputs(text) if isinstance(each, Thing)]

    async def values(self, text: str, name: str) -> list[object]:
        return [each.get(name) for each in await self.things(text)]

    async def command(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
        """Exit status and output of `gatepost queue`."""
        arguments = ["queue", words[0], *words[1:], "-c", str(self.folder / "hub.toml")]
        status = await asyncio.to_thread(run, arguments)
        captured = capsys.readouterr()
        return status, captured.out + captured.err


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[QueueStage]:
    made = QueueStage(tmp_path)
    await made.prepare()
    await made.start()
    made.answer_operators()
    await made.outside.stop()
    await made.send("anna@contoso.com", "c1@example.org", subject="first")
    await made.send("ben@contoso.com", "c2@example.org", "c3@example.org", subject="second", body="x" * 5000 + "\r\n")
    await made.until(lambda: made.hub.counters()["unhealthy_servers"])
    yield made
    await made.stop()


SMART_HOST = "SmartHostConnectorDelivery"


async def test_get_queue_has_the_sources_properties(stage: QueueStage) -> None:
    [queue] = await stage.things("Get-Queue")
    assert queue.get("Identity") == "HUB-01\\1"
    assert queue.get("DeliveryType") == SMART_HOST
    assert queue.get("NextHopCategory") == "External"
    assert queue.get("NextHopDomain") == f"[127.0.61.9]:{stage.outside_port}"
    assert queue.get("NextHopConnector") == "Internet"
    assert queue.get("MessageCount") == 2
    assert queue.get("Status") == "Retry"
    assert "refused" in str(queue.get("LastError"))
    assert queue.get("NextRetryTime")
    assert queue.get("RetryCount") == 1
    assert float(str(queue.get("IncomingRate"))) == pytest.approx(2 / 60, abs=0.005)
    assert (queue.get("OutgoingRate"), queue.get("Velocity")) == ("0.00", "-0.03")


@pytest.mark.parametrize(
    ("identity", "count"),
    [
        ("HUB-01\\1", 1),
        ("hub-01.contoso.com\\1", 1),
        ("1", 1),
        ("HUB-01\\*", 1),
        ("*", 1),
        ("Submission", 0),
        ("Poison", 0),
    ],
)
async def test_a_queue_is_named_in_the_sources_grammar(stage: QueueStage, identity: str, count: int) -> None:
    """`[Server\\]Submission|Unreachable|Poison`, `[Server\\]<NextHopDomain>`, `[Server\\]<int>`, `[Server\\]*`."""
    assert len(await stage.things(f"Get-Queue {identity}")) == count
    assert len(await stage.things(f"Get-Queue '[127.0.61.9]:{stage.outside_port}'")) == 1


async def test_a_queue_or_server_that_is_not_there_is_said_to_be(stage: QueueStage) -> None:
    with pytest.raises(ShellError, match="no queue 99"):
        await stage.things("Get-Queue 99")
    with pytest.raises(ShellError, match="no server 'HUB-99'"):
        await stage.things("Get-Queue HUB-99\\1")
    with pytest.raises(ShellError, match="runs on this machine"):
        await stage.things("Get-Queue MBX-01\\1")


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ('{ Status -eq "retry" }', 1),
        ('"MessageCount -gt 1"', 1),
        ("{ MessageCount -gt 2 }", 0),
        ("{ MessageCount -ge 2 -and MessageCount -le 2 -and RetryCount -lt 5 }", 1),
        ('{ LastError -like "*REFUSED*" -and DeliveryType -ne "DnsConnectorDelivery" }', 1),
        ("{ NextRetryTime -gt '2020-01-01' }", 1),
    ],
)
async def test_filters_of_queues(stage: QueueStage, condition: str, count: int) -> None:
    """-eq -ne -gt -ge -lt -le -like, joined by -and; case makes no difference."""
    assert len(await stage.things(f"Get-Queue -Filter {condition}")) == count


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("{ Colour -eq 1 }", "Colour cannot be filtered by"),
        ('{ MessageCount -gt "many" }', "'many' is no number"),
        ("{ NextHopDomain -gt 1 }", "compares numbers"),
        ("{ Status -match 1 }", "an operator is expected"),
        ("{ Status -eq 1 -or Status -eq 2 }", "joined by -and"),
        ('"Status -eq 1 }"', "not expected in a filter"),
        ("{ Status -eq a,b }", "one value"),
    ],
)
async def test_filters_that_mean_nothing(stage: QueueStage, condition: str, reason: str) -> None:
    with pytest.raises(ShellError, match=reason):
        await stage.things(f"Get-Queue -Filter {condition}")


async def test_include_and_exclude(stage: QueueStage) -> None:
    """Internal, External, Empty, any delivery type."""
    await stage.send("anna@contoso.com", "alice@contoso.com")
    await stage.until(lambda: stage.mailboxes["MBX-01"].received)
    await stage.until(lambda: stage.hub.counters()["messages"] == 2)
    assert await stage.values("Get-Queue -Include Internal", "NextHopDomain") == ["DB01"]
    assert await stage.values("Get-Queue -Exclude Internal", "DeliveryType") == [SMART_HOST]
    assert await stage.values("Get-Queue -Include Empty", "NextHopDomain") == ["DB01"]
    assert await stage.values(f"Get-Queue -Include {SMART_HOST} -Exclude Empty", "MessageCount") == [2]
    assert len(await stage.things("Get-Queue -ResultSize 1")) == 1
    assert "more than 1 queues" in stage.operator.warned[0]
    with pytest.raises(ShellError, match="ResultSize takes"):
        await stage.things("Get-Queue -ResultSize many")


async def test_numbers_are_compared_behind_a_pipe(stage: QueueStage) -> None:
    assert len(await stage.things("Get-Queue | Where-Object { $_.MessageCount -gt 1 }")) == 1
    assert await stage.things("Get-Queue | Where-Object { $_.Velocity -ge 0 }") == []
    assert await stage.things("Get-Queue | Where-Object { $_.Identity -lt 5 }") == []
    with pytest.raises(ShellError, match="is no number"):
        await stage.things("Get-Queue | Where-Object { $_.MessageCount -gt many }")


async def test_queues_are_suspended_resumed_and_tried(stage: QueueStage) -> None:
    await stage.things("Suspend-Queue HUB-01\\1 -WhatIf")
    assert stage.operator.said == ["What if: Suspend the queue HUB-01\\1"]
    assert await stage.values("Get-Queue", "Status") == ["Retry"]
    await stage.things("Get-Queue | Suspend-Queue")
    assert await stage.values("Get-Queue", "Status") == ["Suspended"]
    await stage.outside.start()
    await stage.things("Retry-Queue 1")
    await asyncio.sleep(0.05)
    assert stage.outside.received == []
    await stage.things('Resume-Queue -Filter { Status -eq "Suspended" }')
    await stage.things("Retry-Queue 1")
    await stage.until(lambda: len(stage.outside.received) == 2)
    assert float(str((await stage.values("Get-Queue", "OutgoingRate"))[0])) > 0


async def test_a_change_of_everything_must_be_asked_for(stage: QueueStage) -> None:
    for cmdlet in ("Suspend-Queue", "Retry-Queue", "Remove-Message", "Suspend-Message"):
        with pytest.raises(ShellError, match="-Identity or -Filter is needed"):
            await stage.things(cmdlet)


async def test_confirm_asks_and_no_leaves_all_as_it_was(stage: QueueStage) -> None:
    stage.operator.answer = False
    await stage.things("Suspend-Queue 1 -Confirm")
    assert stage.operator.asked == ["Suspend the queue HUB-01\\1?"]
    assert await stage.values("Get-Queue", "Status") == ["Retry"]


async def test_retry_with_resubmit_finds_the_way_anew(stage: QueueStage) -> None:
    """The connector has gone meanwhile: what waited for its smart host has no way now."""
    text = (stage.folder / "hub.toml").read_text().replace('["*"]', '["example.com"]')
    (stage.folder / "hub.toml").write_text(text)
    from gatepost.configuration.load import load

    stage.hub.reload(load(str(stage.folder / "hub.toml")).require())
    await stage.things(f"Retry-Queue '[127.0.61.9]:{stage.outside_port}' -Resubmit $true")
    assert await stage.values("Get-Queue -Exclude Empty", "Identity") == ["HUB-01\\Unreachable"]
    assert await stage.values("Get-Queue Unreachable", "MessageCount") == [2]


async def test_messages_with_the_sources_properties(stage: QueueStage) -> None:
    first, second = await stage.things("Get-Message -IncludeRecipientInfo")
    assert first.get("FromAddress") == "anna@contoso.com"
    assert first.get("Queue") == "HUB-01\\1"
    assert str(first.get("Identity")).startswith("HUB-01\\1\\")
    assert (first.get("Subject"), first.get("InternetMessageId"), first.get("Status")) == (
        "first",
        "<first@x>",
        "Retry",
    )
    assert first.get("SourceIP") == "127.0.61.7"
    assert "refused" in str(first.get("LastError"))
    assert second.get("Recipients") == ("c2@example.org;waiting", "c3@example.org;waiting")
    assert "Recipients" not in (await stage.things("Get-Message"))[0].properties


async def test_messages_are_named_in_the_sources_grammar(stage: QueueStage) -> None:
    """`[Server\\]<Queue>\\<int>`; `*\\<int>` are all copies."""
    identity = str((await stage.values("Get-Message", "Identity"))[0])
    number = identity.rpartition("\\")[2]
    for name in (identity, f"1\\{number}", f"*\\{number}", number, f"HUB-01\\*\\{number}"):
        assert await stage.values(f"Get-Message {name}", "Identity") == [identity]
    for every in ("HUB-01\\*", "-Queue 1", "-Queue HUB-01\\1", "*"):
        assert len(await stage.things(f"Get-Message {every}")) == 2
    assert len(await stage.things("Get-Queue | Get-Message")) == 2
    assert len(await stage.things("Get-Message -ResultSize 1")) == 1
    with pytest.raises(ShellError, match="is no message"):
        await stage.things("Get-Message a\\b\\c\\d")


@pytest.mark.parametrize(
    ("condition", "subjects"),
    [
        ('FromAddress -eq "ANNA@contoso.com"', ["first"]),
        ('FromAddress -like "*@contoso.com" -and Size -gt 4KB', ["second"]),
        ('Subject -like "f*"', ["first"]),
        ('Recipients -like "c3@*"', ["second"]),
        ('Status -eq "Suspended"', []),
        ('SourceIP -eq "127.0.61.7" -and DateReceived -lt "2020-01-01"', []),
        ('Subject -like "[f]*"', []),
    ],
)
async def test_filters_of_messages(stage: QueueStage, condition: str, subjects: list[str]) -> None:
    assert await stage.values(f"Get-Message -Filter {{{condition}}}", "Subject") == subjects


async def test_a_suspended_message_waits_and_goes_on(stage: QueueStage) -> None:
    await stage.things('Suspend-Message -Filter { Subject -eq "first" }')
    assert await stage.values('Get-Message -Filter { Status -eq "Suspended" }', "Subject") == ["first"]
    await stage.outside.start()
    await stage.things("Retry-Queue 1")
    await stage.until(lambda: stage.outside.received)
    assert [each.sender for each in stage.outside.received] == ["ben@contoso.com"]
    await stage.things("Get-Message | Resume-Message")
    await stage.until(lambda: len(stage.outside.received) == 2)


async def test_remove_asks_and_tells_the_sender_unless_told_not_to(stage: QueueStage) -> None:
    """`Remove-Message -WithNDR`, which is so by default."""
    with pytest.raises(ShellError, match="nobody can be asked"):
        await stage.things('Remove-Message -Filter { Subject -eq "first" }')
    stage.operator.answer = True
    await stage.things('Remove-Message -Filter { Subject -eq "first" } -WithNDR $false')
    assert "its sender is not told" in stage.operator.asked[-1]
    assert stage.hub.counters()["reports"] == 0
    await stage.things("Get-Message | Remove-Message -Confirm:$false")
    await stage.until(lambda: stage.hub.counters()["reports"] == 1)
    assert await stage.values("Get-Message", "Subject") == []


async def test_redirect_hands_all_to_another_hub(stage: QueueStage) -> None:
    with pytest.raises(ShellError, match="there already"):
        await stage.things("Redirect-Message -Server HUB-01 -Target HUB-01")
    with pytest.raises(ShellError, match="carries no mail"):
        await stage.things("Redirect-Message -Target MBX-01")


async def test_export_prints_the_message_as_it_leaves(
    stage: QueueStage, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    identity = str((await stage.values("Get-Message", "Identity"))[1])
    [text] = await stage.outputs(f"Export-Message {identity}")
    assert isinstance(text, Text)
    assert "Subject: second\n" in text.text
    assert f"\n\n{'x' * 5000}\n" in text.text
    number = identity.rpartition("\\")[2]
    arguments = ["queue", "export", number, "-c", str(stage.folder / "hub.toml")]
    assert await asyncio.to_thread(run, arguments) == 0
    assert capsysbinary.readouterr().out.endswith(b"x" * 5000 + b"\r\n")


async def test_a_digest_sums_up_over_the_servers_of_this_machine(stage: QueueStage) -> None:
    [found] = await stage.things("Get-QueueDigest -Forest")
    assert found.get("GroupByValue") == f"[127.0.61.9]:{stage.outside_port}"
    assert (found.get("MessageCount"), found.get("QueueCount")) == (2, 1)
    assert found.get("Details") == ("HUB-01\\1 Retry 2",)
    assert await stage.values("Get-QueueDigest -Site usa -GroupBy ServerName", "GroupByValue") == ["HUB-01"]
    assert await stage.values("Get-QueueDigest -Server HUB-01 -DetailsLevel None", "Details") == [()]
    assert await stage.things("Get-QueueDigest -Filter { MessageCount -gt 10 }") == []
    with pytest.raises(ShellError, match="one of them only"):
        await stage.things("Get-QueueDigest -Site usa -Forest")
    with pytest.raises(ShellError, match="no site asia"):
        await stage.things("Get-QueueDigest -Site asia")


# The same as plain commands


async def test_queue_commands_filter_messages(stage: QueueStage, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = await stage.command(capsys, "show", "--from", "anna@*", "--json")
    assert status == 0
    assert [(entry["hub"], entry["subject"]) for entry in json.loads(out)] == [("HUB-01", "first")]
    assert "second" in (await stage.command(capsys, "show", "1", "--to", "c3@example.org", "--larger", "1KB"))[1]
    assert (await stage.command(capsys, "show", "--status", "Active", "--json"))[1] == "[]\n"
    assert await stage.command(capsys, "freeze", "1", "--subject", "sec*") == (0, "messages held: 1\n")
    assert await stage.command(capsys, "resume", "1", "--status", "suspended") == (0, "messages going on: 1\n")
    assert await stage.command(capsys, "drop", "*", "--from", "ben@*", "--yes", "--no-report") == (0, "messages: 1\n")
    assert await stage.values("Get-Message", "Subject") == ["first"]


async def test_queue_list_asks_all_servers_of_this_machine(
    stage: QueueStage, capsys: pytest.CaptureFixture[str]
) -> None:
    (stage.folder / "gatepost-MBX-01.sock").touch()
    status, out = await stage.command(capsys, "list", "--all-servers", "--status", "retry")
    assert status == 0
    assert "HUB-01:\n     1        2 Retry" in out
    assert (await stage.command(capsys, "list", "--all-servers", "--status", "ready", "--json"))[1] == "[]\n"
    assert (await stage.command(capsys, "list", "--all-servers", "--server", "HUB-01"))[0] == 2
