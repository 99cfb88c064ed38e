"""The hook that runs a command for each message: the content is its standard input, its exit status the verdict.

Facts are in its environment: GATEPOST_QUEUE_ID, GATEPOST_SENDER, GATEPOST_RECIPIENTS (one a line),
GATEPOST_RECIPIENT_COUNT, GATEPOST_CLIENT_ADDRESS, GATEPOST_CLIENT_NAME, GATEPOST_USER, GATEPOST_TLS. It writes the text
for the client on its first line, which may be empty, and then, for a message that is taken, header fields to be added.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator
from dataclasses import dataclass

from gatepost.transport.headers.words import printable
from gatepost.transport.hooks.hook import (
    MAX_ANSWER,
    HookAction,
    HookFault,
    OnFailure,
    Question,
    Verdict,
    deferred,
    not_asked,
    rejected,
    safe_fields,
)

ACCEPTED = 0
TRY_LATER = 75
"""EX_TEMPFAIL of sysexits.h."""
BROKEN = frozenset({1, 2, 70, 71, 72, 73, 74, 126, 127})
"""What an interpreter, a shell or a library exits with when the command itself is at fault: no verdict on a message."""
MAX_LISTED = 64 * 1024
"""Octets of recipients in the environment."""
MAX_FACT = 512
PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The command with its arguments; `seconds` are for one message, `max_running` how many may run at once."""

    command: tuple[str, ...]
    seconds: float = 30.0
    on_failure: OnFailure = OnFailure.DEFER
    max_running: int = 8


class CommandHook:
    """Runs one command. Belongs to one event loop."""

    def __init__(self, settings: CommandSettings) -> None:
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.max_running)

    async def check(self, question: Question, chunks: AsyncIterator[bytes]) -> Verdict:
        """See `ContentHook`."""
        settings = self._settings
        try:
            async with asyncio.timeout(settings.seconds), self._turns:
                status, output = await self._run(question, chunks)
            return verdict(status, output)
        except TimeoutError:
            return self._not_asked(f"no answer within {settings.seconds:g} s")
        except HookFault as fault:
            return self._not_asked(str(fault))

    async def close(self) -> None:
        """Nothing outlives a check."""

    def _not_asked(self, why: str) -> Verdict:
        return not_asked(self._settings.on_failure, f"{self._settings.command[0]}: {why}")

    async def _run(self, question: Question, chunks: AsyncIterator[bytes]) -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        try:
            # As `create_subprocess_exec` does it, but with the transport in hand, which alone closes the pipes.
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(PIECE, loop),
                *self._settings.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=_environment(question),
                start_new_session=True,
            )
        except OSError as fault:
            raise HookFault(f"cannot be started: {fault.strerror}") from fault
        process = Process(transport, protocol, loop)
        feeding = asyncio.ensure_future(_feed(process, chunks))
        try:
            output = await _read(process)
            status = await process.wait()
            if feeding.done():
                feeding.result()
            return status, output
        finally:
            # Whatever it has left running goes with it, also when it is late or the client has gone.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            # Before the wait, which may be for the pipes as well: a child in a session of its own may hold them.
            transport.close()
            await process.wait()


async def _feed(process: Process, chunks: AsyncIterator[bytes]) -> None:
    """The content goes to the command. One that does not read on has seen enough."""
    stdin = process.stdin
    assert stdin is not None
    try:
        async for block in chunks:
            if stdin.is_closing():
                break
            stdin.write(block)
            try:
                await stdin.drain()
            except (BrokenPipeError, ConnectionResetError):
                break
    finally:
        stdin.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stdin.wait_closed()


async def _read(process: Process) -> bytes:
    stdout = process.stdout
    assert stdout is not None
    output = bytearray()
    while piece := await stdout.read(PIECE):
        output += piece
        if len(output) > MAX_ANSWER:
            raise HookFault("its output is too long")
    return bytes(output)


def _environment(question: Question) -> dict[str, str]:
    envelope, source = question.envelope, question.envelope.source
    addresses = [printable(recipient.address, MAX_FACT) for recipient in envelope.recipients]
    listed: list[str] = []
    room = MAX_LISTED
    for address in addresses:
        room -= len(address.encode("utf-8", "replace")) + 1
        if room < 0:
            break
        listed.append(address)
    facts = {
        "QUEUE_ID": question.queue_id, "SENDER": envelope.sender, "CLIENT_ADDRESS": source.address,
        "CLIENT_NAME": source.name, "USER": source.user, "TLS": source.tls,
    }  # fmt: skip
    environment = {f"GATEPOST_{name}": printable(value, MAX_FACT) for name, value in facts.items()}
    environment["GATEPOST_RECIPIENTS"] = "\n".join(listed)
    environment["GATEPOST_RECIPIENT_COUNT"] = str(len(addresses))
    return environment | {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


def verdict(status: int, output: bytes) -> Verdict:
    """What exit status and output call for. Raises `HookFault` where they are no verdict."""
    if status < 0:
        raise HookFault(f"ended by signal {-status}")
    if status in BROKEN:
        raise HookFault(f"failed with status {status}")
    first, *others = output.decode("utf-8", "replace").splitlines() or [""]
    note = f"exit status {status}"
    if status == TRY_LATER:
        return deferred(first, note)
    if status != ACCEPTED:
        return rejected(first, note)
    fields: list[tuple[str, str]] = []
    for line in others:
        name, colon, value = line.partition(":")
        if line[:1] in (" ", "\t") and fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line}")
        elif colon:
            fields.append((name, value))
    return Verdict(HookAction.ACCEPT, before=safe_fields(fields), note=note)
