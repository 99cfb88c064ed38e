"""What the commands on a running transport share: which server is asked, and how."""

from __future__ import annotations

from typing import Any

import click

from gatepost.cli.options import load_configuration

server_option = click.option(
    "--server", default="", help="The hub or edge on this machine; without it the one of the configuration."
)
"""Adds the parameter `server`."""


def ask(config: str, server: str, verb: str, **arguments: Any) -> Any:  # noqa: ANN401 - by verb
    """What the transport of a server on this machine answers. Raises `click.ClickException`."""
    from gatepost.service.operators import all_sockets, request, socket_path
    from gatepost.service.transport_messages import ANSWER_SECONDS, TransportReply, TransportRequest

    front_end = load_configuration(config).front_end
    path = socket_path(front_end) if not server else all_sockets(front_end).get(server)
    if path is None:
        raise click.ClickException(f"no server {server} runs on this machine")
    try:
        reply = request(path, TransportRequest(verb, arguments), TransportReply, ANSWER_SECONDS + 5.0)
    except (FileNotFoundError, ConnectionRefusedError) as fault:
        raise click.ClickException(f"nobody answers at {path}: is it running?") from fault
    if reply.error:
        raise click.ClickException(reply.error)
    return reply.answer
