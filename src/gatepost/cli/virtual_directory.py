"""`gatepost virtual-directory`: what the shell's cmdlets for virtual directories do, as plain commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from gatepost.cli.shell_options import Work, json_option, what_if_option, with_options, work_options, yes_option
from gatepost.shell.binding import Bindable

SHOWN = ("Server", "Name", "Path", "InternalUrl", "ExternalUrl")

_PARAMETERS = {
    "internal_url": "InternalUrl",
    "external_url": "ExternalUrl",
    "internal_bypass_url": "InternalNLBBypassUrl",
    "basic": "BasicAuthentication",
    "integrated": "WindowsAuthentication",
    "forms": "FormsAuthentication",
    "redirect": "RedirectToOptimalOWAServer",
    "cross_site_redirect": "CrossSiteRedirectType",
}
"""The options' names, and the parameters of the cmdlet that they are."""

_CHANGES = (
    click.option("--internal-url", metavar="URL", help="Where front ends and peers reach it. '': nowhere."),
    click.option("--external-url", metavar="URL", help="What clients outside are told. '': nothing."),
    click.option("--internal-bypass-url", metavar="URL", help="Where peers reach this one machine. '': nowhere."),
    click.option("--basic/--no-basic", default=None, help="Accept Basic."),
    click.option("--integrated/--no-integrated", default=None, help="Accept Integrated, which proxying needs."),
    click.option("--forms/--no-forms", default=None, help="Show browsers the sign-in page."),
    click.option("--redirect/--no-redirect", default=None, help="Redirect to the mailbox's site, or proxy instead."),
    click.option("--cross-site-redirect", type=click.Choice(["Manual", "Silent"], False), help="A page, or at once."),
)


def _changes(function: Callable[..., Any]) -> Callable[..., Any]:
    return with_options(function, _CHANGES)


def _values(options: Mapping[str, Bindable]) -> dict[str, Bindable]:
    return {_PARAMETERS[name]: value for name, value in options.items()}


@click.group("virtual-directory")
def command() -> None:
    r"""Virtual directories: paths that servers serve over HTTP, and where others reach them.

    IDENTITY is SERVER\NAME, or NAME alone: of this front end's server. For NAME the service's word or the path will
    do, such as owa or /owa.
    """


@command.command("list")
@click.argument("identity", required=False)
@click.option("--of-server", metavar="SERVER", help="Only those of this server.")
@json_option
@work_options
def list_(identity: str | None, of_server: str | None, as_json: bool, work: Work) -> None:
    """List virtual directories; those that a server has by its standard set too."""
    work.show("Get-VirtualDirectory", {"Identity": identity, "Server": of_server}, SHOWN, as_json=as_json)


@command.command("set")
@click.argument("identity")
@_changes
@what_if_option
@work_options
def set_(identity: str, what_if: bool, work: Work, **options: Bindable) -> None:
    """Change a virtual directory; what is not named stays."""
    if all(value is None for value in options.values()):
        raise click.UsageError("say what to change")
    work.run("Set-VirtualDirectory", {"Identity": identity, "WhatIf": what_if, **_values(options)})


@command.command("new")
@click.argument("service")
@click.option("--of-server", metavar="SERVER", help="The server. Default: this front end's.")
@click.option("--path", metavar="PATH", help="Its path. Default: / and the service's word.")
@click.option("--path-class", type=click.Choice(["interactive", "device", "api"]), help="Who asks for it.")
@_changes
@what_if_option
@work_options
def new(
    service: str,
    of_server: str | None,
    path: str | None,
    path_class: str | None,
    what_if: bool,
    work: Work,
    **options: Bindable,
) -> None:
    """Add a virtual directory for SERVICE, such as owa. It gets no internal URL by itself."""
    place = {"Name": service, "Server": of_server, "Path": path, "PathClass": path_class}
    work.run("New-VirtualDirectory", {**place, "WhatIf": what_if, **_values(options)})


@command.command("remove")
@click.argument("identity")
@yes_option
@what_if_option
@work_options
def remove(identity: str, yes: bool, what_if: bool, work: Work) -> None:
    """Take a virtual directory away."""
    values: dict[str, Bindable] = {"Identity": identity, "WhatIf": what_if, "Confirm": False if yes else None}
    work.run("Remove-VirtualDirectory", values)
