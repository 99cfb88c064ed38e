"""Hooks as real processes and real HTTP: what they are told, how they are bounded, what of them reaches the log."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from gatepost.activemanager import hooks
from gatepost.activemanager.hooks import HookContext, run, shown, words
from gatepost.activemanager.steps import Fault, Hook, Result
from gatepost.configuration.manager_settings import HookKind, HookSettings

CALL = Hook(HookKind.PROMOTE, "DB01", "MBX-01", "MBX-02", "MBX-02", 8)
LAG = Hook(HookKind.LAG, "DB01", "MBX-01", "MBX-02", "MBX-02", 8)


def python(code: str, *arguments: str, seconds: float = 10.0) -> HookSettings:
    return HookSettings((sys.executable, "-c", code, *arguments), seconds=seconds)


async def test_a_command_gets_its_values_in_its_words() -> None:
    settings = python(
        "import sys; print(*sys.argv[1:])", "{database}", "{source}>{target}", "{server}", "e{epoch} t{term}", "{kind}"
    )
    assert await run(settings, CALL, term=4) == Result(text="DB01 MBX-01>MBX-02 MBX-02 e8 t4 promote")


def test_a_value_is_never_read_as_a_placeholder_or_by_a_shell() -> None:
    call = {"database": "{source}; rm -rf $HOME", "source": "S", "target": "", "server": "", "epoch": "1", "kind": ""}
    assert words(("/bin/x", "{database}", "{other}"), call) == ["/bin/x", "{source}; rm -rf $HOME", "{other}"]


async def test_the_environment_is_bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEPOST_SECRET", "hunter2")
    result = await run(python("import os; print(sorted(os.environ), os.getcwd(), os.getsid(0) == os.getpid())"), CALL)
    assert "GATEPOST_SECRET" not in result.text
    assert result.text.endswith("/ True")


async def test_a_command_that_fails_says_why() -> None:
    result = await run(python("import sys; print('half'); print('no quorum', file=sys.stderr); sys.exit(3)"), CALL)
    assert result.fault is Fault.HOOK
    assert result.text.startswith("exit status 3: ")
    assert "no quorum" in result.text
    assert "half" in result.text


async def test_a_command_that_is_not_there_fails() -> None:
    result = await run(HookSettings(("/nowhere/fence",)), CALL)
    assert result == Result(Fault.HOOK, "cannot be started: No such file or directory")


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """A child that ignores signals and holds the output open does not live longer, and nobody waits for it."""
    pid_file = tmp_path / "pid"
    code = (
        "import os, signal, sys, time; print('begun', flush=True); child = os.fork()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if child: open(sys.argv[1], 'w').write(str(child))\n"
        "time.sleep(60)"
    )
    began = time.monotonic()
    result = await run(python(code, str(pid_file), seconds=1.0), CALL)
    assert result == Result(Fault.HOOK, "no end within 1 s: begun")
    assert time.monotonic() - began < 5
    await gone(int(pid_file.read_text()))


async def test_a_hook_that_is_no_longer_wanted_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    task = asyncio.ensure_future(run(python(code, str(pid_file), seconds=50), CALL))
    await until(lambda: pid_file.exists() and pid_file.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(int(pid_file.read_text()))


async def test_a_child_left_behind_does_not_hold_the_move_up() -> None:
    code = "import os, time; child = os.fork()\nif not child: time.sleep(60)\nelse: print('done')"
    began = time.monotonic()
    assert await run(python(code), CALL) == Result(text="done")
    assert time.monotonic() - began < 5


async def test_endless_output_is_read_and_dropped() -> None:
    result = await run(python("import sys; sys.stdout.write('x' * 5_000_000 + '\\nlast words'); sys.exit(1)"), CALL)
    assert result.fault is Fault.HOOK
    assert result.text.endswith("last words")
    assert len(result.text) < hooks.MAX_TEXT + 30


async def test_a_killed_command_is_a_failure() -> None:
    result = await run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), CALL)
    assert result == Result(Fault.HOOK, f"killed by signal {int(signal.SIGKILL)}")


SECRETS = [
    ("password=hunter2 ok", "password=… ok"),
    ("PASSWD: 'hunter2 x' ok", "PASSWD: … ok"),
    ('{"api_key": "hunter2", "a": 1}', '{"api_key": …, "a": 1}'),
    ("Authorization: Bearer hunter2.x-y", "Authorization: Bearer …"),
    ("Authorization: Basic aHVudGVyMg==", "Authorization: Basic …"),
    ("cannot reach https://admin:hunter2@storage/x", "cannot reach https://admin:…@storage/x"),
    ("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nok", "…"),
    ("a\x1b[31mred\x00\x7f\nb", "a?[31mred?? | b"),
    (b"\xff\xfe broken".decode("latin-1"), "ÿþ broken"),
]


@pytest.mark.parametrize(("said", "expected"), SECRETS, ids=[s[0][:12] for s in SECRETS])
def test_what_a_hook_says_is_printable_and_without_secrets(said: str, expected: str) -> None:
    text = shown(said.encode())
    assert "hunter2" not in text
    assert text.isprintable()
    assert text == expected or expected in text


async def test_secrets_that_a_hook_prints_are_masked_in_its_failure() -> None:
    result = await run(python("print('token=hunter2'); raise SystemExit(1)"), CALL)
    assert result == Result(Fault.HOOK, "exit status 1: token=…")


@pytest.mark.parametrize(
    ("said", "number"), [("0", 0.0), ("3 120", 3.0), ("3 120 9", None), ("3 x", None),
                         ("3 -1", None), ("7\nfiles", 7.0), (" 2.5 ", 2.5), ("", None), ("-1", None), ("nan", None),
                         ("inf", None), ("seven", None)]
)  # fmt: skip
async def test_a_lag_hook_says_a_number(said: str, number: float | None) -> None:
    result = await run(python("import sys; print(sys.argv[1])", said), LAG)
    assert result.number == number
    assert (result.fault is None) == (number is not None)


async def test_a_lag_hook_may_say_since_when() -> None:
    result = await run(python("print('3 120.5'); print('more')"), LAG)
    assert (result.number, result.seconds) == (3.0, 120.5)
    assert (await run(python("print(3)"), LAG)).seconds is None


Answer = Callable[[bytes], bytes]


@asynccontextmanager
async def server(answer: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        seen.append(head + await reader.readexactly(length))
        writer.write(answer(seen[-1]))
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with listener:
        yield listener.sockets[0].getsockname()[1], seen


async def test_a_url_gets_the_same_values_as_json() -> None:
    async with server(lambda _: b"HTTP/1.1 204 No Content\r\n\r\n") as (port, seen):
        assert await run(HookSettings(url=f"http://127.0.0.1:{port}/promote"), CALL) == Result()
    assert seen[0].startswith(b"POST /promote HTTP/1.0\r\n")
    assert b'"database": "DB01"' in seen[0]
    assert b'"epoch": 8' in seen[0]


async def test_a_url_that_refuses_fails_with_its_words() -> None:
    async with server(lambda _: b"HTTP/1.1 409 Conflict\r\n\r\nsplit brain, token=hunter2") as (port, _):
        result = await run(HookSettings(url=f"http://127.0.0.1:{port}/"), CALL)
    assert result == Result(Fault.HOOK, "HTTP 409: split brain, token=…")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", "HTTP 302"),
        (b"220 smtp ready\r\n", "an answer that is not HTTP"),
        (b"", "an answer that is not HTTP"),
    ],
)
async def test_other_answers_are_failures(answer: bytes, expected: str) -> None:
    async with server(lambda _: answer) as (port, _):
        result = await run(HookSettings(url=f"http://127.0.0.1:{port}/"), CALL)
    assert result.fault is Fault.HOOK
    assert expected in result.text


async def test_a_url_that_says_nothing_is_bounded() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        result = await run(HookSettings(url=f"http://127.0.0.1:{port}/", seconds=0.3), CALL)
        assert result == Result(Fault.HOOK, "no end within 0.3 s")


async def test_https_is_verified() -> None:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    ca.configure_trust(trusting)
    async with server(lambda _: b"HTTP/1.0 200 OK\r\n\r\n3\n", context) as (port, _):
        settings = HookSettings(url=f"https://127.0.0.1:{port}/lag")
        assert (await run(settings, LAG, HookContext(trusting))).number == 3.0
        refused = await run(settings, LAG)
        assert refused.fault is Fault.HOOK
        assert "certificate refused" in refused.text


async def gone(pid: int) -> None:
    await until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(condition: Callable[[], object]) -> None:
    """Another process is looked at: there is no event to wait for."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
