"""Hooks: what makes a move real at the servers' replicas, run as commands or posted to URLs, always bounded.

A command gets its values in its words, by no shell, with a bare environment and no input; its whole process group is
killed when it takes too long or is no longer wanted. A URL gets the same values as JSON. What a hook says is kept
short, printable and without what looks like a secret: it goes to the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from gatepost import __version__
from gatepost.activemanager.steps import Fault, Hook, Result
from gatepost.configuration.manager_settings import HookKind, HookSettings

MAX_OUTPUT_BYTES = 16 * 1024
"""Read of what a hook says; the rest is dropped. Enough for a program's last words."""
MAX_TEXT = 1000
"""Characters of it in the log and in a failure: its end, where the reason stands."""
LEFT_OVER_SECONDS = 0.5
"""After the command has ended, for what it left in its output; a child of it may hold that open for ever."""
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
"""All of a hook's environment: nothing of ours is handed on."""

_PLACEHOLDER = re.compile(r"\{(database|source|target|server|epoch|term|kind)\}")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")
_MASKED = "…"
_SECRETS = (
    re.compile(
        r"(?P<key>\b[\w-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|credential)[\w-]*\b[\"']?\s*[=:]\s*)"
        r"(?:\"[^\"]*\"|'[^']*'|\S+)",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<key>\b(?:authorization\s*:\s*)?(?:bearer|basic)\s+)[\w.~+/=-]+", re.IGNORECASE),
    re.compile(r"(?P<key>://[^\s/:@]*:)[^\s/@]+(?=@)"),
    re.compile(r"(?P<key>-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)


@dataclass(frozen=True, slots=True)
class HookContext:
    """What URLs are asked with: the TLS context of this front end, None for the system's."""

    tls: ssl.SSLContext | None = None


async def run(settings: HookSettings, call: Hook, context: HookContext | None = None, term: int = 0) -> Result:
    """Runs one hook, in this term of the manager's lease (0: no manager's).

    Never raises but when cancelled, and then what it had started is gone.
    """
    values = values_of(call, term)
    kept = bytearray()
    try:
        async with asyncio.timeout(settings.seconds):
            if settings.url:
                fault = await _post(settings.url, values, context or HookContext(), kept)
            else:
                fault = await _execute(words(settings.command, values), kept)
    except TimeoutError:
        fault = f"no end within {settings.seconds:g} s"
    output = bytes(kept)
    text = shown(output)
    if fault:
        return Result(Fault.HOOK, f"{fault}: {text}" if text else fault)
    if call.kind is HookKind.LAG:
        return _lag(output, text)
    return Result(text=text)


def values_of(call: Hook, term: int) -> dict[str, str]:
    """What a hook is told, by the names of the placeholders."""
    return {
        "database": call.database,
        "source": call.source,
        "target": call.target,
        "server": call.server,
        "epoch": str(call.epoch),
        "term": str(term),
        "kind": call.kind.value,
    }


def words(command: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """The command's words with its values; a value that looks like a placeholder stays as it is."""
    return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in command]


def shown(output: bytes) -> str:
    """A hook's output for the log: its end, printable, on one line, without what looks like a secret."""
    text = output.decode("utf-8", "replace")
    for secret in _SECRETS:
        text = secret.sub(lambda found: found["key"] + _MASKED, text)
    lines = ("".join(c if c.isprintable() else "?" for c in line).strip() for line in text.splitlines())
    joined = " | ".join(line for line in lines if line)
    return joined if len(joined) <= MAX_TEXT else _MASKED + joined[-MAX_TEXT:]


def _lag(output: bytes, text: str) -> Result:
    first = output.decode("utf-8", "replace").strip().partition("\n")[0].strip()
    try:
        numbers = [float(word) for word in first.split()]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2 or not all(0 <= number < float("inf") for number in numbers):
        return Result(Fault.HOOK, f"its first line is no number: {text}")
    return Result(number=numbers[0], text=text, seconds=numbers[1] if len(numbers) > 1 else None)


async def _execute(command: list[str], kept: bytearray) -> str:
    """What went wrong (empty: nothing); `kept` gets the output, standard error included."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"cannot be started: {getattr(error, 'strerror', None) or error}"
    assert process.stdout is not None
    reading = asyncio.ensure_future(_keep_end(process.stdout, kept))
    try:
        status = await process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading), LEFT_OVER_SECONDS)
    finally:
        # Also after a good end: what it left running in its group would hold the pipe, and outlive the move.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:  # it was killed, and has ended before whoever waits for this goes on
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), LEFT_OVER_SECONDS)
        reading.cancel()
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - a pipe that a stray child holds
    if status == 0:
        return ""
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


async def _keep_end(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while data := await stream.read(8192):
        kept += data
        del kept[:-MAX_OUTPUT_BYTES]


async def _post(url: str, values: Mapping[str, str], context: HookContext, kept: bytearray) -> str:
    """The same for a URL. HTTP/1.0: the answer ends with the connection and comes in no chunks."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host = parts.hostname or ""
    body = json.dumps({**values, "epoch": int(values["epoch"]), "term": int(values["term"])}).encode()
    head = (
        f"POST {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\nUser-Agent: Gatepost/{__version__}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    tls = (context.tls or ssl.create_default_context()) if secure else None
    try:
        reader, writer = await asyncio.open_connection(
            host, parts.port or (443 if secure else 80), ssl=tls, server_hostname=host if secure else None
        )
    except ssl.SSLCertVerificationError as error:
        return f"certificate refused: {error.verify_message or error.reason}"
    except OSError as error:
        return f"cannot connect: {error.strerror or type(error).__name__}"
    try:
        writer.write(head.encode("ascii") + body)
        answer = await _read_bounded(reader)
        kept += answer.partition(b"\r\n\r\n")[2]
    except OSError as error:
        return f"connection lost: {error.strerror or type(error).__name__}"
    finally:
        writer.transport.abort()
    found = _STATUS.match(answer)
    if found is None:
        return "an answer that is not HTTP"
    status = int(found[1])
    return "" if 200 <= status < 300 else f"HTTP {status}"


async def _read_bounded(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while len(found) < MAX_OUTPUT_BYTES:
        data = await reader.read(MAX_OUTPUT_BYTES - len(found))
        if not data:
            break
        found += data
    return bytes(found)
