"""Operators at a hub under `gatepost serve`: the shell's cmdlets reach its queues, and its settings reach the hub."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hub_stage import ADDRESS, HubStage

from gatepost.service.operators import ask

WITHIN = 20.0
"""Seconds that a loaded machine gets for what takes less than one."""


class ServedStage(HubStage):
    """The hub as a process of its own, without a way outside."""

    patience = 60.0
    process: asyncio.subprocess.Process

    def write(self) -> Path:
        self.configuration()
        path = self.folder / "hub.toml"
        head, _, _ = path.read_text().partition("[send_connectors.Internet]")
        path.write_text(head)
        return path

    async def start(self) -> None:
        path = self.write()
        command = [sys.executable, "-P", "-m", "gatepost", "serve", "-c", str(path)]
        self.process = await asyncio.create_subprocess_exec(*command)
        await self.until(self.answers)

    async def answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(ADDRESS, self.port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    async def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self.process.wait(), 30) == 0
        for server in (*self.mailboxes.values(), self.outside):
            await server.stop()
        self.registry.close()

    async def gatepost(self, *words: str) -> str:
        """What a command prints, which must succeed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "gatepost", *words, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, words
        return out.decode()

    async def shell(self, text: str) -> list[dict[str, Any]]:
        """The objects of a statement."""
        out = await self.gatepost("shell", "--config", str(self.folder / "hub.toml"), "--output", "json", "-c", text)
        found = json.loads(out) if out.strip() else []
        return found if isinstance(found, list) else [found]

    async def use(self, text: str) -> None:
        """Change the organization, and wait until the service has taken it up."""
        path = self.folder / "gatepost-HUB-01.sock"
        before = (await asyncio.to_thread(ask, path)).version
        await self.shell(text)

        async def is_used() -> bool:
            return (await asyncio.to_thread(ask, path)).version > before

        await self.until(is_used)


def stamp(path: Path) -> int:
    return path.stat().st_mtime_ns


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[ServedStage]:
    made = ServedStage(tmp_path)
    await made.prepare()
    await made.start()
    yield made
    await made.stop()


async def test_unreachable_mail_goes_as_soon_as_there_is_a_connector(stage: ServedStage) -> None:
    """And what the operator sees on the way: the queue, the message, the status, the limits."""
    await stage.send("a@contoso.com", "c@example.org", subject="waits")
    [queue] = await stage.shell("Get-Queue Unreachable")
    assert (queue["Identity"], queue["MessageCount"]) == ("HUB-01\\Unreachable", 1)
    [message] = await stage.shell('Get-Queue | Get-Message -Filter { Subject -like "w*" }')
    assert message["FromAddress"] == "a@contoso.com"
    config = str(stage.folder / "hub.toml")
    assert "takes mail" in await stage.gatepost("status", "-c", config)
    assert "HUB-01:" in await stage.gatepost("queue", "list", "--all-servers", "-c", config)

    smart_host = f"127.0.61.9:{stage.outside_port}"
    path = stage.folder / "hub.toml"

    async def follow() -> float:
        before = stamp(path)
        await stage.until(lambda: stamp(path) != before)
        began = time.monotonic()
        await stage.until(lambda: stage.outside.received)
        return time.monotonic() - began

    following = asyncio.create_task(follow())
    await stage.shell(
        f"New-SendConnector Internet -AddressSpaces * -SourceTransportServers HUB-01 -SmartHosts '{smart_host}' "
        "-DNSRoutingEnabled $false -IgnoreSTARTTLS $true"
    )
    seconds = await following
    print(f"from the file's change to the next server: {seconds:.2f} s")
    assert seconds < WITHIN

    await stage.use("Set-TransportServer HUB-01 -MaxPerDomainOutboundConnections 1")
    stage.outside.gate = asyncio.Event()
    for number in range(22):
        await stage.send("a@contoso.com", f"c{number}@example.org")
    before = stage.outside.connections
    await asyncio.sleep(0.2)
    assert stage.outside.connections == before, "one at a time"
    await stage.use("Set-TransportServer HUB-01 -MaxPerDomainOutboundConnections 2")
    await stage.until(lambda: stage.outside.connections > before)
    stage.outside.gate.set()
    await stage.until(lambda: len(stage.outside.received) == 23)
