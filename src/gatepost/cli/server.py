"""`gatepost server`: the organization's servers."""

from __future__ import annotations

import click

from gatepost.cli.shell_options import Work, json_option, work_options


@click.group("server")
def command() -> None:
    """The organization's servers."""


@command.command("list")
@click.argument("name", required=False)
@json_option
@work_options
def list_(name: str | None, as_json: bool, work: Work) -> None:
    """List the servers with site, roles and version."""
    columns = ("Name", "Site", "ServerRole", "AdminDisplayVersion", "Fqdn")
    work.show("Get-ExchangeServer", {"Identity": name}, columns, as_json=as_json)
