"""Sign-ins during a move, a failover, at a server that has not the database, and too many at once, by real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from stage import LIMITS, Client, Stage, stage, until

from gatepost.access.registry_age import RegistryAge
from gatepost.access.sign_in_turns import NO_TURN
from gatepost.activemanager.port import Lease, Move, RegistryView
from gatepost.configuration.settings import Limits
from gatepost.organization.model import ClientAddress, SignIn

LOGIN = b"a LOGIN alice secret-apw\r\n"
OLD, NEW = "MBX-01", "MBX-02"
QUICK = replace(LIMITS, parking_seconds=0.3)
LEASE = Lease("manager", "CAS-01", 1, 10.0)


def set_view(s: Stage, server: str, epoch: int, *, moving: bool = False, managed: bool = False) -> None:
    """What the registry says from now on, told as the front door tells it."""
    moves = MappingProxyType({"DB01": Move("DB01", OLD, NEW, epoch, 0.0)} if moving else {})
    view: RegistryView = replace(s.view(server, epoch), moves=moves, manager=LEASE if managed else None)
    s.router.set_view(view)
    for leg in list(s.door.pending):
        leg.database_moved()
    s.door.parking.set_view(view)


async def come(s: Stage) -> tuple[Client, asyncio.Future[bytes]]:
    """A client and the answer to its sign-in."""
    client = await s.connect()
    await client.line()
    return client, asyncio.ensure_future(client.tagged(LOGIN))


async def parked(s: Stage, number: int = 1) -> None:
    await until(lambda: len(s.door.parking) == number)


def refused(s: Stage) -> dict[str, Any]:
    """The only line about a refusal."""
    (line,) = s.log_lines("imap.refused")
    return line


async def test_a_sign_in_during_a_move_waits_and_lands_on_the_new_server() -> None:
    """The old one does not even see a connection; the client sees one answer, OK."""
    async with stage() as s:
        set_view(s, OLD, 1, moving=True)
        _, answer = await come(s)
        await parked(s)
        set_view(s, NEW, 2)
        assert b"MBX-02" in await answer
        assert s.servers[OLD].connections == 0
        assert s.log_lines("imap.refused") == []


async def test_after_a_move_that_came_to_nothing_it_lands_where_it_was() -> None:
    async with stage() as s:
        set_view(s, OLD, 1, moving=True)
        _, answer = await come(s)
        await parked(s)
        set_view(s, OLD, 1)
        assert b"MBX-01" in await answer


async def test_a_move_that_takes_too_long_is_unavailable_and_no_wrong_password() -> None:
    """Field case 116: `[UNAVAILABLE]`, and the client may try again on the same connection."""
    async with stage(QUICK) as s:
        set_view(s, OLD, 1, moving=True)
        client, answer = await come(s)
        assert (await answer).startswith(b"a NO [UNAVAILABLE] ")
        assert refused(s)["refusal"] == "unavailable"
        assert "a move is under way" in refused(s)["reason"]
        assert s.servers[OLD].connections == 0
        set_view(s, NEW, 2)
        assert (await client.tagged(b"b LOGIN alice secret-apw\r\n")).startswith(b"b OK")


async def test_a_wrong_password_is_told_at_once_during_a_move() -> None:
    """Judged here: it needs no mailbox server."""
    async with stage() as s:
        set_view(s, OLD, 1, moving=True)
        client = await s.connect()
        await client.line()
        assert b"[AUTHENTICATIONFAILED]" in await client.tagged(b"a LOGIN alice wrong\r\n")


async def test_parking_ends_with_the_time_for_signing_in() -> None:
    """Still pending: the deadline from the connection on holds, and is told in the protocol's words before it cuts."""
    async with stage(replace(LIMITS, sign_in_seconds=1.3)) as s:
        set_view(s, OLD, 1, moving=True)
        _, answer = await come(s)
        assert (await answer).startswith(b"a NO [UNAVAILABLE] ")


async def test_parking_ends_with_the_client() -> None:
    async with stage() as s:
        set_view(s, OLD, 1, moving=True)
        client, answer = await come(s)
        await parked(s)
        client.writer.transport.abort()
        await parked(s, 0)
        await asyncio.gather(answer, return_exceptions=True)
        assert not s.door.pending


async def test_parking_survives_a_reload() -> None:
    async with stage() as s:
        set_view(s, OLD, 1, moving=True)
        _, answer = await come(s)
        await parked(s)
        s.door.reload(s.configuration, s.door.client_contexts)
        s.router.set_configuration(s.configuration)
        set_view(s, NEW, 2)
        assert b"MBX-02" in await answer


async def test_a_drain_tells_those_who_are_parked() -> None:
    async with stage() as s:
        set_view(s, OLD, 1, moving=True)
        _, answer = await come(s)
        await parked(s)
        await s.door.drain(0)
        assert b"BYE" in await answer or (await answer) == b""


async def test_too_many_parked_are_told_so() -> None:
    async with stage(replace(LIMITS, parked=1)) as s:
        set_view(s, OLD, 1, moving=True)
        _, first = await come(s)
        await parked(s)
        _, second = await come(s)
        assert (await second).startswith(b"a NO [UNAVAILABLE] ")
        assert "too many wait" in refused(s)["reason"]
        assert not first.done()
        set_view(s, NEW, 2)
        assert b"MBX-02" in await first


# --- a failover


async def test_when_the_server_is_gone_the_sign_in_waits_for_the_next() -> None:
    """kill -9, a manager, another copy: no error reaches the client."""
    async with stage() as s:
        set_view(s, OLD, 1, managed=True)
        s._closers[0]()
        _, answer = await come(s)
        await parked(s)
        set_view(s, NEW, 2, managed=True)
        assert b"MBX-02" in await answer
        assert s.log_lines("imap.refused") == []


async def test_a_server_that_comes_back_is_used_again() -> None:
    """Nobody took over: it was a restart."""
    async with stage() as s:
        set_view(s, OLD, 1, managed=True)
        s._closers[0]()
        _, answer = await come(s)
        await parked(s)
        again = await asyncio.start_server(s.servers[OLD]._serve, "127.0.0.1", s.servers[OLD].port)
        s._closers.append(again.close)
        assert b"MBX-01" in await answer


async def test_a_sign_in_at_a_server_that_hangs_goes_to_the_next_at_once() -> None:
    """SIGSTOP: its greeting never comes. Nobody waits for it once the registry has moved on."""
    async with stage(replace(LIMITS, server_step_seconds=20.0)) as s:
        set_view(s, OLD, 1, managed=True)
        s.servers[OLD].greeting = None
        _, answer = await come(s)
        await until(lambda: s.servers[OLD].connections == 1)
        set_view(s, NEW, 2, managed=True)
        assert b"MBX-02" in await asyncio.wait_for(answer, 2)


async def test_without_a_manager_nobody_waits_for_a_failover() -> None:
    async with stage() as s:
        s._closers[0]()
        _, answer = await come(s)
        assert (await asyncio.wait_for(answer, 3)).startswith(b"a NO [UNAVAILABLE] ")
        assert len(s.door.parking) == 0


async def test_a_failover_that_does_not_come_is_unavailable() -> None:
    async with stage(QUICK) as s:
        set_view(s, OLD, 1, managed=True)
        s._closers[0]()
        _, answer = await come(s)
        assert (await answer).startswith(b"a NO [UNAVAILABLE] ")
        assert OLD in refused(s)["reason"]


async def test_a_refusal_by_a_server_that_works_waits_for_nothing() -> None:
    """`[INUSE]` is between it and the user."""
    async with stage() as s:
        set_view(s, OLD, 1, managed=True)
        s.servers[OLD].login_answer = b"%s NO [INUSE] locked\r\n"
        _, answer = await come(s)
        assert (await answer).startswith(b"a NO [INUSE] ")


# --- not mine


class Look:
    """A registry that is asked anew, and knows better."""

    def __init__(self, s: Stage, server: str = NEW, epoch: int = 2) -> None:
        self.number = 0
        self._found = (s, server, epoch)
        s.router.age = RegistryAge(300.0, look=self)

    async def __call__(self, _seconds: float) -> bool:
        self.number += 1
        set_view(*self._found)
        return True


@pytest.mark.parametrize(
    "answer",
    [b"%s NO [X-NOT-MINE] DB01 is not here\r\n", b"%s NO [REFERRAL imap://alice@mbx-02/] elsewhere\r\n"],
    ids=["not mine", "a referral"],
)
async def test_a_server_that_has_not_the_database_has_the_registry_asked_anew(answer: bytes) -> None:
    """Field case 12: the cached answer goes, one look, one more attempt. Where it refers to is not followed."""
    async with stage() as s:
        look = Look(s)
        s.servers[OLD].login_answer = answer
        _, told = await come(s)
        assert b"MBX-02" in await told
        assert look.number == 1
        assert s.servers[OLD].connections == 1


async def test_two_servers_that_send_to_each_other_are_no_endless_loop() -> None:
    """Field case 10. One retry, then unavailable, which is no wrong password."""
    async with stage() as s:
        look = Look(s)
        for server in s.servers.values():
            server.login_answer = b"%s NO [X-NOT-MINE] not here\r\n"
        _, told = await come(s)
        assert (await told).startswith(b"a NO [UNAVAILABLE] ")
        assert look.number == 1
        assert [s.servers[name].connections for name in (OLD, NEW)] == [1, 1]
        assert "X-NOT-MINE" in refused(s)["reason"]


async def test_a_server_that_learns_late_gets_the_second_attempt() -> None:
    """The registry says the same as before."""
    async with stage() as s:
        look = Look(s, OLD, 1)
        server = s.servers[OLD]
        ok, server.login_answer = server.login_answer, b"%s NO [X-NOT-MINE] not yet\r\n"
        _, told = await come(s)
        await until(lambda: look.number)
        server.login_answer = ok
        assert b"MBX-01" in await told


@pytest.mark.parametrize("send_epoch", [True, False])
async def test_the_epoch_goes_to_a_server_that_wants_it(send_epoch: bool) -> None:
    """By ID, together with the client's address (field case 11)."""
    how = SignIn(send_epoch=send_epoch)
    async with stage(sign_in=how, client_address=ClientAddress.ID) as s:
        set_view(s, OLD, 7)
        _, told = await come(s)
        assert (await told).startswith(b"a OK")
        line = next(line for line in s.servers[OLD].lines if b" ID " in line)
        assert (b'"x-gatepost-database" "DB01" "x-gatepost-epoch" "7"' in line) is send_epoch


async def test_without_id_nothing_is_said_of_the_epoch() -> None:
    async with stage(sign_in=SignIn(send_epoch=True)) as s:
        _, told = await come(s)
        assert (await told).startswith(b"a OK")
        assert b"epoch" not in b"".join(s.servers[OLD].lines)


# --- storms

STORM = replace(LIMITS, sign_ins_per_server=3, server_step_seconds=20.0, connect_seconds=5.0)


class Slow:
    """Sign-ins at a server that takes its time; how many were under way at once."""

    def __init__(self, s: Stage, name: str = OLD) -> None:
        self.most = 0
        self.door = s.door
        server = s.servers[name]
        serve = server._serve

        async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.most = max(self.most, s.door.turns.under_way)
            await asyncio.sleep(0.01)
            await serve(reader, writer)

        server._serve = counting  # type: ignore[method-assign]


async def test_a_storm_stays_bounded_and_all_come_in() -> None:
    """Never more than `sign_ins_per_server` at one server; nobody is refused."""
    async with stage(STORM) as s:
        slow = Slow(s)
        server = s.servers[OLD]
        s._closers[0]()
        again = await asyncio.start_server(server._serve, "127.0.0.1", server.port)
        s._closers.append(again.close)
        port = await s.listen()

        async def one() -> bytes:
            client = await s.connect(port)
            await client.line()
            return await client.tagged(LOGIN)

        answers = await asyncio.gather(*(one() for _ in range(60)))
        assert all(answer.startswith(b"a OK") for answer in answers)
        assert slow.most == 3
        assert s.door.turns.under_way == s.door.turns.waiting == 0


async def hang(s: Stage, number: int) -> list[asyncio.Future[bytes]]:
    """So many sign-ins at a server that never greets; the first three have their turn."""
    s.servers[OLD].greeting = None
    port = await s.listen()
    answers: list[asyncio.Future[bytes]] = []
    for _ in range(number):
        client = await s.connect(port)
        await client.line()
        answers.append(asyncio.ensure_future(client.tagged(LOGIN)))
    await until(lambda: s.door.turns.waiting == number - 3)
    return answers


async def test_whoever_waits_in_vain_is_told_before_the_time_is_over() -> None:
    async with stage(replace(STORM, sign_in_seconds=1.4)) as s:
        answers = await hang(s, 5)
        assert (await answers[-1]).startswith(b"a NO [UNAVAILABLE] ")
        assert NO_TURN in s.log_lines("imap.refused")[0]["reason"]
        await asyncio.gather(*answers)


async def test_those_who_wait_for_a_server_that_hangs_go_on_when_the_database_moves() -> None:
    async with stage(STORM) as s:
        answers = await hang(s, 10)
        set_view(s, NEW, 2)
        assert all(b"MBX-02" in answer for answer in await asyncio.gather(*answers))
        assert s.servers[OLD].connections == 3
        assert s.door.turns.under_way == s.door.turns.waiting == 0


async def behind_others(s: Stage) -> asyncio.Future[bytes]:
    """A sign-in that waits behind those of other databases, which have all turns."""
    assert all(s.door.turns.enter(OLD) for _ in range(3))
    _, answer = await come(s)
    await until(lambda: s.door.turns.waiting == 1)
    return answer


async def test_who_waits_behind_others_goes_on_when_the_database_moves() -> None:
    """Theirs stay where they are, at a server that hangs."""
    async with stage(STORM) as s:
        answer = await behind_others(s)
        set_view(s, NEW, 2)
        assert b"MBX-02" in await answer
        assert (s.door.turns.under_way, s.door.turns.waiting) == (3, 0)


@pytest.mark.parametrize("told", [True, False])
async def test_a_turn_that_comes_just_as_the_database_moves_is_given_back(told: bool) -> None:
    """Once, whichever of the two the sign-in hears of first."""
    async with stage(STORM) as s:
        answer = await behind_others(s)
        s.door.turns.leave(OLD)
        assert s.door.turns.waiting == 0
        if told:
            set_view(s, NEW, 2)
        else:
            s.router.set_view(s.view(NEW, 2))
        assert b"MBX-02" in await answer
        assert s.door.turns.under_way == 2


async def test_clients_that_leave_while_they_wait_leave_nothing_behind() -> None:
    async with stage(STORM) as s:
        answers = await hang(s, 8)
        for client in s._clients:
            client.writer.transport.abort()
        await until(lambda: not s.door.pending)
        assert s.door.turns.under_way == s.door.turns.waiting == 0
        await asyncio.gather(*answers, return_exceptions=True)


async def test_too_many_who_wait_are_told_so() -> None:
    async with stage(replace(STORM, parked=2)) as s:
        answers = await hang(s, 5)
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a NO [UNAVAILABLE] ")
        set_view(s, NEW, 2)
        await asyncio.gather(*answers)


def test_the_defaults_leave_room_before_clients_give_up() -> None:
    """Field case 116: clients give up after 30 seconds."""
    limits = Limits()
    assert limits.parking_seconds == 20.0 < 30.0 < limits.sign_in_seconds
