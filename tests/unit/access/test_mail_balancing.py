"""A sign-in that several servers could take: tried in turn, the healthy first, and what is told of them (SPEC B7)."""

from __future__ import annotations

from typing import Any

import pytest
from stage import LIMITS, Stage, stage

from gatepost.balancing.affinity import Affinity
from gatepost.organization.model import Protocol
from gatepost.routing.outcome import Proxy, Target

LOGIN = b"a LOGIN alice secret-apw\r\n"
BOTH = ["MBX-01", "MBX-02"]


class Health:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.told: list[tuple[str, ...]] = []

    def healthy(self, server: str, service: str) -> bool:
        assert service == "imap"
        return server not in self.down

    def connected(self, server: str, service: str) -> None:
        self.told.append(("connected", server, service))

    def failed(self, server: str, service: str, client: str, reason: str) -> None:
        assert reason
        self.told.append(("failed", server, service, client))


def two_servers(s: Stage) -> Health:
    """Either of the two may take the sign-in, by turns."""
    targets = []
    for name, server in s.servers_of_databases():
        endpoint = server.endpoint(Protocol.IMAP)
        assert endpoint is not None
        targets.append(Target(name, endpoint))
    decision = Proxy(targets[0], candidates=tuple(targets), affinity=Affinity.ROUND_ROBIN)
    router: Any = s.router
    router.decide = lambda _protocol, _mailbox: decision
    health: Any = Health()
    s.door.health = health
    found: Health = health
    return found


async def sign_in(s: Stage) -> bytes:
    client = await s.connect()
    await client.line()
    return await client.tagged(LOGIN)


async def test_sign_ins_go_round_the_servers() -> None:
    async with stage() as s:
        health = two_servers(s)
        answers = [await sign_in(s) for _ in range(4)]
        assert [name for answer in answers for name in BOTH if name.encode() in answer] == BOTH * 2
        assert health.told == [("connected", name, "imap") for name in BOTH * 2]


async def test_a_server_that_is_gone_is_passed_over_and_told_of() -> None:
    async with stage() as s:
        health = two_servers(s)
        s._closers[0]()
        assert b"MBX-02" in await sign_in(s)
        assert health.told == [("failed", "MBX-01", "imap", "127.0.0.1"), ("connected", "MBX-02", "imap")]


async def test_a_server_that_accepts_and_hangs_is_passed_over() -> None:
    """After `server_step_seconds`: the machine answers, its service does not."""
    async with stage() as s:
        health = two_servers(s)
        s.servers["MBX-01"].greeting = None
        assert b"MBX-02" in await sign_in(s)
        assert [word for word, *_ in health.told] == ["failed", "connected"]


async def test_servers_that_are_down_are_tried_last() -> None:
    async with stage() as s:
        health = two_servers(s)
        health.down.add("MBX-01")
        for _ in range(3):
            assert b"MBX-02" in await sign_in(s)
        assert s.servers["MBX-01"].connections == 0


async def test_with_all_down_one_is_tried_and_is_back() -> None:
    async with stage() as s:
        health = two_servers(s)
        health.down.update(BOTH)
        assert b"MBX-01" in await sign_in(s)
        assert health.told == [("connected", "MBX-01", "imap")]


async def test_all_gone_is_a_temporary_fault_and_never_a_wrong_password() -> None:
    async with stage() as s:
        two_servers(s)
        for close in s._closers[:2]:
            close()
        answer = await sign_in(s)
        assert b"[UNAVAILABLE]" in answer
        attempts = s.log_lines("imap.refused")[0]["attempts"]
        assert [attempt.partition(":")[0] for attempt in attempts][:2] == BOTH


@pytest.mark.parametrize(
    ("answer", "connections", "told"),
    [
        (b"%s NO [AUTHENTICATIONFAILED] no\r\n", [1, 0], ["connected"]),
        (b"%s NO [UNAVAILABLE] not now\r\n", [1, 1], ["connected"]),
        (b"nonsense %s\r\n", [1, 1], ["failed", "connected"]),
    ],
    ids=["refused", "unavailable", "not understood"],
)
async def test_what_a_server_says_of_a_user_says_nothing_of_its_health(
    answer: bytes, connections: list[int], told: list[str]
) -> None:
    """Only who does not speak the protocol is told of as failed; a refused user is asked of nobody else."""
    async with stage() as s:
        health = two_servers(s)
        s.servers["MBX-01"].login_answer = answer
        await sign_in(s)
        assert [s.servers[name].connections for name in BOTH] == connections
        assert [word for word, *_ in health.told] == told


async def test_a_single_server_is_told_of_as_well() -> None:
    """It has no rotation to leave, but the health page and operators see it."""
    async with stage(LIMITS) as s:
        health: Any = Health()
        s.door.health = health
        await sign_in(s)
        s._closers[0]()
        await sign_in(s)
        assert [word for word, *_ in health.told] == ["connected", "failed", "failed"]
