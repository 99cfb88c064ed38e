"""What running front ends and hubs say of their servers' health, for `gatepost explain` (SPEC B7, T5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gatepost.cli.explain_report import HealthOf, Question, unknown_health
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Target, path_class
from gatepost.service.control import ServiceStatus
from gatepost.service.operators import ask, socket_path
from gatepost.service.transport_asking import NotAnswered, ask_transport, servers_here

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


def add_mail_health(configuration: Configuration, found: dict[str, Any]) -> None:
    """Write into the hops of a mail report which ways lead to a server that is down, as the hub there sees it now.

    Only hubs and edges that run on this machine can be asked; of others nothing is said.
    """
    here = set(servers_here(configuration))
    for hop in found["hops"]:
        if hop["server"] not in here or not hop.get("ways"):
            continue
        try:
            unhealthy = ask_transport(configuration, hop["server"], "unhealthy")
        except NotAnswered:
            continue
        for way in hop["ways"]:
            down = [entry for entry in unhealthy if _leads_to(way, entry)]
            if down:
                way["down"] = [
                    {"address": e["address"], "error": e["error"], "next_retry": e["next_retry"]} for e in down
                ]


def _leads_to(way: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether an unhealthy server is one of a way's."""
    if "host" not in way or entry["port"] != way["port"]:  # by MX: which hosts they are is found out when mail is sent
        return False
    same_host = str(entry["host"]).casefold() == str(way["host"]).casefold()
    return same_host or bool(entry["address"] == way["address"])
