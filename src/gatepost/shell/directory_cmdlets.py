"""Get-, Set-, New- and Remove- for each kind of virtual directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gatepost.configuration.build import usual_name
from gatepost.configuration.editing import Plain
from gatepost.organization.faults import listed
from gatepost.organization.model import VirtualDirectory
from gatepost.shell import directories
from gatepost.shell.binding import Bound, Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError


@dataclass(frozen=True)
class Noun:
    """A kind of virtual directory: its cmdlets' noun, the services it covers, and the properties that only it has."""

    name: str
    services: tuple[str, ...]
    parameters: tuple[Parameter, ...] = ()
    more: tuple[str, ...] = ()
    """Properties beside those that are parameters."""

    @property
    def folded(self) -> frozenset[str]:
        """The services as they are compared."""
        return frozenset(service.casefold() for service in self.services)

    @property
    def properties(self) -> frozenset[str]:
        """Names of the properties that belong to it."""
        return frozenset((*(p.name for p in self.parameters), *self.more))


IDENTITY = Parameter("Identity", Kind.TEXT, "SERVER\\name, or the name alone: of this front end's server.", 0)
SERVER = Parameter("Server", Kind.TEXT, "The server.")
_URLS = (
    Parameter("InternalUrl", Kind.TEXT, "Where front ends and peers reach it.", null=True),
    Parameter("ExternalUrl", Kind.TEXT, "What clients outside are told.", null=True),
)
_BASIC = Parameter("BasicAuthentication", Kind.FLAG, "Whether it accepts Basic.", aliases=("BasicAuthEnabled",))
_WINDOWS = Parameter(
    "WindowsAuthentication",
    Kind.FLAG,
    "Whether it accepts Integrated authentication, which proxying needs.",
    aliases=("WindowsAuthEnabled",),
)
_FORMS = Parameter("FormsAuthentication", Kind.FLAG, "Whether browsers get the sign-in page.")
_OAUTH = Parameter("OAuthAuthentication", Kind.FLAG, "Whether it accepts bearer tokens.")
_REDIRECT = Parameter(
    "RedirectToOptimalOWAServer", Kind.FLAG, "Redirect to the mailbox's site; $false proxies instead."
)
_TYPE = Parameter(
    "CrossSiteRedirectType", Kind.TEXT, "A page with the link, or at once.", words=tuple(directories.REDIRECTS)
)
_BYPASS = Parameter("InternalNLBBypassUrl", Kind.TEXT, "Where peers reach this one machine.", null=True)

_AUTH_ENABLED = ("BasicAuthEnabled", "WindowsAuthEnabled")
"""What the source system calls them for ActiveSync."""

NOUNS = (
    Noun(
        "OwaVirtualDirectory",
        ("owa", "exchange", "public", "exchweb"),
        (_BASIC, _WINDOWS, _FORMS, _OAUTH, _REDIRECT, _TYPE),
    ),
    Noun("EcpVirtualDirectory", ("ecp",), (_BASIC, _WINDOWS, _FORMS, _OAUTH)),
    Noun("ActiveSyncVirtualDirectory", ("Microsoft-Server-ActiveSync",), (_BASIC, _WINDOWS), _AUTH_ENABLED),
    Noun("WebServicesVirtualDirectory", ("EWS", "AS"), (_BYPASS, _BASIC, _WINDOWS, _OAUTH)),
    Noun("OabVirtualDirectory", ("OAB",), (_BASIC, _WINDOWS)),
    Noun("AutodiscoverVirtualDirectory", ("Autodiscover",), (_BASIC, _WINDOWS)),
    Noun("MapiVirtualDirectory", ("mapi",), (_BASIC, _WINDOWS)),
)
ANY = Noun("VirtualDirectory", (), (_BYPASS, _BASIC, _WINDOWS, _FORMS, _OAUTH, _REDIRECT, _TYPE))
"""Every kind, with any path an operator adds: for the plain commands, and for paths the source system does not have."""


def directory_cmdlets() -> list[Cmdlet]:
    """The four of each kind."""
    return [cmdlet for noun in (*NOUNS, ANY) for cmdlet in cmdlets_of(noun)]


def cmdlets_of(noun: Noun) -> list[Cmdlet]:
    """Get-, Set-, New- and Remove- of one kind."""
    name = noun.name
    new = (
        SERVER,
        Parameter("Name", Kind.TEXT, "The service's word or its name, such as owa (Default Web Site).", 0),
        Parameter("WebSiteName", Kind.TEXT, "What stands in brackets in the name: Default Web Site."),
        Parameter("Path", Kind.TEXT, "Its path. Default: / and the service's word."),
        Parameter("PathClass", Kind.TEXT, "Who asks for it.", words=("interactive", "device", "api")),
    )
    return [
        Cmdlet(f"Get-{name}", "Show virtual directories.", lambda i: _get(noun, i), (IDENTITY, SERVER)),
        Cmdlet(
            f"Set-{name}",
            "Change virtual directories.",
            lambda i: _set(noun, i),
            (IDENTITY, *_URLS, *noun.parameters),
            changes=True,
        ),
        Cmdlet(
            f"New-{name}",
            "Add a virtual directory. It gets no internal URL by itself.",
            lambda i: _new(noun, i),
            (*new, *_URLS, *noun.parameters),
            changes=True,
        ),
        Cmdlet(
            f"Remove-{name}",
            "Take virtual directories away.",
            lambda i: _remove(noun, i),
            (IDENTITY,),
            changes=True,
            asks=True,
        ),
    ]


def _get(noun: Noun, invocation: Invocation) -> Iterator[Output]:
    bound, session = invocation.bound, invocation.session
    server = bound.text("Server")
    if invocation.given is not None:
        found = [d for i in invocation.identities() for d in directories.find(session, noun.folded, i)]
    else:
        found = directories.find(session, noun.folded, bound.text("Identity"), server)
    for directory in found:
        yield directories.thing_of(session, directory, noun.name, only=noun.properties)


def _meant(noun: Noun, invocation: Invocation) -> list[VirtualDirectory]:
    session = invocation.session
    return [directories.find_one(session, noun.folded, identity) for identity in invocation.identities()]


def _set(noun: Noun, invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    if not invocation.bound.values.keys() - {"Identity", "WhatIf", "Confirm"}:
        raise ShellError("say what to change, for example -ExternalUrl")
    meant = invocation.change(lambda: _meant(noun, invocation), lambda d: f"Change {directories.identity_of(d)}?")
    for directory in meant:
        directories.set_keys(session, directory, directories.changed_keys(directory, invocation.bound))
    return iter(())


def _new(noun: Noun, invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    service, name = _service_and_name(noun, bound)
    for server in invocation.change(lambda: [_server(invocation)], lambda server: f"Add {name} to {server}?"):
        new = VirtualDirectory(server, service, "", name=name)
        first: dict[str, Plain | None] = {
            "server": server,
            "service": service,
            "path": bound.text("Path"),
            "name": name,
        }
        keys = first | directories.changed_keys(new, bound) | {"path_class": bound.text("PathClass")}
        made = directories.add(session, keys, f"Set-{noun.name}")
        yield directories.thing_of(session, made, noun.name, only=noun.properties)


def _server(invocation: Invocation) -> str:
    named = invocation.bound.text("Server") or invocation.session.this_server
    if not named:
        raise ShellError("-Server is needed: the configuration names no front end")
    return invocation.session.server(named).name


def _service_and_name(noun: Noun, bound: Bound) -> tuple[str, str]:
    """The service's word and the directory's name, from `-Name` and `-WebSiteName`."""
    given = (bound.text("Name") or "").strip() or (noun.services[0] if noun.services else "")
    if not given:
        raise ShellError("-Name is needed, for example -Name dav")
    word = given.partition(" (")[0]
    if noun.services:
        spelled = next((s for s in noun.services if s.casefold() == word.casefold()), None)
        if spelled is None:
            raise ShellError(f"-Name begins with one of {listed(noun.services)} for this kind, not with {word!r}")
        word = spelled
    site = bound.text("WebSiteName")
    if site:
        return word, f"{word} ({site})"
    return word, given if " (" in given else usual_name(word)


def _remove(noun: Noun, invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    question = "Remove the virtual directory {}?"
    for directory in invocation.change(
        lambda: _meant(noun, invocation), lambda d: question.format(directories.identity_of(d))
    ):
        directories.remove(session, directory)
    return iter(())
