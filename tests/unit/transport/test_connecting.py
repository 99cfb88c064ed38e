"""Opening connections (SPEC T4 to T9): failing over, hedging, what is told to the selector, and what is cleaned up."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from transport_samples import target

from gatepost.balancing.enhanced_dns import Rotation
from gatepost.balancing.healthy_server_selector import HealthyServerSelector, UnhealthyServer
from gatepost.balancing.socket_errors import describe, is_ours
from gatepost.balancing.target import Target
from gatepost.organization.transport import TransportSettings
from gatepost.transport.connecting import (
    LOCAL_FAULT_WAIT,
    MAX_BACKGROUND,
    Connected,
    Connecting,
    NotConnected,
    NotServed,
)

HUB04, HUB05, HUB06 = target("hub04"), target("hub05"), target("hub06")
SITE_B = [HUB04, HUB05, HUB06]
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
HANGS = "hangs"
TIMES_OUT = "times out when the test says so"


class Stage:
    """Servers that do what the test says, and everything that was seen of connecting."""

    def __init__(self, **settings: object) -> None:
        self.selector = HealthyServerSelector(TransportSettings(**settings))  # type: ignore[arg-type]
        self.does: dict[Target, object] = {}
        self.opened: list[Target] = []
        self.begun: list[Target] = []
        self.discarded: list[str] = []
        self.cancelled: list[Target] = []
        self.noted: list[tuple[str, str, str]] = []
        self.release = asyncio.Event()
        self.connecting = Connecting(self.selector, self.open, self.discarded.append, time.time)

    async def open(self, at: Target) -> str:
        self.begun.append(at)
        does = self.does.get(at)
        try:
            if does in {HANGS, TIMES_OUT}:
                await self.release.wait()
            if does == TIMES_OUT:
                raise TimeoutError
            if isinstance(does, BaseException):
                raise does
        except asyncio.CancelledError:
            self.cancelled.append(at)
            raise
        self.opened.append(at)
        return at.host

    def rotation(self, first: Target | None = None) -> Rotation:
        """One whose first turn is `first`'s."""
        for seed in range(1000):
            trial = Rotation(HealthyServerSelector(self.selector.settings), Random(seed).random)
            attempt = trial.turn(SITE_B).next(time.time())
            if first is None or (attempt is not None and attempt.target == first):
                return Rotation(self.selector, Random(seed).random)
        raise AssertionError(first)

    # The notes of one session
    def connected(self, now: float, at: Target) -> None:
        self.noted.append(("connected", at.ip, ""))

    def failed(self, now: float, at: Target, error: OSError, server: UnhealthyServer | None) -> None:
        self.noted.append(("failed", at.ip, "marked" if server is not None else ""))

    def refused(self, now: float, at: Target, why: str) -> None:
        self.noted.append(("refused", at.ip, why))

    def unhealthy(self) -> list[str]:
        return [server.address for server in self.selector.unhealthy(time.time())]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def test_the_target_whose_turn_it_is_is_connected_to() -> None:
    stage = Stage()
    assert await stage.connecting.connect(stage.rotation(HUB05), SITE_B, stage) == Connected(HUB05, HUB05.host)
    assert stage.begun == [HUB05]
    assert stage.noted == [("connected", HUB05.ip, "")]


async def test_any_socket_error_marks_the_server_and_the_next_one_is_tried() -> None:
    stage = Stage()
    stage.does[HUB04] = REFUSED
    result = await stage.connecting.connect(stage.rotation(HUB04), SITE_B, stage)
    assert isinstance(result, Connected)
    assert result.target in {HUB05, HUB06}
    assert stage.unhealthy() == [HUB04.ip]
    assert stage.noted[0] == ("failed", HUB04.ip, "marked")


async def test_a_server_that_refuses_to_serve_is_not_marked_and_the_next_one_is_tried() -> None:
    """Not every refusal is a socket error: the source's definition (smtp-facts row 44, 46)."""
    stage = Stage()
    stage.does[HUB04] = NotServed("421 4.3.2 busy")
    result = await stage.connecting.connect(stage.rotation(HUB04), SITE_B, stage)
    assert isinstance(result, Connected)
    assert stage.unhealthy() == []
    assert stage.noted[0] == ("refused", HUB04.ip, "421 4.3.2 busy")


async def greeting(stage: Stage, greet: Callable[[str], Awaitable[str]]) -> Connected[str] | NotConnected:
    connecting = Connecting(stage.selector, stage.open, stage.discarded.append, time.time, greet)
    return await connecting.connect(stage.rotation(HUB04), SITE_B, stage)


async def test_a_server_that_greets_late_is_waited_for_without_a_second_connection_and_is_not_marked() -> None:
    stage = Stage(connect_seconds=0.05, hedge_seconds=0.01)

    async def late(connection: str) -> str:
        await asyncio.sleep(0.1)
        return f"greeted {connection}"

    assert await greeting(stage, late) == Connected(HUB04, f"greeted {HUB04.host}")
    assert stage.begun == [HUB04]
    assert stage.unhealthy() == []


@pytest.mark.parametrize(
    "fault", [NotServed("554 no"), ConnectionResetError(errno.ECONNRESET, "reset"), TimeoutError()]
)
async def test_a_greeting_that_fails_is_no_socket_error_and_the_next_target_is_tried(fault: Exception) -> None:
    stage = Stage()

    async def once(connection: str) -> str:
        if connection == HUB04.host:
            raise fault
        return connection

    result = await greeting(stage, once)
    assert isinstance(result, Connected)
    assert result.target in {HUB05, HUB06}
    assert stage.unhealthy() == []
    assert [kind for kind, _, _ in stage.noted] == ["connected", "refused", "connected"]


async def test_when_no_greeting_succeeds_all_have_refused() -> None:
    stage = Stage()

    async def never(connection: str) -> str:
        raise NotServed(f"421 {connection}")

    result = await greeting(stage, never)
    assert isinstance(result, NotConnected)
    assert len(result.errors) == 3
    assert stage.unhealthy() == []


async def test_a_heartbeat_is_greeted_too() -> None:
    stage = Stage()

    async def greet(connection: str) -> str:
        return f"greeted {connection}"

    connecting = Connecting(stage.selector, stage.open, stage.discarded.append, time.time, greet)
    assert await connecting.heartbeat(HUB04) == f"greeted {HUB04.host}"


async def test_when_all_fail_the_first_due_time_is_told() -> None:
    stage = Stage()
    stage.does = dict.fromkeys(SITE_B, REFUSED)
    before = time.time()
    result = await stage.connecting.connect(stage.rotation(), SITE_B)
    assert isinstance(result, NotConnected)
    assert [error for _, error in result.errors] == [REFUSED] * 3
    assert before + 60 <= result.due <= time.time() + 60
    stage.begun.clear()
    again = await stage.connecting.connect(stage.rotation(), SITE_B)
    assert isinstance(again, NotConnected)
    assert again.errors == ()
    assert again.due == pytest.approx(result.due, abs=1)
    assert stage.begun == [], "nobody is tried before the time"


@pytest.mark.parametrize("selects", [True, False])
async def test_when_all_refuse_or_nothing_is_remembered_the_first_interval_is_waited(selects: bool) -> None:
    stage = Stage(healthy_server_selector=selects)
    stage.does = dict.fromkeys(SITE_B, NotServed("554 no") if selects else REFUSED)
    before = time.time()
    result = await stage.connecting.connect(stage.rotation(), SITE_B)
    assert isinstance(result, NotConnected)
    assert before + 60 <= result.due <= time.time() + 60


async def test_in_the_naive_mode_the_next_in_the_list_is_tried() -> None:
    stage = Stage(healthy_server_selector=False)
    stage.does[HUB05] = REFUSED
    result = await stage.connecting.connect(stage.rotation(HUB05), SITE_B)
    assert result == Connected(HUB06, HUB06.host)
    assert stage.unhealthy() == []


async def test_one_that_hangs_for_the_whole_time_is_marked() -> None:
    stage = Stage(connect_seconds=0.05, hedge_seconds=0.0)
    stage.does[HUB04] = HANGS
    result = await stage.connecting.connect(stage.rotation(HUB04), SITE_B)
    assert isinstance(result, Connected)
    assert stage.unhealthy() == [HUB04.ip]
    assert stage.selector.unhealthy(time.time())[0].error == "TimedOut:0000274C"


async def test_a_hedge_wins_while_the_first_hangs_and_the_slow_one_is_found_out_in_the_background() -> None:
    stage = Stage(hedge_seconds=0.03)
    stage.does[HUB04] = TIMES_OUT
    began = asyncio.get_running_loop().time()
    result = await stage.connecting.connect(stage.rotation(HUB04), SITE_B, stage)
    assert isinstance(result, Connected)
    assert result.target in {HUB05, HUB06}
    assert stage.begun[0] == HUB04
    assert asyncio.get_running_loop().time() - began >= 0.02, "only after a while"
    assert (stage.unhealthy(), stage.connecting.background) == ([], 1)
    stage.release.set()
    await until(lambda: stage.unhealthy() == [HUB04.ip])
    assert stage.connecting.background == 0
    assert ("failed", HUB04.ip, "marked") in stage.noted


async def test_the_turn_of_one_that_lost_is_no_part_of_its_share() -> None:
    stage = Stage(hedge_seconds=0.01)
    stage.does[HUB04] = HANGS
    rotation = stage.rotation(HUB04)
    result = await stage.connecting.connect(rotation, SITE_B)
    assert isinstance(result, Connected)
    assert {host: rotation._counts.get(host) for host in (HUB04.host, result.target.host)} == {
        HUB04.host: 0,
        result.target.host: 1,
    }
    await stage.connecting.close()


async def test_while_one_hangs_the_next_connections_go_to_the_others_without_waiting() -> None:
    stage = Stage(hedge_seconds=0.02)
    stage.does[HUB04] = TIMES_OUT
    await stage.connecting.connect(stage.rotation(HUB04), SITE_B)
    stage.begun.clear()
    for _ in range(30):
        await stage.connecting.connect(stage.rotation(), SITE_B)
    assert HUB04 not in stage.begun
    stage.release.set()
    await until(lambda: stage.unhealthy() == [HUB04.ip])
    assert not stage.selector.hanging(HUB04)


async def test_the_next_connections_go_past_one_that_has_not_answered_for_a_part_of_the_hedges_time() -> None:
    stage = Stage(hedge_seconds=60.0)
    stage.does[HUB04] = HANGS
    first = asyncio.ensure_future(stage.connecting.connect(stage.rotation(HUB04), SITE_B))
    await until(lambda: stage.begun == [HUB04])
    assert not stage.selector.hanging(HUB04), "it may answer yet"
    stage.selector.settings = TransportSettings(hedge_seconds=0.08)  # an eighth of which is soon over
    await asyncio.sleep(0.02)
    for _ in range(30):
        await stage.connecting.connect(stage.rotation(), SITE_B)
    assert stage.begun.count(HUB04) == 1
    stage.release.set()
    assert await first == Connected(HUB04, HUB04.host)
    assert not stage.selector.hanging(HUB04)


async def test_a_slow_one_that_opens_after_all_is_healthy_and_closed() -> None:
    stage = Stage(connect_seconds=10.0, hedge_seconds=0.01)
    stage.does[HUB04] = HANGS
    await stage.connecting.connect(stage.rotation(HUB04), SITE_B)
    stage.release.set()
    await until(lambda: stage.discarded == [HUB04.host])
    assert stage.unhealthy() == []
    assert not stage.selector.hanging(HUB04)


async def test_the_hedge_is_of_the_same_preference_never_of_a_lower_one() -> None:
    stage = Stage(connect_seconds=0.2, hedge_seconds=0.01)
    best, backup = target("mx01", preference=10), target("mx09", preference=20)
    stage.does[best] = HANGS
    connecting = asyncio.ensure_future(
        stage.connecting.connect(Rotation(stage.selector, Random(1).random), [backup, best])
    )
    await until(lambda: stage.begun == [best])
    assert await connecting == Connected(backup, backup.host)
    assert stage.unhealthy() == [best.ip], "the backup was tried after it had failed"


async def test_in_normal_times_nobody_is_connected_to_twice() -> None:
    stage = Stage()
    for _ in range(30):
        await stage.connecting.connect(stage.rotation(), SITE_B)
    assert len(stage.begun) == 30
    assert stage.discarded == []


async def test_both_of_two_that_hang_are_marked_and_the_third_wins() -> None:
    stage = Stage(connect_seconds=0.3, hedge_seconds=0.02)
    stage.does = {HUB04: HANGS, HUB05: HANGS}
    result = await stage.connecting.connect(stage.rotation(HUB04), SITE_B)
    assert result == Connected(HUB06, HUB06.host)
    await until(lambda: stage.unhealthy() in ([HUB04.ip, HUB05.ip], [HUB04.ip]) and not stage.connecting.background)


async def test_what_runs_in_the_background_is_bounded_and_what_is_ended_is_no_failure() -> None:
    stage = Stage(connect_seconds=10.0, hedge_seconds=0.01)
    stage.does[HUB04] = HANGS
    pair = [HUB04, HUB05]
    results = await asyncio.gather(
        *(stage.connecting.connect(Rotation(stage.selector, Random(seed).random), pair) for seed in range(300))
    )
    assert all(isinstance(result, Connected) for result in results)
    assert stage.connecting.background == MAX_BACKGROUND
    await until(lambda: len(stage.cancelled) > 0)
    assert stage.unhealthy() == []
    await stage.connecting.close()
    assert stage.connecting.background == 0
    assert stage.unhealthy() == []
    assert not stage.selector.hanging(HUB04)


async def test_a_caller_that_is_cancelled_leaves_nothing_behind() -> None:
    stage = Stage(hedge_seconds=0.01)
    stage.does = dict.fromkeys(SITE_B, HANGS)
    connecting = asyncio.ensure_future(stage.connecting.connect(stage.rotation(), SITE_B))
    await until(lambda: len(stage.begun) == 3)
    connecting.cancel()
    await until(lambda: len(stage.cancelled) == 3)
    assert stage.unhealthy() == []


async def test_a_probe_that_is_cancelled_leaves_the_lease_to_the_schedule() -> None:
    stage = Stage(queue_glitch_retry_interval=1.0)
    stage.selector.failed(HUB04, time.time() - 5, "x")
    stage.does[HUB04] = HANGS
    connecting = asyncio.ensure_future(stage.connecting.connect(stage.rotation(), [HUB04]))
    await until(lambda: stage.begun == [HUB04])
    connecting.cancel()
    await until(lambda: stage.cancelled == [HUB04])
    assert stage.selector.begin(HUB04, time.time()) is None
    assert stage.selector.begin(HUB04, time.time() + 1.1)


async def test_of_a_thousand_that_wait_one_connects_when_the_retry_is_due() -> None:
    stage = Stage()
    stage.selector.failed(HUB04, time.time() - 61, "x")
    stage.does[HUB04] = REFUSED
    results = await asyncio.gather(*(stage.connecting.connect(stage.rotation(), [HUB04]) for _ in range(1000)))
    assert all(isinstance(result, NotConnected) for result in results)
    assert stage.begun == [HUB04]
    (server,) = stage.selector.unhealthy(time.time())
    assert (server.failures, server.retries) == (2, 1)


async def test_the_one_attempt_that_succeeds_brings_the_server_back() -> None:
    stage = Stage()
    stage.selector.failed(HUB04, time.time() - 61, "x")
    result = await stage.connecting.connect(stage.rotation(), SITE_B)
    assert result == Connected(HUB04, HUB04.host)
    assert stage.unhealthy() == []


async def test_a_heartbeat_connects_whatever_the_list_says_and_clears_it() -> None:
    stage = Stage()
    stage.selector.failed(HUB04, time.time(), "x")
    assert await stage.connecting.heartbeat(HUB04, stage) == HUB04.host
    assert stage.unhealthy() == []


async def test_a_heartbeat_that_fails_marks() -> None:
    stage = Stage()
    stage.does[HUB04] = REFUSED
    with pytest.raises(ConnectionRefusedError):
        await stage.connecting.heartbeat(HUB04)
    assert stage.unhealthy() == [HUB04.ip]


async def test_when_this_machine_has_no_descriptors_left_nobody_is_marked_and_nobody_else_tried() -> None:
    stage = Stage()
    stage.does = dict.fromkeys(SITE_B, OSError(errno.EMFILE, "too many open files"))
    before = time.time()
    result = await stage.connecting.connect(stage.rotation(), SITE_B)
    assert isinstance(result, NotConnected)
    assert len(stage.begun) == 1
    assert stage.unhealthy() == []
    assert before + LOCAL_FAULT_WAIT <= result.due <= time.time() + LOCAL_FAULT_WAIT


async def test_a_bug_of_the_opener_is_not_hidden_and_not_held_against_the_server() -> None:
    stage = Stage()
    stage.does = dict.fromkeys(SITE_B, ZeroDivisionError())
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    with pytest.raises(ZeroDivisionError):
        await stage.connecting.connect(stage.rotation(), SITE_B)
    assert stage.unhealthy() == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "TimedOut:0000274C"),
        (TimeoutError(errno.ETIMEDOUT, "x"), "TimedOut:0000274C"),
        (REFUSED, "ConnectionRefused:0000274D"),
        (ConnectionRefusedError("x"), "ConnectionRefused:0000274D"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "ConnectionReset:00002746"),
        (ConnectionAbortedError("x"), "ConnectionReset:00002746"),
        (OSError(errno.EHOSTUNREACH, "x"), "HostUnreachable:00002751"),
        (OSError(errno.ENETUNREACH, "x"), "NetworkUnreachable:00002743"),
        (OSError(errno.EPROTO, "x"), "EPROTO:00000047"),
        (OSError("x"), "SocketError:00000000"),
    ],
)
def test_socket_errors_have_the_sources_names_and_numbers(error: OSError, words: str) -> None:
    assert describe(error) == words
    assert not is_ours(error)
