"""Guessing passwords against a whole front end: what one client address can take from others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_kit import ADDRESS, PATIENCE_SECONDS, REAL, Service

GUESSER, HONEST = "127.0.83.9", "127.0.83.10"
CONNECTIONS = 150
"""Below `unauthenticated_per_address`: all of them get in."""
DELAY_SECONDS = 0.3

_numbers = itertools.count(1)


@pytest.fixture
def service(scratch: Path) -> Iterator[Service]:
    """A real front end with the default limits but a short delay."""
    made = Service(scratch / f"guessing-{next(_numbers)}", core=REAL)
    made.settings["allow_clear_passwords"] = True
    made.limits["refused_sign_in_delay_seconds"] = DELAY_SECONDS
    made.write()
    made.start()
    yield made
    made.stop()


async def sign_ins(port: int, source: str, name: str, password: str, times: int = 1) -> list[bytes]:
    """The tagged answers to sign-ins on one connection from `source`, until it is ended."""
    answers: list[bytes] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(ADDRESS, port, local_addr=(source, 0))
        with contextlib.suppress(ConnectionError):
            await reader.readline()
            for number in range(times):
                writer.write(f"a LOGIN {name} {password}{number}\r\n".encode())
                line = await reader.readline()
                if not line.startswith(b"a "):
                    break
                answers.append(line)
        writer.close()
    return answers


async def test_a_guesser_leaves_room_for_others(service: Service) -> None:
    """150 connections guess from one address; another address's sign-ins are judged, none is told to come back."""
    port = service.ports["imap"]
    stop, begun = asyncio.Event(), asyncio.Event()
    guessed: list[list[bytes]] = []

    async def guess(number: int) -> None:
        while not stop.is_set():
            guessed.append(await sign_ins(port, GUESSER, f"user{number}", f"guess{len(guessed)}-", 10))
            begun.set()

    guessers = [asyncio.create_task(guess(number)) for number in range(CONNECTIONS)]
    await begun.wait()
    honest = [await sign_ins(port, HONEST, "anna", f"wrong{n}") for n in range(10)]
    stop.set()
    await asyncio.gather(*guessers)
    assert [answer[0][:27] for answer in honest] == [b"a NO [AUTHENTICATIONFAILED]"] * 10
    told = [line for lines in guessed for line in lines]
    assert sum(line.startswith(b"a NO [UNAVAILABLE]") for line in told) > CONNECTIONS
    # Told to come back counts as an attempt: no connection had more than three.
    assert max(map(len, guessed)) == 3
    busy = [line for line in service.events("imap.refused") if line.get("refusal") == "busy" or "count" in line]
    assert {line["client"] for line in busy} == {GUESSER}
    assert len(busy) < CONNECTIONS, "one line a second, not one for each"
