"""What only several front ends' configurations together show (last warning of SPEC O2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gatepost.configuration.certificates import certificates, public_key_of
from gatepost.configuration.findings import LocatedFinding
from gatepost.configuration.front_end import public_names
from gatepost.configuration.settings import Configuration
from gatepost.organization.faults import warning


def compare(front_ends: Mapping[str, Configuration]) -> Iterator[LocatedFinding]:
    """Front ends of one name with different certificates (SPEC B6). Keys are the files' names.

    Whoever is signed in at one front end is known at another only if both derive the cookie's key from the same
    private key, so it is the keys that are compared: a renewed certificate may keep its key.
    """
    first: dict[str, tuple[str, bytes]] = {}
    for file, configuration in front_ends.items():
        if not configuration.front_end.certificate:
            continue
        key = public_key_of(certificates(configuration.front_end.certificate)[0])
        for name in public_names(configuration.organization, configuration.server):
            other, other_key = first.setdefault(name, (file, key))
            if key != other_key:
                message = f"clients know it and the front end of {other} as {name}, but their certificates differ"
                remedy = "give all front ends of one name the same certificate and key"
                found = warning(("front_end", "certificate"), "front end", message, remedy)
                yield LocatedFinding(found, file)
