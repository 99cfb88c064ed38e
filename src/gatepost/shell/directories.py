"""Virtual directories: finding, describing and changing them, for cmdlets and plain commands alike."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from gatepost.configuration.build import usual_name
from gatepost.configuration.editing import Plain
from gatepost.organization.addresses import normal_path, parse_http_url
from gatepost.organization.faults import listed, quoted
from gatepost.organization.model import (
    AuthenticationMethod,
    CrossSiteRedirect,
    VirtualDirectory,
)
from gatepost.shell.binding import Bound
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session
from gatepost.shell.things import Cell, Thing

URLS = {
    "InternalUrl": "internal_url",
    "ExternalUrl": "external_url",
    "InternalNLBBypassUrl": "internal_bypass_url",
}
"""Parameters that are URLs, with the key of the file."""
METHODS = {
    "BasicAuthentication": AuthenticationMethod.BASIC,
    "WindowsAuthentication": AuthenticationMethod.INTEGRATED,
    "FormsAuthentication": AuthenticationMethod.FORMS,
    "OAuthAuthentication": AuthenticationMethod.OAUTH,
}
"""Parameters that switch a method on or off."""
REDIRECTS = {"Manual": CrossSiteRedirect.MANUAL, "Silent": CrossSiteRedirect.SILENT}


def identity_of(directory: VirtualDirectory) -> str:
    r"""The source system's identity, such as `CAS-01\owa (Default Web Site)`."""
    return f"{directory.server}\\{directory.name}"


def thing_of(session: Session, directory: VirtualDirectory, kind: str, *, only: frozenset[str] = frozenset()) -> Thing:
    """The directory as an object; `only` are the properties of its kind (empty: all)."""
    server = session.organization.servers[directory.server]
    redirect = next(word for word, value in REDIRECTS.items() if value is directory.cross_site_redirect)
    properties: dict[str, Cell] = {
        "Name": directory.name,
        "Server": directory.server,
        "InternalUrl": directory.internal_url,
        "ExternalUrl": directory.external_url,
        "InternalNLBBypassUrl": directory.internal_bypass_url,
        **{name: method in directory.authentication for name, method in METHODS.items()},
        "BasicAuthEnabled": AuthenticationMethod.BASIC in directory.authentication,
        "WindowsAuthEnabled": AuthenticationMethod.INTEGRATED in directory.authentication,
        "RedirectToOptimalOWAServer": directory.redirect_to_optimal_owa_server,
        "CrossSiteRedirectType": redirect,
        "Service": directory.service,
        "Path": directory.path,
        "PathClass": directory.path_class.value,
        "Site": server.site,
        "Version": server.version.word,
        "Identity": identity_of(directory),
    }
    shown = {name: value for name, value in properties.items() if not only or name in only or name in _ALWAYS}
    return Thing(kind, shown, ("Name", "Server", "InternalUrl", "ExternalUrl"))


_ALWAYS = frozenset(
    {"Name", "Server", "InternalUrl", "ExternalUrl", "Service", "Path", "PathClass", "Site", "Version", "Identity"}
)


def find(
    session: Session, services: frozenset[str], identity: str | None, server: str | None = None
) -> list[VirtualDirectory]:
    r"""The directories meant, of the `services` (case-folded; empty: all), in the organization's order.

    `identity` is `SERVER\name`, or a name alone: then of `server`, or of this front end's server; where the
    configuration has no front end, of every server. `*` stands for any characters. Raises `ShellError` when there is
    none.
    """
    candidates = [
        d for d in session.organization.virtual_directories if not services or d.service.casefold() in services
    ]
    if server is not None:
        wanted = session.server(server).name
        candidates = [d for d in candidates if d.server == wanted]
    if identity is None:
        return candidates
    where, name = _split(session, identity, server)
    there = [d for d in candidates if where is None or fnmatchcase(d.server.casefold(), where.casefold())]
    found = _called(there, name)
    if not found:
        raise ShellError(_unknown(identity, where, _called(candidates, name), there))
    return found


def find_one(session: Session, services: frozenset[str], identity: str, server: str | None = None) -> VirtualDirectory:
    """The one directory meant. Raises `ShellError` when there is none, or more than one."""
    found = find(session, services, identity, server)
    if len(found) > 1:
        names = listed(identity_of(d) for d in found)
        raise ShellError(f"{quoted(identity)} may be any of {names}: write one of these")
    return found[0]


def _split(session: Session, identity: str, server: str | None) -> tuple[str | None, str]:
    """Server (None: every one) and name of an identity."""
    first, backslash, rest = identity.partition("\\")
    if backslash:
        return (first if "*" in first else session.server(first).name), rest
    if server is not None or "*" in identity:
        return None, identity
    return session.this_server, identity


def _called(candidates: list[VirtualDirectory], name: str) -> list[VirtualDirectory]:
    """Those with this name; else those of this service or path. Case and the number of spaces make no difference."""
    wanted = " ".join(name.casefold().split())

    def fits(text: str) -> bool:
        return fnmatchcase(" ".join(text.casefold().split()), wanted.replace("[", "[[]"))

    by_name = [d for d in candidates if fits(d.name)]
    return by_name or [d for d in candidates if fits(d.service) or fits(d.path)]


def _unknown(identity: str, where: str | None, elsewhere: list[VirtualDirectory], there: list[VirtualDirectory]) -> str:
    place = f" on {where}" if where else ""
    if elsewhere:
        others = listed(identity_of(d) for d in elsewhere)
        return f"there is no virtual directory {quoted(identity)} of this kind{place}; there are {others}"
    known = listed(identity_of(d) for d in there) or "none"
    return f"there is no virtual directory {quoted(identity)} of this kind{place}; of this kind there are: {known}"


def changed_keys(directory: VirtualDirectory, bound: Bound) -> dict[str, Plain | None]:
    """The keys of the file that the parameters change. Raises `ShellError` for a bad value, naming the directory."""
    who = identity_of(directory)
    keys: dict[str, Plain | None] = dict(url_keys(who, bound))
    methods = set(directory.authentication)
    for name, method in METHODS.items():
        wanted = bound.flag(name)
        if wanted is not None:
            (methods.add if wanted else methods.discard)(method)
    if not methods:
        raise ShellError(f"{who}: no authentication method would be left, so nobody could sign in")
    if methods != directory.authentication:
        keys["authentication"] = [method.value for method in AuthenticationMethod if method in methods]
    redirects = bound.flag("RedirectToOptimalOWAServer")
    if redirects is not None and redirects is not directory.redirect_to_optimal_owa_server:
        keys["redirect_to_optimal_owa_server"] = None if redirects else False
    kind = bound.text("CrossSiteRedirectType")
    if kind is not None and REDIRECTS[kind] is not directory.cross_site_redirect:
        keys["cross_site_redirect"] = None if REDIRECTS[kind] is CrossSiteRedirect.MANUAL else REDIRECTS[kind].value
    return {key: value for key, value in keys.items() if key not in URLS.values() or value != getattr(directory, key)}


def url_keys(who: str, bound: Bound) -> Mapping[str, str | None]:
    """The URLs among the parameters, by the file's keys. Raises `ShellError` for what is no URL."""
    keys: dict[str, str | None] = {}
    for name, key in URLS.items():
        if name in bound:
            value = bound.text(name) or None
            if value is not None:
                try:
                    parse_http_url(value)
                except ValueError as fault:
                    raise ShellError(f"{who}: -{name}: {quoted(value)} {fault}") from fault
            keys[key] = value
    return keys


def set_keys(session: Session, directory: VirtualDirectory, keys: Mapping[str, Plain | None]) -> None:
    """Change a directory's entry in the file, or say that there is nothing to change. After `begin_change`."""
    if not keys:
        session.talk.warn(f"no setting of {identity_of(directory)} was changed: it is so already")
        return
    session.edit(lambda text, organization: text.set_directory(directory, keys, organization))


def add(session: Session, keys: Mapping[str, Plain | None], set_command: str) -> VirtualDirectory:
    """Add a directory; one that comes without an internal URL gets none (SPEC O3). Raises `ShellError`.

    `keys` have at least `server` and `service`; `set_command` is what sets the URL later. After `begin_change`.
    """
    server, service = str(keys["server"]), str(keys["service"])
    path = normal_path(str(keys.get("path") or service))
    for directory in session.organization.virtual_directories:
        if directory.server == server and directory.path.casefold() == path.casefold():
            raise ShellError(f"{server} has {path} already: it is {quoted(identity_of(directory))}")
    given = {key: value for key, value in keys.items() if value is not None}
    if given.get("name") == usual_name(service):
        del given["name"]
    session.edit(lambda text, organization: text.add_directory(given, organization))
    name = str(given.get("name") or usual_name(service))
    if "internal_url" not in given:
        url = session.organization.servers[server].own_url(path)
        session.talk.warn(
            f"{server}\\{name} has no internal URL: only setting up a server fills it. Others can proxy to it once it "
            f'is set: {set_command} "{server}\\{name}" -InternalUrl {url}'
        )
    return next(d for d in session.organization.virtual_directories if (d.server, d.path) == (server, path))


def remove(session: Session, directory: VirtualDirectory) -> None:
    """Take a directory out of the file. After `begin_change`."""
    session.edit(lambda text, organization: text.remove_directory(directory, organization))
