"""`gatepost transport unhealthy|forget`: the servers that a running transport knows to be down (SPEC T5 to T8)."""

from __future__ import annotations

import json
from ipaddress import ip_address

import click

from gatepost.cli.options import config_option
from gatepost.cli.queue_words import moment
from gatepost.cli.transport_asking import ask, server_option


@click.command("unhealthy")
@click.option("--json", "as_json", is_flag=True, help="For programs: one array.")
@server_option
@config_option
def unhealthy(as_json: bool, server: str, config: str) -> None:
    """List the servers that are down: since when, how often they were tried, and when they are tried next."""
    found = ask(config, server, "unhealthy")
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    click.echo(f"{'server':<30} {'failures':>8} {'since':<19} {'last retry':<19} {'next retry':<19} error")
    for entry in found:
        place = f"{_host(entry['address'])}:{entry['port']}"
        times = " ".join(f"{moment(entry[key]):<19}" for key in ("marked", "last_retry", "next_retry"))
        name = f" ({entry['host']})" if entry["host"] != entry["address"] else ""
        click.echo(f"{place:<30} {entry['failures']:>8} {times} {entry['error']}{name}".rstrip())


@click.command("forget")
@click.argument("address_port", metavar="ADDRESS:PORT")
@server_option
@config_option
def forget(address_port: str, server: str, config: str) -> None:
    """Take a server off that list, as after a repair: it gets its share at once. An IPv6 address is in brackets."""
    host, _, port = address_port.rpartition(":")
    try:
        address = str(ip_address(host.removeprefix("[").removesuffix("]")))
        number = int(port)
    except ValueError as fault:
        raise click.UsageError(f"{address_port} is no ADDRESS:PORT") from fault
    if not ask(config, server, "forget", address=address, port=number):
        raise click.ClickException(f"{address_port} is not on the list")
    click.echo(f"forgotten: {address_port}")


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
