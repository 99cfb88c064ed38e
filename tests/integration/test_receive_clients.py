"""Real clients at a receive connector: swaks and smtp-source (SPEC T1; smtp-facts d.1)."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from doors import missing
from receive_stage import AUTHORITY, CONNECTOR, ReceiveStage, loopback, receiving

from gatepost.lab.servers.process import ServerMissing, require_program

SECONDS = 60.0


def program(name: str, *packages: str) -> str:
    try:
        return require_program(name, packages)
    except ServerMissing as error:
        missing(error)


@pytest.fixture
def swaks() -> str:
    return program("swaks", "swaks", "libnet-ssleay-perl")


@pytest.fixture
def smtp_source() -> str:
    return program("smtp-source", "postfix")


async def run(*command: str) -> tuple[int, str]:
    """Exit code and output of a client; the service runs in this process meanwhile."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")


async def send(swaks: str, stage: ReceiveStage, *options: str, to: str = "a@ours.example") -> tuple[int, str]:
    place = f"127.0.0.1:{stage.ports[0]}"
    return await run(swaks, "--server", place, "--from", "s@far.example", "--to", to, "--timeout", "30", *options)


async def test_swaks_one_by_one_and_pipelined(swaks: str) -> None:
    async with receiving() as stage:
        for options in ((), ("--pipeline",)):
            code, output = await send(swaks, stage, *options, to="a@ours.example,b@ours.example")
            assert code == 0, output
        assert len(stage.intake.taken) == 2
        for envelope, writer in stage.intake.taken:
            assert [r.address for r in envelope.recipients] == ["a@ours.example", "b@ours.example"]
            assert b"This is a test mailing" in writer.content


async def test_swaks_with_dots_and_eight_bits(swaks: str) -> None:
    async with receiving() as stage:
        code, output = await send(swaks, stage, "--body", ".\\n..\\n.a\\nGr\u00fc\u00dfe")
        assert code == 0, output
        ((envelope, writer),) = stage.intake.taken
        assert b"\r\n\r\n.\r\n..\r\n.a\r\nGr\xc3\xbc\xc3\x9fe\r\n" in writer.content
        assert envelope.body == "8BITMIME"


async def test_swaks_signs_in_within_tls(swaks: str, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(authority)
    for mechanism in ("PLAIN", "LOGIN"):
        async with receiving() as stage:
            code, output = await send(
                swaks, stage, "--tls", "--tls-verify", "--tls-ca-path", str(authority), "--auth", mechanism,
                "--auth-user", "anna", "--auth-password", "secret", to="a@elsewhere.example",
            )  # fmt: skip
            assert code == 0, output
            source = stage.intake.taken[0][0].source
            assert (source.user, source.protocol) == ("anna@ours.example", "ESMTPSA")


async def test_swaks_is_refused_as_a_stranger(swaks: str) -> None:
    async with receiving() as stage:
        code, output = await send(swaks, stage, to="a@elsewhere.example")
        assert code == 24  # no recipient was taken
        assert "550 5.7.1 Unable to relay" in output
        code, output = await send(
            swaks, stage, "--tls", "--auth", "PLAIN", "--auth-user", "anna", "--auth-password", "no"
        )
        assert code == 28
        assert "535 5.7.8" in output
        assert stage.intake.taken == []


async def test_swaks_behind_proxies(swaks: str) -> None:
    async with receiving(replace(CONNECTOR, proxy_protocol_from=(loopback(),))) as stage:
        for version in ("1", "2"):
            code, output = await send(
                swaks, stage, "--proxy-version", version, "--proxy-family", "TCP4" if version == "1" else "AF_INET",
                *(("--proxy-protocol", "STREAM", "--proxy-command", "PROXY") if version == "2" else ()),
                "--proxy-source", "192.0.2.9", "--proxy-source-port", "4711", "--proxy-dest", "192.0.2.1",
                "--proxy-dest-port", "25",
            )  # fmt: skip
            assert code == 0, output
        assert [envelope.source.address for envelope, _ in stage.intake.taken] == ["192.0.2.9"] * 2
    async with receiving(replace(CONNECTOR, xclient_from=(loopback(),))) as stage:
        code, output = await send(
            swaks, stage, "--xclient-addr", "192.0.2.9", "--xclient-helo", "real.example", "--xclient-login", "anna",
            to="a@elsewhere.example",
        )  # fmt: skip
        assert code == 0, output
        source = stage.intake.taken[0][0].source
        assert (source.address, source.name, source.user) == ("192.0.2.9", "real.example", "anna")


@pytest.mark.parametrize("options", [("-d",), ()], ids=["one connection each", "a connection a message"])
async def test_smtp_source(smtp_source: str, options: tuple[str, ...]) -> None:
    async with receiving() as stage:
        code, output = await run(
            smtp_source, "-s", "20", "-m", "500", "-l", "4096", "-f", "s@far.example", "-t", "a@ours.example", *options,
            f"127.0.0.1:{stage.ports[0]}",
        )  # fmt: skip
        assert code == 0, output
        assert len(stage.intake.taken) == 500
        assert len({bytes(writer.content[-3000:]) for _, writer in stage.intake.taken}) == 1


@pytest.fixture
def counting() -> Iterator[subprocess.Popen[str]]:
    """A receive connector in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("receive_process.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        yield process
        process.kill()


def peak_of(process: subprocess.Popen[str]) -> int:
    """The most memory it has ever had, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


async def test_twenty_messages_of_50_mb_at_once_keep_memory_flat(
    smtp_source: str, counting: subprocess.Popen[str]
) -> None:
    """Smtp-facts c.5, case 59, and g.4: growth below 100 MB; here, without a disk behind it, far less."""
    assert counting.stdin is not None
    assert counting.stdout is not None
    port = counting.stdout.readline().strip()
    before = peak_of(counting)
    code, output = await run(
        smtp_source, "-s", "20", "-m", "20", "-l", str(50 * 1024 * 1024), "-d", "-f", "s@far.example",
        "-t", "a@ours.example", f"127.0.0.1:{port}",
    )  # fmt: skip
    assert code == 0, output
    growth = peak_of(counting) - before
    counting.stdin.close()
    messages, octets = map(int, counting.stdout.readline().split())
    assert messages == 20
    assert octets > 20 * 50 * 1024 * 1024
    assert growth < 40
