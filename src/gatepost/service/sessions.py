"""The sessions of all workers of a front end: found and ended for an operator.

Draining workers of an earlier configuration are asked as well: a session is listed and can be ended for as long as it
lives (field case 2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gatepost.access.sessions import MAX_LISTED
from gatepost.service.session_messages import Kick, Kicked, SessionsReply, SessionsRequest
from gatepost.service.worker_process import WorkerProcess

FIND_SECONDS = 5.0
"""For a worker's list: twenty thousand sessions take it a tenth of one, when nothing else is to do."""
PATIENCE_SECONDS = 3.0
"""Beyond the time that a worker has to end sessions: it cuts what is left, and its answer has to come."""
MAX_KICK_SECONDS = 300.0
"""Longer than this nobody waits at a terminal for sessions to reach a boundary."""


async def find(workers: Sequence[WorkerProcess], request: SessionsRequest, server: str) -> SessionsReply:
    """The sessions of these workers that match, at most `limit` of them as entries."""
    limit = max(0, min(request.limit, MAX_LISTED))
    wanted = SessionsRequest(request.wanted, limit)
    workers = [worker for worker in workers if worker.serves]
    answers = await asyncio.gather(*(worker.ask(wanted, FIND_SECONDS) for worker in workers))
    sessions: list[dict[str, Any]] = []
    protocols: dict[str, int] = {}
    missing: list[int] = []
    total = 0
    for worker, answer in zip(workers, answers, strict=True):
        if not isinstance(answer, SessionsReply):
            missing += [worker.pid] if worker.serves else []  # one that has ended has no sessions any more
            continue
        total += answer.total
        sessions += [entry | {"worker": worker.pid} for entry in answer.sessions[: limit - len(sessions)]]
        for protocol, number in answer.protocols.items():
            protocols[protocol] = protocols.get(protocol, 0) + number
    return SessionsReply(sessions, total, protocols, server, missing, request.request)


async def kick(workers: Sequence[WorkerProcess], request: Kick, server: str) -> Kicked:
    """End the sessions of these workers that match; every outcome, and who did not answer."""
    if request.wanted.is_empty and not request.everything:
        return Kicked([], server, error="no session is named", request=request.request)
    seconds = max(0.0, min(request.seconds, MAX_KICK_SECONDS))
    workers = [worker for worker in workers if worker.serves]
    answers = await asyncio.gather(*(_kick_one(worker, request, seconds) for worker in workers))
    outcomes = [pair for answer in answers if answer is not None for pair in answer]
    missing = [worker.pid for worker, answer in zip(workers, answers, strict=True) if answer is None]
    return Kicked(outcomes, server, missing, request=request.request)


async def _kick_one(worker: WorkerProcess, request: Kick, seconds: float) -> list[tuple[str, str]] | None:
    """One worker's outcomes, None: it did not answer. If it ends meanwhile, the kernel has closed what it had."""
    wanted = SessionsRequest(request.wanted, MAX_LISTED)
    before = await worker.ask(wanted, FIND_SECONDS)
    answer = await worker.ask(Kick(request.wanted, request.reason, seconds), seconds + PATIENCE_SECONDS)
    if isinstance(answer, Kicked):
        return answer.outcomes
    if worker.serves:
        return None
    return [
        (str(entry["session"]), "closed") for entry in (before.sessions if isinstance(before, SessionsReply) else ())
    ]
