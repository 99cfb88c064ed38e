"""Building findings: the words that all parts of the check share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches

from gatepost.organization.model import Finding, Severity

Path = tuple[str | int, ...]

MAX_NAMES_LISTED = 12
"""More names than this would hide the message."""
MAX_VALUE_SHOWN = 60
"""Characters of a faulty value that a message repeats."""


def error(path: Path, object_name: str, message: str, remedy: str, rests_on: Path = ()) -> Finding:
    """A fault that keeps the file from being used."""
    return Finding(Severity.ERROR, path, object_name, message, remedy, rests_on)


def warning(path: Path, object_name: str, message: str, remedy: str) -> Finding:
    """Something that works but that an operator will regret."""
    return Finding(Severity.WARNING, path, object_name, message, remedy)


def quoted(value: object) -> str:
    """`value` in quotes, cut where it is long."""
    text = str(value)
    return f'"{text}"' if len(text) <= MAX_VALUE_SHOWN else f'"{text[:MAX_VALUE_SHOWN]}…"'


def listed(names: Iterable[str]) -> str:
    """`names` separated by commas, cut where they are many."""
    found = list(names)
    more = len(found) - MAX_NAMES_LISTED
    shown = ", ".join(found[:MAX_NAMES_LISTED])
    return f"{shown} and {more} more" if more > 0 else shown


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that `name` was probably meant to be."""
    by_fold = {candidate.casefold(): candidate for candidate in names}
    short = name.casefold()[:MAX_VALUE_SHOWN]  # the comparison is quadratic
    found = get_close_matches(short, by_fold, n=1, cutoff=0.7)
    return by_fold[found[0]] if found else None


def suggestion(name: str, names: Iterable[str], kind: str) -> str:
    """A remedy for an unknown name: the nearest one and what there is. `kind` is a plural such as "sites"."""
    known = list(names)
    if not known:
        return f"there are no {kind}; add it or remove this reference"
    meant = nearest(name, known)
    if meant is None:
        return f"{kind} are: {listed(known)}"
    return f'did you mean "{meant}"? {kind[0].upper()}{kind[1:]} are: {listed(known)}'


def unknown(path: Path, object_name: str, word: str, kind: str, name: str, names: Iterable[str]) -> Finding:
    """The error of a reference to something that does not exist. `word` is the singular of `kind`."""
    return error(path, object_name, f"{word} {quoted(name)} does not exist", suggestion(name, names, kind))


def repeated(items: Iterable[str], key: Callable[[str], str] = str) -> list[tuple[int, str, str]]:
    """Items equal under `key` to an earlier one: (index, item, the earlier item)."""
    first: dict[str, str] = {}
    found = []
    for index, item in enumerate(items):
        if key(item) in first:
            found.append((index, item, first[key(item)]))
        else:
            first[key(item)] = item
    return found
