"""The hook that runs a command: its exit statuses, its output, and all the ways in which it can fail."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gatepost.transport.hooks.command import BROKEN, MAX_LISTED, CommandHook, CommandSettings
from gatepost.transport.hooks.hook import MAX_FIELDS, HookAction, OnFailure, Question, Verdict, safe_fields
from gatepost.transport.hooks.tap import ContentAborted
from gatepost.transport.message import Envelope, Recipient, Source

ENVELOPE = Envelope(
    sender="alice@contoso.com",
    recipients=[Recipient("bob@x.example"), Recipient("carol@x.example")],
    received=0,
    expires=0,
    source=Source(address="192.0.2.1", name="mail\r\nevil", user="alice", tls="TLSv1.3 AES"),
)
QUESTION = Question("4XYZ", ENVELOPE, 300)


async def pieces(content: bytes = b"From: a@b\r\n\r\nBody\r\n", size: int = 10) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


async def check(script: str, content: bytes = b"From: a@b\r\n\r\nBody\r\n", **settings: object) -> Verdict:
    command = ("/bin/sh", "-c", script)
    hook = CommandHook(CommandSettings(command, **settings))  # type: ignore[arg-type]
    return await hook.check(QUESTION, pieces(content, 60_000))


async def test_status_0_takes_the_message() -> None:
    verdict = await check("cat >/dev/null; echo fine")
    assert verdict == Verdict(HookAction.ACCEPT, note="exit status 0")


async def test_status_75_is_a_refusal_for_the_moment_with_the_first_line_as_its_text() -> None:
    verdict = await check("cat >/dev/null; echo Busy, come back; echo X-More: no; exit 75")
    assert verdict.action is HookAction.DEFER
    assert str(verdict.reply) == "451 4.7.1 Busy, come back"
    assert verdict.before == b""


@pytest.mark.parametrize("status", [69, 3, 10, 65, 77, 100])
async def test_status_69_and_others_refuse_for_good(status: int) -> None:
    verdict = await check(f"cat >/dev/null; echo 'No viruses here \a'; exit {status}")
    assert verdict.action is HookAction.REJECT
    assert str(verdict.reply) == "550 5.7.1 No viruses here ?"
    assert verdict.asked


async def test_a_refusal_without_words_has_ours() -> None:
    assert str((await check("exit 69")).reply) == "550 5.7.1 Message refused by content policy"
    assert str((await check("exit 75")).reply) == "451 4.7.1 Try again later"


@pytest.mark.parametrize("status", sorted(BROKEN))
async def test_a_command_that_is_broken_never_refuses_for_good(status: int) -> None:
    verdict = await check(f"echo no; exit {status}")
    assert verdict.action is HookAction.DEFER
    assert verdict.reply is not None
    assert verdict.reply.code == 451
    assert not verdict.asked
    assert (await check(f"exit {status}", on_failure=OnFailure.ACCEPT)).action is HookAction.ACCEPT


async def test_an_interpreters_exception_is_such_a_failure() -> None:
    hook = CommandHook(CommandSettings((sys.executable, "-c", "raise SystemError")))
    assert not (await hook.check(QUESTION, pieces())).asked


async def test_a_signal_is_such_a_failure() -> None:
    verdict = await check("kill -SEGV $$")
    assert (verdict.action, verdict.asked) == (HookAction.DEFER, False)
    assert "signal 11" in verdict.note


async def test_a_command_that_is_not_there_is_such_a_failure(tmp_path: Path) -> None:
    verdict = await CommandHook(CommandSettings((str(tmp_path / "none"),))).check(QUESTION, pieces())
    assert not verdict.asked
    assert "No such file" in verdict.note


async def test_time_is_bounded_and_nothing_is_left_running(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    begun = time.monotonic()
    verdict = await check(f"sleep 600 & echo $! >{mark}; wait", seconds=0.5)
    assert time.monotonic() - begun < 20
    assert not verdict.asked
    assert "0.5 s" in verdict.note
    child = int(mark.read_text())

    def gone() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"
        except FileNotFoundError:
            return True

    for _ in range(1000):
        if gone():
            break
        await asyncio.sleep(0.01)
    assert gone()


async def test_a_child_that_has_left_the_session_does_not_hold_the_client(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    begun = time.monotonic()
    try:
        verdict = await check(f"setsid sh -c 'echo $$ >{mark}; exec sleep 100' & cat >/dev/null; exit 0", seconds=1.0)
        assert not verdict.asked
        assert time.monotonic() - begun < 30
    finally:
        os.kill(int(mark.read_text()), signal.SIGKILL)


async def test_output_is_bounded() -> None:
    verdict = await check("cat >/dev/null; yes X: y | head -c 2000000")
    assert not verdict.asked
    assert "too long" in verdict.note


async def test_the_content_is_its_input_also_when_it_is_large() -> None:
    content = b"A: b\r\n\r\n" + b"x" * 3_000_000
    verdict = await check('n=$(wc -c); echo; echo "X-Count: $n"', content)
    assert verdict.before == b"X-Count: %d\r\n" % len(content)


async def test_a_command_need_not_read_the_content() -> None:
    assert (await check("exec 0<&-; echo seen enough; exit 0", b"x" * 3_000_000)).action is HookAction.ACCEPT
    assert (await check("exit 69", b"x" * 3_000_000)).action is HookAction.REJECT


async def test_fields_are_added_and_made_safe() -> None:
    verdict = await check(
        "cat >/dev/null; printf 'ok\\nX-Score: 5\\n folded\\nno field\\nbad name: x\\n"
        "X-\\303\\274: y\\nX-T: gr\\303\\274n\\033\\n'"
    )
    assert verdict.before == b"X-Score: 5 folded\r\nX-T: =?utf-8?B?Z3LDvG4/?=\r\n"


def test_no_more_fields_than_the_bound() -> None:
    assert safe_fields((f"X-{number}", "y" * 5000) for number in range(500)).count(b"X-") == MAX_FIELDS
    assert all(len(line) <= 998 for line in safe_fields([("X-Long", "y" * 5000)]).split(b"\r\n"))
    assert safe_fields([("X", "a\r\nBcc: b")]) == b"X: a Bcc: b\r\n"


async def test_what_the_command_is_told() -> None:
    verdict = await check("cat >/dev/null; echo; env | sed -n 's/^GATEPOST_/X-GP-/p' | sed 's/=/: /' | sort")
    assert verdict.before.decode().split("\r\n")[:-1] == [
        "X-GP-CLIENT_ADDRESS: 192.0.2.1", "X-GP-CLIENT_NAME: mail evil", "X-GP-QUEUE_ID: 4XYZ",
        "X-GP-RECIPIENTS: bob@x.example", "X-GP-RECIPIENT_COUNT: 2", "X-GP-SENDER: alice@contoso.com",
        "X-GP-TLS: TLSv1.3 AES", "X-GP-USER: alice",
    ]  # fmt: skip


async def test_nothing_of_our_own_environment_but_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    assert (await check('cat >/dev/null; test -z "$SECRET" && test -n "$PATH" || exit 69')).action is HookAction.ACCEPT


async def test_many_recipients_do_not_keep_the_command_from_starting() -> None:
    envelope = Envelope("a@b", [Recipient("x" * 60 + f"{n}@y.example") for n in range(5000)], received=0, expires=0)
    hook = CommandHook(
        CommandSettings(("/bin/sh", "-c", f"test ${{#GATEPOST_RECIPIENTS}} -le {MAX_LISTED} || exit 69"))
    )
    assert (await hook.check(Question("1", envelope), pieces())).action is HookAction.ACCEPT


async def test_no_more_commands_than_allowed_run_at_once(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/lock || exit 69; cat >/dev/null; sleep 0.05; rmdir {tmp_path}/lock"
    hook = CommandHook(CommandSettings(("/bin/sh", "-c", script), max_running=1))
    verdicts = await asyncio.gather(*(hook.check(QUESTION, pieces()) for _ in range(4)))
    assert {verdict.action for verdict in verdicts} == {HookAction.ACCEPT}


async def test_a_message_that_breaks_off_is_never_judged() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"From: a@b\r\n"
        raise ContentAborted

    hook = CommandHook(CommandSettings(("/bin/sh", "-c", "cat >/dev/null; exit 0")))
    with pytest.raises(ContentAborted):
        await hook.check(QUESTION, broken())


async def test_a_check_that_is_cancelled_ends_the_command(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    hook = CommandHook(CommandSettings(("/bin/sh", "-c", f"echo $$ >{mark}; exec sleep 600")))
    task = asyncio.ensure_future(hook.check(QUESTION, pieces()))
    for _ in range(2000):
        if mark.exists() and mark.read_text().strip():
            break
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(15):  # as soon as the loop has heard of its end
        while is_there(int(mark.read_text())):  # noqa: ASYNC110 - which it does not tell
            await asyncio.sleep(0.01)


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
