"""`gatepost serve`: run the front end until it is told to end."""

from __future__ import annotations

import asyncio

import click

from gatepost.cli.options import config_option


@click.command()
@config_option
@click.option("--server", metavar="NAME", help="Which server of the organization this is; else front_end.server.")
@click.option("--workers", type=click.IntRange(1, 256), help="Worker processes; else front_end.workers.")
def command(config: str, server: str | None, workers: int | None) -> None:
    """Run the front end.

    SIGTERM or SIGINT: accept nothing more, let sessions end, then exit; a second one: at once. SIGHUP: read the
    configuration and certificates again, sessions stay. SIGUSR2: new worker processes take over.
    """
    from gatepost.service.supervisor import CannotStart, Supervisor

    try:
        status = asyncio.run(Supervisor(config, server, workers).run())
    except CannotStart as fault:
        raise click.ClickException(str(fault)) from fault
    raise click.exceptions.Exit(status)
