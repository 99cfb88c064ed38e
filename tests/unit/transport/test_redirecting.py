"""Mail that waits is handed to another hub, before a maintenance (`Redirect-Message`, exchange-facts 4.6 to 4.8)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hub_stage import HubStage, Played

from gatepost.lab.servers.process import free_ports
from gatepost.transport.operating import NotFound

SECOND_HUB = """
[servers.HUB-02]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-02.contoso.com"
address = "127.0.61.4"
endpoints = { smtp = { port = PORT, tls = "clear" } }
"""


@pytest.fixture
async def neighbour(tmp_path: Path) -> AsyncIterator[tuple[HubStage, Played]]:
    """A hub with a second one beside it, which the test plays; the server outside is down."""
    [port] = free_ports("127.0.61.4", 1)
    made, second = HubStage(tmp_path, SECOND_HUB.replace("PORT", str(port))), Played("127.0.61.4", port)
    await made.prepare()
    await made.start()
    await second.start()
    await made.outside.stop()
    yield made, second
    await made.stop()
    await second.stop()


async def test_waiting_mail_is_redirected_to_another_hub(neighbour: tuple[HubStage, Played]) -> None:
    stage, second = neighbour
    await stage.send("a@contoso.com", "c@example.org")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    assert await stage.hub.operate("redirect", {"target": "hub-02"}) == 1
    await stage.until(lambda: second.received)
    assert second.received[0].recipients == ["c@example.org"]


async def test_mail_is_redirected_to_another_hub_only(neighbour: tuple[HubStage, Played]) -> None:
    """A mailbox server would say that it has no such mailbox, and the senders would have their mail back."""
    stage, _ = neighbour
    await stage.send("a@contoso.com", "c@example.org")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    for target, why in (("HUB-99", "there is no server"), ("MBX-02", "no hub and no edge"), ("HUB-01", "already")):
        with pytest.raises(NotFound, match=why):
            await stage.hub.operate("redirect", {"target": target})
    [queue] = [entry for entry in await stage.hub.operate("queues", {}) if entry["messages"]]
    assert queue["delivery_type"] == "SmartHostConnectorDelivery"
    assert queue["last_error"] == f"127.0.61.9 [127.0.61.9]:{stage.outside_port}: Connection refused"


async def test_what_is_frozen_is_not_redirected(neighbour: tuple[HubStage, Played]) -> None:
    """A message, and then the queue."""
    stage, second = neighbour
    await stage.send("a@contoso.com", "frozen@example.org")
    await stage.until(lambda: stage.hub.counters()["unhealthy_servers"])
    [message] = await stage.hub.operate("messages", {})
    await stage.hub.operate("freeze_message", {"message": f"*\\{message['number']}"})
    await stage.send("a@contoso.com", "c@example.org")
    assert await stage.hub.operate("redirect", {"target": "HUB-02"}) == 1
    await stage.until(lambda: second.received)
    assert await stage.hub.operate("resume_message", {"message": f"*\\{message['number']}"}) == 1
    await stage.hub.operate("freeze_queue", {"queue": str(message["queue"])})
    assert await stage.hub.operate("redirect", {"target": "HUB-02"}) == 0
    await stage.hub.operate("resume_queue", {"queue": str(message["queue"])})
    assert await stage.hub.operate("redirect", {"target": "HUB-02"}) == 1
    await stage.until(lambda: len(second.received) == 2)
    assert second.received[1].recipients == ["frozen@example.org"]
