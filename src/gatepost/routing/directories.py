"""Which virtual directory a path belongs to, and what kind of client asks for it."""

from __future__ import annotations

from gatepost.organization.model import Organization, PathClass, VirtualDirectory, class_of_service

OLD_WEB = frozenset({"exchange", "public", "exchweb"})
"""Services of 2003 mailboxes (C7), case-folded. A directory at such a path with another service is none of them."""
OWA_FAMILY = frozenset({"owa", "ecp"})
"""Services that follow the owa directory's switches: the control panel shares its sign-in (facts, section 1.2)."""
OWA_PATH = "/owa"
"""Where Outlook Web App is on a front end that lists no directory for it."""
MAX_SHOWN = 60
"""Characters of a path that a message repeats."""


def find_directory(organization: Organization, server: str, path: str) -> VirtualDirectory | None:
    """The virtual directory of `server` with the longest path that is `path` or a parent of it, case ignored."""
    table = organization.directories_by_prefix.get(server)
    if table is None:
        return None
    folded = path.casefold() + "/"
    for prefix, directory in table:
        if prefix == "/" or folded.startswith(prefix):
            return directory
    return None


def path_class(organization: Organization, front_end: str, path: str) -> tuple[PathClass, str]:
    """Who asks for `path` at `front_end`, and the case-folded word of its service.

    For the form of answers, so it knows no mailbox: this front end's own directory for the path says it, else the
    word of the first segment (`class_of_service`).
    """
    return class_and_service(find_directory(organization, front_end, path), path)


def class_and_service(directory: VirtualDirectory | None, path: str) -> tuple[PathClass, str]:
    """The same by `directory`, or by the path's first segment where there is none."""
    if directory is not None:
        return directory.path_class, directory.service.casefold()
    word = first_segment(path)[1:].casefold()
    return class_of_service(word), word


def owa_directory(organization: Organization, server: str) -> VirtualDirectory | None:
    """The Outlook Web App directory of `server`: the one with the shortest path, should there be several."""
    found = [d for d in organization.directories_by_server.get(server, ()) if d.service.casefold() == "owa"]
    return found[-1] if found else None


def first_segment(path: str) -> str:
    """The first segment of `path` with its slash."""
    return "/" + path.lstrip("/").partition("/")[0]


def shown(path: str) -> str:
    """The first segment as a message repeats it: printable and short."""
    segment = first_segment(path)
    segment = segment if len(segment) <= MAX_SHOWN else segment[:MAX_SHOWN] + "..."
    return one_line(segment)


def one_line(text: str) -> str:
    """`text` in printable ASCII: what else it holds is escaped."""
    if text.isascii() and text.isprintable():
        return text
    return (
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        .encode("ascii", "backslashreplace")
        .decode()
    )
