"""The stages of shadow redundancy at which a proving strikes, and how a hub is made to stand still there.

    proving: arms FOLDER/trap (serial, stage, how many pass first) ──► hub: at that stage it takes the trap away as
    FOLDER/caught-SERVER and stops itself (SIGSTOP) ──► proving: kill -9, loss of the disk, or SIGCONT

Nothing of this is in a hub as it is installed: a hub of a proving is started with a `sitecustomize` of the proving's on
its path (`environment`), which puts a look at the trap around the functions that are listed here.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from gatepost.transport.message import Envelope

PROCESS = "gatepost.service.transport_process"
"""Only there: the other processes of a service keep no mail."""
LOADER = """\
import sys
if {process!r} in sys.orig_argv:
    from gatepost.proving.stages import install
    install({folder!r}, {server!r})
"""


class Part(StrEnum):
    """What a hub is about at a stage."""

    ACCEPT = "accepting"
    RELAY = "relaying"
    HAND_ON = "handing on to a hub"
    SETTLE = "settling"
    TAKE_OVER = "taking over"
    FENCE = "coming back"


@dataclass(frozen=True, slots=True)
class Place:
    """A method, looked at before its call or when its result is there. `module` is below `gatepost.transport`."""

    module: str
    method: str
    """`Class.method`."""
    after: bool = False
    only: Callable[[tuple[Any, ...]], bool] | None = None
    """Whether a call with these arguments (without `self`) is meant. None: every one."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A moment in the life of a message. `text` is for people."""

    name: str
    part: Part
    text: str
    place: Place


def _envelope(arguments: tuple[Any, ...]) -> Envelope | None:
    return next((one for one in arguments if isinstance(one, Envelope)), None)


STAGES = (
    Stage(
        "before the commit",
        Part.ACCEPT,
        "the content is here, nothing of it is on disk",
        Place("spool.spool", "DiskSpool.commit"),
    ),
    Stage(
        "committed here",
        Part.ACCEPT,
        "it is on the own disk, the client has no answer",
        Place("spool.spool", "DiskSpool.commit", after=True),
    ),
    Stage(
        "before the 250",
        Part.ACCEPT,
        "the answer is ready to be written",
        Place("intake", "Intake.accept", after=True),
    ),
    Stage(
        "before the relay",
        Part.RELAY,
        "acknowledged, the next server has nothing yet",
        Place("send.sender", "SmtpSender.send"),
    ),
    Stage(
        "answered",
        Part.RELAY,
        "the next server's answer is here and not yet on disk",
        Place("send.sender", "SmtpSender.send", after=True),
    ),
    Stage(
        "settled",
        Part.SETTLE,
        "the end of the message is on disk",
        Place("spool.spool", "DiskSpool.remove", after=True),
    ),
)


class Trap:
    """The file by which a proving says where a hub is to stand still; one for all hubs that look at it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "trap"
        self._serial = 0

    def arm(self, stage: str, passes: int = 0) -> None:
        """The next hub that comes to `stage`, after it has been there `passes` times, stops. Disarms what was armed."""
        self._serial += 1
        new = self._folder / "new"
        new.write_text(f"{self._serial}\n{stage}\n{passes}\n")
        new.rename(self._file)

    def disarm(self) -> None:
        """Nobody is caught from now on."""
        self._file.unlink(missing_ok=True)

    def caught(self) -> str | None:
        """The server that stands still, once."""
        for file in self._folder.glob("caught-*"):
            file.unlink()
            return file.name.removeprefix("caught-")
        return None


def environment(folder: Path, server: str) -> dict[str, str]:
    """What a hub is started with so that it looks at the trap in `folder`."""
    own = folder / f"site-{server}"
    own.mkdir(parents=True, exist_ok=True)
    (own / "sitecustomize.py").write_text(LOADER.format(process=PROCESS, folder=str(folder), server=server))
    path = [str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {"PYTHONPATH": os.pathsep.join([str(own), *path])}


def find(place: Place) -> tuple[type, str] | None:
    """The class and its method's name; None where there is none."""
    name, _, method = place.method.partition(".")
    with suppress(ImportError, AttributeError):
        owner: type = getattr(importlib.import_module(f"gatepost.transport.{place.module}"), name)
        return (owner, method) if callable(getattr(owner, method)) else None
    return None


def install(folder: str, server: str) -> None:
    """In a hub: look at the trap from now on."""
    gate = Gate(Path(folder), server)
    for place in {stage.place for stage in STAGES}:
        names = [stage.name for stage in STAGES if stage.place == place]
        found = find(place)
        if found is None:
            print(f"no {place.module} {place.method}", file=sys.stderr)
            continue
        owner, method = found
        setattr(owner, method, watched(getattr(owner, method), gate, place, names))


def stop_this_process() -> None:
    """Until somebody sends SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Gate:
    """Where a hub finds out whether it is meant."""

    def __init__(self, folder: Path, server: str, stop: Callable[[], None] | None = None) -> None:
        self._stop = stop or stop_this_process
        self._trap = folder / "trap"
        self._caught = folder / f"caught-{server}"
        self._serial = ""
        self._passes = 0

    def __call__(self, names: list[str]) -> None:
        """A stage of these names has come. Stands still if one of them is armed."""
        try:
            descriptor = os.open(self._trap, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            serial, stage, passes = os.read(descriptor, 1000).decode().splitlines()
        finally:
            os.close(descriptor)
        if stage not in names:
            return
        if serial != self._serial:
            self._serial, self._passes = serial, int(passes)
        if self._passes:
            self._passes -= 1
            return
        try:
            self._trap.rename(self._caught)
        except FileNotFoundError:  # another hub was first
            return
        self._stop()


def watched(
    method: Callable[..., Any], gate: Callable[[list[str]], None], place: Place, names: list[str]
) -> Callable[..., Any]:
    """`method`, with a look at the gate before it or when its result is there."""

    def called(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401 - any method
        meant = place.only is None or place.only(arguments[1:])
        if meant and not place.after:
            gate(names)
        result = method(*arguments, **more)
        if not meant or not place.after:
            return result
        if inspect.iscoroutine(result):
            return _then(result, lambda: gate(names))
        if isinstance(result, asyncio.Future):
            result.add_done_callback(lambda _: gate(names))
        else:
            gate(names)
        return result

    return called


async def _then(work: Coroutine[Any, Any, Any], passed: Callable[[], None]) -> Any:  # noqa: ANN401 - any method's
    result = await work
    passed()
    return result
