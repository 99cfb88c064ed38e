"""Asking all front ends of this machine at once, by their operators' sockets."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gatepost.access.sessions import SessionFilter
from gatepost.configuration.settings import FrontEnd
from gatepost.service.operators import all_sockets, request
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest

ANSWER_SECONDS = 15.0
"""For a supervisor's answer, beyond the time that a kick was given."""

Filled = TypeVar("Filled", SessionsReply, Kicked)


def ask_all(
    front_end: FrontEnd, message: SessionsRequest | Kick, kind: type[Filled], seconds: float
) -> tuple[dict[str, Filled], dict[str, str]]:
    """The answers by front end, and why the others gave none; both empty where no front end runs here. Blocks."""
    sockets = all_sockets(front_end)
    if not sockets:
        return {}, {}

    def ask(path: Path) -> Filled | str:
        try:
            return request(path, message, kind, seconds)
        except OSError as fault:
            return fault.strerror or str(fault)

    with ThreadPoolExecutor(len(sockets)) as pool:
        answers = dict(zip(sockets, pool.map(ask, sockets.values()), strict=True))
    return (
        {name: answer for name, answer in answers.items() if not isinstance(answer, str)},
        {name: answer for name, answer in answers.items() if isinstance(answer, str)},
    )


@dataclass(frozen=True)
class Sessions:
    """Sessions of one kind at the front ends of this machine."""

    found: Mapping[str, SessionsReply] = field(default_factory=dict)
    """By front end."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Front ends that did not answer, with the reasons."""

    @property
    def total(self) -> int:
        """How many are known of."""
        return sum(reply.total for reply in self.found.values())

    @property
    def is_whole(self) -> bool:
        """Whether every front end and every worker answered."""
        return not self.silent and not any(reply.missing for reply in self.found.values())

    @property
    def protocols(self) -> dict[str, int]:
        """How many of each protocol."""
        counts: dict[str, int] = {}
        for reply in self.found.values():
            for protocol, number in reply.protocols.items():
                counts[protocol] = counts.get(protocol, 0) + number
        return dict(sorted(counts.items()))

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Some of them, each with its `front_end`."""
        return [{"front_end": name, **entry} for name, reply in self.found.items() for entry in reply.sessions]

    def lines(self) -> list[str]:
        """For operators, one line a front end."""
        lines = []
        for name, reply in self.found.items():
            kinds = ", ".join(f"{number} {protocol}" for protocol, number in sorted(reply.protocols.items()))
            unknown = f"; workers that did not answer: {', '.join(map(str, reply.missing))}" if reply.missing else ""
            lines.append(f"{name}: {kinds or 'none'}{unknown}")
        return [*lines, *(f"{name} does not answer: {reason}" for name, reason in self.silent.items())]


def sessions_at(front_end: FrontEnd, database: str, server: str, limit: int = 20) -> Sessions:
    """The sessions of `database` (empty: of all) at the mailbox server `server`. Blocks."""
    wanted = SessionFilter(database=database, server=server)
    return Sessions(*ask_all(front_end, SessionsRequest(wanted, limit), SessionsReply, ANSWER_SECONDS))
