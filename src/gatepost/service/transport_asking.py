"""Asking the transports that run on this machine, by their operators' sockets: for commands. Blocks."""

from __future__ import annotations

from typing import Any

from gatepost.configuration.settings import Configuration
from gatepost.service.operators import all_sockets, request, socket_path
from gatepost.service.transport_messages import ANSWER_SECONDS, TransportReply, TransportRequest


class NotAnswered(Exception):
    """A transport gave no answer, or refused. The message is for the operator."""


def servers_here(configuration: Configuration) -> list[str]:
    """The hubs and edges of the organization whose sockets are on this machine, sorted."""
    servers = configuration.organization.servers
    return [name for name in all_sockets(configuration.front_end) if name in servers and servers[name].carries_mail]


def ask_transport(configuration: Configuration, server: str, verb: str, **arguments: Any) -> Any:  # noqa: ANN401
    """What the transport of `server` on this machine answers; without a server that of the configuration.

    Raises `NotAnswered`.
    """
    front_end = configuration.front_end
    path = socket_path(front_end) if server in {"", front_end.server} else all_sockets(front_end).get(server)
    if path is None:
        raise NotAnswered(f"no server {server} runs on this machine")
    try:
        reply = request(path, TransportRequest(verb, arguments), TransportReply, ANSWER_SECONDS + 5.0)
    except (FileNotFoundError, ConnectionRefusedError) as fault:
        raise NotAnswered(f"nobody answers at {path}: is it running?") from fault
    except OSError as fault:
        raise NotAnswered(f"no answer at {path}: {fault}") from fault
    if reply.error:
        raise NotAnswered(reply.error)
    return reply.answer
