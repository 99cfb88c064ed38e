"""Hubs of one site that keep shadows of each other's messages, before a server that takes all, for provings.

clients ──► HUB-01 ──┬── sink.example: every hub sends it itself ──────────► sink
clients ──► HUB-02 ──┤                                                       ▲
clients ──► HUB-03 ──┴── far.example: handed on to the last hub(s), which ───┘
"""

from __future__ import annotations

import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gatepost.configuration.load import load_organization
from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.process import Address, free_ports
from gatepost.lab.toml_text import Table, toml_text
from gatepost.peers.ca import CERTIFICATE_DAYS, Authority, make_authority
from gatepost.proving import stages
from gatepost.proving.hub_stage import CLIENTS, RETRY_AT_ONCE, SINK, HubService, new_sink
from gatepost.proving.links import Links
from gatepost.proving.senders import DOMAIN
from gatepost.proving.stages import Trap

FAR = "far.example"
"""A domain whose mail only the last hub, or of three the last two, send on."""
SITE = "usa"
RESUBMIT_SECONDS = 2.0
"""How long a hub may be silent until its messages are taken over."""
SHADOWS: Table = {
    "reject_message_on_shadow_failure": True,
    "shadow_heartbeat_frequency": "00:00:01",
    "shadow_resubmit_time_span": "00:00:02",
    "shadow_fence_time": "00:00:02",
    "safety_net_hold_time": "00:00:00",
}
"""Settings of the organization. Nothing is acknowledged that is in one place only: then the loss of any one disk must
lose nothing."""

OFF: Table = {"shadow_redundancy_enabled": False}


class ShadowHub(HubService):
    """One of them. Its disk is the folder of its spool."""

    def lose_disk(self) -> None:
        """What was on it is gone. It does not run."""
        shutil.rmtree(self.front_end["transport"]["spool"], ignore_errors=True)

    def stand_still(self, *, go_on: bool = False) -> None:
        """Stop its transport as a hang would, or let it go on."""
        pid = self.transport
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT if go_on else signal.SIGSTOP)


class ShadowHubs:
    """The hubs by name, the links between them, and the trap that all of them look at."""

    def __init__(self, folder: Path, network: int, count: int, next_server: Address, *, shadows: bool) -> None:
        """`count` hubs at 127.0.`network`.x before `next_server`; `shadows`: whether shadow redundancy is on.

        Raises OSError.
        """
        self.folder = folder
        folder.mkdir(parents=True)
        names = [f"HUB-{number:02}" for number in range(1, count + 1)]
        addresses = {name: f"127.0.{network}.{number}" for number, name in enumerate(names, 1)}
        places = {
            name: dict(zip(("servers", "clients"), free_ports(addresses[name], 2), strict=True)) for name in names
        }
        organization = organization_tables(addresses, places, next_server)
        organization["organization"] |= {"transport": SHADOWS if shadows else OFF}
        self._sources = {name: frozenset(table["source_servers"]) for name, table in _spaces(organization)}
        self._links = Links({name: (addresses[name], places[name]["servers"]) for name in names})
        self.trap = Trap(folder)
        self.hubs: dict[str, ShadowHub] = {}
        pairs = certificates(folder / "pki", organization, addresses)
        for name in names:
            own = front_end_table(folder / name.lower(), name, pairs[name])
            self.hubs[name] = ShadowHub(folder / name.lower(), own, self._seen_by(name, organization))
            self.hubs[name].environment |= stages.environment(folder, name)

    def start(self) -> None:
        """All of them, and wait until they greet. Raises `ServerNotStarted`."""
        for hub in self.hubs.values():
            hub.start()
        for hub in self.hubs.values():
            hub.wait_ready()

    def stop(self) -> None:
        """End everything, also what stands still."""
        self.trap.disarm()
        for hub in self.hubs.values():
            if hub.running:
                hub.stand_still(go_on=True)
                hub.signal(signal.SIGTERM)
        for hub in self.hubs.values():
            hub.stop()
        self._links.close()

    @property
    def places(self) -> list[Address]:
        """Where clients send to."""
        return [hub.addresses["smtp"] for hub in self.hubs.values()]

    def can_do_without(self, away: AbstractSet[str], domains: Collection[str]) -> bool:
        """Whether other hubs send mail for these domains on."""
        return all(self._sources[domain] - away for domain in domains)

    def cut_off(self, name: str, *, refuse: bool) -> None:
        """Nothing passes between this hub and the others. Clients and the next server reach it. As `Links.cut`."""
        self._links.cut(name, self.hubs.keys() - {name}, refuse=refuse)

    def mend(self) -> None:
        """All hubs reach each other."""
        self._links.mend()

    def faults(self) -> list[str]:
        """Unexpected faults in the hubs' logs, each once."""
        found = {
            f"{event.get('message', '')}: {event.get('traceback', '')[-300:]}": f"{name}, {event.get('time', '')}"
            for name, hub in self.hubs.items()
            for event in hub.events("worker.fault")
        }
        return [f"{where}: {text}" for text, where in found.items()]

    def _seen_by(self, name: str, organization: Table) -> Table:
        """The organization as a hub knows it: it reaches the others over links that can be cut."""
        servers = {
            other: table | {"endpoints": {"smtp": {"port": self._links.ports.get((name, other), own_port(table))}}}
            for other, table in organization["servers"].items()
        }
        return organization | {"servers": servers}


class Cast(ShadowHubs):
    """Hubs before a sink that writes down what it takes."""

    def __init__(self, folder: Path, network: int, count: int, *, shadows: bool) -> None:
        """As `ShadowHubs`."""
        [port] = free_ports(SINK, 1)
        super().__init__(folder, network, count, (SINK, port), shadows=shadows)
        self.sink = new_sink(folder / "sink", port, calm=True)
        self._taken = folder / "sink" / "taken"
        self._read = 0
        self.arrived: dict[str, list[str]] = defaultdict(list)
        """By identity: the hubs from which the sink has taken it, whole, in order; see `look`."""
        self.damaged = 0

    def start(self) -> None:
        """See `ShadowHubs`."""
        self.sink.start()
        self.sink.wait_ready()
        super().start()

    def stop(self) -> None:
        """See `ShadowHubs`."""
        super().stop()
        self.sink.stop()

    def busy(self) -> None:
        """The sink takes nothing for a moment, so that messages wait in the hubs."""
        self.sink.signal(signal.SIGUSR1)

    def look(self) -> None:
        """Read what the sink has written since."""
        with self._taken.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        for line in text.decode().splitlines():
            identity, whole, _, client = line.split()
            if whole == "1":
                self.arrived[identity].append(client.partition(".")[0].upper())
            else:
                self.damaged += 1


def organization_tables(addresses: Mapping[str, str], ports: Mapping[str, Mapping[str, int]], sink: Address) -> Table:
    """Hubs at these addresses, with a port for `clients` and one for `servers` each, before that sink."""
    names = list(addresses)
    to_sink: Table = {"smart_hosts": [f"{sink[0]}:{sink[1]}"], "tls": "none"}
    return {
        "organization": {
            "name": "contoso",
            "accepted_domains": ["contoso.com", DOMAIN, FAR],
            "accepted_domain_kinds": dict.fromkeys((DOMAIN, FAR), "external-relay"),
        },
        "sites": {SITE: {}},
        "servers": {
            name: {
                "site": SITE,
                "roles": ["hub-transport"],
                "fqdn": f"{name.lower()}.contoso.com",
                "address": address,
                "endpoints": {"smtp": {"port": ports[name]["servers"]}},
                "transport": {**RETRY_AT_ONCE, "min_free_bytes": "16MB"},
            }
            for name, address in addresses.items()
        },
        "receive_connectors": {
            f"{kind} {name}": {"server": name, "bindings": [f"{address}:{ports[name][kind]}"], "tarpit_seconds": 0}
            | {"max_connections_per_source": 1000, "remote_ranges": [CLIENTS], **_CONNECTORS[kind]}
            for name, address in addresses.items()
            for kind in _CONNECTORS
        },
        "send_connectors": {
            "Near": {"address_spaces": [DOMAIN], "source_servers": names, **to_sink},
            "Far": {"address_spaces": [FAR], "source_servers": names[1:], **to_sink},
        },
    }


_CONNECTORS: dict[str, Table] = {
    "clients": {"permission_groups": ["anonymous"]},
    "servers": {"permission_groups": ["servers"], "authentication": ["tls", "servers"]},
}


def own_port(server: Table) -> int:
    """Where it takes mail of other hubs."""
    port: int = server["endpoints"]["smtp"]["port"]
    return port


def _spaces(organization: Table) -> Iterator[tuple[str, Table]]:
    """The send connectors by the domain that they are for."""
    for table in organization["send_connectors"].values():
        yield table["address_spaces"][0], table


def front_end_table(folder: Path, name: str, files: Table) -> Table:
    """`[front_end]` of a hub; `files` are its certificates."""
    return {
        "server": name,
        "directory": str(folder / "directory.sqlite"),
        "registry": str(folder / "registry.sqlite"),
        "transport": {"spool": str(folder / "spool")},
        **files,
    }


def certificates(folder: Path, organization: Table, addresses: Mapping[str, str]) -> dict[str, Table]:
    """For each hub the keys of `[front_end]` that name its certificates."""
    authority = CertificateAuthority.create(folder)
    pair = make_authority("contoso", datetime.now(UTC))
    own = Authority.load(pair)
    (folder / "organization-ca.crt").write_bytes(pair.certificate)
    (folder / "organization.toml").write_text(toml_text(organization))
    loaded = load_organization(str(folder / "organization.toml"))
    assert loaded.organization is not None, loaded.findings
    servers = loaded.organization.servers
    found = {}
    for name, address in addresses.items():
        public = authority.issue(name.lower(), f"{name.lower()}.contoso.com", address)
        peer = own.issue(servers[name], datetime.now(UTC), CERTIFICATE_DAYS)
        for end, text in (("crt", peer.certificate), ("key", peer.private_key)):
            file = folder / f"{name.lower()}-peer.{end}"
            file.touch(mode=0o600)
            file.write_bytes(text)
        found[name] = {
            "certificate": str(public.certificate),
            "private_key": str(public.private_key),
            "server_ca": str(authority.certificate),
            "peer_certificate": str(folder / f"{name.lower()}-peer.crt"),
            "peer_private_key": str(folder / f"{name.lower()}-peer.key"),
            "organization_ca": str(folder / "organization-ca.crt"),
        }
    return found
