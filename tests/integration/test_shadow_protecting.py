"""How a message gets its shadow before it is acknowledged, and what if it does not (SPEC S4; exchange-facts 4.4)."""

from __future__ import annotations

import asyncio
import smtplib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shadow_stage import QUICK, Member, ShadowStage, shadow_hubs

import gatepost.transport.hub as hub_module
from gatepost.organization.transport import ShadowPreference
from gatepost.transport.message import Envelope
from gatepost.transport.shadow import protecting
from gatepost.wire.smtp_reply import Reply

REJECTS = replace(QUICK, reject_message_on_shadow_failure=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(protecting, "AGAIN_SECONDS", 0.1)


def hang(hub: Member, *, then: str = "") -> asyncio.Event:
    """The hub answers no `Hold` until the event is set; then it says `then`, or keeps the copy."""
    go_on = asyncio.Event()
    answers = hub.running.shadow.answers
    hold: Callable[..., Awaitable[str]] = answers.hold

    async def held(*arguments: Any) -> str:
        await go_on.wait()
        if then:
            arguments[-1].discard()
            return then
        return await hold(*arguments)

    answers.hold = held  # type: ignore[method-assign]
    return go_on


def refuse(hub: Member, reason: str = "no room") -> None:
    """The hub keeps no copies."""
    hang(hub, then=reason).set()


async def test_a_message_is_on_two_disks_before_it_is_acknowledged(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        stage.outside.gate = asyncio.Event()
        code, reply = await stage[1].send("a@example.net", "c@example.org")
        assert (code, b"Queued mail for delivery" in reply) == (250, True)
        assert stage[2].count("shadow_held") == 1
        assert stage[1].count("shadow_made") == 1
        stage.outside.gate.set()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[2].count("shadow_held"))
        await stage.until(lambda: not stage[1].count("messages") and not stage[2].count("messages"))


async def test_without_a_partner_that_is_up_nobody_waits(tmp_path: Path) -> None:
    """smtp-facts c.1, 64: accepted, marked, counted, and protected when a hub is there again."""
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[2].kill()
        await stage[1].send("a@example.net", "c@example.org", subject="first")  # finds out
        began = time.monotonic()
        code, _ = await stage[1].send("a@example.net", "c@example.org", subject="second")
        assert code == 250
        assert time.monotonic() - began < stage.delay / 2
        await stage.until(lambda: stage[1].count("shadow_unprotected") == 2)
        await stage[2].start()
        await stage.until(lambda: stage[2].count("shadow_held") == 2)
        await stage.until(lambda: stage[1].count("shadow_unprotected") == 0)
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: sorted(stage.taken()) == ["first", "second"])


async def test_what_was_unprotected_is_protected_after_a_restart(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        await stage[2].kill()
        await stage[1].send("a@example.net", "c@example.org")
        await stage[1].stop()
        await stage[1].start()
        await stage[2].start()
        await stage.until(lambda: stage[2].count("shadow_held") == 1)


async def test_with_the_setting_a_message_without_a_shadow_is_put_off(tmp_path: Path) -> None:
    """RejectMessageOnShadowFailure: 451 4.4.0, and nothing of the message is sent or stays."""
    async with shadow_hubs(tmp_path, config=REJECTS) as stage:
        await stage[2].kill()
        for _ in range(2):  # the first finds out
            code, reply = await stage[1].send("a@example.net", "c@example.org")
            assert (code, reply) == (451, b"4.4.0 Message failed to be made redundant")
        await stage.until(lambda: not stage[1].count("messages"))
        await stage[2].start()
        await stage.until(lambda: stage[1].running._channels.ready("HUB-02"))
        code, _ = await stage[1].send("a@example.net", "c@example.org", subject="again")
        assert code == 250
        await stage.until(stage.taken)
        assert stage.taken() == ["again"]


async def test_with_the_setting_nothing_is_sent_before_the_shadow_stands(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path, config=REJECTS) as stage:
        go_on = hang(stage[2])
        sending = asyncio.create_task(stage[1].send("a@example.net", "c@example.org"))
        await stage.until(lambda: stage[1].count("messages") == 1)
        assert [queue for queue in stage[1].running.queues if len(queue)] == []
        go_on.set()
        assert (await sending)[0] == 250
        await stage.until(lambda: stage.taken() == ["hello"])


async def test_the_holder_of_a_refused_message_hears_of_it(tmp_path: Path) -> None:
    """The shadow comes too late: its message was refused, and must not be delivered by whoever takes over."""
    async with shadow_hubs(tmp_path, config=REJECTS) as stage:
        stage.delay = 0.3
        stage[1].running.reload(stage.configuration("HUB-01"))
        go_on = hang(stage[2])
        code, _ = await stage[1].send("a@example.net", "c@example.org")
        assert code == 451
        go_on.set()
        await stage.until(lambda: not stage[1].count("messages"))
        await stage.until(lambda: stage[2].running.shadow.answers.held == 1)
        await stage.until(lambda: not stage[2].count("shadow_held"))
        assert stage[2].count("shadow_resubmitted") == 0
        assert stage.taken() == []


async def test_delivery_is_an_acknowledgement_as_well(tmp_path: Path) -> None:
    """S4: the 250 comes when the message has been relayed, though its shadow does not stand."""
    async with shadow_hubs(tmp_path) as stage:
        go_on = hang(stage[2])
        began = time.monotonic()
        code, _ = await stage[1].send("a@example.net", "c@example.org")
        assert code == 250
        assert time.monotonic() - began < stage.delay / 2
        assert stage.taken() == ["hello"]
        go_on.set()
        # The copy came after the end: its holder hears of that, and lets it go.
        await stage.until(lambda: stage[2].running.shadow.answers.held == 1)
        await stage.until(lambda: not stage[2].count("shadow_held"))


async def test_the_acknowledgement_is_delayed_no_longer_than_the_connector_says(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        stage.delay = 0.5
        stage[1].running.reload(stage.configuration("HUB-01"))
        go_on = hang(stage[2])
        began = time.monotonic()
        code, _ = await stage[1].send("a@example.net", "c@example.org")
        assert code == 250
        assert time.monotonic() - began >= 0.5
        assert not stage[2].count("shadow_held")
        go_on.set()
        await stage.until(lambda: stage[2].count("shadow_held") == 1)


async def test_a_delay_of_nothing_protects_in_the_background(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        stage.delay = 0.0
        stage[1].running.reload(stage.configuration("HUB-01"))
        go_on = hang(stage[2])
        assert (await stage[1].send("a@example.net", "c@example.org"))[0] == 250
        assert not stage[2].count("shadow_held")
        go_on.set()
        await stage.until(lambda: stage[2].count("shadow_held") == 1)


async def test_another_partner_is_asked_where_one_keeps_no_copy(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path, 3) as stage:
        await stage.outside.stop()
        refuse(stage[2])
        for number in range(2):  # they take turns
            await stage[1].send("a@example.net", "c@example.org", subject=f"m{number}")
        assert stage[3].count("shadow_held") == 2
        assert stage[2].count("shadow_held") == 0
        assert stage[1].count("shadow_unprotected") == 0
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: sorted(stage.taken()) == ["m0", "m1"])


async def test_a_partner_that_may_have_got_a_copy_is_released_when_another_has_it(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path, 3) as stage:
        await stage.outside.stop()
        go_on = [hang(stage[2])]
        for number in range(2):
            await asyncio.wait(
                {
                    asyncio.create_task(stage[1].send("a@example.net", "c@example.org", subject=f"m{number}")),
                    asyncio.create_task(cut_off(stage, stage[2])),
                }
            )
        assert stage[3].count("shadow_held") == 2
        for event in go_on:
            event.set()
        await stage.until(lambda: not stage[2].count("shadow_held"))
        await stage.until(lambda: stage[2].running.shadow.answers.held <= 1)


async def cut_off(stage: ShadowStage, hub: Member) -> None:
    """Channels to the hub break while a copy is on its way."""
    await asyncio.sleep(0.3)
    for channel in list(hub.running._receive.channels):
        channel.abort()


async def test_large_contents_are_held_too(tmp_path: Path) -> None:
    """They are streamed from the spool after the commit."""
    body = "".join(f"{number:06d} and so on\r\n" for number in range(60_000))
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        assert (await stage[1].send("a@example.net", "c@example.org", body=body))[0] == 250
        assert stage[2].count("shadow_held") == 1
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        assert stage.outside.received[0].content.endswith(body.encode())


async def test_reports_are_on_two_disks_before_what_they_are_about_is_done_with(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path) as stage:
        stage.mailbox.replies["alice@contoso.com"] = "550 5.1.1 Nobody here"
        await stage.outside.stop()
        await stage[1].send("a@example.net", "alice@contoso.com")
        await stage.until(lambda: stage[1].count("reports") == 1)

        async def only_the_report() -> bool:
            return [m["from"] for m in await stage[2].running.operate("shadow_messages", {})] == [""]

        await stage.until(only_the_report)
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: stage.outside.received)
        assert b"550 5.1.1 Nobody here" in stage.outside.received[0].content


async def test_the_resubmitted_message_s_report_has_what_the_sender_asked_for(tmp_path: Path) -> None:
    """smtp-facts c.1, 20: NOTIFY, ORCPT, ENVID and RET go along with the copy."""
    async with shadow_hubs(tmp_path) as stage:
        await stage.mailbox.stop()
        await send_with_dsn(stage[1])
        await stage[1].kill(lose_disk=True)
        stage.mailbox.replies["alice@contoso.com"] = "550 5.1.1 Nobody here"
        await stage.mailbox.start()
        await stage.until(lambda: stage.outside.received)
        report = stage.outside.received[0].content
        assert b"Original-Envelope-Id: QQ314159" in report
        assert b"Original-Recipient: rfc822; first@example.org" in report


async def send_with_dsn(hub: Member) -> None:
    def go() -> None:
        with smtplib.SMTP(hub.address, hub.port, "client.example", 15, ("127.0.63.7", 0)) as client:
            client.ehlo()
            client.mail("a@example.net", ("RET=HDRS", "ENVID=QQ314159"))
            client.rcpt("alice@contoso.com", ("NOTIFY=FAILURE", "ORCPT=rfc822;first@example.org"))
            assert client.data("Subject: dsn\r\n\r\ntext\r\n")[0] == 250

    await asyncio.to_thread(go)


@pytest.mark.parametrize(
    ("preference", "held"),
    [
        (ShadowPreference.PREFER_REMOTE, "HUB-03"),
        (ShadowPreference.LOCAL_ONLY, "HUB-02"),
        (ShadowPreference.REMOTE_ONLY, "HUB-03"),
    ],
)
async def test_mail_for_a_database_of_two_sites_is_shadowed_where_the_setting_says(
    tmp_path: Path, preference: ShadowPreference, held: str
) -> None:
    """ShadowMessagePreferenceSetting; mail for others stays in the site."""
    config = replace(QUICK, shadow_message_preference=preference)
    sites = ("usa", "usa", "asia")
    async with shadow_hubs(tmp_path, 3, sites=sites, second_site="asia", config=config) as stage:
        await stage.mailbox.stop()
        await stage[1].send("a@example.net", "alice@contoso.com")
        assert {hub.name for hub in stage.hubs.values() if hub.count("shadow_held")} == {held}
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        assert stage[2].count("shadow_held") >= 1


async def test_where_shadow_redundancy_is_off_nothing_is_kept(tmp_path: Path) -> None:
    config = replace(QUICK, shadow_redundancy_enabled=False)
    async with shadow_hubs(tmp_path, config=config) as stage:
        await stage.outside.stop()
        await stage[1].send("a@example.net", "c@example.org")
        assert stage[2].count("shadow_held") == 0
        assert stage[1].count("shadow_unprotected") == 0
        assert stage[1].running.intake.protector is None


async def test_a_hub_alone_protects_nothing(tmp_path: Path) -> None:
    async with shadow_hubs(tmp_path, 1) as stage:
        await stage[1].send("a@example.net", "c@example.org")
        await stage.until(lambda: stage.taken() == ["hello"])
        assert stage[1].running.intake.protector is None
        assert stage[1].count("shadow_unprotected") == 0


async def test_a_hub_that_ends_answers_whoever_waits_for_a_shadow(tmp_path: Path) -> None:
    """The message is on its disk, and is protected or delivered after the start."""
    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        go_on = hang(stage[2])
        sending = asyncio.create_task(stage[1].send("a@example.net", "c@example.org"))
        await stage.until(lambda: stage[1].count("messages") == 1)
        await stage[1].stop()
        assert (await sending)[0] == 250
        go_on.set()
        await stage[1].start()
        await stage.until(lambda: stage[2].count("shadow_held") == 1)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["hello"])
        await stage.until(lambda: not stage[2].count("shadow_held"))


async def test_a_refused_message_leaves_no_shadow(tmp_path: Path) -> None:
    """The content check comes first."""

    class Refuses:
        def wants(self, _envelope: object) -> bool:
            return True

        async def __call__(self, _number: int, envelope: Envelope) -> Reply | None:
            envelope.added = b"X-Looked-At: yes\r\n"
            return Reply(550, "No", "5.7.1") if "bad" in envelope.subject else None

    async with shadow_hubs(tmp_path) as stage:
        await stage.outside.stop()
        stage[1].running.intake.check = Refuses()
        assert (await stage[1].send("a@example.net", "c@example.org", subject="bad"))[0] == 550
        assert stage[2].running.shadow.answers.held == 0
        assert (await stage[1].send("a@example.net", "c@example.org", subject="good"))[0] == 250
        assert stage[2].count("shadow_held") == 1
        await stage[1].kill(lose_disk=True)
        await stage.outside.start()
        await stage.until(lambda: stage.taken() == ["good"])
        assert stage.outside.received[0].content.startswith(b"X-Looked-At: yes\r\n")


async def test_who_holds_the_copy_is_on_our_disk_though_another_was_asked_first(tmp_path: Path) -> None:
    """The first partner has refused, and the second has the copy, before our own disk has the message."""
    async with shadow_hubs(tmp_path, 3) as stage:
        await stage.outside.stop()
        refuse(stage[2])
        spool = stage[1].running._spool
        commit = spool.commit

        def slow(*arguments: Any) -> Awaitable[int]:
            begun = asyncio.ensure_future(commit(*arguments))

            async def late() -> int:
                number = await begun
                await stage.until(lambda: stage[3].count("shadow_held") == held)
                return number

            return late()

        spool.commit = slow  # type: ignore[method-assign]
        for number in range(2):  # they take turns
            held = number + 1
            await stage[1].send("a@example.net", "c@example.org", subject=f"m{number}")
        await stage.outside.start()
        await stage.until(lambda: len(stage.taken()) == 2)
        await stage.until(lambda: not stage[3].count("shadow_held"))
