"""Where a proving of shadow redundancy strikes: the stages are there, and a hub is caught where the trap says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gatepost.proving.stages import STAGES, Gate, Part, Place, Stage, Trap, environment, find, watched


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_every_stage_names_a_method_that_is_there(stage: Stage) -> None:
    """A method that is renamed takes its stage along, or this fails."""
    assert find(stage.place) is not None


def test_stages_have_names_of_their_own_and_every_part_has_one() -> None:
    assert len({stage.name for stage in STAGES}) == len(STAGES)
    assert {stage.part for stage in STAGES} == set(Part)


def test_a_method_that_is_not_there_is_no_place() -> None:
    assert find(Place("transport.spool.spool", "DiskSpool.nothing")) is None
    assert find(Place("transport.spool.nothing", "DiskSpool.commit")) is None


def test_the_first_that_comes_is_caught_once(tmp_path: Path) -> None:
    trap, stopped = Trap(tmp_path), []
    one = Gate(tmp_path, "HUB-01", lambda: stopped.append("HUB-01"))
    two = Gate(tmp_path, "HUB-02", lambda: stopped.append("HUB-02"))
    one(["settled"])
    trap.arm("settled")
    one(["answered"])
    assert trap.caught() is None
    two(["answered", "settled"])
    one(["settled"])
    assert stopped == ["HUB-02"]
    assert trap.caught() == "HUB-02"
    assert trap.caught() is None


def test_only_the_hub_that_is_named_is_caught(tmp_path: Path) -> None:
    trap, stopped = Trap(tmp_path), []
    gates = [Gate(tmp_path, name, lambda name=name: stopped.append(name)) for name in ("HUB-01", "HUB-02")]  # type: ignore[misc]
    trap.arm("settled", server="HUB-02")
    for gate in gates:
        gate(["settled"])
    assert stopped == ["HUB-02"]


def test_some_pass_before_it_strikes(tmp_path: Path) -> None:
    trap, stopped = Trap(tmp_path), []
    gate = Gate(tmp_path, "HUB-01", lambda: stopped.append(1))
    for _ in range(2):
        trap.arm("settled", 2)
        for _ in range(2):
            gate(["settled"])
        assert trap.caught() is None
        gate(["settled"])
        assert trap.caught() == "HUB-01"
    assert len(stopped) == 2
    trap.arm("settled")
    trap.disarm()
    gate(["settled"])
    assert len(stopped) == 2


async def test_a_method_is_looked_at_before_its_call_or_when_its_result_is_there() -> None:
    """Plain results, coroutines and futures; the result is what it was."""
    seen: list[str] = []

    def gate(names: list[str]) -> None:
        seen.extend(names)

    class Spool:
        def plain(self, value: int) -> int:
            seen.append("plain")
            return value

        async def slow(self, value: int) -> int:
            await asyncio.sleep(0)
            seen.append("slow")
            return value

        def future(self, value: int) -> asyncio.Future[int]:
            made: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(made.set_result, value)
            return made

    spool = Spool()
    before, after = Place("spool", "Spool.x"), Place("spool", "Spool.x", after=True)
    assert watched(Spool.plain, gate, before, ["before"])(spool, 1) == 1
    assert seen == ["before", "plain"]
    seen.clear()
    assert watched(Spool.plain, gate, after, ["after"])(spool, 1) == 1
    assert await watched(Spool.slow, gate, after, ["after"])(spool, 2) == 2
    assert seen == ["plain", "after", "slow", "after"]
    seen.clear()
    made = watched(Spool.future, gate, after, ["after"])(spool, 3)
    made.add_done_callback(lambda _: seen.append("told"))
    assert await made == 3
    await asyncio.sleep(0)
    assert seen == ["after", "told"]  # nobody has heard of it before
    seen.clear()
    some = Place("spool", "Spool.x", only=lambda _spool, arguments: arguments == (4,))
    for value in (3, 4):
        watched(Spool.plain, gate, some, ["only"])(spool, value)
    assert seen == ["plain", "only", "plain"]


def test_only_a_transport_of_a_proving_looks_at_the_trap(tmp_path: Path) -> None:
    """The loader does nothing in another process of the service."""
    given = environment(tmp_path, "HUB-01")
    code = "import sys; print('gatepost.proving.stages' in sys.modules)"
    for words, found in ((["-c", code], "False"), (["-c", code, "gatepost.service.transport_process"], "True")):
        done = subprocess.run([sys.executable, *words], env=given, capture_output=True, text=True, check=True)
        assert (done.stdout.strip(), done.stderr) == (found, "")
