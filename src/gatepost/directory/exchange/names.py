"""Distinguished names and numbers in the entries of Active Directory's configuration partition."""

from __future__ import annotations

import ldap
from ldap.dn import str2dn

from gatepost.directory.ldap.entries import Entry, texts_of

Key = tuple[str, ...]
"""A distinguished name to compare: its values from the first to the last, case-folded. Empty: it is none."""
CONFLICT = "\ncnf:"
"""In the name of an entry that was made at two domain controllers at once, and lost."""


def key(dn: str) -> Key:
    """`dn` to compare (RFC 4514)."""
    return tuple(value.casefold() for value in values_of(dn))


def values_of(dn: str) -> tuple[str, ...]:
    """The values of `dn`, as they are spelled; empty where it is no distinguished name."""
    try:
        return tuple(str(part[0][1]) for part in str2dn(dn))
    except (ldap.DECODING_ERROR, IndexError):
        return ()


def name_of(entry: Entry) -> str:
    """What an entry is called: the first value of its distinguished name."""
    return next(iter(values_of(entry[0])), "")


def is_conflict(name: str) -> bool:
    """Whether an entry of this name is the rest of a replication conflict."""
    return CONFLICT in name.casefold()


def text_of(entry: Entry, attribute: str) -> str:
    """The first value of an attribute, which is in lower case; or empty."""
    return next(iter(texts_of(entry, attribute)), "")


def number_of(entry: Entry, attribute: str) -> int | None:
    """The same as a number; None where it is none."""
    text = text_of(entry, attribute)
    try:
        return int(text) if text.lstrip("-").isdigit() and text.isascii() else None
    except ValueError:  # more digits than any number there has
        return None
