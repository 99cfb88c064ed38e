"""What a running front end says of its servers' health, for `gatepost explain` (SPEC B7)."""

from __future__ import annotations

from dataclasses import replace

from gatepost.cli.explain_report import HealthOf, Question, unknown_health
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Target, path_class
from gatepost.service.control import ServiceStatus
from gatepost.service.operators import ask, socket_path

ASK_SECONDS = 3.0
"""For the supervisor's answer; it waits 2 s for its workers."""


def health_of(configuration: Configuration, question: Question) -> HealthOf:
    """Health as the front end of `question` sees it now; where it does not run on this machine, nothing is known."""
    path = socket_path(replace(configuration.front_end, server=question.front_end))
    try:
        status = ask(path, ASK_SECONDS)
    except OSError:
        return unknown_health
    if question.protocol is Protocol.HTTPS:
        _, service = path_class(configuration.organization, question.front_end, question.path)
    else:
        service = question.protocol.value
    return lambda target: _words(status, target, service)


def _words(status: ServiceStatus, target: Target, service: str) -> str:
    """Each worker finds out by itself, so a server may be down for some of them."""
    answered = [worker.status for worker in status.workers if worker.status is not None]
    down = [
        seconds for found in answered if (seconds := found.counters.get(f"down.{target.server}.{service}")) is not None
    ]
    if not answered:
        return ""
    if not down:
        return "up"
    return f"down for {max(down)} s at {len(down)} of {len(answered)} workers"
