"""Shadows and copies of the safety net, put into a spool, and what is in it then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from spool_contract import LARGE, SMALL, envelope, read

from gatepost.transport.message import Envelope
from gatepost.transport.shadow.ports import Kept, Role
from gatepost.transport.spool.metering import Space
from gatepost.transport.spool.spool import DiskSpool, SpoolSettings

GB = 1024**3
ROOMY = Space(100 * GB, 50 * GB)
SETTINGS = SpoolSettings(reserve_bytes=4096)
TABLES = {"message", "content", "file", "aside", "shadow", "safety_net", "delivery", "discard"}
BOTH = pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])


async def opened(folder: Path) -> DiskSpool:
    return await DiskSpool.open(folder / "spool", SETTINGS, space=lambda: ROOMY)


def shadow(token: str = "t-1", number: int = 0, primary: str = "HUB-02") -> Kept:
    return Kept(number, Role.SHADOW, token, primary, "ab12", 5000.0)


def copy(until: float = 5000.0, number: int = 0) -> Kept:
    return Kept(number, Role.SAFETY_NET, "net", "", "", until)


def delivered(*databases: str, at: float) -> Envelope:
    one = envelope()
    one.databases, one.delivered = list(databases), at
    return one


async def keep(spool: DiskSpool, kept: Kept, content: bytes = SMALL, one: Envelope | None = None) -> int:
    writer = spool.writer(len(content))
    writer.write(content)
    return await spool.keep(writer, one or envelope("kept@contoso.com"), kept)


async def all_kept(spool: DiskSpool, role: Role = Role.SHADOW) -> list[Kept]:
    return [one async for batch in spool.kept(role) for one in batch]


async def queue(spool: DiskSpool) -> list[int]:
    return [number async for batch in spool.messages() for number, _ in batch]


async def content_of(spool: DiskSpool, number: int) -> bytes:
    return await read(await spool.body(number))


def rows(spool: DiskSpool, statement: str) -> list[tuple[apsw.SQLiteValue, ...]]:
    connection = apsw.Connection(str(spool._opened.layout.database))
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def everything_on_disk(spool: DiskSpool) -> dict[str, int]:
    counts = {table: int(str(rows(spool, f"SELECT count(*) FROM {table}")[0][0])) for table in TABLES}
    return {table: count for table, count in counts.items() if count}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - no event for this
            await asyncio.sleep(0.005)
