"""`gatepost manager`: run an active manager alone."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "-c", "--config", required=True, type=click.Path(dir_okay=False), metavar="FILE", help="The configuration file."
)
@click.option("--server", metavar="NAME", help="Which server of the organization this is; else front_end.server.")
def command(config: str, server: str | None) -> None:
    """Run an active manager alone: of all managers of a registry one acts, the others stand by.

    A front end whose configuration has [front_end.manager] runs one itself. SIGTERM or SIGINT: give the lease back, so
    that a standby acts at once, and end. SIGHUP: read the configuration again.
    """
    from gatepost.service.handing_over import Invalid
    from gatepost.service.manager_alone import manage
    from gatepost.service.privileges import PrivilegeError

    try:
        manage(config, server)
    except (Invalid, PrivilegeError, OSError) as fault:
        raise click.ClickException(str(fault)) from fault
