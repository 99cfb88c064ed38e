"""The sign-in policy of a whole front end with two workers. About 20 s."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_kit import ADDRESS, PATIENCE_SECONDS, REAL, Service

GUESSER, HONEST = "127.0.83.19", "127.0.83.20"
CONNECTIONS = 60
GUESSING_SECONDS = 4.0

_numbers = itertools.count(1)


@pytest.fixture
def service(scratch: Path) -> Iterator[Service]:
    """A front end with two workers that trusts nobody, not even this machine."""
    made = Service(scratch / f"policy-{next(_numbers)}", core=REAL)
    made.settings |= {"allow_clear_passwords": True, "workers": 2}
    made.limits["refused_sign_in_delay_seconds"] = 0.05
    yield made
    made.stop()


def start(service: Service, policy: str) -> int:
    service.write(broken="[front_end.sign_in_policy]\ntrusted_networks = []\n" + policy)
    service.start()
    return service.ports["imap"]


async def sign_in(port: int, source: str, name: str, password: str) -> bytes:
    """The tagged answer to one sign-in."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(ADDRESS, port, local_addr=(source, 0))
        try:
            await reader.readline()
            writer.write(f'a LOGIN {name} "{password}"\r\n'.encode())
            line = await reader.readline()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
    return line


async def test_parallel_guesses_at_two_workers_do_not_escape(service: Service) -> None:
    """60 connections guess without a pause: in 4 seconds five passwords are judged at most; elsewhere nobody waits."""
    port = start(service, "")
    until = time.monotonic() + GUESSING_SECONDS
    answers: list[bytes] = []

    async def guess(number: int) -> None:
        count = 0
        while time.monotonic() < until:
            count += 1
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    answers.append(await sign_in(port, GUESSER, f"user{number}", f"guess{count}"))
            except (TimeoutError, OSError):
                return

    guessing = asyncio.gather(*(guess(number) for number in range(CONNECTIONS)))
    honest = await sign_in(port, HONEST, "anna", "wrong")
    await guessing
    judged = [line for line in answers if b"AUTHENTICATIONFAILED" in line]
    assert b"AUTHENTICATIONFAILED" in honest
    assert 3 <= len(judged) <= 5, "three are free, then one after 1 and one after 3 seconds"
    told = [line for line in answers if line.startswith(b"a NO [UNAVAILABLE]")]
    assert len(told) > CONNECTIONS
    decided = [line for line in service.events("sign_in.decided") if line["client"] == GUESSER]
    assert {line["verdict"] for line in decided} == {"wrong credentials"}
    assert "guess1" not in service.text()


async def test_a_phone_with_an_old_password_delays_nobody(service: Service) -> None:
    port = start(service, "")
    began = time.monotonic()
    for _ in range(8):
        assert b"AUTHENTICATIONFAILED" in await sign_in(port, HONEST, "anna", "last year's")
    assert {line["failures"] for line in service.events("sign_in.decided")} == {1}
    assert not any("waited_seconds" in line for line in service.events("sign_in.decided"))
    assert time.monotonic() - began < PATIENCE_SECONDS


async def test_a_rule_denies_a_protocol_from_elsewhere(service: Service) -> None:
    """Only who has the right password hears of it."""
    port = start(
        service,
        '[[front_end.sign_in_policy.rules]]\naccess = "deny"\nprotocols = ["imap"]\n'
        f'users = ["@contoso.com"]\nnetworks = ["{GUESSER}/32"]\n',
    )
    add_user(service, "anna@contoso.com", "apple")
    assert b"AUTHENTICATIONFAILED" in await sign_in(port, GUESSER, "anna", "wrong")
    refused = await sign_in(port, GUESSER, "anna", "apple")
    assert refused.startswith(b"a NO"), refused
    assert b"AUTHENTICATIONFAILED" not in refused
    assert b"UNAVAILABLE" not in refused
    # Elsewhere it goes on to the mailbox server, of which there is none here.
    assert b"UNAVAILABLE" in await sign_in(port, HONEST, "anna", "apple")


def add_user(service: Service, name: str, password: str) -> None:
    command = [sys.executable, "-m", "gatepost", "user", "add", name, "--database", "DB01", "--password-stdin"]
    command += ["--config", str(service.folder / "gatepost.toml")]
    subprocess.run(command, input=password.encode(), check=True, capture_output=True)
