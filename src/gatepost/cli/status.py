"""`gatepost status`: what running front ends on this machine do, by their operators' sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from gatepost.balancing.back_pressure import Pressure
from gatepost.cli.options import config_option, load_configuration
from gatepost.configuration.settings import FrontEnd
from gatepost.service.control import ServiceStatus, TransportStatus
from gatepost.service.operators import ask, socket_path
from gatepost.service.worker_process import State

ASK_SECONDS = 5.0
"""For the supervisor's answer; it waits 2 s for its workers."""
FAILED = 1


@dataclass(frozen=True)
class _Answer:
    """What one front end says; `status` is None when there was no answer, for `reason`."""

    server: str
    status: ServiceStatus | None = None
    reason: str = ""


@click.command("status")
@click.option("--all", "everyone", is_flag=True, help="All front ends whose sockets are beside the registry.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
@config_option
def command(everyone: bool, as_json: bool, config: str) -> None:
    """Show what the running front end does: its workers, their sessions, counters that are not zero.

    Only for the account that runs it, and on its machine. Exit status: 0 all asked have answered, 1 one has not.
    """
    front_end = load_configuration(config).front_end
    answers = [_ask(path) for path in _sockets(front_end, everyone=everyone)]
    if as_json:
        click.echo(json.dumps([_data(answer) for answer in answers], ensure_ascii=False, indent=2))
    else:
        click.echo("\n\n".join("\n".join(_lines(answer)) for answer in answers))
    if any(answer.status is None for answer in answers):
        raise click.exceptions.Exit(FAILED)


def _sockets(front_end: FrontEnd, *, everyone: bool) -> list[Path]:
    own = socket_path(front_end)
    if not everyone:
        return [own]
    found = sorted(own.parent.glob("gatepost-*.sock"))
    if not found:
        raise click.ClickException(f"no front end runs here: there is no gatepost-*.sock in {own.parent}")
    return found


def _ask(path: Path) -> _Answer:
    server = path.name.removeprefix("gatepost-").removesuffix(".sock")
    try:
        return _Answer(server, ask(path, ASK_SECONDS))
    except PermissionError:
        return _Answer(server, reason=f"{path} is for the account that runs the front end, and for root")
    except (FileNotFoundError, ConnectionRefusedError):
        return _Answer(server, reason=f"not running on this machine: nobody answers at {path}")
    except OSError as fault:
        return _Answer(server, reason=f"no answer at {path}: {fault}")


def _counters(status: ServiceStatus) -> dict[str, tuple[int, int]]:
    """Of each counter that is not zero: its value over all workers, and at how many workers it is not zero.

    Numbers are added up; `down.…` counts seconds, of which the longest is meant.
    """
    found: dict[str, tuple[int, int]] = {}
    for worker in status.workers:
        for name, value in (worker.status.counters if worker.status is not None else {}).items():
            if not name.startswith("down.") and (not value or name == "sessions"):
                continue
            before, workers = found.get(name, (0, 0))
            found[name] = (max(before, value) if name.startswith("down.") else before + value, workers + 1)
    return dict(sorted(found.items()))


def _lines(answer: _Answer) -> list[str]:
    status = answer.status
    if status is None:
        return [f"{answer.server}: {answer.reason}"]
    lines = [f"{status.server}: pid {status.pid}, configuration version {status.version}, restarts {status.restarts}"]
    lines.append(f"  {'worker':<8} {'pid':>8}  {'state':<10} {'version':>7} {'sessions':>9}")
    for worker in status.workers:
        said = worker.status
        version, sessions = (said.version, said.counters.get("sessions", 0)) if said is not None else ("-", "no answer")
        lines.append(f"  {worker.slot:<8} {worker.pid:>8}  {worker.state:<10} {version:>7} {sessions:>9}")
    counters = _counters(status)
    if status.transport is not None:
        transport = status.transport
        why = _why_not(transport)
        takes = f"takes no mail: {why}" if why else "takes mail"
        lines.append(f"  transport: pid {transport.pid}, {transport.state}, {takes}, restarts {transport.restarts}")
        lines += [f"    {name:<22} {value:>8}" for name, value in (transport.counters or {}).items() if value]
        lines += _unprotected(transport)
    width = max(map(len, counters), default=0)
    lines += [f"  {name:<{width}}  {_words(name, value, len(status.workers))}" for name, value in counters.items()]
    return lines


def _why_not(transport: TransportStatus) -> str:
    """Why a hub takes no mail now: a balancer in front gets no 220. Empty: it takes some."""
    if transport.counters is None:
        return "it does not answer"
    if transport.state != State.READY.value:
        return f"it is {transport.state}"
    return "back pressure" if transport.counters.get("pressure", 0) >= Pressure.HIGH else ""


def _unprotected(transport: TransportStatus) -> list[str]:
    """A warning where messages are on one disk only, and what to do."""
    count = (transport.counters or {}).get("shadow_unprotected", 0)
    if not count:
        return []
    return [
        f"  warning: messages that are on this disk only: {count}. No other hub that may keep a copy can be reached;",
        "    `gatepost transport unhealthy` shows which are down. They get a copy as soon as one is back",
    ]


def _words(name: str, value: tuple[int, int], workers: int) -> str:
    number, at = value
    return f"{number:>6} s at {at} of {workers} workers" if name.startswith("down.") else f"{number:>6}"


def _data(answer: _Answer) -> Mapping[str, object]:
    status = answer.status
    if status is None:
        return {"server": answer.server, "running": False, "reason": answer.reason}
    return {
        "server": status.server,
        "running": True,
        "pid": status.pid,
        "version": status.version,
        "restarts": status.restarts,
        "workers": [
            {
                "worker": worker.slot,
                "pid": worker.pid,
                "state": worker.state,
                "version": worker.status.version if worker.status is not None else None,
                "counters": worker.status.counters if worker.status is not None else None,
            }
            for worker in status.workers
        ],
        "transport": _transport_data(status.transport),
    }


def _transport_data(transport: TransportStatus | None) -> Mapping[str, object] | None:
    if transport is None:
        return None
    why = _why_not(transport)
    data: dict[str, object] = msgspec.to_builtins(transport)
    return data | {"takes_mail": not why, "reason": why}
