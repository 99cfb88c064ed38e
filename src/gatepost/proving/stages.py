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


ANYBODY = "*"


class Part(StrEnum):
    """What hubs are about at a stage."""

    ACCEPT = "accepting"
    RELAY = "relaying"
    HAND_ON = "handing on to a hub"
    SETTLE = "settling"
    TAKE_OVER = "taking over"
    FENCE = "coming back"
    REACHED = "reached again"


Only = Callable[[Any, tuple[Any, ...]], bool]
"""Whether a call of an object's method with these arguments is meant."""


@dataclass(frozen=True, slots=True)
class Place:
    """A method, looked at before its call or when its result is there. `module` is below `gatepost`."""

    module: str
    method: str
    """`Class.method`."""
    after: bool = False
    only: Only | None = None
    """None: every call."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A moment in the life of a message. `text` is for people."""

    name: str
    part: Part
    text: str
    place: Place


def _from_hub(_spool: object, arguments: tuple[Any, ...]) -> bool:
    """A message that another hub hands on."""
    return any(isinstance(one, Envelope) and one.source.internal for one in arguments)


def _from_client(spool: object, arguments: tuple[Any, ...]) -> bool:
    return not _from_hub(spool, arguments)


def _to_hub(sender: Any, _arguments: tuple[Any, ...]) -> bool:  # noqa: ANN401 - a sender of the hub's
    """It becomes the primary of what it takes."""
    return sender.primary is not None


def _to_stranger(sender: Any, arguments: tuple[Any, ...]) -> bool:  # noqa: ANN401 - a sender of the hub's
    return not _to_hub(sender, arguments)


def _took_over(_answers: object, arguments: tuple[Any, ...]) -> bool:
    return bool(arguments[-1])


def _asked_only(answers: object, arguments: tuple[Any, ...]) -> bool:
    return not _took_over(answers, arguments)


_COMMIT = ("transport.spool.spool", "DiskSpool.commit")
_ACCEPT = ("transport.intake", "Intake.accept")
_HOLD = ("transport.shadow.channel", "AskingChannel.hold")
_HELD = ("transport.shadow.answers", "Answers.hold")
_SEND = ("transport.send.sender", "SmtpSender.send")
_ASKED = ("transport.shadow.answers", "Answers.ask")
_STATUSES = ("transport.shadow.answers", "Answers.statuses")
_ASK_STATUSES = ("transport.shadow.channel", "AskingChannel.statuses")


def _spool(method: str, *, after: bool = False) -> Place:
    return Place("transport.spool.spool", f"DiskSpool.{method}", after)


_ROWS: dict[Part, tuple[tuple[str, str, Place], ...]] = {
    Part.ACCEPT: (
        ("before the commit", "the content is here, nothing of it on disk", Place(*_COMMIT, only=_from_client)),
        ("copy asked for", "another hub is about to be asked to hold a copy", Place(*_HOLD)),
        ("copy not on disk", "the other hub has the copy, its disk has not (that hub is struck)", Place(*_HELD)),
        ("copy on disk", "the copy is on the other disk, and nobody knows (that hub is struck)", Place(*_HELD, True)),
        ("committed", "on the own disk; the client has no answer", Place(*_COMMIT, True, _from_client)),
        ("copy held", "the other hub has said that it holds the copy", Place(*_HOLD, True)),
        ("before the 250", "the client's answer is ready", Place(*_ACCEPT, True, _from_client)),
    ),
    Part.RELAY: (
        ("before the relay", "acknowledged; the next server has nothing", Place(*_SEND, only=_to_stranger)),
        ("sent", "all is sent, no answer yet", Place("transport.send.connection", "SmtpConnection._content", True)),
        ("answered", "the next server's answer is here and not on disk", Place(*_SEND, True, _to_stranger)),
    ),
    Part.HAND_ON: (
        ("before handing on", "the next hub has nothing", Place(*_SEND, only=_to_hub)),
        ("handed on, not on disk", "the next hub has the content (it is struck)", Place(*_COMMIT, only=_from_hub)),
        ("handed on, before 250", "the next hub has it on disk (it is struck)", Place(*_ACCEPT, True, _from_hub)),
        ("handed on, answered", "the next hub is responsible, which is not on disk here", Place(*_SEND, True, _to_hub)),
        ("handed on, kept", "it is on disk that this hub keeps the shadow", _spool("set_aside", after=True)),
    ),
    Part.SETTLE: (
        ("before the end", "delivered; neither its end nor the event is on disk", _spool("remove")),
        ("event on disk", "the discard event is on disk", _spool("note_discards", after=True)),
        ("settled", "the end of the message is on disk", _spool("remove", after=True)),
        ("asked", "the shadow server asks what is finished, and is not answered", Place(*_ASKED)),
        ("told", "it is about to be answered", Place(*_ASKED, True)),
        ("before letting go", "the shadow server knows, its disk does not (it is struck)", _spool("let_go")),
        ("let go", "the copy has left its disk (it is struck)", _spool("let_go", after=True)),
    ),
    Part.TAKE_OVER: (
        ("before taking over", "the primary is held dead, which is not on disk", _spool("take_back")),
        ("taken over", "it is on disk that the shadow server is responsible", _spool("take_back", after=True)),
    ),
    Part.FENCE: (
        ("asking at start", "a hub is back and asks before it sends", Place(*_ASK_STATUSES, only=_asked_only)),
        ("asked at start", "its shadow server is asked (it is struck)", Place(*_STATUSES, only=_asked_only)),
        ("answered at start", "the hub that is back has the answer", Place(*_ASK_STATUSES, True, _asked_only)),
    ),
    Part.REACHED: (
        (
            "told of it",
            "a live hub that was held dead is told that it was taken over",
            Place(*_STATUSES, only=_took_over),
        ),
        ("gives way", "it has given way, and says so", Place(*_STATUSES, True, _took_over)),
    ),
}
STAGES = tuple(Stage(name, part, text, place) for part, rows in _ROWS.items() for name, text, place in rows)


class Trap:
    """The file by which a proving says where a hub is to stand still; one for all hubs that look at it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "trap"
        self._serial = 0

    def arm(self, stage: str, passes: int = 0, server: str = ANYBODY) -> None:
        """The next hub that comes to `stage`, after it has been there `passes` times, stops; only `server`, if one is
        named. Disarms what was armed."""
        self._serial += 1
        new = self._folder / "new"
        new.write_text(f"{self._serial}\n{stage}\n{passes}\n{server}\n")
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
        owner: type = getattr(importlib.import_module(f"gatepost.{place.module}"), name)
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
        self._meant = (ANYBODY, server)
        self._serial = ""
        self._passes = 0

    def __call__(self, names: list[str]) -> None:
        """A stage of these names has come. Stands still if one of them is armed."""
        try:
            descriptor = os.open(self._trap, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            serial, stage, passes, server = os.read(descriptor, 1000).decode().splitlines()
        finally:
            os.close(descriptor)
        if stage not in names or server not in self._meant:
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
        meant = place.only is None or place.only(arguments[0], (*arguments[1:], *more.values()))
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
