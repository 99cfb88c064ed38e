"""What only several front ends' configurations together show (last warning of SPEC O2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gatepost.configuration.certificates import certificates, public_key_of
from gatepost.configuration.compare_organizations import organizations, sign_in_pages
from gatepost.configuration.findings import LocatedFinding
from gatepost.configuration.front_end import public_names
from gatepost.configuration.settings import Configuration
from gatepost.organization.faults import warning
from gatepost.peers.ca import issued_by


def compare(front_ends: Mapping[str, Configuration]) -> Iterator[LocatedFinding]:
    """Whatever front ends must have alike and have not. Keys are the files' names."""
    yield from _certificates(front_ends)
    yield from _peers(front_ends)
    yield from sign_in_pages(front_ends)
    yield from organizations(front_ends)


def _peers(front_ends: Mapping[str, Configuration]) -> Iterator[LocatedFinding]:
    """Front ends that refuse each other since neither's CA has signed for the other (SPEC C11). One line a file."""
    keys = {file: configuration.front_end.peer_keys for file, configuration in front_ends.items()}
    shown = {file: certificates(found.certificate)[0] for file, found in keys.items() if found is not None}
    for file, found in keys.items():
        if found is None:
            continue
        believed = certificates(found.organization_ca)
        stranger = next(
            (other for other, leaf in shown.items() if not any(issued_by(leaf, authority) for authority in believed)),
            None,
        )
        if stranger is not None:
            message = f"the organization's CA has not signed the peer certificate of {stranger}: it will be refused"
            remedy = "give all front ends the same organization_ca, and certificates that it has issued"
            yield LocatedFinding(warning(("front_end", "organization_ca"), "front end", message, remedy), file)


def _certificates(front_ends: Mapping[str, Configuration]) -> Iterator[LocatedFinding]:
    """Front ends of one name with different certificates (SPEC B6).

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
