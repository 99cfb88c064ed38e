"""Entries of an Exchange organization, captured from a Samba by `directory.exchange.reading`, to be changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gatepost.directory.exchange.reading import Entries
from gatepost.directory.ldap.entries import Entry

CONFIGURATION = "CN=Configuration,DC=ad,DC=contoso,DC=test"
GROUP = (
    "CN=Exchange Administrative Group (FYDIBOHF23SPDLT),CN=Administrative Groups,CN=Contoso,CN=Microsoft Exchange,"
    f"CN=Services,{CONFIGURATION}"
)


def captured() -> Entries:
    """As they came."""
    read = json.loads(Path(__file__).with_name("exchange_capture.json").read_text())
    return Entries(**{kind: tuple(entry(dn, **values) for dn, values in found) for kind, found in read.items()})


def entry(dn: str, **values: Any) -> Entry:
    """An entry with these attributes; their names are in lower case, a value is a text or a list of texts."""
    lists = {name: [value] if isinstance(value, str) else value for name, value in values.items()}
    return dn, {name: [text.encode() for text in each] for name, each in lists.items()}


def with_more(entries: Entries, kind: str, *more: Entry) -> Entries:
    """With more entries of a kind."""
    return replace(entries, **{kind: (*getattr(entries, kind), *more)})


def changed(entries: Entries, kind: str, name: str, **values: Any) -> Entries:
    """With other values in the entry of that name; an empty list takes an attribute away."""
    found = tuple(
        (dn, {**have, **entry(dn, **values)[1]}) if dn.startswith(f"CN={name},") else (dn, have)
        for dn, have in getattr(entries, kind)
    )
    assert any(dn.startswith(f"CN={name},") for dn, _ in found), name
    return replace(entries, **{kind: found})


def server_dn(name: str) -> str:
    return f"CN={name},CN=Servers,{GROUP}"


def site_dn(name: str) -> str:
    return f"CN={name},CN=Sites,{CONFIGURATION}"
