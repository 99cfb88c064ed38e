"""`gatepost array`: what the shell's cmdlets for client access arrays do, as plain commands."""

from __future__ import annotations

import click

from gatepost.cli.shell_options import Work, json_option, what_if_option, work_options, yes_option
from gatepost.shell.binding import Bindable, Changes


@click.group("array")
def command() -> None:
    """Client access arrays: front ends of one site behind one name."""


@command.command("list")
@click.argument("name", required=False)
@click.option("--site", metavar="SITE", help="Only those of this site.")
@json_option
@work_options
def list_(name: str | None, site: str | None, as_json: bool, work: Work) -> None:
    """List the arrays."""
    columns = ("Name", "Site", "Fqdn", "Members")
    work.show("Get-ClientAccessArray", {"Identity": name, "Site": site}, columns, as_json=as_json)


@command.command("new")
@click.argument("name")
@click.option("--fqdn", required=True, metavar="NAME", help="The name that clients use.")
@click.option("--site", required=True, metavar="SITE", help="Its site.")
@click.option("--member", "members", multiple=True, metavar="SERVER", help="A server; may be repeated. Default: all.")
@what_if_option
@work_options
def new(name: str, fqdn: str, site: str, members: tuple[str, ...], what_if: bool, work: Work) -> None:
    """Add an array; without --member with all client access servers of the site."""
    changes = Changes(new=members) if members else None
    values: dict[str, Bindable] = {"Name": name, "Fqdn": fqdn, "Site": site, "Members": changes, "WhatIf": what_if}
    work.run("New-ClientAccessArray", values)


@command.command("set")
@click.argument("name")
@click.option("--fqdn", metavar="NAME", help="The name that clients use.")
@click.option("--site", metavar="SITE", help="Its site.")
@click.option("--add-member", "added", multiple=True, metavar="SERVER", help="One more server; may be repeated.")
@click.option("--remove-member", "removed", multiple=True, metavar="SERVER", help="A server less; may be repeated.")
@what_if_option
@work_options
def set_(
    name: str,
    fqdn: str | None,
    site: str | None,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    what_if: bool,
    work: Work,
) -> None:
    """Change an array; what is not named stays."""
    changes = Changes(add=added, remove=removed) if added or removed else None
    if fqdn is None and site is None and changes is None:
        raise click.UsageError("say what to change")
    values: dict[str, Bindable] = {"Identity": name, "Fqdn": fqdn, "Site": site, "Members": changes, "WhatIf": what_if}
    work.run("Set-ClientAccessArray", values)


@command.command("remove")
@click.argument("name")
@yes_option
@what_if_option
@work_options
def remove(name: str, yes: bool, what_if: bool, work: Work) -> None:
    """Take an array away. Its servers stay."""
    values: dict[str, Bindable] = {"Identity": name, "WhatIf": what_if, "Confirm": False if yes else None}
    work.run("Remove-ClientAccessArray", values)
