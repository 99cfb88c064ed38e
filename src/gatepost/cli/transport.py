"""`gatepost transport`: the mail transport's queues, servers and schedules."""

from __future__ import annotations

import click

from gatepost.balancing.healthy_server_selector import HealthyServerSelector
from gatepost.balancing.retry_schedule import TransportRole, default_settings
from gatepost.balancing.target import Target
from gatepost.cli.transport_unhealthy import forget, unhealthy
from gatepost.organization.transport import TransportSettings
from gatepost.routing.next_hop import Way

MAX_MINUTES = 366 * 24 * 60
_MINUTE = 60.0


@click.group("transport")
def command() -> None:
    """Mail transport."""


@command.command("retry-schedule")
@click.option(
    "--role",
    type=click.Choice([role.value for role in TransportRole]),
    default=TransportRole.HUB.value,
    show_default=True,
    help="Whose defaults.",
)
@click.option(
    "--until",
    "minutes",
    metavar="MINUTES",
    type=click.IntRange(0, MAX_MINUTES),
    default=60,
    show_default=True,
    help="The last minute that is shown.",
)
def retry_schedule(role: str, minutes: int) -> None:
    """Print in which minutes a server that is down is connected to, one a line, while mail for it waits."""
    for minute in attempts(default_settings(TransportRole(role)), minutes):
        click.echo(f"{minute:g}")


def attempts(settings: TransportSettings, minutes: int) -> list[float]:
    """The minutes: those in which the selector itself lets an attempt through, on a clock of its own."""
    selector = HealthyServerSelector(settings)
    address = "192.0.2.1"
    target = Target(address, address, 25, 0, Way(address, address, 25))
    found: list[float] = []
    now = 0.0
    while now <= minutes * _MINUTE:
        lease = selector.begin(target, now)
        if lease is not None:
            found.append(now / _MINUTE)
            selector.failed(target, now, "", lease)
        now = selector.next_due([target], now) or now + _MINUTE
    return found


for _command in (unhealthy, forget):
    command.add_command(_command)
