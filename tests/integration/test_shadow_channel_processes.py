"""Shadow channels between processes: a hub that is killed or frozen amid copies, wrong certificates, and strangers with
OpenSSL's client who try XSHADOW (SPEC S1, S2)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trustme
from doors import missing
from peer_samples import ca_pair
from receive_stage import until
from shadow_channel_stage import HUB_02, SERVERS, Reach, issue
from structlog.testing import CapturingLogger

from gatepost.lab.servers.process import ServerMissing, require_program
from gatepost.peers.ca import KeyPair
from gatepost.transport.send.connecting import Outbound
from gatepost.transport.send.tls import TlsMaterial
from gatepost.transport.shadow.channel import ChannelTimes
from gatepost.transport.shadow.channels import ShadowChannels
from gatepost.transport.shadow.ports import ChannelLost

SECONDS = 30.0


class Answerer:
    """HUB-01 in a process."""

    def __init__(self, pair: KeyPair, identity: str, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("shadow_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        given = {
            "ca": ca_pair().certificate.decode(),
            "certificate": pair.certificate.decode(),
            "key": pair.private_key.decode(),
            "identity": identity,
            "port": port,
        }
        self.port = int(self.say(json.dumps(given)))

    def say(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def state(self, command: str = "state") -> Any:
        return SimpleNamespace(**json.loads(self.say(command)))

    @property
    def memory(self) -> int:
        """The most memory it has ever had, in MB."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) // 1024

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@pytest.fixture
def start() -> Iterator[Any]:
    started: list[Answerer] = []

    def begin(identity: str = "first", port: int = 0, pair: KeyPair | None = None) -> Answerer:
        started.append(Answerer(pair or issue(SERVERS["HUB-01"]), identity, port))
        return started[-1]

    yield begin
    for answerer in started:
        answerer.close()


@contextlib.asynccontextmanager
async def hub_02(port: int, times: ChannelTimes | None = None) -> AsyncIterator[ShadowChannels]:
    own = issue(SERVERS["HUB-02"])
    log = cast(Any, CapturingLogger())
    outbound = Outbound(log, TlsMaterial(b"", ca_pair().certificate, own.certificate, own.private_key))
    channels = ShadowChannels(Reach(outbound, port), HUB_02, log, times)
    yield channels
    channels.close()
    outbound.close()
    await until(lambda: not outbound.open)


async def within(seconds: float, *asked: asyncio.Task[str]) -> list[Any]:
    async with asyncio.timeout(seconds):
        return await asyncio.gather(*asked, return_exceptions=True)


async def test_a_hub_that_is_killed_amid_copies_fails_them_at_once_and_comes_back(start: Any) -> None:
    first = start("first")
    async with hub_02(first.port) as channels:
        channel = await channels.channel("HUB-01")
        assert channel.identity == "first"
        first.state("hold")
        holds = [asyncio.create_task(channel.hold(f"a{n:x}", b"e", b"c" * 5000, 5000)) for n in range(50)]
        await until(lambda: first.state().committing == 50)
        first.kill()
        assert all(isinstance(each, ChannelLost) for each in await within(5.0, *holds))
        with pytest.raises(ChannelLost):
            await channels.channel("HUB-01")
        again = start("second", first.port)
        channel = await channels.channel("HUB-01", heartbeat=True)
        assert channel.identity == "second"
        assert await channel.hold("b", b"e", b"c", 1) == ""
        assert again.state().held == 1


async def test_a_hub_that_is_frozen_is_given_up_in_time(start: Any) -> None:
    """Hold: 10 s without progress; here 2 s. A channel that is asked nothing notices by itself."""
    frozen = start()
    times = ChannelTimes(hold=2.0, alive=1.0, silence=1.0, sweep=0.1)
    async with hub_02(frozen.port, times) as channels:
        channel = await channels.channel("HUB-01")
        assert await channel.hold("a", b"e", b"c", 1) == ""
        os.kill(frozen.process.pid, signal.SIGSTOP)
        large = b"x" * 20_000_000
        holds = [asyncio.create_task(channel.hold(f"b{n:x}", b"e", b"c", 1)) for n in range(5)]
        holds.append(asyncio.create_task(channel.hold("c", b"e", large, len(large))))
        assert all(isinstance(each, ChannelLost) for each in await within(10.0, *holds))
        os.kill(frozen.process.pid, signal.SIGCONT)
        channel = await channels.channel("HUB-01", heartbeat=True)
        os.kill(frozen.process.pid, signal.SIGSTOP)
        await until(lambda: not channel.usable)
        os.kill(frozen.process.pid, signal.SIGCONT)
        await until(lambda: frozen.state().channels == 0)
        # Only what was whole is kept.
        assert frozen.state().held <= 6


async def test_a_primary_that_goes_in_the_midst_of_a_content_leaves_nothing(start: Any) -> None:
    answerer = start()
    async with hub_02(answerer.port) as channels:
        channel = await channels.channel("HUB-01")

        class Half:
            size = 50_000_000

            async def chunks(self) -> AsyncIterator[bytes]:
                yield b"x" * 20_000_000
                await asyncio.sleep(60)

            def close(self) -> None:
                pass

        hold = asyncio.create_task(channel.hold("a", b"e", Half(), Half.size))
        await until(lambda: answerer.state().octets == 20_000_000)
        channel.close()
        hold.cancel()
        await asyncio.gather(hold, return_exceptions=True)
    await until(lambda: answerer.state().discarded == 1)
    assert answerer.state().held == 0
    assert answerer.state().channels == 0


async def test_many_copies_of_50_mb_keep_memory_flat(start: Any) -> None:
    answerer = start()
    async with hub_02(answerer.port) as channels:
        channel = await channels.channel("HUB-01")
        assert await channel.hold("a", b"e", b"c", 1) == ""
        before = answerer.memory
        content = b"x" * 50_000_000
        found = await asyncio.gather(*(channel.hold(f"a{n:x}", b"e", content, len(content)) for n in range(8)))
        assert found == [""] * 8
    assert answerer.state().octets == 8 * 50_000_000 + 1
    assert answerer.memory - before < 60


@pytest.mark.parametrize("wrong", ["another hub's", "another authority's"])
async def test_a_hub_with_a_wrong_certificate_gets_no_copies(start: Any, wrong: str) -> None:
    pair = issue(SERVERS["HUB-03"]) if wrong == "another hub's" else issue(SERVERS["HUB-01"], "fabrikam")
    answerer = start(pair=pair)
    async with hub_02(answerer.port) as channels:
        with pytest.raises(ChannelLost, match="certificate refused"):
            await channels.channel("HUB-01", heartbeat=True)
    assert answerer.state().channels == 0


# A stranger


TRIES = (
    "EHLO hub-02.contoso.com",
    "XSHADOW HUB-02 identity",
    "MAIL FROM:<a@far.example> XSHADOW=a-1",
    "MAIL FROM:<a@far.example>",
    "RCPT TO:<b@ours.example>",
    "XSHADOW HUB-02 identity",
    "DATA",
    "Subject: s\r\n\r\ntext\r\n.",
    "QUIT",
)


@pytest.fixture
def openssl() -> str:
    try:
        return require_program("openssl", ("openssl",))
    except ServerMissing as error:
        missing(error)


async def tries(openssl: str, port: int, *options: str, name: str = "hub-02.contoso.com") -> str:
    """What `openssl s_client` is told that says all of this, line by line."""
    client = await asyncio.create_subprocess_exec(
        openssl, "s_client", "-connect", f"127.0.0.1:{port}", "-starttls", "smtp", "-name", name, "-quiet", "-crlf",
        *options, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert client.stdin is not None
    client.stdin.write("".join(f"{line}\n" for line in TRIES).replace("\r\n", "\n").encode())
    async with asyncio.timeout(SECONDS):
        with contextlib.suppress(ConnectionError):
            await client.stdin.drain()
        assert client.stdout is not None
        output = await client.stdout.read()
        client.stdin.close()
        await client.wait()
    return output.decode(errors="replace")


def on_disk(folder: Path, pair: KeyPair) -> tuple[str, ...]:
    (folder / "cert.pem").write_bytes(pair.certificate)
    (folder / "key.pem").write_bytes(pair.private_key)
    return "-cert", str(folder / "cert.pem"), "-key", str(folder / "key.pem")


async def test_a_stranger_gets_nothing_of_it(start: Any, openssl: str, tmp_path: Path) -> None:
    answerer = start()
    partner = trustme.CA().issue_cert("hub-02.contoso.com")
    shown = KeyPair(partner.cert_chain_pems[0].bytes(), partner.private_key_pem.bytes())
    for options in ((), on_disk(tmp_path, shown)):
        output = await tries(openssl, answerer.port, *options, name="mail.far.example")
        assert "250 2.6.0 Queued" in output, output
        assert "XSHADOW" not in output
        assert output.count("502 5.5.1") == 2
        assert "555 5.5.4" in output
    assert answerer.state().messages == [[], []]
    assert answerer.state().channels == 0


@pytest.mark.parametrize("organization", ["fabrikam", ""])
async def test_who_calls_himself_a_hub_must_show_its_certificate(
    start: Any, openssl: str, tmp_path: Path, organization: str
) -> None:
    answerer = start()
    options = on_disk(tmp_path, issue(SERVERS["HUB-02"], organization)) if organization else ()
    output = await tries(openssl, answerer.port, *options)
    # Of the last line before the handshake, which comes to nothing.
    assert "250" not in output.replace("250 LIMITS RCPTMAX=200", ""), output
    assert answerer.state().messages == []
    assert answerer.state().channels == 0


async def test_another_servers_certificate_is_not_enough(start: Any, openssl: str, tmp_path: Path) -> None:
    """A front end of the organization is a server, and no hub."""
    answerer = start()
    output = await tries(openssl, answerer.port, *on_disk(tmp_path, issue(SERVERS["CAS-01"])))
    assert "XSHADOW" not in output
    assert output.count("502 5.5.1") == 2
    assert answerer.state().messages == [[]]


async def test_the_hub_itself_is_offered_a_channel(start: Any, openssl: str, tmp_path: Path) -> None:
    """That the tests above could fail: with the right certificate the same client gets it."""
    answerer = start()
    output = await tries(openssl, answerer.port, *on_disk(tmp_path, issue(SERVERS["HUB-02"])))
    assert "250 XSHADOW HUB-01 first" in output, output
    assert "250 2.0.0 HUB-01 first" in output
    # What followed was no frame.
    await until(lambda: answerer.state().channels == 0)
