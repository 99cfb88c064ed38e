"""What the commands on a running transport share: which server is asked, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from gatepost.cli.options import load_configuration

server_option = click.option(
    "--server", default="", help="The hub or edge on this machine; without it the one of the configuration."
)
"""Adds the parameter `server`."""


every_option = click.option("--all-servers", "everyone", is_flag=True, help="All hubs and edges on this machine.")
"""Adds the parameter `everyone`."""


def ask(config: str, server: str, verb: str, **arguments: Any) -> Any:  # noqa: ANN401 - by verb
    """What the transport of a server on this machine answers. Raises `click.ClickException`."""
    from gatepost.service.transport_asking import NotAnswered, ask_transport

    try:
        return ask_transport(load_configuration(config), server, verb, **arguments)
    except NotAnswered as fault:
        raise click.ClickException(str(fault)) from fault


def ask_each(
    config: str, server: str, verb: str, arguments: dict[str, Any], *, everyone: bool
) -> Iterator[tuple[str, Any]]:
    """The servers that were asked with their answers: all of this machine, or one.

    With `everyone` one that does not answer is told of and left out. Raises `click.ClickException`.
    """
    from gatepost.service.transport_asking import NotAnswered, ask_transport, servers_here

    configuration = load_configuration(config)
    if everyone and server:
        raise click.UsageError("--all-servers or --server, not both")
    if not everyone:
        yield server or configuration.front_end.server, ask(config, server, verb, **arguments)
        return
    here = servers_here(configuration)
    if not here:
        raise click.ClickException("no hub or edge runs on this machine")
    for name in here:
        try:
            yield name, ask_transport(configuration, name, verb, **arguments)
        except NotAnswered as fault:
            click.echo(f"{name}: {fault}", err=True)
