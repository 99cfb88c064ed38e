"""Session counts, devices and sign-outs in the shared store: a store that is away or has lost all, clocks that step."""

from __future__ import annotations

import asyncio

from shared_fleet import NOW, PATIENCE_SECONDS, Fleet, until

# --- sessions


async def test_a_store_that_has_lost_all_is_told_again(fleet: Fleet) -> None:
    one, other = await fleet.add(), await fleet.add()
    assert await one.counts.enter([("user anna", 1)]) == ""
    fleet.memory.values.clear()
    await one.counts._say_there()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await other.counts.enter([("user anna", 1)]) == "":
            other.counts.leave(["user anna"])
            await asyncio.sleep(0.005)


async def test_while_the_store_is_away_the_front_ends_own_limit_holds(fleet: Fleet) -> None:
    """And what was counted then counts everywhere afterwards."""
    one, other = await fleet.add(), await fleet.add()
    one.hold.fails = True
    assert await one.counts.enter([("user anna", 2)]) == ""
    assert await one.counts.enter([("user anna", 2)]) == ""
    assert await one.counts.enter([("user anna", 2)]) == "user anna"
    one.hold.fails = False
    await until(lambda: not one.store.away)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await other.counts.enter([("user anna", 2)]) == "":
            other.counts.leave(["user anna"])
            await asyncio.sleep(0.005)


async def test_who_left_while_the_store_was_away_does_not_count_any_more(fleet: Fleet) -> None:
    one, other = await fleet.add(), await fleet.add()
    assert await one.counts.enter([("user anna", 1)]) == ""
    one.hold.fails = True
    one.counts.leave(["user anna"])
    await until(lambda: one.store.away)
    one.hold.fails = False
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await other.counts.enter([("user anna", 1)]) != "":  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_step_of_a_front_ends_clock_changes_no_count(fleet: Fleet) -> None:
    one, other = await fleet.add(), await fleet.add()
    assert await one.counts.enter([("user anna", 1)]) == ""
    for step in (86400.0, -2 * 86400.0):
        fleet.now += step
        assert await other.counts.enter([("user anna", 1)]) == "user anna"


async def test_a_front_end_that_ends_takes_its_sessions_along(fleet: Fleet) -> None:
    one, other = await fleet.add(), await fleet.add()
    assert await one.counts.enter([("user anna", 1)]) == ""
    await one.close()
    fleet.front_ends.remove(one)
    assert await other.counts.enter([("user anna", 1)]) == ""


# --- sign-outs


async def test_sign_outs_that_the_store_has_lost_are_written_again(fleet: Fleet) -> None:
    """By whoever knows them: a front end that comes later learns of them too."""
    one, other = await fleet.add(), await fleet.add()
    sessions = [f"session {number}" for number in range(100)]
    for session in sessions:
        assert await one.state.sign_out(session, NOW + 900)
    await until(lambda: all(map(other.state.is_signed_out, sessions)))
    await one.close()
    fleet.front_ends.remove(one)
    fleet.memory.values.clear()
    late = await fleet.add()
    await until(lambda: all(map(late.state.is_signed_out, sessions)))


async def test_what_has_expired_leaves_the_store(fleet: Fleet) -> None:
    front_end = await fleet.add()
    await front_end.state.sign_out("old", NOW + 900)
    before = sum(len(found.value) for found in fleet.memory.values.values())
    fleet.now += 1000
    bucket = front_end.state._hidden("old")[0] % 64
    new = next(f"new {n}" for n in range(10_000) if front_end.state._hidden(f"new {n}")[0] % 64 == bucket)
    await front_end.state.sign_out(new, fleet.now + 900)
    assert sum(len(found.value) for found in fleet.memory.values.values()) <= before


async def test_who_missed_many_moves_reads_devices_anew(fleet: Fleet) -> None:
    one, other = await fleet.add(), await fleet.add()
    await one.state.first_server("phone", "CAS-01", NOW)
    await until(lambda: other.state.known_server("phone") == "CAS-01")
    other.hold.open.clear()
    await one.state.move_server("phone", "CAS-02", NOW)
    for number in range(150):
        await one.state.first_server(f"tablet {number}", "CAS-01", NOW)
    other.hold.open.set()
    await until(lambda: other.state.known_server("phone") is None)
    assert await other.state.first_server("phone", "CAS-03", NOW) == "CAS-02"
